"""Steps of backfills: runs for occurrences of the past, made in pages, watched until they have started, taken back when
the backfill is canceled.

Occurrences are those of one version of the job, the one that stood when the backfill was asked for. Runs become due one
after the other at the rate that was asked for, and are made not long before: what is not made cannot be in the way. A
run's id is derived from the operation and the instant, and no page is made twice, since the operation's row moves in
the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.buckets import BucketScale
from core.clock import US_PER_S, Clock
from core.errors import Conflict, Invalid, InvariantBroken
from core.ids import backfill_run_id
from core.jobspec import JobSpec
from core.occurrences import Occurrences, SearchLimit, occurrences_of
from core.states import OperationEvent, OperationState, RunState
from core.store.backfill_records import BackfillProgress, BackfillSpec
from core.store.calendar_lookup import load_contents
from core.store.database import Database, Transaction
from core.store.fencing import LANDING
from core.store.operation_records import Moved, OperationRecord, Stepped
from core.store.operations import move, operation_in
from core.store.statement import Kind, statement

_VERSION = statement(
    "get_version_to_backfill",
    Kind.READ,
    """
    SELECT j.job_id, j.name, j.hash, j.shard, j.deleted_us, CAST(v.spec AS TEXT) AS spec
    FROM jobs j JOIN job_versions v ON v.job_id = j.job_id AND v.version = CAST(:version AS BIGINT)
    WHERE j.job_id = CAST(:job_id AS UUID)
    """,
)
_WITH_RUN = statement(
    "find_instants_with_run",
    Kind.READ,
    # One look an instant, by key. A run that a backfill took back before it started leaves the instant without one.
    """
    SELECT i.at_us
    FROM unnest(CAST(:instants_us AS BIGINT[])) AS i(at_us)
    CROSS JOIN LATERAL (
      SELECT r.run_id FROM runs r
      WHERE r.job_id = CAST(:job_id AS UUID) AND r.scheduled_for_us = i.at_us
        AND (r.cause = 1 OR (r.cause = 3 AND NOT (r.state = 6 AND r.attempt = 0)))
      LIMIT 1
    ) AS made
    """,
)
_WALK = statement(
    "walk_runs_of_range",
    Kind.READ,
    """
    SELECT r.run_id, r.scheduled_for_us, r.state, r.attempt, r.operation_id
    FROM runs r
    WHERE r.job_id = CAST(:job_id AS UUID) AND r.scheduled_for_us < CAST(:to_us AS BIGINT)
      AND (r.scheduled_for_us, r.run_id) > (CAST(:after_us AS BIGINT), CAST(:after_id AS UUID))
    ORDER BY r.job_id, r.scheduled_for_us, r.run_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_MAKE = statement(
    "make_backfill_runs",
    Kind.LAND,
    f"""
    WITH {LANDING}, changed AS (
      INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                        home_term, not_before_us, trace, operation_id, gated)
      SELECT i.run_id, CAST(:job_id AS UUID), CAST(:job_version AS BIGINT), landing.shard, 3, i.scheduled_for_us,
             i.due_at_us, CAST(:now_us AS BIGINT), 1, 0, i.due_at_us, CAST(:trace AS TEXT),
             CAST(:operation_id AS UUID), CAST(:gated AS BOOLEAN)
      FROM unnest(CAST(:run_ids AS UUID[]), CAST(:instants_us AS BIGINT[]), CAST(:due_at_us AS BIGINT[]))
        AS i(run_id, scheduled_for_us, due_at_us)
      CROSS JOIN landing
      ON CONFLICT (run_id) DO NOTHING
      RETURNING run_id, shard, job_id, job_version, scheduled_for_us, due_at_us
    ), landed AS (
      INSERT INTO due (shard, bucket, due_at_us, id, kind, job_id, job_version, scheduled_for_us)
      SELECT c.shard, GREATEST(i.bucket, landing.floor), c.due_at_us, c.run_id, 2, c.job_id, c.job_version,
             c.scheduled_for_us
      FROM changed c
      JOIN unnest(CAST(:run_ids AS UUID[]), CAST(:buckets AS BIGINT[])) AS i(run_id, bucket) ON i.run_id = c.run_id
      JOIN landing ON landing.shard = c.shard
      ON CONFLICT (shard, bucket, due_at_us, id) DO NOTHING
      RETURNING id
    )
    SELECT l.id FROM landed l
    """,
)
_TAKE_BACK = statement(
    "take_back_runs",
    Kind.WRITE,
    # Only what has not started. The due rows die when they are met.
    """
    WITH changed AS (
      UPDATE runs AS r
      SET state = 6, ended_us = CAST(:now_us AS BIGINT), not_before_us = 0,
          cancel_requested_us = CAST(:now_us AS BIGINT)
      FROM unnest(CAST(:run_ids AS UUID[])) AS i(run_id)
      WHERE r.run_id = i.run_id AND r.state = 1 AND r.attempt = 0
      RETURNING r.run_id, r.job_id, r.shard
    ), closed AS (
      DELETE FROM open_runs AS o USING changed c
      WHERE o.shard = c.shard AND o.job_id = c.job_id AND o.run_id = c.run_id
    )
    SELECT c.run_id, c.shard FROM changed c
    """,
)
_STEP_RUNS = 200
_WALK_ROWS = 1_000
# Runs are made so long before they become due.
_AHEAD_US = 60 * US_PER_S
_LOOK_AGAIN_S = 1.0
# A range is looked through for occurrences without a run up to this many.
_MOST_WALKED = 200_000


