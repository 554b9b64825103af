"""A replica's life: the start without its servers, health, what it shows of the cluster, refused starts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import grpc
import pytest
from tidewheel.v1.admin_service_pb2 import ListShardsRequest
from tidewheel.v1.job_service_pb2 import ListJobsRequest

from controlplane.process import run
from core.config import ClusterSettings, ControlPlaneSettings, DatabaseSettings, EtcdSettings
from core.errors import Invalid, Unavailable
from tests.support.control_plane import SHARDS, ControlPlane, refused, settings_for
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer
from tools.servers.free_port import free_port
from tools.servers.postgres import PostgresServer


async def test_a_replica_shows_the_cluster(plane: ControlPlane) -> None:
    seen = await plane.status()
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
    names = ("Job", "Run", "Calendar", "Operation", "Schedule", "Admin", "Discovery")
    for service in ("", *(f"tidewheel.v1.{name}Service" for name in names)):
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
                return any("etcd does not answer" in problem for problem in (await plane.status()).problems)

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
            await asyncio.wait_for(run(other, asyncio.Event()), 60)
        assert "Traceback" not in caplog.text

    async def test_on_a_port_that_is_taken(self, plane: ControlPlane) -> None:
        with pytest.raises(Unavailable, match=r"controlplane\.listen"):
            await asyncio.wait_for(run(plane.settings, asyncio.Event()), 60)

    async def test_on_an_address_that_is_not_loopback(self) -> None:
        settings = settings_for("postgresql://127.0.0.1/x", "", "127.0.0.1:1", "x")
        for key, changed in (
            ("controlplane.listen", replace(settings, controlplane=ControlPlaneSettings(listen="0.0.0.0:0"))),
            ("etcd.endpoints", replace(settings, etcd=EtcdSettings())),
            ("database.url", replace(settings, database=DatabaseSettings(url="mysql://x/y"))),
        ):
            with pytest.raises(Invalid, match=key):
                await asyncio.wait_for(run(changed, asyncio.Event()), 60)


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
