"""A statement seen as what the rules speak of: parts, and blocks with their sources and conditions.

A part is one CTE or the main query. A block is one FROM with its conditions: a part has one or more, sub-selects
included. No rule lives here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node
from sqlalchemy.dialects.postgresql import asyncpg

from core.store.statement import Kind, Statement
from tools.sql_lint.catalog import Catalog
from tools.sql_lint.tree import Unreadable, column_of, conjuncts, nodes, operator_of, parse

Query: TypeAlias = pg.SelectStmt | pg.InsertStmt | pg.UpdateStmt | pg.DeleteStmt


@dataclass(frozen=True, slots=True)
class Source:
    """One item of a FROM. `relation` is a table's or a CTE's name, "" for functions and sub-selects.

    `sure` is false on the nullable side of an outer join: rows come out of the block without it.
    """

    alias: str
    relation: str
    sure: bool
    subselect: pg.SelectStmt | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One FROM with the conditions that hold for every row that comes out of it."""

    node: Query
    sources: tuple[Source, ...]
    conditions: tuple[Message, ...]

    def equated(self, alias: str, column: str) -> bool:
        """Whether some condition fixes the column: `= something`, or `= ANY(an array)`."""
        return any(
            isinstance(c, pg.A_Expr)
            and c.kind in (pg.AEXPR_OP, pg.AEXPR_OP_ANY)
            and operator_of(c) == "="
            and any(self._is(side, alias, column) for side in (c.lexpr, c.rexpr))
            for c in self.conditions
        )

    def bounded(self, alias: str, column: str, *operators: str) -> bool:
        """Whether some condition compares the column, standing at the left, by one of the operators."""
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        for c in self.conditions:
            if isinstance(c, pg.A_Expr) and c.kind == pg.AEXPR_OP:
                operator = operator_of(c)
                if operator in operators and self._is(c.lexpr, alias, column):
                    return True
                if mirrored.get(operator) in operators and self._is(c.rexpr, alias, column):
                    return True
        return False

    def joined(self, alias: str) -> bool:
        """Whether some equality ties the source to another one, or it stands alone."""
        return len(self.sources) <= 1 or any(
            isinstance(c, pg.A_Expr)
            and operator_of(c) == "="
            and any((column_of(side) or ("", ""))[0] == alias for side in (c.lexpr, c.rexpr))
            for c in self.conditions
        )

    def locks(self, source: Source) -> bool:
        """Whether it is a SELECT that holds rows of the source FOR SHARE."""
        if not isinstance(self.node, pg.SelectStmt):
            return False
        for clause in map(unwrap_node, self.node.locking_clause):
            if isinstance(clause, pg.LockingClause) and clause.strength == pg.LCS_FORSHARE:
                names = [r.relname for r in map(unwrap_node, clause.locked_rels) if isinstance(r, pg.RangeVar)]
                if source.alias in names or (not names and len(self.sources) == 1):
                    return True
        return False

    def _is(self, node: Message, alias: str, column: str) -> bool:
        found = column_of(node)
        if found is None or found[1] != column:
            return False
        return found[0] == alias or (found[0] == "" and len(self.sources) == 1)


