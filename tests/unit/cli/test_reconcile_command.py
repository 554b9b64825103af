"""What `tidewheel reconcile` asks, shows, and ends with; a scripted server answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import admin_service_pb2 as pb

from tests.unit.cli.test_shard_commands import ScriptedServer, call, lines
from tools.cli.commands import Output
from tools.cli.exits import ExitCode, Failure
from tools.cli.reconcile import reconcile


def finding(subject: str = "due row 7", *, repaired: bool = True) -> pb.Finding:
    return pb.Finding(
        kind=pb.FINDING_KIND_DUE_BELOW_WATERMARK,
        shard=3,
        subject=subject,
        detail="below the watermark 12",
        since=Timestamp(seconds=100),
        repaired=repaired,
        how="a due row was landed" if repaired else "no rule",
    )


def answers(*parts: pb.ReconcileResponse) -> ScriptedServer:
    left = iter(parts)
    return ScriptedServer(Reconcile=lambda _: next(left))


async def test_a_pass_that_finds_nothing_ends_well() -> None:
    server = answers(pb.ReconcileResponse())
    made, stream = call(server)
    await reconcile(made, dry_run=True)
    assert [row[0] for row in lines(stream)] == ["KIND"], "a pipe gets the head alone"
    (asked,) = [request for _, request in server.asked]
    assert (asked.dry_run, list(asked.shards), asked.reason, asked.request_id) == (True, [], "", "")


async def test_a_pass_that_repairs_everything_ends_well_with_a_row_a_finding() -> None:
    made, stream = call(answers(pb.ReconcileResponse(findings=[finding("due row 7"), finding("due row 8")])))
    await reconcile(made, reason="after the restore", request_id="r")
    rows = lines(stream)[1:]
    assert [row[:8] for row in rows] == [
        ["due", "below", "watermark", "3", "due", "row", number, "yes"] for number in ("7", "8")
    ]


async def test_what_is_left_fails_and_is_shown_all_the_same() -> None:
    made, stream = call(answers(pb.ReconcileResponse(findings=[finding(), finding(repaired=False)])))
    with pytest.raises(Failure) as failure:
        await reconcile(made, reason="why")
    assert (failure.value.code, failure.value.message) == (ExitCode.FAILED, "1 of 2 findings are not repaired")
    assert "no rule" in stream.getvalue()


async def test_parts_are_asked_for_until_the_end_each_under_its_own_id() -> None:
    server = answers(
        pb.ReconcileResponse(findings=[finding("a")], next_page_token="next"),
        pb.ReconcileResponse(next_page_token="last"),
        pb.ReconcileResponse(findings=[finding("b")]),
    )
    made, stream = call(server, output=Output.JSON)
    await reconcile(made, shards=["2-3", "7"], reason="why", request_id="r")
    asked: list[Any] = [request for _, request in server.asked]
    assert [(one.request_id, one.page_token) for one in asked] == [("r", ""), ("r-1", "next"), ("r-2", "last")]
    assert {tuple(one.shards) for one in asked} == {(2, 3, 7)}
    assert [each["subject"] for each in json.loads(stream.getvalue())["findings"]] == ["a", "b"]


@pytest.mark.parametrize("reason", ["", "  "])
async def test_a_repair_without_a_reason_is_not_asked_for(reason: str) -> None:
    server = answers()
    with pytest.raises(Failure) as failure:
        await reconcile(call(server)[0], reason=reason)
    assert (failure.value.code, server.asked) == (ExitCode.USAGE, [])
