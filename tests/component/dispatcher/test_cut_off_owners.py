"""An owner that alone cannot reach the database: its workers learn from it where their runs have gone, and go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidewheel.v1 import worker_service_pb2 as pb

from core.states import RunState
from tests.support.dispatcher_room import LASTING, SHARDS, Room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker
from tests.support.tcp_proxy import TcpProxy
from tools.servers.postgres import PostgresServer


@asynccontextmanager
async def cut_off_in_the_middle_of_a_run(
    room: Room, postgres: PostgresServer
) -> AsyncIterator[tuple[ScriptedWorker, ScriptedWorker, pb.AttemptRef]]:
    """A run is under way at the owner, which then loses the database; somebody else takes all over.

    Gives the worker's streams to either dispatcher and the attempt.
    """
    async with TcpProxy("127.0.0.1", postgres.port) as proxy:
        through = room.url.replace(f":{postgres.port}/", f":{proxy.port}/")
        cut_off = await room.owner("cut-off", url=through, **LASTING)
        heir = await room.dispatcher("heir", **LASTING)
        async with ScriptedWorker(cut_off.address) as here, ScriptedWorker(heir.address) as there:
            await here.grant(1)
            run_id = await room.trigger(await room.job())
            given = await here.assignment(run_id=str(run_id))
            proxy.stall()
            try:
                await room.order(dict.fromkeys(range(SHARDS), heir), seize=True)
                await heir.holds(set(range(SHARDS)))
                await eventually(lambda: _published(room, heir), what="etcd names the heir")
                yield here, there, given.ref
                run = await room.becomes(run_id, RunState.SUCCEEDED)
                assert run["attempt"] == 1, "no attempt was lost"
            finally:
                proxy.heal()
            await room.check(here, there)


def _published(room: Room, heir: RunningDispatcher) -> bool:
    return {owner.dispatcher_id for owner in room.leader.owners().values()} == {heir.name}


async def test_a_heartbeat_there_is_redirected_to_the_new_owner(room: Room, postgres: PostgresServer) -> None:
    async with cut_off_in_the_middle_of_a_run(room, postgres) as (here, there, ref):

        async def redirected() -> bool:
            await here.heartbeat(ref)
            told = [item for item in here.heartbeat_exceptions if item.verdict == pb.VERDICT_REDIRECT]
            assert told, here.heartbeat_exceptions
            assert {item.run_id for item in told} == {ref.run_id}
            return True

        # Until the term is no longer proven the heartbeat is acknowledged, which the heir allows for.
        await eventually(redirected, within_s=10, what="the heartbeat is redirected")
        await there.succeed(ref)
        assert await there.verdict(ref) == pb.VERDICT_ACCEPTED


async def test_a_result_there_is_redirected_to_the_new_owner(room: Room, postgres: PostgresServer) -> None:
    async with cut_off_in_the_middle_of_a_run(room, postgres) as (here, there, ref):
        await here.succeed(ref)
        told = await here.acknowledgement(ref)
        assert told.verdict == pb.VERDICT_REDIRECT
        await there.succeed(ref)
        assert await there.verdict(ref) == pb.VERDICT_ACCEPTED
