"""GetJobLedger and ExplainJob over a real server and database: what became of every occurrence of a job.

No dispatcher runs here: what it would have written is planted, and what it must never do as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, job_service_pb2, run_pb2

from core.ids import job_hash, occurrence_run_id
from core.schedule import Schedule
from core.states import RunCause, RunState, SkipReason
from tests.support.control_plane import ControlPlane, refused
from tests.support.polling import eventually

US = 1_000_000
HOUR, DAY = 3600 * US, 86_400 * US
HOURLY = job_pb2.Schedule(cron=["0 * * * *"])


def micros(stamp: Timestamp) -> int:
    return stamp.ToMicroseconds()


def stamp(at_us: int) -> Timestamp:
    made = Timestamp()
    made.FromMicroseconds(at_us)
    return made


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * US)


def now_us() -> int:
    return round(datetime.now(UTC).timestamp() * US)


def kind(entry: Any) -> str:
    return job_service_pb2.LedgerKind.Name(entry.kind).removeprefix("LEDGER_KIND_")


def kinds(entries: Iterable[Any]) -> list[str]:
    return [kind(entry) for entry in entries]


class Ledger:
    """One job's ledger, and the rows that it is made of."""

    def __init__(self, plane: ControlPlane, eye: asyncpg.Connection, job: job_pb2.Job) -> None:
        self.plane = plane
        self.eye = eye
        self.job_id = UUID(job.job_id)
        self.name = job.name

    async def grow_older(self, age_us: int) -> int:
        """Let the job have been registered so long ago; returns when. Its chain stays where it stands."""
        await self.eye.execute("UPDATE job_versions SET cutover_us = cutover_us - $1, from_us = from_us - $1", age_us)
        await self.eye.execute("UPDATE jobs SET cutover_us = cutover_us - $1, created_us = created_us - $1", age_us)
        made: int = await self.eye.fetchval("SELECT created_us FROM jobs WHERE job_id = $1", self.job_id)
        return made

    async def ran(
        self,
        *instants: int,
        cause: RunCause = RunCause.SCHEDULE,
        state: RunState = RunState.SUCCEEDED,
        ids: Sequence[UUID] = (),
    ) -> list[UUID]:
        """Plant the runs of these instants."""
        made = list(ids) or [occurrence_run_id(self.job_id, job_hash(self.job_id), at_us) for at_us in instants]
        await self.eye.executemany(
            """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us,
                                 state, home_term, ended_us, operation_id)
               VALUES ($1, $2, 1, 0, $3, $4, $4, $4, $5, 1, $4, $6)""",
            [
                (run_id, self.job_id, cause, at_us, state, UUID(int=1) if cause is RunCause.BACKFILL else None)
                for run_id, at_us in zip(made, instants, strict=True)
            ],
        )
        return made

    async def skipped(self, first_us: int, last_us: int, reason: SkipReason = SkipReason.CATCH_UP) -> None:
        """Plant a recorded range."""
        await self.eye.execute(
            "INSERT INTO skips VALUES ($1, $2, $3, $4, 1, 0, 1, $3)", self.job_id, first_us, last_us, reason
        )

    async def page(self, from_us: int, to_us: int, size: int = 1000, token: str = "") -> Any:
        bounds = {"from": stamp(from_us), "to": stamp(to_us)}
        return await self.plane.jobs.GetJobLedger(
            job_service_pb2.GetJobLedgerRequest(name=self.name, page_size=size, page_token=token, **bounds)
        )

    async def whole(self, from_us: int, to_us: int, size: int = 1000) -> list[Any]:
        """The entries of all pages."""
        entries, token = [], ""
        while True:
            page = await self.page(from_us, to_us, size, token)
            assert len(page.entries) <= size
            entries += page.entries
            token = page.next_page_token
            if not token:
                return entries

    async def explain(self, at_us: int) -> Any:
        return await self.plane.jobs.ExplainJob(job_service_pb2.ExplainJobRequest(name=self.name, at=stamp(at_us)))


async def ledger_of(
    plane: ControlPlane, eye: asyncpg.Connection, schedule: job_pb2.Schedule | None, name: str = "a"
) -> Ledger:
    """A new job."""
    return Ledger(plane, eye, await plane.create(name, schedule=schedule))


