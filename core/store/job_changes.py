"""Creating and changing jobs: each one transaction, which a repeat recognises by its request key.

Rule of ownership 9: no due row is ever deleted or moved here. A change bumps the job's version by compare-and-set,
keeps the version for ever, and lands that version's own first due row; rows of older versions die when they are met.
`cutover_us` only grows: occurrences of a version lie strictly after its own and not after the next one's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from core.buckets import BucketScale
from core.clock import Clock
from core.errors import AlreadyExists
from core.ids import chain_id, job_hash, shard_of
from core.jobspec import JobSpec
from core.states import DueKind, JobState
from core.store.audit import AUDITED, Call, audited_params
from core.store.database import Database, Transaction
from core.store.jobs import JobRecord, job_in
from core.store.landing import Landing, land
from core.store.requests import ANSWERED, answer, answered_params, reserve
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_VERSIONED = """versioned AS (
      INSERT INTO job_versions (job_id, version, state, spec, payload, cutover_us, author, request_id, note, trace)
      SELECT c.job_id, c.version, c.state, CAST(:spec AS JSONB), CAST(:payload AS BYTEA), c.cutover_us,
             CAST(:actor AS TEXT), CAST(:shown_request_id AS TEXT), CAST(:note AS TEXT), CAST(:trace AS TEXT)
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


@dataclass(frozen=True, slots=True)
class NextVersion:
    """What a version is to be. `first_us` is its first occurrence, None when it has none or is not to run.

    `spec` None keeps a stored form that is not readable as it is: such a job can still be paused and deleted.
    """

    spec: JobSpec | None
    payload: bytes
    state: JobState
    first_us: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The answer for the caller, and the shard in which a due row landed, None if none did."""

    answer: bytes
    landed_shard: int | None


Render = Callable[[JobRecord], bytes]


class JobChanges:
    """Writes jobs. Callbacks may run more than once, and have no effects of their own."""

    def __init__(self, database: Database, clock: Clock, scale: BucketScale, shard_count: int) -> None:
        self._database = database
        self._clock = clock
        self._scale = scale
        self._shard_count = shard_count

    async def create(
        self, call: Call, *, job_id: UUID, name: str, decide: Callable[[int], NextVersion], render: Render
    ) -> Changed:
        """Register a job under `name`. `decide` gets the instant of registration.

        Raises AlreadyExists, RequestReused, whatever `decide` raises, Unavailable, OutcomeUnknown.
        """
        hash16 = job_hash(job_id)

        async def body(tx: Transaction) -> Changed:
            now_us = self._clock.now_us()
            stored = await reserve(tx, call.key, now_us)
            if stored is not None:
                return Changed(stored, None)
            wanted = decide(now_us)
            record = JobRecord(
                job_id=job_id,
                namespace=call.key.namespace,
                name=name,
                hash16=hash16,
                shard=shard_of(hash16, self._shard_count),
                version=1,
                state=wanted.state,
                cutover_us=now_us,
                created_us=now_us,
                updated_us=now_us,
                deleted_us=0,
                error="",
                spec=wanted.spec,
                payload=wanted.payload,
            )
            answer_bytes = render(record)
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
            return await self._landed(tx, record, wanted.first_us, answer_bytes)

        return await self._database.transaction(body, repeat_unknown=True)

    async def change(
        self,
        call: Call,
        *,
        action: str,
        name: str,
        decide: Callable[[JobRecord, int], NextVersion | None],
        render: Render,
    ) -> Changed:
        """Make the next version of the live job `name`. `decide` gets the job and the cut-over instant; None from it
        leaves the job, and answers with it, as it is.

        Raises NotFound, RequestReused, whatever `decide` raises, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction) -> Changed:
            now_us = self._clock.now_us()
            stored = await reserve(tx, call.key, now_us)
            if stored is not None:
                return Changed(stored, None)
            present = await job_in(tx, call.key.namespace, name)
            cutover_us = max(now_us, present.cutover_us + 1)
            wanted = decide(present, cutover_us)
            if wanted is None:
                answer_bytes = render(present)
                await answer(tx, call.key, answer_bytes)
                return Changed(answer_bytes, None)
            record = replace(
                present,
                version=present.version + 1,
                state=wanted.state,
                cutover_us=cutover_us,
                updated_us=cutover_us,
                deleted_us=cutover_us if wanted.state is JobState.DELETED else 0,
                error="",
                spec=wanted.spec,
                payload=wanted.payload,
                fault="" if wanted.spec else present.fault,
            )
            answer_bytes = render(record)
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
            return await self._landed(tx, record, wanted.first_us, answer_bytes)

        return await self._database.transaction(body, repeat_unknown=True)

    async def _landed(self, tx: Transaction, job: JobRecord, first_us: int | None, answer_bytes: bytes) -> Changed:
        if first_us is None:
            return Changed(answer_bytes, None)
        await land(
            tx,
            Landing(
                shard=job.shard,
                bucket=self._scale.bucket_of(first_us),
                due_at_us=first_us,
                due_id=chain_id(job.job_id, job.version),
                kind=DueKind.OCCURRENCE,
                job_id=job.job_id,
                job_version=job.version,
                scheduled_for_us=first_us,
            ),
        )
        return Changed(answer_bytes, job.shard)


def _common(call: Call, job: JobRecord, action: str, now_us: int, answer_bytes: bytes) -> dict[str, Any]:
    spec = job.stored if job.spec is None else json.dumps(job.spec.to_json(), separators=(",", ":"), sort_keys=True)
    return {
        **audited_params(call, action=action, subject=job.name, version=job.version, now_us=now_us),
        **answered_params(call.key, answer_bytes),
        "job_id": job.job_id,
        "spec": spec,
        "payload": job.payload,
        "trace": call.trace,
    }