@dataclass(frozen=True, slots=True)
class _Work:
    """A step's view of one backfill."""

    operation: OperationRecord
    spec: BackfillSpec
    progress: BackfillProgress

    @classmethod
    def of(cls, operation: OperationRecord) -> _Work:
        return cls(operation, BackfillSpec(**operation.spec), BackfillProgress.of(operation))

    @property
    def job_id(self) -> UUID:
        return UUID(self.spec.job_id)

    def due_at_us(self, number: int) -> int:
        return self.operation.created_us + int(number * US_PER_S / self.spec.per_s)


class Backfills:
    """Counts what a backfill would make, and takes backfills one step further."""

    def __init__(self, database: Database, clock: Clock, scale: BucketScale) -> None:
        self._database = database
        self._clock = clock
        self._scale = scale

    async def count(
        self, job_id: UUID, spec: JobSpec, *, from_us: int, to_us: int, include_run: bool, most: int
    ) -> int:
        """How many runs a backfill would make; where there are more than `most`, some number above.

        Raises Conflict for a job without a schedule, for one whose calendars are gone, and for a range that holds too
        many occurrences to look through; Unavailable, OutcomeUnknown.
        """
        occurrences = await self._occurrences(self._database, spec)
        found = walked = 0
        while from_us < to_us and found <= most:
            instants, from_us = _page(occurrences, from_us, to_us)
            walked += len(instants)
            if walked > _MOST_WALKED:
                raise Conflict(f"the range holds more than {_MOST_WALKED} occurrences: take a smaller one", field="to")
            found += len(instants)
            if instants and not include_run:
                found -= len(await _with_run(self._database, job_id, instants))
            # A long range takes a while to compute: other calls go on meanwhile.
            await self._clock.sleep(0)
        return found

    async def step(self, operation: OperationRecord) -> Stepped:
        """Go on: make the next runs, see which have started, or take back those that have not.

        Raises Unavailable, OutcomeUnknown; Conflict where the backfill cannot go on.
        """

        async def body(tx: Transaction) -> Stepped:
            present = await operation_in(tx, operation)
            if present.updated_us != operation.updated_us or not present.is_open:
                return Stepped(present)
            work, now_us = _Work.of(present), self._clock.now_us()
            if present.state is OperationState.CANCELING:
                return await self._take_back(tx, work, now_us)
            if work.progress.next_us < work.spec.to_us:
                # Looked at while the making rests as well: a slow backfill would find out hours later.
                job = await _version_of(tx, work)
                if work.due_at_us(work.progress.made) <= now_us + _AHEAD_US:
                    return await self._make(tx, work, job, now_us)
            return await self._look(tx, work, now_us)

        return await self._database.transaction(body, repeat_unknown=True)

    async def _make(self, tx: Transaction, work: _Work, job: Row[Any], now_us: int) -> Stepped:
        progress = work.progress
        occurrences = await self._occurrences(tx, JobSpec.from_json(json.loads(job.spec)))
        instants, next_us = _page(occurrences, progress.next_us, work.spec.to_us)
        taken = set() if work.spec.include_run else await _with_run(tx, work.job_id, instants)
        wanted = [at_us for at_us in instants if at_us not in taken]
        made = replace(progress, next_us=next_us, made=progress.made + len(wanted))
        after = await move(tx, work.operation, Moved(made.text()), now_us)
        if not wanted:
            return Stepped(after)
        dues_us = [work.due_at_us(progress.made + number) for number in range(len(wanted))]
        landed = await tx.run(
            _MAKE,
            {
                "landing_shards": [job.shard],
                "job_id": job.job_id,
                "job_version": work.spec.version,
                "operation_id": after.operation_id,
                "gated": work.spec.gated,
                "trace": work.spec.trace,
                "now_us": now_us,
                "run_ids": [backfill_run_id(after.operation_id, job.hash, at_us, now_us) for at_us in wanted],
                "instants_us": wanted,
                "due_at_us": dues_us,
                "buckets": [self._scale.bucket_of(due_us) for due_us in dues_us],
            },
        )
        if len(landed) != len(wanted):
            raise InvariantBroken(f"{len(wanted) - len(landed)} runs of a backfill were there already, or did not land")
        return Stepped(after, frozenset({job.shard}))

    async def _look(self, tx: Transaction, work: _Work, now_us: int) -> Stepped:
        """See how many of the runs that were made have started, in the order of their instants."""
        walked = await _walk(tx, work)
        started = 0
        before = seen = (work.progress.seen_us, work.progress.seen_id)
        for row in walked:
            if row.operation_id == work.operation.operation_id:
                if row.state == RunState.PENDING and row.attempt == 0:
                    break
                started += 1
            seen = (row.scheduled_for_us, str(row.run_id))
        else:
            if len(walked) < _WALK_ROWS and work.progress.next_us >= work.spec.to_us:
                done = Moved(work.progress.text(), done=started, event=OperationEvent.FINISH)
                return Stepped(await move(tx, work.operation, done, now_us))
        if seen == before:
            return Stepped(work.operation, rest_s=_LOOK_AGAIN_S)
        progress = replace(work.progress, seen_us=seen[0], seen_id=seen[1])
        return Stepped(await move(tx, work.operation, Moved(progress.text(), done=started), now_us))

    async def _take_back(self, tx: Transaction, work: _Work, now_us: int) -> Stepped:
        """Cancel a page of the runs that were made and have not started."""
        walked = await _walk(tx, work)
        waiting = [
            row.run_id
            for row in walked
            if row.operation_id == work.operation.operation_id and row.state == RunState.PENDING and row.attempt == 0
        ]
        taken = await tx.run(_TAKE_BACK, {"run_ids": sorted(waiting), "now_us": now_us}) if waiting else ()
        progress = replace(work.progress, taken_back=work.progress.taken_back + len(taken))
        if walked:
            progress = replace(progress, seen_us=walked[-1].scheduled_for_us, seen_id=str(walked[-1].run_id))
        event = OperationEvent.CONFIRM_CANCEL if len(walked) < _WALK_ROWS else None
        after = await move(tx, work.operation, Moved(progress.text(), event=event), now_us)
        return Stepped(after, canceled=tuple((row.shard, row.run_id) for row in taken))

    async def _occurrences(self, source: Database | Transaction, spec: JobSpec) -> Occurrences:
        contents = await load_contents(source, spec.pins.calendars.values())
        try:
            occurrences = occurrences_of(spec, contents, None)
        except Invalid as fault:
            raise Conflict(str(fault), field="name") from fault
        if occurrences is None:
            raise Conflict("the job has no schedule: there are no occurrences to backfill", field="name")
        return occurrences


