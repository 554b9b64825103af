"""PostgreSQL's own parse tree, and the few questions that the rules ask of it. No rule lives here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import postgast
from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

AGGREGATES = frozenset({"count", "min", "max", "sum", "avg", "array_agg", "jsonb_agg", "bool_and", "bool_or"})


class Unreadable(Exception):
    """The text is not in PostgreSQL's grammar."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One node on a walk, with its ancestors from the root down."""

    node: Message
    parents: tuple[Message, ...]

    @property
    def parent(self) -> Message | None:
        return self.parents[-1] if self.parents else None


def parse(sql: str) -> list[Message]:
    """The statements of a text. Raises Unreadable."""
    try:
        return [unwrap_node(raw.stmt) for raw in postgast.parse(sql).stmts]
    except postgast.PgQueryError as error:
        raise Unreadable(str(error)) from error


def kind_of(node: Message) -> str:
    """The node's name in PostgreSQL's grammar, as SelectStmt."""
    return str(type(node).DESCRIPTOR.name)


def visits(root: Message) -> Iterator[Visit]:
    """Every node under `root`, itself included, parents first."""
    stack = [Visit(unwrap_node(root), ())]
    while stack:
        visit = stack.pop()
        yield visit
        line = (*visit.parents, visit.node)
        stack.extend(Visit(child, line) for child in reversed(list(children(visit.node))))


def nodes(root: Message) -> Iterator[Message]:
    """Every node under `root`, itself included."""
    return (visit.node for visit in visits(root))


def children(node: Message) -> Iterator[Message]:
    """The nodes right under `node`."""
    for field, value in node.ListFields():
        if field.type == field.TYPE_MESSAGE:
            yield from map(unwrap_node, [value] if isinstance(value, Message) else value)


def texts(items: Iterable[Message]) -> list[str]:
    """The strings in a list of String nodes: the parts of a name."""
    return [item.sval for item in map(unwrap_node, items) if isinstance(item, pg.String)]


def column_of(node: Message) -> tuple[str, str] | None:
    """(alias, column) of a column reference, with alias "" where it has none; None for anything else."""
    node = unwrap_node(node)
    if not isinstance(node, pg.ColumnRef):
        return None
    names = texts(node.fields)
    return ("", names[0]) if len(names) == 1 else (names[-2], names[-1]) if names else None


def function_of(node: pg.FuncCall) -> str:
    return texts(node.funcname)[-1]


def type_of(node: pg.TypeName) -> str:
    """The type's plain name in lower case, without schema and array bounds."""
    return texts(node.names)[-1].lower()


def operator_of(node: pg.A_Expr) -> str:
    return texts(node.name)[-1] if node.name else ""


def conjuncts(node: Message | None) -> Iterator[Message]:
    """The parts of a condition that all must hold."""
    if node is None:
        return
    node = unwrap_node(node)
    if isinstance(node, pg.BoolExpr) and node.boolop == pg.AND_EXPR:
        for part in node.args:
            yield from conjuncts(part)
    else:
        yield node


def arms(select: pg.SelectStmt) -> Iterator[pg.SelectStmt]:
    """The plain selects of a UNION, or the select itself."""
    if select.op == pg.SETOP_NONE:
        yield select
    else:
        yield from arms(select.larg)
        yield from arms(select.rarg)


def has_aggregate(select: pg.SelectStmt) -> bool:
    """Whether the select's own output is an aggregate; sub-selects and windows do not count."""
    found = (visit for target in select.target_list for visit in visits(target))
    return any(
        isinstance(visit.node, pg.FuncCall)
        and function_of(visit.node) in AGGREGATES
        and not visit.node.HasField("over")
        and not any(isinstance(parent, pg.SubLink) for parent in visit.parents)
        for visit in found
    )


def columns_written(visit: Visit) -> set[str]:
    """The columns into which the value at `visit` goes: by its alias, or by its place in an INSERT's columns."""
    line = (*visit.parents, visit.node)
    found: set[str] = set()
    for above, node in pairwise(line):
        if isinstance(node, pg.ResTarget) and node.name:
            found.add(node.name)
        elif isinstance(node, pg.ResTarget) and isinstance(above, pg.SelectStmt):
            found |= _insert_column(line, [unwrap_node(t) for t in above.target_list].index(node))
        elif isinstance(above, pg.List):
            found |= _insert_column(line, [unwrap_node(item) for item in above.items].index(node))
    return found


def _insert_column(line: tuple[Message, ...], place: int) -> set[str]:
    for node in reversed(line):
        if isinstance(node, pg.InsertStmt):
            names = [c.name for c in map(unwrap_node, node.cols) if isinstance(c, pg.ResTarget)]
            return {names[place]} if place < len(names) else set()
    return set()
