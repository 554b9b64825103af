"""ExplainJob, and the ledger over versions of a job, over a real server and database; and what both refuse.

No dispatcher runs here: what it would have written is planted.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_pb2, job_service_pb2

from core.states import RunState, SkipReason
from tests.support.control_plane import ControlPlane, refused
from tests.support.job_ledger import (
    DAY,
    HOUR,
    HOURLY,
    US,
    hours,
    instant,
    kind,
    kinds,
    ledger_of,
    micros,
    now_us,
    stamp,
)
from tests.support.polling import eventually


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

        await eventually(pause_has_occurrences, within_s=60)
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
        await eventually(lambda: _answer(now_us() > since_us + 7 * US // 2), within_s=30)
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
        await ledger.grow_as_old_as("2026-01-01T00:00:00+00:00")
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
