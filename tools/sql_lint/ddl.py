"""Rules 8 to 11 and 14, for migrations. CockroachDB- or PostgreSQL-only steps name their dialect and may only tune."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from core.store.schema import Migration
from tools.sql_lint.catalog import Catalog, columns_of, constraints_of
from tools.sql_lint.findings import Finding
from tools.sql_lint.tree import column_of, function_of, kind_of, nodes, operator_of, parse
from tools.sql_lint.vocabulary import FUNCTIONS, RESERVED, type_faults

# Steps that change how the server keeps a table, never what is in it.
COCKROACH_TUNING = re.compile(r"^ALTER (TABLE|INDEX) \S+ (CONFIGURE ZONE USING|SPLIT AT|SET LOCALITY) ")
PLAIN_CONSTRAINTS = frozenset({"CONSTR_NOTNULL", "CONSTR_NULL", "CONSTR_DEFAULT", "CONSTR_PRIMARY", "CONSTR_CHECK"})


@dataclass(frozen=True, slots=True)
class Step:
    """A migration with its parsed statements; none for a dialect that is not PostgreSQL's."""

    migration: Migration
    found: tuple[Message, ...]
    catalog: Catalog


def read_step(migration: Migration, catalog: Catalog) -> Step:
    """Raises Unreadable when a step that PostgreSQL runs is not in its grammar."""
    found = () if migration.dialect == "cockroachdb" else tuple(parse(migration.ddl))
    return Step(migration, found, catalog)


def one_idempotent_step(step: Step) -> Iterator[str]:
    if step.migration.dialect == "cockroachdb":
        return
    if len(step.found) != 1:
        yield f"{len(step.found)} statements: one DDL each"
    for node in step.found:
        if isinstance(node, pg.CreateStmt | pg.IndexStmt) and not node.if_not_exists:
            yield "CREATE without IF NOT EXISTS cannot be run twice"
        if isinstance(node, pg.AlterTableStmt):
            for command in map(unwrap_node, node.cmds):
                assert isinstance(command, pg.AlterTableCmd)
                if not command.missing_ok and command.subtype in (pg.AT_AddColumn, pg.AT_DropColumn):
                    yield "ADD or DROP COLUMN without IF [NOT] EXISTS cannot be run twice"


def shared_types(step: Step) -> Iterator[str]:
    for node in step.found:
        for column in columns_of(node):
            yield from (f"{column.colname}: {fault}" for fault in type_faults(column.type_name))
        for inner in nodes(node):
            if isinstance(inner, pg.A_Expr) and operator_of(inner) == "/":
                yield "division: integers give DECIMAL on CockroachDB"
            elif isinstance(inner, pg.A_Const) and inner.sval.sval.lower().strip("+-") == "infinity":
                yield "'infinity' differs between the databases"


def keys_are_plain(step: Step) -> Iterator[str]:
    for node in step.found:
        if isinstance(node, pg.CreateStmt):
            table = step.catalog.tables[node.relation.relname]
            yield from _open_columns(step, node.relation.relname, table.primary_key)
            if not table.primary_key:
                yield f"{table.name} has no primary key"
            if any(c.contype == pg.CONSTR_UNIQUE for _, c in constraints_of(node)):
                yield "UNIQUE inside CREATE TABLE: use CREATE UNIQUE INDEX"
        elif isinstance(node, pg.IndexStmt):
            yield from _index_faults(step, node)


def forbidden_features(step: Step) -> Iterator[str]:
    allowed = pg.CreateStmt | pg.IndexStmt | pg.AlterTableStmt | pg.DropStmt
    for node in step.found:
        if not isinstance(node, allowed):
            yield f"{kind_of(node)} is not among CREATE TABLE, CREATE INDEX, ALTER TABLE and DROP"
        if isinstance(node, pg.CreateStmt):
            yield from _table_faults(node)
        elif isinstance(node, pg.IndexStmt) and node.access_method not in ("", "btree"):
            yield f"USING {node.access_method} means different things"
        for inner in nodes(node):
            if isinstance(inner, pg.IndexStmt | pg.Constraint):
                if inner.nulls_not_distinct:
                    yield "NULLS NOT DISTINCT"
                if inner.deferrable or inner.initdeferred:
                    yield "DEFERRABLE"
            if isinstance(inner, pg.FuncCall) and function_of(inner) not in FUNCTIONS:
                yield f"{function_of(inner)}() is not on the list of functions that both databases have alike"


