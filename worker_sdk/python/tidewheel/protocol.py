"""One conversation with one dispatcher, without the socket: frames in, effects out; orders in, frames out.

States: OPENING (Hello sent, Welcome awaited) -> OPEN -> LEAVING (Goodbye sent: results and heartbeats only) -> CLOSED.
It owns what belongs to one stream and dies with it: the handshake, the credit account, the heartbeats that wait for a
reply, and what is to be sent next. It must never touch a socket, a clock or a task: time comes in as an argument.
Fed by link.py (frames) and switchboard.py (orders).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from tidewheel.credits import StreamCredit
from tidewheel.effects import (
    Acknowledged,
    Assigned,
    Beat,
    CancelOrdered,
    CreditChanged,
    Effect,
    Extended,
    Opened,
    Refused,
    Violated,
)
from tidewheel.v1.worker_service_pb2 import (
    AttemptRef,
    DispatcherFrame,
    Goodbye,
    Grant,
    Heartbeat,
    Heartbeats,
    Hello,
    Reclaim,
    Result,
    Results,
    Returns,
    WorkerFrame,
)

PROTOCOL_VERSION = 1
# gRPC's default limit of a message is 4 MiB; a result is at most 256 KiB, so a frame stays well below.
FRAME_BYTES = 1024 * 1024
# Bytes of an item besides its result, message or progress.
ITEM_BYTES = 160


class StreamState(Enum):
    OPENING = "opening"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class StreamProtocol:
    """The worker's side of one stream."""

    def __init__(self) -> None:
        self.state = StreamState.OPENING
        self.credit = StreamCredit()
        self.dispatcher_id = ""
        self._announced_total = 0
        self._announced_reclaim = 0
        self._sequence = 0
        self._unanswered: dict[int, tuple[float, list[Beat]]] = {}
        self._heartbeats: deque[Heartbeats] = deque()
        self._results: deque[tuple[Result, int]] = deque()
        self._returns: list[AttemptRef] = []
        self._goodbye = False

    # ---- orders: what the worker wants said ----

    def hello(self, hello: Hello, holding: Sequence[AttemptRef], number: int = 0) -> WorkerFrame:
        """The first frame. `hello` is what stays the same for every stream of the worker; `number` counts its Hellos.

        `holding` has to be complete: what a dispatcher has sent and does not find there, it gives to another worker.
        """
        frame = WorkerFrame(hello=hello)
        frame.hello.protocol_version = PROTOCOL_VERSION
        frame.hello.sequence = number
        frame.hello.holding.extend(holding)
        return frame

    def result(self, result: Result, size: int) -> None:
        """Report an outcome; `size` is about its bytes."""
        self._results.append((result, size))

    def give_back(self, ref: AttemptRef) -> None:
        """Return an assignment that was not started."""
        self._returns.append(ref)

    def heartbeat(self, items: Sequence[tuple[Beat, AttemptRef, bytes | None]], now_s: float) -> None:
        """Hold the leases of these attempts; what is given as progress is sent with it.

        The lease counts from here, which is never later than the sending.
        """
        frame, beats, size = Heartbeats(), list[Beat](), 0
        for beat, ref, progress in items:
            item_size = ITEM_BYTES + len(progress or b"")
            if beats and size + item_size > FRAME_BYTES:
                self._queue_heartbeats(frame, beats, now_s)
                frame, beats, size = Heartbeats(), [], 0
            frame.items.append(Heartbeat(ref=ref, progress=progress))
            beats.append(beat)
            size += item_size
        if beats:
            self._queue_heartbeats(frame, beats, now_s)

    def _queue_heartbeats(self, frame: Heartbeats, beats: list[Beat], now_s: float) -> None:
        self._sequence += 1
        frame.sequence = self._sequence
        self._unanswered[self._sequence] = (now_s, beats)
        self._heartbeats.append(frame)

    def goodbye(self) -> None:
        """No more assignments: every credit is void. Saying it twice is saying it once."""
        if self.state is StreamState.OPEN:
            self.state = StreamState.LEAVING
            self.credit.total = self.credit.received
            self._goodbye = True

    def close(self) -> None:
        self.state = StreamState.CLOSED

    @property
    def talking(self) -> bool:
        """Whether results and heartbeats can be sent here."""
        return self.state in (StreamState.OPEN, StreamState.LEAVING)

    def unanswered_since_s(self) -> float | None:
        """When the oldest heartbeat without a reply left; None when all are answered."""
        for sent_s, _ in self._unanswered.values():
            return sent_s
        return None

    # ---- frames out ----

    @property
    def has_unsaid(self) -> bool:
        """Whether something waits that the dispatcher has to know before we leave."""
        return bool(self._results or self._returns)

    @property
    def has_output(self) -> bool:
        return bool(
            self._results
            or self._heartbeats
            or self._returns
            or self._goodbye
            or (self.state is StreamState.OPEN and (self._grant_due or self._reclaim_due))
        )

    @property
    def _reclaim_due(self) -> bool:
        return self.credit.reclaiming != self._announced_reclaim

    @property
    def _grant_due(self) -> bool:
        # While a Reclaim is unanswered no Grant is sent: its total would be older than the Released it crosses.
        return self.credit.reclaiming == 0 and self.credit.total > self._announced_total

    def frames(self) -> Iterator[WorkerFrame]:
        """Everything that is to be sent, one frame a kind (more where one would be too large). Clears it.

        Heartbeats come before results, so that the last progress of an attempt arrives before its end.
        """
        if not self.talking:
            return
        while self._heartbeats:
            yield WorkerFrame(heartbeats=self._heartbeats.popleft())
        if self._returns:
            returns, self._returns = self._returns, []
            yield WorkerFrame(returns=Returns(items=returns))
        while self._results:
            yield WorkerFrame(results=self._cut_results())
        if self._goodbye:
            self._goodbye = False
            yield WorkerFrame(goodbye=Goodbye())
        if self.state is not StreamState.OPEN:
            return
        if self._reclaim_due:
            self._announced_reclaim = self.credit.reclaiming
            yield WorkerFrame(reclaim=Reclaim(count=self.credit.reclaiming))
        elif self._grant_due:
            self._announced_total = self.credit.total
            yield WorkerFrame(grant=Grant(total=self.credit.total))

    def _cut_results(self) -> Results:
        items, size = list[Result](), 0
        while self._results:
            result, result_size = self._results[0]
            if items and size + result_size > FRAME_BYTES:
                break
            self._results.popleft()
            items.append(result)
            size += result_size
        return Results(items=items)

    # ---- frames in ----

    def receive(self, frame: DispatcherFrame) -> Effect:
        """What follows from one frame of the dispatcher."""
        kind = frame.WhichOneof("frame")
        if kind is None:
            # A frame of a later version of the protocol, which asks for nothing that we know.
            return CreditChanged()
        if self.state is StreamState.CLOSED:
            return Violated("a frame after the end of the stream")
        if (self.state is StreamState.OPENING) != (kind in ("welcome", "refusal")):
            return Violated(f"{kind} while the stream is {self.state.value}")
        return _READERS[kind](self, getattr(frame, kind))

    def _welcome(self, welcome: Any) -> Effect:
        interval_s = _seconds(welcome.heartbeat_interval)
        lease_s = _seconds(welcome.lease)
        if welcome.protocol_version != PROTOCOL_VERSION:
            return Violated(f"protocol version {welcome.protocol_version} in Welcome")
        if not 0 < interval_s < lease_s:
            return Violated(f"a heartbeat interval of {interval_s} s with a lease of {lease_s} s in Welcome")
        self.state = StreamState.OPEN
        self.dispatcher_id = welcome.dispatcher_id
        return Opened(welcome.dispatcher_id, interval_s, lease_s, welcome.stale)

    def _refusal(self, refusal: Any) -> Effect:
        self.state = StreamState.CLOSED
        return Refused(refusal.field, refusal.rule)

    def _assignments(self, assignments: Any) -> Effect:
        items = assignments.items
        excess = self.credit.receive(len(items))
        if self.state is StreamState.LEAVING:
            # They crossed our Goodbye; the credits that covered them are void.
            self.credit.total = self.credit.received
            return Assigned((), items)
        if excess:
            return Assigned(items[:-excess], items[-excess:])
        return Assigned(items, ())

    def _acknowledgements(self, acknowledgements: Any) -> Effect:
        return Acknowledged(acknowledgements.items)

    def _heartbeat_replies(self, replies: Any) -> Effect:
        sent = self._unanswered.pop(replies.sequence, None)
        sent_s, beats = sent or (0.0, [])
        return Extended(sent_s, beats, replies.exceptions)

    def _cancels(self, cancels: Any) -> Effect:
        return CancelOrdered(cancels.items)

    def _released(self, released: Any) -> Effect:
        if self.state is StreamState.LEAVING:
            return CreditChanged()
        if not self._announced_reclaim or not self.credit.release(released.count):
            return Violated(f"Released {released.count}, which no Reclaim asked for")
        self._announced_reclaim = 0
        self._announced_total = released.total
        return CreditChanged()

    def _demand(self, demand: Any) -> Effect:
        self.credit.demand(demand.waiting)
        return CreditChanged()


_READERS: MappingProxyType[str, Callable[[StreamProtocol, Any], Effect]] = MappingProxyType(
    {
        "welcome": StreamProtocol._welcome,
        "refusal": StreamProtocol._refusal,
        "assignments": StreamProtocol._assignments,
        "acknowledgements": StreamProtocol._acknowledgements,
        "heartbeat_replies": StreamProtocol._heartbeat_replies,
        "cancels": StreamProtocol._cancels,
        "released": StreamProtocol._released,
        "demand": StreamProtocol._demand,
    }
)


def _seconds(duration: Any) -> float:
    return float(duration.seconds) + float(duration.nanos) / 1e9
