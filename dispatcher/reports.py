"""The report stream to the leader: a sign of life and the load, twice a second.

The leader suspects a dispatcher whose reports stop. The stream follows the leader wherever it is; with no leader there
is nobody to report to, and nothing else depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import grpc

from core.coord.ports import CoordView
from core.keepalive import URGENT_MS, pings
from core.tasks import Wake
from core.wire import internal_pb2 as pb
from core.wire import internal_pb2_grpc as pb_grpc
from dispatcher.loads import Loads, ShardLoad
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

# What each shard costs is told so often.
LOADS_EVERY_S = 1.0
_RECONNECT = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1_000))


def leader_channel(address: str) -> grpc.aio.Channel:
    """A channel to the leader; a leader that froze is noticed within about two seconds."""
    return grpc.aio.insecure_channel(address, options=[*pings(URGENT_MS, URGENT_MS), *_RECONNECT])


class Reports:
    """Reports to whoever leads. `interval_s` is the half second that leader and dispatchers agree on."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        coord: CoordView,
        *,
        interval_s: float,
        draining: Callable[[], bool],
        last_pass_s: Callable[[], float],
        loads: Loads,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._coord = coord
        self._interval_s = interval_s
        self._draining = draining
        self._last_pass_s = last_pass_s
        self._loads = loads
        self._loads_due_s = 0.0
        self._fired_before, self._fired_s = 0, runtime.clock.monotonic_s()
        # There is news that cannot wait for the interval.
        self.hurry = Wake()

    async def run(self) -> None:
        """For ever: find the leader, report until the stream breaks, begin again."""
        changed = Wake()
        self._coord.subscribe(changed)
        while True:
            leader = self._coord.leader()
            if leader is not None:
                await self._report_to(leader.address, changed)
            await changed.wait(self._runtime.clock, self._interval_s)

    async def _report_to(self, address: str, changed: Wake) -> None:
        async with leader_channel(address) as channel:
            call = pb_grpc.LeaderServiceStub(channel).Report(self._reports(address))
            try:
                async for _reply in call:
                    self._memory.wakes.own.set()
            except grpc.aio.AioRpcError as error:
                log.debug("the report stream to %s ended: %s", address, error.code().name)
            finally:
                call.cancel()

    async def _reports(self, address: str) -> AsyncIterator[pb.DispatcherReport]:
        while True:
            leader = self._coord.leader()
            if leader is not None and leader.address != address:
                return
            yield self._report()
            await self.hurry.wait(self._runtime.clock, self._interval_s)

    def _report(self) -> pb.DispatcherReport:
        memory, now_s = self._memory, self._runtime.clock.monotonic_s()
        report = pb.DispatcherReport(
            dispatcher_id=self._runtime.dispatcher_id,
            shards=sorted(memory.holdings.shards),
            fires_per_second=self._fires_per_s(now_s),
            open_runs=len(memory.attempts) + memory.routes.waiting + memory.gates.waiting + len(memory.resting),
            waiting_runs=memory.routes.waiting,
            draining=self._draining(),
            last_pass_age_ms=round((now_s - self._last_pass_s()) * 1000),
        )
        if now_s >= self._loads_due_s:
            self._loads_due_s = now_s + LOADS_EVERY_S - self._interval_s / 2
            report.cpu = self._loads.cpu()
            report.loads.extend(map(_shard_load, self._loads.measure()))
        return report

    def _fires_per_s(self, now_s: float) -> float:
        fired, passed_s = self._memory.fires.total - self._fired_before, now_s - self._fired_s
        self._fired_before, self._fired_s = self._memory.fires.total, now_s
        return fired / max(passed_s, self._interval_s)


def _shard_load(load: ShardLoad) -> pb.ShardLoad:
    return pb.ShardLoad(
        shard=load.shard,
        term=load.term,
        fires_per_second=load.fires_per_s,
        open_runs=load.open_runs,
        waiting_runs=load.waiting_runs,
        watermark_lag_ms=load.watermark_lag_ms,
        hottest=[pb.HotJob(job_id=str(hot.job_id), fires_per_second=hot.fires_per_s) for hot in load.hottest],
    )
