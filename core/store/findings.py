"""What the reconciler reads beside the others' reads: rows that nobody else would look at, one shard at a time.

Each statement is one snapshot of what it compares, so that rows on the move are never taken for lost. All are bounded:
a scan of `due` by a limit, runs by ranges of the primary key and by a limit. Called by controlplane/inspection.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.findings import SeenRun, StrayRow
from core.store.database import Database
from core.store.statement import Kind, statement

_STRAYS = statement(
    "list_due_rows_below_watermark",
    Kind.READ,
    # Whatever lands, lands at or above the floor, and the watermark follows behind it: one snapshot shows none.
    """
    SELECT d.shard, d.bucket, d.due_at_us, d.id, d.job_id, m.watermark
    FROM shard_marks m
    CROSS JOIN LATERAL (
      SELECT o.shard, o.bucket, o.due_at_us, o.id, o.job_id
      FROM due o
      WHERE o.shard = CAST(:shard AS BIGINT) AND o.bucket >= CAST(0 AS BIGINT) AND o.bucket < m.watermark
      ORDER BY o.shard, o.bucket, o.due_at_us, o.id
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS d
    WHERE m.shard = CAST(:shard AS BIGINT)
    """,
)
_COLUMNS = """r.run_id, r.job_id, r.job_version, r.shard, r.scheduled_for_us, r.due_at_us, r.state, r.attempt,
           r.home_term, r.lease_until_us, r.not_before_us, r.cancel_requested_us, r.gated"""
# One look a key or range, so that the planner never walks all runs to join them.
_NAMED = """n.run_id, n.job_id, n.job_version, n.shard, n.scheduled_for_us, n.due_at_us, n.state, n.attempt,
             n.home_term, n.lease_until_us, n.not_before_us, n.cancel_requested_us, n.gated"""
_RECENT = statement(
    "list_recent_runs_to_inspect",
    Kind.READ,
    # As adoption finds them: one short range of the primary key a job hash.
    f"""
    SELECT {_COLUMNS}
    FROM unnest(CAST(:lows AS UUID[]), CAST(:highs AS UUID[])) AS h(low, high)
    CROSS JOIN LATERAL (
      SELECT {_NAMED} FROM runs n
      WHERE n.run_id >= h.low AND n.run_id < h.high AND n.state IN (1, 2)
      ORDER BY n.run_id
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS r
    WHERE r.shard = CAST(:shard AS BIGINT)
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_STANDING = statement(
    "list_standing_runs_to_inspect",
    Kind.READ,
    f"""
    SELECT {_COLUMNS}
    FROM (
      SELECT s.run_id FROM open_runs s
      WHERE s.shard = CAST(:shard AS BIGINT)
      ORDER BY s.shard, s.job_id, s.run_id
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS o
    CROSS JOIN LATERAL (
      SELECT {_NAMED} FROM runs n WHERE n.run_id = o.run_id LIMIT 1
    ) AS r
    WHERE r.state IN (1, 2)
    """,
)
_AGAIN = statement(
    "read_runs_to_inspect_again",
    Kind.READ,
    f"""
    SELECT {_COLUMNS}
    FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id)
    CROSS JOIN LATERAL (
      SELECT {_NAMED} FROM runs n WHERE n.run_id = i.run_id LIMIT 1
    ) AS r
    WHERE r.state IN (1, 2)
    """,
)
_WALK = statement(
    "walk_runs_to_inspect",
    Kind.READ,
    # The next runs of a shard by key, ended or not; of these the open ones, with the open-from mark and whether they
    # stand in open_runs. A mark passes a run only after it stands there, so that one snapshot shows none that does not.
    f"""
    WITH page AS (
      SELECT {_COLUMNS}
      FROM runs r
      WHERE r.run_id > CAST(:after AS UUID) AND r.run_id < CAST(:high AS UUID)
      ORDER BY r.run_id
      LIMIT CAST(:row_limit AS BIGINT)
    ), last AS (
      SELECT p.run_id FROM page p ORDER BY p.run_id DESC LIMIT 1
    )
    SELECT l.run_id AS last_id, CAST(NULL AS BIGINT) AS open_from_us, CAST(NULL AS UUID) AS run_id,
           CAST(NULL AS UUID) AS job_id, CAST(NULL AS BIGINT) AS job_version, CAST(NULL AS BIGINT) AS shard,
           CAST(NULL AS BIGINT) AS scheduled_for_us, CAST(NULL AS BIGINT) AS due_at_us, CAST(NULL AS SMALLINT) AS state,
           CAST(NULL AS BIGINT) AS attempt, CAST(NULL AS BIGINT) AS home_term, CAST(NULL AS BIGINT) AS lease_until_us,
           CAST(NULL AS BIGINT) AS not_before_us, CAST(NULL AS BIGINT) AS cancel_requested_us,
           CAST(NULL AS BOOLEAN) AS gated, CAST(NULL AS BOOLEAN) AS stands
    FROM last l
    UNION ALL
    SELECT CAST(NULL AS UUID), m.open_from_us, {_COLUMNS}, o.run_id IS NOT NULL
    FROM page r
    JOIN shard_marks m ON m.shard = r.shard
    LEFT JOIN open_runs o ON o.shard = r.shard AND o.job_id = r.job_id AND o.run_id = r.run_id
    WHERE r.state IN (1, 2) AND r.shard = CAST(:shard AS BIGINT)
    """,
)
_ACCOUNT_END = statement(
    "read_end_of_account",
    Kind.READ,
    # Up to where the occurrences of a job have runs or skips, and where its version begins.
    """
    SELECT v.from_us,
           COALESCE((SELECT r.scheduled_for_us FROM runs r
                     WHERE r.job_id = v.job_id AND r.cause = 1
                     ORDER BY r.job_id DESC, r.scheduled_for_us DESC, r.run_id DESC LIMIT 1), 0) AS run_us,
           COALESCE((SELECT s.to_us FROM skips s
                     WHERE s.job_id = v.job_id
                     ORDER BY s.job_id DESC, s.from_us DESC LIMIT 1), 0) AS skip_us
    FROM job_versions v
    WHERE v.job_id = CAST(:job_id AS UUID) AND v.version = CAST(:version AS BIGINT)
    """,
)

_MOST_STRAYS = 200
_MOST_RUNS = 5_000


@dataclass(frozen=True, slots=True)
class Walked:
    """A step of the walk: open runs, those of them that no adoption would find, and after which id to go on (None: the
    shard's end)."""

    runs: list[SeenRun]
    unfound: list[SeenRun]
    after: UUID | None


class Findings:
    """The reconciler's reads. All of them raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def strays(self, shard: int) -> list[StrayRow]:
        """The first due rows below the watermark."""
        rows = await self._database.run(_STRAYS, {"shard": shard, "row_limit": _MOST_STRAYS})
        return [StrayRow(r.shard, r.bucket, r.due_at_us, r.id, r.job_id, r.watermark) for r in rows]

    async def open_runs(self, shard: int, ranges: Sequence[tuple[UUID, UUID]]) -> list[SeenRun]:
        """The open runs that an adoption would find: those in `ranges` of the primary key, and those that stand
        apart; a few thousand of each at most."""
        limits = {"shard": shard, "row_limit": _MOST_RUNS}
        keys = {"lows": [low for low, _ in ranges], "highs": [high for _, high in ranges]}
        recent = await self._database.run(_RECENT, {**limits, **keys}) if ranges else ()
        standing = await self._database.run(_STANDING, limits)
        return list({row.run_id: _seen(row) for row in (*recent, *standing)}.values())

    async def again(self, run_ids: Sequence[UUID]) -> dict[UUID, SeenRun]:
        """Those of these runs that are open, as they stand now."""
        rows = await self._database.run(_AGAIN, {"run_ids": sorted(run_ids)})
        return {row.run_id: _seen(row) for row in rows}

    async def walk(self, shard: int, after: UUID, high: UUID, limit: int) -> Walked:
        """Of the next `limit` runs of a shard between two ids, ended or not, the open ones."""
        params = {"shard": shard, "after": after, "high": high, "row_limit": limit}
        rows = await self._database.run(_WALK, params)
        last = next((row.last_id for row in rows if row.last_id is not None), None)
        found = [(_seen(row), row.stands, row.open_from_us) for row in rows if row.last_id is None]
        return Walked(
            [run for run, _, _ in found],
            [run for run, stands, mark_us in found if not stands and _is_passed(run, mark_us)],
            last,
        )

    async def account_end_us(self, job_id: UUID, version: int) -> int | None:
        """The last nominal instant that a job has accounted for, or where its version begins; None if it is gone."""
        rows = await self._database.run(_ACCOUNT_END, {"job_id": job_id, "version": version})
        return max(rows[0].from_us, rows[0].run_us, rows[0].skip_us) if rows else None


def _is_passed(run: SeenRun, mark_us: int) -> bool:
    """Whether an adoption that begins at the mark misses it. A resting one is found by its due row."""
    return not run.is_resting and run.scheduled_for_us < mark_us and run.keyed_ms < mark_us // 1000


def _seen(row: Row[Any]) -> SeenRun:
    return SeenRun(
        row.run_id,
        row.job_id,
        row.job_version,
        row.shard,
        row.scheduled_for_us,
        row.due_at_us,
        row.state == 2,
        row.attempt,
        row.home_term,
        row.lease_until_us,
        row.not_before_us,
        row.cancel_requested_us,
        row.gated,
    )
