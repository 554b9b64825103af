"""What the ledger of a job is made of: versions that touch a range, runs, recorded skips, and where chains stand.

Every read is bounded: it gives a beginning of the range that was asked for, and says how far it goes. Called by
controlplane/job_accounts.py, which puts the account together. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import Row

from core.ids import chain_id
from core.jobspec import JobSpec
from core.states import JobState, RunCause, RunState, SkipReason
from core.store.database import Database
from core.store.jobs import read_spec
from core.store.statement import Kind, statement

_COLUMNS = "v.version, v.state, v.from_us, v.cutover_us, v.author, v.note, CAST(v.spec AS TEXT) AS spec"
_VERSIONS = statement(
    "list_versions_of_range",
    Kind.READ,
    # From the last version before the range that is not paused: what a pause took, and where it began, follows from
    # those after it. A version may reach back before its cut-over: to the beginning of a pause, or to past one-offs.
    f"""
    SELECT {_COLUMNS}
    FROM job_versions v
    WHERE v.job_id = CAST(:job_id AS UUID) AND v.from_us < CAST(:to_us AS BIGINT)
      AND v.version >= COALESCE(
        (SELECT max(p.version) FROM job_versions p
         WHERE p.job_id = CAST(:job_id AS UUID) AND p.cutover_us < CAST(:from_us AS BIGINT) AND p.state <> 2), 0)
    ORDER BY v.job_id, v.version
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_VERSION = statement(
    "read_version_of_job",
    Kind.READ,
    f"""
    SELECT {_COLUMNS}
    FROM job_versions v
    WHERE v.job_id = CAST(:job_id AS UUID) AND v.version = CAST(:version AS BIGINT)
    """,
)
_RUNS = statement(
    "list_runs_of_range",
    Kind.READ,
    """
    SELECT r.run_id, r.scheduled_for_us, r.due_at_us, r.state, r.cause, r.job_version
    FROM runs r
    WHERE r.job_id = CAST(:job_id AS UUID) AND r.scheduled_for_us >= CAST(:from_us AS BIGINT)
      AND r.scheduled_for_us < CAST(:to_us AS BIGINT)
    ORDER BY r.job_id, r.scheduled_for_us, r.run_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_SKIPS = statement(
    "list_skips_of_range",
    Kind.READ,
    """
    SELECT s.from_us, s.to_us, s.reason, s.job_version, s.recorded_us
    FROM skips s
    WHERE s.job_id = CAST(:job_id AS UUID) AND s.from_us >= CAST(:from_us AS BIGINT)
      AND s.from_us < CAST(:to_us AS BIGINT)
    ORDER BY s.job_id, s.from_us
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_SKIPS_BEFORE = statement(
    "list_skips_before",
    Kind.READ,
    """
    SELECT s.from_us, s.to_us, s.reason, s.job_version, s.recorded_us
    FROM skips s
    WHERE s.job_id = CAST(:job_id AS UUID) AND s.from_us < CAST(:from_us AS BIGINT)
    ORDER BY s.job_id DESC, s.from_us DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_CHAINS = statement(
    "find_chains",
    Kind.READ,
    # A chain that has something due stands between the watermark and now.
    """
    SELECT d.job_version, d.scheduled_for_us, d.back_us, d.back_to_us
    FROM shard_marks m
    CROSS JOIN LATERAL (
      SELECT n.job_version, n.scheduled_for_us, n.back_us, n.back_to_us
      FROM due n
      WHERE n.shard = m.shard AND n.bucket >= m.watermark AND n.bucket < CAST(:to_bucket AS BIGINT)
        AND n.id = ANY(CAST(:ids AS UUID[]))
      LIMIT CAST(:row_limit AS BIGINT)
    ) AS d
    WHERE m.shard = CAST(:shard AS BIGINT)
    """,
)
_VERSION_ROWS = 500
_RECORD_ROWS = 2000
# Ranges of one job do not reach into each other, but for those of one-offs that were given for the past (at most 64).
_SKIPS_LOOKED_AT = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """One version of a job; instants in microseconds. `spec` is None where it is not readable: `fault` says why."""

    version: int
    state: JobState
    from_us: int
    cutover_us: int
    author: str
    note: str
    spec: JobSpec | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class RunRow:
    """What the ledger says of a run."""

    run_id: UUID
    scheduled_for_us: int
    due_at_us: int
    state: RunState
    cause: RunCause
    job_version: int


@dataclass(frozen=True, slots=True)
class SkipRow:
    """A recorded range of occurrences without a run, both ends inclusive."""

    from_us: int
    to_us: int
    reason: SkipReason
    job_version: int
    recorded_us: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Where a version's chain stands: at `scheduled_for_us`, and between `back_to_us` and `back_us` when it catches up
    backwards."""

    scheduled_for_us: int
    back_us: int | None = None
    back_to_us: int | None = None

    def has_before_it(self, nominal_us: int) -> bool:
        """Whether it has still to come to this occurrence."""
        if self.back_us is not None and self.back_to_us is not None and self.back_to_us <= nominal_us <= self.back_us:
            return True
        return nominal_us >= self.scheduled_for_us


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T]):
    """What stands in [asked from, `end_us`), all of it."""

    items: tuple[T, ...]
    end_us: int


