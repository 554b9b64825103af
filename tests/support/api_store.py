"""The API's part of the store in a test's world, on a clock that stands still, and calls as the API would make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from core.enumerator import Enumerator
from core.jobspec import JobSpec
from core.occurrences import occurrences_of
from core.policy import Overlap
from core.schedule import Schedule
from core.states import JobState
from core.store.audit import Call
from core.store.calendar_lookup import Contents
from core.store.job_changes import Changed, JobChanges, NextVersion
from core.store.jobs import JobRecord, Jobs
from core.store.requests import RequestKey, own_request_id
from core.store.run_changes import RunChanged, RunChanges, Trigger
from core.store.runs import RunRecord, Runs
from core.store.surroundings import Surroundings, Wishes
from tests.support.clock import ManualClock
from tests.support.store_world import NOW_US, SHARDS, StoreWorld

MINUTELY = Schedule(cron=("* * * * *",))
MINUTE_US = 60_000_000
NAMESPACE = "default"

Decide = Callable[[JobRecord, int], NextVersion | None]


def spec(schedule: Schedule | None = MINUTELY, *, overlap: Overlap = Overlap.SKIP, handler: str = "h") -> JobSpec:
    return JobSpec(handler, schedule=schedule, overlap=overlap)


@dataclass(frozen=True)
class Plainly:
    """A decision that hangs on nothing but the job and the cut-over."""

    decide: Callable[[JobRecord | None, int], NextVersion | None]

    def wishes(self, present: JobRecord | None) -> Wishes:
        return Wishes()

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        return frozenset()

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        return self.decide(present, at_us)


def created(decide: Callable[[int], NextVersion]) -> Plainly:
    """Decides about a job that is not there yet."""
    return Plainly(lambda _, at_us: decide(at_us))


def changed(decide: Decide) -> Plainly:
    """Decides about a job that is there."""

    def of_present(present: JobRecord | None, at_us: int) -> NextVersion | None:
        assert present is not None
        return decide(present, at_us)

    return Plainly(of_present)


def version_at(of: JobSpec, payload: bytes, state: JobState, cutover_us: int) -> NextVersion:
    """What `of` says, with its first occurrence after the cut-over if the version is to run."""
    occurrences = occurrences_of(of, {}, Enumerator()) if state is JobState.ACTIVE else None
    return NextVersion(of, payload, state, None if occurrences is None else occurrences.next_after(cutover_us))


def next_version(of: JobSpec, state: JobState = JobState.ACTIVE) -> Callable[[int], NextVersion]:
    """Decides for `of`."""
    return lambda cutover_us: version_at(of, b"payload", state, cutover_us)


def shown_job(job: JobRecord, contents: Contents) -> bytes:
    return f"{job.name} v{job.version} {job.state.name}".encode()


def shown_run(run: RunRecord) -> bytes:
    return f"{run.run_id} {run.state.name}".encode()


@dataclass
class ApiStore:
    """The API's calls, one line each."""

    world: StoreWorld
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_US))

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.world.database)

    @property
    def runs(self) -> Runs:
        return Runs(self.world.database)

    @property
    def job_changes(self) -> JobChanges:
        return JobChanges(self.world.database, self.clock, self.world.scale, SHARDS)

    @property
    def run_changes(self) -> RunChanges:
        return RunChanges(self.world.database, self.clock, self.world.scale)

    def call(self, request_id: str = "", *, method: str = "method", body: bytes = b"body", note: str = "") -> Call:
        key = RequestKey(NAMESPACE, request_id or own_request_id(self.world.rand), method, body)
        return Call(key, self.world.rand.uuid(), "tester", note, "00-trace")

    async def create(
        self, name: str = "job", of: JobSpec | None = None, *, call: Call | None = None, job_id: UUID | None = None
    ) -> Changed:
        return await self.job_changes.create(
            call or self.call(),
            job_id=job_id or self.world.rand.uuid(),
            name=name,
            decision=created(next_version(of or spec())),
            render=shown_job,
        )

    async def change(self, name: str = "job", decide: Decide | None = None, *, call: Call | None = None) -> Changed:
        def edit(job: JobRecord, cutover_us: int) -> NextVersion:
            assert job.spec is not None
            return next_version(job.spec, job.state)(cutover_us)

        return await self.job_changes.change(
            call or self.call(), action="job.update", name=name, decision=changed(decide or edit), render=shown_job
        )

    async def steer(self, state: JobState, name: str = "job") -> Changed:
        """Pause, resume or delete."""

        def decide(job: JobRecord, cutover_us: int) -> NextVersion:
            assert job.spec is not None
            return next_version(job.spec, state)(cutover_us)

        return await self.change(name, decide)

    async def trigger(
        self, name: str = "job", *, call: Call | None = None, delay_us: int = 0, allow_overlap: bool = False
    ) -> RunChanged:
        wish = Trigger(name, None, delay_us, allow_overlap)
        return await self.run_changes.trigger(call or self.call(), wish, shown_run)

    async def cancel(self, run_id: UUID, *, call: Call | None = None) -> RunChanged:
        return await self.run_changes.cancel(call or self.call(), run_id, shown_run)


def run_id_of(changed: RunChanged) -> UUID:
    """The run that a trigger's answer names."""
    return UUID(changed.answer.decode().split()[0])
