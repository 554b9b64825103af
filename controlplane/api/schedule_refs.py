"""What a ScheduleRef names: the schedule of a job in one of its versions, or a draft with the calendars it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewheel.v1 import schedule_service_pb2

from controlplane.api.preview_messages import decode_draft
from controlplane.schedule_preview import Drawn, draft
from core.calendars import CalendarContent
from core.errors import Conflict, Invalid, NotFound
from core.jobspec import JobSpec, check_job_name
from core.occurrences import occurrences_of
from core.schedule import Schedule
from core.states import JobState
from core.store.calendar_lookup import load_contents
from core.store.calendars import Calendars
from core.store.database import Database
from core.store.job_versions import JobVersions
from core.store.jobs import Jobs

Refs = Mapping[str, schedule_service_pb2.ScheduleRef]


def check_ref(ref: schedule_service_pb2.ScheduleRef, at: str, now_us: int) -> None:
    """Raises Invalid or BadRequest for what is wrong with a reference, as far as that is seen without the database."""
    if bool(ref.job) == ref.HasField("draft"):
        raise Invalid(at, "exactly one of job and draft must be given")
    if ref.version < 0:
        raise Invalid(f"{at}.version", "must not be negative; 0 means the present version")
    if ref.job:
        check_job_name(ref.job, f"{at}.job")
        return
    if ref.version:
        raise Invalid(f"{at}.version", "is only valid with job")
    decode_draft(ref.draft, f"{at}.draft", now_us=now_us, namespace="")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A job's schedule in one version."""

    name: str
    spec: JobSpec
    schedule: Schedule
    state: JobState


class ScheduleRefs:
    """Finds what requests name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = Jobs(database)
        self._versions = JobVersions(database)
        self._calendars = Calendars(database)

    async def drawn(self, namespace: str, refs: Refs, now_us: int) -> list[Drawn]:
        """The schedules of checked references, given by their paths, in their order.

        A draft beside a job is read as an edit of that: with its slots of `H`, its share of the jitter and its phase.
        Raises NotFound, Conflict for what cannot be computed, Invalid for calendars that are missing.
        """
        stored = {at: await self._stored(namespace, ref, at) for at, ref in refs.items() if ref.job}
        beside = next(iter(stored.values()), None)
        return [
            await (self._of_job(stored[at], at) if at in stored else self._of_draft(namespace, ref, at, now_us, beside))
            for at, ref in refs.items()
        ]

    async def _stored(self, namespace: str, ref: schedule_service_pb2.ScheduleRef, at: str) -> _Stored:
        job = await self._jobs.by_name(namespace, ref.job)
        spec, fault, state = job.spec, job.fault, job.state
        if ref.version not in (0, job.version):
            version = await self._versions.get(job.job_id, ref.version)
            spec, fault, state = version.spec, version.fault, version.state
        if spec is None:
            raise Conflict(fault, field=f"{at}.version")
        if spec.schedule is None:
            raise Conflict(f"job {job.name!r} has no schedule: it runs only when it is triggered", field=f"{at}.job")
        return _Stored(job.name, spec, spec.schedule, state)

    async def _of_job(self, stored: _Stored, at: str) -> Drawn:
        contents = await load_contents(self._database, stored.spec.pins.calendars.values())
        try:
            occurrences = occurrences_of(stored.spec, contents, None)
        except Invalid as fault:
            raise Conflict(f"its occurrences cannot be computed: {fault.rule}", field=f"{at}.job") from None
        assert occurrences is not None, "it has a schedule"
        if stored.state is JobState.ACTIVE:
            return Drawn(stored.schedule, occurrences)
        remark = f"The job is {stored.state.name.lower()} in this version: nothing of this runs."
        return Drawn(stored.schedule, occurrences, remarks=(remark,))

    async def _of_draft(
        self, namespace: str, ref: schedule_service_pb2.ScheduleRef, at: str, now_us: int, beside: _Stored | None
    ) -> Drawn:
        name = "" if beside is None else beside.name
        wanted = decode_draft(ref.draft, f"{at}.draft", now_us=now_us, namespace=namespace, job=name)
        schedule = wanted.following(None if beside is None else beside.schedule)
        contents = await self._contents(namespace, schedule, at)
        keeps_jitter = beside is not None and beside.schedule.jitter_us == schedule.jitter_us
        offset_us = beside.spec.pins.jitter_offset_us if beside is not None and keeps_jitter else 0
        try:
            return draft(schedule, contents, offset_us=offset_us)
        except Invalid as fault:
            raise Invalid(f"{at}.draft.{fault.field.removeprefix('schedule.')}", fault.rule) from None

    async def _contents(self, namespace: str, schedule: Schedule, at: str) -> dict[str, CalendarContent]:
        """What the calendars that a draft names say now; those that are not there are left out."""
        contents: dict[str, CalendarContent] = {}
        for name in {*schedule.exclude_calendars, *schedule.windows}:
            try:
                found = await self._calendars.by_name(namespace, name)
            except NotFound:
                continue
            if found.content is None:
                raise Conflict(f"calendar {name!r} is not readable: {found.fault}", field=f"{at}.draft")
            contents[name] = found.content
        return contents
