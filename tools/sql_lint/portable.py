"""Rules 1 to 12, the function list and the clock, for statements that run on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import postgast
from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from tools.sql_lint.parts import Block, Parsed, Part
from tools.sql_lint.tree import (
    column_of,
    columns_written,
    function_of,
    has_aggregate,
    kind_of,
    nodes,
    operator_of,
    texts,
    visits,
)
from tools.sql_lint.vocabulary import (
    ADVISORY_AND_NOTIFY,
    CLOCKS,
    CONSTRUCTS,
    FUNCTIONS,
    RESERVED,
    SYSTEM_COLUMNS,
    type_faults,
)

Rule = tuple[str, Callable[[Parsed], Iterator[str]]]


def one_mutation_of_a_table(s: Parsed) -> Iterator[str]:
    for table, times in Counter(part.target for part in s.mutations).items():
        if times > 1:
            yield f"changes {table} {times} times; CockroachDB refuses that"


def mutations_at_the_top(s: Parsed) -> Iterator[str]:
    for part in s.parts:
        below = [n for n in nodes(part.node) if isinstance(n, pg.InsertStmt | pg.UpdateStmt | pg.DeleteStmt)]
        if len(below) > (1 if part.target else 0):
            yield f"{_named(part)} holds a mutation below the top level"


def no_reading_back(s: Parsed) -> Iterator[str]:
    for change in s.mutations:
        feeding = s.upstream(change)
        for part in s.parts:
            if part is not change and part.name not in feeding and change.target in part.relations:
                reader, writer = _named(part), _named(change)
                yield f"{reader} reads {change.target}, which {writer} changes: hand rows on with RETURNING"


def conflict_targets(s: Parsed) -> Iterator[str]:
    for node in nodes(s.root):
        if not isinstance(node, pg.OnConflictClause):
            continue
        if not node.HasField("infer") or node.infer.conname:
            yield "ON CONFLICT names no columns"
            continue
        elements = [e for e in map(unwrap_node, node.infer.index_elems) if isinstance(e, pg.IndexElem)]
        if not elements or any(not e.name or e.collation or e.opclass for e in elements):
            yield "ON CONFLICT takes plain columns only"
        if any(isinstance(n, pg.ParamRef) for n in nodes(node.infer.where_clause)):
            yield "the predicate of ON CONFLICT must be literal"


def batches_by_array(s: Parsed) -> Iterator[str]:
    for node in nodes(s.root):
        if isinstance(node, pg.SubLink) and node.sub_link_type == pg.ANY_SUBLINK and not node.oper_name:
            if any(isinstance(n, pg.FuncCall) and function_of(n) == "unnest" for n in nodes(node.subselect)):
                yield "IN (SELECT unnest(…)): use = ANY(CAST(:ids AS …[]))"
        elif isinstance(node, pg.A_Expr) and node.kind == pg.AEXPR_IN:
            if any(isinstance(n, pg.ParamRef) for n in nodes(node.rexpr)):
                yield "a list of binds in IN (…): use = ANY(CAST(:ids AS …[]))"
        elif isinstance(node, pg.SelectStmt) and len(node.values_lists) > 1:
            yield "VALUES of several rows: use unnest of arrays"
        elif isinstance(node, pg.FuncCall) and not _is_plain_unnest(node):
            yield "unnest takes arrays of a named type: CAST(:a AS BIGINT[])"


def no_limited_changes(s: Parsed) -> Iterator[str]:
    if any(isinstance(n, pg.SelectStmt) and n.HasField("limit_offset") for n in nodes(s.root)):
        yield "OFFSET: page by key"
    for part in s.mutations:
        if isinstance(part.node, pg.DeleteStmt) and (missing := _unfixed_key(s, part)):
            yield f"rows of {part.target} go without {', '.join(missing)}: delete by primary key, in chunks"


def no_skip_locked(s: Parsed) -> Iterator[str]:
    for node in nodes(s.root):
        if isinstance(node, pg.LockingClause) and node.wait_policy == pg.LockWaitSkip:
            yield "SKIP LOCKED: claim by compare-and-set"


def locks_through_the_key(s: Parsed) -> Iterator[str]:
    for part in s.mutations:
        if isinstance(part.node, pg.UpdateStmt) and (missing := _unfixed_key(s, part)):
            yield f"{part.target} changes without {', '.join(missing)}: rows are locked through the primary key only"
    for part in s.parts:
        for block in part.blocks:
            yield from _lock_faults(s, block)


def portable_types(s: Parsed) -> Iterator[str]:
    for node in nodes(s.root):
        if isinstance(node, pg.TypeName):
            yield from type_faults(node)
        elif isinstance(node, pg.A_Expr) and operator_of(node) == "/":
            yield "division: integers give DECIMAL on CockroachDB; compute it in Python"
        elif isinstance(node, pg.A_Const) and node.sval.sval.lower().strip("+-") == "infinity":
            yield "'infinity' differs between the databases"


def no_null_order(s: Parsed) -> Iterator[str]:
    for node in nodes(s.root):
        if isinstance(node, pg.SortBy) and node.sortby_nulls != pg.SORTBY_NULLS_DEFAULT:
            yield "NULLS FIRST or LAST"


def forbidden_features(s: Parsed) -> Iterator[str]:
    if not s.parts:
        yield f"{kind_of(s.root)} is no query"
    for node in nodes(s.root):
        if isinstance(node, pg.FuncCall) and ADVISORY_AND_NOTIFY.search(function_of(node)):
            yield f"{function_of(node)}(): advisory locks and NOTIFY"
        elif isinstance(node, pg.RangeVar) and node.relpersistence == "t":
            yield "a temporary table"
        elif isinstance(node, pg.SelectStmt) and node.HasField("into_clause"):
            yield "SELECT INTO makes a table"
        elif (column := column_of(node)) and column[1] in SYSTEM_COLUMNS:
            yield f"the system column {column[1]}"


def shared_constructs(s: Parsed) -> Iterator[str]:
    for visit in visits(s.root):
        node = visit.node
        if s.parts and kind_of(node) not in CONSTRUCTS:
            yield f"{kind_of(node)} is not among the constructs that both databases have alike"
        if isinstance(node, pg.SelectStmt) and node.limit_option == pg.LIMIT_OPTION_WITH_TIES:
            yield "WITH TIES"
        yield from (f"{word} is a reserved word of CockroachDB" for word in _own_names(node) if word in RESERVED)


def plain_casts_and_columns(s: Parsed) -> Iterator[str]:
    if "TYPECAST" in _tokens(s.sql):
        yield "write CAST(:a AS BIGINT), not ::"
    for visit in visits(s.root):
        if isinstance(visit.node, pg.A_Star):
            yield "columns are named, not *"
        elif isinstance(visit.node, pg.ParamRef) and not isinstance(visit.parent, pg.TypeCast):
            yield f"bind {visit.node.number} stands outside a CAST"


def known_functions(s: Parsed) -> Iterator[str]:
    for visit in visits(s.root):
        if not isinstance(visit.node, pg.FuncCall):
            continue
        name = function_of(visit.node)
        if name not in FUNCTIONS and name not in CLOCKS and not ADVISORY_AND_NOTIFY.search(name):
            yield f"{name}() is not on the list of functions that both databases have alike"
        if name == "sum" and not isinstance(visit.parent, pg.TypeCast):
            yield "sum() is NUMERIC on both: CAST it"


def server_clock_is_recorded_only(s: Parsed) -> Iterator[str]:
    for visit in visits(s.root):
        node = visit.node
        if isinstance(node, pg.SQLValueFunction) or (isinstance(node, pg.FuncCall) and function_of(node) in CLOCKS):
            yield "the time of a decision is a parameter"
        elif _is_server_clock(node) and "server_us" not in columns_written(visit):
            yield "clock_timestamp() goes into a column named server_us only"


def _is_server_clock(node: Message) -> bool:
    return isinstance(node, pg.FuncCall) and function_of(node) == "clock_timestamp"


def _named(part: Part) -> str:
    return f"the CTE {part.name}" if part.name else "the main query"


def _is_plain_unnest(node: pg.FuncCall) -> bool:
    """True for every other function, too."""
    return function_of(node) != "unnest" or all(_is_cast_array(argument) for argument in node.args)


def _is_cast_array(node: Message) -> bool:
    node = unwrap_node(node)
    return isinstance(node, pg.TypeCast) and len(node.type_name.array_bounds) == 1


def _unfixed_key(s: Parsed, part: Part) -> list[str]:
    """The primary-key columns that a mutation's conditions leave open."""
    block = next(part.own_blocks)
    names = [part.target_alias] if block.sources else [part.target_alias, ""]
    key = s.catalog.primary_key(part.target) or ("a primary key that a migration makes",)
    return [column for column in key if not any(block.equated(name, column) for name in names)]