def _page(occurrences: Occurrences, from_us: int, to_us: int) -> tuple[list[int], int]:
    """The nominal instants of a page of [from_us, to_us), and where the next page begins."""
    instants: list[int] = []
    at_us = from_us - 1
    for _ in range(_STEP_RUNS):
        try:
            following = occurrences.next_after(at_us)
        except SearchLimit as stop:
            at_us = max(at_us, stop.at_us)
            continue
        if following is None or following.nominal_us >= to_us:
            return instants, to_us
        at_us = following.nominal_us
        instants.append(at_us)
    return instants, at_us + 1


async def _version_of(tx: Transaction, work: _Work) -> Row[Any]:
    """The version whose occurrences are made. Raises Conflict when the job is deleted."""
    rows = await tx.run(_VERSION, {"job_id": work.job_id, "version": work.spec.version})
    if not rows or rows[0].deleted_us:
        raise Conflict("the job was deleted meanwhile")
    return rows[0]


async def _with_run(source: Database | Transaction, job_id: UUID, instants: Sequence[int]) -> set[int]:
    if not instants:
        return set()
    rows = await source.run(_WITH_RUN, {"job_id": job_id, "instants_us": list(instants)})
    return {row.at_us for row in rows}


async def _walk(tx: Transaction, work: _Work) -> Sequence[Row[Any]]:
    params = {
        "job_id": work.job_id,
        "to_us": work.progress.next_us,
        "after_us": work.progress.seen_us,
        "after_id": UUID(work.progress.seen_id),
        "row_limit": _WALK_ROWS,
    }
    return await tx.run(_WALK, params)
