"""Values that a dispatcher's pure parts work with, made with as few words as a test needs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tidewheel.v1 import worker_service_pb2 as pb

from core.clock import US_PER_S
from core.enumerator import Enumerator
from core.ids import token_hash
from core.jobspec import JobSpec
from core.occurrences import occurrences_of
from core.states import DueKind
from core.store.discovery import DueRow
from dispatcher.attempts import LiveAttempt
from dispatcher.jobs import JobVersion
from dispatcher.routes import Queue, Route, WaitingRun
from tests.support.clock import NEW_YEAR_2026_US

NOW_US = NEW_YEAR_2026_US
SECOND_US = US_PER_S
TOKEN = b"t" * 32

_NUMBERS = itertools.count(1)


def new_id() -> UUID:
    """Another id at each call, growing."""
    return UUID(int=next(_NUMBERS))


def job_version(spec: JobSpec | None = None, **changes: Any) -> JobVersion:
    """Version 1 of a job of its own; without a spec its handler is `work`."""
    spec = spec or JobSpec(handler="work")
    owned = occurrences_of(spec, {}, Enumerator())
    values: dict[str, Any] = {
        "job_id": new_id(),
        "version": 1,
        "namespace": "default",
        "name": "a-job",
        "hash16": 1,
        "spec": spec,
        "payload": b"",
        "trace": "",
        "current_version": 1,
        "superseded_us": None,
        "occurrences": None if owned is None else owned.until(changes.get("superseded_us")),
    }
    return JobVersion(**(values | changes))


def due_row(at_us: int = NOW_US, **changes: Any) -> DueRow:
    """The due row of an occurrence at `at_us`, in shard 0 and a bucket of 5 s."""
    values: dict[str, Any] = {
        "shard": 0,
        "bucket": at_us // (5 * US_PER_S),
        "due_at_us": at_us,
        "id": new_id(),
        "kind": DueKind.OCCURRENCE,
        "job_id": new_id(),
        "job_version": 1,
        "scheduled_for_us": at_us,
    }
    return DueRow(**(values | changes))


def live_attempt(job: JobVersion | None = None, **changes: Any) -> LiveAttempt:
    """Attempt 1 of a run, leased at NOW to worker-1 for 15 s with the secret TOKEN."""
    values: dict[str, Any] = {
        "run_id": new_id(),
        "shard": 0,
        "term": 1,
        "attempt": 1,
        "uncounted": 0,
        "token_hash": token_hash(TOKEN),
        "worker": "worker-1",
        "job": job or job_version(),
        "scheduled_for_us": NOW_US,
        "due_at_us": NOW_US,
        "started_us": NOW_US,
        "lease_until_us": NOW_US + 15 * US_PER_S,
        "sql_lease_until_us": NOW_US + 15 * US_PER_S,
    }
    return LiveAttempt(**(values | changes))


def waiting_run(job: JobVersion | None = None, **changes: Any) -> WaitingRun:
    """A run that has had no attempt yet, due at NOW."""
    values: dict[str, Any] = {
        "run_id": new_id(),
        "shard": 0,
        "term": 1,
        "attempt": 0,
        "uncounted": 0,
        "scheduled_for_us": NOW_US,
        "due_at_us": NOW_US,
        "job": job or job_version(),
    }
    return WaitingRun(**(values | changes))


def hello(**changes: Any) -> pb.Hello:
    """What worker-1 says first: it serves `work` in the default namespace and queue, with 10 slots."""
    values: dict[str, Any] = {"protocol_version": 1, "worker_id": "worker-1", "handlers": ["work"], "slots": 10}
    return pb.Hello(**(values | changes))


@dataclass(eq=False)
class PlainTaker:
    """A worker's session as routes see it: some routes, some credits."""

    routes: set[Route]
    credits: int = 1
    worker_id: str = "worker-1"
    taken: int = field(default=0)

    def serves(self, route: Route) -> bool:
        return route in self.routes

    @property
    def served_queues(self) -> list[Queue]:
        return [route[:2] for route in self.routes]

    def use_credit(self) -> None:
        self.credits -= 1
        self.taken += 1

    def return_credit(self) -> None:
        self.credits += 1
        self.taken -= 1
