"""Defects for the test of the checker: each is planted into the running code, and a history must show it.

plant("no_term_check", Planter())           # in a process of its own: tests/support/planted_process.py
plant("no_term_check", Planter(monkeypatch.setattr))

The product has no switch for any of them: they replace a piece of a statement's text, or a function.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import text

import core.store
from core.store.statement import STATEMENTS, Statement

Setter = Callable[[Any, str, Any], None]
# Much longer than the time between two looks at the terms; and as long as several buckets of an episode.
_STOOD_STILL_S, _GOES_ON_S = 2.5, 5.0


class Planter:
    """Replaces what it is told to, by `put` (setattr; a test gives one that puts everything back)."""

    def __init__(self, put: Setter = setattr) -> None:
        self.put = put

    def sql(self, name: str, old: str, new: str) -> None:
        """In the statement of that name, a piece of its text by another."""
        assert old in STATEMENTS[name].sql, f"the statement {name} has no {old!r} any more"
        self._change(old, new, lambda found: found.name == name)

    def every_sql(self, old: str, new: str) -> None:
        """In each statement of the store that has it, a piece of its text by another."""
        self._change(old, new, lambda found: old in found.sql)

    def _change(self, old: str, new: str, wanted: Callable[[Statement], bool]) -> None:
        """Where a statement is imported by other modules, in those too."""
        count = 0
        for info in pkgutil.iter_modules(core.store.__path__):
            module = importlib.import_module(f"core.store.{info.name}")
            for name, found in list(vars(module).items()):
                if isinstance(found, Statement) and old in found.sql and wanted(found):
                    changed = found.sql.replace(old, new)
                    self.put(module, name, replace(found, sql=changed, clause=text(changed)))
                    count += 1
        assert count, f"no statement has {old!r} any more"


def _no_term_check(planter: Planter) -> None:
    """The fence takes any term row, whatever its owner and its state."""
    planter.every_sql("WHERE t.owner = CAST(:owner AS TEXT) AND t.state = 1", "WHERE CAST(:owner AS TEXT) <> ''")


def _no_range_check(planter: Planter) -> None:
    """The fence takes every term for one without an end, wherever a takeover or a split has cut it."""
    from core.buckets import NO_END

    columns, source = "SELECT t.shard, t.term, t.from_bucket,", "\n      FROM unnest(CAST(:fence_shards"
    endless = f"{columns} CAST({NO_END} AS BIGINT) AS to_bucket{source}"
    planter.every_sql(f"{columns} t.to_bucket{source}", endless)


def _terms_looked_at_late(planter: Planter) -> None:
    """A dispatcher that stood still goes on for seconds before it looks whether its terms are its own still."""
    from dispatcher.ownership import Ownership

    original = Ownership._read

    async def read(self: Ownership) -> Any:
        clock = self._runtime.clock
        if clock.monotonic_s() - self.read_s > _STOOD_STILL_S:
            await clock.sleep(_GOES_ON_S)
        began_s = clock.monotonic_s()
        answer = await original(self)
        if clock.monotonic_s() - began_s > _STOOD_STILL_S:
            self.read_s = began_s  # it stood still with this look under way: what it saw was of before
        return answer

    planter.put(Ownership, "_read", read)


def _end_included(planter: Planter) -> None:
    """`>=` for `>`: a term's end counts as its own, in statements and in memory."""
    from dispatcher.holdings import HeldTerm

    planter.every_sql("i.bucket < held.to_bucket", "i.bucket <= held.to_bucket")
    planter.put(HeldTerm, "covers", lambda self, bucket: self.from_bucket <= bucket <= self.to_bucket)


def _floor_one_too_far(planter: Planter) -> None:
    """The boundary is off by one: the floor passes the bucket that has not ended."""
    from core.store.marks import MarkKeeper

    original = MarkKeeper.raise_floors

    async def raise_floors(self: MarkKeeper, raises: Any) -> Any:
        return await original(self, [replace(each, new=each.new + 1) for each in raises])

    planter.put(MarkKeeper, "raise_floors", raise_floors)


