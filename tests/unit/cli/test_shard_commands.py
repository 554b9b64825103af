"""What the commands about shards ask, follow and show; a scripted server answers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import admin_service_pb2 as pb

from tools.cli import placement_rules, shard_moves, shard_views, shards
from tools.cli.commands import Call, Output
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Printer

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)


class ScriptedServer:
    """Answers each method with what `script` makes of the request, and keeps what it was asked."""

    def __init__(self, **script: Callable[[Any], Message]) -> None:
        self._script = script
        self.asked: list[tuple[str, Any]] = []

    async def admin(self, method: str, request: Any) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        self.asked.append((method, copy))
        return self._script[method](copy)

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_views, "_LOOK_EVERY_S", 0.0)


def call(server: ScriptedServer, *, output: Output = Output.TABLE) -> tuple[Call, io.StringIO]:
    stream = io.StringIO()
    return Call(server, "shop", output, Printer(stream, terminal=False), NOW), stream  # type: ignore[arg-type]


def move(shard: int, state: str, **more: Any) -> pb.Move:
    return pb.Move(
        move_id=f"move-{shard}",
        shard=shard,
        from_dispatcher_id="a",
        to_dispatcher_id="b",
        cause=pb.MOVE_CAUSE_OPERATOR,
        state=pb.MoveState.Value(f"MOVE_STATE_{state}"),
        reason="rack 4 ends",
        request_time=Timestamp(seconds=100),
        **more,
    )


def term(number: int, begin: int, end: int | None, owner: str) -> pb.Term:
    return pb.Term(
        term=number, dispatcher_id=owner, from_bucket=begin, to_bucket=end, state=pb.TERM_STATE_OPEN, reason="move"
    )


def lines(stream: io.StringIO) -> list[list[str]]:
    return [line.split() for line in stream.getvalue().splitlines()]


async def test_a_move_is_followed_until_it_has_ended() -> None:
    ends = iter(
        [
            move(3, "SPLIT", boundary=17),
            move(4, "COMPLETED", boundary=17, end_time=Timestamp(seconds=108)),
            move(3, "COMPLETED", boundary=17, end_time=Timestamp(seconds=109)),
        ]
    )
    server = ScriptedServer(
        MoveShards=lambda _: pb.MoveShardsResponse(moves=[move(3, "PENDING"), move(4, "PENDING")]),
        GetMove=lambda _: next(ends),
    )
    made, stream = call(server)
    await shard_moves.move(made, shards=["3-4"], to="b", reason="rack 4 ends", request_id="r")
    asked = server.asked[0][1]
    assert (list(asked.shards), asked.dispatcher_id, asked.reason, asked.request_id) == (
        [3, 4],
        "b",
        "rack 4 ends",
        "r",
    )
    assert server.methods == ["MoveShards", "GetMove", "GetMove", "GetMove"]
    shown = lines(stream)
    assert [(row[0], row[1]) for row in shown[1:]] == [("3", "completed"), ("4", "completed")]
    assert "9.0s" in shown[1]


async def test_a_move_that_was_rolled_back_fails_with_the_reason() -> None:
    back = move(3, "ROLLED_BACK", error="dispatcher b is gone", end_time=Timestamp(seconds=109))
    made, stream = call(ScriptedServer(MoveShards=lambda _: pb.MoveShardsResponse(moves=[back])))
    with pytest.raises(Failure) as failure:
        await shard_moves.move(made, shards=["3"], to="b", reason="why")
    assert (failure.value.code, failure.value.message) == (
        ExitCode.FAILED,
        "1 moves were rolled back; shard 3: dispatcher b is gone",
    )
    assert "dispatcher b is gone" in stream.getvalue()


async def test_a_move_that_goes_on_for_too_long_fails() -> None:
    server = ScriptedServer(
        MoveShards=lambda _: pb.MoveShardsResponse(moves=[move(3, "PENDING")]), GetMove=lambda _: move(3, "ORDERED")
    )
    with pytest.raises(Failure, match="1 of 1 moves go on"):
        await shard_moves.move(call(server)[0], shards=["3"], to="b", reason="why", longest="0s")


async def test_without_waiting_nothing_is_followed() -> None:
    server = ScriptedServer(Rebalance=lambda _: pb.MoveShardsResponse(moves=[move(3, "PENDING")]))
    made, stream = call(server, output=Output.JSON)
    await shard_moves.rebalance(made, reason="why", wait=False)
    assert server.methods == ["Rebalance"]
    assert json.loads(stream.getvalue())["moves"][0]["state"] == "MOVE_STATE_PENDING"


@pytest.mark.parametrize(
    ("texts", "numbers"), [(["7"], [7]), (["8-10", "3", "9"], [3, 8, 9, 10]), (["0-1023"], list(range(1024)))]
)
def test_shards_are_read_as_numbers_and_ranges(texts: list[str], numbers: list[int]) -> None:
    assert shard_moves.read_shards(texts) == numbers


@pytest.mark.parametrize("text", ["", "x", "-1", "3-", "9-8", "0-1024", "3-x", "٣"])
def test_what_is_no_shard_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure) as failure:
        shard_moves.read_shards([text])
    assert failure.value.code is ExitCode.USAGE


async def test_the_list_shows_both_ranges_of_a_hand_off_and_the_load() -> None:
    listed = pb.Shard(
        shard=3,
        dispatcher_id="b",
        term=8,
        watermark_lag_s=1.25,
        terms=[term(7, 10, 17, "a"), term(8, 17, None, "b")],
        fires_per_second=2.5,
        open_runs=4,
        waiting_runs=6,
        move=move(3, "SPLIT"),
    )
    other = pb.Shard(shard=4, frozen=True)
    answer = pb.ListShardsResponse(shards=[listed, other], loads_known=True)
    made, stream = call(ScriptedServer(ListShards=lambda _: answer))
    await shards.list_shards(made)
    _, first, second = lines(stream)
    assert first == ["3", "b", "8", "10-17", "17-", "1.2s", "2.5", "4", "6", "split", "to", "b"]
    assert second == ["4", "nobody", "0", "-", "0.0s", "0.0", "0", "0", "frozen"]


async def test_loads_that_are_not_known_are_not_shown_as_zero() -> None:
    answer = pb.ListShardsResponse(shards=[pb.Shard(shard=4, dispatcher_id="a", term=1)])
    made, stream = call(ScriptedServer(ListShards=lambda _: answer))
    await shards.list_shards(made)
    assert lines(stream)[1] == ["4", "a", "1", "-", "0.0s", "-", "-", "-", "-"]


async def test_the_list_of_one_dispatcher_leaves_the_others_out() -> None:
    answer = pb.ListShardsResponse(shards=[pb.Shard(shard=1, dispatcher_id="a"), pb.Shard(shard=2, dispatcher_id="b")])
    made, stream = call(ScriptedServer(ListShards=lambda _: answer))
    await shards.list_shards(made, dispatcher="b")
    assert [row[0] for row in lines(stream)[1:]] == ["2"]


async def test_one_shard_names_its_hottest_jobs() -> None:
    hot = [pb.HotJob(job_id="j", namespace="shop", name="orders", fires_per_second=9.0), pb.HotJob(job_id="gone")]
    found = pb.Shard(shard=3, dispatcher_id="a", term=7, hottest_jobs=hot, terms=[term(7, 10, None, "a")])
    answer = pb.ListShardsResponse(shards=[found], loads_known=True)
    made, stream = call(ScriptedServer(ListShards=lambda _: answer))
    await shards.show(made, shard=3)
    assert ["hot", "job", "shop/orders", "9.0/s"] in lines(stream)
    assert ["hot", "job", "gone", "0.0/s"] in lines(stream)


async def test_watching_ends_after_its_time() -> None:
    server = ScriptedServer(ListShards=lambda _: pb.ListShardsResponse(shards=[pb.Shard(shard=1)]))
    made, stream = call(server)
    await shards.watch(made, every_s=0.2, longest="300ms")
    assert server.methods == ["ListShards"] * 2
    assert stream.getvalue().count("SHARD") == 2


async def test_a_drain_waits_until_the_dispatcher_has_no_term_left() -> None:
    looks = iter([[term(7, 10, 17, "a"), term(8, 17, None, "b")], [term(7, 10, 17, "a")], [term(8, 17, None, "b")]])
    server = ScriptedServer(
        DrainDispatcher=lambda _: pb.PlacementRule(
            kind=pb.PLACEMENT_RULE_KIND_DRAIN_DISPATCHER, dispatcher_id="a", author="me", reason="why"
        ),
        ListShards=lambda _: pb.ListShardsResponse(shards=[pb.Shard(shard=3, terms=next(looks))]),
    )
    made, stream = call(server)
    await placement_rules.drain(made, dispatcher="a", reason="why")
    assert server.methods == ["DrainDispatcher", "ListShards", "ListShards", "ListShards"]
    assert lines(stream)[1][:2] == ["drain-dispatcher", "a"]


@pytest.mark.parametrize(("shard", "every"), [(None, False), (3, True)])
async def test_a_freeze_is_of_one_shard_or_of_all(shard: int | None, every: bool) -> None:
    server = ScriptedServer()
    with pytest.raises(Failure) as failure:
        await placement_rules.freeze(call(server)[0], reason="why", shard=shard, every=every)
    assert (failure.value.code, server.asked) == (ExitCode.USAGE, [])


async def test_a_freeze_of_all_names_no_shard() -> None:
    rule = pb.PlacementRule(kind=pb.PLACEMENT_RULE_KIND_FREEZE_ALL, reason="why")
    server = ScriptedServer(FreezeShards=lambda _: rule)
    made, stream = call(server)
    await placement_rules.freeze(made, reason="why", every=True)
    assert not server.asked[0][1].HasField("shard")
    assert "all shards" in stream.getvalue()


async def test_a_plan_says_what_it_would_do_and_what_loads_would_be() -> None:
    answer = pb.PlanRebalanceResponse(
        moves=[pb.PlannedMove(shard=3, from_dispatcher_id="a", to_dispatcher_id="b", load=4.0)],
        dispatchers=[
            pb.ExpectedLoad(
                dispatcher_id="a", shards_before=4, shards_after=3, load_before=9.0, load_after=5.0, fair_load=5.0
            )
        ],
        loads_known=False,
    )
    made, stream = call(ScriptedServer(PlanRebalance=lambda _: answer))
    await shard_moves.plan(made)
    shown = lines(stream)
    assert ["a", "4", "3", "9.0", "5.0", "5.0"] in shown
    assert ["3", "4.0", "a", "b"] in shown
    assert "shards are counted" in stream.getvalue()
