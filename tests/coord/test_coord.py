"""The Coord port as dispatchers and control planes use it: registering, publishing, planning, and healing by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.config import SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.faults import LeadershipLost
from core.coord.layout import Assignment, Layout, LeaderInfo, Member, Owner, Plan
from core.coord.ports import Coord
from core.errors import Conflict
from core.rand import SystemRand
from core.tasks import Wake
from tests.coord.conftest import quick, stored
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer

MakeCoord = Callable[..., EtcdCoord]
D1 = Member("d1", "127.0.0.1:7001", "127.0.0.1:9001", 1)
D2 = Member("d2", "127.0.0.1:7002", "", 2)
R1 = LeaderInfo("r1", "127.0.0.1:7000")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> str:
    """A cluster of this test's own in the shared etcd."""
    return str(request.node.name).replace("_", "-")[:60]


@pytest.fixture
async def make_coord(cluster: str) -> AsyncIterator[MakeCoord]:
    """Makes and starts the port of one process, given an endpoint; ended as a process ends by SIGTERM."""
    async with AsyncExitStack() as stack:

        def make(endpoint: str, **session: float) -> EtcdCoord:
            # No stall of the machine loses such a lease: a test that is about the loss of one says how long it is.
            held = SessionConfig(**({"ttl_s": 60, "renew_s": 0.5, "margin_s": 0.5} | session))  # type: ignore[arg-type]
            coord = EtcdCoord(quick(endpoint), held, cluster, SystemClock(), SystemRand())
            as_port: Coord = coord
            as_port.start()
            stack.push_async_callback(finish, coord)
            return coord

        async def finish(coord: EtcdCoord) -> None:
            await coord.close()
            assert coord.tasks.failure is None

        yield make


async def test_a_registered_dispatcher_and_its_shards_are_seen_by_everybody_until_it_closes(
    etcd: EtcdServer, make_coord: MakeCoord
) -> None:
    dispatcher, viewer = make_coord(etcd.endpoint, renew_s=10.0), make_coord(etcd.endpoint)
    dispatcher.register(D1)
    dispatcher.publish_owner(Owner(5, 1, 100, "d1"))
    await asyncio.gather(dispatcher.ready(), viewer.ready(), dispatcher.settled())
    await eventually(lambda: viewer.members() == {"d1": D1} and viewer.owners() == {5: Owner(5, 1, 100, "d1")})
    dispatcher.withdraw_owner(5)
    await eventually(lambda: not viewer.owners())
    await dispatcher.close()
    await eventually(lambda: not viewer.members(), what="gone at once, not with its lease of a minute")


async def test_a_killed_dispatcher_disappears_when_its_lease_ends(etcd: EtcdServer, make_coord: MakeCoord) -> None:
    dispatcher, viewer = make_coord(etcd.endpoint, ttl_s=3), make_coord(etcd.endpoint)
    dispatcher.register(D1)
    await eventually(lambda: "d1" in viewer.members())
    await dispatcher.tasks.close()  # nothing renews any more
    await eventually(lambda: "d1" not in viewer.members(), 30)


async def test_a_withdrawn_dispatcher_stays_away_over_a_lost_lease(
    etcd: EtcdServer, client: EtcdClient, make_coord: MakeCoord, cluster: str
) -> None:
    dispatcher = make_coord(etcd.endpoint)
    dispatcher.register(D1)
    dispatcher.register(D2)
    await dispatcher.settled()
    dispatcher.withdraw("d1")
    await dispatcher.settled()
    found = (await client.list_prefix(Layout(cluster).members)).kvs
    await client.revoke(found[0].lease)
    await eventually(lambda: dispatcher.session_losses == 1 and dispatcher.session_held)
    await dispatcher.settled()
    assert [kv.key for kv in (await client.list_prefix(Layout(cluster).members)).kvs] == [Layout(cluster).member("d2")]


