"""GetJobLedger and ExplainJob over a real server and database: what became of every occurrence of a job.

No dispatcher runs here: what it would have written is planted, and what it must never do as well.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tidewheel.v1 import job_pb2, job_service_pb2, run_pb2

from core.schedule import Schedule
from core.states import RunCause, RunState, SkipReason
from tests.support.control_plane import ControlPlane
from tests.support.instants import clear_of_the_next
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
)


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
        await clear_of_the_next(600)
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
        async with asyncio.timeout(30):
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
        await ledger.grow_as_old_as("2026-01-01T00:00:00+00:00")
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
        await ledger.grow_as_old_as("2026-01-01T00:00:00+00:00")
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
        await ledger.grow_as_old_as("2026-01-01T00:00:00+00:00")
        first, second = instant("2026-10-25T02:30:00+02:00"), instant("2026-10-25T02:30:00+01:00")
        await ledger.ran(first)
        assert kinds(await ledger.whole(first - HOUR, second + HOUR)) == ["RUN", "EXCLUDED"]
