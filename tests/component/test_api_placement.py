"""AdminService's moves, drains, freezes and plans: what is taken, what is refused, what is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import grpc
import pytest
from tidewheel.v1 import admin_service_pb2 as pb

from core.buckets import NO_END
from tests.support.control_plane import SHARDS, ControlPlane, refused, settings_for
from tests.support.played_dispatcher import Dispatcher
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer

OPEN = 1


@pytest.fixture
async def plane(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[ControlPlane]:
    """A replica that serves, and whose leader asks for no moves of its own."""
    settings = settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, rebalance=False)
    started = ControlPlane(settings)
    yield await started.serving()
    await started.close()


@pytest.fixture
async def owners(plane: ControlPlane, eye: asyncpg.Connection) -> AsyncIterator[list[Dispatcher]]:
    """d1 owns every shard by SQL, d2 none; both live and report. They carry nothing out."""
    await eye.executemany(
        "INSERT INTO shard_terms (shard, term, from_bucket, to_bucket, owner, op_id, state, opened_us, reason)"
        " VALUES ($1, 1, 0, $2, 'd1', $3, $4, 1, 'first claim')",
        [(shard, NO_END, uuid4(), OPEN) for shard in range(SHARDS)],
    )
    etcd, cluster = plane.settings.etcd.endpoints[0], plane.settings.cluster.name
    joined = [await Dispatcher(etcd, cluster, name).join() for name in ("d1", "d2")]
    for each in joined:
        each.report_to(plane.address)

    async def seen() -> bool:
        listed = (await plane.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
        return [(one.dispatcher_id, one.open_runs) for one in listed] == [("d1", 3), ("d2", 3)]

    await eventually(seen)
    # One that may not be moved.
    await plane.admin.FreezeShards(pb.FreezeShardsRequest(shard=0, reason="not this one"))
    yield joined
    for each in joined:
        await each.leave()


def wish(*shards: int, to: str = "d2", reason: str = "rack 4 ends", request_id: str = "") -> pb.MoveShardsRequest:
    return pb.MoveShardsRequest(shards=shards, dispatcher_id=to, reason=reason, request_id=request_id)


async def audited(eye: asyncpg.Connection, action: str) -> list[tuple[Any, ...]]:
    rows = await eye.fetch("SELECT object, note FROM audit WHERE action = $1 ORDER BY at_us, object", action)
    return [tuple(row) for row in rows]


async def test_a_wish_is_written_down_audited_and_listed(
    plane: ControlPlane, owners: list[Dispatcher], eye: asyncpg.Connection
) -> None:
    made = (await plane.admin.MoveShards(wish(3, 5))).moves
    assert [(m.shard, m.from_dispatcher_id, m.from_term, m.to_dispatcher_id) for m in made] == [
        (3, "d1", 1, "d2"),
        (5, "d1", 1, "d2"),
    ]
    assert {(m.cause, m.reason, m.author) for m in made} == {(pb.MOVE_CAUSE_OPERATOR, "rack 4 ends", "unauthenticated")}
    assert await audited(eye, "shard.move") == [("3", "rack 4 ends"), ("5", "rack 4 ends")]
    found = await plane.admin.GetMove(pb.GetMoveRequest(move_id=made[0].move_id))
    assert found.shard == 3
    shard = (await plane.admin.ListShards(pb.ListShardsRequest(shard=3))).shards[0]
    assert shard.move.move_id == made[0].move_id


async def test_moves_are_listed_newest_first_in_pages_and_by_shard(
    plane: ControlPlane, owners: list[Dispatcher]
) -> None:
    for shard in (3, 5, 6):
        await plane.admin.MoveShards(wish(shard))
    first = await plane.admin.ListMoves(pb.ListMovesRequest(page_size=2))
    rest = await plane.admin.ListMoves(pb.ListMovesRequest(page_size=2, page_token=first.next_page_token))
    assert [move.shard for move in [*first.moves, *rest.moves]] == [6, 5, 3]
    assert rest.next_page_token == ""
    of_one = await plane.admin.ListMoves(pb.ListMovesRequest(shard=5))
    assert [move.shard for move in of_one.moves] == [5]
    refusal = await refused(plane.admin.ListMoves(pb.ListMovesRequest(shard=3, page_token=first.next_page_token)))
    assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, ["page_token"])


async def test_the_second_of_two_wishes_for_a_shard_is_refused_and_told_of_the_first(
    plane: ControlPlane, owners: list[Dispatcher]
) -> None:
    (first,) = (await plane.admin.MoveShards(wish(3))).moves
    refusal = await refused(plane.admin.MoveShards(wish(2, 3)))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert first.move_id in refusal.message
    listed = (await plane.admin.ListMoves(pb.ListMovesRequest(open_only=True))).moves
    assert [move.shard for move in listed] == [3], "all or none"


async def test_a_repeat_with_the_same_request_id_gets_the_first_answer(
    plane: ControlPlane, owners: list[Dispatcher]
) -> None:
    first = await plane.admin.MoveShards(wish(3, request_id="r-1"))
    assert (await plane.admin.MoveShards(wish(3, request_id="r-1"))).moves[0].move_id == first.moves[0].move_id
    refusal = await refused(plane.admin.MoveShards(wish(4, request_id="r-1")))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_REUSED")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (wish(3, reason=" "), "reason"),
        (wish(3, reason="x" * 1025), "reason"),
        (wish(), "shards"),
        (wish(3, 3), "shards"),
        (wish(3, to=""), "dispatcher_id"),
        (wish(3, request_id="\n"), "request_id"),
    ],
)
async def test_a_wish_that_breaks_a_rule_names_the_field(
    plane: ControlPlane, request_: pb.MoveShardsRequest, field: str
) -> None:
    refusal = await refused(plane.admin.MoveShards(request_))
    assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


async def test_what_cannot_be_moved_is_refused_with_the_reason(plane: ControlPlane, owners: list[Dispatcher]) -> None:
    refusals = {
        "nobody": await refused(plane.admin.MoveShards(wish(3, to="d9"))),
        "no shard": await refused(plane.admin.MoveShards(wish(SHARDS))),
        "at home": await refused(plane.admin.MoveShards(wish(3, to="d1"))),
        "frozen": await refused(plane.admin.MoveShards(wish(0))),
    }
    await plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id="d2", reason="kernel"))
    refusals["drained"] = await refused(plane.admin.MoveShards(wish(3)))
    codes = {name: refusal.code.name for name, refusal in refusals.items()}
    assert codes == {
        "nobody": "NOT_FOUND",
        "no shard": "NOT_FOUND",
        "at home": "FAILED_PRECONDITION",
        "frozen": "FAILED_PRECONDITION",
        "drained": "FAILED_PRECONDITION",
    }
    assert "shard 3 is at d1 already" in refusals["at home"].message
    assert "frozen" in refusals["frozen"].message
    assert "drains" in refusals["drained"].message


async def test_rules_stand_until_they_are_lifted(
    plane: ControlPlane, owners: list[Dispatcher], eye: asyncpg.Connection
) -> None:
    await plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id="d1", reason="kernel"))
    again = await plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id="d1", reason="other"))
    assert again.reason == "kernel", "what stands stays"
    await plane.admin.FreezeShards(pb.FreezeShardsRequest(reason="incident"))
    listed = (await plane.admin.ListPlacementRules(pb.ListPlacementRulesRequest())).rules
    assert [(rule.kind, rule.dispatcher_id, rule.reason) for rule in listed] == [
        (pb.PLACEMENT_RULE_KIND_FREEZE_ALL, "", "incident"),
        (pb.PLACEMENT_RULE_KIND_FREEZE_SHARD, "", "not this one"),
        (pb.PLACEMENT_RULE_KIND_DRAIN_DISPATCHER, "d1", "kernel"),
    ]
    shards = (await plane.admin.ListShards(pb.ListShardsRequest())).shards
    assert all(shard.frozen for shard in shards)
    await plane.admin.UnfreezeShards(pb.UnfreezeShardsRequest(reason="over"))
    shards = (await plane.admin.ListShards(pb.ListShardsRequest())).shards
    assert [shard.shard for shard in shards if shard.frozen] == [0]
    await plane.admin.UndrainDispatcher(pb.UndrainDispatcherRequest(dispatcher_id="d1", reason="done"))
    refusal = await refused(
        plane.admin.UndrainDispatcher(pb.UndrainDispatcherRequest(dispatcher_id="d1", reason="done"))
    )
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert await audited(eye, "dispatcher.drain") == [("d1", "kernel")]
    assert await audited(eye, "dispatcher.undrain") == [("d1", "done")]
    assert await audited(eye, "shards.unfreeze") == [("", "over")]


async def test_a_rule_needs_a_reason_and_something_to_rule_over(plane: ControlPlane) -> None:
    refusal = await refused(plane.admin.FreezeShards(pb.FreezeShardsRequest()))
    assert (refusal.code, list(refusal.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, ["reason"])
    refusal = await refused(plane.admin.FreezeShards(pb.FreezeShardsRequest(shard=SHARDS, reason="r")))
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    refusal = await refused(plane.admin.DrainDispatcher(pb.DrainDispatcherRequest(dispatcher_id="d9", reason="r")))
    assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_a_plan_can_be_asked_of_any_replica_and_changes_nothing(
    plane: ControlPlane, owners: list[Dispatcher], database_url: str, isolation: str, etcd: EtcdServer
) -> None:
    await plane.admin.FreezeShards(pb.FreezeShardsRequest(reason="hold still"))
    other = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, plane.settings.cluster.name))
    try:
        await other.serving()
        seen = await other.status()
        assert seen.leader != seen.replica

        async def planned() -> bool:
            plan = await other.admin.PlanRebalance(pb.PlanRebalanceRequest())
            return [(one.dispatcher_id, one.shards_before) for one in plan.dispatchers] == [("d1", SHARDS), ("d2", 0)]

        await eventually(planned)
        listed = (await other.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
        assert [one.open_runs for one in listed] == [3, 3], "asked of the leader"
        refusal = await refused(other.admin.Rebalance(pb.RebalanceRequest(reason="now")))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION, "the leader's own refusal: all is frozen"
        assert "frozen" in refusal.message
    finally:
        await other.close()
