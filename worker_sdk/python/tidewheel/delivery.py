"""Who is told what about the attempts that this worker holds, and what their answers mean. No I/O.

Results are said until a dispatcher has answered ACCEPTED or STALE; heartbeats as long as a handler runs. Both go to
the dispatcher that the attempt is bound to; REDIRECT binds it to another. If its dispatcher is gone from the list and
its stream is broken, the attempt is offered to the dispatchers that are left, one after the other with a pause: each
of them can say whose it is now. Called by switchboard.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidewheel.attempts import Attempt, Attempts
from tidewheel.context import Stop, StopKind, progress_of
from tidewheel.effects import Extended
from tidewheel.outcomes import result_size, settle_timeout
from tidewheel.protocol import ITEM_BYTES, StreamProtocol
from tidewheel.v1.worker_service_pb2 import (
    VERDICT_ACCEPTED,
    VERDICT_REDIRECT,
    VERDICT_RETRY,
    VERDICT_STALE,
    Acknowledgement,
    AttemptRef,
    Result,
)

# After RETRY, and between two offers of an attempt whose dispatcher is gone.
RETRY_PAUSE_S = 0.5
# How often that pause doubles while a heartbeat is answered with RETRY again and again: to 4 s at most.
RETRY_DOUBLINGS = 3
# From the second redirect in a row on: two dispatchers that point at each other must not make a storm.
REDIRECT_PAUSE_S = 0.25
# How long a connection to the address of a redirect may take before the attempt counts as orphaned.
BOUND_GRACE_S = 1.0
# After its time limit an attempt ends as timed out, whether or not its handler obeys.
ABANDON_AFTER_S = 5.0


@dataclass(slots=True)
class Stream:
    """An open stream and what its Welcome said."""

    protocol: StreamProtocol
    heartbeat_interval_s: float
    lease_s: float
    next_heartbeat_s: float


class Delivery:
    """Results and heartbeats on their way. `streams` is the switchboard's, by address."""

    def __init__(self, attempts: Attempts, streams: dict[str, Stream], stop: Callable[[Attempt, Stop], None]) -> None:
        self._attempts = attempts
        self._streams = streams
        self._stop = stop
        # The dispatchers that discovery names.
        self.known: tuple[str, ...] = ()
        self._offers = 0

    def opened(self, address: str, stale: Iterable[AttemptRef], now_s: float) -> None:
        """A stream opened: everything bound to it is said anew, since nobody knows what the old one delivered."""
        for ref in stale:
            attempt = self._attempts.get((ref.run_id, ref.attempt))
            if attempt is not None:
                self._forget(attempt)
        self.beat(address, now_s)
        for attempt in self._attempts.bound_to(address):
            if attempt.result is not None:
                self._say(attempt, now_s)

    def report(self, attempt: Attempt, result: Result, now_s: float) -> None:
        """The attempt has an outcome."""
        attempt.result = result
        attempt.size = ITEM_BYTES + result_size(result)
        self._say(attempt, now_s)

    def _say(self, attempt: Attempt, now_s: float) -> None:
        stream = self._streams.get(attempt.address)
        if stream is None or attempt.result is None:
            return
        if progress_of(attempt.context)[0] > attempt.progress_acknowledged:
            # The next attempt gets the last progress of this one, so it has to arrive before the end.
            stream.protocol.heartbeat([_beat(attempt)], now_s)
        stream.protocol.result(attempt.result, attempt.size)
        attempt.sent_s = now_s
        attempt.say_again_s = now_s + stream.lease_s

    def beat(self, address: str, now_s: float) -> None:
        """Heartbeats for everything that runs, and for results that have been on their way for an interval."""
        stream = self._streams[address]
        stream.next_heartbeat_s = now_s + stream.heartbeat_interval_s
        late_s = now_s - stream.heartbeat_interval_s
        items = [
            _beat(attempt)
            for attempt in self._attempts.bound_to(address)
            if attempt.result is None or attempt.sent_s <= late_s
        ]
        stream.protocol.heartbeat(items, now_s)

    # ---- answers ----

    def acknowledged(self, items: Sequence[Acknowledgement], now_s: float) -> None:
        """Verdicts on results; and on heartbeats, where the dispatcher had to look the run up to know."""
        for item in items:
            attempt = self._attempts.get((item.run_id, item.attempt))
            if attempt is None:
                continue
            if attempt.result is None:
                self._heartbeat_refused(attempt, item, now_s)
            elif item.verdict == VERDICT_ACCEPTED:
                self._attempts.remove(attempt)
            elif item.verdict == VERDICT_STALE:
                self._forget(attempt)
            elif item.verdict == VERDICT_REDIRECT and item.owner_address:
                self._redirect(attempt, item.owner_address, now_s)
            else:
                attempt.say_again_s = now_s + _spread(RETRY_PAUSE_S)

    def extended(self, effect: Extended, now_s: float) -> None:
        """Verdicts on heartbeats: those that are not named are extended."""
        exceptions = {(item.run_id, item.attempt): item for item in effect.exceptions}
        for key, reports in effect.beats:
            attempt = self._attempts.get(key)
            if attempt is None:
                continue
            exception = exceptions.get(key)
            if exception is not None and exception.verdict != VERDICT_ACCEPTED:
                # Of a run that ended because its result was accepted, a heartbeat that came later is stale too: once
                # a result waits for its own verdict, those on heartbeats say nothing.
                if attempt.result is None:
                    self._heartbeat_refused(attempt, exception, now_s)
                continue
            stream = self._streams.get(attempt.address)
            if stream is not None:
                attempt.lease_until_s = max(attempt.lease_until_s, effect.sent_s + stream.lease_s)
            attempt.progress_acknowledged = max(attempt.progress_acknowledged, reports)
            attempt.orphaned = False
            attempt.redirects = attempt.retries = 0
            attempt.beat_again_s = math.inf

    def _heartbeat_refused(self, attempt: Attempt, verdict: Acknowledgement, now_s: float) -> None:
        if verdict.verdict == VERDICT_STALE:
            self._forget(attempt)
        elif verdict.verdict == VERDICT_REDIRECT and verdict.owner_address:
            self._redirect(attempt, verdict.owner_address, now_s)
        elif verdict.verdict == VERDICT_RETRY and attempt.orphaned:
            attempt.offer_s = now_s + _spread(RETRY_PAUSE_S)
        elif verdict.verdict == VERDICT_RETRY:
            # A dispatcher that is about to take the run over may need a moment: the next interval would cost a third
            # of the lease.
            pause_s = RETRY_PAUSE_S * 2 ** min(attempt.retries, RETRY_DOUBLINGS)
            attempt.retries += 1
            attempt.beat_again_s = min(attempt.beat_again_s, now_s + _spread(pause_s))

    def _forget(self, attempt: Attempt) -> None:
        """It is no longer ours: its result is not wanted, its handler has to stop."""
        attempt.forgotten = True
        self._attempts.remove(attempt)
        self._stop(attempt, Stop(StopKind.STALE, StopKind.STALE.value))

    def _redirect(self, attempt: Attempt, address: str, now_s: float) -> None:
        attempt.orphaned = False
        if address == attempt.address:
            # Said twice, on a heartbeat and by itself, say; the owner has been told already.
            attempt.say_again_s = min(attempt.say_again_s, now_s + _spread(RETRY_PAUSE_S))
            return
        attempt.redirects += 1
        self._move(attempt, address, now_s, wait=attempt.redirects > 1)

    def _move(self, attempt: Attempt, address: str, now_s: float, *, wait: bool = False) -> None:
        """Bind it to another dispatcher and tell that one, at once if its stream is open and no `wait` is due."""
        self._attempts.rebind(attempt, address, now_s)
        attempt.offer_s = attempt.beat_again_s = math.inf
        pause_s = _spread(REDIRECT_PAUSE_S) if wait else 0.0
        attempt.say_again_s = now_s + max(pause_s, RETRY_PAUSE_S)
        stream = self._streams.get(address)
        if stream is None:
            return
        if attempt.result is None:
            stream.next_heartbeat_s = min(stream.next_heartbeat_s, now_s + pause_s)
        elif wait:
            attempt.say_again_s = now_s + pause_s
        else:
            self._say(attempt, now_s)

    # ---- time ----

    def sweep(self, now_s: float) -> float:
        """Do what is due; when to come again, at the latest."""
        next_s = now_s + 1.0
        for address in list(self._attempts.addresses):
            if self._is_gone(address):
                for attempt in self._attempts.bound_to(address):
                    self._orphan(attempt, now_s)
        for attempt in self._attempts:
            next_s = min(next_s, self._tend(attempt, now_s))
        for address, stream in self._streams.items():
            if now_s >= stream.next_heartbeat_s:
                self.beat(address, now_s)
            else:
                self._beat_again(address, stream, now_s)
            next_s = min(next_s, stream.next_heartbeat_s)
        return next_s

    def _beat_again(self, address: str, stream: Stream, now_s: float) -> None:
        """Heartbeats of those that were told to try again, before the others' turn."""
        again = [attempt for attempt in self._attempts.bound_to(address) if attempt.beat_again_s <= now_s]
        for attempt in again:
            attempt.beat_again_s = math.inf
        stream.protocol.heartbeat([_beat(attempt) for attempt in again], now_s)

    def _is_gone(self, address: str) -> bool:
        return bool(self.known) and address not in self.known and address not in self._streams

    def _orphan(self, attempt: Attempt, now_s: float) -> None:
        if now_s >= attempt.bound_s + BOUND_GRACE_S:
            attempt.orphaned = True
            self._offer(attempt, now_s)

    def _offer(self, attempt: Attempt, now_s: float) -> None:
        """Bind an orphan to the next dispatcher whose stream is open; to none if there is none."""
        candidates = [address for address in self.known if address in self._streams and address != attempt.address]
        if candidates:
            self._offers += 1
            self._move(attempt, candidates[self._offers % len(candidates)], now_s)

    def _tend(self, attempt: Attempt, now_s: float) -> float:
        """What one attempt needs now; when it needs something next."""
        if attempt.result is not None:
            if now_s < attempt.say_again_s:
                return attempt.say_again_s
            if attempt.orphaned:
                self._offer(attempt, now_s)
            if attempt.say_again_s <= now_s:
                self._say(attempt, now_s)
            return max(attempt.say_again_s, now_s + RETRY_PAUSE_S)
        if attempt.orphaned and now_s >= attempt.offer_s:
            attempt.offer_s = math.inf
            self._offer(attempt, now_s)
        if attempt.abandon_s is not None:
            return self._abandon(attempt, now_s)
        if now_s >= attempt.stop_s:
            attempt.abandon_s = now_s + ABANDON_AFTER_S
            self._stop(attempt, Stop(StopKind.TIMED_OUT, StopKind.TIMED_OUT.value))
            return attempt.abandon_s
        if now_s < attempt.lease_until_s:
            return min(attempt.lease_until_s, attempt.stop_s, attempt.offer_s, attempt.beat_again_s)
        self._stop(attempt, Stop(StopKind.LEASE_LOST, StopKind.LEASE_LOST.value))
        return attempt.stop_s

    def _abandon(self, attempt: Attempt, now_s: float) -> float:
        assert attempt.abandon_s is not None
        if now_s >= attempt.abandon_s:
            result = Result(ref=attempt.ref)
            settle_timeout(result)
            self.report(attempt, result, now_s)
            return now_s + RETRY_PAUSE_S
        return attempt.abandon_s


def _beat(attempt: Attempt) -> tuple[tuple[tuple[str, int], int], AttemptRef, bytes | None]:
    reports, progress = progress_of(attempt.context)
    return (attempt.key, reports), attempt.ref, progress if reports > attempt.progress_acknowledged else None


def _spread(pause_s: float) -> float:
    """Half as long to half as long again, so that many do not come back in step."""
    return pause_s * random.uniform(0.5, 1.5)  # noqa: S311
