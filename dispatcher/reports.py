"""The report stream to the leader: a sign of life and the load, twice a second.

The leader suspects a dispatcher whose reports stop. The stream follows the leader wherever it is; with no leader there
is nobody to report to, and nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc

from core.coord.ports import CoordView
from core.keepalive import URGENT_MS, pings
from core.tasks import Tasks, Wake
from core.wire import internal_pb2 as pb
from core.wire import internal_pb2_grpc as pb_grpc
from dispatcher.ailments import Ailments
from dispatcher.loads import Loads, ShardLoad
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

Call = grpc.aio.StreamStreamCall[pb.DispatcherReport, pb.LeaderReply]

# What each shard costs is told so often.
LOADS_EVERY_S = 1.0
# After a broken stream; sooner than its leader suspects anybody for it.
_AGAIN_S = 0.1
_RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # An address where the kernel still accepts and nobody answers is given up as soon.
    ("grpc.min_reconnect_backoff_ms", 1_000),
)


def leader_channel(address: str) -> grpc.aio.Channel:
    """A channel to the leader; a leader that froze is noticed within about two seconds.

    The leader itself needs no pings to notice a dispatcher, since reports come twice a second.
    """
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
        ailments: Ailments,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._coord = coord
        self._interval_s = interval_s
        self._draining = draining
        self._last_pass_s = last_pass_s
        self._loads = loads
        self._ailments = ailments
        self._loads_due_s = 0.0
        self._fired_before, self._fired_s = 0, runtime.clock.monotonic_s()
        # There is news that cannot wait for the interval.
        self.hurry = Wake()

    async def run(self) -> None:
        """For ever: find the leader, report until the stream breaks or another one leads, begin again."""
        changed = Wake()
        self._coord.subscribe(changed)
        while True:
            leader = self._coord.leader()
            if leader is not None:
                await self._report_to(leader.address, changed)
                await self._runtime.clock.sleep(_AGAIN_S)
            await changed.wait(self._runtime.clock, self._interval_s)

    async def _report_to(self, address: str, changed: Wake) -> None:
        async with leader_channel(address) as channel:
            call = pb_grpc.LeaderServiceStub(channel).Report()
            talk = Tasks()
            talk.spawn(self._listen(call, address, changed), name="replies of the leader")
            talk.spawn(self._tell(call), name="reports to the leader")
            try:
                while not call.done() and not talk.failed.is_set() and self._leads(address):
                    await changed.wait(self._runtime.clock, self._interval_s)
            finally:
                call.cancel()
                await talk.close()
        if talk.failure is not None:
            raise talk.failure

    def _leads(self, address: str) -> bool:
        """Whether nobody else is known to lead. With etcd away there may be nobody: then this one goes on."""
        leader = self._coord.leader()
        return leader is None or leader.address == address

    async def _listen(self, call: Call, address: str, changed: Wake) -> None:
        try:
            async for _reply in call:
                self._memory.wakes.own.set()
        except grpc.aio.AioRpcError as error:
            log.debug("the report stream to %s ended: %s", address, error.code().name)
        finally:
            changed.set()

    async def _tell(self, call: Call) -> None:
        failpoints, clock = self._runtime.failpoints, self._runtime.clock
        try:
            while not call.done():
                if wait_s := failpoints.pass_by("report.before"):
                    await clock.sleep(wait_s)
                await call.write(self._report())
                await self.hurry.wait(clock, self._interval_s)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the call has ended, as the listener says

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
        self._add_ailments(report)
        if now_s >= self._loads_due_s:
            self._loads_due_s = now_s + LOADS_EVERY_S - self._interval_s / 2
            report.cpu = self._loads.cpu()
            report.loads.extend(map(_shard_load, self._loads.measure()))
        return report

    def _add_ailments(self, report: pb.DispatcherReport) -> None:
        ailments, workers = self._ailments.look()
        report.ailments.extend(pb.Ailment(kind=each.kind, age_ms=round(each.age_s * 1000)) for each in ailments)
        report.connected_workers = workers.connected
        report.served_queues.extend(workers.served)
        report.unserved_queues.extend(workers.unserved)

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
