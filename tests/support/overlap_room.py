"""What tests of overlap policies on real dispatchers wait for, and what they hold against the rows.

Nothing there is decided by time: a run lasts until the test lets its worker say that it is done.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

from core.clock import US_PER_S
from core.intervals import Every
from core.schedule import Schedule
from core.states import RunState, SkipReason
from tests.support.dispatcher_room import Room
from tests.support.polling import eventually
from tests.support.running_dispatcher import RunningDispatcher


async def ticking(room: Room, times: int, every_s: int, **spec: Any) -> tuple[UUID, list[int]]:
    """A job that occurs so many times from soon on; with the instants."""

    def spaced(first_us: int) -> Schedule:
        every = Every(elapsed_us=every_s * US_PER_S)
        return Schedule(every=(every,), anchor_us=first_us, end_us=first_us + (times - 1) * every_s * US_PER_S + 1)

    job_id, first_us = await room.job_from(1.0, spaced, **spec)
    instants = [first_us + n * every_s * US_PER_S for n in range(times)]
    room.expected[job_id] = instants
    return job_id, instants


async def triggered(room: Room, job_id: UUID) -> UUID:
    """A trigger that obeys the job's policy."""
    return await room.trigger(job_id, allow_overlap=False)


async def skipped(room: Room, job_id: UUID, instants: list[int], reason: SkipReason) -> None:
    """Wait until exactly these are recorded, with this reason."""

    async def recorded() -> bool:
        return [(s["from_us"], s["reason"]) for s in await room.skips(job_id)] == [(at, reason) for at in instants]

    await eventually(recorded, 30, what=f"{len(instants)} occurrences are skipped")


async def gated(room: Room, job_id: UUID, count: int) -> list[UUID]:
    """The runs of the job that wait for others, once there are so many."""

    async def waiting() -> list[UUID] | None:
        runs = [run for run in await room.runs(job_id) if run["state"] == RunState.PENDING and run["gated"]]
        return [run["run_id"] for run in runs] if len(runs) == count else None

    return await eventually(waiting, 30, what=f"{count} runs wait for others of their job")


async def behind_gate(owner: RunningDispatcher, count: int) -> None:
    gates = owner.parts.memory.gates
    await eventually(lambda: gates.waiting == count, 30, what=f"{count} runs wait behind gates, not {gates.waiting}")


async def one_at_a_time(room: Room, job_id: UUID) -> None:
    """No attempt of the job began before the one that began before it had ended."""
    rows = await room.eye.fetch(
        "SELECT a.started_us, a.ended_us FROM attempts a JOIN runs r ON r.run_id = a.run_id WHERE r.job_id = $1", job_id
    )
    spans = sorted((row["started_us"], row["ended_us"]) for row in rows)
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans)), spans


# At the COMMIT that starts a run: is another one of its job started, and not ended? (The instants in the rows are two
# dispatchers' clocks, which differ a little, and are read before the statements are sent.)
_WATCH = """
CREATE TABLE seen_together (job_id UUID NOT NULL);
CREATE FUNCTION see_together() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state = 2 AND (SELECT count(*) FROM runs WHERE job_id = NEW.job_id
                        AND (state = 2 OR (state = 1 AND attempt > 0))) > 1 THEN
    INSERT INTO seen_together VALUES (NEW.job_id);
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER see_together AFTER INSERT OR UPDATE ON runs DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION see_together();
"""


async def watch_overlaps(room: Room) -> None:
    """From now on the database notes jobs of which two runs are started at once."""
    await room.eye.execute(_WATCH)


async def never_together(room: Room, job_id: UUID) -> None:
    """No two runs of the job were started at once, as the database saw it when they committed."""
    assert await room.eye.fetchval("SELECT count(*) FROM seen_together WHERE job_id = $1", job_id) == 0


def without_tick(owner: RunningDispatcher) -> None:
    """From now on nobody looks at sleeping runs: what happens must wake them."""

    async def look() -> None:
        return None

    owner.parts.loops.gates.look = look  # type: ignore[method-assign]


async def all_met(room: Room) -> None:
    """Wait until nothing is due: the dispatcher has met every trigger."""

    async def none() -> bool:
        return not await room.eye.fetch("SELECT 1 FROM due")

    await eventually(none, 30, what="all of them have been met")
