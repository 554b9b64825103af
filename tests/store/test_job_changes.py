"""Creating and changing jobs: what stands in the rows afterwards, who wins a race, and what a repeat gets."""

from __future__ import annotations

import asyncio
import json

import pytest

from core.errors import AlreadyExists, NotFound, RequestReused
from core.ids import chain_id, job_hash, shard_of
from core.schedule import Schedule
from core.states import DueKind, JobState
from core.store.job_changes import Changed, NextVersion
from core.store.jobs import JobRecord
from tests.support.api_store import MINUTE_US, MINUTELY, ApiStore, next_version, spec
from tests.support.raw_statements import until_held_up
from tests.support.store_world import NOW_US, SHARDS, StoreWorld


@pytest.fixture
def store(world: StoreWorld) -> ApiStore:
    return ApiStore(world)


class TestACreation:
    async def test_leaves_job_version_due_row_audit_and_answer(self, store: ApiStore) -> None:
        job_id = store.world.rand.uuid()
        changed = await store.create("nightly", call=store.call("r-1", note="why"), job_id=job_id)
        shard = shard_of(job_hash(job_id), SHARDS)
        assert changed == Changed(b"nightly v1 ACTIVE", shard)
        (job,) = await store.world.rows("jobs")
        assert (job["job_id"], job["shard"], job["hash"], job["version"]) == (job_id, shard, job_hash(job_id), 1)
        assert (job["cutover_us"], job["created_us"], job["updated_us"]) == (NOW_US, NOW_US, NOW_US)
        (version,) = await store.world.rows("job_versions")
        assert json.loads(version["spec"]) == spec().to_json()
        assert (version["payload"], version["trace"], version["author"]) == (b"payload", "00-trace", "tester")
        (due,) = await store.world.due(shard)
        first_us = NOW_US + MINUTE_US
        assert (due.bucket, due.due_at_us, due.scheduled_for_us) == (
            store.world.scale.bucket_of(first_us),
            first_us,
            first_us,
        )
        assert (due.id, due.kind, due.job_version) == (chain_id(job_id, 1), DueKind.OCCURRENCE, 1)
        (audit,) = await store.world.rows("audit")
        assert (audit["action"], audit["object"], audit["version"]) == ("job.create", "nightly", 1)
        assert (audit["actor"], audit["note"], audit["request_id"], audit["at_us"]) == ("tester", "why", "r-1", NOW_US)
        (request,) = await store.world.rows("requests")
        assert (request["request_id"], request["answer"]) == ("r-1", b"nightly v1 ACTIVE")

    async def test_without_a_schedule_lands_nothing(self, store: ApiStore) -> None:
        assert (await store.create(of=spec(None))).landed_shard is None
        assert await store.world.rows("due") == []

    async def test_begins_strictly_after_the_instant_of_registration(self, store: ApiStore) -> None:
        """NOW is a full minute itself: that occurrence belongs to the time before."""
        assert NOW_US % MINUTE_US == 0
        await store.create()
        (due,) = await store.world.rows("due")
        assert due["scheduled_for_us"] == NOW_US + MINUTE_US

    async def test_of_a_taken_name_is_refused_and_leaves_no_trace(self, store: ApiStore) -> None:
        await store.create("a")
        before = [await store.world.rows(table) for table in ("jobs", "job_versions", "due", "audit", "requests")]
        with pytest.raises(AlreadyExists, match="named 'a'"):
            await store.create("a", call=store.call("r-2"))
        assert [await store.world.rows(t) for t in ("jobs", "job_versions", "due", "audit", "requests")] == before

    async def test_of_the_name_of_a_deleted_job_is_taken(self, store: ApiStore) -> None:
        await store.create("a")
        await store.steer(JobState.DELETED, "a")
        store.clock.set_wall(NOW_US + 1_000)
        await store.create("a")
        assert [(job["version"], job["state"]) for job in await store.world.rows("jobs")] in (
            [(2, 3), (1, 1)],
            [(1, 1), (2, 3)],
        )

    async def test_that_races_for_a_name_has_one_winner(self, store: ApiStore) -> None:
        answers = await asyncio.gather(*(store.create("a") for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(answer, Changed) for answer in answers) == 1
        assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 5
        assert len(await store.world.rows("jobs")) == len(await store.world.rows("due")) == 1


class TestLanding:
    async def test_is_at_the_floor_where_the_floor_lies_above_the_due_time(self, store: ApiStore) -> None:
        floor = store.world.bucket + 100
        await store.world.eye.execute("UPDATE shard_floors SET floor = $1", floor)
        await store.create()
        (due,) = await store.world.rows("due")
        assert (due["bucket"], due["due_at_us"]) == (floor, NOW_US + MINUTE_US)

    async def test_waits_for_a_floor_that_is_being_raised(self, store: ApiStore) -> None:
        """Rule of ownership 2: nothing lands below a floor, also not one that commits while the API is under way."""
        floor = store.world.bucket + 100
        raising = store.world.eye.transaction()
        await raising.start()
        await store.world.eye.execute("UPDATE shard_floors SET floor = $1", floor)
        creating = asyncio.ensure_future(store.create())
        await until_held_up(store.world)
        assert not creating.done()
        await raising.commit()
        await creating
        (due,) = await store.world.rows("due")
        assert due["bucket"] == floor


class TestAChange:
    async def test_bumps_the_version_and_lands_its_own_row_beside_the_old_one(self, store: ApiStore) -> None:
        """Rule of ownership 9: the API neither moves nor deletes due rows."""
        job_id = store.world.rand.uuid()
        await store.create(job_id=job_id)
        (old,) = await store.world.rows("due")
        hourly = spec(Schedule(cron=("30 * * * *",)))
        changed = await store.change(decide=lambda job, cutover_us: next_version(hourly)(cutover_us))
        assert changed.answer == b"job v2 ACTIVE"
        rows = {row["id"]: row for row in await store.world.rows("due")}
        assert rows[chain_id(job_id, 1)] == old
        new = rows[chain_id(job_id, 2)]
        assert (new["job_version"], new["scheduled_for_us"]) == (2, NOW_US + 30 * MINUTE_US)
        versions = await store.world.rows("job_versions")
        assert [(v["version"], v["state"]) for v in versions] == [(1, 1), (2, 1)]

    async def test_takes_over_later_than_the_version_before_even_on_a_clock_that_stands_or_goes_back(
        self, store: ApiStore
    ) -> None:
        await store.create()
        await store.change()
        store.clock.set_wall(NOW_US - 5_000_000)
        await store.change()
        versions = await store.world.rows("job_versions")
        assert [v["cutover_us"] for v in versions] == [NOW_US, NOW_US + 1, NOW_US + 2]

    async def test_clears_the_error_that_a_dispatcher_left(self, store: ApiStore) -> None:
        await store.create()
        await store.world.eye.execute("UPDATE jobs SET error = 'spoilt'")
        await store.change()
        (job,) = await store.world.rows("jobs")
        assert job["error"] == ""

    async def test_of_nobody_is_not_found(self, store: ApiStore) -> None:
        with pytest.raises(NotFound):
            await store.change("nobody")

    async def test_that_decides_for_nothing_keeps_only_the_answer(self, store: ApiStore) -> None:
        await store.create()
        changed = await store.change(decide=lambda job, cutover_us: None, call=store.call("r-2"))
        assert changed == Changed(b"job v1 ACTIVE", None)
        assert len(await store.world.rows("audit")) == 1
        assert {r["request_id"]: r["answer"] for r in await store.world.rows("requests")}["r-2"] == b"job v1 ACTIVE"

    async def test_that_raises_changes_nothing(self, store: ApiStore) -> None:
        await store.create()

        def decide(job: JobRecord, cutover_us: int) -> NextVersion:
            raise AlreadyExists("no")

        with pytest.raises(AlreadyExists):
            await store.change(decide=decide, call=store.call("r-2"))
        assert [r["request_id"] for r in await store.world.rows("requests") if r["request_id"] == "r-2"] == []

    async def test_that_races_with_others_is_done_in_some_order(self, store: ApiStore) -> None:
        await store.create()
        await asyncio.gather(*(store.change() for _ in range(5)))
        versions = await store.world.rows("job_versions")
        assert [v["version"] for v in versions] == [1, 2, 3, 4, 5, 6]
        cutovers = [v["cutover_us"] for v in versions]
        assert cutovers == sorted(set(cutovers))


class TestPauseResumeAndDelete:
    async def test_a_pause_lands_nothing_and_leaves_what_was_due(self, store: ApiStore) -> None:
        await store.create()
        before = await store.world.rows("due")
        assert (await store.steer(JobState.PAUSED)).landed_shard is None
        assert await store.world.rows("due") == before

    async def test_a_resume_begins_after_itself(self, store: ApiStore) -> None:
        await store.create()
        await store.steer(JobState.PAUSED)
        store.clock.set_wall(NOW_US + 10 * MINUTE_US)
        await store.steer(JobState.ACTIVE)
        rows = {row["job_version"]: row["scheduled_for_us"] for row in await store.world.rows("due")}
        assert rows == {1: NOW_US + MINUTE_US, 3: NOW_US + 11 * MINUTE_US}

    async def test_a_deleted_job_is_found_by_id_only(self, store: ApiStore) -> None:
        job_id = store.world.rand.uuid()
        await store.create("a", job_id=job_id)
        await store.steer(JobState.DELETED, "a")
        with pytest.raises(NotFound):
            await store.jobs.by_name("default", "a")
        job = await store.jobs.by_id("default", job_id)
        assert (job.state, job.version, job.deleted_us) == (JobState.DELETED, 2, NOW_US + 1)


class TestARepeat:
    async def test_gets_the_first_answer_and_does_nothing(self, store: ApiStore) -> None:
        first = await store.create("a", call=store.call("r-1"))
        await store.change("a")
        repeat = await store.create("a", call=store.call("r-1"))
        assert repeat == Changed(first.answer, None)
        assert len(await store.world.rows("jobs")) == 1
        assert len(await store.world.rows("due")) == 2

    @pytest.mark.parametrize("other", [{"body": b"another"}, {"method": "another"}])
    async def test_with_another_request_is_refused(self, store: ApiStore, other: dict[str, object]) -> None:
        await store.create("a", call=store.call("r-1"))
        with pytest.raises(RequestReused, match="'r-1'"):
            await store.create("b", call=store.call("r-1", **other))  # type: ignore[arg-type]
        assert len(await store.world.rows("jobs")) == 1

    async def test_in_another_namespace_is_no_repeat(self, store: ApiStore) -> None:
        call = store.call("r-1")
        await store.create("a", call=call)
        elsewhere = store.call("r-1")
        moved = type(call.key)("other", "r-1", call.key.method, call.key.body_hash)
        await store.create("a", call=type(call)(moved, elsewhere.audit_id, "tester", "", ""))
        assert len(await store.world.rows("jobs")) == 2

    async def test_at_the_same_time_has_one_effect_and_one_answer(self, store: ApiStore) -> None:
        answers = await asyncio.gather(*(store.create("a", call=store.call("r-1")) for _ in range(6)))
        assert {changed.answer for changed in answers} == {b"a v1 ACTIVE"}
        assert len(await store.world.rows("jobs")) == len(await store.world.rows("due")) == 1
        assert len(await store.world.rows("audit")) == 1

    async def test_of_a_refused_call_is_judged_anew(self, store: ApiStore) -> None:
        await store.create("a")
        with pytest.raises(AlreadyExists):
            await store.create("a", call=store.call("r-2"))
        await store.steer(JobState.DELETED, "a")
        assert (await store.create("a", call=store.call("r-2"))).answer == b"a v1 ACTIVE"


async def test_equal_schedules_are_stored_alike(store: ApiStore) -> None:
    await store.create("a", spec(MINUTELY))
    job = await store.jobs.by_name("default", "a")
    assert job.spec == spec(MINUTELY)
    assert job.fault == ""
