"""What a transaction must know beside a job to make its next version: calendars, runs made, and the load of minutes.

Read by core/store/job_changes.py and by the batches over many jobs, always inside the transaction of the change. A
calendar that a version is to name is locked FOR SHARE: whoever deletes or changes it comes before or after the
reference, never in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from core.buckets import BucketScale
from core.calendars import CalendarPin
from core.clock import US_PER_S
from core.store.calendar_lookup import Contents, load_contents
from core.store.database import Transaction
from core.store.statement import Kind, statement

MINUTE_US = 60 * US_PER_S
# As many as a schedule may be limited to: what was run beyond does not matter.
_MOST_RUNS = 100_000
# The load of a minute is an estimate: with more shards, so many of them are looked at, and so many rows of each.
_SAMPLED_SHARDS = 128
_SAMPLED_ROWS = 500

_FIND_CALENDARS = statement(
    "find_calendars_by_name",
    Kind.READ,
    """
    SELECT c.calendar_id
    FROM unnest(CAST(:names AS TEXT[])) AS w(name)
    JOIN calendars c ON c.namespace = CAST(:namespace AS TEXT) AND c.deleted_us = 0 AND c.name = w.name
    """,
)
_HOLD_CALENDARS = statement(
    "hold_calendars",
    Kind.READ,
    # By their keys, ascending, and with the version that stands when the lock is had.
    """
    SELECT c.calendar_id, c.name, c.version
    FROM unnest(CAST(:calendar_ids AS UUID[])) AS i(calendar_id)
    JOIN calendars c ON c.calendar_id = i.calendar_id
    WHERE c.deleted_us = 0
    FOR SHARE OF c
    """,
)
_COUNT_RUNS = statement(
    "count_scheduled_runs",
    Kind.READ,
    """
    SELECT i.job_id, made.runs, last_run.scheduled_for_us, last_skip.to_us
    FROM unnest(CAST(:job_ids AS UUID[])) AS i(job_id)
    CROSS JOIN LATERAL (
      SELECT count(*) AS runs FROM (
        SELECT r.run_id FROM runs r WHERE r.job_id = i.job_id AND r.cause = 1 LIMIT CAST(:most AS BIGINT)
      ) AS counted
    ) AS made
    LEFT JOIN LATERAL (
      SELECT r.scheduled_for_us FROM runs r WHERE r.job_id = i.job_id AND r.cause = 1
      ORDER BY r.scheduled_for_us DESC, r.run_id DESC LIMIT 1
    ) AS last_run ON TRUE
    LEFT JOIN LATERAL (
      SELECT s.to_us FROM skips s WHERE s.job_id = i.job_id ORDER BY s.from_us DESC LIMIT 1
    ) AS last_skip ON TRUE
    """,
)
_MEASURE_MINUTES = statement(
    "measure_minutes",
    Kind.READ,
    """
    SELECT i.minute, CAST(sum(held.due_rows) AS BIGINT) AS due_rows
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:minutes AS BIGINT[]), CAST(:from_buckets AS BIGINT[]),
                CAST(:to_buckets AS BIGINT[])) AS i(shard, minute, from_bucket, to_bucket)
    CROSS JOIN LATERAL (
      SELECT count(*) AS due_rows FROM (
        SELECT d.id FROM due d
        WHERE d.shard = i.shard AND d.bucket >= i.from_bucket AND d.bucket < i.to_bucket
        LIMIT CAST(:most AS BIGINT)
      ) AS counted
    ) AS held
    GROUP BY i.minute
    """,
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a change wants to know.

    `calendars` are names whose present versions the next version will be pinned to: they are locked. `pins` are
    versions whose contents matter as well. `counts` asks for `runs_made` and `accounted_us`.
    """

    calendars: frozenset[str] = frozenset()
    pins: frozenset[CalendarPin] = frozenset()
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found. A name or pin that is missing does not exist; an unreadable content is its fault.

    `runs_made` counts runs of the schedule (not triggers, not backfills), at most 100,000. `accounted_us` is the
    latest nominal instant that has a run or a recorded skip, -1 without any. `load` gives the due rows of a minute
    (counted from the epoch) as far as it was measured.
    """

    calendars: Mapping[str, CalendarPin] = field(default_factory=dict)
    contents: Contents = field(default_factory=dict)
    runs_made: int = 0
    accounted_us: int = -1
    load: Mapping[int, int] = field(default_factory=dict)

    def with_load(self, load: Mapping[int, int]) -> Surroundings:
        """The same, with the load of minutes added."""
        return replace(self, load=load)


async def gather(tx: Transaction, namespace: str, wishes: Mapping[UUID, Wishes]) -> dict[UUID, Surroundings]:
    """What the jobs in `wishes` want to know, with one statement a question for all of them."""
    calendars = await _held_calendars(tx, namespace, {name for wish in wishes.values() for name in wish.calendars})
    pins = {pin for wish in wishes.values() for pin in wish.pins} | set(calendars.values())
    contents = await load_contents(tx, pins)
    counts = await _counts(tx, [job_id for job_id, wish in wishes.items() if wish.counts])
    return {
        job_id: Surroundings(
            {name: calendars[name] for name in wish.calendars if name in calendars},
            contents,
            *counts.get(job_id, (0, -1)),
        )
        for job_id, wish in wishes.items()
    }


async def measure(tx: Transaction, minutes: Iterable[int], *, scale: BucketScale, shard_count: int) -> dict[int, int]:
    """About how many rows are due in each of the minutes (from the epoch), over all shards."""
    wanted = sorted(set(minutes))
    if not wanted:
        return {}
    step = max(1, shard_count // _SAMPLED_SHARDS)
    probes = [(shard, minute) for minute in wanted for shard in range(0, shard_count, step)]
    rows = await tx.run(
        _MEASURE_MINUTES,
        {
            "shards": [shard for shard, _ in probes],
            "minutes": [minute for _, minute in probes],
            "from_buckets": [scale.bucket_of(minute * MINUTE_US) for _, minute in probes],
            "to_buckets": [scale.bucket_of((minute + 1) * MINUTE_US - 1) + 1 for _, minute in probes],
            "most": _SAMPLED_ROWS,
        },
    )
    return {row.minute: int(row.due_rows) for row in rows}


async def _held_calendars(tx: Transaction, namespace: str, names: set[str]) -> dict[str, CalendarPin]:
    if not names:
        return {}
    found = await tx.run(_FIND_CALENDARS, {"namespace": namespace, "names": sorted(names)})
    if not found:
        return {}
    held = await tx.run(_HOLD_CALENDARS, {"calendar_ids": sorted(row.calendar_id for row in found)})
    return {row.name: CalendarPin(row.calendar_id, row.version) for row in held}


async def _counts(tx: Transaction, job_ids: Sequence[UUID]) -> dict[UUID, tuple[int, int]]:
    if not job_ids:
        return {}
    rows: Sequence[Any] = await tx.run(_COUNT_RUNS, {"job_ids": sorted(job_ids), "most": _MOST_RUNS})
    return {row.job_id: (int(row.runs), max(_or_never(row.scheduled_for_us), _or_never(row.to_us))) for row in rows}


def _or_never(instant_us: int | None) -> int:
    return -1 if instant_us is None else instant_us
