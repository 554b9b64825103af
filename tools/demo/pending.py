"""What is still to come and what is overdue, while the demo runs. The verdict does not come from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidewheel.v1 import job_pb2

from tools.demo.judge import Occurrence, expectation
from tools.demo.oracle import US_PER_S, occurrences
from tools.demo.run_log import Start

AHEAD_US: Final = 600 * US_PER_S
RENEW_US: Final = 60 * US_PER_S


class Pending:
    """Occurrences that have not started yet, looked up to `horizon_us`, or, without one, always some minutes ahead."""

    def __init__(self, jobs: Sequence[job_pb2.Job], *, horizon_us: int | None) -> None:
        self._jobs = jobs
        self._last_us = horizon_us
        self._horizon_us = 0
        self._open: set[Occurrence] = set()
        self._extend(horizon_us or max(job.create_time.ToMicroseconds() for job in jobs) + AHEAD_US)

    def settle(self, starts: Sequence[Start]) -> None:
        """These have started."""
        self._open.difference_update((start.job, start.scheduled_us) for start in starts)

    def before(self, instant_us: int) -> list[Occurrence]:
        """What fell due before an instant and has not started."""
        if self._last_us is None and instant_us > self._horizon_us - RENEW_US:
            self._extend(instant_us + AHEAD_US)
        return [occurrence for occurrence in self._open if occurrence[1] < instant_us]

    def next_words(self, instant_us: int) -> str:
        """The next of them: which job, and in how many seconds; empty where there is none in sight."""
        coming = min((item for item in self._open if item[1] >= instant_us), key=lambda item: item[1], default=None)
        if coming is None:
            return ""
        return f"{coming[0]} in {(coming[1] - instant_us) / US_PER_S:.1f} s"

    def _extend(self, horizon_us: int) -> None:
        for job in self._jobs:
            due_us = expectation(job, horizon_us, occurrences).due_us
            self._open.update((job.name, at) for at in due_us if at >= self._horizon_us)
        self._horizon_us = horizon_us
