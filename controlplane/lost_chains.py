"""Finds lost chains: active jobs with occurrences to come for which no due row stands, so that nothing would ever fire.

A slow walk over all jobs by id, a few hundred a round. A chain moves while it is looked for, so a job is only named
after a second look, a round later, has not found its row either. Called by missed_fires.py; it only reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from core.buckets import BucketScale
from core.clock import US_PER_S, Clock
from core.enumerator import Enumerator
from core.errors import Invalid
from core.ids import chain_id
from core.jobspec import JobSpec
from core.occurrences import Occurrences, SearchLimit, occurrences_of
from core.states import JobState
from core.store.calendar_lookup import Contents, load_contents
from core.store.database import Database
from core.store.overdue import ChainedJob, DuePlace, Overdue

_JOBS_A_ROUND = 300
# So many are looked at again; more would only be a longer list.
_MOST_SUSPECTS = 200
# The event loop serves calls too: it gets its turn after so many jobs.
_JOBS_A_TURN = 20
# Where a chain may stand instead of at an occurrence to come: behind, or put off for this long because its job could
# not be read (dispatcher/planner.py: a minute).
PUT_OFF_US = 65 * US_PER_S
_FIRST = UUID(int=0)


class LostChains:
    """The walk, and whom it suspects."""

    def __init__(self, database: Database, scale: BucketScale, enumerator: Enumerator, clock: Clock) -> None:
        self._database = database
        self._overdue = Overdue(database)
        self._scale = scale
        self._enumerator = enumerator
        self._clock = clock
        self._after = _FIRST
        self._suspects: set[UUID] = set()

    async def step(self) -> list[ChainedJob]:
        """Look at the next jobs, and again at the suspects; returns those of them that have no due row still."""
        walked = await self._overdue.walk(self._after, _JOBS_A_ROUND)
        again = await self._overdue.again(self._suspects)
        lost = await self._without_row(again)
        suspected = await self._without_row(walked)
        self._after = walked[-1].job_id if len(walked) == _JOBS_A_ROUND else _FIRST
        self._suspects = {job.job_id for job in [*lost, *suspected][:_MOST_SUSPECTS]}
        return lost

    async def _without_row(self, jobs: Sequence[ChainedJob]) -> list[ChainedJob]:
        expected = await self._expected(jobs)
        if not expected:
            return []
        standing = await self._overdue.standing([place for places in expected.values() for place in places])
        missing = {
            places[0].due_id: places[0].shard for places in expected.values() if places[0].due_id not in standing
        }
        if missing:
            # The clock is read again: reading and reckoning took a while.
            high = self._scale.bucket_of(self._clock.now_us() + PUT_OFF_US) + 1
            standing |= await self._overdue.in_window(missing, high_bucket=high)
        return [job for job in jobs if job.job_id in expected and expected[job.job_id][0].due_id not in standing]

    async def _expected(self, jobs: Sequence[ChainedJob]) -> dict[UUID, list[DuePlace]]:
        """Where the chain of each job should stand: at the next occurrence, or the one after should it fire now."""
        specs = {job.job_id: spec for job in jobs if (spec := _spec_of(job, self._enumerator)) is not None}
        pins = {pin for spec in specs.values() for pin in spec.pins.calendars.values()}
        contents = await load_contents(self._database, pins)
        expected = {}
        for number, job in enumerate(jobs, start=1):
            if job.job_id in specs:
                places = self._places(job, specs[job.job_id], contents)
                if places:
                    expected[job.job_id] = places
            if number % _JOBS_A_TURN == 0:
                await self._clock.sleep(0)
        return expected

    def _places(self, job: ChainedJob, spec: JobSpec, contents: Contents) -> list[DuePlace]:
        try:
            occurrences = occurrences_of(spec, contents, self._enumerator)
            coming = [] if occurrences is None else _coming(occurrences, self._clock.now_us())
        except (Invalid, SearchLimit):
            return []  # the owner sets such a job aside; or its chain stands somewhere on the way
        chain = chain_id(job.job_id, job.version)
        return [DuePlace(job.shard, self._scale.bucket_of(due_us), due_us, chain) for due_us in coming]


def _coming(occurrences: Occurrences, now_us: int) -> list[int]:
    """When the next occurrence is due, and the one after it."""
    first = occurrences.first_due_from(now_us)
    if first is None:
        return []
    second = occurrences.next_after(first.nominal_us)
    return [first.due_us] if second is None else [first.due_us, second.due_us]


def _spec_of(job: ChainedJob, enumerator: Enumerator) -> JobSpec | None:
    """What an active job says, if it can be read: its owner tells of the others."""
    if job.state is not JobState.ACTIVE:
        return None
    stored: Any = json.loads(job.spec) if isinstance(job.spec, str) else job.spec
    try:
        spec = JobSpec.from_json(stored, enumerator.read)
    except Invalid:
        return None
    return spec if spec.schedule is not None else None
