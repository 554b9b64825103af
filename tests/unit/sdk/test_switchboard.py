"""What a worker starts, stops and gives back, and how it leaves. The clock stands still."""

from __future__ import annotations

import pytest
from tidewheel.context import StopKind
from tidewheel.delivery import ABANDON_AFTER_S
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import assignment
from tests.unit.sdk.switchboard_world import INTERVAL_S, LEASE_S, World, heartbeats, results


@pytest.fixture
def world() -> World:
    world = World()
    world.connect("a")
    world.connect("b")
    return world


def kinds(world: World) -> list[StopKind]:
    return [stop.kind for _, stop in world.stops]


# ---- orders to stop ----


def test_a_cancel_reaches_the_handler_in_the_same_turn(world: World) -> None:
    attempt, late = world.assign("a"), world.assign("a")
    world.feed("a", cancels=pb.Cancels(items=[pb.CancelOrder(run_id=late.ref.run_id, attempt=1, reason="timed out")]))
    assert world.board.next_sweep_s <= world.clock.now_s
    world.board.sweep()
    assert kinds(world) == [StopKind.TIMED_OUT]
    world.stops.clear()
    world.feed("a", cancels=pb.Cancels(items=[pb.CancelOrder(run_id=attempt.ref.run_id, attempt=1, reason="why")]))
    assert [(stop.kind, stop.reason) for _, stop in world.stops] == [(StopKind.CANCEL, "why")]


def test_a_time_limit_stops_the_handler_and_ends_the_attempt_even_if_it_does_not_obey(world: World) -> None:
    attempt = world.assign("a", timeout_s=2.0)
    world.wait(2.5)
    assert kinds(world) == [StopKind.TIMED_OUT]
    assert results(world.said("a")) == []
    world.wait(ABANDON_AFTER_S)
    frames = world.said("a")
    assert results(frames) == [attempt.ref.run_id]
    assert all(item.failure.timed_out for frame in frames for item in frame.results.items)
    world.answer("a", attempt, pb.VERDICT_ACCEPTED)
    assert world.board.running == 1, "its slot is still taken"
    world.finish(attempt)
    world.said("a")
    assert world.board.idle


# ---- what is not started ----


def test_an_unknown_handler_is_returned(world: World) -> None:
    made = assignment("unheard-of")
    world.feed("a", assignments=pb.Assignments(items=[made]))
    assert [item for frame in world.said("a") for item in frame.returns.items] == [made.ref]
    assert world.started == []


def test_an_assignment_said_twice_runs_once(world: World) -> None:
    first = world.assign("a", run_id="r1")
    world.assign("a", run_id="r1")
    assert world.started == [first]
    assert world.board.running == 1


def test_after_standing_still_assignments_are_returned_since_their_lease_may_be_over(world: World) -> None:
    world.wait(1)
    world.clock.now_s += LEASE_S
    world.board.turn()
    world.feed("a", assignments=pb.Assignments(items=[assignment()]))
    assert world.started == []
    assert len([item for frame in world.said("a") for item in frame.returns.items]) == 1
    world.wait(1)
    world.assign("a")
    assert len(world.started) == 1


# ---- leaving ----


def test_leaving_says_goodbye_once_and_returns_what_crosses_it(world: World) -> None:
    attempt = world.assign("a")
    world.board.leave()
    world.board.leave()
    assert [frame.WhichOneof("frame") for frame in world.said("a")] == ["goodbye"]
    world.feed("a", assignments=pb.Assignments(items=[assignment()]))
    assert [frame.WhichOneof("frame") for frame in world.said("a")] == ["returns"]

    world.wait(INTERVAL_S)
    assert heartbeats(world.said("a")) == [attempt.ref.run_id], "heartbeats go on"
    world.finish(attempt)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_a_stream_opened_while_leaving_gets_no_credit(world: World) -> None:
    world.assign("a")
    world.board.leave()
    world.cut("a")
    assert [frame.WhichOneof("frame") for frame in world.connect("a")] == ["heartbeats", "goodbye"]


def test_the_last_list_stays_and_open_streams_outlive_an_empty_one(world: World) -> None:
    world.board.listed(())
    attempt = world.assign("a")
    world.finish(attempt)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_results_that_nobody_acknowledges_hold_slots_in_the_end() -> None:
    world = World(slots=2_000, known=("a",))
    world.connect("a")
    for number in range(1_500):
        world.finish(world.assign("a", run_id=f"r{number}"))
    world.board.turn()
    assert world.protocols["a"].credit.unused <= 1_500