def _landing_unlocked(planter: Planter) -> None:
    """The watermark passes an insert that is in flight: who lands does not hold the floor."""
    planter.every_sql("FOR SHARE OF l", "")


def _watermark_unseen(planter: Planter) -> None:
    """The watermark follows the floor without a look at what is left below it."""
    from core.store.discovery import Discovery

    async def lowest(self: Discovery, ranges: Any) -> dict[int, int]:
        return {}

    planter.put(Discovery, "lowest", lowest)


def _requeue_on_broken_stream(planter: Planter) -> None:
    """What a worker holds is given to another as soon as its stream breaks."""
    from dispatcher.worker_link import WorkerLink

    original = WorkerLink._let_go

    def let_go(self: Any, session: Any) -> None:
        for live in self._memory.attempts:
            if live.holder is session:
                live.lease_until_us = 0
                self._memory.attempts.check_again(live, 0)
        original(self, session)

    planter.put(WorkerLink, "_let_go", let_go)


def _acknowledged_before_commit(planter: Planter) -> None:
    """A worker is told that its result is durable before it is."""
    from tidewheel.v1 import worker_service_pb2 as pb

    from dispatcher.completion import CompletionLoop
    from dispatcher.judgement import answer

    original = CompletionLoop._record

    async def record(self: Any, batch: Any) -> None:
        answer([(each, pb.VERDICT_ACCEPTED, "") for each in batch])
        for each in batch:
            each.session = None
        await original(self, batch)

    planter.put(CompletionLoop, "_record", record)


def _named_like_its_host(planter: Planter) -> None:
    """A dispatcher that starts again has the name that it had before, and goes on under its terms."""
    from uuid import UUID

    from core.rand import SystemRand

    original, drawn = SystemRand.uuid, []

    def uuid(self: SystemRand) -> UUID:
        drawn.append(1)
        return UUID(int=0xFACE << 112) if len(drawn) == 1 else original(self)

    planter.put(SystemRand, "uuid", uuid)


def _claim_names_nothing(planter: Planter) -> None:
    """A claim that names no term to replace opens one all the same where a term stands."""
    nobody = "NOT EXISTS (SELECT 1 FROM shard_terms e WHERE e.shard = i.shard)"
    planter.sql("open_terms", nobody, "i.shard >= 0")


def _claim_names_no_range(planter: Planter) -> None:
    """A claim replaces the term it names, whatever range that has by now."""
    named = "AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket"
    planter.sql("close_replaced_terms", named, "")


def _boundary_one_too_far(planter: Planter) -> None:
    """A split leaves the bucket before the boundary to both."""
    planter.sql("split_terms", "c.to_bucket AS next_from", "c.to_bucket - 1 AS next_from")


def _split_twice(planter: Planter) -> None:
    """A shard that is being handed off is split once more."""
    others = "(SELECT count(*) FROM shard_terms o WHERE o.shard = i.shard AND o.state = 1 AND o.term <> i.term) = 0"
    planter.sql("split_terms", others, "i.boundary > 0")


def _closed_undrained(planter: Planter) -> None:
    """The old owner's term is closed while buckets of it are left."""
    planter.sql("close_drained_terms", "m.watermark >= i.to_bucket", "m.watermark >= 0")


def _closed_with_runs_at_home(planter: Planter) -> None:
    """The new owner closes the old term before the open runs have come home."""
    from dispatcher.handoff import HandoffLoop

    async def bring_home(self: Any, *_: Any) -> Any:
        return True

    planter.put(HandoffLoop, "_bring_home", bring_home)


def _tail_dropped(planter: Planter) -> None:
    """The old owner fires nothing of its last bucket before the boundary, and its watermark goes there all the same."""
    from core.buckets import NO_END
    from dispatcher.holdings import HeldTerm

    def covers(self: HeldTerm, bucket: int) -> bool:
        return self.from_bucket <= bucket < self.to_bucket - (self.to_bucket != NO_END)

    planter.put(HeldTerm, "covers", covers)
    _watermark_unseen(planter)


