"""What a worker does about verdicts, broken streams, ended leases and lost dispatchers. The clock stands still."""

from __future__ import annotations

import itertools

import pytest
from tidewheel.context import StopKind
from tidewheel.delivery import ABANDON_AFTER_S, RETRY_PAUSE_S
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import acknowledgement, assignment
from tests.unit.sdk.switchboard_world import INTERVAL_S, LEASE_S, World, heartbeats, results


@pytest.fixture
def world() -> World:
    world = World()
    world.connect("a")
    world.connect("b")
    return world


def kinds(world: World) -> list[StopKind]:
    return [stop.kind for _, stop in world.stops]


# ---- results ----


def test_a_result_is_kept_until_it_is_accepted(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    assert results(world.said("a")) == [attempt.ref.run_id]
    assert not world.board.idle

    world.answer("a", attempt, pb.VERDICT_ACCEPTED)

    assert world.said("a") == []
    assert world.board.idle


def test_a_result_is_said_again_on_the_next_stream(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.cut("a")

    assert world.board.holding() == [attempt.ref], "Hello names it"
    assert results(world.connect("a")) == [attempt.ref.run_id]


def test_a_result_that_comes_while_the_stream_is_broken_waits_for_the_next(world: World) -> None:
    attempt = world.assign("a")
    world.cut("a")
    world.finish(attempt)
    assert results(world.said("b")) == []
    assert results(world.connect("a")) == [attempt.ref.run_id]


def test_a_result_without_any_answer_is_said_again_after_a_lease(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.wait(LEASE_S - 1)
    assert results(world.said("a")) == []
    world.wait(2)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_retry_is_said_again_after_a_moment(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_RETRY)
    assert results(world.said("a")) == []
    world.wait(2 * RETRY_PAUSE_S)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_stale_forgets_the_result(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_STALE)
    world.said("a")
    assert world.board.idle
    world.wait(2 * LEASE_S)
    assert results(world.said("a")) == []


def test_redirect_takes_the_result_to_the_owner(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_REDIRECT, "b")
    assert results(world.said("b")) == [attempt.ref.run_id]


def test_redirect_to_a_stranger_asks_for_a_link_to_it(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_REDIRECT, "c")
    assert world.board.wanted_addresses == {"a", "b", "c"}
    assert results(world.connect("c")) == [attempt.ref.run_id]


def test_two_dispatchers_that_point_at_each_other_make_no_storm(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_REDIRECT, "b")
    assert results(world.said("b")) == [attempt.ref.run_id], "the first one at once"
    world.answer("b", attempt, pb.VERDICT_REDIRECT, "a")
    assert results(world.said("a")) == [], "from the second on after a pause"
    world.wait(1)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_a_redirect_to_a_dispatcher_that_never_answers_ends_in_offers_to_the_others(world: World) -> None:
    attempt = world.assign("a")
    world.finish(attempt)
    world.said("a")
    world.answer("a", attempt, pb.VERDICT_REDIRECT, "nowhere")
    world.wait(3)
    offered = results(world.said("a")) + results(world.said("b"))
    assert offered[:1] == [attempt.ref.run_id]


# ---- a dispatcher that is gone ----


def test_results_of_a_dispatcher_that_is_gone_are_offered_to_the_others_in_turn() -> None:
    world = World(known=("a", "b", "c"))
    for address in ("a", "b", "c"):
        world.connect(address)
    attempt = world.assign("a")
    world.cut("a")
    world.finish(attempt)
    world.wait(5)
    assert not results(world.said("b") + world.said("c")), "as long as it is listed, it may come back"

    world.board.listed(("b", "c"))
    asked = []
    for _ in range(4):
        world.wait(2)
        for address in ("b", "c"):
            if results(world.said(address)):
                asked.append(address)
                world.answer(address, attempt, pb.VERDICT_RETRY)
    assert set(asked) == {"b", "c"}
    assert all(one != other for one, other in itertools.pairwise(asked)), "in turn"

    world.wait(2)
    for address in ("b", "c"):
        if results(world.said(address)):
            world.answer(address, attempt, pb.VERDICT_ACCEPTED)
    assert world.board.holding() == []


def test_heartbeats_of_a_dispatcher_that_is_gone_find_the_new_owner() -> None:
    world = World(known=("a", "b", "c"))
    for address in ("a", "b", "c"):
        world.connect(address)
    attempt = world.assign("a")
    world.cut("a")
    world.board.listed(("b", "c"))
    world.wait(2)
    frames = {address: world.said(address) for address in ("b", "c")}
    asked = next(address for address in frames if heartbeats(frames[address]))
    other = "c" if asked == "b" else "b"

    world.answer_heartbeats(asked, frames[asked], acknowledgement(attempt.ref, pb.VERDICT_REDIRECT, other))
    world.wait(1)
    frames[other] = world.said(other)
    assert heartbeats(frames[other]) == [attempt.ref.run_id]
    world.answer_heartbeats(other, frames[other])

    world.wait(LEASE_S - 2)
    assert world.stops == [], "the lease was saved"
    world.finish(attempt)
    assert results(world.said(other)) == [attempt.ref.run_id]


def test_a_verdict_on_a_heartbeat_may_come_later_as_an_acknowledgement(world: World) -> None:
    """A dispatcher that does not hold the attempt says RETRY first, and looks the run up."""
    moved, ended = world.assign("a"), world.assign("a")
    world.wait(INTERVAL_S)
    retries = [acknowledgement(attempt.ref, pb.VERDICT_RETRY) for attempt in (moved, ended)]
    world.answer_heartbeats("a", world.said("a"), *retries)
    assert world.stops == []

    world.answer("a", moved, pb.VERDICT_REDIRECT, "b")
    world.answer("a", ended, pb.VERDICT_STALE)

    assert [run_id for run_id, _ in world.stops] == [ended.ref.run_id]
    world.wait(0.5)
    assert heartbeats(world.said("b")) == [moved.ref.run_id]


def test_every_hello_names_everything_whoever_assigned_it(world: World) -> None:
    """A dispatcher that has taken a shard over knows its attempts, and would give away what is not named."""
    first, second = world.assign("a"), world.assign("b")
    world.finish(second)
    assert world.board.holding() == [first.ref, second.ref]


def test_a_running_orphan_that_one_cannot_settle_is_offered_to_the_next() -> None:
    world = World(known=("a", "b", "c"))
    for address in ("a", "b", "c"):
        world.connect(address)
    attempt = world.assign("a")
    world.cut("a")
    world.board.listed(("b", "c"))
    asked = []
    for _ in range(6):
        world.wait(1)
        for address in ("b", "c"):
            frames = world.said(address)
            if heartbeats(frames):
                asked.append(address)
                world.answer_heartbeats(address, frames, acknowledgement(attempt.ref, pb.VERDICT_RETRY))
    assert {"b", "c"} == set(asked)


# ---- heartbeats and leases ----


def test_heartbeats_go_to_the_owner_every_interval_in_one_frame(world: World) -> None:
    first, second = world.assign("a"), world.assign("a")
    other = world.assign("b")
    world.wait(INTERVAL_S)
    frames = world.said("a")
    assert sorted(heartbeats(frames)) == sorted([first.ref.run_id, second.ref.run_id])
    assert sum(frame.HasField("heartbeats") for frame in frames) == 1
    assert heartbeats(world.said("b")) == [other.ref.run_id]


def test_an_idle_stream_sends_no_heartbeats(world: World) -> None:
    world.wait(3 * INTERVAL_S)
    assert world.said("a") == []


def test_a_lease_counts_from_the_sending_of_the_acknowledged_heartbeat(world: World) -> None:
    attempt = world.assign("a")
    began_s = world.clock.now_s
    world.wait(INTERVAL_S)
    frames = world.said("a")
    world.wait(4)
    world.answer_heartbeats("a", frames)
    assert attempt.lease_until_s == began_s + INTERVAL_S + LEASE_S


def test_a_handler_whose_lease_ended_unacknowledged_is_told_and_its_result_is_still_sent(world: World) -> None:
    attempt = world.assign("a")
    world.wait(LEASE_S + 1)
    assert kinds(world) == [StopKind.LEASE_LOST]
    world.said("a")
    world.finish(attempt)
    assert results(world.said("a")) == [attempt.ref.run_id]


def test_a_heartbeat_answered_stale_stops_the_handler_and_drops_its_result(world: World) -> None:
    attempt = world.assign("a")
    world.wait(INTERVAL_S)
    world.answer_heartbeats("a", world.said("a"), acknowledgement(attempt.ref, pb.VERDICT_STALE))
    assert kinds(world) == [StopKind.STALE]
    world.finish(attempt)
    assert results(world.said("a")) == []
    assert world.board.idle


def test_b93_a_heartbeat_that_arrives_after_the_result_changes_nothing(world: World) -> None:
    attempt = world.assign("a")
    world.wait(INTERVAL_S)
    frames = world.said("a")
    world.finish(attempt)
    assert results(world.said("a")) == [attempt.ref.run_id]
    world.answer_heartbeats("a", frames, acknowledgement(attempt.ref, pb.VERDICT_STALE))
    assert world.stops == []
    world.answer("a", attempt, pb.VERDICT_ACCEPTED)
    world.said("a")
    assert world.board.idle


def test_hello_that_is_answered_with_stale_stops_those_handlers(world: World) -> None:
    attempt, other = world.assign("a"), world.assign("a")
    world.cut("a")
    assert heartbeats(world.connect("a", stale=(attempt.ref,))) == [other.ref.run_id]
    assert [run_id for run_id, _ in world.stops] == [attempt.ref.run_id]


def test_a_reconnected_stream_saves_leases_at_once(world: World) -> None:
    attempt = world.assign("a")
    world.cut("a")
    world.wait(LEASE_S - 1)
    frames = world.connect("a")
    assert heartbeats(frames) == [attempt.ref.run_id]
    world.answer_heartbeats("a", frames)
    world.wait(5)
    assert world.stops == []


def test_a_stream_that_answers_no_heartbeat_for_half_a_lease_is_given_up(world: World) -> None:
    world.assign("a")
    world.wait(INTERVAL_S)
    world.said("a")
    assert world.wait(LEASE_S / 2 - 0.5) == []
    assert "a" in world.wait(1)


def test_progress_is_repeated_until_acknowledged_and_precedes_the_result(world: World) -> None:
    attempt = world.assign("a")
    attempt.context.heartbeat({"rows": 1})
    world.wait(INTERVAL_S)
    first = world.said("a")
    world.wait(INTERVAL_S)
    second = world.said("a")
    assert [frame.heartbeats.items[0].progress for frame in first + second if frame.HasField("heartbeats")] == [
        b'{"rows":1}',
        b'{"rows":1}',
    ]
    world.answer_heartbeats("a", first + second)
    world.wait(INTERVAL_S)
    third = [frame for frame in world.said("a") if frame.HasField("heartbeats")]
    assert not third[0].heartbeats.items[0].HasField("progress"), "absent means unchanged"
    world.answer_heartbeats("a", third)

    attempt.context.heartbeat({"rows": 2})
    world.finish(attempt)
    frames = [frame.WhichOneof("frame") for frame in world.said("a")]
    assert frames[:2] == ["heartbeats", "results"]


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
