"""A dispatcher that hangs but stays connected loses its shards, and only while others are well; then it joins again.

One system for all of them: each test ends with the patient as a dispatcher among others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tidewheel.v1 import admin_service_pb2

from tests.support.ailing_system import HELD_UP_S, AilingSystem
from tests.support.live_system import Size
from tests.support.polling import eventually
from tests.support.steady_load import SteadyLoad
from tools.cli.api import open_api
from tools.servers.homes import temporary_home

pytestmark = pytest.mark.asyncio(loop_scope="module")

# About three times what it takes to find an ailment, to order the takeover, and to take up the shards.
LOST_WITHIN_S = 25.0
BACK_WITHIN_S = 60.0
# Later than the others by more than chance, and by less than what makes one that does not hear sick alone.
HEARS_LATE_S = 3.0
# A takeover begins some four seconds after the fault; a busy machine may take a while longer over it.
LATE_LIMIT_S = 20.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live() -> AsyncIterator[AilingSystem]:
    """Two control planes, three dispatchers of which the first is the patient, two workers."""
    with temporary_home() as home:
        async with AilingSystem(home, size=Size(dispatchers=3)) as system:
            yield system


async def _has_shards(live: AilingSystem) -> None:
    await eventually(lambda: live.owned_shards(live.patient), within_s=BACK_WITHIN_S, what="the patient has shards")


async def _loses_its_shards(live: AilingSystem) -> None:
    async def lost() -> bool:
        return not await live.owned_shards(live.patient)

    await eventually(lost, within_s=LOST_WITHIN_S, what="the patient loses its shards")


def _said(live: AilingSystem, reason: str) -> bool:
    """Whether a leader gave `reason` for taking the patient's shards."""
    who = live.owner_id(live.patient)
    return any(f"{who} is to lose its shards: {reason}" in line for line in _told_to_lose(live))


def _told_to_lose(live: AilingSystem) -> list[str]:
    """What the leaders' logs say of who had to lose its shards, and why."""
    logs = [plane.child.log.read_text() for plane in live.control_planes]
    return [line for log in logs for line in log.splitlines() if "is to lose its shards" in line]


async def _judge(live: AilingSystem, load: SteadyLoad) -> None:
    await load.judge(within_s=90)
    assert load.late_s()[-1] < LATE_LIMIT_S


async def test_cut_off_from_the_database_alone(live: AilingSystem) -> None:
    await _has_shards(live)
    load = await SteadyLoad(live, 20).begin()
    await asyncio.sleep(2)
    live.database_proxy.stall()
    try:
        await _loses_its_shards(live)
    finally:
        live.database_proxy.heal()
    assert _said(live, "database unreachable")
    await _judge(live, load)
    await _has_shards(live)


async def test_with_its_event_loop_blocked(live: AilingSystem) -> None:
    await _has_shards(live)
    refused = await live.metric(live.patient, "tidewheel_refused_writes_total")
    load = await SteadyLoad(live, 20).begin()
    await asyncio.sleep(2)
    live.block_event_loop()
    await _loses_its_shards(live)
    assert _said(live, "its last report came")
    await _judge(live, load)

    async def was_refused() -> bool:
        return await live.metric(live.patient, "tidewheel_refused_writes_total") > refused

    await eventually(was_refused, within_s=3 * HELD_UP_S, what="what it wrote on waking is refused")
    await _has_shards(live)


async def test_with_its_due_loop_standing_still(live: AilingSystem) -> None:
    await _has_shards(live)
    load = await SteadyLoad(live, 20).begin()
    await asyncio.sleep(2)
    live.hold_due_loop()
    await _loses_its_shards(live)
    assert _said(live, "due loop stands still")
    await _judge(live, load)
    await _has_shards(live)


async def test_out_of_reach_of_the_workers(live: AilingSystem) -> None:
    await _has_shards(live)
    load = await SteadyLoad(live, 20).begin()
    await asyncio.sleep(2)
    proxy = live.worker_proxy
    await proxy.refuse()
    proxy.cut()
    try:
        await _loses_its_shards(live)
        assert _said(live, "workers unreachable")
        await load.judge(within_s=90)
    finally:
        await proxy.start()
    await _has_shards(live)


