"""The fence: what our own protocol asks of every statement by which a dispatcher acts.

A branch is fenced when rows can only come out of it while the writer's term row is held: the fence CTE, or a branch
that is fenced itself, stands in its FROM, on the sure side of every join and with no aggregate around it.
"""

from __future__ import annotations

from collections.abc import Iterator

from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from core.store.statement import Kind
from tools.sql_lint.parts import Block, Parsed, Part, Source, block_of
from tools.sql_lint.portable import Rule
from tools.sql_lint.tree import arms, column_of, has_aggregate, operator_of


def writes_are_fenced(s: Parsed) -> Iterator[str]:
    if s.kind is not Kind.ACT:
        return
    fences = [part for part in s.parts if part.name and not part.target and _takes_from_terms(part)]
    if not fences:
        yield "no fence: a CTE that reads the writer's term row FOR SHARE"
    for part in fences:
        yield from (f"the CTE {part.name} is no fence: {fault}" for fault in _fence_faults(part))
    sound = {part.name for part in fences if not any(_fence_faults(part))}
    for part in s.mutations:
        if not _is_fenced(s, part, sound, frozenset()):
            yield f"the change of {part.target} is not fenced: no fence on the sure side of its FROM"


def _takes_from_terms(part: Part) -> bool:
    """Whether rows of the part come out of shard_terms: a look at other terms in a condition is no fence, and not one
    that is wrong."""
    return any(_stands_on_terms(block) for block in part.own_blocks)


def _stands_on_terms(block: Block) -> bool:
    for source in block.sources:
        inner = [] if source.subselect is None else [block_of(arm) for arm in arms(source.subselect)]
        if source.relation == "shard_terms" or any(map(_stands_on_terms, inner)):
            return True
    return False


def due_rows_lie_in_the_term(s: Parsed) -> Iterator[str]:
    for part in s.mutations:
        if s.kind is not Kind.ACT or part.target != "due" or isinstance(part.node, pg.InsertStmt):
            continue
        block = next(part.own_blocks)
        if not any(_holds_bucket(block, source) for source in block.sources if _is_of_a_fence(s, source)):
            yield "due rows are consumed without a test of their bucket against the fence's range"


def terms_are_found_by_key(s: Parsed) -> Iterator[str]:
    for part in s.parts:
        for block in part.blocks:
            aliases = {source.alias for source in block.sources if source.relation == "shard_terms"}
            if part.target == "shard_terms" and isinstance(block.node, pg.UpdateStmt | pg.DeleteStmt):
                aliases.add(part.target_alias)
            for alias in sorted(aliases):
                if any(block.bounded(alias, column, "<", "<=", ">", ">=") for column in ("from_bucket", "to_bucket")):
                    yield "a term row is picked by a range of buckets: find it by (shard, term)"


def _fence_faults(part: Part) -> Iterator[str]:
    block = next(part.own_blocks)
    select = block.node
    if not isinstance(select, pg.SelectStmt) or len(list(part.own_blocks)) > 1:
        yield "it is not one plain SELECT"
        return
    term = next((source for source in block.sources if source.relation == "shard_terms"), None)
    if term is None or not term.sure:
        yield "shard_terms stands in a sub-select or under an outer join"
        return
    for column in ("shard", "term", "owner"):
        if not block.equated(term.alias, column):
            yield f"{column} is not compared"
    if not _requires_open(block, term.alias):
        yield "state = 1 (open) is not asked for"
    if not block.locks(term):
        yield "no FOR SHARE on shard_terms"
    if select.group_clause or select.distinct_clause or select.HasField("limit_count") or has_aggregate(select):
        yield "grouping or LIMIT"


def _requires_open(block: Block, alias: str) -> bool:
    for c in block.conditions:
        if isinstance(c, pg.A_Expr) and c.kind == pg.AEXPR_OP and operator_of(c) == "=":
            value = unwrap_node(c.rexpr)
            if column_of(c.lexpr) == (alias, "state") and isinstance(value, pg.A_Const) and value.ival.ival == 1:
                return True
    return False


def _is_of_a_fence(s: Parsed, source: Source) -> bool:
    """Whether the source is a CTE that reads term rows, or one look into such a CTE."""
    if source.subselect is not None:
        inner = block_of(source.subselect).sources
        return len(inner) == 1 and _is_of_a_fence(s, inner[0])
    part = s.part(source.relation)
    return part is not None and not part.target and "shard_terms" in part.relations


def _holds_bucket(block: Block, fence: Source) -> bool:
    """Whether a column named bucket is compared with the fence's range: from_bucket <= bucket < to_bucket."""
    found = set()
    for c in block.conditions:
        if isinstance(c, pg.A_Expr) and c.kind == pg.AEXPR_OP and (column_of(c.lexpr) or ("", ""))[1] == "bucket":
            found.add((operator_of(c), column_of(c.rexpr)))
    return {(">=", (fence.alias, "from_bucket")), ("<", (fence.alias, "to_bucket"))} <= found


def _is_fenced(s: Parsed, part: Part, fences: set[str], above: frozenset[str]) -> bool:
    """Whether rows come out of the part only under a sound fence; `above` guards against a CTE that reads itself."""
    if part.name in fences:
        return True
    if part.name in above:
        return False
    blocks = list(part.own_blocks)
    return bool(blocks) and all(_block_is_fenced(s, b, fences, above | ({part.name} - {""})) for b in blocks)


def _block_is_fenced(s: Parsed, block: Block, fences: set[str], above: frozenset[str]) -> bool:
    if isinstance(block.node, pg.SelectStmt) and (block.node.group_clause or has_aggregate(block.node)):
        return False
    for source in block.sources:
        if not source.sure:
            continue
        if source.relation in fences:
            if all(block.equated(source.alias, column) for column in ("shard", "term")):
                return True
        elif source.subselect is not None:
            if all(_block_is_fenced(s, block_of(arm), fences, above) for arm in arms(source.subselect)):
                return True
        elif block.joined(source.alias):
            inner = s.part(source.relation)
            if inner is not None and _is_fenced(s, inner, fences, above):
                return True
    return False


RULES: tuple[Rule, ...] = (
    ("22", writes_are_fenced),
    ("22", due_rows_lie_in_the_term),
    ("terms", terms_are_found_by_key),
)
