"""Jobs as messages: what they say, and when they run next."""

from __future__ import annotations

from tidewheel.v1 import job_pb2

from controlplane.api.encode import encode_job
from core.clock import Clock
from core.enumerator import Enumerator
from core.errors import Invalid
from core.occurrences import Occurrence, SearchLimit, occurrences_of
from core.states import JobState
from core.store.calendar_lookup import Contents
from core.store.jobs import JobRecord


class JobViews:
    """Renders jobs. `contents` are what the calendars say that they are pinned to."""

    def __init__(self, clock: Clock, enumerator: Enumerator) -> None:
        self._clock = clock
        self._enumerator = enumerator

    def now_us(self) -> int:
        """The present instant."""
        return self._clock.now_us()

    def shown(self, job: JobRecord, contents: Contents) -> job_pb2.Job:
        """The job as a message."""
        return encode_job(job, following=self.next_of(job, contents))

    def rendered(self, job: JobRecord, contents: Contents) -> bytes:
        """The job as the bytes of its message."""
        return self.shown(job, contents).SerializeToString()

    def next_of(self, job: JobRecord, contents: Contents) -> Occurrence | None:
        """The job's next occurrence as callers see it; None when it has none, or is not active.

        Also where a search for it is given up, or a calendar cannot be read: then the job's own error says more.
        """
        if job.state is not JobState.ACTIVE or job.spec is None:
            return None
        try:
            occurrences = occurrences_of(job.spec, contents, self._enumerator)
            if occurrences is None:
                return None
            return occurrences.next_after(max(self.now_us(), job.cutover_us))
        except (Invalid, SearchLimit):
            return None
