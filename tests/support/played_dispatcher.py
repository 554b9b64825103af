"""Plays a dispatcher towards etcd, the leader and the API's hints; one that only lives, and one that owns shards."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from core.clock import SystemClock
from core.coord.config import EtcdConfig, SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.layout import Member
from core.rand import SystemRand
from core.wire import internal_pb2, internal_pb2_grpc


class Dispatcher:
    """Plays a dispatcher towards etcd, the leader and the API's hints; it claims nothing."""

    def __init__(self, etcd: str, cluster: str, dispatcher_id: str, **member: Any) -> None:
        self._member = member
        self.dispatcher_id = dispatcher_id
        self.coord = EtcdCoord(EtcdConfig((etcd,)), SessionConfig(), cluster, SystemClock(), SystemRand())
        self.hints: list[internal_pb2.HintRequest] = []
        self.server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self.reporting: asyncio.Task[None] | None = None
        # Beside what every report says.
        self.said: dict[str, Any] = {}

    async def join(self) -> Dispatcher:
        internal_pb2_grpc.add_DispatcherServiceServicer_to_server(_HintSink(self.hints), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        await self.server.start()
        self.coord.start()
        self.coord.register(Member(self.dispatcher_id, self.address, "", 1, **self._member))
        await self.coord.ready()
        await self.coord.settled()
        return self

    def report_to(self, address: str, *, draining: bool = False) -> None:
        """Report twice a second, until `silence`."""
        self.reporting = asyncio.ensure_future(self._report(address, draining))

    async def silence(self) -> None:
        if self.reporting is not None:
            self.reporting.cancel()
            await asyncio.gather(self.reporting, return_exceptions=True)

    async def _report(self, address: str, draining: bool) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = internal_pb2_grpc.LeaderServiceStub(channel).Report()
            while True:
                await call.write(
                    internal_pb2.DispatcherReport(
                        dispatcher_id=self.dispatcher_id,
                        **{"open_runs": 3, "fires_per_second": 1.5, "draining": draining, **self.said},
                    )
                )
                await asyncio.sleep(0.2)

    async def leave(self) -> None:
        await self.silence()
        await self.coord.close()
        await self.server.stop(0)


class _HintSink(internal_pb2_grpc.DispatcherServiceServicer):
    def __init__(self, hints: list[internal_pb2.HintRequest]) -> None:
        self._hints = hints

    async def Hint(self, request: internal_pb2.HintRequest, context: Any) -> internal_pb2.HintReply:  # type: ignore[override]
        self._hints.append(request)
        return internal_pb2.HintReply()
