"""The attempts this dispatcher answers for: who runs what, and until when. No I/O.

Leases are held here first; SQL hears of a renewal only when its own lease is half used up. A lease ends when no
heartbeat came in time, an attempt times out when it took longer than its job allows; the reaper asks for both.
"""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.ids import token_hash
from dispatcher.jobs import JobVersion


class Holder(Protocol):
    """The session through which an attempt's worker is reached."""

    @property
    def worker_id(self) -> str: ...

    def cancel(self, run_id: UUID, attempt: int, reason: str) -> None: ...

    def went_silent(self) -> None: ...

    @property
    def closed(self) -> bool: ...

    def acknowledge(self, items: Iterable[pb.Acknowledgement]) -> None: ...


@dataclass(slots=True)
class LiveAttempt:
    """One leased attempt; instants in microseconds by the database's clock."""

    run_id: UUID
    shard: int
    term: int
    attempt: int
    uncounted: int
    token_hash: bytes
    worker: str
    job: JobVersion
    scheduled_for_us: int
    due_at_us: int
    started_us: int
    # The end that workers were told, and the end that SQL holds.
    lease_until_us: int
    sql_lease_until_us: int
    trace: str = ""
    # Of the run alone; None means the job version's own.
    payload: bytes | None = None
    progress: bytes | None = None
    # No statement that wrote the present progress has been answered yet.
    progress_unsaved: bool = False
    holder: Holder | None = None
    cancel_requested: bool = False
    timed_out: bool = False
    # After a time-out heartbeats extend nothing any more.
    lease_fixed: bool = False
    ending: bool = False
    # Its loss was written, and the answer did not come: it may be recorded, now or a little later.
    loss_unsettled: bool = False
    # Certainly never sent to a worker: to be given back at once.
    unsent: bool = False
    # The stream on which this process sent it, as long as nothing shows that it arrived.
    sent_on: Holder | None = None
    # Monotonic seconds at which SQL was last seen to have the run at home under `term`.
    home_proven_s: float = float("-inf")
    stands_open: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """The term that answers for the run."""
        return self.shard, self.term

    @property
    def job_id(self) -> UUID:
        return self.job.job_id

    @property
    def timeout_at_us(self) -> int:
        return self.started_us + self.job.spec.timeout_us

    def proves(self, token: bytes) -> bool:
        """Whether `token` is this attempt's secret."""
        return hmac.compare_digest(token_hash(token), self.token_hash)


class Attempts:
    """Live attempts by run, with a heap of the instants at which each must be looked at again."""

    def __init__(self) -> None:
        self._live: dict[UUID, LiveAttempt] = {}
        self._alarms: list[tuple[int, int, UUID, int]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveAttempt]:
        return iter(list(self._live.values()))

    def get(self, run_id: UUID) -> LiveAttempt | None:
        return self._live.get(run_id)

    def add(self, live: LiveAttempt) -> None:
        self._live[live.run_id] = live
        self._set_alarm(live)

    def remove(self, live: LiveAttempt) -> None:
        if self._live.get(live.run_id) is live:
            del self._live[live.run_id]

    def drop_term(self, shard: int, term: int) -> list[LiveAttempt]:
        """Forget the attempts of a term that is no longer held; their workers go on and will be redirected."""
        gone = [live for live in self._live.values() if (live.shard, live.term) == (shard, term)]
        for live in gone:
            del self._live[live.run_id]
        return gone

    def due_for_check(self, now_us: int) -> list[LiveAttempt]:
        """The attempts whose lease has ended, whose time is up, or that never left, by `now_us`.

        Whoever handles one sets its next alarm.
        """
        found = []
        while self._alarms and self._alarms[0][0] <= now_us:
            _, _, run_id, attempt = heapq.heappop(self._alarms)
            live = self._live.get(run_id)
            if live is None or live.attempt != attempt:
                continue
            if live.ending:  # looked at again, in case the ending is refused or the database is away
                self.check_again(live, now_us + US_PER_S)
            elif self._alarm_at(live) <= now_us:
                found.append(live)
            else:
                self._set_alarm(live)
        return found

    def check_again(self, live: LiveAttempt, at_us: int) -> None:
        """Look at an attempt again at `at_us` at the earliest."""
        self._counter += 1
        heapq.heappush(self._alarms, (at_us, self._counter, live.run_id, live.attempt))

    @property
    def next_alarm_us(self) -> int | None:
        return self._alarms[0][0] if self._alarms else None

    def mark_unsent(self, live: LiveAttempt, again_us: int = 0) -> None:
        """The assignment never left: the next check, not before `again_us`, finds the attempt."""
        live.unsent = True
        self.check_again(live, again_us)

    def _alarm_at(self, live: LiveAttempt) -> int:
        if live.unsent:
            return 0
        return live.lease_until_us if live.timed_out else min(live.lease_until_us, live.timeout_at_us)

    def _set_alarm(self, live: LiveAttempt) -> None:
        self.check_again(live, self._alarm_at(live))
