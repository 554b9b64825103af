"""The rows of `due`: scans of them are bounded, and nothing lands below its shard's floor.

A landing is a CTE that reads floors FOR SHARE by their shards; what is put into `due` takes GREATEST(its bucket, the
floor), so that the owner cannot pass it by meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from core.store.statement import Kind
from tools.sql_lint.parts import Block, Parsed, Part, Source, block_of
from tools.sql_lint.portable import Rule
from tools.sql_lint.tree import column_of, operator_of


def scans_of_due_are_bounded(s: Parsed) -> Iterator[str]:
    for part in s.parts:
        for block in part.blocks:
            for source in block.sources:
                if source.relation == "due":
                    yield from _scan_faults(s, block, source)


def landings_respect_the_floor(s: Parsed) -> Iterator[str]:
    landings = {part.name for part in s.parts if part.name and not part.target and _reads_floor(part)}
    for part in s.mutations:
        if part.target != "due" or isinstance(part.node, pg.DeleteStmt) or s.kind is Kind.TELL:
            continue
        for place in _places_written(part):
            if not any(_at_or_above_floor(place, source, landings) for source in place.block.sources):
                yield "a row is put into due without GREATEST(its bucket, the floor), the floor read FOR SHARE by shard"
                break


def _scan_faults(s: Parsed, block: Block, due: Source) -> Iterator[str]:
    if all(block.equated(due.alias, column) for column in s.catalog.primary_key("due")):
        return
    if not block.equated(due.alias, "shard"):
        yield "due is scanned without its shard"
    if not block.bounded(due.alias, "bucket", ">", ">="):
        yield "due is scanned without a lower bound on bucket"
    if not block.bounded(due.alias, "bucket", "<", "<="):
        yield "due is scanned without an upper bound on bucket"
    if isinstance(block.node, pg.SelectStmt) and not block.node.HasField("limit_count"):
        yield "due is scanned without LIMIT"


def _reads_floor(part: Part) -> bool:
    blocks = list(part.own_blocks)
    if len(blocks) != 1 or not isinstance(blocks[0].node, pg.SelectStmt):
        return False
    return any(
        source.relation == "shard_floors"
        and source.sure
        and blocks[0].equated(source.alias, "shard")
        and blocks[0].locks(source)
        for source in blocks[0].sources
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a change puts a due row: the values of `shard` and `bucket` (None: not set), and their block."""

    shard: Message | None
    bucket: Message | None
    block: Block


def _places_written(part: Part) -> Iterator[_Place]:
    """One for each arm of the change."""
    for block in part.own_blocks:
        if isinstance(part.node, pg.UpdateStmt):
            targets = [t for t in map(unwrap_node, part.node.target_list) if isinstance(t, pg.ResTarget)]
            values = {t.name: unwrap_node(t.val) for t in targets}
        else:
            assert isinstance(part.node, pg.InsertStmt)
            assert isinstance(block.node, pg.SelectStmt)
            names = [c.name for c in map(unwrap_node, part.node.cols) if isinstance(c, pg.ResTarget)]
            outputs = [t for t in map(unwrap_node, block.node.target_list) if isinstance(t, pg.ResTarget)]
            values = {name: unwrap_node(t.val) for name, t in zip(names, outputs, strict=False)}
        yield _Place(values.get("shard"), values.get("bucket"), block)


def _at_or_above_floor(place: _Place, floor: Source, landings: set[str]) -> bool:
    """Whether the bucket is GREATEST(…, the floor of the very shard that the row goes to)."""
    bucket = place.bucket
    if not isinstance(bucket, pg.MinMaxExpr) or bucket.op != pg.IS_GREATEST or not floor.sure:
        return False
    if floor.subselect is not None:
        tied = _looks_up_floor(place, floor.subselect, landings)
    else:
        of_this_shard = place.shard is not None and column_of(place.shard) == (floor.alias, "shard")
        tied = floor.relation in landings and (of_this_shard or place.block.equated(floor.alias, "shard"))
    return tied and any(column_of(argument) == (floor.alias, "floor") for argument in bucket.args)


def _looks_up_floor(place: _Place, select: pg.SelectStmt, landings: set[str]) -> bool:
    """Whether a lateral sub-select reads the floor of the row's own shard: `WHERE floor row's shard = item's shard`."""
    inner = block_of(select)
    if len(inner.sources) != 1 or inner.sources[0].relation not in landings:
        return False
    key = (inner.sources[0].alias, "shard")
    for c in inner.conditions:
        if isinstance(c, pg.A_Expr) and c.kind == pg.AEXPR_OP and operator_of(c) == "=":
            sides = [column_of(c.lexpr), column_of(c.rexpr)]
            outer = next((side for side in sides if side is not None and side != key), None)
            if key in sides and outer is not None and outer[1] == "shard":
                return place.shard is None or column_of(place.shard) == outer
    return False


RULES: tuple[Rule, ...] = (
    ("21", scans_of_due_are_bounded),
    ("landing", landings_respect_the_floor),
)