async def test_an_older_term_never_hides_a_newer_one(etcd: EtcdServer, make_coord: MakeCoord) -> None:
    """The former owner comes back late: re-publishing and withdrawing leave the successor's entry alone."""
    former, successor = make_coord(etcd.endpoint), make_coord(etcd.endpoint)
    former.publish_owner(Owner(7, 1, 0, "d1"))
    await former.settled()
    newer = Owner(7, 2, 50, "d2")
    successor.publish_owner(newer)
    await successor.settled()
    former.publish_owner(Owner(7, 1, 0, "d1"))
    await former.settled()
    former.withdraw_owner(7)
    await former.settled()
    await eventually(lambda: former.owners() == {7: newer})


async def test_the_leaders_plan_reaches_the_dispatchers(etcd: EtcdServer, make_coord: MakeCoord) -> None:
    replica, dispatcher = make_coord(etcd.endpoint), make_coord(etcd.endpoint)
    wake = Wake()
    dispatcher.subscribe(wake)
    leadership = await replica.campaign(R1)
    await eventually(lambda: dispatcher.leader() == R1)
    for version in (1, 2):
        plan = Plan(version, tuple(Assignment(shard, "d1", 0, "") for shard in range(64)))
        await replica.write_plan(leadership, plan)
        while dispatcher.plan() != plan:
            assert await wake.wait(SystemClock(), 20), "a change wakes its subscriber"
    dispatcher.unsubscribe(wake)


async def test_a_plan_that_is_not_newer_is_refused(etcd: EtcdServer, make_coord: MakeCoord) -> None:
    replica = make_coord(etcd.endpoint)
    leadership = await replica.campaign(R1)
    await replica.write_plan(leadership, Plan(3, ()))
    with pytest.raises(Conflict, match="plan 3 is not above plan 3"):
        await replica.write_plan(leadership, Plan(3, ()))
    assert leadership.valid


async def test_of_two_leaders_only_the_real_one_can_write_a_plan(
    etcd: EtcdServer, client: EtcdClient, make_coord: MakeCoord
) -> None:
    """B70: the old one was paused and heard nothing."""
    paused, replica = make_coord(etcd.endpoint), make_coord(etcd.endpoint)
    old = await paused.campaign(R1)
    await paused.tasks.close()
    await client.revoke(old.held.lease)
    new = await replica.campaign(LeaderInfo("r2", "127.0.0.1:7010"))
    with pytest.raises(LeadershipLost):
        await paused.write_plan(old, Plan(1, ()))
    await replica.write_plan(new, Plan(1, ()))


async def test_after_a_resignation_the_next_leads_at_once(etcd: EtcdServer, make_coord: MakeCoord) -> None:
    first, second = make_coord(etcd.endpoint), make_coord(etcd.endpoint)
    leadership = await first.campaign(R1)
    waiting = asyncio.create_task(second.campaign(LeaderInfo("r2", "127.0.0.1:7010")))
    await first.resign(leadership)
    assert (await asyncio.wait_for(waiting, 20)).term_revision > leadership.term_revision


