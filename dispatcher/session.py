"""One worker's stream, as frames: credits, and what is to be sent. No sockets here; worker_link.py moves the frames.

Frames leave in batches: everything that was handed over since the last write becomes one frame of each kind, cut at
about a mebibyte. Credits are the worker's permission: `total` granted, less those used, less those given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TypeVar
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from dispatcher.routes import Queue, Route

# Well below gRPC's default limit of 4 MiB for one message; one assignment or result is at most some 300 KB.
FRAME_BYTES = 1024 * 1024
_FRAME_ITEMS = 3_000
# More items than this waiting for a slow reader end the stream: the worker reconnects and says what it holds.
MAX_QUEUED_ITEMS = 200_000

Item = TypeVar("Item")


class WorkerSession:
    """The dispatcher's side of one stream after its Hello. `worker_id` names the worker process."""

    def __init__(self, hello: pb.Hello) -> None:
        self._worker_id = hello.worker_id
        self.namespace = hello.namespace or "default"
        self.queues = frozenset(hello.queues) or frozenset({"default"})
        self.handlers = frozenset(hello.handlers)
        self.slots = hello.slots
        self._granted = 0
        self._used = 0
        self._leaving = False
        self.retired = False
        self._silent = False
        self._demand_told = 0
        self._assignments: list[pb.Assignment] = []
        self._acks: list[pb.Acknowledgement] = []
        self._cancels: list[pb.CancelOrder] = []
        self._others: list[pb.DispatcherFrame] = []
        self.outgoing = asyncio.Event()
        self.overrun = False
        self._closed = False

    # --- credits ---

    @property
    def worker_id(self) -> str:
        return self._worker_id

    @property
    def over(self) -> bool:
        """Whether the stream is to be ended from this side."""
        return self.overrun or self.retired

    @property
    def credits(self) -> int:
        """Assignments that may be sent now."""
        mute = self._leaving or self._silent or self.overrun or self._closed
        return 0 if mute else max(0, self._granted - self._used)

    def serves(self, route: Route) -> bool:
        namespace, queue, handler = route
        return namespace == self.namespace and queue in self.queues and handler in self.handlers

    @property
    def served_queues(self) -> Iterable[Queue]:
        return [] if self._leaving else [(self.namespace, queue) for queue in self.queues]

    def use_credit(self) -> None:
        self._used += 1

    def return_credit(self) -> None:
        self._used -= 1

    def grant(self, total: int) -> None:
        """The worker's new total; totals never shrink by a Grant."""
        self._granted = max(self._granted, total)

    def reclaim(self, count: int) -> None:
        """Give up to `count` unused credits back, and say how many."""
        released = max(0, min(count, self._granted - self._used))
        self._granted -= released
        self._send(pb.DispatcherFrame(released=pb.Released(count=released, total=self._granted)))

    def goodbye(self) -> None:
        """The worker takes nothing more; its credits are void."""
        self._leaving = True

    def retire(self) -> None:
        """The worker has a newer stream: this one takes nothing more, and ends."""
        self._leaving = self.retired = True
        self.outgoing.set()

    def went_silent(self) -> None:
        """A lease ended without a heartbeat: the worker may hang, so it gets nothing until it is heard again."""
        self._silent = True

    def heard(self) -> None:
        """The worker said something."""
        self._silent = False

    @property
    def closed(self) -> bool:
        """Whether the stream has ended: what is handed over now is never sent."""
        return self._closed

    # --- what is to be sent ---

    def assign(self, assignment: pb.Assignment) -> None:
        self._assignments.append(assignment)
        self._queued()

    def acknowledge(self, items: Iterable[pb.Acknowledgement]) -> None:
        self._acks.extend(items)
        self._queued()

    def cancel(self, run_id: UUID, attempt: int, reason: str) -> None:
        self._cancels.append(pb.CancelOrder(run_id=str(run_id), attempt=attempt, reason=reason))
        self._queued()

    def reply_heartbeats(self, sequence: int, exceptions: Iterable[pb.Acknowledgement]) -> None:
        self._send(pb.DispatcherFrame(heartbeat_replies=pb.HeartbeatReplies(sequence=sequence, exceptions=exceptions)))

    def welcome(self, welcome: pb.Welcome) -> None:
        self._send(pb.DispatcherFrame(welcome=welcome))

    def tell_demand(self, waiting: int) -> None:
        """Say how many runs wait, when that changed between none and some, or by more than half."""
        told = self._demand_told
        if waiting == told or (told and waiting and abs(waiting - told) * 2 <= told):
            return
        self._demand_told = waiting
        self._send(pb.DispatcherFrame(demand=pb.Demand(waiting=waiting)))

    def _send(self, frame: pb.DispatcherFrame) -> None:
        self._others.append(frame)
        self._queued()

    def _queued(self) -> None:
        if len(self._assignments) + len(self._acks) + len(self._cancels) + len(self._others) > MAX_QUEUED_ITEMS:
            self.overrun = True
        self.outgoing.set()

    def close(self) -> list[pb.AttemptRef]:
        """The stream has ended; returns the assignments that certainly never left."""
        self._closed = True
        return [assignment.ref for assignment in self._assignments]

    def take_frames(self) -> list[pb.DispatcherFrame]:
        """Everything that waits, in frames; the buffers are empty afterwards. Cancels go first, assignments last."""
        frames, self._others = self._others, []
        cancels, self._cancels = self._cancels, []
        frames.extend(pb.DispatcherFrame(cancels=pb.Cancels(items=part)) for part in _by_count(cancels))
        acks, self._acks = self._acks, []
        frames.extend(pb.DispatcherFrame(acknowledgements=pb.Acknowledgements(items=part)) for part in _by_count(acks))
        if self._assignments:
            assignments, self._assignments = self._assignments, []
            frames.extend(pb.DispatcherFrame(assignments=pb.Assignments(items=part)) for part in _by_size(assignments))
        self.outgoing.clear()
        return frames


def _by_count(items: list[Item]) -> Iterator[list[Item]]:
    """Small items: each takes some 300 bytes at most."""
    for start in range(0, len(items), _FRAME_ITEMS):
        yield items[start : start + _FRAME_ITEMS]


def _by_size(items: list[pb.Assignment]) -> Iterator[list[pb.Assignment]]:
    part: list[pb.Assignment] = []
    size = 0
    for item in items:
        item_size = len(item.payload) + len(item.progress) + 512
        if part and size + item_size > FRAME_BYTES:
            yield part
            part, size = [], 0
        part.append(item)
        size += item_size
    if part:
        yield part
