"""Random lives of jobs, and the account of them: each occurrence exactly once, however the pages are cut.

Versions are made by the product's own decisions, on a clock that the test moves. What a dispatcher would have written
is planted by a simple model, which knows of each occurrence what became of it, and forgets some on purpose.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from controlplane.job_accounts import JobAccounts
from controlplane.ledger import Account, LedgerKind, joined
from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Resume
from core.enumerator import Enumerator
from core.ids import chain_id
from core.intervals import Every
from core.jobspec import JobSpec
from core.schedule import Schedule
from core.states import JobState, RunCause, RunState, SkipReason
from core.store.database import DatabaseConfig
from core.store.job_changes import Decision
from tests.support.api_store import NAMESPACE, ApiStore, shown_job
from tests.support.store_world import NOW_US, StoreWorld, close_world, open_world

MINUTE = 60_000_000
HOUR = 60 * MINUTE
HORIZON = 6 * HOUR
HISTORIES = 6

BERLIN = "Europe/Berlin"
SCHEDULES = (
    Schedule(cron=("*/17 * * * *",)),
    Schedule(cron=("0 * * * *", "30 */2 * * *"), zone=BERLIN),
    Schedule(cron=("*/20 * * * *",), exclude_cron=("* 3-5 * * *",)),
    Schedule(cron=("*/30 * * * *",), exclude_dates=("*-01-02",), zone=BERLIN),
    Schedule(every=(Every(elapsed_us=41 * MINUTE, anchor_us=NOW_US - 7),)),
    Schedule(cron=("*/15 * * * *",), jitter_us=10 * MINUTE),
)


@pytest.fixture
async def world(store_config: DatabaseConfig) -> AsyncIterator[StoreWorld]:
    """A founded cluster in a fresh database."""
    opened = await open_world(store_config)
    yield opened
    await close_world(opened)


@dataclass
class Stretch:
    """A version's occurrences in (after_us, until_us], as the model sees it."""

    version: int
    schedule: Schedule
    offset_us: int
    state: JobState
    after_us: int
    until_us: int = 1 << 60