def dialects_only_tune(step: Step) -> Iterator[str]:
    if step.migration.dialect == "cockroachdb":
        if not COCKROACH_TUNING.match(" ".join(step.migration.ddl.split())):
            yield "a step for CockroachDB alone may only tune: CONFIGURE ZONE, SPLIT AT, SET LOCALITY"
        return
    for node in step.found:
        tuning = isinstance(node, pg.AlterTableStmt) and all(
            isinstance(c, pg.AlterTableCmd) and c.subtype == pg.AT_SetRelOptions for c in map(unwrap_node, node.cmds)
        )
        if step.migration.dialect == "postgresql" and not tuning:
            yield "a step for PostgreSQL alone may only tune: ALTER TABLE … SET (…)"
        if step.migration.dialect is None and (tuning or _has_storage_options(node)):
            yield "storage parameters are PostgreSQL's own: put them into a step with its dialect"
        for column in columns_of(node):
            if column.colname in RESERVED:
                yield f"{column.colname} is a reserved word of CockroachDB"


def names_are_unique(steps: Sequence[Step]) -> Iterator[Finding]:
    """The rules over all steps at once."""
    for index, times in Counter(steps[0].catalog.index_names if steps else ()).items():
        if times > 1:
            yield Finding(index, "9", f"{times} indexes of one name")
    for label, values in (
        ("number", [str(step.migration.number) for step in steps]),
        ("name", [step.migration.name for step in steps]),
    ):
        for value, times in Counter(values).items():
            if times > 1:
                yield Finding(f"migration {value}", "14", f"{times} migrations of one {label}")


def _index_faults(step: Step, node: pg.IndexStmt) -> Iterator[str]:
    elements = [e for e in map(unwrap_node, node.index_params) if isinstance(e, pg.IndexElem)]
    if any(e.nulls_ordering != pg.SORTBY_NULLS_DEFAULT for e in elements):
        yield "NULLS FIRST or LAST in an index"
    yield from _open_columns(step, node.relation.relname, tuple(e.name for e in elements if e.name))
    key = step.catalog.primary_key(node.relation.relname)
    included = [e.name for e in map(unwrap_node, node.index_including_params) if isinstance(e, pg.IndexElem)]
    yield from (f"INCLUDE lists {name}, a column of the primary key" for name in included if name in key)
    if node.HasField("where_clause"):
        if any(isinstance(n, pg.FuncCall | pg.SubLink | pg.ParamRef) for n in nodes(node.where_clause)):
            yield "the predicate of a partial index must be literal"
        if not any(column_of(n) for n in nodes(node.where_clause)):
            yield "the predicate of a partial index names no column"


def _open_columns(step: Step, table: str, columns: tuple[str, ...]) -> Iterator[str]:
    known = step.catalog.tables[table].columns if table in step.catalog.tables else {}
    for column in columns:
        if not known.get(column, False):
            yield f"the key column {table}.{column} is not declared NOT NULL"


def _table_faults(node: pg.CreateStmt) -> Iterator[str]:
    if node.HasField("partspec") or node.HasField("partbound"):
        yield "declarative partitions"
    if node.relation.relpersistence == "t":
        yield "a temporary table"
    if node.inh_relations:
        yield "inheritance"
    for _, constraint in constraints_of(node):
        name = pg.ConstrType.Name(constraint.contype)
        if name == "CONSTR_FOREIGN":
            yield "a foreign key: hot tables carry none, and a cascade counts as a mutation"
        elif name not in PLAIN_CONSTRAINTS | {"CONSTR_UNIQUE", "CONSTR_ATTR_NOT_DEFERRABLE"}:
            yield f"{name.removeprefix('CONSTR_')} is not allowed in a table"


def _has_storage_options(node: Message) -> bool:
    return isinstance(node, pg.CreateStmt | pg.IndexStmt) and bool(node.options)


StepRule = tuple[str, Callable[[Step], Iterator[str]]]
RULES: tuple[StepRule, ...] = (
    ("8", shared_types),
    ("9", keys_are_plain),
    ("10", forbidden_features),
    ("11", dialects_only_tune),
    ("14", one_idempotent_step),
)