class LedgerReads:
    """Reads what the ledger of one job is made of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, job_id: UUID, from_us: int, to_us: int) -> Stretch[LedgerVersion]:
        """The versions that may own instants of [from_us, to_us), in order; of a long history the first ones."""
        row_limit = _VERSION_ROWS
        while True:
            key = {"job_id": job_id, "from_us": from_us, "to_us": to_us}
            rows = await self._database.run(_VERSIONS, {**key, "row_limit": row_limit})
            versions = tuple(map(_version, rows))
            if len(rows) < row_limit:
                return Stretch(versions, to_us)
            # What follows a version that is not paused begins no earlier than the next one's cut-over.
            ends = [
                after.cutover_us + 1
                for before, after in pairwise(versions)
                if before.state is not JobState.PAUSED and after.cutover_us >= from_us
            ]
            if ends:
                return Stretch(versions, min(to_us, ends[-1]))
            row_limit *= 2  # a pause with so many edits is read as one

    async def version(self, job_id: UUID, version: int) -> LedgerVersion | None:
        """One version; None if there is none of that number."""
        rows = await self._database.run(_VERSION, {"job_id": job_id, "version": version})
        return _version(rows[0]) if rows else None

    async def runs(self, job_id: UUID, from_us: int, to_us: int) -> Stretch[RunRow]:
        """The runs of a range, by instant; also triggers, whose instant is when they were accepted."""
        row_limit = _RECORD_ROWS
        while True:
            rows = await self._database.run(
                _RUNS, {"job_id": job_id, "from_us": from_us, "to_us": to_us, "row_limit": row_limit}
            )
            if len(rows) < row_limit:
                return Stretch(tuple(map(_run_row, rows)), to_us)
            end_us = rows[-1].scheduled_for_us
            if end_us > from_us:
                return Stretch(tuple(_run_row(row) for row in rows if row.scheduled_for_us < end_us), end_us)
            row_limit *= 2  # so many runs of one instant: they are read together

    async def skips(self, job_id: UUID, from_us: int, to_us: int) -> Stretch[SkipRow]:
        """The ranges that overlap [from_us, to_us), by their beginning."""
        key = {"job_id": job_id, "from_us": from_us}
        earlier = await self._database.run(_SKIPS_BEFORE, {**key, "row_limit": _SKIPS_LOOKED_AT})
        rows = await self._database.run(_SKIPS, {**key, "to_us": to_us, "row_limit": _RECORD_ROWS})
        reaching = [row for row in reversed(earlier) if row.to_us >= from_us]
        end_us = to_us if len(rows) < _RECORD_ROWS else rows[-1].from_us
        return Stretch(tuple(_skip_row(row) for row in [*reaching, *rows] if row.from_us < end_us), end_us)

    async def chains(self, shard: int, job_id: UUID, versions: Sequence[int], to_bucket: int) -> dict[int, Chain]:
        """Where the chains of these versions stand, as far as they have something due before `to_bucket`."""
        ids = [chain_id(job_id, version) for version in versions]
        rows = await self._database.run(
            _CHAINS, {"shard": shard, "to_bucket": to_bucket, "ids": ids, "row_limit": len(ids)}
        )
        return {row.job_version: Chain(row.scheduled_for_us, row.back_us, row.back_to_us) for row in rows}


def _version(row: Row[Any]) -> LedgerVersion:
    spec, fault = read_spec(row.spec)
    state = JobState(row.state)
    return LedgerVersion(row.version, state, row.from_us, row.cutover_us, row.author, row.note, spec, fault)


def _run_row(row: Row[Any]) -> RunRow:
    state, cause = RunState(row.state), RunCause(row.cause)
    return RunRow(row.run_id, row.scheduled_for_us, row.due_at_us, state, cause, row.job_version)


def _skip_row(row: Row[Any]) -> SkipRow:
    return SkipRow(row.from_us, row.to_us, SkipReason(row.reason), row.job_version, row.recorded_us)
