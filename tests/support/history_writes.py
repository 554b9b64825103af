"""Judges what committed, in order: terms, floors, watermarks, due rows and leases are followed through every commit.

A fenced write locks its term row until it has committed, and whoever closes or splits that term waits for it: so at the
place of the write in the order of commits its term must be open and cover the bucket. Nothing here looks at instants
that the product wrote, but where it is an instant that is judged (a lease's end, what was due when).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from core.buckets import NO_END
from core.states import AttemptOutcome, DueKind, RunCause, RunState, SkipReason, TermState
from tests.support.history import Change, Commit, History, Invariant, Row, Violation

ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.DEAD, RunState.CANCELED})
OPEN = frozenset({RunState.PENDING, RunState.LEASED})


class Writes:
    """Follows the commits of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._width_us = history.bucket_width_us
        self.violations: list[Violation] = []
        self._terms: dict[tuple[int, int], Row] = {}
        self._opened_us: dict[tuple[int, int], int] = {}
        self._floors: dict[int, int] = {}
        self._watermarks: dict[int, int] = {}
        self._due: dict[str, dict[tuple[int, int, int], Row]] = defaultdict(dict)
        self._buckets: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._runs: dict[str, Row] = {}
        self._open_of_job: dict[str, set[str]] = defaultdict(set)
        # (run id, attempt) -> when its lease committed, and to whom.
        self.leases: dict[tuple[str, int], tuple[int, str]] = {}
        self.returned: set[tuple[str, int]] = set()
        # (job id, first instant of a skip) -> whether another run of the job was open as it was decided.
        self.beside_open_run: dict[tuple[str, int], bool] = {}
        self._last_ended_us: dict[str, int] = {}
        self._at_us = 0

    def judge(self) -> list[Violation]:
        """Every violation."""
        for commit in self._history.commits:
            self._at_us = commit.at_us
            self._follow(commit)
        return self.violations

    def _say(self, invariant: Invariant, what: str, *rows: object) -> None:
        self.violations.append(Violation(invariant, f"{what} (committed at {self._at_us})", rows))

    # ---- one commit ----

    def _follow(self, commit: Commit) -> None:
        by_table: dict[str, list[Change]] = defaultdict(list)
        for change in commit.changes:
            by_table[change.table].append(change)
        # Writes are judged by the terms before those changed, since both never happen in one transaction.
        self._due_rows(by_table["due"], by_table["runs"], by_table["skips"])
        self._run_rows(by_table["runs"], by_table["attempts"])
        for change in by_table["skips"]:
            self._skip(change.row)
        for change in by_table["shard_floors"]:
            self._floor(change.row)
        for change in by_table["shard_marks"]:
            self._mark(change.row)
        if by_table["shard_terms"]:
            self._term_rows(by_table["shard_terms"])
        for change in by_table["shard_term_events"]:
            if (change.row["event"], change.row["reason"]) == ("close", "drained"):
                self._drained(change.row)

    # ---- terms ----

    def _term_rows(self, changes: Iterable[Change]) -> None:
        shards = set()
        for change in changes:
            row, key = change.row, (change.row["shard"], change.row["term"])
            before = self._terms.get(key)
            shards.add(row["shard"])
            if change.verb == "INSERT":
                newest = max((term for shard, term in self._terms if shard == row["shard"]), default=0)
                if row["term"] != newest + 1:
                    self._say(Invariant.TERMS_TILE, f"term {row['term']} follows {newest}", row)
                self._opened_us[key] = self._at_us
            elif change.verb == "DELETE" or before is None:
                self._say(Invariant.TERMS_TILE, f"{change.verb} of a term", row)
            else:
                self._same_term(before, row)
            self._terms[key] = row
        for shard in shards:
            self._tile(shard)

    def _same_term(self, before: Row, row: Row) -> None:
        if before["owner"] != row["owner"] or before["from_bucket"] != row["from_bucket"]:
            self._say(Invariant.TERMS_TILE, "a term changed its owner or its beginning", before, row)
        if row["to_bucket"] > before["to_bucket"]:
            self._say(Invariant.TERMS_TILE, "a term was extended", before, row)
        if before["state"] != TermState.OPEN and row != before:
            self._say(Invariant.TERMS_TILE, "a term that had ended changed", before, row)

    def _drained(self, row: Row) -> None:
        """A term that is closed as drained, not taken over, answers for no run any more (rule of ownership 12)."""
        runs = (self._runs[run_id] for members in self._open_of_job.values() for run_id in members)
        left = [r for r in runs if (r["shard"], r["home_term"]) == (row["shard"], row["term"]) and not _rests(r)]
        if left:
            self._say(Invariant.VALID_TERM, f"closed as drained with {len(left)} open runs at home", row, *left[:3])

    def _tile(self, shard: int) -> None:
        rows = [r for (s, _), r in self._terms.items() if s == shard and r["state"] != TermState.VOID]
        rows.sort(key=lambda row: (row["from_bucket"], row["term"]))
        ends = [0, *(row["to_bucket"] for row in rows)]
        if [row["from_bucket"] for row in rows] != ends[:-1] or ends[-1] != NO_END:
            spans = [(r["term"], r["from_bucket"], r["to_bucket"], TermState(r["state"]).name) for r in rows]
            self._say(Invariant.TERMS_TILE, f"shard {shard}: the terms do not tile", *spans[-6:])
        if sum(row["state"] == TermState.OPEN for row in rows) > 2:
            self._say(Invariant.TERMS_TILE, f"shard {shard}: more than two terms are open", *rows[-4:])
        ended = self._watermarks.get(shard, 0)
        for row in rows:
            if row["state"] == TermState.CLOSED and row["to_bucket"] > ended:
                self._say(Invariant.TERMS_TILE, f"shard {shard}: a term is closed, and the watermark is {ended}", row)

    def _under(self, shard: int, term: int, bucket: int | None, what: str, *rows: object) -> None:
        """A write under that term commits now (bucket None: whatever the bucket)."""
        row = self._terms.get((shard, term))
        if row is None or row["state"] != TermState.OPEN:
            state = "never was" if row is None else f"is {TermState(row['state']).name}"
            self._say(Invariant.VALID_TERM, f"{what} under term {term} of shard {shard}, which {state}", row, *rows)
        elif bucket is not None and not row["from_bucket"] <= bucket < row["to_bucket"]:
            self._say(Invariant.VALID_TERM, f"{what} in bucket {bucket}, outside of term {term}", row, *rows)
        if row is not None:
            self._one_life(row, self._opened_us.get((shard, term), 0))

    def _one_life(self, term: Row, opened_us: int) -> None:
        lives = [life for life in self._history.lives if life.owner == term["owner"]]
        opener = next((life for life in lives if life.spans(opened_us)), None)
        if lives and (opener is None or not opener.spans(self._at_us)):
            self._say(Invariant.ONE_LIFE, f"a write under term {term['term']} by another process", term, *lives)

    # ---- due rows ----

    def _due_rows(self, changes: list[Change], runs: list[Change], skips: list[Change]) -> None:
        if not changes:
            return
        acting = _Acting(runs, skips)
        for change in changes:
            if change.verb == "INSERT":
                self._land(change.row)
                continue
            if change.verb == "UPDATE" and change.old_key is None:
                self._told(change.row)
                continue
            key = _due_key(change.old_key or change.row)
            gone = self._forget(change.row["id"], key)
            if gone is not None:
                self._consumed(gone, acting)
            if change.verb == "UPDATE":
                self._land(change.row)

    def _told(self, row: Row) -> None:
        """A row that stays where it stands: a change of its job told it of the next version, and nothing else."""
        standing = self._due[row["id"]]
        before = standing.get(_due_key(row))
        if before is None or before | {"told_version": row["told_version"]} != row:
            self._say(Invariant.VALID_TERM, "a due row was changed by no owner", before, row)
        standing[_due_key(row)] = row

    def _forget(self, row_id: str, key: tuple[int, int, int]) -> Row | None:
        gone = self._due[row_id].pop(key, None)
        if gone is not None:
            buckets = self._buckets[key[0]]
            buckets[key[1]] -= 1
            if not buckets[key[1]]:
                del buckets[key[1]]
        return gone

    def _land(self, row: Row) -> None:
        shard, bucket, standing = row["shard"], row["bucket"], self._due[row["id"]]
        if bucket < self._floors.get(shard, 0):
            self._say(Invariant.ABOVE_FLOOR, f"landed below the floor {self._floors[shard]}", row)
        if bucket < self._watermarks.get(shard, 0):
            self._say(Invariant.BELOW_WATERMARK, f"landed below the watermark {self._watermarks[shard]}", row)
        if standing:
            self._say(Invariant.ONE_DUE_ROW, "a second due row", *standing.values(), row)
        standing[_due_key(row)] = row
        self._buckets[shard][bucket] += 1

    def _consumed(self, gone: Row, acting: _Acting) -> None:
        term = acting.term_for(gone)
        if term is not None:
            self._under(gone["shard"], term, gone["bucket"], "fired", gone)
        elif not any(
            row["state"] == TermState.OPEN and row["from_bucket"] <= gone["bucket"] < row["to_bucket"]
            for (shard, _), row in self._terms.items()
            if shard == gone["shard"]
        ):
            self._say(Invariant.VALID_TERM, "consumed where no term is open", gone)

    # ---- floors and watermarks ----

    def _floor(self, row: Row) -> None:
        shard, floor = row["shard"], row["floor"]
        if floor < self._floors.get(shard, 0):
            self._say(Invariant.ABOVE_FLOOR, f"the floor went back from {self._floors[shard]}", row)
        if floor * self._width_us > self._at_us:
            self._say(Invariant.ABOVE_FLOOR, f"bucket {floor - 1} had not ended", row)
        self._floors[shard] = floor

    def _mark(self, row: Row) -> None:
        shard, watermark = row["shard"], row["watermark"]
        before = self._watermarks.get(shard, 0)
        if watermark < before:
            self._say(Invariant.BELOW_WATERMARK, f"the watermark went back from {before}", row)
        if watermark > self._floors.get(shard, watermark):
            self._say(Invariant.BELOW_WATERMARK, f"the watermark is above the floor {self._floors[shard]}", row)
        below = [bucket for bucket in self._buckets[shard] if bucket < watermark]
        if below and watermark > before:
            rows = [r for rows in self._due.values() for r in rows.values() if r["shard"] == shard]
            self._say(
                Invariant.BELOW_WATERMARK,
                f"shard {shard}: the watermark went from {before} to {watermark} past live due rows",
                *[r for r in rows if r["bucket"] < watermark][:5],
            )
        self._watermarks[shard] = watermark

    # ---- runs, leases, attempts ----

    def _run_rows(self, changes: list[Change], attempts: list[Change]) -> None:
        endings = {change.row["run_id"]: change.row for change in attempts if change.verb == "INSERT"}
        for change in changes:
            row, run_id = change.row, change.row["run_id"]
            before = self._runs.get(run_id)
            if change.verb == "DELETE":
                self._say(Invariant.ENDED_STAYS, "a run was deleted", row)
            elif before is None:
                self._born(row)
            else:
                self._changed(before, {**before, **row}, endings.pop(run_id, None))
            self._runs[run_id] = {**(before or {}), **row}
            if row["state"] in ENDED:
                self._last_ended_us[row["job_id"]] = self._at_us
            members = self._open_of_job[row["job_id"]]
            (members.add if row["state"] in OPEN else members.discard)(run_id)
        for row in endings.values():
            self._say(Invariant.ENDED_STAYS, "an attempt was recorded without a change of its run", row)

    def _born(self, row: Row) -> None:
        if row["cause"] == RunCause.SCHEDULE:
            self._under(row["shard"], row["home_term"], None, "made", row)
            if self._at_us < row["due_at_us"]:
                self._say(Invariant.NEVER_EARLY, f"made {row['due_at_us'] - self._at_us} us early", row)
        if row["state"] == RunState.LEASED:
            self._leased(row)

    def _changed(self, before: Row, row: Row, ending: Row | None) -> None:
        was, state = RunState(before["state"]), RunState(row["state"])
        if _by_api(before, row):
            return
        if was in ENDED:
            self._say(Invariant.ENDED_STAYS, "an ended run changed", before, row)
            return
        self._under(row["shard"], row["home_term"], None, f"{was.name} to {state.name}", row)
        if state is RunState.LEASED and (was is not RunState.LEASED or row["attempt"] != before["attempt"]):
            if was is RunState.LEASED:
                self._say(Invariant.ONE_LEASE, "leased anew while it was leased", before, row)
            self._leased(row)
        if was is RunState.LEASED and state is not RunState.LEASED:
            self._lease_ended(before, row, ending)

    def _leased(self, row: Row) -> None:
        key = (row["run_id"], row["attempt"])
        if self._at_us < row["due_at_us"]:
            self._say(Invariant.NEVER_EARLY, f"leased {row['due_at_us'] - self._at_us} us early", row)
        if key in self.leases:
            self._say(Invariant.TOKENS_GROW, f"attempt {row['attempt']} was leased before", row)
        self.leases[key] = (self._at_us, row["worker"])

    def _lease_ended(self, before: Row, row: Row, ending: Row | None) -> None:
        if ending is None:
            if row["uncounted"] == before["uncounted"]:
                self._say(Invariant.ONE_LEASE, "a lease ended without a record of its attempt", before, row)
            self.returned.add((row["run_id"], row["attempt"]))
            return
        if ending["term"] != before["home_term"]:
            self._say(Invariant.VALID_TERM, f"ended under term {ending['term']}, home is elsewhere", before, ending)
        if ending["outcome"] == AttemptOutcome.LOST and self._at_us < before["lease_until_us"]:
            left_us = before["lease_until_us"] - self._at_us
            self._say(Invariant.ONE_LEASE, f"given up as lost {left_us} us before its lease ended", before, ending)

    # ---- skips ----

    def _skip(self, row: Row) -> None:
        reason = SkipReason(row["reason"])
        if not (row["term"] == 0 and reason is SkipReason.PAUSED):  # the API's, with a resume: it needs no term
            self._under(row["shard"], row["term"], None, f"skipped ({reason.name})", row)
        # What the statement saw open may have ended, and committed, before it did.
        ended_us = self._last_ended_us.get(row["job_id"], 0)
        is_beside = bool(self._open_of_job[row["job_id"]]) or ended_us >= row["recorded_us"]
        self.beside_open_run[row["job_id"], row["from_us"]] = is_beside


