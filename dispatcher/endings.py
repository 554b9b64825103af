"""How a word about an attempt ends it, and what becomes of its run. Pure.

The retry policy decides between another attempt and DEAD; attempts that were lost with their worker or timed out count
like failed ones, so that a job that kills its workers is bounded too. Given-back assignments never started: they do not
count.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.buckets import BucketScale
from core.jobspec import MAX_ERROR_CHARS, MAX_RESULT_BYTES
from core.states import AttemptOutcome, RunEvent, RunState, next_run_state
from core.store.completion import Ending
from dispatcher.attempts import LiveAttempt


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: bytes
    result_type: str


@dataclass(frozen=True, slots=True)
class Failed:
    error: str
    retryable: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler stopped because it was told to."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The assignment was never started."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody spoke for the attempt until its lease ended."""


Word = Succeeded | Failed | Stopped | GivenBack | Lost


def ending_of(
    word: Word, live: LiveAttempt, *, by_worker: bool, now_us: int, spread: float, scale: BucketScale
) -> Ending:
    """The ending that `word` makes of `live`; `spread` in [-1, 1] places the retry inside its jitter.

    `by_worker`: proven by the attempt's secret; otherwise by the lease end that the owner's memory holds of SQL.
    Progress that was acknowledged and is not known to be written goes with it: the next attempt begins from there.
    """
    event, outcome, error = _judge(word, live)
    state = next_run_state(RunState.LEASED, event)
    retry_at_us = 0
    if event is RunEvent.RETRY:
        retry_at_us = now_us + max(1, live.job.spec.retry.delay_us(live.attempt - live.uncounted, spread))
    result = word.result if isinstance(word, Succeeded) and event is RunEvent.SUCCEED else None
    return Ending(
        shard=live.shard,
        term=live.term,
        run_id=live.run_id,
        attempt=live.attempt,
        state=state,
        outcome=outcome,
        token_hash=live.token_hash if by_worker else None,
        lease_until_us=0 if by_worker else live.sql_lease_until_us,
        error=_storable(error[:MAX_ERROR_CHARS]),
        result=result,
        result_type=_storable(word.result_type) if isinstance(word, Succeeded) else "",
        progress=live.progress if live.progress_unsaved else None,
        retry_at_us=retry_at_us,
        retry_bucket=scale.bucket_of(retry_at_us),
        uncounted=1 if event is RunEvent.RETURN else 0,
        stands_open=live.stands_open,
    )


def _storable(text: str) -> str:
    """What workers write as the databases take it: no text there holds the NUL character."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _judge(word: Word, live: LiveAttempt) -> tuple[RunEvent, AttemptOutcome, str]:
    match word:
        case Succeeded(result=result) if len(result) > MAX_RESULT_BYTES:
            error = f"the result is {len(result)} bytes; at most {MAX_RESULT_BYTES} are kept"
            return RunEvent.FAIL, AttemptOutcome.FAILED, error
        case Succeeded():
            return RunEvent.SUCCEED, AttemptOutcome.SUCCEEDED, ""
        case GivenBack():
            # Recorded nowhere: the outcome is not written for an attempt that does not count.
            return RunEvent.RETURN, AttemptOutcome.CANCELED, ""
        case Stopped() if live.cancel_requested:
            return RunEvent.CONFIRM_CANCEL, AttemptOutcome.CANCELED, "canceled on request"
        case Stopped() if live.timed_out:
            return _retry_or_exhaust(live), AttemptOutcome.TIMED_OUT, "ran longer than its start-to-close timeout"
        case Stopped():
            return _retry_or_exhaust(live), AttemptOutcome.FAILED, "the worker stopped the handler"
        case Failed(error=error, retryable=False):
            return RunEvent.FAIL, AttemptOutcome.FAILED, error
        case Failed(error=error, timed_out=True):
            return _retry_or_exhaust(live), AttemptOutcome.TIMED_OUT, error
        case Failed(error=error):
            return _retry_or_exhaust(live), AttemptOutcome.FAILED, error
        case Lost() if live.cancel_requested:
            return RunEvent.CONFIRM_CANCEL, AttemptOutcome.CANCELED, "canceled on request; the worker never answered"
        case Lost() if live.timed_out:
            return _retry_or_exhaust(live), AttemptOutcome.TIMED_OUT, "ran longer than its start-to-close timeout"
        case Lost():
            return (
                _retry_or_exhaust(live),
                AttemptOutcome.LOST,
                f"worker {live.worker} was not heard of until its lease ended",
            )


def _retry_or_exhaust(live: LiveAttempt) -> RunEvent:
    counted = live.attempt - live.uncounted
    return RunEvent.RETRY if counted < live.job.spec.retry.max_attempts else RunEvent.EXHAUST
