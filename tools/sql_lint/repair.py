"""What the reconciler may write. It holds no term, so each of its writes is guarded by a comparison of its own.

A REPAIR deletes nothing, and puts rows into two tables only. Either it moves one due row, by its whole key, from below
the watermark, where nobody acts any more; or it inserts what is missing out of a guard: a CTE that finds one run or one
job by its key, compares what changes whenever its owner or the API goes on with it, and locks it. Into `due` nothing
goes whose id stands there already. What was changed, and only that, is audited in the same statement.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message
from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from core.store.statement import Kind
from tools.sql_lint.parts import Block, Parsed, Part, block_of
from tools.sql_lint.portable import Rule
from tools.sql_lint.tree import column_of, has_aggregate, nodes, operator_of

# What a guard compares beside the key, by what is mended and whose row tells of it. A run that waits may stand as such
# whatever its attempt; a due row belongs to one attempt of a run, or to one version of a job.
_COMPARED = {
    ("open_runs", "runs"): ("state",),
    ("due", "runs"): ("state", "attempt", "not_before_us"),
    ("due", "jobs"): ("state", "version"),
}


def repairs_are_guarded(s: Parsed) -> Iterator[str]:
    if s.kind is not Kind.REPAIR:
        return
    changes = [part for part in s.mutations if part.target != "audit"]
    if len(changes) != 1:
        yield "a REPAIR changes one thing"
    for part in changes:
        if isinstance(part.node, pg.InsertStmt):
            yield from _insert_faults(s, part)
        elif isinstance(part.node, pg.UpdateStmt) and part.target == "due":
            yield from _move_faults(s, part)
        elif isinstance(part.node, pg.UpdateStmt):
            yield f"a REPAIR updates due rows only, and not {part.target}"
        else:
            yield "a REPAIR deletes nothing"
    yield from _audit_faults(s, {part.name for part in changes})


def _move_faults(s: Parsed, part: Part) -> Iterator[str]:
    block, alias = next(part.own_blocks), part.target_alias
    if not all(block.equated(alias, column) for column in s.catalog.primary_key("due")):
        yield "a REPAIR moves due rows by their whole key"
    marks = {source.alias for source in block.sources if source.relation == "shard_marks" and source.sure}
    if not any(_is_below_watermark(condition, alias, marks) for condition in block.conditions):
        yield "a REPAIR moves due rows only from below the watermark"
    if not any(block.equated(mark, "shard") for mark in marks):
        yield "a REPAIR compares with the watermark of the row's own shard"
    yield from _twin_faults(block)


def _is_below_watermark(condition: Message, alias: str, marks: set[str]) -> bool:
    if not isinstance(condition, pg.A_Expr) or condition.kind != pg.AEXPR_OP or operator_of(condition) != "<":
        return False
    mark = column_of(condition.rexpr)
    return (
        column_of(condition.lexpr) == (alias, "bucket")
        and mark is not None
        and mark[0] in marks
        and mark[1] == "watermark"
    )


def _insert_faults(s: Parsed, part: Part) -> Iterator[str]:
    blocks = list(part.own_blocks)
    if not any(target == part.target for target, _ in _COMPARED):
        yield f"a REPAIR puts nothing into {part.target}"
        return
    if not _yields_to_what_stands(part):
        yield "a REPAIR overwrites nothing: ON CONFLICT DO NOTHING"
    guards = {each.name for each in s.parts if _is_guard(s, each, part.target)}
    for block in blocks:
        if not any(source.relation in guards and source.sure for source in block.sources):
            yield f"a REPAIR puts rows into {part.target} without a guard: what it mends, compared and locked by key"
        if part.target == "due":
            yield from _twin_faults(block)


def _yields_to_what_stands(part: Part) -> bool:
    conflicts = [node for node in nodes(part.node) if isinstance(node, pg.OnConflictClause)]
    return bool(conflicts) and all(each.action == pg.ONCONFLICT_NOTHING for each in conflicts)


def _is_guard(s: Parsed, part: Part, target: str) -> bool:
    """Whether rows come out of the CTE only while the row that it looks at is as it was found, and stays so."""
    blocks = list(part.own_blocks)
    if not part.name or part.target or len(blocks) != 1 or len(blocks[0].sources) != 1:
        return False
    select, source = blocks[0].node, blocks[0].sources[0]
    compared = _COMPARED.get((target, source.relation))
    if compared is None or not isinstance(select, pg.SelectStmt) or select.group_clause or has_aggregate(select):
        return False
    key = s.catalog.primary_key(source.relation)
    return _locks_alone(select) and all(_is_compared(blocks[0], source.alias, each) for each in (*key, *compared))


def _is_compared(block: Block, alias: str, column: str) -> bool:
    """Whether the column must be one value, or one of some constants."""
    if block.equated(alias, column):
        return True
    return any(
        isinstance(c, pg.A_Expr) and c.kind == pg.AEXPR_IN and operator_of(c) == "=" and _names(c.lexpr, alias, column)
        for c in block.conditions
    )


def _names(node: Message, alias: str, column: str) -> bool:
    return column_of(node) in ((alias, column), ("", column))


def _locks_alone(select: pg.SelectStmt) -> bool:
    """FOR UPDATE, and not one that gives way instead of waiting."""
    locks = [each for each in map(unwrap_node, select.locking_clause) if isinstance(each, pg.LockingClause)]
    return any(each.strength == pg.LCS_FORUPDATE and each.wait_policy == pg.LockWaitBlock for each in locks)


def _twin_faults(block: Block) -> Iterator[str]:
    """A second due row of one chain or run would meet the first one in one place."""
    if not any(_is_without_twin(condition) for condition in block.conditions):
        yield "a REPAIR lands a row although one of its id may stand: ask for none in due, by shard and id"


def _is_without_twin(condition: Message) -> bool:
    """`(SELECT … FROM due o WHERE o.shard = … AND o.id = …) IS NULL`."""
    if not isinstance(condition, pg.NullTest) or condition.nulltesttype != pg.IS_NULL:
        return False
    link = unwrap_node(condition.arg)
    if not isinstance(link, pg.SubLink) or link.sub_link_type != pg.EXPR_SUBLINK:
        return False
    select = unwrap_node(link.subselect)
    if not isinstance(select, pg.SelectStmt):
        return False
    inner = block_of(select)
    sources = [source for source in inner.sources if source.relation == "due"]
    return len(inner.sources) == 1 and any(
        inner.equated(source.alias, "shard") and inner.equated(source.alias, "id") for source in sources
    )


def _audit_faults(s: Parsed, changed: set[str]) -> Iterator[str]:
    audits = [part for part in s.mutations if part.target == "audit" and isinstance(part.node, pg.InsertStmt)]
    if not audits:
        yield "a REPAIR audits itself in its own statement"
    for part in audits:
        if any(
            [source.relation for source in block.sources] not in ([name] for name in changed)
            for block in part.own_blocks
        ):
            yield "a REPAIR audits what it changed, and nothing else"


RULES: tuple[Rule, ...] = (("repair", repairs_are_guarded),)
