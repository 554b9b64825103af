"""The leader evens loads out by rounds of moves, and the next leader goes on from the rows; over a real etcd and
database, with dispatchers that own their shards by SQL.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import grpc
import pytest
from tidewheel.v1 import admin_service_pb2 as pb

from controlplane import moves as account_of_moves
from core.clock import US_PER_S
from core.config import ControlPlaneSettings
from core.states import MoveCause, MoveState
from core.wire import internal_pb2
from tests.support.control_plane import ControlPlane
from tests.support.led_system import COMPLETED, ROLLED_BACK, TOGETHER, WITHIN_S, Make, System
from tests.support.polling import eventually
from tools.servers.free_port import free_port


class TestEveningOut:
    async def test_b81_whoever_joins_gets_its_share_once_and_then_all_is_quiet(self, make: Make) -> None:
        system = await make(rebalance=True, rebalance_interval_s=0.3, **TOGETHER)
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
        system = await make(rebalance=True, rebalance_interval_s=0.3, **TOGETHER)
        await system.join("d1", "d2")
        await system.shared_out()
        hot = sorted(await system.owners["d1"].shards())
        for name, fires in (("d1", 19.0), ("d2", 0.0)):
            shards = await system.owners[name].shards()
            system.owners[name].said = {
                "loads": [internal_pb2.ShardLoad(shard=s, term=1, fires_per_second=fires) for s in shards]
            }
        moves = await system.reaches(COMPLETED, of=2)
        await system.shared_out()
        assert {move["shard"] for move in moves} <= set(hot)
        assert {(m["cause"], m["to_dispatcher"]) for m in await system.moves()} == {(MoveCause.REBALANCE, "d2")}
        assert len(await system.moves()) == 2
        shown = await system.plane.admin.PlanRebalance(pb.PlanRebalanceRequest())
        assert shown.loads_known

    async def test_rebalancing_keeps_to_its_budget_of_the_minute_over_a_change_of_leader(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(account_of_moves, "_MINUTE_US", 600 * US_PER_S)  # one that does not pass meanwhile
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
