"""How runs and attempts are shown."""

from __future__ import annotations

from google.protobuf.message import Message
from tidewheel.schedules import to_datetime
from tidewheel.v1 import run_pb2

from tools.cli.commands import Call
from tools.cli.exits import usage
from tools.cli.instants import write_instant
from tools.cli.payload_views import payload_text
from tools.cli.words import name_of, word_of, words_of


def show_run(call: Call, run: run_pb2.Run) -> None:
    """Everything about one run."""
    if call.as_json:
        call.printer.message(run)
        return
    call.printer.facts(
        [
            ("run id", run.run_id),
            ("job", f"{run.job} (version {run.job_version})"),
            ("namespace", run.namespace),
            ("state", state(run)),
            ("why", run.explanation),
            ("cause", word_of(run_pb2.RunCause.DESCRIPTOR, run.cause)),
            ("operation", run.operation_id),
            ("scheduled for", _instant(run, "scheduled_for")),
            ("due at", _instant(run, "due_at") if run.due_at != run.scheduled_for else ""),
            ("buffered", "behind other runs of its job" if run.buffered else ""),
            ("started", _instant(run, "start_time")),
            ("late", lateness(run)),
            ("ended", _instant(run, "end_time")),
            ("attempt", f"{run.attempt} of {run.max_attempts}"),
            ("not before", _instant(run, "not_before")),
            ("cancel requested", _instant(run, "cancel_requested")),
            ("worker", run.worker),
            ("lease until", _instant(run, "lease_until")),
            ("progress", payload_text(run.progress, "")),
            ("result", payload_text(run.result, run.result_type)),
            ("last error", run.last_error),
            ("shard", f"{run.shard} (home term {run.home_term})"),
            ("trace", run.traceparent),
        ]
    )


def show_change(call: Call, done: str, run: run_pb2.Run) -> None:
    """One line about a change, or the run as JSON."""
    if call.as_json:
        call.printer.message(run)
        return
    call.printer.facts([(done, run.run_id), ("job", run.job), ("state", state(run)), ("why", run.explanation)])


def row(run: run_pb2.Run) -> list[str]:
    """The cells of one run in a list."""
    return [
        _instant(run, "scheduled_for"),
        state(run),
        f"{run.attempt}/{run.max_attempts}",
        lateness(run),
        _took(run),
        run.run_id,
        run.worker,
        run.last_error,
    ]


def attempt_row(attempt: run_pb2.Attempt) -> list[str]:
    """The cells of one attempt in a list."""
    return [
        str(attempt.attempt),
        word_of(run_pb2.AttemptOutcome.DESCRIPTOR, attempt.outcome),
        _instant(attempt, "start_time"),
        _took(attempt),
        attempt.worker,
        attempt.error,
    ]


def state(run: run_pb2.Run) -> str:
    return word_of(run_pb2.RunState.DESCRIPTOR, run.state)


def state_name(word: str) -> str:
    """The full name of the state that a word stands for. Raises Failure(USAGE)."""
    name = name_of(run_pb2.RunState.DESCRIPTOR, word)
    if name is None:
        raise usage(f"--state: must be one of {', '.join(words_of(run_pb2.RunState.DESCRIPTOR))}, not {word!r}")
    return name


def lateness(run: run_pb2.Run) -> str:
    """From the instant it was due to its first start, for a run that needed one attempt only."""
    if run.attempt != 1 or not run.HasField("start_time") or not run.HasField("due_at"):
        return ""
    return _seconds((to_datetime(run.start_time) - to_datetime(run.due_at)).total_seconds())


def _took(message: run_pb2.Run | run_pb2.Attempt) -> str:
    if not message.HasField("start_time") or not message.HasField("end_time"):
        return ""
    return _seconds((to_datetime(message.end_time) - to_datetime(message.start_time)).total_seconds())


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if abs(seconds) < 1 else f"{seconds:.2f}s"


def _instant(message: Message, name: str) -> str:
    return write_instant(to_datetime(getattr(message, name))) if message.HasField(name) else ""
