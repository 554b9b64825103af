"""Creating and changing jobs: each one transaction, which a repeat recognises by its request key.

Rule of ownership 9: no due row is ever deleted or moved here. A change bumps the job's version by compare-and-set,
keeps the version for ever, and lands that version's own first due row; rows of older versions die when they are met.
`cutover_us` only grows: occurrences of a version lie not after the next one's, and strictly after its own `from_us`.

What a version is to be is decided by the caller (a Decision) from what is read here, inside the transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock
from core.errors import AlreadyExists
from core.ids import chain_id, job_hash, shard_of
from core.jobspec import JobSpec
from core.occurrences import Occurrence
from core.states import DueKind, JobState, SkipReason
from core.store.audit import AUDITED, Call, audited_params
from core.store.calendar_jobs import refer
from core.store.calendar_lookup import Contents
from core.store.cut_overs import fired_beyond, hold_jobs, tell_chains
from core.store.database import Database, Transaction
from core.store.jobs import JobRecord, job_in
from core.store.landing import Landing, land
from core.store.requests import ANSWERED, answer, answered_params, once
from core.store.statement import Kind, statement
from core.store.surroundings import Surroundings, Wishes, gather, measure
from core.store.transact import RestartTransaction

_VERSIONED = """versioned AS (
      INSERT INTO job_versions (job_id, version, state, spec, payload, cutover_us, from_us, author, request_id, note,
                                trace)
      SELECT c.job_id, c.version, c.state, CAST(:spec AS JSONB), CAST(:payload AS BYTEA), c.cutover_us,
             CAST(:from_us AS BIGINT), CAST(:actor AS TEXT), CAST(:shown_request_id AS TEXT), CAST(:note AS TEXT),
             CAST(:trace AS TEXT)
      FROM changed c
    )"""
_CREATE = statement(
    "create_job",
    Kind.WRITE,
    # A name that is taken changes nothing; two creators of one name wait for each other here.
    f"""
    WITH changed AS (
      INSERT INTO jobs (job_id, namespace, name, hash, shard, version, state, cutover_us, created_us, updated_us)
      VALUES (CAST(:job_id AS UUID), CAST(:namespace AS TEXT), CAST(:name AS TEXT), CAST(:hash AS BIGINT),
              CAST(:shard AS BIGINT), 1, 1, CAST(:now_us AS BIGINT), CAST(:now_us AS BIGINT), CAST(:now_us AS BIGINT))
      ON CONFLICT (namespace, deleted_us, name) DO NOTHING
      RETURNING job_id, version, state, cutover_us
    ), {_VERSIONED}, {AUDITED}, {ANSWERED}
    SELECT c.job_id FROM changed c
    """,
)
_CHANGE = statement(
    "change_job",
    Kind.WRITE,
    f"""
    WITH changed AS (
      UPDATE jobs AS j
      SET version = CAST(:version AS BIGINT), state = CAST(:state AS SMALLINT),
          cutover_us = CAST(:cutover_us AS BIGINT), updated_us = CAST(:cutover_us AS BIGINT),
          deleted_us = CAST(:deleted_us AS BIGINT), error = ''
      WHERE j.job_id = CAST(:job_id AS UUID) AND j.version = CAST(:old_version AS BIGINT)
      RETURNING j.job_id, j.version, j.state, j.cutover_us
    ), {_VERSIONED}, {AUDITED}, {ANSWERED}
    SELECT c.job_id FROM changed c
    """,
)
_RECORD_PAUSED = statement(
    "record_paused",
    Kind.WRITE,
    # Written by no term: the occurrences of a pause never stood in `due`, so no dispatcher accounts for them.
    """
    INSERT INTO skips (job_id, from_us, to_us, reason, job_version, shard, term, recorded_us)
    VALUES (CAST(:job_id AS UUID), CAST(:from_us AS BIGINT), CAST(:to_us AS BIGINT), CAST(:reason AS SMALLINT),
            CAST(:job_version AS BIGINT), CAST(:shard AS BIGINT), 0, CAST(:now_us AS BIGINT))
    ON CONFLICT (job_id, from_us) DO NOTHING
    """,
)


@dataclass(frozen=True, slots=True)
class NextVersion:
    """What a version is to be.

    `first` is where its chain begins, None when it has no occurrence or is not to run. `from_us` is the instant that
    its own occurrences lie strictly after, None for the cut-over itself. `paused` are the first and the last nominal
    instant of a pause that ends with this version and is not made up for: they are recorded as skipped.

    `spec` None keeps a stored form that is not readable as it is: such a job can still be paused and deleted.
    """

    spec: JobSpec | None
    payload: bytes
    state: JobState
    first: Occurrence | None
    from_us: int | None = None
    paused: tuple[int, int] | None = None


class Decision(Protocol):
    """What a change makes of a job: three questions, asked in this order in a transaction that may run again.

    `present` is None for a job that is to be created, `at_us` the instant of the cut-over. Answers hang on nothing but
    the arguments.
    """

    def wishes(self, present: JobRecord | None) -> Wishes:
        """What has to be known beside the job. May refuse the change by raising."""

    def minutes(self, present: JobRecord | None, around: Surroundings, at_us: int) -> frozenset[int]:
        """The minutes (from the epoch) whose load the version hangs on; mostly none."""

    def version(self, present: JobRecord | None, around: Surroundings, at_us: int) -> NextVersion | None:
        """The next version; None leaves the job as it is."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The answer for the caller, and the shard in which a due row landed, None if none did."""

    answer: bytes
    landed_shard: int | None = None


