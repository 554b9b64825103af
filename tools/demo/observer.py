"""Looks at the system from outside, over its API: the jobs, who owns which shard, and what its runs came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.errors import TidewheelError
from tidewheel.v1 import admin_service_pb2, job_pb2, job_service_pb2, run_pb2, run_service_pb2

from core.ids import run_shard
from tools.cli.api import Api, all_pages
from tools.demo.run_log import Start
from tools.demo.screen import StartRow
from tools.fleet import Member

ENDED = frozenset(
    {run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_DEAD, run_pb2.RUN_STATE_CANCELED}
)


@dataclass(slots=True)
class Ownership:
    """Who owns which shard at one look, by the addresses of the dispatchers."""

    # Shard -> address of its owner; absent where nobody owns it.
    owners: dict[int, str] = field(default_factory=dict)
    # Shard -> its newest term.
    terms: dict[int, int] = field(default_factory=dict)

    def shards_of(self, address: str) -> list[int]:
        """What a dispatcher owns."""
        return [shard for shard, owner in self.owners.items() if owner == address]

    def terms_of(self, address: str) -> str:
        """The terms under which it does: the lowest and the highest."""
        terms = [self.terms[shard] for shard in self.shards_of(address)]
        if not terms:
            return ""
        return str(min(terms)) if min(terms) == max(terms) else f"{min(terms)}-{max(terms)}"


class Observer:
    """What was seen last; a look that fails leaves it as it was."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.ownership = Ownership()
        self.shard_count = 0

    async def look(self) -> bool:
        """Read the owners anew; whether somebody answered."""
        try:
            known = await self._api.admin("ListDispatchers", admin_service_pb2.ListDispatchersRequest())
            listed = await self._api.admin("ListShards", admin_service_pb2.ListShardsRequest())
        except TidewheelError:
            return False
        addresses = {one.dispatcher_id: one.address for one in known.dispatchers}
        owners = {shard.shard: addresses.get(shard.dispatcher_id, "") for shard in listed.shards if shard.dispatcher_id}
        self.ownership = Ownership(owners, {shard.shard: shard.term for shard in listed.shards})
        self.shard_count = len(listed.shards)
        return True

    async def jobs(self) -> list[job_pb2.Job]:
        """Every job, as the system has it."""
        answer = await all_pages(self._api.jobs, "ListJobs", job_service_pb2.ListJobsRequest(), "jobs", 0)
        return list(answer.jobs)

    async def run_states(self, jobs: Sequence[str], before_us: int) -> Counter[int]:
        """How many runs that were scheduled before an instant are in which state."""
        counts: Counter[int] = Counter()
        until = Timestamp()
        until.FromMicroseconds(before_us)
        for job in jobs:
            request = run_service_pb2.ListRunsRequest(job=job, to=until)
            answer = await all_pages(self._api.runs, "ListRuns", request, "runs", 0)
            counts.update(run.state for run in answer.runs)
        return counts

    def shard_of(self, start: Start) -> int:
        """The shard of a start's run; the run id tells."""
        return run_shard(UUID(start.run_id), self.shard_count or 1)

    def place(self, start: Start, members: Sequence[Member]) -> StartRow:
        """A start, and where it happened."""
        shard = self.shard_of(start)
        address = self.ownership.owners.get(shard, "")
        dispatcher = next((member.name for member in members if address and member.address == address), "nobody")
        return StartRow(start, shard, dispatcher, worker_name(start, members))


def worker_name(start: Start, members: Sequence[Member]) -> str:
    """Which of our workers it was: a worker's id holds its process id."""
    found = (member.name for member in members if member.role == "worker" and f"-{member.child.pid}-" in start.worker)
    return next(found, start.worker)
