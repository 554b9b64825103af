"""What happens to the attempts of a dispatcher that is gone. The clock stands still."""

from __future__ import annotations

import itertools

import pytest
from tidewheel.context import StopKind
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
