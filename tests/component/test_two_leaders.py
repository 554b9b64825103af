"""Two leaders that both believe in themselves, over one etcd and one database: one plan, each move once.

The older one has lost its election key and goes on all the same, with reports from everybody, for as long as the test
lasts: worse than any pause or partition would make it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from controlplane.leader import Duties, Leader
from controlplane.membership import Load
from controlplane.moves import MoveAccount
from controlplane.placement_store import PlacementStore
from controlplane.rebalancer import Rebalancer
from controlplane.seams import Silent
from controlplane.sickness import WELL
from core.clock import SystemClock
from core.config import ControlPlaneSettings
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig, SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.faults import LeadershipLost
from core.coord.layout import LeaderInfo, Plan
from core.coord.ports import Leadership
from core.failpoints import Failpoints
from core.rand import SystemRand
from core.states import MoveCause, MoveState
from core.store.cluster import found_cluster
from core.store.database import Database, DatabaseConfig
from core.store.moves import Moves
from core.store.placement_rules import PlacementRules
from core.store.terms import Terms
from tests.support.control_plane import SHARDS
from tests.support.played_owner import PlayedOwner
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer

WITHIN_S = 60.0
# Who joins within two seconds of each other is placed together, on a busy machine too.
SETTINGS = ControlPlaneSettings(rebalance_interval_s=0.3, min_residency_s=0.0, join_settle_s=2.0)


class Unshaken:
    """A leadership that nothing takes away from whoever holds it."""

    valid = True

    def __init__(self, term_revision: int) -> None:
        self.term_revision = term_revision
        self.lost = asyncio.Event()


class Believer:
    """A coordination port that hands the real leadership to etcd, whatever its user believes in; it notes plans."""

    def __init__(self, coord: EtcdCoord, leadership: Leadership) -> None:
        self._coord = coord
        self._leadership = leadership
        self.written: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coord, name)

    async def write_plan(self, leadership: Leadership, plan: Plan) -> None:
        await self._coord.write_plan(self._leadership, plan)
        self.written.append(plan.version)


class Replica:
    """One leader with its ports, its lease and its duties."""

    def __init__(self, name: str, etcd: EtcdServer, cluster: str, database: Database) -> None:
        clock, rand = SystemClock(), SystemRand()
        self.name = name
        self.coord = EtcdCoord(EtcdConfig((etcd.endpoint,)), SessionConfig(), cluster, clock, rand)
        self.coord.start()
        self.store = PlacementStore(Terms(database), Moves(database, clock), PlacementRules(database, clock))
        self.account = MoveAccount(self.store.moves, SETTINGS, clock, Silent(), Failpoints())
        self.rebalancer = Rebalancer(self.store.moves, SETTINGS, clock, rand, name)
        self.duties = Duties(list(range(SHARDS)), self.store, self.account, self.rebalancer)

    async def lead(self, stack: AsyncExitStack) -> None:
        """Win the election, and never doubt it from then on."""
        self.leadership: Any = await asyncio.wait_for(
            self.coord.campaign(LeaderInfo(self.name, "127.0.0.1:1")), WITHIN_S
        )
        self.port: Any = Believer(self.coord, self.leadership)
        self.leader = Leader(self.port, self.duties, SETTINGS, SystemClock(), Silent())
        leading = asyncio.ensure_future(self.leader.lead(Unshaken(self.leadership.term_revision)))
        stack.push_async_callback(_ended, leading)

    def hear(self, owner: PlayedOwner) -> None:
        """A report of this dispatcher reaches the replica."""
        membership = self.leader.seat.membership
        if membership is not None:
            draining = bool(owner.said.get("draining"))
            membership.report(owner.dispatcher_id, Load(1.0, 0, 0), WELL, draining=draining)


async def _ended(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Both:
    """The two replicas, dispatchers that both hear of, and the rows."""

    def __init__(self, old: Replica, new: Replica, database: Database, etcd: EtcdServer, cluster: str) -> None:
        self.old, self.new = old, new
        self.database = database
        self.owners: list[PlayedOwner] = []
        self._etcd = etcd
        self._cluster = cluster

    async def join(self, *names: str) -> None:
        made = [PlayedOwner(self._etcd.endpoint, self._cluster, name, self.database, SHARDS) for name in names]
        self.owners += await asyncio.gather(*(owner.join() for owner in made))

    async def report(self) -> None:
        """For ever: everybody reports to whoever leads, or believes to."""
        while True:
            for replica in (self.old, self.new):
                for owner in self.owners:
                    if owner.lives and hasattr(replica, "leader"):
                        replica.hear(owner)
            await asyncio.sleep(0.1)

    async def held(self) -> list[int]:
        """How many shards each dispatcher owns, in their order."""
        return [len(await owner.shards()) for owner in self.owners]


@pytest.fixture
async def both(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[Both]:
    """d1 and d2 share the shards under the old leader; then the new one leads, and the old one does not see it."""
    clock, rand, cluster = SystemClock(), SystemRand(), uuid4().hex
    async with AsyncExitStack() as stack:
        database = Database(DatabaseConfig(database_url, isolation=isolation), clock, rand)
        stack.push_async_callback(database.close)
        await found_cluster(
            database, cluster_id=rand.uuid(), shard_count=SHARDS, bucket_width_ms=5_000, now_us=clock.now_us()
        )
        old, new = (Replica(name, etcd, cluster, database) for name in ("old", "new"))
        for replica in (old, new):
            stack.push_async_callback(replica.coord.close)
        made = Both(old, new, database, etcd, cluster)
        stack.push_async_callback(_all_leave, made)
        reporting = asyncio.ensure_future(made.report())
        stack.push_async_callback(_ended, reporting)
        await old.lead(stack)
        await made.join("d1", "d2")
        await eventually(_held(made, [4, 4]), WITHIN_S, what="the first leader shared the shards out")
        client = EtcdClient(EtcdConfig((etcd.endpoint,)), clock, rand)
        stack.push_async_callback(client.close)
        await client.revoke(old.leadership.held.lease)
        await new.lead(stack)
        yield made


async def _all_leave(both: Both) -> None:
    for owner in both.owners:
        await owner.leave()


def _held(both: Both, wanted: list[int]) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        seen = await both.held()
        assert sorted(seen) == sorted(wanted), seen
        return True

    return is_so


async def _moves(eye: asyncpg.Connection) -> list[asyncpg.Record]:
    return list(await eye.fetch("SELECT * FROM shard_moves ORDER BY requested_us, shard"))


async def _all_completed(eye: asyncpg.Connection, count: int) -> list[asyncpg.Record]:
    async def are() -> bool:
        return Counter(move["state"] for move in await _moves(eye)) == {MoveState.COMPLETED: count}

    await eventually(are, WITHIN_S, what=f"{count} moves, and all of them are completed")
    return await _moves(eye)


async def test_a_newcomer_gets_its_share_once_although_both_hand_it_out(both: Both, eye: asyncpg.Connection) -> None:
    await both.join("d3")
    await eventually(_held(both, [3, 3, 2]), WITHIN_S)
    moves = await _all_completed(eye, 2)
    assert {(move["cause"], move["to_dispatcher"]) for move in moves} == {(MoveCause.REBALANCE, "d3")}
    await _one_plan(both)


async def test_a_drain_moves_each_shard_once_although_both_see_to_it(both: Both, eye: asyncpg.Connection) -> None:
    both.owners[0].said = {"draining": True}
    await eventually(_held(both, [0, 8]), WITHIN_S)
    moves = await _all_completed(eye, 4)
    assert len({move["shard"] for move in moves}) == 4
    await _one_plan(both)


async def test_of_two_takeovers_of_a_shard_one_is_carried_out(both: Both, eye: asyncpg.Connection) -> None:
    await both.owners[0].die()
    await eventually(_held(both, [0, 8]), WITHIN_S)
    taken = await eye.fetch("SELECT shard, count(*) FROM shard_terms WHERE reason = 'takeover' GROUP BY shard")
    assert {row["count"] for row in taken} == {1}
    assert len(taken) == 4
    await _one_plan(both)


async def test_what_an_old_leader_asks_for_from_an_old_picture_comes_to_nothing(
    both: Both, eye: asyncpg.Connection
) -> None:
    """It stood still between its look and its wish, and the shard has moved meanwhile."""
    stale = await eventually(lambda: both.old.leader.seat.picture)
    both.owners[0].said = {"draining": True}
    await eventually(_held(both, [0, 8]), WITHIN_S)
    await _all_completed(eye, 4)
    leaving = replace(stale.roster, leaving=frozenset({"d1"}), eligible=frozenset({"d2"}), keepers=frozenset({"d2"}))
    asked = await both.old.rebalancer.ask(replace(stale, roster=leaving), 60)
    assert len(asked.moves) == 4, "it wrote its wishes down"

    async def refused() -> bool:
        ends = Counter(move["state"] for move in await _moves(eye))
        return ends == {MoveState.COMPLETED: 4, MoveState.ROLLED_BACK: 4}

    await eventually(refused, WITHIN_S)
    assert all(
        move["error"].startswith("the shard went to d2 under term")
        for move in await _moves(eye)
        if move["state"] == MoveState.ROLLED_BACK
    )
    assert await both.held() == [0, 8]


async def _one_plan(both: Both) -> None:
    """Every plan since the new leader's first is its own; whatever the old one writes is refused."""
    old, new = both.old.port, both.new.port
    with pytest.raises(LeadershipLost):
        await old.write_plan(both.old.leadership, Plan(1 << 60, ()))
    assert max(old.written) < min(new.written)
    assert new.written == sorted(set(new.written))

    async def seen() -> bool:
        known = both.owners[-1].coord.plan()
        return known is not None and known.version == new.written[-1]

    await eventually(seen)
