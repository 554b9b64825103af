"""The versions of jobs this dispatcher has read, and the calendars that they are computed by: kept, within bounds.

They never change. The present version of a job, and when it was paused or deleted, is kept beside them as a belief:
`forget` it when a statement found another. A version that cannot be computed, for want of zone data or of a calendar,
is known as such, and spoils no other (B32, B108).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from core.calendars import CalendarContent, CalendarPin
from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec
from core.occurrences import Occurrences, occurrences_of
from core.states import JobState
from core.store.calendar_lookup import Contents
from core.store.job_lookup import JobLookup, StoredVersion

log = logging.getLogger(__name__)
VersionKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class JobVersion:
    """One readable version of a job.

    `occurrences` are those that the version owns, None without a schedule: up to `superseded_us` (inclusive) unless it
    is the present one. Those that become due after `stopped_us`, when the job was paused or deleted, are not run.
    `was_set_aside` says that the job is shown as one that cannot be read, which is over.
    """

    job_id: UUID
    version: int
    namespace: str
    name: str
    hash16: int
    spec: JobSpec
    payload: bytes
    trace: str
    current_version: int
    superseded_us: int | None
    stopped_us: int | None = None
    stopped_as: JobState | None = None
    was_set_aside: bool = False
    cutover_us: int = 0
    occurrences: Occurrences | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A version that cannot be used, and why."""

    job_id: UUID
    version: int
    current_version: int
    error: str


class Jobs:
    """A bounded memory of job versions over the store."""

    def __init__(
        self,
        lookup: JobLookup,
        enumerator: Enumerator,
        *,
        max_versions: int = 50_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_calendars: int = 1_000,
    ) -> None:
        self._lookup = lookup
        self._enumerator = enumerator
        self._max_versions = max_versions
        self._max_bytes = max_bytes
        self._max_calendars = max_calendars
        self._bytes = 0
        self._calendars: OrderedDict[CalendarPin, CalendarContent] = OrderedDict()
        self._known: OrderedDict[VersionKey, JobVersion | Unreadable] = OrderedDict()

    def get(self, key: VersionKey) -> JobVersion | Unreadable | None:
        """What is known of a version; None when it was not loaded."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def load(self, keys: Iterable[VersionKey]) -> None:
        """Make every version of `keys` known that the database has."""
        # Looking at the known ones keeps them from being the oldest, which leave first.
        missing = [key for key in dict.fromkeys(keys) if self.get(key) is None]
        for start in range(0, len(missing), 500):
            chunk = missing[start : start + 500]
            found = await self._lookup.load(chunk)
            specs = {key: self._spec(stored) for key, stored in found.items()}
            contents = await self._contents(spec for spec in specs.values() if isinstance(spec, JobSpec))
            for key in chunk:
                stored = found.get(key)
                missing_version = Unreadable(*key, 0, "the job has no such version")
                self._remember(key, self._read(stored, specs[key], contents) if stored else missing_version)

    def forget(self, keys: Iterable[VersionKey]) -> None:
        """Believe nothing about these versions any more."""
        for key in keys:
            known = self._known.pop(key, None)
            self._bytes -= len(known.payload) if isinstance(known, JobVersion) else 0

    def _spec(self, stored: StoredVersion) -> JobSpec | Invalid:
        try:
            return JobSpec.from_json(stored.spec, self._enumerator.read)
        except Invalid as error:
            return error

    async def _contents(self, specs: Iterable[JobSpec]) -> Contents:
        """What the calendars of these jobs say. Only what can be read is remembered: the rest may be repaired."""
        pins = {pin for spec in specs for pin in spec.pins.calendars.values()}
        contents: Contents = {}
        for pin in pins & self._calendars.keys():
            self._calendars.move_to_end(pin)
            contents[pin] = self._calendars[pin]
        if len(contents) < len(pins):
            contents |= await self._lookup.calendars(pins - contents.keys())
            self._calendars |= {pin: said for pin, said in contents.items() if not isinstance(said, Invalid)}
        while len(self._calendars) > self._max_calendars:
            self._calendars.popitem(last=False)
        return contents

    def _read(self, stored: StoredVersion, spec: JobSpec | Invalid, contents: Contents) -> JobVersion | Unreadable:
        try:
            if isinstance(spec, Invalid):
                raise spec
            occurrences = occurrences_of(spec, contents, self._enumerator)
        except Invalid as error:
            return Unreadable(stored.job_id, stored.version, stored.current_version, str(error))
        return JobVersion(
            stored.job_id,
            stored.version,
            stored.namespace,
            stored.name,
            stored.hash,
            spec,
            stored.payload,
            stored.trace,
            stored.current_version,
            stored.superseded_us,
            stored.stopped_us,
            None if stored.stopped_as is None else JobState(stored.stopped_as),
            bool(stored.error) and stored.version == stored.current_version,
            stored.cutover_us,
            None if occurrences is None else occurrences.until(stored.superseded_us),
        )

    def _remember(self, key: VersionKey, value: JobVersion | Unreadable) -> None:
        self._known[key] = value
        self._bytes += len(value.payload) if isinstance(value, JobVersion) else 0
        while len(self._known) > self._max_versions or (self._bytes > self._max_bytes and len(self._known) > 1):
            _, oldest = self._known.popitem(last=False)
            self._bytes -= len(oldest.payload) if isinstance(oldest, JobVersion) else 0
