"""What to answer to a word that was not recorded: judged by the run's row, never "stale" unread. Pure.

Rule of ownership 13: a word whose secret is current is redirected to the run's home, or asked for again; it is stale
only when the run has ended otherwise or a newer attempt exists. "Accepted" says that this very word stands in SQL: it
was sent before, and its acknowledgement was lost.
"""

from __future__ import annotations

import hmac

from tidewheel.v1 import worker_service_pb2 as pb

from core.ids import token_hash
from core.jobspec import MAX_RESULT_BYTES
from core.states import AttemptOutcome, RunState
from core.store.completion import RunHolding
from dispatcher.endings import Failed, GivenBack, Lost, Stopped, Succeeded, Word


def verdict_on(
    word: Word, attempt: int, token: bytes | None, holding: RunHolding | None, *, at_home: bool
) -> pb.Verdict:
    """Judge a word about `attempt`; `token` None is the owner's own. `at_home`: its home term is held here."""
    if holding is None or holding.token_hash is None or holding.attempt != attempt:
        return pb.VERDICT_STALE
    if token is not None and not hmac.compare_digest(holding.token_hash, token_hash(token)):
        return pb.VERDICT_STALE
    if holding.state is RunState.LEASED:
        # At home and not in memory yet: adoption is on its way.
        return pb.VERDICT_RETRY if at_home else pb.VERDICT_REDIRECT
    return pb.VERDICT_ACCEPTED if _was_recorded(word, holding) else pb.VERDICT_STALE


def _was_recorded(word: Word, holding: RunHolding) -> bool:
    outcome = holding.outcome
    match word:
        case Succeeded(result=result) if len(result) > MAX_RESULT_BYTES:
            return outcome is AttemptOutcome.FAILED
        case Succeeded():
            return outcome is AttemptOutcome.SUCCEEDED
        case Failed():
            return outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)
        case Stopped():
            return outcome in (AttemptOutcome.CANCELED, AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)
        case GivenBack():
            return outcome is None
        case Lost():
            return False
