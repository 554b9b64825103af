"""A replica's life: the start without a database, health, discovery, the leader's election and its plan, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import grpc
import pytest
from tidewheel.v1.admin_service_pb2 import GetClusterStatusRequest, ListDispatchersRequest, ListShardsRequest
from tidewheel.v1.discovery_service_pb2 import WatchDispatchersRequest
from tidewheel.v1.job_service_pb2 import ListJobsRequest

from controlplane.process import run
from core.clock import SystemClock
from core.config import ClusterSettings, ControlPlaneSettings, DatabaseSettings, EtcdSettings
from core.coord.config import EtcdConfig, SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.layout import Member, Owner
from core.errors import Invalid, Unavailable
from core.rand import SystemRand
from core.wire import internal_pb2, internal_pb2_grpc
from tests.support.control_plane import SHARDS, ControlPlane, refused, settings_for
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer
from tools.servers.free_port import free_port
from tools.servers.postgres import PostgresServer


class Dispatcher:
    """Plays a dispatcher towards etcd, the leader and the API's hints; it claims nothing."""

    def __init__(self, etcd: str, cluster: str, dispatcher_id: str) -> None:
        self.dispatcher_id = dispatcher_id
        self.coord = EtcdCoord(EtcdConfig((etcd,)), SessionConfig(), cluster, SystemClock(), SystemRand())
        self.hints: list[internal_pb2.HintRequest] = []
        self.server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self.reporting: asyncio.Task[None] | None = None

    async def join(self) -> Dispatcher:
        internal_pb2_grpc.add_DispatcherServiceServicer_to_server(_HintSink(self.hints), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        self.coord.start()
        self.coord.register(Member(self.dispatcher_id, self.address, "", 1))
        await self.coord.ready()
        await self.coord.settled()
        return self

    def report_to(self, address: str, *, draining: bool = False) -> None:
        """Report twice a second, until `silence`."""
        self.reporting = asyncio.ensure_future(self._report(address, draining))

    async def silence(self) -> None:
        if self.reporting is not None:
            self.reporting.cancel()
            await asyncio.gather(self.reporting, return_exceptions=True)

    async def _report(self, address: str, draining: bool) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = internal_pb2_grpc.LeaderServiceStub(channel).Report()
            while True:
                await call.write(
                    internal_pb2.DispatcherReport(
                        dispatcher_id=self.dispatcher_id, open_runs=3, fires_per_second=1.5, draining=draining
                    )
                )
                await asyncio.sleep(0.2)

    async def leave(self) -> None:
        await self.silence()
        await self.coord.close()
        await self.server.stop(0)


class _HintSink(internal_pb2_grpc.DispatcherServiceServicer):
    def __init__(self, hints: list[internal_pb2.HintRequest]) -> None:
        self._hints = hints

    async def Hint(self, request: internal_pb2.HintRequest, context: Any) -> internal_pb2.HintReply:  # type: ignore[override]
        self._hints.append(request)
        return internal_pb2.HintReply()


@pytest.fixture
async def dispatchers(plane: ControlPlane) -> AsyncIterator[list[Dispatcher]]:
    """Two dispatchers that live and report to the only replica."""
    etcd, cluster = plane.settings.etcd.endpoints[0], plane.settings.cluster.name
    joined = [await Dispatcher(etcd, cluster, name).join() for name in ("d1", "d2")]
    for each in joined:
        each.report_to(plane.address)
    yield joined
    for each in joined:
        await each.leave()


async def status(plane: ControlPlane) -> Any:
    return await plane.admin.GetClusterStatus(GetClusterStatusRequest())


def planned(dispatcher: Dispatcher) -> dict[int, str]:
    """Who is to own what, by the plan that the dispatcher sees."""
    plan = dispatcher.coord.plan()
    return {} if plan is None else {order.shard: order.dispatcher_id for order in plan.assignments}


class TestTheLeader:
    async def test_spreads_the_shards_over_those_who_live(self, dispatchers: list[Dispatcher]) -> None:
        plan = await eventually(lambda: planned(dispatchers[0]))
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
        second = await ControlPlane(
            replace(plane.settings, controlplane=ControlPlaneSettings(listen=f"127.0.0.1:{free_port()}"))
        ).serving()
        try:
            await eventually(lambda: planned(dispatchers[0]))
            first_leader = (await status(plane)).leader
            assert (await status(second)).leader == first_leader
            version = dispatchers[0].coord.plan().version  # type: ignore[union-attr]
            plane.stop.set()
            await plane.task

            async def leads() -> bool:
                seen = await status(second)
                return bool(seen.leader == seen.replica)

            await eventually(leads)
            dispatchers[0].report_to(second.address)
            await dispatchers[1].leave()
            await eventually(lambda: set(planned(dispatchers[0]).values()) == {"d1"})
            assert dispatchers[0].coord.plan().version > version  # type: ignore[union-attr]
        finally:
            await second.close()


async def test_a_report_to_a_replica_that_does_not_lead_is_refused(
    plane: ControlPlane,
) -> None:
    second = await ControlPlane(
        replace(plane.settings, controlplane=ControlPlaneSettings(listen=f"127.0.0.1:{free_port()}"))
    ).serving()
    try:

        async def told() -> bool:
            return bool((await status(second)).leader_address == plane.address)

        await eventually(told)
        call: Any = internal_pb2_grpc.LeaderServiceStub(second.channel).Report()
        await call.write(internal_pb2.DispatcherReport(dispatcher_id="d"))
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
    finally:
        await second.close()


async def test_hints_reach_the_owner_of_the_shard(dispatchers: list[Dispatcher], plane: ControlPlane) -> None:
    from tidewheel.v1.job_service_pb2 import TriggerJobRequest
    from tidewheel.v1.run_service_pb2 import CancelRunRequest

    owner = dispatchers[0]
    for shard in range(SHARDS):
        owner.coord.publish_owner(Owner(shard, 1, 0, owner.dispatcher_id))
    await owner.coord.settled()
    await plane.create("a")

    async def hinted() -> bool:
        run = await plane.jobs.TriggerJob(TriggerJobRequest(name="a", allow_overlap=True))
        await plane.runs.CancelRun(CancelRunRequest(run_id=run.run_id))
        await asyncio.sleep(0.05)
        return any(run.shard in hint.landed_shards for hint in owner.hints) and any(
            run.run_id in hint.canceled_run_ids for hint in owner.hints
        )

    await eventually(hinted)
    assert not dispatchers[1].hints


async def test_discovery_tells_the_list_and_each_change_of_it(
    dispatchers: list[Dispatcher], plane: ControlPlane
) -> None:
    call = plane.discovery.WatchDispatchers(WatchDispatchersRequest())
    seen: set[str] = set()
    while seen != {"d1", "d2"}:
        seen = {each.dispatcher_id for each in (await asyncio.wait_for(call.read(), 10)).dispatchers}
    dispatchers[1].coord.withdraw("d2")
    left = (await asyncio.wait_for(call.read(), 10)).dispatchers
    assert [(each.dispatcher_id, each.address) for each in left] == [("d1", dispatchers[0].address)]
    plane.stop.set()
    assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.UNAVAILABLE


async def test_a_replica_shows_the_cluster(plane: ControlPlane) -> None:
    seen = await status(plane)
    assert (seen.shard_count, seen.bucket_width_ms, seen.unowned_shards) == (SHARDS, 5000, SHARDS)
    assert seen.database.startswith("PostgreSQL ")
    assert seen.tzdata_version
    assert "no dispatcher is alive: nothing is fired" in seen.problems
    shards = (await plane.admin.ListShards(ListShardsRequest())).shards
    assert [shard.shard for shard in shards] == list(range(SHARDS))
    assert all(shard.floor == shard.watermark > 0 for shard in shards)
    refusal = await refused(plane.admin.ListShards(ListShardsRequest(shard=SHARDS)))
    assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, ["shard"])


