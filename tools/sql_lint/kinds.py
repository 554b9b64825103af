"""The kinds of statements: which of them may change what.

Only an ACT, which is fenced, consumes due rows or moves marks; only a TERM changes terms, by compare-and-set; a TELL
leaves due rows where they stand. What a REPAIR may do is a matter of its own (repair.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from postgast import pg_query_pb2 as pg
from postgast.walk import unwrap_node

from core.store.statement import Kind
from tools.sql_lint.parts import Parsed, Part
from tools.sql_lint.portable import Rule
from tools.sql_lint.tree import nodes

TERM_TABLES = frozenset({"shard_terms", "shard_term_events"})
CLAIMED = ("shard", "term", "owner", "from_bucket", "to_bucket", "state")


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


def _only_founds(part: Part) -> bool:
    conflicts = [n for n in nodes(part.node) if isinstance(n, pg.OnConflictClause)]
    return isinstance(part.node, pg.InsertStmt) and all(c.action == pg.ONCONFLICT_NOTHING for c in conflicts)


RULES: tuple[Rule, ...] = (
    ("kinds", kinds_do_what_they_say),
    ("terms", terms_change_by_claims_only),
)
