"""What the ledger says while a dispatcher comes back from a downtime: at no moment is an occurrence unaccounted for."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from controlplane.job_accounts import JobAccounts
from controlplane.ledger import LedgerKind
from core.clock import US_PER_S
from core.intervals import Every
from core.jobspec import JobSpec
from core.policy import CatchUp, CatchUpMode, CatchUpOrder, Overlap
from core.schedule import Schedule
from core.store.jobs import Jobs
from tests.support.dispatcher_room import Room, now_us
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, success

LONG_AGO_US = 600 * US_PER_S
COUNT = 40
RUN, SKIPPED, DUE = LedgerKind.RUN, LedgerKind.SKIPPED, LedgerKind.DUE
ALL = CatchUpMode.ALL


async def kinds(room: Room, job_id: UUID) -> Counter[LedgerKind]:
    """How many occurrences of the missed ones have which account."""
    job = await Jobs(room.database).by_id("default", job_id)
    accounts = JobAccounts(room.database, room.clock, room.scale)
    instants = room.expected[job_id]
    page = await accounts.page(job, instants[0] - 1, instants[-1] + 1, 1_000)
    assert page.next_us is None
    found: Counter[LedgerKind] = Counter()
    for made in page.accounts:
        found[made.kind] += made.occurrences
    return found


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        ({"mode": CatchUpMode.SKIP}, 0),
        ({"mode": CatchUpMode.LATEST}, 1),
        ({"mode": ALL, "max_runs": 8}, 8),
        ({"mode": ALL, "max_runs": 8, "order": CatchUpOrder.NEWEST_FIRST}, 8),
    ],
    ids=["skip", "latest", "all", "newest-first"],
)
async def test_every_missed_occurrence_is_due_until_it_is_run_or_recorded(
    room: Room, policy: dict[str, Any], runs: int
) -> None:
    begin_us = now_us() - LONG_AGO_US
    every = Every(elapsed_us=US_PER_S)
    schedule = Schedule(every=(every,), anchor_us=begin_us, end_us=begin_us + COUNT * US_PER_S)
    catch_up = CatchUp(grace_us=2 * US_PER_S, **policy)
    job_id = await room.missed_job(
        JobSpec("work", schedule=schedule, catch_up=catch_up, overlap=Overlap.ALLOW), begin_us
    )
    assert await kinds(room, job_id) == {DUE: COUNT}
    owner = await room.owner(catch_up_runs_per_s=2.0)
    seen = set()

    async def is_over() -> bool:
        found = await kinds(room, job_id)
        assert found.keys() <= {RUN, SKIPPED, DUE}, found
        assert found.total() == COUNT
        seen.add(found[DUE])
        return not found[DUE]

    async with ScriptedWorker(owner.address, work=success, slots=10) as worker:
        await worker.grant(10)
        # A finding must not be taken for "not yet".
        faults: list[AssertionError] = []

        async def watched() -> bool:
            try:
                return await is_over()
            except AssertionError as fault:
                faults.append(fault)
                return True

        await eventually(watched, within_s=60)
    assert not faults, faults[0]
    assert +(await kinds(room, job_id)) == +Counter({RUN: runs, SKIPPED: COUNT - runs})
    assert runs < 2 or len(seen) > 2, "it was looked at on its way"
