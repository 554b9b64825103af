"""The leader carries moves, drains and rounds of evening out through, over a real etcd and database, with dispatchers
that own their shards by SQL: right ends, whoever dies in between, and whoever leads.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tidewheel.v1 import admin_service_pb2 as pb
from tidewheel.v1.discovery_service_pb2 import WatchDispatchersRequest

from core.states import MoveCause, MoveState
from tests.support.control_plane import SHARDS
from tests.support.led_system import COMPLETED, ROLLED_BACK, TOGETHER, WITHIN_S, Make, System
from tests.support.polling import eventually


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
        told = (await asyncio.wait_for(call.read(), WITHIN_S)).dispatchers
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
        system = await make(rebalance=True, rebalance_interval_s=0.3, **TOGETHER)
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
        system = await make(**TOGETHER)
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