def hours(from_us: int, to_us: int) -> list[int]:
    return list(range(-(-from_us // HOUR) * HOUR, to_us, HOUR))


class TestRecords:
    async def test_each_occurrence_has_its_run_and_state(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        ids = await ledger.ran(*due, state=RunState.DEAD)
        page = await ledger.page(made - DAY, now_us())
        assert [UUID(entry.run_id) for entry in page.entries] == ids
        assert [micros(entry.scheduled_for) for entry in page.entries] == due
        assert {entry.run_state for entry in page.entries} == {run_pb2.RUN_STATE_DEAD}
        assert {entry.job_version for entry in page.entries} == {1}
        (count,) = page.counts
        assert (count.kind, count.occurrences) == (job_service_pb2.LEDGER_KIND_RUN, len(due))

    async def test_a_lost_run_is_a_gap(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due)
        await eye.execute("DELETE FROM runs WHERE scheduled_for_us = $1", due[4])
        page = await ledger.page(made, now_us())
        assert [micros(entry.scheduled_for) for entry in page.entries if kind(entry) == "MISSING"] == [due[4]]
        assert (page.counts[0].kind, page.counts[0].occurrences) == (job_service_pb2.LEDGER_KIND_MISSING, 1)
        assert "neither a run nor a skip" in page.entries[4].reason
        explained = await ledger.explain(due[4])
        assert explained.fires
        assert "This must not be." in explained.reasons[0]

    async def test_a_lost_skip_is_a_gap(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.skipped(due[0], due[-1])
        assert kinds(await ledger.whole(made, now_us())) == ["SKIPPED"]
        await eye.execute("DELETE FROM skips")
        assert set(kinds(await ledger.whole(made, now_us()))) == {"MISSING"}

    async def test_what_a_chain_has_still_to_come_to_is_due(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due[:3])
        await eye.execute("UPDATE due SET scheduled_for_us = $1", due[5])
        found = kinds(await ledger.whole(made, now_us()))
        assert found == ["RUN"] * 3 + ["MISSING"] * 2 + ["DUE"] * (len(due) - 5)
        await eye.execute("UPDATE due SET back_us = $1, back_to_us = $1", due[3])
        assert kinds(await ledger.whole(made, now_us()))[:5] == ["RUN"] * 3 + ["DUE", "MISSING"]
        await eye.execute("UPDATE jobs SET error = 'no such calendar'")
        last = (await ledger.whole(made, now_us()))[-1]
        assert (kind(last), last.reason) == ("DUE", "the job is set aside: no such calendar")

    async def test_what_is_to_come_is_not_yet_due(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        job = await plane.get("a")
        entries = await ledger.whole(micros(job.create_time), micros(job.create_time) + DAY)
        assert kinds(entries) == ["NOT_YET_DUE"] * 24
        assert entries[0].scheduled_for == job.next_occurrence

    async def test_a_run_that_is_no_occurrence_is_unexpected(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due, due[2] + 1, made - HOUR)
        await ledger.ran(due[3] + 5, cause=RunCause.TRIGGER, ids=[UUID(int=99)])
        entries = await ledger.whole(made - DAY, now_us())
        strangers = [micros(entry.scheduled_for) for entry in entries if kind(entry) == "UNEXPECTED"]
        assert strangers == [made - HOUR, due[2] + 1]
        assert len(entries) == len(due) + 2
        explained = await ledger.explain(due[2] + 1)
        assert (explained.fires, bool(explained.run_id)) == (False, True)
        assert any("all the same" in reason for reason in explained.reasons)

    async def test_backfills_stand_beside(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due[1:])
        await ledger.skipped(due[0], due[0])
        before_us = due[0] - HOUR * 3
        ids = [UUID(int=number) for number in (1, 2, 3)]
        await ledger.ran(due[0], due[1], before_us, cause=RunCause.BACKFILL, ids=ids)
        first, skipped, ran, *_ = await ledger.whole(made - DAY, now_us())
        assert (micros(first.scheduled_for), kind(first), first.occurrences) == (before_us, "RUN", 0)
        assert (kind(skipped), list(skipped.backfill_run_ids)) == ("SKIPPED", [str(ids[0])])
        assert (kind(ran), list(ran.backfill_run_ids)) == ("RUN", [str(ids[1])])
        assert ran.run_id not in ran.backfill_run_ids

    async def test_a_year_in_one_row_is_accounted_for_in_bounded_pages(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["*/10 * * * *"]))
        made = await ledger.grow_older(365 * DAY)
        first, last = -(-(made + 1) // (600 * US)) * 600 * US, (now_us() - 1) // (600 * US) * 600 * US
        await ledger.skipped(first, last)
        entries = await ledger.whole(made, last + 1)
        assert set(kinds(entries)) == {"SKIPPED"}
        assert sum(entry.occurrences for entry in entries) == (last - first) // (600 * US) + 1
        assert len(entries) <= 10
        assert micros(entries[0].scheduled_for) == first
        assert micros(entries[-1].last_scheduled_for) == last

    async def test_a_page_of_a_secondly_job_over_years_is_bounded(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["* * * * * *"]))
        made = await ledger.grow_older(4000 * DAY)
        async with asyncio.timeout(5):
            page = await ledger.page(made, made + 3000 * DAY, size=1000)
        assert (len(page.entries), bool(page.next_page_token)) == (1000, True)

    async def test_pages_join_to_the_whole(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(5 * DAY)
        due = hours(made, now_us())
        await ledger.ran(*due[::3], *(at_us + 7 for at_us in due[::5]))
        await ledger.skipped(due[20] + 1, due[30] - 1, SkipReason.OVERLAP)
        whole = await ledger.whole(made - DAY, now_us() + DAY)
        for size in (1, 7, 100):
            assert await ledger.whole(made - DAY, now_us() + DAY, size) == whole


class TestWhatIsTakenAway:
    async def test_excluded_days_are_one_entry_each(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        schedule = job_pb2.Schedule(cron=["0 * * * *"], exclude=job_pb2.Exclusions(dates=["2026-05-01", "2026-05-03"]))
        ledger = await ledger_of(plane, eye, schedule)
        await ledger.grow_older(250 * DAY)
        from_us, to_us = instant("2026-05-01T00:00:00+00:00"), instant("2026-05-04T00:00:00+00:00")
        await ledger.ran(*hours(from_us + DAY, from_us + 2 * DAY))
        entries = await ledger.whole(from_us, to_us)
        assert kinds(entries) == ["EXCLUDED", *["RUN"] * 24, "EXCLUDED"]
        assert [entries[0].occurrences, entries[-1].occurrences] == [24, 24]
        assert "2026-05-01" in entries[0].reason
        explained = await ledger.explain(from_us + HOUR)
        assert not explained.fires
        assert "2026-05-01" in explained.reasons[0]

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [(job_pb2.GAP_RULE_END, ["RUN"] * 3), (job_pb2.GAP_RULE_SKIP, ["RUN", "EXCLUDED", "RUN"])],
    )
    async def test_days_with_a_gap(
        self, plane: ControlPlane, eye: asyncpg.Connection, rule: Any, expected: list[str]
    ) -> None:
        schedule = job_pb2.Schedule(cron=["30 2 * * *"], zone="Europe/Berlin", gap=rule)
        ledger = await ledger_of(plane, eye, schedule)
        await ledger.grow_older(300 * DAY)
        from_us, to_us = instant("2026-03-28T00:00:00+01:00"), instant("2026-03-31T00:00:00+02:00")
        gap = "skip" if rule == job_pb2.GAP_RULE_SKIP else "end"
        own = Schedule(cron=("30 2 * * *",), zone="Europe/Berlin", gap=gap)  # type: ignore[arg-type]
        await ledger.ran(*own.between(from_us, to_us, 10))
        assert kinds(await ledger.whole(from_us, to_us)) == expected
        explained = await ledger.explain(instant("2026-03-29T03:00:00+02:00"))
        assert explained.fires is (gap == "end")
        assert any("does not exist" in reason for reason in explained.reasons)

    async def test_the_pass_of_a_repeated_hour_that_does_not_count(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["30 2 * * *"], zone="Europe/Berlin"))
        await ledger.grow_older(300 * DAY)
        first, second = instant("2026-10-25T02:30:00+02:00"), instant("2026-10-25T02:30:00+01:00")
        await ledger.ran(first)
        assert kinds(await ledger.whole(first - HOUR, second + HOUR)) == ["RUN", "EXCLUDED"]


class TestVersions:
    async def test_a_pause_is_one_entry_while_it_lasts_and_when_it_is_recorded(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["* * * * * *"]))
        paused = await plane.jobs.PauseJob(job_service_pb2.PauseJobRequest(name="a", note="too loud"))
        since_us = micros(paused.update_time)

        async def pause_has_occurrences() -> bool:
            entries = await ledger.whole(since_us + 1, now_us())
            return bool(entries) and kinds(entries) == ["PAUSED"] and entries[0].occurrences >= 2

        await eventually(pause_has_occurrences, within_s=20)
        future = await ledger.whole(now_us() + 10 * US, now_us() + 13 * US)
        assert set(kinds(future)) == {"NOT_YET_DUE"}
        assert future[0].reason == "the job is paused"
        explained = await ledger.explain((since_us // US + 1) * US)
        assert (explained.fires, explained.version) == (False, 2)
        assert any("too loud" in reason for reason in explained.reasons)
        resumed = await plane.jobs.ResumeJob(job_service_pb2.ResumeJobRequest(name="a"))
        until_us = micros(resumed.update_time)
        (entry,) = await ledger.whole(since_us + 1, until_us + 1)
        assert (kind(entry), entry.job_version) == ("PAUSED", 2)
        assert await eye.fetchval("SELECT count(*) FROM skips") == 1
        assert entry.occurrences == until_us // US - since_us // US

    async def test_a_resume_that_catches_up_reaches_back(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["* * * * * *"]))
        paused = await plane.jobs.PauseJob(job_service_pb2.PauseJobRequest(name="a"))
        since_us = micros(paused.update_time)
        await eventually(lambda: _answer(now_us() > since_us + 3 * US), within_s=20)
        resumed = await plane.jobs.ResumeJob(
            job_service_pb2.ResumeJobRequest(name="a", paused=job_service_pb2.PAUSED_OCCURRENCES_CATCH_UP)
        )
        entries = await ledger.whole(since_us + 1, micros(resumed.update_time) + 1)
        assert len(entries) >= 3
        assert {(kind(entry), entry.job_version) for entry in entries} == {("DUE", 3)}
        await ledger.ran(micros(entries[0].scheduled_for))
        await eye.execute(
            "UPDATE due SET scheduled_for_us = $1 WHERE job_version = 3", micros(entries[2].scheduled_for)
        )
        assert kinds(await ledger.whole(since_us + 1, micros(entries[2].scheduled_for) + 1)) == [
            "RUN",
            "MISSING",
            "DUE",
        ]
        explained = await ledger.explain(micros(entries[0].scheduled_for))
        assert (explained.fires, explained.version) == (True, 3)

    async def test_an_edit_divides_the_account(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        edited = await plane.jobs.UpdateJob(
            job_service_pb2.UpdateJobRequest(
                job=job_pb2.Job(name="a", schedule=job_pb2.Schedule(cron=["30 * * * *"])),
                update_mask=FieldMask(paths=["schedule"]),
                note="half past",
            )
        )
        await eye.execute("UPDATE job_versions SET cutover_us = $1, from_us = $1 WHERE version = 2", made + 5 * HOUR)
        cut_us = made + 5 * HOUR
        old, new = hours(made, cut_us), [at_us + HOUR // 2 for at_us in hours(cut_us - HOUR // 2, now_us() - HOUR // 2)]
        await ledger.ran(*old, *new)
        entries = await ledger.whole(made, now_us())
        assert [micros(entry.scheduled_for) for entry in entries] == [*old, *new]
        assert set(kinds(entries)) == {"RUN"}
        assert [entry.job_version for entry in entries] == [1] * len(old) + [2] * len(new)
        explained = await ledger.explain(new[0])
        assert explained.version == edited.version
        assert any("half past" in reason for reason in explained.reasons)
        assert (micros(explained.previous), micros(explained.next)) == (old[-1], new[1])

    async def test_a_one_off_that_was_given_for_the_past(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        past_us = now_us() // US * US - 5 * HOUR
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(at=[stamp(past_us)]))
        assert kinds(await ledger.whole(past_us - HOUR, now_us())) == ["DUE"]
        await ledger.ran(past_us)
        (entry,) = await ledger.whole(past_us - HOUR, now_us())
        assert (kind(entry), entry.job_version) == ("RUN", 1)
        assert (await ledger.explain(past_us)).fires

    async def test_after_the_deletion_there_is_nothing(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due)
        deleted = await plane.jobs.DeleteJob(job_service_pb2.DeleteJobRequest(name="a"))
        assert (await refused(ledger.page(made, now_us()))).code is grpc.StatusCode.NOT_FOUND
        bounds = {"from": stamp(made), "to": stamp(now_us() + DAY)}
        page = await plane.jobs.GetJobLedger(
            job_service_pb2.GetJobLedgerRequest(job_id=str(ledger.job_id), page_size=1000, **bounds)
        )
        assert kinds(page.entries) == ["RUN"] * len(due)
        explained = await plane.jobs.ExplainJob(
            job_service_pb2.ExplainJobRequest(job_id=str(ledger.job_id), at=stamp(due[-1] + 2 * HOUR))
        )
        assert (explained.fires, explained.version) == (False, deleted.version)
        assert "deleted" in explained.reasons[0]
        assert micros(explained.previous) == due[-1]

    async def test_a_version_that_is_not_readable_hides_no_other(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        await ledger.ran(*due)
        await plane.jobs.UpdateJob(
            job_service_pb2.UpdateJobRequest(
                job=job_pb2.Job(name="a", description="x"), update_mask=FieldMask(paths=["description"])
            )
        )
        await eye.execute("UPDATE job_versions SET spec = '{}' WHERE version = 1")
        entries = await ledger.whole(made, now_us() + HOUR)
        assert kinds(entries) == ["MISSING", *["RUN"] * len(due), "NOT_YET_DUE"]
        assert (entries[0].occurrences, "not readable" in entries[0].reason) == (0, True)
        assert "not readable" in (await ledger.explain(due[0] + 1)).reasons[0]


class TestExplanations:
    async def test_of_an_instant_that_no_line_names_say_what_does_not_fit(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, job_pb2.Schedule(cron=["30 9 * * 1-5", "0 0 1 * *"]))
        await ledger.grow_older(300 * DAY)
        explained = await ledger.explain(instant("2026-11-25T09:31:00+00:00"))
        assert (explained.fires, explained.version, explained.run_id) == (False, 1, "")
        text = " ".join(explained.reasons)
        assert "its minute is 30, not 31" in text
        assert "is not one of its days" in text
        assert explained.previous.ToJsonString() == "2026-11-25T09:30:00Z"
        assert explained.next.ToJsonString() == "2026-11-26T09:30:00Z"

    async def test_of_a_run_say_its_state(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        due = hours(made, now_us())
        (run_id,) = await ledger.ran(due[1], state=RunState.FAILED)
        await ledger.skipped(due[0], due[0], SkipReason.OVERLAP)
        explained = await ledger.explain(due[1])
        assert (explained.fires, explained.run_id) == (True, str(run_id))
        assert explained.reasons[0] == f"It runs then: run {run_id} is failed."
        assert "overlap policy" in (await ledger.explain(due[0])).reasons[0]

    async def test_of_the_future_agree_with_the_job(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        job = await plane.get("a")
        explained = await ledger.explain(micros(job.next_occurrence))
        assert explained.fires
        assert explained.reasons[0].startswith("It will run then")
        assert (await ledger.explain(micros(job.create_time))).next == job.next_occurrence

    async def test_before_the_registration_and_without_a_schedule(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        explained = await ledger.explain(now_us() - DAY)
        assert (explained.fires, explained.version) == (False, 0)
        assert "registered later" in explained.reasons[0]
        idle = await ledger_of(plane, eye, None, "b")
        assert "has no schedule" in (await idle.explain(now_us() + HOUR)).reasons[0]
        assert await idle.whole(0, now_us() + DAY) == []


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "at_fault"),
        [
            ({"name": ""}, "name"),
            ({"name": "a", "job_id": "x"}, "name"),
            ({"name": "", "job_id": "x"}, "job_id"),
            ({"namespace": "UPPER"}, "namespace"),
            ({"from": None}, "from"),
            ({"to": None}, "to"),
            ({"to": Timestamp(seconds=10)}, "to"),
            ({"to": Timestamp(seconds=10**12)}, "to"),
            ({"page_size": 1001}, "page_size"),
            ({"page_token": "x"}, "page_token"),
        ],
    )
    async def test_of_the_ledger(self, plane: ControlPlane, fields: dict[str, Any], at_fault: str) -> None:
        wanted = {"name": "a", "from": Timestamp(seconds=10), "to": Timestamp(seconds=20), **fields}
        given = {name: value for name, value in wanted.items() if value is not None}
        refusal = await refused(plane.jobs.GetJobLedger(job_service_pb2.GetJobLedgerRequest(**given)))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert at_fault in refusal.fields

    async def test_a_token_is_for_its_own_range(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        ledger = await ledger_of(plane, eye, HOURLY)
        made = await ledger.grow_older(10 * HOUR)
        token = (await ledger.page(made, now_us(), size=1)).next_page_token
        assert token
        assert "page_token" in (await refused(ledger.page(made + 1, now_us(), 1, token))).fields

    async def test_of_explanations(self, plane: ControlPlane) -> None:
        for request, field in (
            (job_service_pb2.ExplainJobRequest(name="a"), "at"),
            (job_service_pb2.ExplainJobRequest(at=Timestamp(seconds=1)), "name"),
            (job_service_pb2.ExplainJobRequest(name="a", at=Timestamp(seconds=-1)), "at"),
        ):
            assert field in (await refused(plane.jobs.ExplainJob(request))).fields
        unknown = job_service_pb2.ExplainJobRequest(name="a", at=Timestamp(seconds=1))
        assert (await refused(plane.jobs.ExplainJob(unknown))).code is grpc.StatusCode.NOT_FOUND


async def _answer(holds: bool) -> bool:
    return holds
