"""When a job runs next, and where a new version's chain begins: the questions that the API puts to schedules."""

from __future__ import annotations

from core.clock import Clock
from core.enumerator import Enumerator
from core.errors import Invalid
from core.schedule import Schedule
from core.states import JobState
from core.store.jobs import JobRecord


class Occurrences:
    """Shares the work among equal schedules."""

    def __init__(self, clock: Clock, enumerator: Enumerator) -> None:
        self._clock = clock
        self._enumerator = enumerator

    def now_us(self) -> int:
        """The present instant."""
        return self._clock.now_us()

    def next_of(self, job: JobRecord) -> int | None:
        """The job's next nominal instant as callers see it; None when it has none, or is not active."""
        if job.state is not JobState.ACTIVE or job.spec is None or job.spec.schedule is None:
            return None
        return self._enumerator.next_after(job.spec.schedule, max(self.now_us(), job.cutover_us))

    def first_of(self, schedule: Schedule | None, cutover_us: int, *, newly_given: bool) -> int | None:
        """The first occurrence of a version that takes over at `cutover_us`: strictly after it.

        A one-off that is newly given and already past is its own first occurrence all the same: the catch-up policy
        decides about it where it is met. Raises Invalid for a recurring schedule that has none left.
        """
        if schedule is None:
            return None
        first_us = self._enumerator.next_after(schedule, cutover_us)
        if first_us is not None or not newly_given:
            return first_us
        if schedule.recurring:
            raise Invalid("job.schedule", "never fires: it has no occurrence after now")
        return schedule.at_us
