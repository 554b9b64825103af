"""Three members restored from an old backup, emptied, or compacted: caches are dropped and everybody registers anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from core.clock import SystemClock
from core.config import EtcdSettings
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig
from core.coord.coord import EtcdCoord
from core.coord.layout import Layout, LeaderInfo, Member, Owner, Plan, encode
from core.coord.mirror import Mirror
from core.coord.settings import session_config
from core.rand import SystemRand
from core.tasks import Tasks
from tests.coord.conftest import MakeClient
from tests.coord.watching import write_through
from tests.support.polling import eventually
from tools.servers.etcd_cluster import EtcdCluster

D1 = Member("d1", "127.0.0.1:7001", "", 1)
D2 = Member("d2", "127.0.0.1:7002", "", 2)
R1 = LeaderInfo("r1", "127.0.0.1:7000")

MakeCoord = Callable[..., EtcdCoord]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> str:
    """A cluster of this test's own in the shared etcd."""
    return "".join(mark if mark.isalnum() else "-" for mark in str(request.node.name))[-60:].strip("-")


@pytest.fixture
async def make_coord(members: EtcdCluster, cluster: str) -> AsyncIterator[MakeCoord]:
    """Makes and starts the port of one process, with the product's own settings but for those given."""
    async with AsyncExitStack() as stack:

        def make(**settings: int) -> EtcdCoord:
            session = session_config(EtcdSettings(**settings))  # type: ignore[arg-type]
            coord = EtcdCoord(EtcdConfig(members.endpoints), session, cluster, SystemClock(), SystemRand())
            coord.start()
            stack.push_async_callback(finish, coord)
            return coord

        async def finish(coord: EtcdCoord) -> None:
            await coord.close()
            assert coord.tasks.failure is None

        yield make


@pytest.fixture
def own_token(members: EtcdCluster) -> Iterator[None]:
    """The members are one cluster again afterwards, whatever a test restored."""
    before = members.token
    yield
    members.kill()
    members.wipe()
    members.token = before


@pytest.mark.parametrize("identity", ["the same cluster id", "another cluster id"])
@pytest.mark.usefixtures("own_token")
async def test_after_the_restore_of_an_old_backup_everybody_registers_anew(
    members: EtcdCluster, make_coord: MakeCoord, tmp_path: Path, identity: str
) -> None:
    """Revisions go back, and what died since the backup lives again for as long as its lease would have."""
    # The lease of the one that dies outlasts the way to the restored members: it must be seen to live again.
    dying, dispatcher, replica = make_coord(lease_ttl_s=12), make_coord(), make_coord()
    dying.register(D2)
    dying.publish_owner(Owner(2, 1, 0, "d2"))
    dispatcher.register(D1)
    dispatcher.publish_owner(Owner(1, 1, 0, "d1"))
    leadership = await asyncio.wait_for(replica.campaign(R1), 30)
    await replica.write_plan(leadership, Plan(1, ()))
    await asyncio.gather(dying.settled(), dispatcher.settled())
    await asyncio.to_thread(members.backup, tmp_path / "backup")

    await dying.close()
    for shard in (1, 2):
        dispatcher.publish_owner(Owner(shard, 2, 7, "d1"))
    await dispatcher.settled()
    await replica.write_plan(leadership, Plan(5, ()))
    await eventually(lambda: replica.members() == {"d1": D1} and replica.plan() == Plan(5, ()))
    ghosts: list[str] = []

    def look() -> bool:
        ghosts.extend(each for each in replica.members() if each == "d2")
        resets = {"replica": replica.resets, "dispatcher": dispatcher.resets}
        assert resets == {"replica": 1, "dispatcher": 1}, f"{resets}, running: {[m.running for m in members.members]}"
        return True

    members.kill()
    token = members.token if identity == "the same cluster id" else f"{members.token}-{identity}"
    members.restore(tmp_path / "backup", token=token)
    for member in members.members:
        member.launch()
    await eventually(look, 60, what="both saw that the store is another one")
    assert ghosts, "the dead member was alive again"
    await asyncio.wait_for(leadership.lost.wait(), 30)
    again = await asyncio.wait_for(replica.campaign(R1), 60)
    wanted = {1: Owner(1, 2, 7, "d1"), 2: Owner(2, 2, 7, "d1")}
    await eventually(lambda: replica.owners() == wanted, 30, what="the newer terms are published again")
    await eventually(lambda: replica.members() == {"d1": D1}, 60, what="the dead member ends with its lease")
    assert replica.plan() == Plan(1, ()), "the plan is the backup's until the leader writes its own"
    await replica.write_plan(again, Plan(6, ()))
    await eventually(lambda: dispatcher.plan() == Plan(6, ()))


