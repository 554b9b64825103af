"""Finds the open runs of a shard, all of them, by bounded looks at keys. Only reads.

Recent open runs are short ranges of the primary key, from the shard's open-from mark on; those that have been open for
long stand in `open_runs`. Neither statement reads more than some thousand rows, however many wait in the shard, and
each is one look a range or key. Called through OpenRuns (open_runs.py), and by the reconciler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.ids import hashes_range
from core.states import RunCause, RunState
from core.store.database import Database
from core.store.statement import Kind, statement

_NAMES = (
    *("run_id", "job_id", "job_version", "shard", "scheduled_for_us", "due_at_us", "state", "attempt", "uncounted"),
    *("home_term", "worker", "token_hash", "lease_until_us", "not_before_us", "started_us", "cancel_requested_us"),
    *("trace", "payload", "progress", "gated", "cause"),
)


def columns(alias: str) -> str:
    """All that is read of an open run."""
    return ", ".join(f"{alias}.{name}" for name in _NAMES)


_FIND_PEOPLED = statement(
    "find_peopled_ranges",
    Kind.READ,
    """
    SELECT h.ord
    FROM unnest(CAST(:ords AS BIGINT[]), CAST(:lows AS UUID[]), CAST(:highs AS UUID[])) AS h(ord, low, high)
    CROSS JOIN LATERAL (
      SELECT r.run_id FROM runs r WHERE r.run_id >= h.low AND r.run_id < h.high ORDER BY r.run_id LIMIT 1
    ) AS f
    """,
)
# One look a range or key, which also leaves the planner no other order than this one.
_LIST_RECENT = statement(
    "list_recent_open_runs",
    Kind.READ,
    # A shard's runs since its open-from mark: within each job hash the key is ordered by time, so this is one short
    # range of the primary key a hash.
    f"""
    SELECT h.ord, {columns("r")}
    FROM unnest(CAST(:ords AS BIGINT[]), CAST(:lows AS UUID[]), CAST(:highs AS UUID[])) AS h(ord, low, high)
    CROSS JOIN LATERAL (
      SELECT {columns("n")} FROM runs n
      WHERE n.run_id >= h.low AND n.run_id < h.high AND n.state IN (1, 2)
      ORDER BY n.run_id
      LIMIT CAST(:limit_per_range AS BIGINT)
    ) AS r
    """,
)
_LIST_STANDING = statement(
    "list_standing_open_runs",
    Kind.READ,
    # Those that have ended are listed too, without their columns: the caller goes on after the last one.
    f"""
    SELECT o.job_id AS standing_job_id, o.run_id AS standing_run_id, {columns("r")}
    FROM (
      SELECT s.job_id, s.run_id FROM open_runs s
      WHERE s.shard = CAST(:shard AS BIGINT)
        AND (s.job_id, s.run_id) > (CAST(:after_job_id AS UUID), CAST(:after_run_id AS UUID))
      ORDER BY s.shard, s.job_id, s.run_id
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS o
    LEFT JOIN LATERAL (
      SELECT {columns("n")} FROM runs n WHERE n.run_id = o.run_id AND n.state IN (1, 2) LIMIT 1
    ) AS r ON TRUE
    """,
)
_LIST_NAMED = statement(
    "list_named_open_runs",
    Kind.READ,
    f"""
    SELECT {columns("r")}
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id)
    CROSS JOIN LATERAL (
      SELECT {columns("n")} FROM runs n WHERE n.run_id = i.run_id LIMIT 1
    ) AS r
    WHERE r.shard = CAST(:shard AS BIGINT) AND r.state IN (1, 2)
    """,
)
_LIST_ENDED = statement(
    "list_ended_standing_runs",
    Kind.READ,
    # A run that ended while it was made to stand left its row behind.
    """
    SELECT o.shard, o.job_id, o.run_id
    FROM open_runs o
    CROSS JOIN LATERAL (
      SELECT n.state FROM runs n WHERE n.run_id = o.run_id LIMIT 1
    ) AS r
    WHERE o.shard = CAST(:shard AS BIGINT) AND r.state IN (3, 4, 5, 6)
    ORDER BY o.shard, o.job_id, o.run_id
    LIMIT 500
    """,
)
# Job hashes that are looked into together, coarse to fine.
_NARROWING = (64, 8)
# Of one statement, which has two seconds.
_ROWS_AT_ONCE = 10_000
_RANGES_AT_ONCE = 500
_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """One open run as its home owner holds it in memory; instants in microseconds."""

    run_id: UUID
    job_id: UUID
    job_version: int
    shard: int
    scheduled_for_us: int
    due_at_us: int
    state: RunState
    attempt: int
    uncounted: int
    home_term: int
    worker: str
    token_hash: bytes | None
    lease_until_us: int
    not_before_us: int
    started_us: int
    cancel_requested_us: int
    trace: str
    payload: bytes | None
    progress: bytes | None
    gated: bool
    cause: RunCause


class OpenRunLists:
    """The reads. All of them raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def peopled_hashes(self, hashes: range) -> list[int]:
        """The job hashes, or their near neighbours, that have runs: far fewer than all, unless there are many jobs.

        Looking into each of a cluster's 65,536 hashes took 1.4 s although there was nothing to find.
        """
        blocks = [hashes]
        for width in _NARROWING:
            finer = [b[i : i + width] for b in blocks for i in range(0, len(b), width)]
            blocks = [finer[n] for n in await self.peopled([hashes_range(b) for b in finer])]
        return [each for block in blocks for each in block]

    async def peopled(self, ranges: Sequence[tuple[UUID, UUID]]) -> list[int]:
        """The positions of the ranges of run ids in which there is any run, ended or not."""
        params = {
            "ords": list(range(len(ranges))),
            "lows": [low for low, _ in ranges],
            "highs": [high for _, high in ranges],
        }
        return sorted(row.ord for row in await self._database.run(_FIND_PEOPLED, params))

    async def find(self, shard: int, ranges: Sequence[tuple[UUID, UUID]]) -> list[OpenRun]:
        """Every open run of a shard: the recent ones in `ranges` of the primary key, and those that stand apart."""
        rows = [*await self._recent(ranges), *await self._standing(shard)]
        return list({row.run_id: open_run(row) for row in rows}.values())

    async def _recent(self, ranges: Sequence[tuple[UUID, UUID]]) -> list[Row[Any]]:
        rows: list[Row[Any]] = []
        left = list(ranges)
        while left:
            some, left = left[:_RANGES_AT_ONCE], left[_RANGES_AT_ONCE:]
            limit = max(1, _ROWS_AT_ONCE // len(some))
            params = {
                "ords": list(range(len(some))),
                "lows": [low for low, _ in some],
                "highs": [high for _, high in some],
                "limit_per_range": limit,
            }
            page = await self._database.run(_LIST_RECENT, params)
            rows += page
            # A range that was read to its limit may hold more: it goes on after its last run.
            counts = Counter(row.ord for row in page)
            last = {n: max(row.run_id for row in page if row.ord == n) for n, count in counts.items() if count == limit}
            left += [(UUID(int=run_id.int + 1), some[n][1]) for n, run_id in last.items()]
        return rows

    async def _standing(self, shard: int) -> list[Row[Any]]:
        rows: list[Row[Any]] = []
        after = (_NOBODY, _NOBODY)
        while True:
            params = {"shard": shard, "after_job_id": after[0], "after_run_id": after[1], "row_limit": _ROWS_AT_ONCE}
            page = await self._database.run(_LIST_STANDING, params)
            rows += [row for row in page if row.run_id is not None]
            if len(page) < _ROWS_AT_ONCE:
                return rows
            after = max((row.standing_job_id, row.standing_run_id) for row in page)

    async def named(self, shard: int, run_ids: Sequence[UUID]) -> list[OpenRun]:
        """Those of these runs of a shard that are open."""
        rows = await self._database.run(_LIST_NAMED, {"shard": shard, "run_ids": sorted(run_ids)})
        return [open_run(row) for row in rows]

    async def ended_standing(self, shard: int) -> list[tuple[UUID, UUID]]:
        """Runs of a shard, as (job id, run id), that stand in open_runs and have ended; 500 at most."""
        return [(row.job_id, row.run_id) for row in await self._database.run(_LIST_ENDED, {"shard": shard})]


def open_run(row: Row[Any]) -> OpenRun:
    """From all its columns."""
    return OpenRun(
        run_id=row.run_id,
        job_id=row.job_id,
        job_version=row.job_version,
        shard=row.shard,
        scheduled_for_us=row.scheduled_for_us,
        due_at_us=row.due_at_us,
        state=RunState(row.state),
        attempt=row.attempt,
        uncounted=row.uncounted,
        home_term=row.home_term,
        worker=row.worker,
        token_hash=row.token_hash,
        lease_until_us=row.lease_until_us,
        not_before_us=row.not_before_us,
        started_us=row.started_us,
        cancel_requested_us=row.cancel_requested_us,
        trace=row.trace,
        payload=row.payload,
        progress=row.progress,
        gated=row.gated,
        cause=RunCause(row.cause),
    )