def _reaped_by_anyone(planter: Planter) -> None:
    """Whoever remembers an attempt ends it, whether or not the run is at home there."""
    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "AND r.home_term = i.term", "")
        planter.sql(name, "(i.token_hash IS NULL AND r.lease_until_us = i.lease_until_us)", "i.token_hash IS NULL")


def _retry_lands_twice(planter: Planter) -> None:
    """A retry gets two due rows."""
    where = "end_attempts_and_land_retries"
    planter.sql(where, "i.retry_at_us, i.run_id, 2", "i.retry_at_us + g.n, i.run_id, 2")
    planter.sql(
        where, "lands\n      WHERE i.state = 1", "lands CROSS JOIN generate_series(0, 1) AS g(n)\n WHERE i.state = 1"
    )


def _retry_lands_anywhere(planter: Planter) -> None:
    """A retry lands in the bucket of its time, wherever the floor stands."""
    planter.sql("end_attempts_and_land_retries", "GREATEST(i.retry_bucket, lands.floor)", "i.retry_bucket")


def _completed_without_token(planter: Planter) -> None:
    """A result is taken from whoever names the run."""
    from dispatcher.attempts import LiveAttempt

    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "(i.token_hash IS NOT NULL AND r.token_hash = i.token_hash)", "i.token_hash IS NOT NULL")
    planter.put(LiveAttempt, "proves", lambda self, token: True)


def _finished_before_its_turn(planter: Planter) -> None:
    """The new owner finishes buckets of the one before, who has not closed yet."""
    for name in ("raise_floors", "raise_watermarks"):
        planter.sql(name, "i.old >= fence.from_bucket AND", "")
        planter.sql(name, "AND p.to_bucket = fence.from_bucket) = 0", ") >= 0")


def _edit_overlooked(planter: Planter) -> None:
    """Firing does not look whether the job was changed."""
    for name in ("fire_and_move_chains", "fire_and_end_chains"):
        planter.sql(name, "AND j.version = i.expect_version", "")
        planter.sql(name, "AND (d.told_version IS NULL OR d.told_version <= i.expect_version)", "")


def _early(planter: Planter) -> None:
    """A dispatcher's clock runs ahead of the database's."""
    from core.clock import DatabaseClock

    original = DatabaseClock.now_us
    planter.put(DatabaseClock, "now_us", lambda self: original(self) + 300_000)


def _ended_runs_end_again(planter: Planter) -> None:
    """A second word about an attempt overwrites the first."""
    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "r.state = 2 AND", "")


def _leased_over(planter: Planter) -> None:
    """A run that is leased is leased anew."""
    planter.sql(
        "lease_waiting_runs",
        "r.state = 2 AND r.attempt = i.attempt AND r.token_hash = i.token_hash",
        "r.state = 2",
    )


DEFECTS: dict[str, Callable[[Planter], None]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _no_term_check,
        _no_range_check,
        _terms_looked_at_late,
        _end_included,
        _floor_one_too_far,
        _landing_unlocked,
        _watermark_unseen,
        _requeue_on_broken_stream,
        _acknowledged_before_commit,
        _named_like_its_host,
        _claim_names_nothing,
        _claim_names_no_range,
        _boundary_one_too_far,
        _split_twice,
        _closed_undrained,
        _closed_with_runs_at_home,
        _tail_dropped,
        _reaped_by_anyone,
        _retry_lands_twice,
        _retry_lands_anywhere,
        _completed_without_token,
        _finished_before_its_turn,
        _edit_overlooked,
        _early,
        _ended_runs_end_again,
        _leased_over,
    )
}


def plant(name: str, planter: Planter) -> None:
    """Plant one defect; an unknown name is a KeyError."""
    DEFECTS[name](planter)
