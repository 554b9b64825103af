"""What the reconciler finds goes on and ends: a real dispatcher takes a shard from an owner who only seems well."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import admin_service_pb2 as pb
from tidewheel.v1 import job_pb2

from core.buckets import NO_END, BucketScale
from core.clock import US_PER_S
from core.config import DispatcherSettings
from core.ids import job_hash, shard_of
from core.states import AttemptOutcome, RunState
from tests.support.control_plane import SHARDS, ControlPlane, settings_for
from tests.support.played_dispatcher import Dispatcher
from tests.support.polling import eventually
from tests.support.reconciling import kinds, now_us, own_everything, passed, plant_leased, plant_run
from tests.support.running_dispatcher import start_dispatcher
from tests.support.scripted_worker import ScriptedWorker, success
from tools.servers.etcd import EtcdServer

WIDTH_MS = 500
QUICK = DispatcherSettings(
    tick_s=0.05, attempt_lease_s=3.0, heartbeat_interval_s=1.0, adoption_margin_s=0.5, term_check_s=0.2
)
# A move, a lease and a retry take about six seconds.
WITHIN_S = 60.0


@dataclass
class Scene:
    """`shard` is that of a job, and d1's by SQL, whose marks stand at the present bucket; d1 carries nothing out."""

    plane: ControlPlane
    eye: asyncpg.Connection
    heir: str
    job_id: UUID
    shard: int

    async def finds(self, kind: str) -> pb.Finding:
        """The one finding of a dry run."""

        async def look() -> pb.Finding:
            found = await passed(self.plane, shards=(self.shard,))
            assert kinds(found) == [(kind, self.shard, False)]
            return found[0]

        found: pb.Finding = await eventually(look)
        return found

    async def mends(self, kind: str) -> pb.Finding:
        """The finding, once a pass has repaired it."""

        async def look() -> pb.Finding:
            found = await passed(self.plane, reason="it stands still", shards=(self.shard,))
            assert kinds(found) == [(kind, self.shard, True)], found
            return found[0]

        found: pb.Finding = await eventually(look, what=f"{kind} is repaired")
        return found

    async def moves(self, kind: str) -> None:
        """The finding is repaired by a move to the heir."""
        assert f"to {self.heir} was ordered" in (await self.mends(kind)).how

    async def ends(self, run_id: UUID) -> None:
        async def succeeded() -> bool:
            state = await self.eye.fetchval("SELECT state FROM runs WHERE run_id = $1", run_id)
            return bool(state == RunState.SUCCEEDED)

        await eventually(succeeded, WITHIN_S, what="the run succeeds")

    async def finds_nothing(self) -> None:
        """Once the move has come to its end."""

        async def look() -> bool:
            return await passed(self.plane, shards=(self.shard,)) == []

        await eventually(look, WITHIN_S, what="a pass finds nothing")

    async def raise_marks(self, by_s: float) -> None:
        bucket = BucketScale(WIDTH_MS).bucket_of(await now_us(self.eye) + round(by_s * US_PER_S))
        await self.eye.execute("UPDATE shard_floors SET floor = $2 WHERE shard = $1", self.shard, bucket)
        await self.eye.execute("UPDATE shard_marks SET watermark = $2 WHERE shard = $1", self.shard, bucket)


