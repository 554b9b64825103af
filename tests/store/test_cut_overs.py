"""A change of a job while its chain is fired: whoever comes first, the occurrence has one run or one skip, never both.

The API's clock stands a moment before the occurrence, and the owner's is past it: between the two the change is under
way. Each interleaving is planted, at each isolation level.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from controlplane.ledger import LedgerKind
from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Resume
from core.calendars import DayOff, DaysOff
from core.enumerator import Enumerator
from core.intervals import Every
from core.jobspec import JobSpec
from core.policy import Overlap
from core.schedule import Schedule
from core.store.database import DatabaseConfig
from core.store.decisions import FireChain
from core.store.job_changes import Decision
from core.store.jobs import JobRecord
from tests.support.api_store import MINUTE_US, MINUTELY, shown_job
from tests.support.cut_over_play import FiringOwner, accounts_of, just_before
from tests.support.operation_store import CHRISTMAS, OperationStore
from tests.support.planted import Planter
from tests.support.raw_statements import until_held_up
from tests.support.store_world import NOW_US, close_world, open_world

OCCURRENCE_US = NOW_US + MINUTE_US
API_US = OCCURRENCE_US - 3_000
OWNER_US = OCCURRENCE_US + 1_000
LATER_US = OCCURRENCE_US + 10 * MINUTE_US + MINUTE_US // 2
# Excludes a day on which nothing happens here, so that its calendar can be changed.
NAMING = replace(MINUTELY, exclude_calendars=("holidays",))
# Not at the full minute.
SHIFTED = Schedule(every=(Every(elapsed_us=MINUTE_US),), anchor_us=NOW_US + MINUTE_US // 2)


@dataclass
class Scene:
    """One job whose chain is about to be due; the owner has decided to fire it."""

    store: OperationStore
    owner: FiringOwner
    job_id: UUID
    items: list[FireChain]

    async def fire(self) -> int:
        return await self.owner.fire(self.items, OWNER_US)

    async def change(self, decision: Decision) -> None:
        await self.store.job_changes.change(
            self.store.call(), action="job.update", name="job", decision=decision, render=shown_job
        )

    async def cutovers(self) -> list[int]:
        return [version["cutover_us"] for version in await self.store.world.rows("job_versions")]

    async def ran(self) -> list[int]:
        return sorted(run["scheduled_for_us"] for run in await self.store.world.rows("runs"))

    async def comes_to_rest(self, now_us: int = LATER_US) -> dict[int, LedgerKind]:
        """Let the owner fire what is due by then, and read the clean ledger: what the accounts begin with."""
        await self.owner.go_on(OWNER_US)
        self.store.clock.set_wall(now_us)
        await self.owner.go_on(now_us)
        accounts = await accounts_of(self.store, self.job_id, NOW_US + 1, now_us)
        return {each.from_us: each.kind for each in accounts}


@pytest.fixture
async def store(store_config: DatabaseConfig) -> AsyncIterator[OperationStore]:
    world = await open_world(store_config)
    yield OperationStore(world)
    await close_world(world)


async def begin(store: OperationStore, schedule: Schedule = MINUTELY) -> Scene:
    owner = FiringOwner(store.world)
    await owner.begin()
    job_id = store.world.rand.uuid()
    spec = JobSpec("h", schedule=schedule, overlap=Overlap.ALLOW)
    decision = Creation(job_id, spec, b"", Enumerator())
    await store.job_changes.create(store.call(), job_id=job_id, name="job", decision=decision, render=shown_job)
    store.clock.set_wall(API_US)
    items = await owner.decided(OWNER_US)
    assert [item.run.scheduled_for_us for item in items if item.run] == [OCCURRENCE_US]
    return Scene(store, owner, job_id, items)


def edit(**changes: Any) -> Edit:
    def edited(job: JobRecord) -> tuple[JobSpec, bytes]:
        assert job.spec is not None
        return replace(job.spec, **changes), job.payload

    return Edit(edited, Enumerator())


async def pause(scene: Scene) -> None:
    await scene.change(Pause())


async def pause_many(scene: Scene) -> None:
    await scene.store.finish(await scene.store.begin_pause())


async def edit_words(scene: Scene) -> None:
    await scene.change(edit(description="other"))


async def edit_schedule(scene: Scene) -> None:
    await scene.change(edit(schedule=SHIFTED))


async def delete(scene: Scene) -> None:
    await scene.change(Deletion(Enumerator()))


async def change_calendar(scene: Scene) -> None:
    changed = await scene.store.change_calendar(content=DaysOff(days=(DayOff("*-12-24"),)))
    assert changed.operation is not None
    await scene.store.finish(changed.operation)


CHANGES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "a pause": pause,
    "a pause of many": pause_many,
    "an edit of words": edit_words,
    "an edit of the schedule": edit_schedule,
    "a deletion": delete,
    "a change of a calendar": change_calendar,
}
PAUSES = ("a pause", "a pause of many")


async def begin_for(store: OperationStore, change: str) -> Scene:
    if change != "a change of a calendar":
        return await begin(store)
    await store.make_calendar(content=CHRISTMAS)
    return await begin(store, NAMING)


@pytest.mark.parametrize("at", ["hold_jobs", "find_chains_to_tell", "tell_chains"])
@pytest.mark.parametrize("change", CHANGES)
async def test_what_is_fired_while_a_change_is_under_way_has_its_run_and_no_skip(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch, change: str, at: str
) -> None:
    scene = await begin_for(store, change)
    just_before(monkeypatch, at, scene.fire)
    await CHANGES[change](scene)
    assert await scene.ran() == [OCCURRENCE_US]
    assert await scene.cutovers() == [NOW_US, OCCURRENCE_US]
    assert (await scene.comes_to_rest())[OCCURRENCE_US] is LedgerKind.RUN
    assert (await scene.ran()).count(OCCURRENCE_US) == 1


@pytest.mark.parametrize("paused", PausedOccurrences)
@pytest.mark.parametrize("change", PAUSES)
async def test_a_resume_takes_from_a_pause_only_what_was_not_fired_before_it(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch, change: str, paused: PausedOccurrences
) -> None:
    scene = await begin(store)
    just_before(monkeypatch, "hold_jobs", scene.fire)
    await CHANGES[change](scene)
    store.clock.set_wall(LATER_US)
    await scene.change(Resume(paused, Enumerator()))
    kinds = await scene.comes_to_rest(LATER_US + MINUTE_US)
    taken = LedgerKind.PAUSED if paused is PausedOccurrences.SKIP else LedgerKind.SKIPPED
    assert kinds[OCCURRENCE_US] is LedgerKind.RUN
    assert kinds[OCCURRENCE_US + MINUTE_US] is taken


async def under_way(store: OperationStore, scene: Scene, monkeypatch: pytest.MonkeyPatch, change: str) -> int:
    """Let the owner's statement begin before the change commits, and end after it; returns how much it consumed."""
    firing: list[asyncio.Task[int]] = []

    async def begin_to_fire() -> None:
        firing.append(asyncio.ensure_future(scene.fire()))
        await until_held_up(store.world)
        assert not firing[0].done(), "the owner's statement did not wait for the change"

    just_before(monkeypatch, "find_fired_beyond", begin_to_fire)
    await CHANGES[change](scene)
    return await firing[0]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_would_be_fired_when_a_change_has_looked_is_left_to_it(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    scene = await begin_for(store, change)
    assert await under_way(store, scene, monkeypatch, change) == 0
    assert await scene.cutovers() == [NOW_US, API_US]
    assert await scene.ran() == []
    kinds = await scene.comes_to_rest()
    if change in ("an edit of words", "a change of a calendar"):
        assert kinds[OCCURRENCE_US] is LedgerKind.RUN
    elif change in PAUSES:
        assert kinds[OCCURRENCE_US] is LedgerKind.PAUSED
    else:
        assert OCCURRENCE_US not in kinds


async def test_without_what_the_row_is_told_a_statement_that_began_before_would_fire_after_the_pause(
    store: OperationStore, store_config: DatabaseConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition is needed where a statement that has waited goes on with its snapshot of the job."""
    planter = Planter(monkeypatch.setattr)
    for name in ("fire_and_move_chains", "fire_and_end_chains"):
        planter.sql(name, "AND (d.told_version IS NULL OR d.told_version <= i.expect_version)", "")
    scene = await begin(store)
    goes_on = store_config.wanted_isolation == "READ COMMITTED"
    assert await under_way(store, scene, monkeypatch, "a pause") == (1 if goes_on else 0)
    if goes_on:
        with pytest.raises(AssertionError, match="UNEXPECTED"):
            await scene.comes_to_rest()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_waits_for_a_firing_that_is_at_the_row(store: OperationStore, change: str) -> None:
    scene = await begin_for(store, change)
    run_id = next(item.run.run_id for item in scene.items if item.run)
    held_up = store.world.eye.transaction()
    await held_up.start()
    await store.world.eye.execute(
        """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                             home_term) VALUES ($1, $1, 1, 0, 1, 0, 0, 0, 1, 0)""",
        run_id,
    )
    firing = asyncio.ensure_future(scene.fire())
    await until_held_up(store.world)
    changing = asyncio.ensure_future(CHANGES[change](scene))
    await until_held_up(store.world, 2)
    assert not firing.done()
    assert not changing.done()
    await held_up.rollback()
    assert await firing == 1
    await changing
    assert await scene.cutovers() == [NOW_US, OCCURRENCE_US]
    assert (await scene.comes_to_rest())[OCCURRENCE_US] is LedgerKind.RUN


@pytest.mark.parametrize("at", ["count_scheduled_runs", "hold_jobs", "tell_chains"])
async def test_a_limit_of_runs_counts_what_is_fired_while_it_is_given(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    scene = await begin(store)
    just_before(monkeypatch, at, scene.fire)
    await scene.change(edit(schedule=replace(SHIFTED, max_runs=3)))
    for minute in range(5):
        await scene.owner.go_on(OWNER_US + minute * MINUTE_US)
    await scene.comes_to_rest()
    first_us = OCCURRENCE_US + MINUTE_US // 2
    assert await scene.ran() == [OCCURRENCE_US, first_us, first_us + MINUTE_US]


async def test_a_skip_that_is_recorded_while_a_change_is_under_way_stands_for_its_occurrence(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the job is open, and its policy is to skip; the edit would make a run of the same occurrence."""
    scene = await begin(store)
    item = scene.items[0]
    assert item.run is not None
    scene.items = [replace(item, run=replace(item.run, overlap=Overlap.SKIP))]
    await store.trigger(allow_overlap=True)
    just_before(monkeypatch, "hold_jobs", scene.fire)
    await edit_words(scene)
    assert await scene.cutovers() == [NOW_US, OCCURRENCE_US]
    assert (await scene.comes_to_rest())[OCCURRENCE_US] is LedgerKind.SKIPPED


async def test_a_chain_that_is_not_due_for_long_is_not_touched(store: OperationStore) -> None:
    scene = await begin(store)
    store.clock.set_wall(NOW_US + 1)
    await pause(scene)
    assert [row["told_version"] for row in await store.world.rows("due")] == [None]


async def test_a_change_that_makes_no_version_leaves_the_chain_to_those_who_know_the_present_one(
    store: OperationStore,
) -> None:
    scene = await begin(store)
    await store.change(decide=lambda job, at_us: None)
    assert [row["told_version"] for row in await store.world.rows("due")] == [None]
    assert await scene.fire() == 1


async def test_a_change_that_fails_leaves_the_chain_as_it_was(
    store: OperationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await begin(store)

    async def fail() -> None:
        raise ZeroDivisionError

    just_before(monkeypatch, "change_job", fail)
    with pytest.raises(ZeroDivisionError):
        await pause(scene)
    assert [row["told_version"] for row in await store.world.rows("due")] == [None]
    assert await scene.fire() == 1
