"""A whole system in real processes for tests of faults: servers, control planes, dispatchers, sink workers.

It wraps tools/fleet.py with what tests need: workers that write to a sink, a look at the rows, and a judgement that
trusts only the client's own knowledge, the sink and the rows.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg
from tidewheel import Client

from core.store.migrations import migrate
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tools.fleet import Fleet, Member, until_served
from tools.servers.embedded import Backing
from tools.servers.process import Child, start_child

US = 1_000_000
# Short leases, so that a test of their end takes seconds. The product's own defaults are the benchmark's business.
QUICK = {
    "TIDEWHEEL_DISPATCHER_ATTEMPT_LEASE_S": "3.0",
    "TIDEWHEEL_DISPATCHER_HEARTBEAT_INTERVAL_S": "0.5",
    "TIDEWHEEL_CLUSTER_BUCKET_WIDTH_MS": "1000",
    "TIDEWHEEL_CLUSTER_SHARD_COUNT": "16",
}


@dataclass(frozen=True)
class Start:
    """One start of a handler, as the sink has it; instants in microseconds."""

    run: str
    attempt: int
    fencing: int
    job: str
    scheduled_us: int
    due_us: int
    at_us: int
    worker: str

    @property
    def late_s(self) -> float:
        return (self.at_us - self.due_us) / US


@dataclass(frozen=True)
class Size:
    """How many processes of each kind a system begins with."""

    control_planes: int = 2
    dispatchers: int = 2
    workers: int = 2


class LiveSystem:
    """Control planes, dispatchers and sink workers (two of each, unless `size` says otherwise) over own servers."""

    def __init__(
        self,
        home: Path,
        environ: dict[str, str] | None = None,
        size: Size | None = None,
        *,
        etcd_endpoints: tuple[str, ...] = (),
    ) -> None:
        """With `etcd_endpoints` it stands on that etcd, and starts none of its own."""
        self.home = home
        self.sink = home / "sink.jsonl"
        self.backing = Backing(home / "data", etcd_endpoints=etcd_endpoints)
        self.environ = {**QUICK, **(environ or {})}
        self._size = size or Size()
        self.dispatchers: list[Member] = []
        self.control_planes: list[Member] = []
        self.workers: dict[str, Child] = {}

    async def __aenter__(self) -> LiveSystem:
        self.backing.__enter__()
        try:
            await migrate(self.backing.database_url)
            self.fleet = Fleet(self.backing, self.home / "logs", self.environ)
            for number in range(1, self._size.control_planes + 1):
                self.control_planes.append(self.fleet.start_control_plane(f"controlplane-{number}"))
            for number in range(1, self._size.dispatchers + 1):
                self.dispatchers.append(await self.start_dispatcher(f"dispatcher-{number}"))
            await until_served(self.fleet, dispatchers=self._size.dispatchers)
            for number in range(1, self._size.workers + 1):
                self.start_worker(f"worker-{number}")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.workers.values():
            child.stop()
        if hasattr(self, "fleet"):
            await asyncio.to_thread(self.fleet.stop)
        self.backing.__exit__(kind, error, trace)

    def client(self) -> Client:
        """A client that knows both control planes."""
        return Client(self.fleet.addresses)

    @property
    def import_path(self) -> str:
        """PYTHONPATH of a worker process, which starts in another directory."""
        return os.pathsep.join(part for part in sys.path if part)

    async def start_dispatcher(self, name: str) -> Member:
        """Start one without waiting for it. For systems that stand in a dispatcher's way."""
        return self.fleet.start_dispatcher(name)

    def start_worker(self, name: str, slots: int = 20) -> None:
        environ = {
            "TIDEWHEEL_ADDRESS": self.fleet.addresses,
            "PYTHONPATH": self.import_path,
        }
        self.workers[name] = start_child(
            name,
            [sys.executable, "-m", "tests.support.sink_worker", str(self.sink), name, str(slots)],
            log=self.home / "logs" / f"{name}.log",
            env=environ,
            death_signal=signal.SIGKILL,
        )

    def kill_worker(self, name: str) -> None:
        """By SIGKILL, in the middle of whatever it does."""
        child = self.workers.pop(name)
        child.process.kill()
        child.process.wait()

    # --- what happened ---

    def starts(self, job: str = "") -> list[Start]:
        """The starts in the sink, of one job or of all."""
        return self.noted("start", job)

    def noted(self, phase: str, job: str = "") -> list[Start]:
        """The lines of a phase in the sink, of one job or of all."""
        if not self.sink.exists():
            return []
        found = []
        for line in whole_lines(self.sink):
            said: dict[str, Any] = json.loads(line)
            if said.pop("phase") == phase and (not job or said["job"] == job):
                found.append(Start(**said))
        return found

    async def rows(self, query: str, *params: object) -> list[asyncpg.Record]:
        """A look at the database."""
        connection = await asyncpg.connect(self.backing.database_url.replace("+asyncpg", ""))
        try:
            return list(await connection.fetch(query, *params))
        finally:
            await connection.close()

    async def metric(self, member: Member, name: str) -> float:
        """The sum of a metric's series on a server's own /metrics."""
        return (await scrape(self.monitor_address(member))).total(name)

    def monitor_address(self, member: Member) -> str:
        """Where a server that has started serves /metrics and /readyz, by its log."""
        return _said(member, r"metrics on (\S+)")

    def owner_id(self, dispatcher: Member) -> str:
        """The id under which a dispatcher that has started owns shards, by its log."""
        return _said(dispatcher, r"dispatcher (dispatcher-\w+) serves workers")

    async def owned_shards(self, dispatcher: Member) -> set[int]:
        """By SQL."""
        rows = await self.rows(
            "SELECT shard FROM shard_terms WHERE state = 1 AND owner = $1", self.owner_id(dispatcher)
        )
        return {row["shard"] for row in rows}

    # --- judgement ---

    async def job_occurrences(self, client: Client, name: str, every_us: int, until_us: int) -> list[int]:
        """By plain arithmetic: the instants after the job's cut-over, up to `until_us` (exclusive)."""
        (row,) = await self.rows("SELECT job_id, cutover_us FROM jobs WHERE name = $1 AND deleted_us = 0", name)
        (spec,) = await self.rows("SELECT spec FROM job_versions WHERE job_id = $1 AND version = 1", row["job_id"])
        anchor_us = json.loads(json.loads(spec["spec"])["schedule"])["anchor_us"]
        first = anchor_us + max(0, -(-(row["cutover_us"] + 1 - anchor_us) // every_us)) * every_us
        return list(range(first, until_us, every_us))

    async def settled(self, job: str, expected: list[int], *, within_s: float) -> None:
        """Wait until every expected occurrence has an ended run or a recorded skip."""

        async def accounted() -> bool:
            runs = await self.rows(
                "SELECT scheduled_for_us FROM runs r JOIN jobs j ON j.job_id = r.job_id"
                " WHERE j.name = $1 AND r.state IN (3, 4, 5, 6)",
                job,
            )
            skips = await self.rows(
                "SELECT from_us, to_us FROM skips s JOIN jobs j ON j.job_id = s.job_id WHERE j.name = $1", job
            )
            ended = {row["scheduled_for_us"] for row in runs}
            spans = [(row["from_us"], row["to_us"]) for row in skips]
            return all(at in ended or any(a <= at <= b for a, b in spans) for at in expected)

        await eventually(accounted, within_s=within_s, what=f"every occurrence of {job} is accounted for")

    async def assert_each_once(self, job: str, expected: list[int], *, repeats_explained: bool = False) -> list[Start]:
        """Each expected occurrence has exactly one run, succeeded, and one start of its first attempt; none is early.

        `repeats_explained`: a process was killed, so that a run may have had a second attempt.
        """
        runs = await self.rows(
            "SELECT r.run_id, r.scheduled_for_us, r.state, r.attempt FROM runs r JOIN jobs j ON j.job_id = r.job_id"
            " WHERE j.name = $1 AND r.scheduled_for_us = ANY($2) ORDER BY r.scheduled_for_us",
            job,
            expected,
        )
        assert [row["scheduled_for_us"] for row in runs] == expected, "each occurrence has exactly one run"
        assert {row["state"] for row in runs} == {3}, "every run succeeded"
        starts = [start for start in self.starts(job) if start.scheduled_us in set(expected)]
        assert not [start for start in starts if start.at_us < start.due_us], "none started early"
        counts = Counter((start.run, start.attempt) for start in starts)
        assert set(counts.values()) == {1}, "no attempt started twice"
        if not repeats_explained:
            assert len(starts) == len(expected), "each run was started once"
        assert {start.run for start in starts} == {str(row["run_id"]) for row in runs}, "the sink knows each run"
        return starts

    async def assert_terms_tile(self) -> None:
        """Per shard the terms that are not void tile the buckets without gap or overlap, and exactly one has no end."""
        rows = await self.rows(
            "SELECT shard, term, from_bucket, to_bucket, state FROM shard_terms ORDER BY shard, term"
        )
        by_shard: dict[int, list[asyncpg.Record]] = {}
        for row in rows:
            if row["state"] != 3:
                by_shard.setdefault(row["shard"], []).append(row)
        for shard, terms in by_shard.items():
            ordered = sorted(terms, key=lambda row: row["from_bucket"])
            assert ordered[0]["from_bucket"] == 0, f"shard {shard} begins at bucket 0"
            for before, after in pairwise(ordered):
                assert before["to_bucket"] == after["from_bucket"], f"terms of shard {shard} tile"
            assert ordered[-1]["to_bucket"] == 2**62, f"shard {shard} has an owner without end"


def now_us() -> int:
    """The machine's clock, which on one machine is every process's."""
    return time.time_ns() // 1000


def whole_lines(log: Path) -> list[str]:
    """The lines of a file that a process goes on writing to; one that is not whole yet is left out."""
    text = log.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def _said(member: Member, pattern: str) -> str:
    found = re.search(pattern, "\n".join(whole_lines(member.child.log)))
    assert found, f"the log of {member.name} has no {pattern!r} yet"
    return found[1]