@pytest.fixture
async def scene(
    database_url: str, isolation: str, etcd: EtcdServer, eye: asyncpg.Connection
) -> AsyncIterator[tuple[Scene, ScriptedWorker]]:
    """With a worker at the heir, who does at once what it is told to."""
    settings = settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, rebalance=False)
    settings = replace(settings, cluster=replace(settings.cluster, bucket_width_ms=WIDTH_MS), dispatcher=QUICK)
    async with AsyncExitStack() as stack:
        plane = ControlPlane(settings)
        stack.push_async_callback(plane.close)
        await plane.serving()
        await own_everything(eye, "d1")
        owner = await Dispatcher(etcd.endpoint, settings.cluster.name, "d1").join()
        stack.push_async_callback(owner.leave)
        owner.said["connected_workers"] = 1
        owner.report_to(plane.address)
        heir = await start_dispatcher(settings, "heir")
        stack.push_async_callback(heir.kill)
        worker = await stack.enter_async_context(ScriptedWorker(heir.address, work=success, slots=4))
        await worker.grant(4)
        retry = job_pb2.RetryPolicy(first_delay=Duration(nanos=100_000_000))
        job_id = UUID((await plane.create("mended", handler="work", retry=retry)).job_id)
        made = Scene(plane, eye, heir.name, job_id, shard_of(job_hash(job_id), SHARDS))
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        await made.raise_marks(0)

        async def both_are_seen() -> bool:
            listed = (await plane.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
            return {(one.dispatcher_id, one.open_runs) for one in listed} == {("d1", 3), (heir.name, 0)}

        await eventually(both_are_seen)
        yield made, worker


async def test_a_run_whose_home_is_closed_comes_home_and_ends(scene: tuple[Scene, ScriptedWorker]) -> None:
    """Its owner was to take it home, and has not."""
    room, worker = scene
    await room.eye.execute("UPDATE shard_terms SET state = 2, to_bucket = 50 WHERE shard = $1", room.shard)
    row = (room.shard, NO_END, uuid4())
    await room.eye.execute("INSERT INTO shard_terms VALUES ($1, 2, 50, $2, 'd1', $3, 1, 1, 'takeover')", *row)
    run_id = await plant_run(room.eye, room.shard, await now_us(room.eye), job_id=room.job_id)
    found = await room.finds("RUN_WITHOUT_HOME")
    assert (found.subject, found.detail) == (f"run {run_id}", "its home term 1 of d1 is closed")
    await room.moves("RUN_WITHOUT_HOME")
    await room.ends(run_id)
    assert [start.attempt for start in worker.starts] == [1]
    assert await room.eye.fetchval("SELECT home_term FROM runs WHERE run_id = $1", run_id) > 2
    await room.finds_nothing()


async def test_a_run_that_its_owner_has_forgotten_runs_elsewhere(scene: tuple[Scene, ScriptedWorker]) -> None:
    room, worker = scene
    long_ago = await now_us(room.eye) - 130 * US_PER_S
    run_id = await plant_run(room.eye, room.shard, long_ago, job_id=room.job_id)
    assert (await room.finds("FORGOTTEN_RUN")).detail == "waits for nothing that d1 knows of"
    await room.moves("FORGOTTEN_RUN")
    await room.ends(run_id)
    assert [start.attempt for start in worker.starts] == [1]
    await room.finds_nothing()


async def test_a_run_that_nobody_reaps_is_reaped_and_tried_again(scene: tuple[Scene, ScriptedWorker]) -> None:
    room, worker = scene
    now = await now_us(room.eye)
    ended = now - 70 * US_PER_S
    run_id = await plant_leased(room.eye, room.shard, now - 90 * US_PER_S, ended, job_id=room.job_id)
    found = await room.finds("LEASE_OVERRUN")
    assert (found.detail, found.since.ToMicroseconds()) == ("attempt 1", ended)
    await room.moves("LEASE_OVERRUN")
    await room.ends(run_id)
    assert [start.attempt for start in worker.starts] == [2]
    attempts = await room.eye.fetch("SELECT outcome FROM attempts WHERE run_id = $1 ORDER BY attempt", run_id)
    assert [row["outcome"] for row in attempts] == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
    await room.finds_nothing()


async def test_what_stands_due_in_a_shard_that_stands_still_is_fired(scene: tuple[Scene, ScriptedWorker]) -> None:
    room, worker = scene
    await room.raise_marks(-40.0)
    at = Timestamp()
    at.FromMicroseconds(await now_us(room.eye) + US_PER_S // 2)
    here: list[str] = []
    for number in itertools.count():
        job = await room.plane.create(f"once-{number}", handler="work", schedule=job_pb2.Schedule(at=[at]))
        if shard_of(job_hash(UUID(job.job_id)), SHARDS) == room.shard:
            here.append(job.job_id)
        if len(here) == 3:
            break
    assert "d1 reports as if all were well" in (await room.finds("FROZEN_SHARD")).detail
    await room.moves("FROZEN_SHARD")

    async def done() -> bool:
        rows = await room.eye.fetch("SELECT job_id FROM runs WHERE state = $1", int(RunState.SUCCEEDED))
        return sorted(str(row["job_id"]) for row in rows) == sorted(here)

    await eventually(done, WITHIN_S, what="each of them has run")
    assert len(worker.starts) == len(here)
    await room.finds_nothing()


async def test_a_run_that_was_made_to_stand_is_found_by_the_next_owner(scene: tuple[Scene, ScriptedWorker]) -> None:
    room, worker = scene
    now = await now_us(room.eye)
    await room.eye.execute("UPDATE shard_marks SET open_from_us = $1", now - 30 * US_PER_S)
    run_id = await plant_run(room.eye, room.shard, now - 60 * US_PER_S, job_id=room.job_id)
    await room.finds("RUN_NOT_STANDING")
    assert (await room.mends("RUN_NOT_STANDING")).how == "the run was made to stand in open_runs"
    await room.finds_nothing()
    await room.plane.admin.MoveShards(
        pb.MoveShardsRequest(shards=[room.shard], dispatcher_id=room.heir, reason="a new owner looks")
    )
    await room.ends(run_id)
    assert len(worker.starts) == 1
