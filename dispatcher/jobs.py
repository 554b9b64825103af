"""The versions of jobs this dispatcher has read. They never change, so they are kept, within bounds.

The present version of a job is kept beside them as a belief: `forget` it when a statement found another.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from core.enumerator import Enumerator
from core.errors import Invalid
from core.jobspec import JobSpec
from core.store.job_lookup import JobLookup, StoredVersion

log = logging.getLogger(__name__)
VersionKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class JobVersion:
    """One readable version of a job; `superseded_us` bounds its occurrences (inclusive), None for the present one."""

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
    ) -> None:
        self._lookup = lookup
        self._enumerator = enumerator
        self._max_versions = max_versions
        self._max_bytes = max_bytes
        self._bytes = 0
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
            for key in chunk:
                stored = found.get(key)
                self._remember(
                    key, self._read(stored) if stored else Unreadable(*key, 0, "the job has no such version")
                )

    def forget(self, keys: Iterable[VersionKey]) -> None:
        """Believe nothing about these versions any more."""
        for key in keys:
            known = self._known.pop(key, None)
            self._bytes -= len(known.payload) if isinstance(known, JobVersion) else 0

    def _read(self, stored: StoredVersion) -> JobVersion | Unreadable:
        try:
            spec = JobSpec.from_json(stored.spec, self._enumerator.read)
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
        )

    def _remember(self, key: VersionKey, value: JobVersion | Unreadable) -> None:
        self._known[key] = value
        self._bytes += len(value.payload) if isinstance(value, JobVersion) else 0
        while len(self._known) > self._max_versions or (self._bytes > self._max_bytes and len(self._known) > 1):
            _, oldest = self._known.popitem(last=False)
            self._bytes -= len(oldest.payload) if isinstance(oldest, JobVersion) else 0