@pytest.mark.usefixtures("own_token")
async def test_three_emptied_members_are_filled_again(members: EtcdCluster, make_coord: MakeCoord) -> None:
    dispatcher, replica = make_coord(), make_coord()
    dispatcher.register(D1)
    for shard in range(64):
        dispatcher.publish_owner(Owner(shard, 3, 0, "d1"))
    leadership = await asyncio.wait_for(replica.campaign(R1), 30)
    await replica.write_plan(leadership, Plan(9, ()))
    await eventually(lambda: len(replica.owners()) == 64 and dispatcher.plan() == Plan(9, ()))
    members.kill()
    members.wipe()
    members.start()
    await asyncio.wait_for(leadership.lost.wait(), 30)
    again = await asyncio.wait_for(replica.campaign(R1), 30)
    await eventually(lambda: dispatcher.resets == replica.resets == 1, 30)
    await eventually(lambda: len(replica.owners()) == 64 and replica.members() == {"d1": D1}, 30)
    assert replica.plan() is None
    await replica.write_plan(again, Plan(1, ()))
    await eventually(lambda: dispatcher.plan() == Plan(1, ()))


async def test_b76_a_compaction_under_watches_at_every_member_loses_nobody(
    members: EtcdCluster, make_client: MakeClient, tasks: Tasks, cluster: str
) -> None:
    """One view begins at each member; one member is frozen meanwhile, so that its view has to go elsewhere."""
    layout = Layout(cluster)
    clients = [make_client(*_starting_at(members, number)) for number in range(3)]
    mirrors = [Mirror(client, layout.prefix, SystemClock(), tasks) for client in clients]
    for mirror in mirrors:
        mirror.start()
    await eventually(lambda: all(mirror.synced for mirror in mirrors), 20)
    frozen = members.followers()[0]
    awake = make_client(*(each.client_url for each in members.members if each is not frozen))
    await _publish(awake, layout, 1)
    await eventually(lambda: all(_terms(mirror, layout) == {1} for mirror in mirrors))
    frozen.freeze()
    for term in range(2, 6):
        await _publish(awake, layout, term)
    await awake.compact((await awake.get(layout.plan)).at.revision)
    await _publish(awake, layout, 6)
    frozen.thaw()
    await eventually(lambda: all(_terms(mirror, layout) == {6} for mirror in mirrors), 40)
    for mirror in mirrors:
        assert mirror.snapshot().generation == 0, "a compaction is no other store"
    await write_through(clients[0], layout.plan)
    await eventually(lambda: all(layout.plan in mirror.snapshot().kvs for mirror in mirrors), 10)


def _starting_at(members: EtcdCluster, number: int) -> tuple[str, ...]:
    return (*members.endpoints[number:], *members.endpoints[:number])


async def _publish(client: EtcdClient, layout: Layout, term: int) -> None:
    """Thirty keys, one revision each."""
    for shard in range(30):
        await client.put(layout.owner(shard), encode(Owner(shard, term, 0, "d1")))


def _terms(mirror: Mirror, layout: Layout) -> set[int]:
    """The terms that a view shows, all thirty shards being there."""
    found = [layout.read(key, kv.value) for key, kv in mirror.snapshot().kvs.items()]
    owners = [each for each in found if isinstance(each, Owner)]
    return {each.term for each in owners} if len(owners) == 30 else set()
