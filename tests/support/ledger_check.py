"""Judges a cluster by its rows: what rule of ownership's last section, and the invariants of runs, say must hold.

await LedgerCheck(connection, {job_id: [instant_us, ...]}).hold(starts)

`expected` lists the occurrences that must have their run or a recorded skip, for the jobs that it names; `starts` are
what workers say that they began, by a clock of their own. Every violation found is shown, not the first alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol
from uuid import UUID

import asyncpg

from core.buckets import NO_END
from core.errors import Invalid
from core.jobspec import JobSpec
from core.occurrences import occurrences_of
from core.states import AttemptOutcome, DueKind, JobState, RunCause, RunState, TermState

Row = dict[str, Any]
Rows = list[Row]
Tables = Mapping[str, Rows]
OPEN = (RunState.PENDING, RunState.LEASED)
# What the last attempt of a run in that state may have come to.
LAST_OUTCOMES = {
    RunState.SUCCEEDED: {AttemptOutcome.SUCCEEDED},
    RunState.FAILED: {AttemptOutcome.FAILED},
    RunState.DEAD: {AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST},
    RunState.CANCELED: set(AttemptOutcome) - {AttemptOutcome.SUCCEEDED},
    RunState.PENDING: {AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST},
    RunState.LEASED: {AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST},
}


class StartLike(Protocol):
    """One start of a handler, as a worker saw it."""

    @property
    def run_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def due_at_us(self) -> int: ...

    @property
    def at_us(self) -> int: ...


async def read_tables(eye: asyncpg.Connection) -> dict[str, Rows]:
    """Everything that is judged, as of one instant."""
    async with eye.transaction(isolation="repeatable_read", readonly=True):
        return {name: [dict(row) for row in await eye.fetch(f"SELECT * FROM {name}")] for name in _TABLES}


class LedgerCheck:
    """One judgement of one database."""

    def __init__(self, eye: asyncpg.Connection, expected: Mapping[UUID, Sequence[int]] | None = None) -> None:
        self._eye = eye
        self._expected = expected or {}
        self.problems: list[str] = []

    async def hold(self, starts: Iterable[StartLike] = ()) -> None:
        """Raises AssertionError with everything that does not hold. One snapshot is judged."""
        problems = self.judge(await read_tables(self._eye), starts)
        if problems:
            shown = "\n  ".join(problems[:20])
            raise AssertionError(f"the ledger has {len(problems)} faults:\n  {shown}")

    def judge(self, tables: Tables, starts: Iterable[StartLike] = ()) -> list[str]:
        """Every violation in rows that were read already."""
        self.problems.clear()
        self._occurrences(tables)
        self._attempts(tables)
        self._terms(tables)
        self._marks(tables)
        self._open_runs(tables)
        self._chains(tables)
        self._starts(list(starts), tables)
        return list(self.problems)

    def _say(self, fault: str) -> None:
        self.problems.append(fault)

    # ---- each occurrence once, none early ----

    def _occurrences(self, tables: Tables) -> None:
        scheduled = [run for run in tables["runs"] if run["cause"] == RunCause.SCHEDULE]
        twice = Counter((run["job_id"], run["scheduled_for_us"]) for run in scheduled)
        for (job_id, at_us), count in twice.items():
            if count > 1:
                self._say(f"job {job_id}: {count} runs of the occurrence at {at_us}")
        skips = defaultdict(list)
        for skip in tables["skips"]:
            skips[skip["job_id"]].append((skip["from_us"], skip["to_us"]))
        self._ranges(skips, scheduled)
        for job_id, wanted in self._expected.items():
            ran = {at_us for job, at_us in twice if job == job_id}
            for at_us in wanted:
                skipped = sum(low <= at_us <= high for low, high in skips[job_id])
                if (at_us in ran) + skipped != 1:
                    self._say(f"job {job_id}: the occurrence at {at_us} ran {at_us in ran}, skipped {skipped} times")
            for at_us in ran - set(wanted):
                self._say(f"job {job_id}: a run at {at_us}, which is no occurrence")
        for run in scheduled:
            if run["created_us"] < run["due_at_us"]:
                self._say(f"run {run['run_id']}: made {run['due_at_us'] - run['created_us']} us early")
        for run in tables["runs"]:
            if 0 < run["started_us"] < run["due_at_us"]:
                self._say(f"run {run['run_id']}: leased {run['due_at_us'] - run['started_us']} us early")

    def _ranges(self, skips: Mapping[UUID, list[tuple[int, int]]], scheduled: Rows) -> None:
        """Skipped ranges are apart from each other and from what ran, whatever was expected."""
        for job_id, ranges in skips.items():
            ranges.sort()
            for (low, high), (following, _) in pairwise(ranges):
                if following <= high:
                    self._say(f"job {job_id}: skipped from {low} to {high}, and again from {following}")
        for run in scheduled:
            at_us = run["scheduled_for_us"]
            if any(low <= at_us <= high for low, high in skips.get(run["job_id"], ())):
                self._say(f"job {run['job_id']}: the occurrence at {at_us} ran and was skipped")

    # ---- attempts ----

    def _attempts(self, tables: Tables) -> None:
        by_run = defaultdict(list)
        for attempt in sorted(tables["attempts"], key=lambda row: row["attempt"]):
            by_run[attempt["run_id"]].append(attempt)
        specs = {(v["job_id"], v["version"]): v["spec"] for v in tables["job_versions"]}
        runs = {run["run_id"]: run for run in tables["runs"]}
        for run_id in by_run.keys() - runs.keys():
            self._say(f"attempts of a run {run_id} that is not there")
        for run_id, run in runs.items():
            self._attempts_of(run, by_run[run_id], _spec(specs.get((run["job_id"], run["job_version"]))))

    def _attempts_of(self, run: Row, rows: Rows, spec: JobSpec | None) -> None:
        state, name = RunState(run["state"]), f"run {run['run_id']} ({RunState(run['state']).name})"
        is_open = state is RunState.LEASED
        if len(rows) != run["attempt"] - run["uncounted"] - is_open:
            recorded = [row["attempt"] for row in rows]
            self._say(f"{name}: attempts {recorded} recorded of {run['attempt']}, {run['uncounted']} of them uncounted")
        if rows and rows[-1]["attempt"] > run["attempt"] - is_open:
            self._say(f"{name}: attempt {rows[-1]['attempt']} was recorded before it was leased")
        outcomes = [AttemptOutcome(row["outcome"]) for row in rows]
        if outcomes and outcomes[-1] not in LAST_OUTCOMES[state]:
            self._say(f"{name}: its last attempt is {outcomes[-1].name}")
        if not outcomes and state in (RunState.SUCCEEDED, RunState.FAILED, RunState.DEAD):
            self._say(f"{name}: without an attempt")
        if AttemptOutcome.SUCCEEDED in outcomes[:-1]:
            self._say(f"{name}: went on after a success")
        for row in rows:
            if not run["due_at_us"] <= row["started_us"] <= row["ended_us"]:
                self._say(f"{name}: attempt {row['attempt']} from {row['started_us']} to {row['ended_us']}")
        self._retries_of(run, rows, spec, name)

    def _retries_of(self, run: Row, rows: Rows, spec: JobSpec | None, name: str) -> None:
        starts = {row["attempt"]: row["started_us"] for row in rows}
        if run["state"] == RunState.LEASED:
            starts[run["attempt"]] = run["started_us"]
        for number, row in enumerate(rows, start=1):
            following = next((starts[n] for n in sorted(starts) if n > row["attempt"]), None)
            if following is None or spec is None:
                continue
            wait_us = spec.retry.delay_us(number, -1.0)
            if following < row["ended_us"] + wait_us:
                self._say(
                    f"{name}: attempt after {row['attempt']} began {following - row['ended_us']} us after its end"
                )
        if spec is not None and len(rows) > spec.retry.max_attempts:
            self._say(f"{name}: {len(rows)} attempts, {spec.retry.max_attempts} are allowed")

    # ---- terms, marks, homes ----

    def _terms(self, tables: Tables) -> None:
        by_shard = defaultdict(list)
        for term in tables["shard_terms"]:
            if term["state"] != TermState.VOID:
                by_shard[term["shard"]].append(term)
        for shard, terms in by_shard.items():
            terms.sort(key=lambda term: term["from_bucket"])
            edges = [0, *(term["to_bucket"] for term in terms)]
            if [term["from_bucket"] for term in terms] != edges[:-1] or edges[-1] != NO_END:
                spans = [(t["term"], t["from_bucket"], t["to_bucket"]) for t in terms]
                self._say(f"shard {shard}: terms do not tile: {spans}")
            for earlier, later in pairwise(terms):  # numbers grow with time, but for the rest before a boundary
                if earlier["term"] >= later["term"] and earlier["reason"] != "takeover":
                    self._say(
                        f"shard {shard}: term {earlier['term']} was opened after {later['term']}, and begins before"
                    )
        known = {(t["shard"], t["term"]): TermState(t["state"]) for t in tables["shard_terms"]}
        for run in tables["runs"]:
            home = known.get((run["shard"], run["home_term"]))
            waits = run["state"] == RunState.PENDING and run["not_before_us"] > 0
            if home is None and not (run["home_term"] == 0 and (waits or run["state"] == RunState.CANCELED)):
                self._say(f"run {run['run_id']}: home term {run['home_term']} of shard {run['shard']} never was")
            if home is not TermState.OPEN and run["state"] in OPEN and not waits:
                self._say(f"run {run['run_id']}: open, and its home term {run['home_term']} is not")
        for attempt in tables["attempts"]:
            if not any(term == attempt["term"] for _, term in known):
                self._say(f"attempt {attempt['attempt']} of {attempt['run_id']}: term {attempt['term']} never was")

    def _marks(self, tables: Tables) -> None:
        floors = {row["shard"]: row["floor"] for row in tables["shard_floors"]}
        watermarks = {row["shard"]: row["watermark"] for row in tables["shard_marks"]}
        for shard, watermark in watermarks.items():
            if watermark > floors[shard]:
                self._say(f"shard {shard}: watermark {watermark} above floor {floors[shard]}")
        for row in tables["due"]:
            if row["bucket"] < watermarks[row["shard"]]:
                self._say(f"due row {row['id']}: bucket {row['bucket']} below watermark {watermarks[row['shard']]}")

    def _open_runs(self, tables: Tables) -> None:
        """Whoever takes a shard over must find every open run: since the mark, standing apart, or by its due row."""
        marks = {row["shard"]: row["open_from_us"] for row in tables["shard_marks"]}
        standing = {row["run_id"] for row in tables["open_runs"]}
        due = {row["id"] for row in tables["due"] if row["kind"] == DueKind.RUN}
        for run in tables["runs"]:
            name = f"run {run['run_id']} ({RunState(run['state']).name})"
            found = run["scheduled_for_us"] >= marks[run["shard"]] or run["run_id"] in standing | due
            if run["state"] in OPEN and not found:
                self._say(f"{name}: older than the open-from mark and standing nowhere, nobody will find it")
            waits = run["state"] == RunState.PENDING and run["not_before_us"] > 0
            if waits and run["run_id"] not in due:
                self._say(f"{name}: waits until {run['not_before_us']} without a due row")

    def _chains(self, tables: Tables) -> None:
        """Every active job that has occurrences to come has one due row, of its present version."""
        rows = Counter((r["job_id"], r["job_version"]) for r in tables["due"] if r["kind"] == DueKind.OCCURRENCE)
        specs = {(v["job_id"], v["version"]): v["spec"] for v in tables["job_versions"]}
        written = [run["created_us"] for run in tables["runs"]] + [skip["recorded_us"] for skip in tables["skips"]]
        newest_us = max(written, default=0)
        for (job_id, version), count in rows.items():
            if count > 1:
                self._say(f"job {job_id}: {count} due rows of version {version}")
        for job in tables["jobs"]:
            spec = _spec(specs.get((job["job_id"], job["version"])))
            if job["state"] != JobState.ACTIVE or spec is None or spec.schedule is None or job["error"]:
                continue
            if _goes_on(spec, max(newest_us, job["cutover_us"])) and not rows[job["job_id"], job["version"]]:
                self._say(f"job {job['job_id']}: occurrences to come, and no due row of version {job['version']}")

    # ---- what workers saw ----

    def _starts(self, starts: list[StartLike], tables: Tables) -> None:
        runs = {str(run["run_id"]): run for run in tables["runs"]}
        for start in starts:
            if start.at_us < start.due_at_us:
                self._say(f"run {start.run_id}: started {start.due_at_us - start.at_us} us early by the worker's clock")
            run = runs.get(start.run_id)
            if run is None or start.attempt > run["attempt"]:
                self._say(f"run {start.run_id}: attempt {start.attempt} was started and never leased")
        for (run_id, attempt), count in Counter((s.run_id, s.attempt) for s in starts).items():
            if count > 1:
                self._say(f"run {run_id}: attempt {attempt} was started {count} times")


_TABLES = (
    "runs",
    "attempts",
    "skips",
    "due",
    "jobs",
    "job_versions",
    "shard_terms",
    "shard_floors",
    "shard_marks",
    "open_runs",
)


def _goes_on(spec: JobSpec, after_us: int) -> bool:
    """Whether the version has occurrences to come; one that needs calendars is not judged."""
    try:
        occurrences = occurrences_of(spec, {}, None)
    except Invalid:
        return False
    return occurrences is not None and occurrences.next_after(after_us) is not None


def _spec(stored: Any) -> JobSpec | None:
    """The version's spec, None where it cannot be read (a test spoilt it)."""
    try:
        return JobSpec.from_json(json.loads(stored))
    except Exception:
        return None