@dataclass
class Life:
    """One job, from its registration to now."""

    store: ApiStore
    dice: random.Random
    name: str
    job_id: UUID
    stretches: list[Stretch] = field(default_factory=list)
    # What became of each occurrence, by its nominal instant.
    expected: dict[int, LedgerKind] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)

    @property
    def now_us(self) -> int:
        return self.store.clock.now_us()

    @property
    def present(self) -> Stretch:
        return self.stretches[-1]

    # --- its versions ---

    async def begin(self) -> None:
        spec = JobSpec("h", schedule=self.dice.choice(SCHEDULES))
        await self.store.job_changes.create(
            self.store.call(),
            job_id=self.job_id,
            name=self.name,
            decision=Creation(self.job_id, spec, b"", Enumerator()),
            render=shown_job,
        )
        await self._note(JobState.ACTIVE, goes_on=False)

    async def go_on(self) -> None:
        """Let something happen to it."""
        self.store.clock.set_wall(self.now_us + self.dice.randrange(1, 9 * HOUR))
        if self.present.state is JobState.ACTIVE:
            happens = self.dice.choice([self.edit, self.edit_words, self.pause, self.pause])
        else:
            happens = self.dice.choice([self.edit, self.edit_words, self.resume, self.catch_up])
        await happens()

    async def edit(self) -> None:
        schedule = self.dice.choice(SCHEDULES)
        same = schedule == self.present.schedule
        await self._change(Edit(lambda job: (replace(_spec(job), schedule=schedule), b""), Enumerator()))
        await self._note(self.present.state, goes_on=same and self.present.state is JobState.PAUSED)

    async def edit_words(self) -> None:
        words = str(self.dice.random())
        await self._change(Edit(lambda job: (replace(_spec(job), description=words), b""), Enumerator()))
        await self._note(self.present.state, goes_on=self.present.state is JobState.PAUSED)

    async def pause(self) -> None:
        await self._change(Pause())
        await self._note(JobState.PAUSED, goes_on=False)

    async def resume(self) -> None:
        await self._change(Resume(PausedOccurrences.SKIP, Enumerator()))
        await self._note(JobState.ACTIVE, goes_on=False)

    async def catch_up(self) -> None:
        await self._change(Resume(PausedOccurrences.CATCH_UP, Enumerator()))
        await self._note(JobState.ACTIVE, goes_on=True)

    async def delete(self) -> None:
        self.store.clock.set_wall(self.now_us + self.dice.randrange(1, HOUR))
        await self._change(Deletion(Enumerator()))
        await self._note(JobState.DELETED, goes_on=False)

    async def _change(self, decision: Decision) -> None:
        await self.store.job_changes.change(
            self.store.call(), action="job.update", name=self.name, decision=decision, render=shown_job
        )

    async def _note(self, state: JobState, *, goes_on: bool) -> None:
        """A version took over; with `goes_on` it answers for the pause of the one before, too."""
        row = await self.store.world.eye.fetchrow("SELECT version, cutover_us FROM jobs WHERE job_id = $1", self.job_id)
        job = await self.store.jobs.by_id(NAMESPACE, self.job_id)
        spec = _spec(job)
        assert spec.schedule is not None
        made = Stretch(row["version"], spec.schedule, spec.pins.jitter_offset_us, state, row["cutover_us"])
        if goes_on:
            made.after_us = self.stretches.pop().after_us
        elif self.stretches:
            self.present.until_us = made.after_us
        self.stretches.append(made)

    # --- what became of its occurrences ---

    async def play(self) -> None:
        """Plant what a dispatcher would have written, and forget some of it."""
        await self.store.world.eye.execute("DELETE FROM due WHERE job_id = $1", self.job_id)
        for stretch in self.stretches:
            if stretch.state is JobState.DELETED:
                continue
            await self._play(stretch, self._occurrences(stretch))

    def _occurrences(self, stretch: Stretch) -> list[int]:
        until_us = min(stretch.until_us, self.now_us + HORIZON)
        whole = replace(stretch.schedule, exclude_cron=(), exclude_dates=())
        counting = set(stretch.schedule.between(stretch.after_us + 1, until_us + 1, 100_000))
        for at_us in whole.between(stretch.after_us + 1, until_us + 1, 100_000):
            if at_us not in counting:
                self.expected[at_us] = LedgerKind.EXCLUDED
        return sorted(counting)

    async def _play(self, stretch: Stretch, occurrences: list[int]) -> None:
        due = [at_us for at_us in occurrences if at_us + stretch.offset_us <= self.now_us]
        for at_us in occurrences:
            self.expected[at_us] = LedgerKind.NOT_YET_DUE
        if stretch.state is JobState.PAUSED:
            self.expected.update((at_us, LedgerKind.PAUSED) for at_us in due)
            return
        after = self.stretches[self.stretches.index(stretch) + 1 :]
        stopped_us = after[0].after_us if after and after[0].state is not JobState.ACTIVE else None
        reached = self.dice.randrange(len(due) + 1) if self.dice.random() < 0.3 else len(due)
        index = 0
        while index < reached:
            at_us = due[index]
            came_late = stopped_us is not None and at_us + stretch.offset_us > stopped_us
            if came_late:
                paused = after[0].state is JobState.PAUSED
                await self._skip(at_us, at_us, SkipReason.PAUSED if paused else SkipReason.DELETED)
                index += 1
                continue
            index += await self._fate(due[index : min(reached, index + self.dice.randrange(1, 9))], stopped_us, stretch)
        if reached < len(due):
            self.expected.update((at_us, LedgerKind.DUE) for at_us in due[reached:])
            await self._stand(stretch, due[reached])

    async def _fate(self, due: list[int], stopped_us: int | None, stretch: Stretch) -> int:
        """Decide about the first of these, or about all; returns of how many."""
        at_us, fate = due[0], self.dice.random()
        if fate < 0.6:
            await self._run(at_us, stretch.version)
            self.expected[at_us] = LedgerKind.RUN
        elif fate < 0.75:
            await self._skip(at_us, at_us, self.dice.choice([SkipReason.OVERLAP, SkipReason.BUFFER_FULL]))
        elif fate < 0.9:
            kept = [each for each in due if stopped_us is None or each + stretch.offset_us <= stopped_us]
            await self._skip(kept[0], kept[-1], SkipReason.CATCH_UP)
            self.expected.update((each, LedgerKind.SKIPPED) for each in kept)
            return len(kept)
        else:
            self.expected[at_us] = LedgerKind.MISSING
        return 1

    async def plant_strangers(self) -> None:
        """Runs of the schedule where there is no occurrence."""
        for _ in range(self.dice.randrange(4)):
            at_us = self.dice.randrange(NOW_US - HOUR, self.now_us) | 1
            if at_us not in self.expected:
                await self._run(at_us, 1)
                self.strangers.add(at_us)

    async def _run(self, at_us: int, version: int) -> None:
        await self.store.world.eye.execute(
            """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us,
                                 state, home_term, ended_us)
               VALUES (gen_random_uuid(), $1, $2, 0, $3, $4, $4, $4, $5, 1, $4)""",
            *(self.job_id, version, RunCause.SCHEDULE, at_us, RunState.SUCCEEDED),
        )

    async def _skip(self, first_us: int, last_us: int, reason: SkipReason) -> None:
        await self.store.world.eye.execute(
            "INSERT INTO skips VALUES ($1, $2, $3, $4, 1, 0, 1, $3)", self.job_id, first_us, last_us, reason
        )
        self.expected[first_us] = LedgerKind.PAUSED if reason is SkipReason.PAUSED else LedgerKind.SKIPPED

    async def _stand(self, stretch: Stretch, at_us: int) -> None:
        """The chain of this version stands here."""
        job = await self.store.jobs.by_id(NAMESPACE, self.job_id)
        bucket = self.store.world.scale.bucket_of(max(at_us + stretch.offset_us, NOW_US))
        await self.store.world.eye.execute(
            "INSERT INTO due VALUES ($1, $2, $3, $4, 1, $5, $6, $7)",
            *(job.shard, bucket, at_us, chain_id(self.job_id, stretch.version), self.job_id, stretch.version, at_us),
        )