Render = Callable[[JobRecord, Contents], bytes]
"""The answer for a job, given what its calendars say."""


class JobChanges:
    """Writes jobs. Decisions and renderers may be asked more than once, and have no effects of their own."""

    def __init__(self, database: Database, clock: Clock, scale: BucketScale, shard_count: int) -> None:
        self._database = database
        self._clock = clock
        self._scale = scale
        self._shard_count = shard_count

    async def create(self, call: Call, *, job_id: UUID, name: str, decision: Decision, render: Render) -> Changed:
        """Register a job under `name`.

        Raises AlreadyExists, RequestReused, whatever `decision` raises, Unavailable, OutcomeUnknown.
        """
        hash16 = job_hash(job_id)

        async def body(tx: Transaction, now_us: int) -> Changed:
            wanted, contents = await self._decided(tx, call, job_id, None, decision, now_us)
            assert wanted is not None, "a creation makes a version"
            record = JobRecord(
                job_id=job_id,
                namespace=call.key.namespace,
                name=name,
                hash16=hash16,
                shard=shard_of(hash16, self._shard_count),
                version=1,
                state=wanted.state,
                cutover_us=now_us,
                from_us=now_us if wanted.from_us is None else wanted.from_us,
                created_us=now_us,
                updated_us=now_us,
                deleted_us=0,
                error="",
                spec=wanted.spec,
                payload=wanted.payload,
            )
            answer_bytes = render(record, contents)
            created = await tx.run(
                _CREATE,
                {
                    **_common(call, record, "job.create", now_us, answer_bytes),
                    "name": name,
                    "hash": hash16,
                    "shard": record.shard,
                },
            )
            if not created:
                raise AlreadyExists(f"a job named {name!r} exists in namespace {call.key.namespace!r}", field="name")
            await refer(tx, None, record)
            return await self._landed(tx, record, wanted.first, answer_bytes)

        return await once(self._database, self._clock, call.key, body, Changed)

    async def change(self, call: Call, *, action: str, name: str, decision: Decision, render: Render) -> Changed:
        """Make the next version of the live job `name`.

        Raises NotFound, RequestReused, whatever `decision` raises, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> Changed:
            present = await job_in(tx, call.key.namespace, name)
            cutover_us = max(now_us, present.cutover_us + 1)
            wanted, contents = await self._decided(tx, call, present.job_id, present, decision, cutover_us)
            if wanted is not None and (fired_us := await self._fired_beyond(tx, present, cutover_us, now_us)):
                cutover_us = fired_us
                wanted, contents = await self._decided(tx, call, present.job_id, present, decision, cutover_us)
                if wanted is None:  # its chain has been told of a version
                    raise RestartTransaction("what was decided does not hold at a later cut-over")
            if wanted is None:
                answer_bytes = render(present, contents)
                await answer(tx, call.key, answer_bytes)
                return Changed(answer_bytes, None)
            record = following(present, wanted, cutover_us)
            answer_bytes = render(record, contents)
            changed = await tx.run(
                _CHANGE,
                {
                    **_common(call, record, action, now_us, answer_bytes),
                    "version": record.version,
                    "old_version": present.version,
                    "state": int(record.state),
                    "cutover_us": cutover_us,
                    "deleted_us": record.deleted_us,
                },
            )
            if not changed:
                raise RestartTransaction("the job was changed in between")
            await refer(tx, present, record)
            await _record_paused(tx, present, wanted, now_us)
            return await self._landed(tx, record, wanted.first, answer_bytes)

        return await once(self._database, self._clock, call.key, body, Changed)

    async def _decided(
        self, tx: Transaction, call: Call, job_id: UUID, present: JobRecord | None, decision: Decision, at_us: int
    ) -> tuple[NextVersion | None, Contents]:
        wishes = decision.wishes(present)
        if present is not None and present.spec is not None:  # the answer shows when it runs next, in any case
            wishes = replace(wishes, pins=wishes.pins | frozenset(present.spec.pins.calendars.values()))
        around = (await gather(tx, call.key.namespace, {job_id: wishes}))[job_id]
        minutes = decision.minutes(present, around, at_us)
        if minutes:
            around = around.with_load(await measure(tx, minutes, scale=self._scale, shard_count=self._shard_count))
        return decision.version(present, around, at_us), around.contents

    async def _fired_beyond(self, tx: Transaction, present: JobRecord, cutover_us: int, now_us: int) -> int | None:
        """The last instant that the present version has fired, if it lies after the cut-over. It fires none further."""
        if await hold_jobs(tx, [present.job_id]) != {present.job_id: present.version}:
            raise RestartTransaction("the job was changed in between")
        await tell_chains(tx, [present], now_us=now_us, scale=self._scale)
        return (await fired_beyond(tx, {present.job_id: cutover_us})).get(present.job_id)

    async def _landed(self, tx: Transaction, job: JobRecord, first: Occurrence | None, answer_bytes: bytes) -> Changed:
        if first is None:
            return Changed(answer_bytes, None)
        await land(tx, first_landing(job, first, self._scale))
        return Changed(answer_bytes, job.shard)


def following(present: JobRecord, wanted: NextVersion, cutover_us: int) -> JobRecord:
    """The job after `present`, as the change leaves it."""
    return replace(
        present,
        version=present.version + 1,
        state=wanted.state,
        cutover_us=cutover_us,
        from_us=cutover_us if wanted.from_us is None else wanted.from_us,
        updated_us=cutover_us,
        deleted_us=cutover_us if wanted.state is JobState.DELETED else 0,
        error="",
        spec=wanted.spec,
        payload=wanted.payload,
        fault="" if wanted.spec else present.fault,
    )


def first_landing(job: JobRecord, first: Occurrence, scale: BucketScale) -> Landing:
    """The row with which the chain of the job's present version begins."""
    return Landing(
        shard=job.shard,
        bucket=scale.bucket_of(first.due_us),
        due_at_us=first.due_us,
        due_id=chain_id(job.job_id, job.version),
        kind=DueKind.OCCURRENCE,
        job_id=job.job_id,
        job_version=job.version,
        scheduled_for_us=first.nominal_us,
    )


def stored_spec(job: JobRecord) -> str:
    """What stands in job_versions.spec: the text that was there, where it is not readable."""
    return job.stored if job.spec is None else json.dumps(job.spec.to_json(), separators=(",", ":"), sort_keys=True)


async def _record_paused(tx: Transaction, present: JobRecord, wanted: NextVersion, now_us: int) -> None:
    """The pause belongs to the version that was paused: `present`."""
    if wanted.paused is None:
        return
    from_us, to_us = wanted.paused
    await tx.run(
        _RECORD_PAUSED,
        {
            "job_id": present.job_id,
            "from_us": from_us,
            "to_us": to_us,
            "reason": int(SkipReason.PAUSED),
            "job_version": present.version,
            "shard": present.shard,
            "now_us": now_us,
        },
    )


def _common(call: Call, job: JobRecord, action: str, now_us: int, answer_bytes: bytes) -> dict[str, Any]:
    return {
        **audited_params(call, action=action, subject=job.name, version=job.version, now_us=now_us),
        **answered_params(call.key, answer_bytes),
        "job_id": job.job_id,
        "spec": stored_spec(job),
        "payload": job.payload,
        "from_us": job.from_us,
        "trace": call.trace,
    }
