"""The leader carries moves, drains and rounds of evening out through, over a real etcd and database, with dispatchers
that own their shards by SQL: right ends, whoever dies in between, and whoever leads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
from tidewheel.v1 import admin_service_pb2 as pb
from tidewheel.v1.discovery_service_pb2 import WatchDispatchersRequest

from core.clock import SystemClock
from core.config import ControlPlaneSettings
from core.rand import SystemRand
from core.states import MoveCause, MoveState
from core.store.database import Database, DatabaseConfig
from core.wire import internal_pb2
from tests.support.control_plane import SHARDS, ControlPlane, settings_for
from tests.support.played_owner import PlayedOwner
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer
from tools.servers.free_port import free_port

COMPLETED, ROLLED_BACK = MoveState.COMPLETED, MoveState.ROLLED_BACK
# A move takes well under a second here; a leader that is new gives everybody three to be heard.
WITHIN_S = 30.0


class System:
    """One control plane, its dispatchers, and a look at the rows."""

    def __init__(self, plane: ControlPlane, database: Database, eye: asyncpg.Connection) -> None:
        self.plane = plane
        self.database = database
        self.eye = eye
        self.owners: dict[str, PlayedOwner] = {}

    async def join(self, *names: str, **member: Any) -> list[PlayedOwner]:
        """Dispatchers that live and report, and that the control plane has seen."""
        etcd, cluster = self.plane.settings.etcd.endpoints[0], self.plane.settings.cluster.name
        for name in names:
            made = PlayedOwner(etcd, cluster, name, self.database, SHARDS, **member)
            self.owners[name] = await made.join()
            made.report_to(self.plane.address)

        async def seen() -> bool:
            listed = (await self.plane.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
            return set(names) <= {one.dispatcher_id for one in listed if one.alive}

        await eventually(seen, WITHIN_S)
        return [self.owners[name] for name in names]

    async def shared_out(self) -> None:
        """Wait until every shard has an owner that lives, and none is on the move."""

        async def settled() -> bool:
            held = await self.held()
            living = sum(count for name, count in held.items() if self.owners[name].lives)
            return living == SHARDS and not await self.moves("ended_us = 0")

        await eventually(settled, WITHIN_S)

    async def held(self) -> Counter[str]:
        """How many shards each dispatcher owns from now on."""
        return Counter({name: len(await owner.shards()) for name, owner in self.owners.items()})

    async def moves(self, condition: str = "true") -> list[asyncpg.Record]:
        return list(await self.eye.fetch(f"SELECT * FROM shard_moves WHERE {condition} ORDER BY requested_us, shard"))

    async def move(self, shards: Iterable[int], to: str) -> None:
        await self.plane.admin.MoveShards(
            pb.MoveShardsRequest(shards=sorted(shards), dispatcher_id=to, reason="a test")
        )

    async def reaches(self, state: MoveState, *, of: int = 1) -> list[asyncpg.Record]:
        """Wait until so many moves are in that state; they."""

        async def found() -> list[asyncpg.Record]:
            moves = await self.moves(f"state = {int(state)}")
            return moves if len(moves) >= of else []

        return await eventually(found, WITHIN_S, what=f"{of} moves are {state.name}")

    async def assert_tiles(self) -> None:
        """The terms of each shard that are not void cover all time from its beginning, once."""
        for shard in range(SHARDS):
            rows = await self.eye.fetch(
                "SELECT from_bucket, to_bucket FROM shard_terms WHERE shard = $1 AND state <> 3 ORDER BY from_bucket",
                shard,
            )
            assert all(a["to_bucket"] == b["from_bucket"] for a, b in pairwise(rows)), rows


Make = Callable[..., Awaitable[System]]


@pytest.fixture
async def make(database_url: str, isolation: str, etcd: EtcdServer, eye: asyncpg.Connection) -> AsyncIterator[Make]:
    """Makes the system of a test, with settings of its control plane; rounds of evening out are off unless told."""
    async with AsyncExitStack() as stack:
        database = Database(DatabaseConfig(database_url, isolation=isolation), SystemClock(), SystemRand())
        stack.push_async_callback(database.close)

        async def made(**settings: Any) -> System:
            chosen = {"rebalance": False, **settings}
            plane = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, **chosen))
            stack.push_async_callback(plane.close)
            system = System(await plane.serving(), database, eye)
            stack.push_async_callback(_all_leave, system)
            return system

        yield made


async def _all_leave(system: System) -> None:
    for owner in system.owners.values():
        await owner.leave()


@pytest.fixture
async def pair(make: Make) -> System:
    """d1 owns every shard; d2 joined later and owns none."""
    system = await make()
    await system.join("d1")
    await system.shared_out()
    await system.join("d2")
    return system


class TestMoves:
    async def test_a_move_goes_through_all_its_states_and_says_when(self, pair: System) -> None:
        pair.owners["d2"].splits = pair.owners["d2"].finishes = False
        await pair.move([3], "d2")
        (ordered,) = await pair.reaches(MoveState.ORDERED)
        assert (ordered["from_owner"], ordered["from_term"], ordered["boundary"]) == ("d1", 1, 0)
        pair.owners["d2"].splits = True
        (split,) = await pair.reaches(MoveState.SPLIT)
        assert (split["new_term"], split["ended_us"]) == (2, 0)
        assert await pair.held() == {"d1": SHARDS - 1, "d2": 1}
        pair.owners["d2"].finishes = True
        (done,) = await pair.reaches(COMPLETED)
        assert (done["boundary"], done["new_term"], done["error"]) == (split["boundary"], 2, "")
        assert 0 < done["requested_us"] <= done["ordered_us"] <= done["split_us"] <= done["ended_us"]
        first, second = await pair.eye.fetch("SELECT * FROM shard_terms WHERE shard = 3 ORDER BY term")
        assert first["to_bucket"] == second["from_bucket"] == done["boundary"]

    async def test_many_at_once_keep_to_the_budget(self, make: Make) -> None:
        system = await make(moves_at_once=2)
        await system.join("d1")
        await system.shared_out()
        (d2,) = await system.join("d2")
        d2.finishes = False
        await system.move(range(5), "d2")
        await system.reaches(MoveState.SPLIT, of=2)
        assert Counter(move["state"] for move in await system.moves()) == {MoveState.SPLIT: 2, MoveState.PENDING: 3}
        d2.finishes = True
        await system.reaches(COMPLETED, of=5)
        assert await system.held() == {"d1": SHARDS - 5, "d2": 5}

    async def test_a_move_back_at_once_has_to_wait_for_the_end_of_the_first(self, pair: System) -> None:
        await pair.move([3], "d2")
        await pair.reaches(COMPLETED)
        await pair.move([3], "d1")
        await pair.reaches(COMPLETED, of=2)
        assert await pair.held() == {"d1": SHARDS, "d2": 0}
        await pair.assert_tiles()


class TestWhoeverDies:
    async def test_a_target_that_dies_before_the_split_leaves_the_shard_where_it_was(self, pair: System) -> None:
        pair.owners["d2"].splits = False
        await pair.move([3], "d2")
        await pair.reaches(MoveState.ORDERED)
        await pair.owners["d2"].die()
        (ended,) = await pair.reaches(ROLLED_BACK)
        assert ended["error"] == "its target d2 is gone"
        rows = await pair.eye.fetch("SELECT owner, state FROM shard_terms WHERE shard = 3")
        assert [tuple(row) for row in rows] == [("d1", 1)]

    async def test_a_target_that_dies_after_the_split_gives_it_back_under_a_new_term(self, pair: System) -> None:
        pair.owners["d2"].finishes = False
        await pair.move([3], "d2")
        await pair.reaches(MoveState.SPLIT)
        await pair.owners["d2"].die()
        (ended,) = await pair.reaches(ROLLED_BACK)
        assert ended["error"] == "the shard went to d1 under term 3"
        rows = await pair.eye.fetch("SELECT term, owner FROM shard_terms WHERE shard = 3 AND state = 1 ORDER BY term")
        assert {(row["term"], row["owner"]) for row in rows} >= {(3, "d1")}
        await pair.shared_out()
        await pair.assert_tiles()

    async def test_an_owner_that_dies_before_the_split_is_taken_over(self, pair: System) -> None:
        pair.owners["d2"].splits = False
        await pair.move([3], "d2")
        await pair.reaches(MoveState.ORDERED)
        pair.owners["d2"].claims = False
        await pair.owners["d1"].die()
        (ended,) = await pair.reaches(ROLLED_BACK)
        assert ended["error"] == "its owner d1 is gone: the shard is taken over instead"
        pair.owners["d2"].claims = True
        await pair.shared_out()
        assert await pair.held() == {"d1": 0, "d2": SHARDS}
        await pair.assert_tiles()

    async def test_an_owner_that_dies_after_the_split_does_not_stop_it(self, pair: System) -> None:
        pair.owners["d2"].finishes = False
        await pair.move([3], "d2")
        await pair.reaches(MoveState.SPLIT)
        await pair.owners["d1"].die()

        async def taken() -> bool:
            rows = await pair.eye.fetch("SELECT owner FROM shard_terms WHERE shard = 3 AND state = 1")
            return [row["owner"] for row in rows] == ["d2", "d2"]

        await eventually(taken, WITHIN_S, what="the target takes what the owner left")
        pair.owners["d2"].finishes = True
        (ended,) = await pair.reaches(COMPLETED)
        assert ended["new_term"] == 2
        await pair.assert_tiles()

    async def test_when_both_die_somebody_else_gets_both_ranges(self, pair: System) -> None:
        await pair.join("d3")
        pair.owners["d2"].finishes = False
        await pair.move([3], "d2")
        await pair.reaches(MoveState.SPLIT)
        await pair.owners["d1"].die()
        await pair.owners["d2"].die()
        (ended,) = await pair.reaches(ROLLED_BACK)
        assert ended["error"].startswith("the shard went to d3 under term")
        await pair.shared_out()
        assert (await pair.held())["d3"] == SHARDS
        await pair.assert_tiles()


class TestALostSession:
    async def test_who_begins_to_watch_afterwards_is_told_of_an_owner_that_still_reports(self, pair: System) -> None:
        """Nobody watched while it was a member: the replica has to know its address all the same."""
        before = await pair.held()
        pair.owners["d1"].coord.withdraw("d1")
        await pair.owners["d1"].coord.settled()
        await asyncio.sleep(5)  # longer than one that has vanished is told of
        call = pair.plane.discovery.WatchDispatchers(WatchDispatchersRequest())
        told = (await asyncio.wait_for(call.read(), 10)).dispatchers
        call.cancel()
        assert {(each.dispatcher_id, each.address) for each in told} == {
            (name, owner.address) for name, owner in pair.owners.items()
        }
        assert await pair.held() == before


class TestDrains:
    async def test_one_that_ends_is_emptied_by_moves_and_not_by_takeover(self, pair: System) -> None:
        pair.owners["d1"].said = {"draining": True}
        done = await pair.reaches(COMPLETED, of=SHARDS)
        assert {(move["cause"], move["from_owner"], move["to_dispatcher"]) for move in done} == {
            (MoveCause.DRAIN, "d1", "d2")
        }
        assert await pair.held() == {"d1": 0, "d2": SHARDS}
        assert not await pair.eye.fetch("SELECT 1 FROM shard_terms WHERE reason = 'takeover'")
        audited = await pair.eye.fetch("SELECT actor, note FROM audit WHERE action = 'shard.move'")
        assert {row["note"] for row in audited} == {"its dispatcher is drained"}
        assert {row["actor"].partition("-")[0] for row in audited} == {"controlplane"}

    async def test_whoever_joins_after_a_drain_has_its_share_at_once(self, make: Make) -> None:
        """As in a rolling restart: what the drain brought need not stay for a minute where it had to go."""
        system = await make(rebalance=True, rebalance_interval_s=0.3)
        await system.join("d1", "d2")
        await system.shared_out()
        system.owners["d1"].said = {"draining": True}
        await system.reaches(COMPLETED, of=SHARDS // 2)
        await system.owners["d1"].die()
        await system.join("d3")
        await system.reaches(COMPLETED, of=SHARDS // 2 * 2)
        await system.shared_out()
        held = await system.held()
        assert (held["d2"], held["d3"]) == (SHARDS // 2, SHARDS // 2)

    async def test_an_operators_drain_lasts_until_it_is_lifted(self, pair: System) -> None:
        await pair.plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id="d1", reason="rack 4 ends"))
        await pair.reaches(COMPLETED, of=SHARDS)
        await pair.join("d3")
        await pair.move([0], "d3")
        await pair.reaches(COMPLETED, of=SHARDS + 1)
        await pair.owners["d2"].die()
        await pair.shared_out()
        assert await pair.held() == {"d1": 0, "d2": 0, "d3": SHARDS}, "it gets nothing, not even by takeover"
        await pair.plane.admin.UndrainDispatcher(pb.UndrainDispatcherRequest(dispatcher_id="d1", reason="mended"))
        await pair.move([0], "d1")
        await pair.reaches(COMPLETED, of=SHARDS + 2)

    async def test_where_all_are_drained_a_dead_ones_shards_are_taken_over_all_the_same(self, pair: System) -> None:
        for name in ("d1", "d2"):
            await pair.plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id=name, reason="both"))
        await pair.owners["d1"].die()
        await pair.shared_out()
        assert await pair.held() == {"d1": 0, "d2": SHARDS}

    async def test_its_zone_takes_the_shards_while_it_has_room(self, make: Make) -> None:
        system = await make()
        await system.join("e1", "e2", zone="east")
        await system.join("w1", "w2", zone="west")
        await system.shared_out()
        system.owners["e1"].said = {"draining": True}
        moves = await system.reaches(COMPLETED, of=2)
        # Eight shards over three are 2.7 each, and a fifth more 3.2: one fits at home.
        assert Counter(move["to_dispatcher"] for move in moves)["e2"] == 1

    async def test_a_freeze_stops_it_and_its_end_lets_it_go_on(self, pair: System) -> None:
        await pair.plane.admin.FreezeShards(pb.FreezeShardsRequest(shard=5, reason="look closely"))
        pair.owners["d1"].said = {"draining": True}
        await pair.reaches(COMPLETED, of=SHARDS - 1)
        assert await pair.owners["d1"].shards() == {5}
        await pair.plane.admin.UnfreezeShards(pb.UnfreezeShardsRequest(shard=5, reason="seen"))
        await pair.reaches(COMPLETED, of=SHARDS)


class TestEveningOut:
    async def test_b81_whoever_joins_gets_its_share_once_and_then_all_is_quiet(self, make: Make) -> None:
        system = await make(rebalance=True, rebalance_interval_s=0.3)
        await system.join("d1", "d2")
        await system.shared_out()
        assert await system.held() == {"d1": 4, "d2": 4}
        await system.join("d3")
        await system.reaches(COMPLETED, of=2)
        await system.shared_out()
        assert sorted((await system.held()).values()) == [2, 3, 3]
        before = await system.eye.fetchval("SELECT max(term) FROM shard_terms")
        # Several rounds: each looks again, and finds nothing to do.
        for _ in range(5):
            await system.plane.admin.Rebalance(pb.RebalanceRequest(reason="again"))
        moves = await system.moves()
        assert len(moves) == 2
        assert {move["to_dispatcher"] for move in moves} == {"d3"}
        assert await system.eye.fetchval("SELECT max(term) FROM shard_terms") == before

    async def test_reported_loads_decide(self, make: Make) -> None:
        """Four shards of d1 are hot: two of them change places, although both have as many shards."""
        system = await make(rebalance=True, rebalance_interval_s=0.3)
        await system.join("d1", "d2")
        await system.shared_out()
        hot = sorted(await system.owners["d1"].shards())
        for name, fires in (("d1", 19.0), ("d2", 0.0)):
            shards = await system.owners[name].shards()
            system.owners[name].said = {
                "loads": [internal_pb2.ShardLoad(shard=s, term=1, fires_per_second=fires) for s in shards]
            }
        moves = await system.reaches(COMPLETED)
        await system.shared_out()
        assert {move["shard"] for move in moves} <= set(hot)
        assert {(m["cause"], m["to_dispatcher"]) for m in await system.moves()} == {(MoveCause.REBALANCE, "d2")}
        assert len(await system.moves()) == 2
        shown = await system.plane.admin.PlanRebalance(pb.PlanRebalanceRequest())
        assert shown.loads_known

    async def test_rebalancing_keeps_to_its_budget_of_the_minute_over_a_change_of_leader(self, make: Make) -> None:
        system = await make(rebalance=True, rebalance_interval_s=0.3, moves_per_minute=3)
        await system.join("d1")
        await system.shared_out()
        await system.join("d2")
        await system.reaches(COMPLETED, of=3)
        async with AsyncExitStack() as stack:
            await _succeed(system, stack)

            async def asked() -> bool:
                with suppress(grpc.aio.AioRpcError):  # while the new leader has heard of nobody
                    return bool((await system.plane.admin.Rebalance(pb.RebalanceRequest(reason="more"))).moves)
                return False

            # The new leader reads what was ordered; a round that is asked for waits for the minute to pass.
            await eventually(asked, WITHIN_S, what="the new leader has heard of everybody")
            asked_for = {move["shard"] for move in await system.moves("ended_us = 0")}
            (other, *_) = await system.owners["d1"].shards() - asked_for
            await system.move([other], "d2")
            await system.reaches(COMPLETED, of=4)
            waiting = await system.moves("ended_us = 0")
            assert {(move["cause"], move["state"]) for move in waiting} == {(MoveCause.REBALANCE, MoveState.PENDING)}


async def _succeed(system: System, stack: AsyncExitStack) -> None:
    """A second replica leads instead of the first, and is reported to."""
    kept = system.plane.settings.controlplane
    settings = ControlPlaneSettings(
        listen=f"127.0.0.1:{free_port()}",
        rebalance=kept.rebalance,
        rebalance_interval_s=kept.rebalance_interval_s,
        moves_per_minute=kept.moves_per_minute,
        moves_at_once=kept.moves_at_once,
    )
    second = ControlPlane(replace(system.plane.settings, controlplane=settings))
    stack.push_async_callback(second.close)
    await second.serving()
    system.plane.stop.set()
    await system.plane.task

    async def leads() -> bool:
        seen = await second.status()
        return bool(seen.leader == seen.replica)

    await eventually(leads, WITHIN_S)
    for owner in system.owners.values():
        await owner.silence()
        owner.report_to(second.address)
    system.plane = second


class TestTheNextLeader:
    @pytest.mark.parametrize("state", [MoveState.PENDING, MoveState.ORDERED, MoveState.SPLIT])
    async def test_it_goes_on_from_the_rows(self, make: Make, state: MoveState) -> None:
        system = await make(moves_at_once=1)
        await system.join("d1")
        await system.shared_out()
        (d2,) = await system.join("d2")
        d2.splits, d2.finishes = state is not MoveState.ORDERED, False
        await system.move([3, 4] if state is MoveState.PENDING else [3], "d2")
        await system.reaches(state)
        async with AsyncExitStack() as stack:
            await _succeed(system, stack)
            d2.splits = d2.finishes = True
            await system.reaches(COMPLETED, of=len(await system.moves()))
        assert not await system.moves(f"state = {int(ROLLED_BACK)}")
        await system.assert_tiles()

    async def test_b67_five_leaders_one_after_the_other_and_placement_goes_on_under_each(self, pair: System) -> None:
        async with AsyncExitStack() as stack:
            versions = []
            for number in range(5):
                await _succeed(pair, stack)
                here = "d2" if number in await pair.owners["d1"].shards() else "d1"
                await pair.move([number], here)
                await pair.reaches(COMPLETED, of=number + 1)
                plan = pair.owners["d1"].coord.plan()
                assert plan is not None
                versions.append(plan.version)
            assert versions == sorted(set(versions)), "strictly increasing over all leaders"
            await pair.assert_tiles()
