"""Who is told what: verdicts, broken streams, lost dispatchers, heartbeats and leases. The clock stands still."""

from __future__ import annotations

import pytest
from tidewheel.context import StopKind
from tidewheel.delivery import RETRY_PAUSE_S
from tidewheel.v1 import worker_service_pb2 as pb

from tests.link.scripted_dispatcher import acknowledgement
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
