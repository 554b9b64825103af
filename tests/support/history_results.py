"""Judges what handlers did, by the sink's log: tokens, effects, results, acknowledgements, against rows and leases."""

from __future__ import annotations

from collections import defaultdict

from core.states import AttemptOutcome, RunState
from tests.support.history import History, Invariant, Noted, Row, Violation
from tests.support.history_writes import Writes


class ResultJudge:
    """Compares the sink's log with leases (as `writes` saw them commit) and with the final rows."""

    def __init__(self, history: History, writes: Writes) -> None:
        self._history = history
        self._writes = writes
        self.violations: list[Violation] = []
        self._runs: dict[str, Row] = {run["run_id"]: run for run in history.tables["runs"]}
        self._attempts: dict[tuple[str, int], Row] = {
            (row["run_id"], row["attempt"]): row for row in history.tables["attempts"]
        }
        self._noted: dict[str, list[Noted]] = defaultdict(list)
        for noted in history.noted:
            self._noted[noted.run].append(noted)

    def judge(self) -> list[Violation]:
        """Every violation."""
        if not self._history.noted:
            return []
        for run_id, lines in self._noted.items():
            self._starts(run_id, [line for line in lines if line.phase == "start"])
            self._acknowledged(run_id, [line for line in lines if line.phase == "acknowledged"])
        for run_id, run in self._runs.items():
            if run["state"] == RunState.SUCCEEDED:
                self._succeeded(run, self._noted.get(run_id, []))
        for run_id, lines in self._noted.items():
            applied = [line for line in lines if line.applied]
            if len(applied) > 1:
                self._say(Invariant.ONE_EFFECT, f"run {run_id} took effect {len(applied)} times", *applied)
        return self.violations

    def _say(self, invariant: Invariant, what: str, *rows: object) -> None:
        self.violations.append(Violation(invariant, what, rows))

    def _starts(self, run_id: str, starts: list[Noted]) -> None:
        seen: dict[int, Noted] = {}
        run = self._runs.get(run_id)
        if run is None:
            self._say(Invariant.NONE_INVENTED, f"a handler worked on run {run_id}, which is not there", *starts)
            return
        for start in starts:
            if start.fencing in seen:
                self._say(Invariant.TOKENS_GROW, "two starts under one token", seen[start.fencing], start)
            seen[start.fencing] = start
            if start.at_us < start.due_us or start.at_us < run["due_at_us"]:
                self._say(Invariant.NEVER_EARLY, f"started {run['due_at_us'] - start.at_us} us early", start, run)
            leased_us, worker = self._writes.leases.get((run_id, start.attempt), (None, ""))
            if leased_us is None or start.at_us < leased_us:
                self._say(Invariant.TOKENS_GROW, f"started before its lease committed ({leased_us})", start, run)
            elif worker != start.worker:
                self._say(Invariant.TOKENS_GROW, f"started by another worker than {worker}", start, run)
            if (run_id, start.attempt) in self._writes.returned:
                self._say(Invariant.ONE_LEASE, "an attempt that started was given back as if it had not", start, run)
        tokens = {start.attempt: start.fencing for start in starts}
        grown = [tokens[attempt] for attempt in sorted(tokens)]
        if grown != sorted(set(grown)):
            self._say(Invariant.TOKENS_GROW, f"tokens of run {run_id} do not grow: {grown}", *starts)
        self._raw_doubles(run_id, starts)

    def _raw_doubles(self, run_id: str, starts: list[Noted]) -> None:
        """A second start is explained by how the attempt before it ended; an attempt that succeeded explains none."""
        for start in sorted(starts, key=lambda line: line.attempt)[:-1]:
            ending = self._attempts.get((run_id, start.attempt))
            if ending is None or ending["outcome"] == AttemptOutcome.SUCCEEDED:
                self._say(Invariant.ONE_EFFECT, f"run {run_id} started again for no reason", ending, *starts)

    def _succeeded(self, run: Row, lines: list[Noted]) -> None:
        effects = {str(line.seq): line for line in lines if line.phase == "effect"}
        applied = [line for line in effects.values() if line.applied]
        if len(applied) != 1:
            self._say(Invariant.ONE_EFFECT, f"a succeeded run took effect {len(applied)} times", run, *lines)
        result = bytes(run["result"] or b"").decode(errors="replace")
        effect = effects.get(result)
        if effect is None or effect.attempt != run["attempt"]:
            self._say(Invariant.RESULT_OF_WORKER, f"the result {result!r} is not its worker's", run, *lines)

    def _acknowledged(self, run_id: str, lines: list[Noted]) -> None:
        run = self._runs.get(run_id)
        for line in lines:
            ending = self._attempts.get((run_id, line.attempt))
            if (
                run is None
                or ending is None
                or ending["outcome"] != AttemptOutcome.SUCCEEDED
                or run["state"] != RunState.SUCCEEDED
                or run["attempt"] != line.attempt
            ):
                self._say(Invariant.ACKNOWLEDGED_STAYS, "an acknowledged success is gone", line, ending, run)
