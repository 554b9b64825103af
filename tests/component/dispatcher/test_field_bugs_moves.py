"""Field bugs of failover and rebalancing, played with live moves: each is named after its case."""

from __future__ import annotations

from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.states import RunState
from tests.support.dispatcher_room import SHARDS, Room
from tests.support.moves import EVERY, belongs_to, ordered
from tests.support.scripted_worker import ScriptedWorker, success

# Legs to and fro; with four shards in each, more than the fifty moves of the case.
LEGS = 13


async def test_b69_of_fifty_live_moves_none_leaves_two_owners_executing(room: Room) -> None:
    """B69: a take-over while a run was in progress, or a one-off pending, left both nodes executing it."""
    owners = [await room.owner("first"), await room.dispatcher("second")]
    holding = [await room.job(handler="hold", shard=shard) for shard in EVERY]
    held: list[UUID] = []
    async with (
        ScriptedWorker(owners[0].address, "holder", ["hold"], 200) as hold_0,
        ScriptedWorker(owners[1].address, "holder", ["hold"], 200) as hold_1,
        ScriptedWorker(owners[0].address, "worker", work=success, slots=200) as work_0,
        ScriptedWorker(owners[1].address, "worker", work=success, slots=200) as work_1,
    ):
        holders, workers = [hold_0, hold_1], [work_0, work_1]
        for each in (*holders, *workers):
            await each.grant(200)
        for leg in range(LEGS):
            here, there = leg % 2, 1 - leg % 2
            in_progress = [await room.trigger(job_id) for job_id in holding]
            given = [await holders[here].assignment(run_id=str(run_id)) for run_id in in_progress]
            await ordered(room, owners[there])
            for shard in EVERY:
                await room.once(0.2, shard=shard)
            await belongs_to(room, owners[there])
            for one in given:
                await holders[there].succeed(one.ref, b"after the move")
            for one in given:
                assert await holders[there].verdict(one.ref) == pb.VERDICT_ACCEPTED
            held += in_progress
        assert len(held) == LEGS * SHARDS > 50
        for run_id in held:
            run = await room.becomes(run_id, RunState.SUCCEEDED)
            assert (run["attempt"], run["result"]) == (1, b"after the move")
        for job_id in room.expected:
            await room.all_become(job_id, [RunState.SUCCEEDED])
        starts = [start.run_id for each in (*holders, *workers) for start in each.starts]
        assert len(starts) == len(set(starts)) == 2 * LEGS * SHARDS, "each run was started once"
        await room.check(*holders, *workers)
