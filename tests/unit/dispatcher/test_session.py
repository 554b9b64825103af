"""One worker's stream as frames: credits are never exceeded, and frames fit the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidewheel.v1 import worker_service_pb2 as pb

from dispatcher import session as session_module
from dispatcher.session import FRAME_BYTES, WorkerSession
from tests.support.dispatcher_parts import hello, new_id

MESSAGE_LIMIT = 4 * 1024 * 1024


def kinds(frames: list[pb.DispatcherFrame]) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames]


def assignment(size: int = 0, **changes: Any) -> pb.Assignment:
    return pb.Assignment(ref=pb.AttemptRef(run_id=str(new_id()), attempt=1), payload=b"x" * size, **changes)


def test_a_hello_that_names_neither_namespace_nor_queue_means_the_default_ones() -> None:
    session = WorkerSession(hello(handlers=["a", "b"]))
    assert session.serves(("default", "default", "a"))
    assert not session.serves(("default", "default", "c"))
    assert not session.serves(("default", "other", "a"))
    assert not session.serves(("other", "default", "a"))


def test_a_session_has_the_credits_it_was_granted_less_those_used() -> None:
    session = WorkerSession(hello())
    assert session.credits == 0
    session.grant(3)
    session.use_credit()
    assert session.credits == 2
    session.return_credit()
    assert session.credits == 3
    session.grant(2)
    assert session.credits == 3, "totals never shrink by a grant"


def test_only_unused_credits_can_be_reclaimed() -> None:
    session = WorkerSession(hello())
    session.grant(3)
    session.use_credit()
    session.reclaim(5)
    session.reclaim(1)
    session.reclaim(-4)
    released = [(f.released.count, f.released.total) for f in session.take_frames()]
    assert released == [(2, 1), (0, 1), (0, 1)]
    assert session.credits == 0


def test_a_worker_that_leaves_or_whose_stream_is_over_gets_nothing_more() -> None:
    for end in (WorkerSession.goodbye, WorkerSession.retire, WorkerSession.close):
        session = WorkerSession(hello())
        session.grant(5)
        end(session)
        assert session.credits == 0


def test_a_worker_that_went_silent_gets_nothing_until_it_is_heard_again() -> None:
    session = WorkerSession(hello())
    session.grant(5)
    session.went_silent()
    assert session.credits == 0
    session.heard()
    assert session.credits == 5


class CreditBook(RuleBasedStateMachine):
    """Both sides of one stream: what the worker believes to have granted bounds what the dispatcher uses."""

    def __init__(self) -> None:
        super().__init__()
        self.session = WorkerSession(hello())
        self.granted = 0
        self.used = 0

    @rule(more=st.integers(1, 5))
    def grant(self, more: int) -> None:
        self.granted += more
        self.session.grant(self.granted)

    @precondition(lambda self: self.session.credits > 0)
    @rule()
    def use(self) -> None:
        self.session.use_credit()
        self.used += 1

    @precondition(lambda self: self.used > 0)
    @rule()
    def give_back(self) -> None:
        self.session.return_credit()
        self.used -= 1

    @rule(count=st.integers(0, 8))
    def reclaim(self, count: int) -> None:
        self.session.reclaim(count)
        (frame,) = self.session.take_frames()
        assert 0 <= frame.released.count <= count
        self.granted -= frame.released.count
        assert frame.released.total == self.granted

    @invariant()
    def never_more_than_granted(self) -> None:
        assert self.used <= self.granted
        assert self.session.credits == self.granted - self.used


TestCreditBook = CreditBook.TestCase
TestCreditBook.settings = settings(max_examples=60)


def test_what_gathered_leaves_in_one_frame_of_each_kind_cancels_before_assignments() -> None:
    session = WorkerSession(hello())
    for _ in range(3):
        session.assign(assignment())
        session.acknowledge([pb.Acknowledgement(run_id="r", attempt=1)])
        session.cancel(new_id(), 1, "cancel requested")
    session.welcome(pb.Welcome())
    frames = session.take_frames()
    assert kinds(frames) == ["welcome", "cancels", "acknowledgements", "assignments"]
    assert [len(frame.assignments.items) for frame in frames[3:]] == [3]
    assert session.take_frames() == []
    assert not session.outgoing.is_set()


@given(st.lists(st.sampled_from([0, 100, 50_000, 262_144]), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_assignments_are_cut_into_frames_that_fit_and_keep_their_order(sizes: list[int]) -> None:
    session = WorkerSession(hello())
    items = [assignment(size) for size in sizes]
    for item in items:
        session.assign(item)
    frames = session.take_frames()
    assert [item for frame in frames for item in frame.assignments.items] == items
    for frame in frames:
        assert frame.ByteSize() <= FRAME_BYTES + 300_000 < MESSAGE_LIMIT


def test_acknowledgements_are_cut_into_frames_that_fit() -> None:
    session = WorkerSession(hello())
    session.acknowledge(
        pb.Acknowledgement(run_id=str(new_id()), attempt=1, verdict=pb.VERDICT_REDIRECT, owner_address="h" * 200)
        for _ in range(30_000)
    )
    for _ in range(30_000):
        session.cancel(new_id(), 1, "cancel requested")
    frames = session.take_frames()
    assert sum(len(f.acknowledgements.items) for f in frames) == 30_000
    assert sum(len(f.cancels.items) for f in frames) == 30_000
    assert max(frame.ByteSize() for frame in frames) < MESSAGE_LIMIT


@pytest.mark.parametrize("kind", ["assign", "acknowledge", "cancel", "reply"])
def test_a_reader_so_slow_that_too_much_waits_is_cut_off(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_QUEUED_ITEMS", 5)
    session = WorkerSession(hello())
    session.grant(100)
    for _ in range(6):
        assert not session.over
        match kind:
            case "assign":
                session.assign(assignment())
            case "acknowledge":
                session.acknowledge([pb.Acknowledgement()])
            case "cancel":
                session.cancel(new_id(), 1, "")
            case "reply":
                session.reply_heartbeats(1, [])
    assert session.over
    assert session.credits == 0


def test_what_never_left_is_known_when_the_stream_ends() -> None:
    session = WorkerSession(hello())
    session.assign(assignment())
    session.take_frames()  # written, or on its way
    left = assignment()
    session.assign(left)
    assert session.close() == [left.ref]


def test_demand_is_told_when_it_begins_ends_or_changes_by_half() -> None:
    session = WorkerSession(hello())
    told = []
    for waiting in (0, 1, 1, 2, 3, 10, 14, 16, 9, 7, 0, 0):
        session.tell_demand(waiting)
        told += [frame.demand.waiting for frame in session.take_frames()]
    assert told == [1, 2, 10, 16, 7, 0]
