"""Whole dispatchers, a real database, a real etcd and a real worker on a clock that the test moves through days.

machine = await open_machine(url, isolation, etcd_endpoint, stack, "2026-01-10T22:00Z")
await machine.owner()
job = await machine.create(Schedule(cron=("* * * * *",)))
await machine.run_until("2026-01-10T22:03:30Z")
assert await machine.ran(job) == ["2026-01-10T22:01Z", "2026-01-10T22:02Z", "2026-01-10T22:03Z"]

The clock leaps from one due instant to the next; in between everything is let come to rest. The API's part are the
store's own functions with the API's own decisions, on the same clock. The worker answers each run at once, but for the
handler `long`, whose runs last until `finish`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from tidewheel.v1 import worker_service_pb2 as pb

from controlplane.job_accounts import JobAccounts
from controlplane.ledger import LedgerKind
from controlplane.next_version import Creation, Deletion, Edit, Pause, PausedOccurrences, Resume
from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.jobspec import JobSpec
from core.occurrences import occurrences_of
from core.schedule import Schedule
from core.states import SkipReason
from core.store.job_changes import Decision
from core.store.jobs import JobRecord, Jobs
from tests.support.clock import ManualClock
from tests.support.dispatcher_room import SHARDS, Room, open_room
from tests.support.ledger_check import LedgerCheck
from tests.support.running_dispatcher import RunningDispatcher
from tests.support.scripted_worker import ScriptedWorker, success

SETTLE_WITHIN_S = 60.0
# What must not be in a ledger when everything has come to rest.
GAPS = (LedgerKind.MISSING, LedgerKind.UNEXPECTED, LedgerKind.DUE)
SLOTS = 1_000
# Nothing that the test leaps over may end an attempt: a year is one step.
LEASES = {"attempt_lease_s": 100_000_000.0, "heartbeat_interval_s": 40_000_000.0}
# What stands still at a leap wants a moment of time here and there: so much passes at once while all comes to rest.
MOMENT_S = 0.01
LEAD_S = 120


def us(instant: str) -> int:
    """An instant, "2026-01-10T22:00Z", in microseconds."""
    return round(datetime.fromisoformat(instant).timestamp() * US_PER_S)


def shown(instant_us: int) -> str:
    """An instant as a case names it: "2026-01-10T22:00:00Z"."""
    return datetime.fromtimestamp(instant_us / US_PER_S, UTC).isoformat().replace("+00:00", "Z")


@dataclass
class TimeMachine:
    """A room on a manual clock."""

    room: Room
    clock: ManualClock
    worker: ScriptedWorker | None = None
    owned_by: RunningDispatcher | None = None

    # ---- who is there ----

    async def owner(self, running: Sequence[pb.Assignment] = (), **settings: Any) -> RunningDispatcher:
        """Start a dispatcher as the owner of every shard; another one's are seized. A worker connects to it.

        `running` is what the worker has kept of what it was given by the owner before.
        """
        began_us = self.clock.now_us()
        started = await self.room.dispatcher(**{**LEASES, **settings})
        await self.room.order(dict.fromkeys(range(SHARDS), started), seize=True)
        await self.until(lambda: started.shards == set(range(SHARDS)), "the dispatcher owns every shard")
        await self.until(lambda: all(held.whole for held in started.parts.memory.holdings), "it has adopted every run")
        kept = {"holding": [given.ref for given in running]}
        worker = ScriptedWorker(started.address, "worker-1", ["work", "long"], SLOTS, work=_answer, **kept)
        await worker.open()
        self.room.stack.push_async_callback(worker.close)
        worker.assignments += running
        await worker.grant(SLOTS - len(running))
        self.worker, self.owned_by = worker, started
        assert self.clock.now_us() - began_us < 60 * US_PER_S
        return started

    async def crash(self) -> list[pb.Assignment]:
        """End the owner without a word; nobody fires from now on. Returns what the worker goes on with."""
        assert self.owned_by is not None
        assert self.worker is not None
        crashed, self.owned_by = self.owned_by, None
        kept = {(ref.run_id, ref.attempt) for ref in self.worker.holding}
        running = [one for one in self.worker.assignments if (one.ref.run_id, one.ref.attempt) in kept]
        await self.worker.close()
        await crashed.kill()
        return running

    # ---- time ----

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    async def leap_to(self, instant: str | int) -> None:
        """Be there at once, as after a time in which nothing ran; then let everything come to rest."""
        target_us = us(instant) if isinstance(instant, str) else instant
        assert target_us >= self.now_us, f"{shown(target_us)} is over: it is {shown(self.now_us)}"
        await self.clock.leap((target_us - self.now_us) / US_PER_S)
        await self.settle()

    async def run_until(self, instant: str | int) -> None:
        """Let time pass, from one due instant to the next."""
        target_us = us(instant) if isinstance(instant, str) else instant
        await self.settle()
        while (next_us := await self._next_due_us()) is not None and next_us <= target_us:
            await self.leap_to(next_us)
        await self.leap_to(max(target_us, self.now_us))

    async def database_clock_jumps(self, seconds: int) -> None:
        """The clock that decides jumps, forth or back; no other one does. Comes back when the owner has followed."""
        assert self.owned_by is not None
        followed = self.owned_by.clock.jumps + 1
        self.clock.set_wall(self.now_us + seconds * US_PER_S)
        await self.until(lambda: self.owned_by is not None and self.owned_by.clock.jumps == followed, "it follows")
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing that is due is left, and no run is open that its worker has not kept."""
        if self.owned_by is not None:
            await self.until(self._at_rest, "everything that is due is done")

    async def until(self, done: Callable[[], Any], what: str) -> None:
        """Wait until `done()`, which may be awaitable, is true; a moment of time passes here and there."""
        deadline_s, rounds = time.monotonic() + SETTLE_WITHIN_S, 0
        while True:
            reached = done()
            if await reached if asyncio.iscoroutine(reached) else reached:
                return
            assert time.monotonic() < deadline_s, f"not within {SETTLE_WITHIN_S:g} s at {shown(self.now_us)}: {what}"
            await asyncio.sleep(0.002)
            rounds += 1
            if rounds % 10 == 0:
                await self.clock.leap(MOMENT_S)

    async def _at_rest(self) -> bool:
        kept = [UUID(ref.run_id) for ref in self.worker.holding] if self.worker is not None else []
        # A run behind its gate waits for the kept one of its job; one with a due row of its own, for its time.
        unrest = await self.room.eye.fetchval(
            """SELECT (SELECT count(*) FROM due WHERE due_at_us <= $1)
                    + (SELECT count(*) FROM runs r WHERE r.state IN (1, 2) AND r.run_id <> ALL($2)
                       AND NOT (r.gated AND r.state = 1 AND EXISTS (
                         SELECT 1 FROM runs k WHERE k.job_id = r.job_id AND k.run_id = ANY($2)))
                       AND NOT EXISTS (SELECT 1 FROM due d WHERE d.id = r.run_id))""",
            *(self.now_us, kept),
        )
        return unrest == 0 and self.owned_by is not None and self.owned_by.parts.loops.completion.idle

    async def _next_due_us(self) -> int | None:
        found = await self.room.eye.fetchval("SELECT min(due_at_us) FROM due WHERE due_at_us > $1", self.now_us)
        return None if found is None else int(found)

    # ---- jobs, as the API changes them ----

    async def create(self, schedule: Schedule | None, *, name: str = "", **spec: Any) -> UUID:
        """Register a job; its handler is `work`, everything else the defaults of the API."""
        job_id = uuid4()
        anchored = None if schedule is None else schedule.anchored(self.now_us)
        decision = Creation(job_id, JobSpec(**({"handler": "work"} | spec), schedule=anchored), b"", Enumerator())
        await self.room.job_changes.create(
            self.room.call(), job_id=job_id, name=name or str(job_id), decision=decision, render=lambda *_: b""
        )
        await self.settle()
        return job_id

    async def edit(self, job_id: UUID, **spec: Any) -> None:
        def edited(job: JobRecord) -> tuple[JobSpec, bytes]:
            assert job.spec is not None
            return replace(job.spec, **spec), job.payload

        await self._change(job_id, Edit(edited, Enumerator()))

    async def pause(self, job_id: UUID) -> None:
        await self._change(job_id, Pause())

    async def resume(self, job_id: UUID, paused: PausedOccurrences = PausedOccurrences.SKIP) -> None:
        await self._change(job_id, Resume(paused, Enumerator()))

    async def delete(self, job_id: UUID) -> None:
        await self._change(job_id, Deletion(Enumerator()))

    async def _change(self, job_id: UUID, decision: Decision) -> None:
        name = await self.room.eye.fetchval("SELECT name FROM jobs WHERE job_id = $1", job_id)
        await self.room.job_changes.change(
            self.room.call(), action="job.test", name=name, decision=decision, render=lambda *_: b""
        )
        await self.settle()

    async def finish(self, job_id: UUID) -> None:
        """Let the run of that job which the worker has kept succeed."""
        assert self.worker is not None
        for ref in self.worker.holding:
            if (await self.room.run(ref.run_id))["job_id"] == job_id:
                await self.worker.succeed(ref)
        await self.settle()

    # ---- what happened ----

    async def ran(self, job_id: UUID) -> list[str]:
        """The occurrences that have a run, in the order of their instants."""
        return [shown(run["scheduled_for_us"]) for run in await self.room.runs(job_id)]

    async def started(self, job_id: UUID) -> list[tuple[str, int]]:
        """Each run's occurrence, and by how much later than that it was handed to a worker, in microseconds."""
        runs = await self.room.runs(job_id)
        return [(shown(run["scheduled_for_us"]), run["started_us"] - run["scheduled_for_us"]) for run in runs]

    async def skipped(self, job_id: UUID) -> list[tuple[str, str, SkipReason]]:
        """The recorded ranges of occurrences without a run: first, last, reason."""
        rows = await self.room.skips(job_id)
        return [(shown(row["from_us"]), shown(row["to_us"]), SkipReason(row["reason"])) for row in rows]

    async def next_due(self, job_id: UUID) -> str | None:
        """When the due row of the job stands; None where there is none. There is never more than one."""
        rows = await self.room.eye.fetch("SELECT due_at_us FROM due WHERE job_id = $1 AND kind = 1", job_id)
        assert len(rows) <= 1, "a chain has one row"
        return shown(rows[0]["due_at_us"]) if rows else None

    async def entries(self, job_id: UUID, low: str, high: str) -> list[tuple[str, tuple[str, ...], str]]:
        """What the schedule of the job says of a range: the instants, their marks, and what excludes them."""
        spec = JobSpec.from_json(json.loads(await self._stored_spec(job_id)))
        occurrences = occurrences_of(spec, {}, Enumerator())
        assert occurrences is not None, "the job has a schedule"
        listed = occurrences.entries(us(low), us(high), 1_000)
        return [
            (shown(each.nominal_us), tuple(m.name.lower() for m in each.marks), each.excluded_by) for each in listed
        ]

    async def _stored_spec(self, job_id: UUID) -> str:
        query = """SELECT v.spec FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
                   WHERE j.job_id = $1"""
        return str(await self.room.eye.fetchval(query, job_id))

    async def error_of(self, job_id: UUID) -> str:
        """Why the job is set aside, as the API shows it; empty when it is not."""
        return str(await self.room.eye.fetchval("SELECT error FROM jobs WHERE job_id = $1", job_id))

    async def ledger(self, job_id: UUID) -> Counter[LedgerKind]:
        """What became of every occurrence of the job from an hour before it was made until now: how many of each."""
        job = await Jobs(self.room.database).by_id("default", job_id)
        accounts = JobAccounts(self.room.database, self.clock, self.room.scale)
        counted: Counter[LedgerKind] = Counter()
        at_us: int | None = job.created_us - 3_600 * US_PER_S
        while at_us is not None and at_us < self.now_us:
            page = await accounts.page(job, at_us, self.now_us, 1_000)
            for one in page.accounts:
                counted[one.kind] += one.occurrences
            at_us = page.next_us
        return counted

    async def check(self) -> None:
        """Let the rows be judged: each occurrence once, none early, and everything else that must hold.

        Every job's ledger must account for all of its occurrences.
        """
        await LedgerCheck(self.room.eye).hold()
        for job in await self.room.eye.fetch("SELECT job_id, name FROM jobs"):
            counted = await self.ledger(job["job_id"])
            gaps = {kind: counted[kind] for kind in GAPS if counted[kind]}
            assert not gaps, f"the ledger of {job['name']} has {gaps}"


def _answer(given: pb.Assignment) -> pb.Result | None:
    return None if given.handler == "long" else success(given)


async def open_machine(
    url: str, isolation: str, etcd_endpoint: str, stack: AsyncExitStack, start: str, **settings: Any
) -> TimeMachine:
    """A machine with one owner, at `start`; everything ends with the stack."""
    clock = ManualClock(us(start) - LEAD_S * US_PER_S)
    machine = TimeMachine(await open_room(url, isolation, etcd_endpoint, stack, clock), clock)
    await machine.owner(**settings)
    await machine.leap_to(start)
    return machine
