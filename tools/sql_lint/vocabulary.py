"""What both databases are known to have alike: types, functions, constructs. Everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from postgast import pg_query_pb2 as pg

from tools.sql_lint.tree import type_of

TYPES = frozenset({"int8", "int2", "jsonb", "bytea", "uuid", "timestamptz", "bool", "text"})
FUNCTIONS = frozenset(
    {"unnest", "count", "min", "max", "sum", "array_agg", "jsonb_agg", "jsonb_build_object", "generate_series"}
    | {"row_number", "length", "octet_length", "extract", "clock_timestamp", "version", "current_setting"}
)
# They tell the time of a transaction or a statement: the time of a decision is a parameter.
CLOCKS = frozenset({"now", "statement_timestamp", "transaction_timestamp", "timeofday"})
# Advisory locks succeed on CockroachDB without locking anything; NOTIFY is not there.
ADVISORY_AND_NOTIFY = re.compile(r"^pg_(try_)?advisory_|^pg_notify$")
SYSTEM_COLUMNS = frozenset({"xmin", "xmax", "cmin", "cmax", "ctid", "tableoid", "oid"})
# Words that CockroachDB reserves beyond PostgreSQL's.
RESERVED = frozenset({"index", "nothing", "role", "virtual", "work", "family"})

_STATEMENTS = ("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "WithClause", "CommonTableExpr")
_CLAUSES = ("ReturningClause", "OnConflictClause", "InferClause", "IndexElem", "LockingClause", "SortBy", "WindowDef")
_SOURCES = ("RangeVar", "RangeSubselect", "RangeFunction", "JoinExpr", "Alias", "ResTarget")
_VALUES = ("ColumnRef", "A_Star", "ParamRef", "A_Const", "A_ArrayExpr", "RowExpr", "SetToDefault", "SQLValueFunction")
_EXPRESSIONS = ("A_Expr", "BoolExpr", "NullTest", "BooleanTest", "CaseExpr", "CaseWhen", "CoalesceExpr", "MinMaxExpr")
_CALLS = ("SubLink", "FuncCall", "TypeCast", "TypeName")
_LITERALS = ("String", "Integer", "Float", "Boolean", "BitString", "List", "Node")
CONSTRUCTS = frozenset(_STATEMENTS + _CLAUSES + _SOURCES + _VALUES + _EXPRESSIONS + _CALLS + _LITERALS)


def type_faults(node: pg.TypeName) -> Iterator[str]:
    """What is wrong with one type, for statements and DDL alike."""
    if type_of(node) not in TYPES:
        yield f"the type {type_of(node)}: use BIGINT, SMALLINT, JSONB, BYTEA, UUID, TIMESTAMPTZ, BOOLEAN or TEXT"
    elif node.typmods:
        yield f"a length or precision on {type_of(node)}"
    elif len(node.array_bounds) > 1:
        yield "an array of arrays"