class _Acting:
    """Under which term a transaction consumed a due row: that of the run or the skip which it made of it."""

    def __init__(self, runs: list[Change], skips: list[Change]) -> None:
        self._made = {(c.row["job_id"], c.row["scheduled_for_us"]): c.row["home_term"] for c in runs}
        self._started = {c.row["run_id"]: c.row["home_term"] for c in runs}
        self._skipped = {(c.row["job_id"], c.row["from_us"]): c.row["term"] for c in skips}

    def term_for(self, due: Row) -> int | None:
        if due["kind"] == DueKind.RUN:
            return self._started.get(due["id"])
        key = (due["job_id"], due["scheduled_for_us"])
        return self._made.get(key, self._skipped.get(key))


def _by_api(before: Row, row: Row) -> bool:
    """Whether this is a cancel: it needs no term, since it takes nothing from anybody."""
    if before["state"] in ENDED or before["cancel_requested_us"] == row["cancel_requested_us"]:
        return False
    kept = ("attempt", "home_term", "worker", "token_hash", "started_us")
    return all(before[name] == row[name] for name in kept) and row["state"] in (before["state"], RunState.CANCELED)


def _rests(run: Row) -> bool:
    """Whether its due row stands for it: it has no home until that is met."""
    return bool(run["state"] == RunState.PENDING and run["not_before_us"] > 0)


def _due_key(row: Row) -> tuple[int, int, int]:
    return row["shard"], row["bucket"], row["due_at_us"]