def _lock_faults(s: Parsed, block: Block) -> Iterator[str]:
    select = block.node
    if not isinstance(select, pg.SelectStmt):
        return
    for clause in map(unwrap_node, select.locking_clause):
        assert isinstance(clause, pg.LockingClause)
        if clause.strength not in (pg.LCS_FORUPDATE, pg.LCS_FORSHARE):
            yield "FOR NO KEY UPDATE and FOR KEY SHARE mean more on CockroachDB: use FOR UPDATE or FOR SHARE"
        if select.group_clause or select.distinct_clause or has_aggregate(select):
            yield "a lock together with grouping"
        names = [r.relname for r in map(unwrap_node, clause.locked_rels) if isinstance(r, pg.RangeVar)]
        if not names and len(block.sources) > 1:
            yield "a lock names its table: FOR SHARE OF t"
        for source in block.sources:
            if source.relation and (source.alias in names or not names):
                key = s.catalog.primary_key(source.relation)
                missing = [c for c in key if not block.equated(source.alias, c)]
                if missing or not key:
                    yield f"{source.relation} is locked without {', '.join(missing) or 'a known key'}"


def _own_names(node: Message) -> Iterator[str]:
    """The names that a statement makes itself: aliases, CTEs, output columns."""
    if isinstance(node, pg.Alias):
        yield node.aliasname
        yield from texts(node.colnames)
    elif isinstance(node, pg.CommonTableExpr):
        yield node.ctename
    elif isinstance(node, pg.ResTarget):
        yield node.name


def _tokens(sql: str) -> set[str]:
    names = postgast.pg_query_pb2.Token
    return {names.Name(token.token) for token in postgast.scan(sql).tokens}


RULES: tuple[Rule, ...] = (
    ("1", one_mutation_of_a_table),
    ("2", mutations_at_the_top),
    ("2", no_reading_back),
    ("3", conflict_targets),
    ("4", batches_by_array),
    ("5", no_limited_changes),
    ("6", no_skip_locked),
    ("7", locks_through_the_key),
    ("8", portable_types),
    ("9", no_null_order),
    ("10", forbidden_features),
    ("11", shared_constructs),
    ("12", plain_casts_and_columns),
    ("functions", known_functions),
    ("clock", server_clock_is_recorded_only),
)