async def test_frozen_and_back_it_is_fenced_and_joins_again(live: AilingSystem) -> None:
    await _has_shards(live)
    refused = await live.metric(live.patient, "tidewheel_refused_writes_total")
    load = await SteadyLoad(live, 20).begin()
    await asyncio.sleep(2)
    process = live.patient.child
    process.freeze()
    try:
        await _loses_its_shards(live)
        await asyncio.sleep(HELD_UP_S / 2)  # longer than a lease in etcd: it was no member any more
    finally:
        process.thaw()

    async def was_refused() -> bool:
        return await live.metric(live.patient, "tidewheel_refused_writes_total") > refused

    await eventually(was_refused, within_s=3 * HELD_UP_S, what="its late writes are refused")
    await _judge(live, load)
    await _has_shards(live)

    async def knows_what_it_holds() -> bool:
        return await live.metric(live.patient, "tidewheel_owned_shards") == len(await live.owned_shards(live.patient))

    await eventually(knows_what_it_holds, within_s=20, what="it holds what SQL says and nothing else")


async def test_without_its_etcd_session_it_keeps_its_shards_and_its_workers(live: AilingSystem) -> None:
    await _has_shards(live)
    await eventually(lambda: _has_workers(live, 2), within_s=30, what="the workers have found it again")
    async with _nothing_moves(live):
        await _outlives_its_session(live)


async def _outlives_its_session(live: AilingSystem) -> None:
    before = await live.owned_shards(live.patient)
    load = await SteadyLoad(live, 30).begin()
    await asyncio.sleep(2)
    live.etcd_proxy.stall()
    try:
        who = live.owner_id(live.patient)
        await eventually(lambda: _is_no_member(live, who), within_s=30, what="its lease in etcd ends")
        # Longer than discovery takes to tell workers of one that vanished, and a leader to miss its workers.
        await asyncio.sleep(12)
        assert await live.owned_shards(live.patient) == before
        live.start_worker("worker-3")
        await eventually(lambda: _has_workers(live, 3), within_s=30, what="a new worker finds it as well")
    finally:
        live.etcd_proxy.heal()
    await _judge(live, load)
    assert load.late_s()[-1] < LATE_LIMIT_S / 3, "nobody had to take anything over"


@contextlib.asynccontextmanager
async def _nothing_moves(live: AilingSystem) -> AsyncIterator[None]:
    """No planned move: what the last test left to be placed has come to rest, and only takeovers change an owner."""
    async with open_api(live.fleet.addresses, 5.0) as api:
        await api.admin("FreezeShards", admin_service_pb2.FreezeShardsRequest(reason="a test"))
        try:
            await eventually(lambda: _is_at_rest(live), within_s=30, what="no move is under way")
            yield
        finally:
            await api.admin("UnfreezeShards", admin_service_pb2.UnfreezeShardsRequest(reason="over"))


async def _is_at_rest(live: AilingSystem) -> bool:
    return not await live.rows("SELECT 1 FROM shard_moves WHERE ended_us = 0")


async def _has_workers(live: AilingSystem, count: int) -> bool:
    connected = await live.metric(live.patient, "tidewheel_connected_workers")
    assert connected == count, f"{connected:g} workers are connected"
    return True


async def _is_no_member(live: AilingSystem, who: str) -> bool:
    async with open_api(live.fleet.addresses, 5.0) as api:
        answer = await api.admin("ListDispatchers", admin_service_pb2.ListDispatchersRequest())
    return who not in {each.dispatcher_id for each in answer.dispatchers if each.alive}


async def test_what_ails_everybody_moves_nothing(live: AilingSystem) -> None:
    """Not for whoever hears last that the database is back either: here that is the patient."""
    await _has_shards(live)
    async with _nothing_moves(live):
        await _outlives_its_database(live)


async def _outlives_its_database(live: AilingSystem) -> None:
    database = live.backing.database
    assert database is not None
    taken = "SELECT shard, term FROM shard_term_events WHERE reason = 'takeover' ORDER BY shard, term, event"
    before, told = await live.rows(taken), set(_told_to_lose(live))
    database.freeze()
    live.database_proxy.stall()
    try:
        await asyncio.sleep(HELD_UP_S)
        database.thaw()
        await asyncio.sleep(HEARS_LATE_S)
    finally:
        database.thaw()
        live.database_proxy.heal()
    load = await SteadyLoad(live, 6).begin()
    await load.judge(within_s=90)
    news = [line for line in _told_to_lose(live) if line not in told]
    assert await live.rows(taken) == before, f"nobody was taken for sick alone: {news}"
    assert not news