def _spec(job: object) -> JobSpec:
    spec = getattr(job, "spec", None)
    assert isinstance(spec, JobSpec)
    return spec


async def read(life: Life, size: int, piece: int = 1_000) -> list[Account]:
    """The account of the whole life, page by page, in pieces of so many occurrences."""
    job = await life.store.jobs.by_id(NAMESPACE, life.job_id)
    accounts = JobAccounts(life.store.world.database, life.store.clock, life.store.world.scale, piece)
    found: list[Account] = []
    at_us: int | None = NOW_US - HOUR
    while at_us is not None:
        page = await accounts.page(job, at_us, life.now_us + HORIZON + 1, size)
        assert page.next_us is None or page.next_us > at_us
        found += page.accounts
        at_us = page.next_us
    return found


def check(life: Life, found: list[Account]) -> None:
    """Each occurrence has exactly one account, of the right kind, in order."""
    left = sorted(life.expected.items())
    strangers = set(life.strangers)
    for made in found:
        if made.kind is LedgerKind.UNEXPECTED:
            strangers.remove(made.from_us)
            continue
        covered, left = left[: made.occurrences], left[made.occurrences :]
        assert covered, made
        assert (covered[0][0], covered[-1][0]) == (made.from_us, made.to_us), made
        assert {kind for _, kind in covered} == {made.kind}, (made, covered)
    assert not left
    assert not strangers


@pytest.mark.parametrize("seed", range(4))
async def test_each_occurrence_of_a_random_life_has_one_account(world: StoreWorld, seed: int) -> None:
    """The seed stands in the name of the test."""
    dice = random.Random(seed)
    for number in range(HISTORIES):
        life = Life(ApiStore(world), dice, f"job-{number}", world.rand.uuid())
        await life.begin()
        for _ in range(dice.randrange(7)):
            await life.go_on()
        if dice.random() < 0.2:
            await life.delete()
        life.store.clock.set_wall(life.now_us + dice.randrange(1, 12 * HOUR))
        await life.play()
        await life.plant_strangers()
        whole = await read(life, 1_000)
        check(life, whole)
        for size, piece in ((1, 1_000), (dice.randrange(2, 30), 1_000), (1_000, dice.randrange(1, 20))):
            assert joined(await read(life, size, piece)) == whole, (size, piece)
