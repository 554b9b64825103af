"""What `job explain` and `job ledger` ask and show; a scripted server answers."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_service_pb2, run_pb2

from tools.cli import job_accounts
from tools.cli.commands import Call, Output
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Printer

NOW = datetime(2026, 6, 3, 12, 0, tzinfo=UTC)
KIND = job_service_pb2.LedgerKind


class ScriptedServer:
    """Gives the answers it was told to, in their order, and keeps what it was asked."""

    def __init__(self, *answers: Message) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    async def jobs(self, method: str, request: Any) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        self.asked.append((method, copy))
        return self._answers.pop(0)


def call(server: ScriptedServer, *, output: Output = Output.TABLE, terminal: bool = False) -> tuple[Call, io.StringIO]:
    stream = io.StringIO()
    printer = Printer(stream, terminal=terminal, width=200)
    return Call(server, "shop", output, printer, NOW), stream  # type: ignore[arg-type]


def entry(at: int, kind: str, occurrences: int = 1, **more: Any) -> job_service_pb2.LedgerEntry:
    return job_service_pb2.LedgerEntry(
        scheduled_for=Timestamp(seconds=at), kind=KIND.Value(f"LEDGER_KIND_{kind}"), occurrences=occurrences, **more
    )


def page(*entries: job_service_pb2.LedgerEntry, token: str = "") -> job_service_pb2.GetJobLedgerResponse:
    return job_service_pb2.GetJobLedgerResponse(entries=entries, next_page_token=token)


async def test_an_explanation_says_its_reasons_in_order() -> None:
    server = ScriptedServer(
        job_service_pb2.ExplainJobResponse(
            fires=True, version=3, reasons=["It ran.", "Version 3."], run_id="r", next=Timestamp(seconds=60)
        )
    )
    made, stream = call(server)
    await job_accounts.explain(made, name="report", at="2026-06-01T00:00:00Z")
    ((method, request),) = server.asked
    assert (method, request.namespace, request.name) == ("ExplainJob", "shop", "report")
    assert request.at.ToJsonString() == "2026-06-01T00:00:00Z"
    assert [line.split(maxsplit=1) for line in stream.getvalue().splitlines()] == [
        ["at", "2026-06-01T00:00:00Z"],
        ["fires", "yes"],
        ["version", "3"],
        ["run", "r"],
        ["next", "1970-01-01T00:01:00Z"],
        ["because", "It ran."],
        ["and", "Version 3."],
    ]


async def test_a_ledger_is_read_to_its_last_page() -> None:
    server = ScriptedServer(
        page(entry(0, "RUN", run_id="r", run_state=run_pb2.RUN_STATE_DEAD, job_version=1), token="t"),
        page(entry(60, "SKIPPED", 9, last_scheduled_for=Timestamp(seconds=600), reason="too late", job_version=1)),
    )
    made, stream = call(server)
    await job_accounts.ledger(made, name="report", since="2d ago", until="now")
    assert [request.page_token for _, request in server.asked] == ["", "t"]
    first = server.asked[0][1]
    assert getattr(first, "from").ToJsonString() == "2026-06-01T12:00:00Z"
    assert first.to.ToJsonString() == "2026-06-03T12:00:00Z"
    _, ran, skipped = (line.split() for line in stream.getvalue().splitlines())
    assert ran == ["1970-01-01T00:00:00Z", "-", "1", "run", "r", "dead", "1", "-"]
    assert skipped[:4] == ["1970-01-01T00:01:00Z", "1970-01-01T00:10:00Z", "9", "skipped"]


async def test_what_must_not_be_is_counted_first_over_all_pages() -> None:
    server = ScriptedServer(page(entry(0, "RUN"), entry(1, "MISSING"), token="t"), page(entry(2, "RUN")))
    made, stream = call(server, output=Output.JSON)
    await job_accounts.ledger(made, name="report")
    assert json.loads(stream.getvalue())["counts"] == [
        {"kind": "LEDGER_KIND_MISSING", "occurrences": "1"},
        {"kind": "LEDGER_KIND_RUN", "occurrences": "2"},
    ]


@pytest.mark.parametrize(("kind", "fails"), [("MISSING", True), ("UNEXPECTED", True), ("DUE", False), ("RUN", False)])
async def test_a_check_fails_where_the_ledger_does_not_add_up(kind: str, fails: bool) -> None:
    for check in (False, True):
        made, _ = call(ScriptedServer(page(entry(0, kind))))
        if check and fails:
            with pytest.raises(Failure, match=f"1 {kind.lower()}") as failure:
                await job_accounts.ledger(made, name="report", check=True)
            assert failure.value.code is ExitCode.FAILED
        else:
            await job_accounts.ledger(made, name="report", check=check)


async def test_a_check_fails_where_nobody_can_know() -> None:
    made, _ = call(ScriptedServer(page(entry(0, "MISSING", 0, reason="not readable"))))
    with pytest.raises(Failure, match="some missing"):
        await job_accounts.ledger(made, name="report", check=True)


async def test_a_limit_says_that_there_is_more() -> None:
    made, stream = call(ScriptedServer(page(entry(0, "RUN"), entry(1, "RUN"), token="t")), terminal=True)
    await job_accounts.ledger(made, name="report", limit=2)
    assert stream.getvalue().splitlines()[-2:] == ["2 run", "there is more: --limit 0 shows all"]


@pytest.mark.parametrize("command", [job_accounts.explain, job_accounts.ledger])
async def test_a_job_must_be_named_in_one_way(command: Any) -> None:
    for named in ({}, {"name": "a", "job_id": "b"}):
        made, _ = call(ScriptedServer())
        with pytest.raises(Failure, match="either a name or --id"):
            await command(made, **named)
