"""One sentence for a run: why it is in its state, why it waits, why it ended so. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from core.states import RunCause, RunState
from core.store.runs import RunRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_ERROR_CHARS = 200


def explain(run: RunRecord, now_us: int) -> str:
    """The sentence for `run` as it stands at `now_us`."""
    match run.state:
        case RunState.PENDING:
            return _why_pending(run, now_us)
        case RunState.LEASED:
            return _why_leased(run)
        case RunState.SUCCEEDED:
            return f"Attempt {run.attempt} succeeded."
        case RunState.FAILED:
            return f"Attempt {run.attempt} failed with an error that its handler does not want retried{_because(run)}."
        case RunState.DEAD:
            return f"All attempts are used up: attempt {run.attempt} was the last one{_because(run)}."
        case RunState.CANCELED:
            when = "before it was started" if run.attempt == 0 else f"after {run.attempt} attempts"
            return f"Canceled {when}, as was asked for at {_shown(run.cancel_requested_us)}."


def _why_pending(run: RunRecord, now_us: int) -> str:
    if run.attempt > 0 and run.not_before_us > now_us:
        return f"Attempt {run.attempt} ended{_because(run)}; the next one starts at {_shown(run.not_before_us)}."
    if run.not_before_us > now_us:
        if run.cause is RunCause.BACKFILL:
            return f"Made by a backfill: its pace makes it due at {_shown(run.not_before_us)}."
        return f"Triggered with a delay: due at {_shown(run.due_at_us)}."
    if run.home_term == 0:
        cause = {RunCause.TRIGGER: "Triggered", RunCause.BACKFILL: "Made by a backfill"}.get(run.cause, "Due")
        return f"{cause}; the owner of shard {run.shard} has not picked it up yet."
    if run.gated and run.attempt == 0:
        return f"Due since {_shown(run.due_at_us)}; waits for its turn behind the other open runs of its job."
    return f"Due since {_shown(max(run.due_at_us, run.not_before_us))}; waits for a free worker on queue {run.queue!r}."


def _why_leased(run: RunRecord) -> str:
    told = ""
    if run.cancel_requested_us > 0:
        told = f"; a cancel was asked for at {_shown(run.cancel_requested_us)} and the worker is told"
    return f"Worker {run.worker!r} holds attempt {run.attempt} under a lease until {_shown(run.lease_until_us)}{told}."


def _because(run: RunRecord) -> str:
    first_line = run.last_error.strip().splitlines()[0] if run.last_error.strip() else ""
    if not first_line:
        return ""
    cut = first_line if len(first_line) <= _SHOWN_ERROR_CHARS else f"{first_line[:_SHOWN_ERROR_CHARS]}..."
    return f" ({cut})"


def _shown(instant_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=instant_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
