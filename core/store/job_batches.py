"""Steps of operations over many jobs: a page of jobs is decided and changed in one transaction, with arrays.

What a job's next version is to be is decided by the caller (core/store/job_changes.py, Decision), job by job, from what
stands in the rows when they are held: a job that was changed meanwhile is decided anew. Neither payloads nor references
to calendars change here; a version takes over the payload of the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock
from core.errors import Conflict, Invalid, NotFound
from core.ids import operation_audit_id
from core.states import JobState, OperationEvent, SkipReason
from core.store.cut_overs import fired_beyond, hold_jobs, tell_chains
from core.store.database import Database, Transaction
from core.store.job_changes import Decision, NextVersion, first_landing, following, stored_spec
from core.store.jobs import JobRecord, job_record
from core.store.landing import land_many
from core.store.operation_records import Moved, OperationRecord, Stepped
from core.store.operations import move, operation_in
from core.store.statement import Kind, statement
from core.store.surroundings import gather
from core.store.transact import RestartTransaction

_WALK = statement(
    "walk_jobs_by_name",
    Kind.READ,
    """
    SELECT j.job_id, j.name, j.state, j.created_us, CAST(v.spec->'labels' AS TEXT) AS labels
    FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
    WHERE j.namespace = CAST(:namespace AS TEXT) AND j.deleted_us = 0 AND j.name > CAST(:after AS TEXT)
    ORDER BY j.namespace, j.deleted_us, j.name
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_WALK_CALENDAR = statement(
    "walk_jobs_of_calendar",
    Kind.READ,
    """
    SELECT r.job_id FROM calendar_jobs r
    WHERE r.calendar_id = CAST(:calendar_id AS UUID) AND r.job_id > CAST(:after AS UUID)
    ORDER BY r.calendar_id, r.job_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_READ = statement(
    "get_jobs_without_payload",
    Kind.READ,
    """
    SELECT j.job_id, j.namespace, j.name, j.hash, j.shard, j.version, j.state, j.cutover_us, j.created_us,
           j.updated_us, j.deleted_us, j.error, v.from_us, v.spec, CAST('' AS BYTEA) AS payload
    FROM unnest(CAST(:job_ids AS UUID[])) AS i(job_id)
    JOIN jobs j ON j.job_id = i.job_id
    JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
    WHERE j.deleted_us = 0
    """,
)
_CHANGE = statement(
    "change_jobs",
    Kind.WRITE,
    """
    WITH changed AS (
      UPDATE jobs AS j
      SET version = i.version, state = i.state, cutover_us = i.cutover_us, updated_us = i.cutover_us, error = ''
      FROM unnest(CAST(:job_ids AS UUID[]), CAST(:versions AS BIGINT[]), CAST(:states AS SMALLINT[]),
                  CAST(:cutovers_us AS BIGINT[])) AS i(job_id, version, state, cutover_us)
      WHERE j.job_id = i.job_id AND j.version = i.version - 1 AND j.deleted_us = 0
      RETURNING j.job_id, j.namespace, j.name, j.shard, j.version, j.state, j.cutover_us
    ), versioned AS (
      INSERT INTO job_versions (job_id, version, state, spec, payload, cutover_us, from_us, author, request_id, note,
                                trace)
      SELECT c.job_id, c.version, c.state, CAST(i.spec AS JSONB), o.payload, c.cutover_us, i.from_us,
             CAST(:actor AS TEXT), CAST(:request_id AS TEXT), CAST(:note AS TEXT), CAST(:trace AS TEXT)
      FROM changed c
      JOIN unnest(CAST(:job_ids AS UUID[]), CAST(:specs AS TEXT[]), CAST(:froms_us AS BIGINT[]))
        AS i(job_id, spec, from_us) ON i.job_id = c.job_id
      JOIN job_versions o ON o.job_id = c.job_id AND o.version = c.version - 1
    ), skipped AS (
      INSERT INTO skips (job_id, from_us, to_us, reason, job_version, shard, term, recorded_us)
      SELECT c.job_id, i.paused_from_us, i.paused_to_us, CAST(:reason AS SMALLINT), c.version - 1, c.shard, 0,
             CAST(:now_us AS BIGINT)
      FROM changed c
      JOIN unnest(CAST(:job_ids AS UUID[]), CAST(:paused_from_us AS BIGINT[]), CAST(:paused_to_us AS BIGINT[]))
        AS i(job_id, paused_from_us, paused_to_us) ON i.job_id = c.job_id
      WHERE i.paused_from_us >= 0
      ON CONFLICT (job_id, from_us) DO NOTHING
    ), audited AS (
      INSERT INTO audit (namespace, at_us, audit_id, actor, action, object, version, request_id, note, server_us)
      SELECT c.namespace, CAST(:now_us AS BIGINT), i.audit_id, CAST(:actor AS TEXT), CAST(:action AS TEXT), c.name,
             c.version, CAST(:request_id AS TEXT), CAST(:note AS TEXT),
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM changed c
      JOIN unnest(CAST(:job_ids AS UUID[]), CAST(:audit_ids AS UUID[])) AS i(job_id, audit_id) ON i.job_id = c.job_id
    )
    SELECT c.job_id FROM changed c
    """,
)
_NO_ID = UUID(int=0)
# Jobs in one transaction, and names looked at for them.
_STEP_JOBS = 100
_WALK_ROWS = 1_000
_SHOWN_FAULTS = 3


@dataclass(frozen=True, slots=True)
class JobSketch:
    """What a walk through a namespace shows of a live job."""

    job_id: UUID
    name: str
    state: JobState
    created_us: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Page:
    """The jobs of one step; `progress` is where the next one begins, and `is_last` says that there is none."""

    job_ids: Sequence[UUID]
    progress: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class _Change:
    present: JobRecord
    wanted: NextVersion
    after: JobRecord


class JobBatches:
    """Walks jobs, and takes operations over them one step further."""

    def __init__(self, database: Database, clock: Clock, scale: BucketScale) -> None:
        self._database = database
        self._clock = clock
        self._scale = scale

    async def walk(self, namespace: str, after: str) -> tuple[list[JobSketch], bool]:
        """Live jobs whose names lie after `after`, in order, and whether there are further ones."""
        rows = await self._database.run(_WALK, {"namespace": namespace, "after": after, "row_limit": _WALK_ROWS})
        return [_sketch(row) for row in rows], len(rows) == _WALK_ROWS

    async def step_by_name(
        self, operation: OperationRecord, *, picks: Callable[[JobSketch], bool], decision: Decision, action: str
    ) -> Stepped:
        """Change the next jobs of the namespace that `picks` chooses.

        Raises Unavailable, OutcomeUnknown; what `decision` refuses of a job is noted, and the job left as it is.
        """

        async def page(tx: Transaction, present: OperationRecord) -> _Page:
            params = {"namespace": present.namespace, "after": present.progress, "row_limit": _WALK_ROWS}
            seen = [_sketch(row) for row in await tx.run(_WALK, params)]
            picked = [sketch for sketch in seen if sketch.created_us <= present.created_us and picks(sketch)]
            if len(picked) > _STEP_JOBS:
                picked = picked[:_STEP_JOBS]
                return _Page([each.job_id for each in picked], picked[-1].name, False)
            progress = seen[-1].name if seen else present.progress
            return _Page([each.job_id for each in picked], progress, len(seen) < _WALK_ROWS)

        return await self._step(operation, page, decision, action)

    async def step_by_calendar(
        self, operation: OperationRecord, calendar_id: UUID, *, decision: Decision, action: str
    ) -> Stepped:
        """Change the next jobs that refer to the calendar. Raises as `step_by_name` does."""

        async def page(tx: Transaction, present: OperationRecord) -> _Page:
            after = UUID(present.progress) if present.progress else _NO_ID
            params = {"calendar_id": calendar_id, "after": after, "row_limit": _STEP_JOBS}
            job_ids = [row.job_id for row in await tx.run(_WALK_CALENDAR, params)]
            return _Page(job_ids, str(job_ids[-1]) if job_ids else present.progress, len(job_ids) < _STEP_JOBS)

        return await self._step(operation, page, decision, action)

    async def _step(
        self,
        operation: OperationRecord,
        page: Callable[[Transaction, OperationRecord], Any],
        decision: Decision,
        action: str,
    ) -> Stepped:
        async def body(tx: Transaction) -> Stepped:
            present = await operation_in(tx, operation)
            if present.updated_us != operation.updated_us or not present.is_open:
                return Stepped(present)
            found: _Page = await page(tx, present)
            now_us = self._clock.now_us()
            jobs = await _held(tx, found.job_ids)
            changes, faults = await _decided(tx, present.namespace, jobs, decision, now_us)
            changes = await _settled(tx, present.namespace, changes, decision, now_us, self._scale)
            await _change(tx, present, changes, action, now_us)
            moved = Moved(
                found.progress,
                done=len(found.job_ids),
                unchanged=len(found.job_ids) - len(changes),
                event=OperationEvent.FINISH if found.is_last else None,
                error=_told(faults),
            )
            after = await move(tx, present, moved, now_us)
            landings = [
                first_landing(each.after, each.wanted.first, self._scale)
                for each in changes
                if each.wanted.first is not None
            ]
            await land_many(tx, landings)
            return Stepped(after, frozenset(landing.shard for landing in landings))

        return await self._database.transaction(body, repeat_unknown=True)


async def _held(tx: Transaction, job_ids: Sequence[UUID]) -> list[JobRecord]:
    """The jobs that still live, as they stand, and as they will stand until the transaction ends."""
    if not job_ids:
        return []
    held = await hold_jobs(tx, job_ids)
    return [job_record(row) for row in await tx.run(_READ, {"job_ids": sorted(held)})]


async def _decided(
    tx: Transaction,
    namespace: str,
    jobs: Sequence[JobRecord],
    decision: Decision,
    now_us: int,
    fired_us: Mapping[UUID, int] = MappingProxyType({}),
) -> tuple[list[_Change], list[str]]:
    """What is to change, and what stands in the way of others. No job cuts over before its instant in `fired_us`."""
    faults: list[str] = []
    wishes = {}
    for job in jobs:
        try:
            wishes[job.job_id] = decision.wishes(job)
        except (Conflict, Invalid, NotFound) as fault:
            faults.append(f"job {job.name!r}: {fault}")
    around = await gather(tx, namespace, wishes) if wishes else {}
    changes = []
    for job in (each for each in jobs if each.job_id in around):
        cutover_us = max(now_us, job.cutover_us + 1, fired_us.get(job.job_id, 0))
        try:
            wanted = decision.version(job, around[job.job_id], cutover_us)
        except (Conflict, Invalid, NotFound) as fault:
            faults.append(f"job {job.name!r}: {fault}")
            continue
        if wanted is not None:
            changes.append(_Change(job, wanted, following(job, wanted, cutover_us)))
    return changes, faults


async def _settled(
    tx: Transaction, namespace: str, changes: Sequence[_Change], decision: Decision, now_us: int, scale: BucketScale
) -> list[_Change]:
    """The changes, with cut-overs beyond which nothing has been fired nor will be."""
    await tell_chains(tx, [each.present for each in changes], now_us=now_us, scale=scale)
    fired_us = await fired_beyond(tx, {each.after.job_id: each.after.cutover_us for each in changes})
    if not fired_us:
        return list(changes)
    late = [each.present for each in changes if each.present.job_id in fired_us]
    again, _ = await _decided(tx, namespace, late, decision, now_us, fired_us)
    if len(again) < len(late):
        raise RestartTransaction("what was decided does not hold at a later cut-over")
    return [*(each for each in changes if each.present.job_id not in fired_us), *again]


async def _change(
    tx: Transaction, operation: OperationRecord, changes: Sequence[_Change], action: str, now_us: int
) -> None:
    if not changes:
        return
    paused = [each.wanted.paused or (-1, -1) for each in changes]
    changed = await tx.run(
        _CHANGE,
        {
            "job_ids": [each.after.job_id for each in changes],
            "versions": [each.after.version for each in changes],
            "states": [int(each.after.state) for each in changes],
            "cutovers_us": [each.after.cutover_us for each in changes],
            "specs": [stored_spec(each.after) for each in changes],
            "froms_us": [each.after.from_us for each in changes],
            "paused_from_us": [from_us for from_us, _ in paused],
            "paused_to_us": [to_us for _, to_us in paused],
            "audit_ids": [operation_audit_id(operation.operation_id, each.after.job_id) for each in changes],
            "reason": int(SkipReason.PAUSED),
            "now_us": now_us,
            "actor": operation.author,
            "action": action,
            "note": operation.note,
            "request_id": operation.spec.get("request_id", ""),
            "trace": operation.spec.get("trace", ""),
        },
    )
    if len(changed) != len(changes):
        raise RestartTransaction("a job was changed in between")


def _told(faults: Sequence[str]) -> str:
    others = len(faults) - _SHOWN_FAULTS
    return "; ".join([*faults[:_SHOWN_FAULTS], *([f"and {others} more"] if others > 0 else [])])


def _sketch(row: Any) -> JobSketch:
    try:
        labels = json.loads(row.labels or "{}")
    except ValueError:
        labels = {}
    return JobSketch(row.job_id, row.name, JobState(row.state), row.created_us, labels if labels else {})
