"""Builds the services of the API that speak of jobs, and registers them: one place that knows who answers what.

Called by assembly.py, which builds everything that these stand on; process.py runs the operations' runner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
from tidewheel.v1 import (
    calendar_service_pb2_grpc,
    job_service_pb2_grpc,
    operation_service_pb2_grpc,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
)

from controlplane.api import calendars, jobs, operations, runs, schedules
from controlplane.api.backfills import BackfillRequests, BackfillStore
from controlplane.api.bulk import BulkChanges
from controlplane.api.calls import Calls
from controlplane.api.job_edits import JobEdits, JobStore
from controlplane.api.job_reads import JobReads
from controlplane.api.job_versions import JobVersionReads
from controlplane.api.job_views import JobViews
from controlplane.api.ledgers import JobAnswers
from controlplane.api.operation_views import OperationViews
from controlplane.api.run_views import RunViews
from controlplane.api.schedule_refs import ScheduleRefs
from controlplane.api.triggers import Triggers
from controlplane.hints import HintSink
from controlplane.job_accounts import JobAccounts
from controlplane.operations.runner import OperationRunner
from controlplane.operations.steps import OperationSteps
from controlplane.seams import CallTracing
from core.clock import Clock
from core.enumerator import Enumerator
from core.rand import Rand
from core.store.backfills import Backfills
from core.store.calendar_changes import CalendarChanges
from core.store.calendars import Calendars
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.job_batches import JobBatches
from core.store.job_changes import JobChanges
from core.store.job_versions import JobVersions
from core.store.jobs import Jobs
from core.store.operations import Operations
from core.store.run_changes import RunChanges
from core.store.runs import Runs

NAMES: Final = (jobs.SERVICE, runs.SERVICE, calendars.SERVICE, operations.SERVICE, schedules.SERVICE)


@dataclass(frozen=True, slots=True)
class Ground:
    """What the services stand on; `leads` says whether this replica is the leader now."""

    database: Database
    cluster: Cluster
    clock: Clock
    rand: Rand
    tracing: CallTracing
    hints: HintSink
    leads: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Services:
    """The servicers, and the runner of the operations that they begin."""

    job_service: job_service_pb2_grpc.JobServiceServicer
    run_service: run_service_pb2_grpc.RunServiceServicer
    calendar_service: calendar_service_pb2_grpc.CalendarServiceServicer
    operation_service: operation_service_pb2_grpc.OperationServiceServicer
    schedule_service: schedule_service_pb2_grpc.ScheduleServiceServicer
    runner: OperationRunner

    def register(self, server: grpc.aio.Server) -> None:
        """Have the server serve them."""
        job_service_pb2_grpc.add_JobServiceServicer_to_server(self.job_service, server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(self.run_service, server)
        calendar_service_pb2_grpc.add_CalendarServiceServicer_to_server(self.calendar_service, server)
        operation_service_pb2_grpc.add_OperationServiceServicer_to_server(self.operation_service, server)
        schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server(self.schedule_service, server)


@dataclass(frozen=True, slots=True)
class _Operating:
    """Everything about operations."""

    operations: Operations
    batches: JobBatches
    backfills: Backfills
    runner: OperationRunner
    views: OperationViews


def build_services(calls: Calls, ground: Ground) -> Services:
    """The services of one replica."""
    run_views = RunViews(ground.clock, ground.tracing)
    run_changes = RunChanges(ground.database, ground.clock, ground.cluster.scale)
    run_store = runs.RunStore(Jobs(ground.database), Runs(ground.database), run_changes)
    enumerator = Enumerator()
    operating = _operating(ground, enumerator)
    triggers = Triggers(calls, run_changes, run_views, ground.hints)
    return Services(
        job_service=_job_service(calls, ground, triggers, operating, enumerator),
        run_service=runs.RunServicer(calls, run_store, run_views, ground.hints),
        calendar_service=calendars.CalendarServicer(
            calls,
            Calendars(ground.database),
            CalendarChanges(ground.database, ground.clock),
            operating.views,
            ground.rand,
        ),
        operation_service=operations.OperationServicer(calls, operating.operations, operating.views),
        schedule_service=schedules.ScheduleServicer(calls, ScheduleRefs(ground.database), ground.clock),
        runner=operating.runner,
    )


def _operating(ground: Ground, enumerator: Enumerator) -> _Operating:
    store = Operations(ground.database, ground.clock)
    batches = JobBatches(ground.database, ground.clock, ground.cluster.scale)
    backfills = Backfills(ground.database, ground.clock, ground.cluster.scale)
    steps = OperationSteps(store, batches, backfills, enumerator)
    runner = OperationRunner(store, steps.step, ground.clock, ground.hints, ground.leads)
    return _Operating(store, batches, backfills, runner, OperationViews(runner))


def _job_service(
    calls: Calls, ground: Ground, triggers: Triggers, operating: _Operating, enumerator: Enumerator
) -> job_service_pb2_grpc.JobServiceServicer:
    database, clock, rand = ground.database, ground.clock, ground.rand
    reads, versions = Jobs(database), JobVersions(database)
    changes = JobChanges(database, clock, ground.cluster.scale, ground.cluster.shard_count)
    views = JobViews(clock, enumerator)
    backfill_store = BackfillStore(reads, operating.operations, operating.backfills)
    return jobs.job_servicer(
        calls,
        JobReads(reads, views).handlers(),
        JobEdits(calls, JobStore(reads, versions, changes), views, enumerator, rand, ground.hints).handlers(),
        JobVersionReads(reads, versions).handlers(),
        {"TriggerJob": triggers.trigger},
        JobAnswers(reads, JobAccounts(database, clock, ground.cluster.scale)).handlers(),
        BulkChanges(calls, operating.operations, operating.batches, operating.views, rand).handlers(),
        BackfillRequests(calls, backfill_store, operating.views, clock, rand).handlers(),
    )
