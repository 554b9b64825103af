"""Judges what became of every occurrence of the jobs that a client registered, edited, paused, triggered or deleted.

What is due is counted by plain arithmetic from the client's log. The rows only say at which instant a version took
over, and that has to lie within the call that made it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.states import ENDED_RUN_STATES, JobState, RunCause, RunState, SkipReason
from tests.support.history import History, Invariant, Outcome, Periodic, Row, Said, Violation
from tests.support.history_writes import Writes

# Until so late a missed occurrence simply runs (the default of the catch-up policy).
GRACE_US = 60_000_000
# The product decides by a lower bound of the database's time: a cut-over may lie that far before the call.
CLOCK_US = 2_000_000
CHANGES = {"create", "edit", "pause", "resume", "delete"}


@dataclass(frozen=True, slots=True)
class Span:
    """Instants in (after_us, until_us] of one version: what occurs there (None: nothing, the job is deleted).

    The next version takes over behind whatever was fired before its edit committed: nothing may run beyond `until_us`.
    """

    job_id: str
    version: int
    after_us: int
    until_us: int
    schedule: Periodic | None
    overlap: str
    paused: bool


class OccurrenceJudge:
    """Compares the client's log with runs, skips and versions. `writes` has followed the commits."""

    def __init__(self, history: History, writes: Writes) -> None:
        self._history = history
        self._writes = writes
        self.violations: list[Violation] = []
        self._runs: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for run in history.tables["runs"]:
            if run["cause"] == RunCause.SCHEDULE:
                self._runs[run["job_id"]][run["scheduled_for_us"]].append(run)
        self._skips: dict[str, list[Row]] = defaultdict(list)
        for skip in history.tables["skips"]:
            self._skips[skip["job_id"]].append(skip)

    def judge(self) -> list[Violation]:
        """Every violation."""
        spans = list(self._spans())
        self._calls()
        expected: dict[str, set[int]] = defaultdict(set)
        for job_id, instants in self._history.owed.items():
            expected[job_id] |= set(instants)
            for at_us in instants:
                self._owed(job_id, at_us, None)
        for span in spans:
            if span.schedule is None:
                continue
            for at_us in span.schedule.between(span.after_us, span.until_us):
                expected[span.job_id].add(at_us)
                if not span.paused:
                    self._owed(span.job_id, at_us, span)
                elif self._runs[span.job_id][at_us]:
                    self._say(Invariant.NONE_INVENTED, f"ran at {at_us}, while the job was paused", span)
        for job_id, by_instant in self._runs.items():
            self._repeated(job_id, by_instant, expected.get(job_id))
        self._at_rest()
        return self.violations

    def _say(self, invariant: Invariant, what: str, *rows: object) -> None:
        self.violations.append(Violation(invariant, what, rows))

    # ---- occurrences ----

    def _owed(self, job_id: str, at_us: int, span: Span | None) -> None:
        runs = self._runs[job_id][at_us]
        skips = [skip for skip in self._skips[job_id] if skip["from_us"] <= at_us <= skip["to_us"]]
        if len(runs) + len(skips) != 1:
            found = f"{len(runs)} runs and {len(skips)} skips"
            self._say(Invariant.ONE_RUN, f"job {job_id}: the occurrence at {at_us} has {found}", span, *runs, *skips)
        for skip in skips:
            if span is not None and not self._justified(skip, at_us, span):
                reason = SkipReason(skip["reason"]).name
                self._say(Invariant.ONE_RUN, f"job {job_id}: skipped at {at_us} for no reason: {reason}", span, skip)

    def _justified(self, skip: Row, at_us: int, span: Span) -> bool:
        match SkipReason(skip["reason"]):
            case SkipReason.OVERLAP:
                return span.overlap == "skip" and self._writes.beside_open_run.get((span.job_id, skip["from_us"]), True)
            case SkipReason.CATCH_UP:
                return bool(skip["recorded_us"] - at_us > GRACE_US)
            case _:
                return False

    def _repeated(self, job_id: str, by_instant: dict[int, list[Row]], expected: set[int] | None) -> None:
        for at_us, runs in by_instant.items():
            if len(runs) > 1:
                self._say(Invariant.ONE_RUN, f"job {job_id}: {len(runs)} runs at {at_us}", *runs)
            if runs and expected is not None and at_us not in expected and not self._beyond(at_us):
                self._say(Invariant.NONE_INVENTED, f"job {job_id}: a run at {at_us}, which is no occurrence", *runs)

    def _beyond(self, at_us: int) -> bool:
        return 0 < self._history.horizon_us < at_us

    def _at_rest(self) -> None:
        if not self._history.settled:
            return
        is_open = [run for run in self._history.tables["runs"] if RunState(run["state"]) not in ENDED_RUN_STATES]
        if is_open:
            self._say(Invariant.COMES_TO_REST, f"{len(is_open)} runs have not ended", *is_open[:5])

    # ---- calls ----

    def _calls(self) -> None:
        runs = {run["run_id"]: run for run in self._history.tables["runs"]}
        by_request = {run["request_id"]: run for run in runs.values() if run["request_id"]}
        known = {said.request_id for said in self._history.said}
        for said in self._history.said:
            if said.verb == "trigger":
                self._trigger(said, runs, by_request)
        for run in runs.values():
            if self._history.said and run["cause"] == RunCause.TRIGGER and run["request_id"] not in known:
                self._say(Invariant.NONE_INVENTED, "a trigger that nobody called for", run)

    def _trigger(self, said: Said, runs: dict[str, Row], by_request: dict[str, Row]) -> None:
        if said.outcome is Outcome.ACKNOWLEDGED and said.run_id not in runs:
            self._say(Invariant.CALLS_STAND, "an acknowledged trigger has no run", said)
        if said.outcome is Outcome.REFUSED and said.request_id in by_request:
            self._say(Invariant.CALLS_STAND, "a refused trigger has a run", said, by_request[said.request_id])

    def _spans(self) -> Iterator[Span]:
        """The versions of each job that the client registered, with what the client knows of them."""
        calls = {said.request_id: said for said in self._history.said if said.verb in CHANGES}
        versions: dict[str, list[Row]] = defaultdict(list)
        seen: set[str] = set()
        for version in self._history.tables["job_versions"]:
            versions[version["job_id"]].append(version)
            seen.add(version["request_id"])
        for said in calls.values():
            if said.outcome is Outcome.ACKNOWLEDGED and said.request_id not in seen:
                self._say(Invariant.CALLS_STAND, f"an acknowledged {said.verb} left no version", said)
            if said.outcome is Outcome.REFUSED and said.request_id in seen:
                self._say(Invariant.CALLS_STAND, f"a refused {said.verb} made a version", said)
        for job_id, rows in versions.items():
            rows.sort(key=lambda row: row["version"])
            if rows[0]["request_id"] in calls:
                yield from self._spans_of(job_id, rows, calls)

    def _spans_of(self, job_id: str, rows: Sequence[Row], calls: dict[str, Said]) -> Iterator[Span]:
        schedule, overlap = None, "allow"
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            said = calls.get(row["request_id"])
            if said is None:
                self._say(Invariant.CALLS_STAND, "a version that nobody called for", row)
                continue
            self._cut_over(said, row)
            if said.schedule is not None:
                schedule, overlap = said.schedule, said.overlap
            until_us = self._history.horizon_us if following is None else following["cutover_us"]
            state = JobState(row["state"])
            yield Span(
                job_id,
                row["version"],
                row["cutover_us"],
                until_us,
                None if state is JobState.DELETED else schedule,
                overlap,
                state is JobState.PAUSED,
            )

    def _cut_over(self, said: Said, row: Row) -> None:
        within = said.called_us - CLOCK_US <= row["cutover_us"]
        if said.outcome is Outcome.ACKNOWLEDGED:
            within = within and row["cutover_us"] <= said.answered_us + CLOCK_US
        if not within:
            self._say(Invariant.CALLS_STAND, "a version took over outside of its call", said, row)
