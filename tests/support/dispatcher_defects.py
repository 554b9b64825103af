"""Defects of what a dispatcher does and remembers, and of statements with it. planted.py plants them by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.planter import Planter, by_name

# Much longer than the time between two looks at the terms; and as long as several buckets of an episode.
_STOOD_STILL_S, _GOES_ON_S = 2.5, 5.0


def terms_looked_at_late(planter: Planter) -> None:
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


def end_included(planter: Planter) -> None:
    """`>=` for `>`: a term's end counts as its own, in statements and in memory."""
    from dispatcher.holdings import HeldTerm

    planter.every_sql("i.bucket < held.to_bucket", "i.bucket <= held.to_bucket")
    planter.put(HeldTerm, "covers", lambda self, bucket: self.from_bucket <= bucket <= self.to_bucket)


def floor_one_too_far(planter: Planter) -> None:
    """The boundary is off by one: the floor passes the bucket that has not ended."""
    from core.store.marks import MarkKeeper

    original = MarkKeeper.raise_floors

    async def raise_floors(self: MarkKeeper, raises: Any) -> Any:
        return await original(self, [replace(each, new=each.new + 1) for each in raises])

    planter.put(MarkKeeper, "raise_floors", raise_floors)


def watermark_unseen(planter: Planter) -> None:
    """The watermark follows the floor without a look at what is left below it."""
    from core.store.discovery import Discovery

    async def lowest(self: Discovery, ranges: Any) -> dict[int, int]:
        return {}

    planter.put(Discovery, "lowest", lowest)


def requeue_on_broken_stream(planter: Planter) -> None:
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


def acknowledged_before_commit(planter: Planter) -> None:
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


def named_like_its_host(planter: Planter) -> None:
    """A dispatcher that starts again has the name that it had before, and goes on under its terms."""
    from uuid import UUID

    from core.rand import SystemRand

    original, drawn = SystemRand.uuid, []

    def uuid(self: SystemRand) -> UUID:
        drawn.append(1)
        return UUID(int=0xFACE << 112) if len(drawn) == 1 else original(self)

    planter.put(SystemRand, "uuid", uuid)


def closed_with_runs_at_home(planter: Planter) -> None:
    """The new owner closes the old term before the open runs have come home."""
    from dispatcher.handoff import HandoffLoop

    async def bring_home(self: Any, *_: Any) -> Any:
        return True

    planter.put(HandoffLoop, "_bring_home", bring_home)


def tail_dropped(planter: Planter) -> None:
    """The old owner fires nothing of its last bucket before the boundary, and its watermark goes there all the same."""
    from core.buckets import NO_END
    from dispatcher.holdings import HeldTerm

    def covers(self: HeldTerm, bucket: int) -> bool:
        return self.from_bucket <= bucket < self.to_bucket - (self.to_bucket != NO_END)

    planter.put(HeldTerm, "covers", covers)
    watermark_unseen(planter)


def completed_without_token(planter: Planter) -> None:
    """A result is taken from whoever names the run."""
    from dispatcher.attempts import LiveAttempt

    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "(i.token_hash IS NOT NULL AND r.token_hash = i.token_hash)", "i.token_hash IS NOT NULL")
    planter.put(LiveAttempt, "proves", lambda self, token: True)


def early(planter: Planter) -> None:
    """A dispatcher's clock runs ahead of the database's."""
    from core.clock import DatabaseClock

    original = DatabaseClock.now_us
    planter.put(DatabaseClock, "now_us", lambda self: original(self) + 300_000)


DEFECTS = by_name(
    terms_looked_at_late,
    end_included,
    floor_one_too_far,
    watermark_unseen,
    requeue_on_broken_stream,
    acknowledged_before_commit,
    named_like_its_host,
    closed_with_runs_at_home,
    tail_dropped,
    completed_without_token,
    early,
)