@dataclass(frozen=True, slots=True)
class Part:
    """One CTE, or the main query (name ""). `target` is the table that it changes, "" for none."""

    name: str
    node: Query
    target: str
    target_alias: str
    blocks: tuple[Block, ...]

    @property
    def relations(self) -> set[str]:
        """Everything that it reads by name: tables and CTEs."""
        return {s.relation for block in self.blocks for s in block.sources if s.relation}

    @property
    def own_blocks(self) -> Iterator[Block]:
        """The blocks whose rows are the part's own: not those of sub-selects in conditions or values."""
        if isinstance(self.node, pg.InsertStmt):
            select = unwrap_node(self.node.select_stmt)
            return _leaf_blocks(select) if isinstance(select, pg.SelectStmt) else iter(())
        return _leaf_blocks(self.node)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement, read."""

    name: str
    kind: Kind
    sql: str
    root: Message
    catalog: Catalog
    parts: tuple[Part, ...] = field(default=())

    @property
    def mutations(self) -> list[Part]:
        return [part for part in self.parts if part.target]

    def part(self, name: str) -> Part | None:
        """The CTE of that name."""
        return next((part for part in self.parts if name and part.name == name), None)

    def upstream(self, part: Part) -> set[str]:
        """Names of the CTEs whose rows flow into the part, at any distance."""
        seen: set[str] = set()
        waiting = [part]
        while waiting:
            for name in waiting.pop().relations - seen:
                source = self.part(name)
                if source is not None:
                    seen.add(name)
                    waiting.append(source)
        return seen


def bound_text(statement: Statement) -> str:
    """The text as the driver sends it, with $1 for each bind."""
    return str(statement.clause.compile(dialect=asyncpg.dialect()))  # type: ignore[no-untyped-call]


def read(statement: Statement, catalog: Catalog) -> Parsed:
    """Read a registered statement. Raises Unreadable when it is not one query in PostgreSQL's grammar."""
    found = parse(bound_text(statement))
    if len(found) != 1:
        raise Unreadable(f"{len(found)} statements in one text")
    root = found[0]
    parts = tuple(_parts(root)) if isinstance(root, Query) else ()
    return Parsed(statement.name, statement.kind, statement.sql, root, catalog, parts)


def _parts(root: Query) -> Iterator[Part]:
    main = type(root).FromString(root.SerializeToString())
    if root.HasField("with_clause"):
        for item in map(unwrap_node, root.with_clause.ctes):
            assert isinstance(item, pg.CommonTableExpr)
            query = unwrap_node(item.ctequery)
            assert isinstance(query, Query)
            yield _part(item.ctename, query)
        main.ClearField("with_clause")
    yield _part("", main)


def _part(name: str, query: Query) -> Part:
    target = alias = ""
    if not isinstance(query, pg.SelectStmt):
        target = query.relation.relname
        alias = query.relation.alias.aliasname or target
    inner = [n for n in nodes(query) if isinstance(n, pg.SelectStmt | pg.UpdateStmt | pg.DeleteStmt)]
    blocks = tuple(_block(n) for n in inner if not isinstance(n, pg.SelectStmt) or n.op == pg.SETOP_NONE)
    return Part(name, query, target, alias, blocks)


def _leaf_blocks(query: Query) -> Iterator[Block]:
    if isinstance(query, pg.SelectStmt) and query.op != pg.SETOP_NONE:
        yield from _leaf_blocks(query.larg)
        yield from _leaf_blocks(query.rarg)
    else:
        yield _block(query)


def block_of(select: pg.SelectStmt) -> Block:
    """The block of a plain select."""
    return _block(select)


def _block(query: Query) -> Block:
    items: Iterable[Message] = ()
    if isinstance(query, pg.DeleteStmt):
        items = query.using_clause
    elif not isinstance(query, pg.InsertStmt):
        items = query.from_clause
    sources: list[Source] = []
    conditions: list[Message] = []
    for item in items:
        _collect(unwrap_node(item), True, sources, conditions)
    if not isinstance(query, pg.InsertStmt) and query.HasField("where_clause"):
        conditions.extend(conjuncts(query.where_clause))
    return Block(query, tuple(sources), tuple(conditions))


def _collect(item: Message, sure: bool, sources: list[Source], conditions: list[Message]) -> None:
    if isinstance(item, pg.RangeVar):
        sources.append(Source(item.alias.aliasname or item.relname, item.relname, sure))
    elif isinstance(item, pg.RangeSubselect):
        select = unwrap_node(item.subquery)
        assert isinstance(select, pg.SelectStmt)
        sources.append(Source(item.alias.aliasname, "", sure, select))
    elif isinstance(item, pg.RangeFunction):
        sources.append(Source(item.alias.aliasname, "", sure))
    elif isinstance(item, pg.JoinExpr):
        left_sure = sure and item.jointype in (pg.JOIN_INNER, pg.JOIN_LEFT)
        right_sure = sure and item.jointype in (pg.JOIN_INNER, pg.JOIN_RIGHT)
        _collect(unwrap_node(item.larg), left_sure, sources, conditions)
        _collect(unwrap_node(item.rarg), right_sure, sources, conditions)
        if item.jointype == pg.JOIN_INNER and sure and item.HasField("quals"):
            conditions.extend(conjuncts(item.quals))
