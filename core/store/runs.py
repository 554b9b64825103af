"""`runs` and `attempts` as the API reads them: one run, the runs of one job in pages, the attempts of a run.

A listing first walks the job's part of the index runs_by_job for keys, states and sizes, and then reads only the runs
that make the page: large results are not read to be thrown away, and a filter that matches little costs a bounded walk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.errors import NotFound
from core.states import AttemptOutcome, RunCause, RunState
from core.store.database import Database, Transaction
from core.store.jobs import cut_page
from core.store.statement import Kind, statement

_GET = statement(
    "get_runs",
    Kind.READ,
    """
    SELECT r.run_id, r.job_id, r.job_version, r.shard, r.cause, r.scheduled_for_us, r.due_at_us, r.created_us, r.state,
           r.attempt, r.uncounted, r.home_term, r.worker, r.lease_until_us, r.not_before_us, r.started_us, r.ended_us,
           r.cancel_requested_us, r.last_error, r.result, r.result_type, r.progress, r.operation_id, r.gated,
           j.namespace, j.name, v.spec->>'queue' AS queue, v.spec->'retry'->>'max_attempts' AS max_attempts
    FROM runs r
    JOIN jobs j ON j.job_id = r.job_id
    LEFT JOIN job_versions v ON v.job_id = r.job_id AND v.version = r.job_version
    WHERE r.run_id = ANY(CAST(:run_ids AS UUID[])) AND j.namespace = CAST(:namespace AS TEXT)
    """,
)
_WALK = statement(
    "walk_runs_of_job",
    Kind.READ,
    """
    SELECT r.run_id, r.scheduled_for_us, r.state,
           COALESCE(octet_length(r.result), 0) + COALESCE(octet_length(r.progress), 0) + octet_length(r.last_error)
             AS weight
    FROM runs r
    WHERE r.job_id = CAST(:job_id AS UUID) AND r.scheduled_for_us >= CAST(:from_us AS BIGINT)
      AND (r.scheduled_for_us, r.run_id) < (CAST(:before_us AS BIGINT), CAST(:before_id AS UUID))
    ORDER BY r.job_id DESC, r.scheduled_for_us DESC, r.run_id DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_ATTEMPTS = statement(
    "list_attempts",
    Kind.READ,
    """
    SELECT attempt, worker, outcome, started_us, ended_us, term, error
    FROM attempts WHERE run_id = CAST(:run_id AS UUID) ORDER BY attempt
    """,
)
_PAGE_BYTES = 2 * 1024 * 1024
# How many runs a filtered page looks at; a page that found less than it may hold is short, not the last.
_WALK_ROWS = 5_000
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with what its job says of it. Instants in microseconds, 0 for "never"."""

    run_id: UUID
    namespace: str
    job_name: str
    job_id: UUID
    job_version: int
    shard: int
    cause: RunCause
    scheduled_for_us: int
    due_at_us: int
    created_us: int
    state: RunState
    queue: str
    max_attempts: int
    attempt: int = 0
    uncounted: int = 0
    home_term: int = 0
    worker: str = ""
    lease_until_us: int = 0
    not_before_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    cancel_requested_us: int = 0
    last_error: str = ""
    result: bytes | None = None
    result_type: str = ""
    progress: bytes | None = None
    # Made by this operation, a backfill.
    operation_id: UUID | None = None
    # Does not start beside another open run of its job.
    gated: bool = False


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt; `outcome` None while it is open."""

    attempt: int
    worker: str
    outcome: AttemptOutcome | None
    started_us: int
    ended_us: int
    term: int
    error: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Runs of a job with scheduled_for in [from_us, to_us) and a state among `states` (empty: any)."""

    job_id: UUID
    from_us: int
    to_us: int
    states: frozenset[RunState]


RunKey = tuple[int, UUID]
"""Where a page ended: (scheduled_for_us, run id)."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest scheduled_for first; `more_after` says where to go on when there may be further ones."""

    runs: tuple[RunRecord, ...]
    more_after: RunKey | None


