"""The leader over a real etcd and database: election, report streams, the plan, hints to owners, discovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tidewheel.v1.admin_service_pb2 import ListDispatchersRequest
from tidewheel.v1.discovery_service_pb2 import WatchDispatchersRequest
from tidewheel.v1.job_service_pb2 import TriggerJobRequest
from tidewheel.v1.run_pb2 import Run
from tidewheel.v1.run_service_pb2 import CancelRunRequest

from core.clock import SystemClock
from core.config import ControlPlaneSettings
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig
from core.coord.layout import Layout, Owner
from core.rand import SystemRand
from core.wire import internal_pb2, internal_pb2_grpc
from tests.support.control_plane import SHARDS, ControlPlane
from tests.support.led_system import TOGETHER, WITHIN_S, Make
from tests.support.played_dispatcher import Dispatcher
from tests.support.polling import eventually
from tools.servers.free_port import free_port


@pytest.fixture
async def dispatchers(plane: ControlPlane) -> AsyncIterator[list[Dispatcher]]:
    """Two dispatchers that live and report to the only replica."""
    etcd, cluster = plane.settings.etcd.endpoints[0], plane.settings.cluster.name
    joined = await asyncio.gather(*(Dispatcher(etcd, cluster, name).join() for name in ("d1", "d2")))
    for each in joined:
        each.report_to(plane.address)
    yield joined
    for each in joined:
        await each.leave()


@asynccontextmanager
async def another(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """A second replica of the same cluster, that serves."""
    settings = replace(plane.settings, controlplane=ControlPlaneSettings(listen=f"127.0.0.1:{free_port()}"))
    second = ControlPlane(settings)
    try:
        yield await second.serving()
    finally:
        await second.close()


def planned(dispatcher: Dispatcher) -> dict[int, str]:
    """Who is to own what, by the plan that the dispatcher sees."""
    plan = dispatcher.coord.plan()
    return {} if plan is None else {order.shard: order.dispatcher_id for order in plan.assignments}


class TestTheLeader:
    async def test_spreads_the_shards_over_those_who_live(self, make: Make) -> None:
        system = await make(**TOGETHER)
        joined = await system.join("d1", "d2")
        plan = await eventually(lambda: planned(joined[0]))
        assert sorted(plan) == list(range(SHARDS))
        assert sorted(list(plan.values()).count(name) for name in ("d1", "d2")) == [SHARDS // 2] * 2

    async def test_takes_the_shards_of_one_who_falls_silent_and_leaves_the_others_alone(
        self, dispatchers: list[Dispatcher]
    ) -> None:
        before = await eventually(lambda: planned(dispatchers[0]))
        await dispatchers[1].silence()
        await eventually(lambda: set(planned(dispatchers[0]).values()) == {"d1"})
        assert all(name == "d1" for shard, name in planned(dispatchers[0]).items() if before[shard] == "d1")

    async def test_gives_nothing_to_one_who_drains(self, dispatchers: list[Dispatcher], plane: ControlPlane) -> None:
        await eventually(lambda: planned(dispatchers[0]))
        await dispatchers[1].silence()
        dispatchers[1].report_to(plane.address, draining=True)
        await eventually(lambda: set(planned(dispatchers[0]).values()) == {"d1"})

    async def test_shows_what_is_reported(self, dispatchers: list[Dispatcher], plane: ControlPlane) -> None:
        async def reported() -> bool:
            listed = (await plane.admin.ListDispatchers(ListDispatchersRequest())).dispatchers
            return [(d.dispatcher_id, d.alive, d.open_runs) for d in listed] == [("d1", True, 3), ("d2", True, 3)]

        await eventually(reported)

    async def test_hands_over_when_it_ends_and_the_next_one_plans_on(
        self, dispatchers: list[Dispatcher], plane: ControlPlane
    ) -> None:
        """Two replicas: one leads; a plan of the old one is never written after the new one's."""
        async with another(plane) as second:
            await eventually(lambda: planned(dispatchers[0]))
            first_leader = (await plane.status()).leader

            async def knows_the_first() -> bool:
                return bool((await second.status()).leader == first_leader)

            await eventually(knows_the_first)
            version = dispatchers[0].coord.plan().version  # type: ignore[union-attr]
            plane.stop.set()
            await plane.task

            async def leads() -> bool:
                seen = await second.status()
                return bool(seen.leader == seen.replica)

            await eventually(leads)
            dispatchers[0].report_to(second.address)
            await dispatchers[1].leave()
            await eventually(lambda: set(planned(dispatchers[0]).values()) == {"d1"})
            assert dispatchers[0].coord.plan().version > version  # type: ignore[union-attr]


async def test_a_leader_whose_lease_is_gone_steps_down_and_serves_on(plane: ControlPlane) -> None:
    """Whatever it still believes, the plan's key is guarded by the election key: the next leader's plan stands."""
    etcd = EtcdClient(EtcdConfig(plane.settings.etcd.endpoints), SystemClock(), SystemRand())
    try:
        async with another(plane) as second:

            async def leader() -> str:
                return str((await second.status()).leader)

            first = await eventually(leader)
            prefix = Layout(plane.settings.cluster.name).election
            candidates = (await etcd.list_prefix(prefix)).kvs
            await etcd.revoke(min(candidates, key=lambda kv: kv.create_revision).lease)

            async def changed() -> bool:
                return await leader() not in ("", first)

            await eventually(changed)
            assert await plane.create("a")
            assert not plane.task.done()
    finally:
        await etcd.close()


async def test_a_report_to_a_replica_that_does_not_lead_is_refused(
    plane: ControlPlane,
) -> None:
    async with another(plane) as second:

        async def told() -> bool:
            return bool((await second.status()).leader_address == plane.address)

        await eventually(told)
        call: Any = internal_pb2_grpc.LeaderServiceStub(second.channel).Report()
        await call.write(internal_pb2.DispatcherReport(dispatcher_id="d"))
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_hints_reach_the_owner_of_the_shard(dispatchers: list[Dispatcher], plane: ControlPlane) -> None:
    owner = dispatchers[0]
    for shard in range(SHARDS):
        owner.coord.publish_owner(Owner(shard, 1, 0, owner.dispatcher_id))
    await owner.coord.settled()
    await plane.create("a")
    made: list[Run] = []

    async def hinted() -> bool:
        """Of one of the runs: the first ones may come before the replica knows of the owner."""
        run = await plane.jobs.TriggerJob(TriggerJobRequest(name="a", allow_overlap=True))
        await plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id))
        made.append(run)
        landed = {shard for hint in owner.hints for shard in hint.landed_shards}
        canceled = {run_id for hint in owner.hints for run_id in hint.canceled_run_ids}
        return any(run.shard in landed and run.run_id in canceled for run in made)

    await eventually(hinted)
    assert not dispatchers[1].hints


async def test_discovery_tells_the_list_and_each_change_of_it(
    dispatchers: list[Dispatcher], plane: ControlPlane
) -> None:
    call = plane.discovery.WatchDispatchers(WatchDispatchersRequest())
    seen: set[str] = set()
    while seen != {"d1", "d2"}:
        seen = {each.dispatcher_id for each in (await asyncio.wait_for(call.read(), WITHIN_S)).dispatchers}
    dispatchers[1].coord.withdraw("d2")
    left = (await asyncio.wait_for(call.read(), WITHIN_S)).dispatchers
    assert [(each.dispatcher_id, each.address) for each in left] == [("d1", dispatchers[0].address)]
    plane.stop.set()
    assert await asyncio.wait_for(call.code(), WITHIN_S) is grpc.StatusCode.UNAVAILABLE
