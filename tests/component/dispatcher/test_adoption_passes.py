"""Two terms of one owner adopt at the same time: what is left before a boundary was taken over, and is drained."""

from __future__ import annotations

import asyncio
from typing import Any

from core.states import RunState
from tests.support.dispatcher_room import Room
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker


async def test_no_run_comes_home_to_a_term_that_is_being_left(room: Room) -> None:
    owner = await room.owner("owner")
    async with ScriptedWorker(owner.address) as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job(shard=0))
        given = await worker.assignment()
        boundary = room.scale.bucket_of(room.clock.now_us()) + 1_000
        async with room.eye.transaction():
            await room.eye.execute("UPDATE shard_terms SET to_bucket = $1 WHERE shard = 0", boundary)
            await room.eye.execute(
                "INSERT INTO shard_terms SELECT 0, 2, $1, $2, owner, op_id, 1, opened_us, 'move' FROM shard_terms"
                " WHERE shard = 0",
                *(boundary, 2**62),
            )
        holdings, adoption = owner.parts.memory.holdings, owner.parts.loops.ownership._adoption
        await eventually(lambda: holdings.get((0, 2)) is not None and holdings.get((0, 2)).whole)  # type: ignore[union-attr]
        before, after = holdings.get((0, 1)), holdings.get((0, 2))
        assert before is not None
        assert after is not None
        # As after the death of an owner before both: the run is at home nowhere that is open.
        await room.eye.execute("UPDATE runs SET home_term = 0 WHERE run_id = $1", run_id)
        found, go_on, rehome = asyncio.Event(), asyncio.Event(), adoption._rehome

        async def slowly(chunk: Any, held: Any) -> Any:
            if held is after:
                found.set()
                await go_on.wait()
            return await rehome(chunk, held)

        adoption._rehome = slowly  # type: ignore[method-assign]
        for_after = asyncio.create_task(adoption.adopt(after))
        await found.wait()
        before.acting, before.leaving = False, True
        for_before = asyncio.create_task(adoption.adopt(before))
        await asyncio.sleep(0.3)
        go_on.set()
        assert [await for_after, await for_before] == [1, 0]
        assert (await room.run(run_id))["home_term"] == 2
        await worker.succeed(given.ref)
        await room.becomes(run_id, RunState.SUCCEEDED)
