"""Finds lost chains: active jobs with occurrences to come for which no due row stands, so that nothing would ever fire.

A slow walk over all jobs by id, a few hundred a round: a chain usually stands at the next occurrence, where one look at
a key finds it. One that does not is looked for everywhere in its shard; it may have been put off, or be catching up.
Chains and versions move meanwhile, so a job is only named when two rounds in a row have found its row nowhere. Called
by missed_fires.py; it only reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock
from core.enumerator import Enumerator
from core.errors import Invalid
from core.ids import chain_id
from core.jobspec import JobSpec
from core.occurrences import Occurrences, SearchLimit, occurrences_of
from core.states import DueKind, JobState
from core.store.calendar_lookup import Contents, load_contents
from core.store.database import Database
from core.store.landing import Landing
from core.store.overdue import ChainedJob, DuePlace, Overdue

_JOBS_A_ROUND = 300
# Suspects beyond this are left to a later walk.
_MOST_SUSPECTS = 300
# Whole shards that are read in a round for suspects.
_SHARDS_A_ROUND = 4
# The event loop serves calls too: it gets its turn after so many jobs.
_JOBS_A_TURN = 20
_LOOKS = 2
_FIRST = UUID(int=0)


class LostChains:
    """The walk, and whom it suspects: how often each one's row was found nowhere."""

    def __init__(self, database: Database, scale: BucketScale, enumerator: Enumerator, clock: Clock) -> None:
        self._database = database
        self._overdue = Overdue(database)
        self._scale = scale
        self._enumerator = enumerator
        self._clock = clock
        self._after = _FIRST
        self._suspects: dict[UUID, int] = {}

    async def step(self) -> list[ChainedJob]:
        """Look at the next jobs, and again at the suspects; returns those whose row is nowhere, at two looks."""
        again = await self._not_in_place(await self._overdue.again(self._suspects))
        looks = await self._looked_for(again)
        walked = await self._overdue.walk(self._after, _JOBS_A_ROUND)
        self._after = walked[-1].job_id if len(walked) == _JOBS_A_ROUND else _FIRST
        fresh = [job.job_id for job in await self._not_in_place(walked) if job.job_id not in looks]
        room = max(0, _MOST_SUSPECTS - len(looks))
        self._suspects = looks | dict.fromkeys(fresh[:room], 0)
        return [job for job in again if looks.get(job.job_id, 0) >= _LOOKS]

    async def look_through(self, after: UUID, shards: Collection[int]) -> tuple[list[ChainedJob], UUID | None]:
        """The next jobs by id, of which those in `shards` whose row is nowhere are returned, looked for twice at once;
        and the id after which to go on, None at the end. Remembers nothing.
        """
        walked = await self._overdue.walk(after, _JOBS_A_ROUND)
        lost = await self._not_in_place([job for job in walked if job.shard in shards])
        for _ in range(_LOOKS):
            if not lost:
                break
            again = await self._not_in_place(await self._overdue.again([job.job_id for job in lost]))
            found = await self._overdue.anywhere({_chain(job): job.shard for job in again}) if again else set()
            lost = [job for job in again if _chain(job) not in found]
        return lost, walked[-1].job_id if len(walked) == _JOBS_A_ROUND else None

    async def next_landing(self, job: ChainedJob, account_end_us: int) -> Landing | None:
        """Where a job's chain goes on after the last occurrence that is accounted for; None where nothing comes."""
        spec = self._spec(job)
        if spec is None:
            return None
        try:
            occurrences = occurrences_of(
                spec, await load_contents(self._database, spec.pins.calendars.values()), self._enumerator
            )
            found = None if occurrences is None else occurrences.next_after(account_end_us)
        except (Invalid, SearchLimit):
            return None
        if found is None:
            return None
        bucket = self._scale.bucket_of(found.due_us)
        kind, chain = DueKind.OCCURRENCE, _chain(job)
        return Landing(job.shard, bucket, found.due_us, chain, kind, job.job_id, job.version, found.nominal_us)

    async def _looked_for(self, jobs: Sequence[ChainedJob]) -> dict[UUID, int]:
        """The suspects that stay suspects, after those of a few shards were looked for everywhere."""
        shards = _longest_suspected(jobs, self._suspects)
        looked_at = [job for job in jobs if job.shard in shards]
        found: set[UUID] = set()
        if looked_at:
            found = await self._overdue.anywhere({_chain(job): job.shard for job in looked_at})
        looks = {job.job_id: self._suspects[job.job_id] for job in jobs}
        for job in looked_at:
            if _chain(job) in found:
                del looks[job.job_id]
            else:
                looks[job.job_id] += 1
        return looks

    async def _not_in_place(self, jobs: Sequence[ChainedJob]) -> list[ChainedJob]:
        """Of active jobs with occurrences to come, those whose row does not stand at the next one."""
        expected = await self._expected(jobs)
        if not expected:
            return []
        standing = await self._overdue.standing([place for places in expected.values() for place in places])
        return [job for job in jobs if job.job_id in expected and _chain(job) not in standing]

    async def _expected(self, jobs: Sequence[ChainedJob]) -> dict[UUID, list[DuePlace]]:
        """Where the chain of each job should stand: at the next occurrence, or the one after should it fire now."""
        specs = {job.job_id: spec for job in jobs if (spec := self._spec(job)) is not None}
        pins = {pin for spec in specs.values() for pin in spec.pins.calendars.values()}
        contents = await load_contents(self._database, pins)
        expected = {}
        for number, job in enumerate((job for job in jobs if job.job_id in specs), start=1):
            places = [
                DuePlace(job.shard, self._scale.bucket_of(due_us), due_us, _chain(job))
                for due_us in self._coming(specs[job.job_id], contents)
            ]
            if places:
                expected[job.job_id] = places
            if number % _JOBS_A_TURN == 0:
                await self._clock.sleep(0)
        return expected

    def _spec(self, job: ChainedJob) -> JobSpec | None:
        """What an active job says, if it can be read: owners tell of the others."""
        if job.state is not JobState.ACTIVE:
            return None
        try:
            spec = job.spec.read(self._enumerator)
        except Invalid:
            return None
        return spec if spec.schedule is not None else None

    def _coming(self, spec: JobSpec, contents: Contents) -> list[int]:
        """When the next occurrence is due, and the one after it; nothing where that is not known."""
        try:
            occurrences = occurrences_of(spec, contents, self._enumerator)
            return [] if occurrences is None else list(_next_two(occurrences, self._clock.now_us()))
        except (Invalid, SearchLimit):
            return []  # the owner sets such a job aside; or its chain stands somewhere on the way


def _next_two(occurrences: Occurrences, now_us: int) -> Iterable[int]:
    first = occurrences.first_due_from(now_us)
    if first is not None:
        yield first.due_us
        second = occurrences.next_after(first.nominal_us)
        if second is not None:
            yield second.due_us


def _chain(job: ChainedJob) -> UUID:
    return chain_id(job.job_id, job.version)


def _longest_suspected(jobs: Sequence[ChainedJob], looks: dict[UUID, int]) -> set[int]:
    """The shards to look through: first those of jobs that were missed before."""
    shards: dict[int, None] = {}
    for job in sorted(jobs, key=lambda job: -looks[job.job_id]):
        if len(shards) < _SHARDS_A_ROUND:
            shards.setdefault(job.shard)
    return set(shards)
