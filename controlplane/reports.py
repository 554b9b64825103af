"""LeaderService: the report streams of dispatchers to the leader. Between our own processes only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from controlplane.leader import Seat
from controlplane.membership import Load
from controlplane.sickness import Condition
from core.ailments import AilmentKind
from core.wire import internal_pb2, internal_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class LeaderServicer(internal_pb2_grpc.LeaderServiceServicer):
    """Hands reports to the tenure's membership; a replica that does not lead refuses the stream."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    async def Report(
        self, request_iterator: AsyncIterator[internal_pb2.DispatcherReport], context: Context
    ) -> AsyncIterator[internal_pb2.LeaderReply]:
        """A reply comes with the first report and whenever the plan has changed since."""
        membership = self._seat.membership
        dispatcher_id = ""
        told: int | None = None
        try:
            async for report in request_iterator:
                if membership is None or self._seat.membership is not membership:
                    break
                if not report.dispatcher_id or report.dispatcher_id != (dispatcher_id or report.dispatcher_id):
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "dispatcher_id must be given, and stay")
                if not dispatcher_id:
                    dispatcher_id = report.dispatcher_id
                    membership.stream_opened(dispatcher_id)
                load = Load(report.fires_per_second, report.open_runs, report.waiting_runs)
                membership.report(dispatcher_id, load, _condition(report), draining=report.draining)
                if self._seat.loads is not None:
                    self._seat.loads.report(report)
                if told != self._seat.plan_version:
                    told = self._seat.plan_version
                    yield internal_pb2.LeaderReply(plan_version=told)
            else:
                return
        finally:
            if membership is not None and dispatcher_id:
                membership.stream_closed(dispatcher_id)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this replica does not lead")


def _condition(report: internal_pb2.DispatcherReport) -> Condition:
    """What ails it, by its own account; kinds that this release does not know are passed over."""
    return Condition(
        ailments={
            AilmentKind(each.kind): each.age_ms / 1000
            for each in report.ailments
            if each.kind in AilmentKind.__members__.values()
        },
        workers=report.connected_workers,
        served=frozenset(report.served_queues),
        unserved=frozenset(report.unserved_queues),
    )