async def test_health_names_each_service(plane: ControlPlane) -> None:
    for service in ("", *(f"tidewheel.v1.{name}Service" for name in ("Job", "Run", "Admin", "Discovery"))):
        await eventually(lambda service=service: _is_serving(plane, service))  # type: ignore[misc]
    assert await plane.status_of("tidewheel.v1.Nonsense") == "NOT_FOUND"


async def _is_serving(plane: ControlPlane, service: str) -> bool:
    return await plane.status_of(service) == "SERVING"


class TestWithoutItsServers:
    async def test_it_waits_for_a_database_says_so_and_refuses_calls_meanwhile(
        self, own_postgres: PostgresServer, etcd: EtcdServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        from core.store.migrations import migrate

        url = own_postgres.url("postgres")
        await migrate(url)
        own_postgres.stop()
        plane = ControlPlane(settings_for(url, "", etcd.endpoint, uuid4().hex))
        try:
            await eventually(lambda: "waiting for the database" in caplog.text)
            assert await plane.status_of("tidewheel.v1.JobService") == "NOT_SERVING"
            assert (await refused(plane.jobs.ListJobs(ListJobsRequest()))).code is grpc.StatusCode.UNAVAILABLE
            assert "Traceback" not in caplog.text
            own_postgres.start()
            await plane.serving()
            await plane.create("a")
        finally:
            await plane.close()

    async def test_it_waits_for_the_schema(
        self, postgres: PostgresServer, databases: Any, etcd: EtcdServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        from core.store.migrations import migrate

        url = await databases.create_empty()
        plane = ControlPlane(settings_for(url, "", etcd.endpoint, uuid4().hex))
        try:
            await eventually(lambda: "run `tidewheel migrate`" in caplog.text)
            await migrate(url)
            await plane.serving()
        finally:
            await plane.close()
            await databases.drop(url)

    async def test_b131_it_turns_not_serving_when_the_database_freezes_and_back_again(
        self, own_postgres: PostgresServer, etcd: EtcdServer
    ) -> None:
        """A process that cannot do its work does not say that it can."""
        from core.store.migrations import migrate

        url = own_postgres.url("postgres")
        await migrate(url)
        plane = ControlPlane(settings_for(url, "", etcd.endpoint, uuid4().hex))
        try:
            await plane.serving()
            own_postgres.freeze()
            await eventually(lambda: _is_not_serving(plane), within_s=30)
            own_postgres.thaw()
            await eventually(lambda: _is_serving(plane, ""), within_s=30)
            await plane.create("a")
        finally:
            await plane.close()

    async def test_it_serves_without_etcd(self, database_url: str, caplog: pytest.LogCaptureFixture) -> None:
        """Jobs are accepted; only discovery and the leader's duties rest."""
        plane = ControlPlane(settings_for(database_url, "", f"127.0.0.1:{free_port()}", "alone"))
        try:
            await plane.serving()
            await plane.create("a")
            assert await plane.status_of("tidewheel.v1.DiscoveryService") == "NOT_SERVING"
            assert await plane.status_of("") == "SERVING"

            async def told() -> bool:
                return any("etcd does not answer" in problem for problem in (await status(plane)).problems)

            await eventually(told)
            await eventually(lambda: "etcd" in caplog.text)
            assert "Traceback" not in caplog.text
        finally:
            await plane.close()


async def _is_not_serving(plane: ControlPlane) -> bool:
    return await plane.status_of("") == "NOT_SERVING"


class TestARefusedStart:
    async def test_with_another_shard_count_than_the_clusters(
        self, plane: ControlPlane, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = replace(
            plane.settings,
            cluster=ClusterSettings(name="x", shard_count=2 * SHARDS),
            controlplane=ControlPlaneSettings(listen="127.0.0.1:0"),
        )
        with pytest.raises(Invalid, match=r"cluster\.shard_count"):
            await asyncio.wait_for(run(other, asyncio.Event()), 20)
        assert "Traceback" not in caplog.text

    async def test_on_a_port_that_is_taken(self, plane: ControlPlane) -> None:
        with pytest.raises(Unavailable, match=r"controlplane\.listen"):
            await asyncio.wait_for(run(plane.settings, asyncio.Event()), 20)

    async def test_on_an_address_that_is_not_loopback(self) -> None:
        settings = settings_for("postgresql://127.0.0.1/x", "", "127.0.0.1:1", "x")
        for key, changed in (
            ("controlplane.listen", replace(settings, controlplane=ControlPlaneSettings(listen="0.0.0.0:0"))),
            ("etcd.endpoints", replace(settings, etcd=EtcdSettings())),
            ("database.url", replace(settings, database=DatabaseSettings(url="mysql://x/y"))),
        ):
            with pytest.raises(Invalid, match=key):
                await asyncio.wait_for(run(changed, asyncio.Event()), 20)


async def test_reflection_is_there_only_when_it_is_asked_for(
    database_url: str, etcd: EtcdServer, plane: ControlPlane
) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    async def services(address: str) -> list[str]:
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
            answer = await call.read()
            return [service.name for service in answer.list_services_response.service]

    with pytest.raises(grpc.aio.AioRpcError):
        await services(plane.address)
    shown = ControlPlane(settings_for(database_url, "", etcd.endpoint, uuid4().hex, reflection=True))
    try:
        await shown.serving()
        assert "tidewheel.v1.JobService" in await services(shown.address)
    finally:
        await shown.close()
