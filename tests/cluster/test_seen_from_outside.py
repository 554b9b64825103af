"""Cases B129 and B131 on a whole system: metrics that do not grow with use, and health that says when nothing fires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidewheel import At, Client, Every

from tests.support.live_system import LiveSystem
from tests.support.monitor import MetricsPage, readiness, scrape
from tests.support.polling import eventually
from tools.fleet import Member
from tools.servers.homes import temporary_home
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE_OFFS = 500
AT_ONCE = 25
# Three periods of the due loop (1 s each), the 2 s that a statement may take before them, and much again.
NOTICED_WITHIN_S = 30.0
RECOVERED_WITHIN_S = 60.0
SERVICES = ("JobService", "RunService", "AdminService", "DiscoveryService")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[LiveSystem]:
    """Two of each role, and one shard: one dispatcher owns it, the other one is idle; one control plane follows."""
    with temporary_home() as home:
        async with LiveSystem(home, {"TIDEWHEEL_CLUSTER_SHARD_COUNT": "1"}) as system:
            yield system


async def test_b129_the_number_of_series_does_not_grow_with_jobs(live: LiveSystem) -> None:
    async with live.client() as client:
        await _one_offs(live, client, "warm-up", 5)  # every method and outcome has been counted once
        before = await _pages(live)
        await _one_offs(live, client, "one-off", ONE_OFFS)
        after = await _pages(live)
    for member, page in after.items():
        assert page.values.keys() == before[member].values.keys(), f"{member} has series that it did not have"
    jobs = await live.rows("SELECT job_id, name FROM jobs")
    runs = await live.rows("SELECT run_id FROM runs")
    assert len(runs) == len(jobs) == ONE_OFFS + 5
    ids = {str(row["job_id"]) for row in jobs} | {str(row["run_id"]) for row in runs}
    names = {row["name"] for row in jobs} | {"record", "default"} | set(live.workers)
    for member, page in after.items():
        held = [value for value in page.label_values if value in names or any(one in value for one in ids)]
        assert held == [], f"labels of {member} hold what users chose"


async def _one_offs(live: LiveSystem, client: Client, prefix: str, count: int) -> None:
    """Jobs with distinct names, each run once; returns when every run has succeeded."""
    for first in range(0, count, AT_ONCE):
        soon = At(datetime.now(UTC) + timedelta(seconds=3))  # all are registered before it on a busy machine too
        names = [f"{prefix}-{number}" for number in range(first, min(first + AT_ONCE, count))]
        await asyncio.gather(*(client.create_job(name, handler="record", schedule=soon) for name in names))

    async def done() -> bool:
        (row,) = await live.rows(
            "SELECT count(*) AS n FROM runs r JOIN jobs j ON j.job_id = r.job_id WHERE r.state = 3 AND j.name LIKE $1",
            f"{prefix}-%",
        )
        return bool(row["n"] == count)

    await eventually(done, within_s=60, what=f"all {count} have run")


async def _pages(live: LiveSystem) -> dict[str, MetricsPage]:
    members = [*live.control_planes, *live.dispatchers]
    return {member.name: await scrape(live.monitor_address(member)) for member in members}


async def test_b131_a_due_loop_that_hangs_is_not_ready_and_says_so(live: LiveSystem) -> None:
    owner, idle = await _by_shards(live)
    async with live.client() as client:
        # Something is due all the time.
        await client.create_job("tick", handler="record", schedule=Every(timedelta(seconds=1)), overlap="allow")
        await eventually(lambda: live.starts("tick"), within_s=20, what="it ticks")
        assert await _all_ready(live), "the idle dispatcher and the following control plane too"
        # Nobody leads meanwhile: the shard would go to the other one, which then hangs as well.
        async with frozen(live.control_planes), locked_due(live):
            said = await eventually(lambda: _hangs(live, owner), NOTICED_WITHIN_S, what="/readyz names the loop")
            assert all("its period is" in reason for reason in said.values()), "and why"
            age_s = await _oldest_pass_s(live, owner)
            assert age_s > 3, "three periods"
            assert await live.metric(owner, "tidewheel_ready") == 0

            async def older() -> bool:
                return await _oldest_pass_s(live, owner) > age_s + 1

            await eventually(older, within_s=10, what="the age of the last pass grows")
            assert owner.running, "it hangs, it has not died"
            await eventually(lambda: _is_ready(live, idle), NOTICED_WITHIN_S, what="who has no shard lacks nothing")
        await eventually(lambda: _all_ready(live), RECOVERED_WITHIN_S, what="all are ready again")
        ticks = len(live.starts("tick"))
        await eventually(lambda: len(live.starts("tick")) > ticks, within_s=20, what="it ticks again")

        async def young() -> bool:
            return await _oldest_pass_s(live, owner) < 3

        await eventually(young, RECOVERED_WITHIN_S, what="passes end again")
        await client.delete_job("tick")


async def test_b131_grpc_health_follows_the_database(live: LiveSystem) -> None:
    database = live.backing.database
    assert isinstance(database, PostgresServer)
    for plane in live.control_planes:
        wanted = {"": True, **dict.fromkeys(SERVICES, True)}
        await eventually(_says(plane, wanted), RECOVERED_WITHIN_S, what="the API serves")
    database.freeze()
    try:
        for plane in live.control_planes:
            # Discovery needs etcd alone: workers still find their dispatchers.
            wanted = {"": False, **dict.fromkeys(SERVICES, False), "DiscoveryService": True}
            await eventually(_says(plane, wanted), NOTICED_WITHIN_S, what="the API says that it cannot work")
            said = await readiness(live.monitor_address(plane))
            assert said.status == 503
            assert "has not answered for" in said.reasons["database"]

        async def no_dispatcher_is_ready() -> bool:
            return all([await _not_ready(live, dispatcher) for dispatcher in live.dispatchers])

        await eventually(no_dispatcher_is_ready, NOTICED_WITHIN_S)
    finally:
        database.thaw()
    for plane in live.control_planes:
        wanted = {"": True, **dict.fromkeys(SERVICES, True)}
        await eventually(_says(plane, wanted), RECOVERED_WITHIN_S, what="the API serves again")
    await eventually(lambda: _all_ready(live), RECOVERED_WITHIN_S, what="all are ready again")


def _says(plane: Member, wanted: dict[str, bool]) -> Callable[[], Awaitable[bool]]:
    async def says() -> bool:
        found = await _serving(plane)
        assert found == wanted
        return True

    return says


async def _serving(plane: Member) -> dict[str, bool]:
    """What the standard health service of a control plane says, by service and for the empty name."""
    async with grpc.aio.insecure_channel(plane.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        found = {}
        for service in ("", *SERVICES):
            full = f"tidewheel.v1.{service}" if service else ""
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=full), timeout=30)
            found[service] = answer.status == health_pb2.HealthCheckResponse.SERVING
        return found


async def _by_shards(live: LiveSystem) -> tuple[Member, Member]:
    """The dispatcher that owns the shard, and the one without."""
    first, second = live.dispatchers
    return (first, second) if await live.owned_shards(first) else (second, first)


async def _all_ready(live: LiveSystem) -> bool:
    for member in (*live.control_planes, *live.dispatchers):
        said = await readiness(live.monitor_address(member))
        assert said.ready, f"{member.name}: {said.reasons}"
    return True


async def _is_ready(live: LiveSystem, member: Member) -> bool:
    return (await readiness(live.monitor_address(member))).ready


async def _hangs(live: LiveSystem, owner: Member) -> dict[str, str]:
    """The reasons why it is not ready, once they name a loop that reads what is due."""
    said = await _not_ready(live, owner)
    assert {"discovery", "due loop"} & said.keys(), said
    return said


async def _not_ready(live: LiveSystem, member: Member) -> dict[str, str]:
    """The reasons why a server is not ready; empty while it is."""
    said = await readiness(live.monitor_address(member))
    return dict(said.reasons)


async def _oldest_pass_s(live: LiveSystem, dispatcher: Member) -> float:
    page = await scrape(live.monitor_address(dispatcher))
    ages = [page.total("tidewheel_last_pass_age_seconds", loop=loop) for loop in ("discovery", "due loop")]
    return max(ages)


@asynccontextmanager
async def frozen(members: Sequence[Member]) -> AsyncIterator[None]:
    """Within it, none of these processes does anything."""
    for member in members:
        member.child.freeze()
    try:
        yield
    finally:
        for member in members:
            member.child.thaw()


@asynccontextmanager
async def locked_due(live: LiveSystem) -> AsyncIterator[None]:
    """Within it, nobody else reads or writes the table of what is due."""
    connection = await asyncpg.connect(live.backing.database_url.replace("+asyncpg", ""))
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE due IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()
