"""One stream's state machine, by table: what a frame means in each state, and what leaves in which order."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from tidewheel.effects import (
    Acknowledged,
    Assigned,
    CancelOrdered,
    CreditChanged,
    Effect,
    Extended,
    Opened,
    Refused,
    Violated,
)
from tidewheel.protocol import FRAME_BYTES, StreamProtocol, StreamState
from tidewheel.switchboard import UNACKNOWLEDGED_FREE
from tidewheel.v1 import worker_service_pb2 as pb
from tidewheel.worker import MOST_SLOTS

WELCOME = pb.DispatcherFrame(
    welcome=pb.Welcome(
        protocol_version=1, dispatcher_id="d1", heartbeat_interval=Duration(seconds=5), lease=Duration(seconds=15)
    )
)
REFUSAL = pb.DispatcherFrame(refusal=pb.Refusal(field="hello.queues", rule="at most 64"))
ASSIGNMENTS = pb.DispatcherFrame(assignments=pb.Assignments(items=[pb.Assignment(handler="a")]))
ACKNOWLEDGEMENTS = pb.DispatcherFrame(acknowledgements=pb.Acknowledgements(items=[pb.Acknowledgement(run_id="r")]))
REPLIES = pb.DispatcherFrame(heartbeat_replies=pb.HeartbeatReplies(sequence=1))
CANCELS = pb.DispatcherFrame(cancels=pb.Cancels(items=[pb.CancelOrder(run_id="r", attempt=1)]))
RELEASED = pb.DispatcherFrame(released=pb.Released(count=0))
DEMAND = pb.DispatcherFrame(demand=pb.Demand(waiting=3))
UNKNOWN = pb.DispatcherFrame()

BODY = (ASSIGNMENTS, ACKNOWLEDGEMENTS, REPLIES, CANCELS, DEMAND)


def opened() -> StreamProtocol:
    protocol = StreamProtocol()
    protocol.receive(WELCOME)
    return protocol


def leaving() -> StreamProtocol:
    protocol = opened()
    protocol.goodbye()
    list(protocol.frames())
    return protocol


def closed() -> StreamProtocol:
    protocol = opened()
    protocol.close()
    return protocol


def kinds(protocol: StreamProtocol) -> list[str | None]:
    return [frame.WhichOneof("frame") for frame in protocol.frames()]


def ref(number: int) -> pb.AttemptRef:
    return pb.AttemptRef(run_id=f"r{number}", attempt=1, token=bytes(32))


TABLE: list[tuple[str, StreamProtocol, pb.DispatcherFrame, type[Effect], StreamState]] = [
    ("opening", StreamProtocol(), WELCOME, Opened, StreamState.OPEN),
    ("opening", StreamProtocol(), REFUSAL, Refused, StreamState.CLOSED),
    *[("opening", StreamProtocol(), frame, Violated, StreamState.OPENING) for frame in BODY],
    ("open", opened(), WELCOME, Violated, StreamState.OPEN),
    ("open", opened(), REFUSAL, Violated, StreamState.OPEN),
    ("open", opened(), ASSIGNMENTS, Assigned, StreamState.OPEN),
    ("open", opened(), ACKNOWLEDGEMENTS, Acknowledged, StreamState.OPEN),
    ("open", opened(), REPLIES, Extended, StreamState.OPEN),
    ("open", opened(), CANCELS, CancelOrdered, StreamState.OPEN),
    ("open", opened(), DEMAND, CreditChanged, StreamState.OPEN),
    ("open", opened(), RELEASED, Violated, StreamState.OPEN),
    ("open", opened(), UNKNOWN, CreditChanged, StreamState.OPEN),
    ("leaving", leaving(), ACKNOWLEDGEMENTS, Acknowledged, StreamState.LEAVING),
    ("leaving", leaving(), REPLIES, Extended, StreamState.LEAVING),
    ("leaving", leaving(), CANCELS, CancelOrdered, StreamState.LEAVING),
    ("leaving", leaving(), RELEASED, CreditChanged, StreamState.LEAVING),
    ("leaving", leaving(), ASSIGNMENTS, Assigned, StreamState.LEAVING),
    ("closed", closed(), ACKNOWLEDGEMENTS, Violated, StreamState.CLOSED),
]


@pytest.mark.parametrize(
    ("protocol", "frame", "effect", "after"),
    [row[1:] for row in TABLE],
    ids=[f"{row[0]}-{row[2].WhichOneof('frame')}" for row in TABLE],
)
def test_each_frame_in_each_state(
    protocol: StreamProtocol, frame: pb.DispatcherFrame, effect: type[Effect], after: StreamState
) -> None:
    assert type(protocol.receive(frame)) is effect
    assert protocol.state is after


@pytest.mark.parametrize(
    ("version", "interval_s", "lease_s"),
    [(2, 5, 15), (1, 0, 15), (1, 15, 15), (1, 20, 15)],
    ids=["version", "no interval", "interval equal to lease", "interval above lease"],
)
def test_a_welcome_that_cannot_work_is_a_violation(version: int, interval_s: int, lease_s: int) -> None:
    welcome = pb.Welcome(
        protocol_version=version, heartbeat_interval=Duration(seconds=interval_s), lease=Duration(seconds=lease_s)
    )
    assert isinstance(StreamProtocol().receive(pb.DispatcherFrame(welcome=welcome)), Violated)


def test_hello_names_everything_that_can_be_held_within_the_smallest_limit_of_a_message() -> None:
    most = MOST_SLOTS + UNACKNOWLEDGED_FREE
    long_ref = pb.AttemptRef(run_id="00000000-0000-4000-8000-000000000001", attempt=4, token=bytes(32))
    frame = StreamProtocol().hello(pb.Hello(worker_id="w"), [long_ref] * most)
    assert (frame.hello.protocol_version, frame.hello.worker_id, len(frame.hello.holding)) == (1, "w", most)
    assert frame.ByteSize() < 2 * 1024 * 1024


def test_nothing_is_said_before_welcome() -> None:
    protocol = StreamProtocol()
    protocol.credit.grant(3, 1)
    protocol.result(pb.Result(ref=ref(1)), 100)
    assert kinds(protocol) == []
    protocol.receive(WELCOME)
    assert kinds(protocol) == ["results", "grant"]


def test_one_turn_leaves_in_one_frame_a_kind_and_heartbeats_before_results() -> None:
    protocol = opened()
    for number in range(3):
        protocol.result(pb.Result(ref=ref(number)), 100)
        protocol.give_back(ref(10 + number))
    protocol.heartbeat([(((f"r{number}", 1), 0), ref(number), None) for number in range(3)], 1.0)
    protocol.credit.grant(2, 1)
    protocol.credit.grant(2, 2)

    frames = list(protocol.frames())

    assert [frame.WhichOneof("frame") for frame in frames] == ["heartbeats", "returns", "results", "grant"]
    assert [len(frame.results.items) for frame in frames if frame.HasField("results")] == [3]
    assert frames[-1].grant.total == 4
    assert not protocol.has_output
    assert kinds(protocol) == []


def test_frames_are_cut_by_size() -> None:
    protocol = opened()
    for number in range(5):
        protocol.result(pb.Result(ref=ref(number)), FRAME_BYTES // 2)
    protocol.heartbeat([((("r", number), 1), ref(number), bytes(FRAME_BYTES // 2 - 200)) for number in range(4)], 1.0)

    frames = list(protocol.frames())

    assert [len(frame.results.items) for frame in frames if frame.HasField("results")] == [2, 2, 1]
    assert [len(frame.heartbeats.items) for frame in frames if frame.HasField("heartbeats")] == [2, 2]
    assert [frame.heartbeats.sequence for frame in frames if frame.HasField("heartbeats")] == [1, 2]


def test_a_heartbeat_reply_tells_when_that_heartbeat_left() -> None:
    protocol = opened()
    protocol.heartbeat([((("r1", 1), 2), ref(1), b"x")], 10.0)
    protocol.heartbeat([((("r1", 1), 3), ref(1), b"y")], 15.0)
    assert protocol.unanswered_since_s() == 10.0

    effect = protocol.receive(REPLIES)

    assert isinstance(effect, Extended)
    assert (effect.sent_s, effect.beats) == (10.0, [(("r1", 1), 2)])
    assert protocol.unanswered_since_s() == 15.0


def test_a_reply_to_no_heartbeat_of_ours_extends_nothing() -> None:
    effect = opened().receive(pb.DispatcherFrame(heartbeat_replies=pb.HeartbeatReplies(sequence=99)))
    assert isinstance(effect, Extended)
    assert list(effect.beats) == []


def test_assignments_beyond_the_credits_are_singled_out() -> None:
    protocol = opened()
    protocol.credit.grant(1, 1)
    items = [pb.Assignment(handler=name) for name in ("a", "b", "c")]
    effect = protocol.receive(pb.DispatcherFrame(assignments=pb.Assignments(items=items)))
    assert isinstance(effect, Assigned)
    assert [[item.handler for item in part] for part in (effect.items, effect.beyond)] == [["a"], ["b", "c"]]
    # The next grant counts from what was received, or the dispatcher would see no credit in it.
    protocol.credit.grant(2, 2)
    assert next(iter(protocol.frames())).grant.total == 5


def test_assignments_that_cross_goodbye_are_not_started() -> None:
    protocol = opened()
    protocol.credit.grant(1, 1)
    protocol.goodbye()
    assert kinds(protocol) == ["goodbye"]
    effect = protocol.receive(ASSIGNMENTS)
    assert isinstance(effect, Assigned)
    assert (len(effect.items), len(effect.beyond)) == (0, 1)
    protocol.credit.grant(1, 2)
    assert kinds(protocol) == [], "after Goodbye no credit is granted"


def test_no_grant_crosses_a_reclaim() -> None:
    protocol = opened()
    protocol.credit.grant(5, 1)
    assert kinds(protocol) == ["grant"]
    protocol.credit.reclaim(3)
    assert kinds(protocol) == ["reclaim"]
    protocol.credit.total += 2
    assert kinds(protocol) == [], "the answer to the Reclaim is awaited"

    protocol.receive(pb.DispatcherFrame(released=pb.Released(count=3, total=2)))

    assert [frame.grant.total for frame in protocol.frames()] == [4]


def test_a_dispatcher_that_counts_fewer_credits_than_we_is_told_the_total_again() -> None:
    protocol = opened()
    protocol.credit.grant(5, 1)
    list(protocol.frames())
    protocol.credit.reclaim(2)
    list(protocol.frames())
    protocol.receive(pb.DispatcherFrame(released=pb.Released(count=2, total=1)))
    assert [frame.grant.total for frame in protocol.frames()] == [3]


def test_more_released_than_asked_is_a_violation() -> None:
    protocol = opened()
    protocol.credit.grant(5, 1)
    protocol.credit.reclaim(2)
    list(protocol.frames())
    assert isinstance(protocol.receive(pb.DispatcherFrame(released=pb.Released(count=3, total=2))), Violated)
