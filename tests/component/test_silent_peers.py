"""Peers that freeze: their connections stay open and say nothing, and are ended all the same, and soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tidewheel.channels import stream_channel

from core.keepalive import accepts_pings, pings
from core.wire import internal_pb2, internal_pb2_grpc
from dispatcher.reports import leader_channel
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy

# A ping every second, an answer within another: about two seconds are expected. Without them it is minutes.
NOTICED_WITHIN_S = 20.0


class Listener(internal_pb2_grpc.LeaderServiceServicer):
    """A leader that answers the first report, and sees when a stream ends."""

    def __init__(self) -> None:
        self.open = 0

    async def Report(
        self, request_iterator: AsyncIterator[internal_pb2.DispatcherReport], context: Any
    ) -> AsyncIterator[internal_pb2.LeaderReply]:
        self.open += 1
        try:
            yield internal_pb2.LeaderReply()
            async for _ in request_iterator:
                pass
        finally:
            self.open -= 1


@asynccontextmanager
async def listening(*options: tuple[str, int]) -> AsyncIterator[tuple[Listener, TcpProxy]]:
    """A leader that listens, and the way to it."""
    listener = Listener()
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), *accepts_pings(), *options))
    internal_pb2_grpc.add_LeaderServiceServicer_to_server(listener, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with TcpProxy("127.0.0.1", port) as proxy:
            yield listener, proxy
    finally:
        await server.stop(None)


async def reports(every_s: float) -> AsyncIterator[internal_pb2.DispatcherReport]:
    while True:
        yield internal_pb2.DispatcherReport(dispatcher_id="d1")
        await asyncio.sleep(every_s)


async def until_it_ends(call: Any) -> None:
    """Read a stream until it fails; one that ends well fails the test."""
    with pytest.raises(grpc.aio.AioRpcError):
        await read_all(call)


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize("report_every_s", [0.5, 3600.0], ids=["reporting", "silent"])
async def test_a_dispatcher_notices_a_frozen_leader(report_every_s: float) -> None:
    async with listening() as (_, proxy), leader_channel(proxy.endpoint) as channel:
        call = internal_pb2_grpc.LeaderServiceStub(channel).Report(reports(report_every_s))
        assert await call.read() is not grpc.aio.EOF
        proxy.stall()
        await asyncio.wait_for(until_it_ends(call), NOTICED_WITHIN_S)


async def test_b84_a_leader_minds_no_ping_on_a_stream_that_says_nothing() -> None:
    """For longer than it takes until the third ping that comes too early ends a connection."""
    for last in (False, False, True):
        async with listening() as (listener, proxy), leader_channel(proxy.endpoint) as channel:
            call = internal_pb2_grpc.LeaderServiceStub(channel).Report(reports(3600.0))
            assert await call.read() is not grpc.aio.EOF
            ended = asyncio.create_task(read_all(call))
            await asyncio.wait({ended}, timeout=6)
            if not ended.done():
                assert (listener.open, proxy.connections_seen) == (1, 1)
                ended.cancel()
                call.cancel()
                await asyncio.gather(ended, return_exceptions=True)
                return
            said = str(ended.exception())
        assert "ping timeout" in said.lower(), said
        assert not last, "three times it was this machine that answered no ping in time"


async def test_a_server_notices_a_frozen_client() -> None:
    async with (
        listening(*pings(1_000, 1_000)) as (listener, proxy),
        grpc.aio.insecure_channel(proxy.endpoint) as channel,
    ):
        call = internal_pb2_grpc.LeaderServiceStub(channel).Report(reports(3600.0))
        assert await call.read() is not grpc.aio.EOF
        proxy.stall()
        await eventually(lambda: listener.open == 0, NOTICED_WITHIN_S)
        call.cancel()


async def test_a_worker_notices_a_frozen_dispatcher() -> None:
    """With the SDK's own channel, at a quicker pace than its default."""
    quick = {"ping_every_s": 1.0, "answer_within_s": 1.0}
    async with listening() as (_, proxy), stream_channel(proxy.endpoint, **quick) as channel:
        call = internal_pb2_grpc.LeaderServiceStub(channel).Report(reports(3600.0))
        assert await call.read() is not grpc.aio.EOF
        proxy.stall()
        await asyncio.wait_for(until_it_ends(call), NOTICED_WITHIN_S)
