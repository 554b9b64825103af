"""DispatcherService: hints from the control planes, and from other dispatchers during hand-offs.

Losing one costs a tick, or for a cancel the time to the next renewal; never a run.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from core.wire import internal_pb2 as pb
from core.wire import internal_pb2_grpc as pb_grpc
from dispatcher.neighbours import Neighbours
from dispatcher.renewals import request_cancel
from dispatcher.runtime import Memory


class Hints(pb_grpc.DispatcherServiceServicer):
    """Serves Hint."""

    def __init__(self, memory: Memory, neighbours: Neighbours) -> None:
        self._memory = memory
        self._neighbours = neighbours

    async def Hint(self, request: pb.HintRequest, context: Any) -> pb.HintReply:  # noqa: N802
        """A due row landed, terms changed, or a cancel was requested: look now rather than at the next tick."""
        if request.landed_shards:
            self._memory.landed.update(request.landed_shards)
            self._memory.wakes.discover.set()
            for shard in request.landed_shards:
                self._neighbours.pass_on(shard)
        if request.changed_shards:
            self._memory.wakes.own.set()
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
