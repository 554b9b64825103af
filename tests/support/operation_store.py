"""Calendars and operations in a test's world, on a clock that stands still: the API's and the runner's calls, one line
each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from controlplane.next_version import Creation
from controlplane.operations.steps import OperationSteps, bulk_spec
from core.calendars import CalendarContent, DayOff, DaysOff
from core.enumerator import Enumerator
from core.jobspec import JobSpec
from core.schedule import Schedule
from core.states import JobState, OperationKind
from core.store.audit import Call
from core.store.backfill_records import BackfillSpec
from core.store.backfills import Backfills
from core.store.calendar_changes import CalendarChanged, CalendarChanges
from core.store.calendars import CalendarRecord, Calendars
from core.store.job_batches import JobBatches
from core.store.operation_records import NewOperation, OperationRecord, Stepped
from core.store.operations import Operations
from tests.support.api_store import NAMESPACE, ApiStore, shown_job
from tests.support.store_world import NOW_US

CHRISTMAS = DaysOff(days=(DayOff("*-12-25"),))
NEW_YEAR = DaysOff(days=(DayOff("*-01-01"),))
HOUR_US = 3_600_000_000


def shown_calendar(calendar: CalendarRecord, operation: OperationRecord | None) -> bytes:
    beside = "" if operation is None else f" {operation.operation_id}"
    return f"{calendar.name} v{calendar.version}{beside}".encode()


def shown_operation(operation: OperationRecord) -> bytes:
    return f"{operation.operation_id} {operation.state.name}".encode()


@dataclass
class OperationStore(ApiStore):
    """What the API and the runner do with calendars and operations."""

    @property
    def calendars(self) -> Calendars:
        return Calendars(self.world.database)

    @property
    def calendar_changes(self) -> CalendarChanges:
        return CalendarChanges(self.world.database, self.clock)

    @property
    def operations(self) -> Operations:
        return Operations(self.world.database, self.clock)

    @property
    def batches(self) -> JobBatches:
        return JobBatches(self.world.database, self.clock, self.world.scale)

    @property
    def backfills(self) -> Backfills:
        return Backfills(self.world.database, self.clock, self.world.scale)

    @property
    def steps(self) -> OperationSteps:
        return OperationSteps(self.operations, self.batches, self.backfills, Enumerator())

    async def make_calendar(
        self, name: str = "holidays", content: CalendarContent = CHRISTMAS, *, call: Call | None = None
    ) -> CalendarChanged:
        return await self.calendar_changes.create(
            call or self.call(),
            calendar_id=self.world.rand.uuid(),
            name=name,
            content=content,
            description="",
            render=shown_calendar,
        )

    async def change_calendar(
        self, name: str = "holidays", content: CalendarContent = NEW_YEAR, *, call: Call | None = None
    ) -> CalendarChanged:
        return await self.calendar_changes.update(
            call or self.call(),
            name=name,
            content=content,
            description="",
            check=lambda _: None,
            operation_id=self.world.rand.uuid(),
            render=shown_calendar,
        )

    async def delete_calendar(self, name: str = "holidays", *, call: Call | None = None) -> CalendarChanged:
        return await self.calendar_changes.delete(
            call or self.call(), name=name, check=lambda _: None, render=shown_calendar
        )

    async def job_with_calendar(self, name: str, calendar: str = "holidays") -> None:
        """A daily job that leaves out the calendar's days, registered as the API does it."""
        job_id = self.world.rand.uuid()
        of = JobSpec("h", schedule=Schedule(cron=("0 3 * * *",), exclude_calendars=(calendar,)))
        await self.job_changes.create(
            self.call(),
            job_id=job_id,
            name=name,
            decision=Creation(job_id, of, b"payload", Enumerator()),
            render=shown_job,
        )

    async def begin_pause(self, total: int = 0, labels: dict[str, str] | None = None) -> OperationRecord:
        spec = bulk_spec(labels or {}, request_id="", trace="")
        return await self._begun(NewOperation(self.world.rand.uuid(), OperationKind.PAUSE_JOBS, "", spec, total))

    async def begin_backfill(
        self, name: str = "job", *, hours: int = 3, per_s: float = 1000.0, gated: bool = True, include_run: bool = False
    ) -> OperationRecord:
        job = await self.jobs.by_name(NAMESPACE, name)
        spec = BackfillSpec(
            str(job.job_id), job.version, NOW_US - hours * HOUR_US, NOW_US, per_s, gated, include_run
        ).to_json()
        wish = NewOperation(self.world.rand.uuid(), OperationKind.BACKFILL, name, spec, hours)
        return await self._begun(wish)

    async def _begun(self, wish: NewOperation) -> OperationRecord:
        answer = await self.operations.begin(
            self.call(), wish, action="test", check=lambda: None, render=shown_operation
        )
        return await self.operations.get(NAMESPACE, UUID(answer.decode().split()[0]))

    async def again(self, operation: OperationRecord) -> OperationRecord:
        """The operation as it stands now."""
        return await self.operations.get(NAMESPACE, operation.operation_id)

    async def step(self, operation: OperationRecord) -> Stepped:
        """A step of what was read before, however old that is."""
        return await self.steps.step(operation)

    async def cancel_operation(self, operation: OperationRecord, *, call: Call | None = None) -> bytes:
        return await self.operations.cancel(call or self.call(), operation.operation_id, shown_operation)

    async def finish(self, operation: OperationRecord, most: int = 50) -> OperationRecord:
        """Step until it has ended."""
        for _ in range(most):
            operation = (await self.step(operation)).operation
            if not operation.is_open:
                return operation
        raise AssertionError(f"it does not end: {operation}")

    async def states_of_jobs(self) -> Sequence[JobState]:
        return [JobState(row["state"]) for row in await self.world.eye.fetch("SELECT state FROM jobs ORDER BY name")]


def id_of(answer: bytes) -> UUID:
    """The operation that an answer names last."""
    return UUID(answer.decode().split()[-1])