class Runs:
    """Reads of runs, each within one namespace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, namespace: str, run_id: UUID) -> RunRecord:
        """One run. Raises NotFound."""
        return _only(await self._database.run(_GET, {"namespace": namespace, "run_ids": [run_id]}), run_id)

    async def page(self, namespace: str, query: RunQuery, *, after: RunKey | None, size: int) -> RunPage:
        """At most `size` runs after the key `after`; fewer if they are large, or if few of those walked match."""
        before_us, before_id = after or (query.to_us, _NO_ID)
        walk = size + 1 if not query.states else _WALK_ROWS
        key = {"job_id": query.job_id, "from_us": query.from_us, "before_us": before_us, "before_id": before_id}
        walked = await self._database.run(_WALK, {**key, "row_limit": walk})
        matching = [row for row in walked if not query.states or row.state in query.states]
        listed = cut_page(matching, size, _PAGE_BYTES)
        runs = await self._read(namespace, query.states, listed)
        if len(listed) < len(matching):
            last = listed[-1]
        elif len(walked) == walk:
            last = walked[-1]
        else:
            return RunPage(runs, None)
        return RunPage(runs, (last.scheduled_for_us, last.run_id))

    async def _read(
        self, namespace: str, states: Collection[RunState], listed: Sequence[Row[Any]]
    ) -> tuple[RunRecord, ...]:
        if not listed:
            return ()
        run_ids = sorted(row.run_id for row in listed)
        found = await self._database.run(_GET, {"namespace": namespace, "run_ids": run_ids})
        runs = [run_record(row) for row in found]
        # A run may have gone on between the two reads: nothing is shown that the filter excludes.
        kept = [run for run in runs if not states or run.state in states]
        return tuple(sorted(kept, key=lambda run: (run.scheduled_for_us, run.run_id), reverse=True))

    async def attempts(self, namespace: str, run_id: UUID) -> list[AttemptRecord]:
        """The run's attempts in order, the open one last. Raises NotFound."""
        run = await self.get(namespace, run_id)
        rows = await self._database.run(_ATTEMPTS, {"run_id": run_id})
        ended = [
            AttemptRecord(r.attempt, r.worker, AttemptOutcome(r.outcome), r.started_us, r.ended_us, r.term, r.error)
            for r in rows
        ]
        is_open = run.state is RunState.LEASED and all(each.attempt != run.attempt for each in ended)
        return [*ended, _open_attempt(run)] if is_open else ended


async def run_in(tx: Transaction, namespace: str, run_id: UUID) -> RunRecord:
    """One run, read within a transaction. Raises NotFound."""
    return _only(await tx.run(_GET, {"namespace": namespace, "run_ids": [run_id]}), run_id)


def run_record(row: Row[Any]) -> RunRecord:
    """A row of `get_runs` as a record. A spoilt version of the job only costs what is read from it."""
    return RunRecord(
        run_id=row.run_id,
        namespace=row.namespace,
        job_name=row.name,
        job_id=row.job_id,
        job_version=row.job_version,
        shard=row.shard,
        cause=RunCause(row.cause),
        scheduled_for_us=row.scheduled_for_us,
        due_at_us=row.due_at_us,
        created_us=row.created_us,
        state=RunState(row.state),
        queue=row.queue or "",
        max_attempts=int(row.max_attempts) if (row.max_attempts or "").isdecimal() else 0,
        attempt=row.attempt,
        uncounted=row.uncounted,
        home_term=row.home_term,
        worker=row.worker,
        lease_until_us=row.lease_until_us,
        not_before_us=row.not_before_us,
        started_us=row.started_us,
        ended_us=row.ended_us,
        cancel_requested_us=row.cancel_requested_us,
        last_error=row.last_error,
        result=row.result,
        result_type=row.result_type,
        progress=row.progress,
        operation_id=row.operation_id,
        gated=row.gated,
    )


def _only(rows: Sequence[Row[Any]], run_id: UUID) -> RunRecord:
    if not rows:
        raise NotFound("run", str(run_id))
    return run_record(rows[0])


def _open_attempt(run: RunRecord) -> AttemptRecord:
    return AttemptRecord(run.attempt, run.worker, None, run.started_us, 0, run.home_term, "")
