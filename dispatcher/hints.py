"""DispatcherService: hints from the control planes.

Losing one costs a tick, or for a cancel the time to the next renewal; never a run.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from core.wire import internal_pb2 as pb
from core.wire import internal_pb2_grpc as pb_grpc
from dispatcher.renewals import request_cancel
from dispatcher.runtime import Memory


class Hints(pb_grpc.DispatcherServiceServicer):
    """Serves Hint."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def Hint(self, request: pb.HintRequest, context: Any) -> pb.HintReply:  # noqa: N802
        """A due row landed, or a cancel was requested: look now rather than at the next tick."""
        if request.landed_shards:
            self._memory.landed.update(request.landed_shards)
            self._memory.wakes.discover.set()
        for text in request.canceled_run_ids:
            try:
                run_id = UUID(text)
            except ValueError:
                continue
            self._memory.canceled(run_id)
            live = self._memory.attempts.get(run_id)
            if live is not None and not live.cancel_requested:
                request_cancel(live)
        return pb.HintReply()
