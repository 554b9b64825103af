"""A switchboard with everything around it written down: no sockets, no handlers, a clock that stands still."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from tidewheel.attempts import Attempt
from tidewheel.context import Stop, order_stop
from tidewheel.protocol import StreamProtocol
from tidewheel.switchboard import Switchboard
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import acknowledgement, assignment

INTERVAL_S, LEASE_S = 5, 15


class StandingClock:
    """Time passes only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return 1_900_000_000_000_000_000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the switchboard never waits")


class World:
    """Plays the rim: streams that open and break, handlers that start, stop and end."""

    def __init__(self, slots: int = 4, known: tuple[str, ...] = ("a", "b")) -> None:
        self.clock = StandingClock()
        self.started: list[Attempt] = []
        self.stops: list[tuple[str, Stop]] = []
        self.board = Switchboard(slots, {"work"}, self.clock, self)
        self.board.listed(known)
        self.protocols: dict[str, StreamProtocol] = {}

    # ---- Orders ----

    def start(self, attempt: Attempt) -> None:
        self.started.append(attempt)

    def stop(self, attempt: Attempt, stop: Stop) -> None:
        if not attempt.context.cancelled:
            order_stop(attempt.context, stop)
            self.stops.append((attempt.ref.run_id, stop))

    def stir(self) -> None:
        pass

    # ---- what a test does ----

    def connect(self, address: str, stale: tuple[pb.AttemptRef, ...] = ()) -> list[pb.WorkerFrame]:
        """Open a stream; what the worker says on it first."""
        self.protocols[address] = StreamProtocol()
        welcome = pb.Welcome(
            protocol_version=1,
            dispatcher_id=address,
            heartbeat_interval=Duration(seconds=INTERVAL_S),
            lease=Duration(seconds=LEASE_S),
            stale=stale,
        )
        self.feed(address, welcome=welcome)
        return self.said(address)

    def cut(self, address: str) -> None:
        protocol = self.protocols.pop(address)
        protocol.close()
        self.board.lost(address, protocol)

    def feed(self, address: str, **frame: object) -> None:
        protocol = self.protocols[address]
        self.board.handle(address, protocol, protocol.receive(pb.DispatcherFrame(**frame)))  # type: ignore[arg-type]

    def said(self, address: str) -> list[pb.WorkerFrame]:
        self._share_credits()
        frames = list(self.protocols[address].frames())
        return [frame for frame in frames if not frame.HasField("grant")]

    def _share_credits(self) -> None:
        """Let the worker share its credits, and answer what it asks back."""
        self.board.turn()
        for protocol in self.protocols.values():
            credit = protocol.credit
            # As if Reclaim and Released had come and gone in between.
            if credit.reclaiming:
                credit.release(credit.reclaiming)
        self.board.turn()

    def assign(self, address: str, **fields: object) -> Attempt:
        """Assign one run and take what the worker says to it."""
        self._share_credits()
        made = assignment(**fields)  # type: ignore[arg-type]
        self.feed(address, assignments=pb.Assignments(items=[made]))
        self.said(address)
        return self.started[-1]

    def finish(self, attempt: Attempt, result: bytes = b"done") -> None:
        self.board.finished(attempt, pb.Result(ref=attempt.ref, success=pb.Success(result=result)))

    def answer(self, address: str, attempt: Attempt, verdict: pb.Verdict, owner: str = "") -> None:
        """A verdict on a result."""
        item = acknowledgement(attempt.ref, verdict, owner)
        self.feed(address, acknowledgements=pb.Acknowledgements(items=[item]))

    def answer_heartbeats(self, address: str, frames: list[pb.WorkerFrame], *exceptions: pb.Acknowledgement) -> None:
        for frame in frames:
            if frame.HasField("heartbeats"):
                replies = pb.HeartbeatReplies(sequence=frame.heartbeats.sequence, exceptions=exceptions)
                self.feed(address, heartbeat_replies=replies)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, sweeping every 250 ms as a living worker does; the streams found silent."""
        silent: list[str] = []
        until_s = self.clock.now_s + seconds
        while self.clock.now_s < until_s:
            self.clock.now_s = min(until_s, self.clock.now_s + 0.25)
            silent.extend(self.board.sweep())
        return silent


def results(frames: list[pb.WorkerFrame]) -> list[str]:
    return [item.ref.run_id for frame in frames for item in frame.results.items]


def heartbeats(frames: list[pb.WorkerFrame]) -> list[str]:
    return [item.ref.run_id for frame in frames for item in frame.heartbeats.items]
