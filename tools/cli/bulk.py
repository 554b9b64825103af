"""Pausing and resuming many jobs: asks the server how many are meant, then the caller whether that is right.

Called by `tidewheel job pause` and `tidewheel job resume`, where labels or a whole namespace were given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from tools.cli.commands import Call
from tools.cli.exits import ExitCode, Failure, usage


async def pause_many(
    call: Call, labels: Sequence[str], *, note: str, yes: bool, wait: bool = True, request_id: str | None = None
) -> None:
    """Pause the active jobs that have all of `labels` (KEY=VALUE); without labels every one of the namespace."""
    from tidewheel.v1 import job_service_pb2

    request = job_service_pb2.PauseJobsRequest(selector=_selector(call, labels))
    await _change(call, "PauseJobs", "pause", request, note=note, yes=yes, wait=wait, request_id=request_id)


async def resume_many(
    call: Call,
    labels: Sequence[str],
    *,
    catch_up: bool,
    note: str,
    yes: bool,
    wait: bool = True,
    request_id: str | None = None,
) -> None:
    """Resume the paused jobs that have all of `labels`; without labels every one of the namespace."""
    from tidewheel.v1 import job_service_pb2

    choice = job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP if catch_up else job_service_pb2.PAUSED_OCCURRENCES_SKIP
    request = job_service_pb2.ResumeJobsRequest(selector=_selector(call, labels), paused=choice)
    await _change(call, "ResumeJobs", "resume", request, note=note, yes=yes, wait=wait, request_id=request_id)


def _selector(call: Call, labels: Sequence[str]) -> Any:
    from tidewheel.v1 import job_service_pb2

    selector = job_service_pb2.JobSelector(namespace=call.namespace)
    for label in labels:
        key, separator, value = label.partition("=")
        if not separator or not key:
            raise usage(f"--label: {label!r} is not KEY=VALUE")
        selector.labels[key] = value
    return selector


async def _change(
    call: Call, method: str, verb: str, request: Any, *, note: str, yes: bool, wait: bool, request_id: str | None
) -> None:
    from tools.cli import api, operation_views

    if not note.strip():
        raise usage("--note is required: say why, for the history of every job")
    request.validate_only = True
    counted = await call.api.jobs(method, request)
    if counted.count == 0 and not call.as_json:
        call.printer.line(f"no job to {verb}")
        return
    if not yes:
        _confirm(f"{verb} {_what(counted)}?")
    request.validate_only = False
    request.expected_count, request.note, request.request_id = counted.count, note, api.request_id(request_id)
    answer = await call.api.jobs(method, request)
    if wait:
        answer.operation.CopyFrom(await operation_views.followed(call, answer.operation))
    if call.as_json:
        call.printer.message(answer)
    else:
        operation_views.show(call, answer.operation)
    operation_views.check_success(answer.operation)


def _what(counted: Any) -> str:
    """How many jobs, and the first of their names."""
    from tools.cli.plain_text import one_line

    names = ", ".join(counted.names)
    others = counted.count - len(counted.names)
    more = f" and {others} more" if others > 0 else ""
    return one_line(f"{counted.count} job{'s' if counted.count != 1 else ''} ({names}{more})")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise usage(f"{question} Nobody is there to say yes", "--yes agrees beforehand")
    if not typer.confirm(question, err=True):
        raise Failure(ExitCode.FAILED, "nothing was changed")
