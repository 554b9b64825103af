"""Hands a leased run to its worker: the live attempt into memory, the assignment onto the worker's stream.

Called by firing and matching, only after the lease has committed. The attempt's secret is made by `draw_lease` and
leaves this process in the assignment alone; memory and SQL keep its hash.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import worker_service_pb2 as pb

from core.ids import token_hash
from core.store.decisions import LeaseGrant
from core.telemetry.dispatcher_metrics import Stage
from core.telemetry.tracing import RunRef
from dispatcher.attempts import LiveAttempt
from dispatcher.routes import Taker, WaitingRun
from dispatcher.runtime import Memory, Runtime
from dispatcher.session import WorkerSession


@dataclass(frozen=True, slots=True)
class DrawnLease:
    """A credit that was reserved, with the secret of the attempt it is for."""

    taker: Taker
    token: bytes
    grant: LeaseGrant


class Delivery:
    """Makes leases for reserved credits, and delivers what was leased."""

    def __init__(self, runtime: Runtime, memory: Memory) -> None:
        self._runtime = runtime
        self._memory = memory

    def draw_lease(self, taker: Taker, now_us: int) -> DrawnLease:
        """The lease for a reserved credit, from now on for its full length."""
        token = self._runtime.rand.token()
        grant = LeaseGrant(taker.worker_id, token_hash(token), now_us + self._runtime.lease_us)
        return DrawnLease(taker, token, grant)

    def give_back(self, drawn: DrawnLease, *, in_doubt: bool = False) -> None:
        """Nothing was sent: the credit is free again.

        `in_doubt`: the lease may have been written all the same. If it turns up, nobody runs that attempt.
        """
        drawn.taker.return_credit()
        if in_doubt:
            self._memory.remember_unsent(drawn.grant.token_hash, self._runtime.clock.monotonic_s())

    def deliver(self, run: WaitingRun, attempt: int, drawn: DrawnLease, leased_us: int) -> None:
        """The lease of attempt number `attempt` has committed: send it."""
        taker = drawn.taker
        session = taker if isinstance(taker, WorkerSession) else None
        live = LiveAttempt(
            run_id=run.run_id,
            shard=run.shard,
            term=run.term,
            attempt=attempt,
            uncounted=run.uncounted,
            token_hash=drawn.grant.token_hash,
            worker=drawn.grant.worker,
            job=run.job,
            scheduled_for_us=run.scheduled_for_us,
            due_at_us=run.due_at_us,
            started_us=leased_us,
            lease_until_us=drawn.grant.until_us,
            sql_lease_until_us=drawn.grant.until_us,
            trace=run.trace,
            progress=run.progress,
            holder=session,
            sent_on=session,
            stands_open=run.stands_open,
            payload=run.payload,
        )
        self._memory.attempts.add(live)
        if session is not None and not session.closed:
            session.assign(self._assignment(live, drawn.token))
        else:  # the stream ended while the lease was being written
            self._memory.attempts.mark_unsent(live)
        sent_us = self._runtime.clock.now_us()
        self._runtime.metrics.lateness(Stage.MATCH, (sent_us - run.due_at_us,))
        if self._runtime.tracing.enabled:
            self._runtime.tracing.record_dispatch(
                run_ref(live), attempt=attempt, committed_us=leased_us, sent_us=sent_us
            )

    def _assignment(self, live: LiveAttempt, token: bytes) -> pb.Assignment:
        job = live.job
        return pb.Assignment(
            ref=pb.AttemptRef(run_id=str(live.run_id), attempt=live.attempt, token=token),
            namespace=job.namespace,
            job=job.name,
            job_id=str(job.job_id),
            job_version=job.version,
            handler=job.spec.handler,
            queue=job.spec.queue,
            payload=job.payload if live.payload is None else live.payload,
            payload_type=job.spec.payload_type,
            scheduled_for=timestamp(live.scheduled_for_us),
            due_at=timestamp(live.due_at_us),
            max_attempts=job.spec.retry.max_attempts,
            # Grows by one with every lease of the run, replays included.
            fencing_token=live.attempt,
            start_to_close_timeout=duration(job.spec.timeout_us),
            traceparent=self._runtime.tracing.attempt_traceparent(live.run_id, live.attempt),
            progress=live.progress or b"",
        )


def run_ref(live: LiveAttempt) -> RunRef:
    """What spans say of a run."""
    return RunRef(live.run_id, live.job.namespace, live.job.name, live.shard, live.term, live.trace or live.job.trace)


def timestamp(instant_us: int) -> Timestamp:
    """An instant as a protobuf Timestamp."""
    return Timestamp(seconds=instant_us // 1_000_000, nanos=instant_us % 1_000_000 * 1000)


def duration(length_us: int) -> Duration:
    """A length of time as a protobuf Duration."""
    return Duration(seconds=length_us // 1_000_000, nanos=length_us % 1_000_000 * 1000)
