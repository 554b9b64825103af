"""What the migrations make: tables with their columns and keys, and indexes. Read from the DDL itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from tools.sql_lint.tree import texts


@dataclass(slots=True)
class Table:
    """A table's columns (name to "is declared NOT NULL") and its primary key in order."""

    name: str
    columns: dict[str, bool] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()


@dataclass(slots=True)
class Catalog:
    """The schema after every migration."""

    tables: dict[str, Table] = field(default_factory=dict)
    index_names: list[str] = field(default_factory=list)

    def primary_key(self, table: str) -> tuple[str, ...]:
        """Its columns; empty for a table that no migration makes."""
        found = self.tables.get(table)
        return found.primary_key if found else ()


def catalog_of(statements: Iterable[Message]) -> Catalog:
    """The schema that these DDL statements make, run in order."""
    made = Catalog()
    for node in statements:
        if isinstance(node, pg.CreateStmt):
            made.tables.setdefault(node.relation.relname, _table(node))
        elif isinstance(node, pg.IndexStmt):
            made.index_names.append(node.idxname)
        elif isinstance(node, pg.AlterTableStmt):
            _alter(made.tables.setdefault(node.relation.relname, Table(node.relation.relname)), node)
    return made


def columns_of(node: Message) -> Iterator[pg.ColumnDef]:
    """The columns that a CREATE TABLE or an ALTER TABLE … ADD COLUMN defines."""
    if isinstance(node, pg.CreateStmt):
        yield from (c for c in map(unwrap_node, node.table_elts) if isinstance(c, pg.ColumnDef))
    elif isinstance(node, pg.AlterTableStmt):
        for command in map(unwrap_node, node.cmds):
            if isinstance(command, pg.AlterTableCmd):
                definition = unwrap_node(getattr(command, "def"))
                if isinstance(definition, pg.ColumnDef):
                    yield definition


def constraints_of(node: pg.CreateStmt) -> Iterator[tuple[pg.ColumnDef | None, pg.Constraint]]:
    """Every constraint of a table, with the column that carries it."""
    for element in map(unwrap_node, node.table_elts):
        if isinstance(element, pg.Constraint):
            yield None, element
        elif isinstance(element, pg.ColumnDef):
            for constraint in map(unwrap_node, element.constraints):
                if isinstance(constraint, pg.Constraint):
                    yield element, constraint


def is_not_null(column: pg.ColumnDef) -> bool:
    found = (c for c in map(unwrap_node, column.constraints) if isinstance(c, pg.Constraint))
    return any(c.contype == pg.CONSTR_NOTNULL for c in found)


def _table(node: pg.CreateStmt) -> Table:
    table = Table(node.relation.relname, {c.colname: is_not_null(c) for c in columns_of(node)})
    for column, constraint in constraints_of(node):
        if constraint.contype == pg.CONSTR_PRIMARY:
            table.primary_key = (column.colname,) if column is not None else tuple(texts(constraint.keys))
    return table


def _alter(table: Table, node: pg.AlterTableStmt) -> None:
    for column in columns_of(node):
        table.columns[column.colname] = is_not_null(column)
