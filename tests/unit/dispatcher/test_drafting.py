"""Drafting: what of a batch is written now, and what is put off: late runs by the pace, but not what only queued."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from core.buckets import BucketScale
from core.clock import US_PER_S
from core.config import DispatcherSettings
from core.fence import TermRow
from core.intervals import Every
from core.jobspec import JobSpec
from core.schedule import Schedule
from core.states import TermState
from core.store.decisions import FireChain
from core.store.discovery import DueRow
from core.store.marks import Marks
from dispatcher.agenda import Agenda
from dispatcher.attempts import Attempts
from dispatcher.delivery import Delivery
from dispatcher.drafting import Drafting, Drafts
from dispatcher.gates import Gates
from dispatcher.holdings import HeldTerm, Holdings
from dispatcher.jobs import Jobs, JobVersion
from dispatcher.pace import HORIZON_US
from dispatcher.presence import BREAK_US
from dispatcher.routes import Routes
from dispatcher.runtime import Memory, Runtime
from tests.support.clock import ManualClock
from tests.support.dispatcher_parts import NOW_US, due_row, job_version

MINUTE_US = 60 * US_PER_S
HOUR_US = 60 * MINUTE_US


class World:
    """A dispatcher's memory without workers, whose due loop began, and took its shard, at `since_us`."""

    def __init__(self, *, since_us: int = NOW_US, runs_per_s: float = 1.0) -> None:
        self.clock = ManualClock(since_us)
        self.jobs: dict[tuple[Any, int], JobVersion] = {}
        known = SimpleNamespace(get=self.jobs.get, forget=lambda keys: None)
        self.memory = Memory(Holdings(), Agenda(), cast(Jobs, known), Routes(10), Attempts(), Gates(10))
        settings = DispatcherSettings(catch_up_runs_per_s=runs_per_s)
        runtime = SimpleNamespace(settings=settings, scale=BucketScale(5_000), clock=self.clock)
        delivery = cast(Delivery, None)  # there are no workers to deliver to
        self.drafting = Drafting(cast(Runtime, runtime), self.memory, delivery)
        self.held = self.claim()
        self.drafting.presence.went_on(since_us)

    def claim(self) -> HeldTerm:
        row = TermRow(0, 7, 0, 2**62, "me", TermState.OPEN)
        return Holdings().add(row, Marks(0, 0, 0, 0), self.clock.monotonic_s())

    def one_off(self, at_us: int, **changes: Any) -> DueRow:
        """The due row of a job that runs once."""
        job = job_version(JobSpec("work", schedule=Schedule(at_us=(at_us,))), **changes)
        return self.row_of(job, at_us)

    def row_of(self, job: JobVersion, at_us: int) -> DueRow:
        self.jobs[job.job_id, job.version] = job
        return due_row(at_us, job_id=job.job_id, job_version=job.version)

    async def at(self, now_us: int, *, working: bool = True) -> World:
        """Let time pass; with the due loop `working`, or not."""
        while working and self.clock.now_us() + BREAK_US // 2 < now_us:
            await self.clock.advance(BREAK_US / 2 / US_PER_S)
            self.drafting.presence.went_on(self.clock.now_us())
        await self.clock.advance((now_us - self.clock.now_us()) / US_PER_S)
        return self

    def draft(self, *rows: DueRow) -> Drafts:
        for row in rows:
            self.memory.agenda.add(row)
        taken = self.memory.agenda.take_due(self.clock.now_us(), 1_000)
        return self.drafting.draft(dict.fromkeys(taken, self.held), self.clock.now_us())


def made(drafts: Drafts) -> int:
    """How many runs the drafts make."""
    chains = [draft.item for draft in (*drafts.moving, *drafts.ending)]
    return sum(isinstance(item, FireChain) and item.run is not None for item in chains)


def put_off(drafts: Drafts) -> list[int]:
    """Until when rows are put off in the database."""
    chains = [draft.item for draft in drafts.moving]
    return [item.next.due_at_us for item in chains if isinstance(item, FireChain) and item.run is None and item.next]


async def test_what_was_missed_comes_at_the_pace_first_from_memory_and_then_from_the_database() -> None:
    world = World()
    drafts = world.draft(*(world.one_off(NOW_US - HOUR_US + n) for n in range(10)))
    soon = HORIZON_US // US_PER_S
    assert (made(drafts), len(world.memory.agenda)) == (1, soon)
    waits = put_off(drafts)
    assert len(waits) == 10 - 1 - soon
    assert waits == [NOW_US + HORIZON_US + (n + 1) * US_PER_S for n in range(len(waits))]
    assert made((await world.at(NOW_US + US_PER_S)).draft()) == 1
    assert made(world.draft()) == 0


async def test_what_is_on_time_is_made_whatever_waits() -> None:
    world = World()
    world.draft(*(world.one_off(NOW_US - HOUR_US + n) for n in range(10)))
    await world.at(NOW_US + 100_000)
    assert made(world.draft(*(world.one_off(NOW_US + 50_000) for _ in range(20)))) == 20


async def test_a_crowd_that_queues_here_for_minutes_is_not_held_to_the_pace() -> None:
    world = World(since_us=NOW_US - HOUR_US)
    await world.at(NOW_US + 10 * MINUTE_US)
    assert made(world.draft(*(world.one_off(NOW_US) for _ in range(50)))) == 50


async def test_what_was_due_while_the_loop_stood_still_was_missed() -> None:
    world = World(since_us=NOW_US - HOUR_US)
    await world.at(NOW_US + 10 * MINUTE_US, working=False)
    assert made(world.draft(*(world.one_off(NOW_US) for _ in range(50)))) == 1


async def test_what_was_due_before_its_shard_was_taken_was_missed() -> None:
    world = World(since_us=NOW_US - HOUR_US)
    await world.at(NOW_US + 10 * MINUTE_US)
    world.held = world.claim()
    assert made(world.draft(*(world.one_off(NOW_US) for _ in range(50)))) == 1


async def test_what_a_resume_brings_back_was_missed() -> None:
    world = World(since_us=NOW_US - HOUR_US)
    await world.at(NOW_US + 10 * MINUTE_US)
    resumed_us = NOW_US + 9 * MINUTE_US
    assert made(world.draft(*(world.one_off(NOW_US, cutover_us=resumed_us) for _ in range(50)))) == 1


async def test_a_chain_that_waits_for_its_turn_runs_its_next_occurrence_on_time() -> None:
    """Once an hour, the latest only: of three missed ones one runs, for the others the next one comes first."""
    world = World(runs_per_s=0.01)
    next_us = NOW_US + 5 * US_PER_S
    hourly = JobSpec("work", schedule=Schedule(every=(Every(elapsed_us=HOUR_US),), anchor_us=next_us - 9 * HOUR_US))
    rows = [world.row_of(job_version(hourly), next_us - HOUR_US) for _ in range(3)]
    drafts = world.draft(*rows)
    assert (made(drafts), put_off(drafts)) == (1, [next_us, next_us])
    await world.at(next_us)
    moved = [replace(row, due_at_us=next_us, bucket=next_us // (5 * US_PER_S)) for row in rows[1:]]
    drafts = world.draft(*moved)
    runs = [draft.item.run for draft in drafts.moving if isinstance(draft.item, FireChain)]
    assert [run.scheduled_for_us for run in runs if run is not None] == [next_us, next_us]
