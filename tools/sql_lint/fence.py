"""The fence, landing, scans of `due` and terms: what our own protocol asks of every statement.

A branch is fenced when rows can only come out of it while the writer's term row is held: the fence CTE, or a branch
that is fenced itself, stands in its FROM, on the sure side of every join and with no aggregate around it.
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
from tools.sql_lint.tree import arms, column_of, has_aggregate, nodes, operator_of

TERM_TABLES = frozenset({"shard_terms", "shard_term_events"})
CLAIMED = ("shard", "term", "owner", "from_bucket", "to_bucket", "state")


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


def kinds_do_what_they_say(s: Parsed) -> Iterator[str]:
    targets = {part.target for part in s.mutations}
    if s.kind is Kind.READ and targets:
        yield f"a READ changes {', '.join(sorted(targets))}"
    if s.kind is Kind.LAND and "due" not in targets:
        yield "a LAND puts nothing into due"
    if s.kind is Kind.SCHEMA:
        yield "DDL stands in a migration"
    for part in s.mutations:
        if s.kind is Kind.TELL:
            yield from _tell_faults(s, part)
        elif (
            part.target == "due" and not isinstance(part.node, pg.InsertStmt) and s.kind not in (Kind.ACT, Kind.REPAIR)
        ):
            yield "only an ACT consumes or moves due rows"
        if s.kind is Kind.WRITE and part.target == "due":
            yield "a WRITE that puts rows into due is a LAND"
        if (
            part.target == "open_runs"
            and not isinstance(part.node, pg.DeleteStmt)
            and s.kind not in (Kind.ACT, Kind.REPAIR)
        ):
            yield "only an ACT or a REPAIR makes runs stand"
        if s.kind is not Kind.ACT and part.target in ("shard_floors", "shard_marks") and not _only_founds(part):
            yield f"only an ACT moves {part.target}"


def _tell_faults(s: Parsed, part: Part) -> Iterator[str]:
    """A change of a job lets the rows of its chain stand where they stand."""
    if part.target != "due" or not isinstance(part.node, pg.UpdateStmt):
        yield "a TELL updates due, and does nothing else"
        return
    if [t.name for t in map(unwrap_node, part.node.target_list) if isinstance(t, pg.ResTarget)] != ["told_version"]:
        yield "a TELL sets told_version alone"
    block = next(part.own_blocks)
    if not all(block.equated(part.target_alias, column) for column in s.catalog.primary_key("due")):
        yield "a TELL knows due rows by their whole key"


def terms_change_by_claims_only(s: Parsed) -> Iterator[str]:
    for part in s.mutations:
        if s.kind is Kind.TERM and part.target not in TERM_TABLES:
            yield f"a TERM statement changes {part.target}: it touches shard_terms and its events only"
        if s.kind is not Kind.TERM and part.target in TERM_TABLES:
            yield f"only a TERM statement changes {part.target}"
        if part.target == "shard_terms" and not isinstance(part.node, pg.InsertStmt):
            block = next(part.own_blocks)
            missing = [c for c in CLAIMED if not block.equated(part.target_alias, c)]
            if missing:
                yield f"a term is replaced without comparing {', '.join(missing)}"


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
    if not _locks(select, term, len(block.sources)):
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


def _locks(select: pg.SelectStmt, source: Source, sources: int) -> bool:
    for clause in map(unwrap_node, select.locking_clause):
        if isinstance(clause, pg.LockingClause) and clause.strength == pg.LCS_FORSHARE:
            names = [r.relname for r in map(unwrap_node, clause.locked_rels) if isinstance(r, pg.RangeVar)]
            if source.alias in names or (not names and sources == 1):
                return True
    return False


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
    select = blocks[0].node
    if len(blocks) != 1 or not isinstance(select, pg.SelectStmt):
        return False
    return any(
        source.relation == "shard_floors"
        and source.sure
        and blocks[0].equated(source.alias, "shard")
        and _locks(select, source, len(blocks[0].sources))
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


def _only_founds(part: Part) -> bool:
    conflicts = [n for n in nodes(part.node) if isinstance(n, pg.OnConflictClause)]
    return isinstance(part.node, pg.InsertStmt) and all(c.action == pg.ONCONFLICT_NOTHING for c in conflicts)


RULES: tuple[Rule, ...] = (
    ("21", scans_of_due_are_bounded),
    ("22", writes_are_fenced),
    ("22", due_rows_lie_in_the_term),
    ("landing", landings_respect_the_floor),
    ("terms", terms_are_found_by_key),
    ("terms", terms_change_by_claims_only),
    ("kinds", kinds_do_what_they_say),
)