async def test_nonsense_in_etcd_is_skipped_and_said_once(
    etcd: EtcdServer, client: EtcdClient, make_coord: MakeCoord, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """T21: whoever can write there can make us skip a key, not fail."""
    layout = Layout(cluster)
    for key, value in [
        (layout.plan, b"{"),
        (layout.member("d9"), json.dumps({"dispatcher_id": "other"}).encode()),
        (layout.owners + "x", b"\xff"),
        (layout.prefix + "stranger", b""),
    ]:
        await client.put(key, value)
    viewer = make_coord(etcd.endpoint)
    viewer.register(D1)
    await eventually(lambda: viewer.members() == {"d1": D1})
    assert viewer.plan() is None
    assert viewer.owners() == {}
    said = [record.getMessage() for record in caplog.records if "skipping" in record.getMessage()]
    assert len(said) == 4, said


async def test_a_member_removed_by_somebody_is_back_at_once(
    etcd: EtcdServer, client: EtcdClient, make_coord: MakeCoord, cluster: str
) -> None:
    dispatcher = make_coord(etcd.endpoint, verify_s=60.0)
    dispatcher.register(D1)
    await eventually(lambda: "d1" in dispatcher.members())
    removed = await client.delete(Layout(cluster).members, prefix=True)
    assert removed == 1
    await eventually(lambda: stored(client, Layout(cluster).member("d1")))
    assert dispatcher.session_losses == 0


async def test_without_etcd_at_start_it_waits_in_one_line_and_then_works(
    own_etcd: EtcdServer, make_coord: MakeCoord, caplog: pytest.LogCaptureFixture
) -> None:
    own_etcd.kill()
    dispatcher = make_coord(own_etcd.endpoint)
    dispatcher.register(D1)
    await eventually(lambda: not dispatcher.reachable)
    await asyncio.sleep(2)  # many tries
    assert not dispatcher.synced
    assert not dispatcher.session_held
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("core.")]
    assert len(lines) == 1, lines
    assert "cannot be reached" in lines[0]
    assert not caplog.records[0].exc_info
    own_etcd.launch()
    await asyncio.wait_for(dispatcher.ready(), 20)
    await eventually(lambda: dispatcher.members() == {"d1": D1})


async def test_during_an_outage_the_last_view_stays_and_nothing_waits(
    etcd: EtcdServer, proxy: TcpProxy, make_coord: MakeCoord
) -> None:
    dispatcher = make_coord(proxy.endpoint, ttl_s=8, margin_s=4.0)
    dispatcher.register(D1)
    dispatcher.publish_owner(Owner(1, 1, 0, "d1"))
    await eventually(lambda: dispatcher.members() and dispatcher.owners())
    proxy.stall()
    await eventually(lambda: not dispatcher.session_held and not dispatcher.reachable)
    assert dispatcher.members() == {"d1": D1}
    assert dispatcher.owners() == {1: Owner(1, 1, 0, "d1")}
    dispatcher.publish_owner(Owner(2, 1, 0, "d1"))
    dispatcher.withdraw_owner(1)
    proxy.heal()
    await eventually(lambda: dispatcher.owners() == {2: Owner(2, 1, 0, "d1")}, 15)
    assert dispatcher.members() == {"d1": D1}
    assert dispatcher.session_losses == 1
    assert dispatcher.resets == 0


async def test_an_emptied_etcd_heals_itself(own_etcd: EtcdServer, make_coord: MakeCoord) -> None:
    dispatcher, replica = make_coord(own_etcd.endpoint), make_coord(own_etcd.endpoint)
    dispatcher.register(D1)
    for shard in range(64):
        dispatcher.publish_owner(Owner(shard, 3, 0, "d1"))
    leadership = await replica.campaign(R1)
    await replica.write_plan(leadership, Plan(9, ()))
    await eventually(lambda: dispatcher.plan() == Plan(9, ()) and len(replica.owners()) == 64)
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    await asyncio.wait_for(leadership.lost.wait(), 30)
    again = await asyncio.wait_for(replica.campaign(R1), 30)
    await eventually(lambda: dispatcher.resets == replica.resets == 1)
    await eventually(lambda: len(replica.owners()) == 64 and replica.members() == {"d1": D1}, 15)
    assert again.valid
    assert replica.plan() is None
    await replica.write_plan(again, Plan(1, ()))
    await eventually(lambda: dispatcher.plan() == Plan(1, ()))


async def test_an_old_server_is_named_once_at_start(
    etcd: EtcdServer, make_coord: MakeCoord, caplog: pytest.LogCaptureFixture
) -> None:
    """The tests' own server is old on purpose; a newer one says nothing."""
    coord = make_coord(etcd.endpoint)
    await coord.ready()
    await coord.settled()
    minor = tuple(int(part) for part in etcd.version.split(".")[:2])
    expected = 1 if minor < (3, 5) else 0

    def said() -> int:
        return sum("production needs 3.5.30 or 3.6.11" in record.getMessage() for record in caplog.records)

    if expected:
        await eventually(lambda: said() == 1)
    assert said() <= 1
