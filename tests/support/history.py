"""What is known of one episode, and by whom: the evidence that the checker of histories judges.

Four observers, none of whom trusts another: the client (`Said`: each call and what became of it), the sink (`Noted`:
a process of its own that handlers write to), the database's own record of what committed, in the order in which it did
(`Commit`), and the rows as they stand at the end. `Life` says which process was which owner of shards, and when.

Everything the product says of itself (metrics, events of terms) is left out, but for the number of refused writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Outcome(StrEnum):
    """What a client knows of its call."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Periodic:
    """Occurrences at anchor_us + n * every_us, n >= 0, before end_us: all that an oracle by plain arithmetic needs."""

    anchor_us: int
    every_us: int
    end_us: int

    def between(self, after_us: int, until_us: int) -> range:
        """The instants in (after_us, until_us]."""
        first = self.anchor_us + max(0, -(-(after_us + 1 - self.anchor_us) // self.every_us)) * self.every_us
        return range(first, min(until_us + 1, self.end_us), self.every_us)


@dataclass(frozen=True, slots=True)
class Said:
    """One call of the client. `verb`: create, edit, pause, resume, delete, trigger or cancel."""

    verb: str
    job: str
    request_id: str
    called_us: int
    answered_us: int
    outcome: Outcome
    schedule: Periodic | None = None
    overlap: str = "allow"
    run_id: str = ""
    error: str = ""

    def line(self) -> str:
        """As a line of the client's log."""
        body = {name: getattr(self, name) for name in Said.__slots__}
        if self.schedule is not None:
            body["schedule"] = [self.schedule.anchor_us, self.schedule.every_us, self.schedule.end_us]
        return json.dumps(body)

    @staticmethod
    def of(line: str) -> Said:
        """Read a line of the client's log."""
        body = json.loads(line)
        body["outcome"] = Outcome(body["outcome"])
        body["schedule"] = None if body["schedule"] is None else Periodic(*body["schedule"])
        return Said(**body)


@dataclass(frozen=True, slots=True)
class Noted:
    """One line of the sink.

    `phase`: start (a handler began), effect (it did its work: `applied` if it was the first one of its run, `refused`
    if a newer attempt had been there before), stop (it was told to), acknowledged (its worker was told that its result
    is durable). `seq` counts the lines; the number of an effect's line is what its handler returns as the result.
    """

    seq: int
    phase: str
    run: str
    attempt: int
    fencing: int
    due_us: int
    worker: str
    at_us: int
    applied: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One row that a transaction changed. `verb`: INSERT, UPDATE or DELETE.

    `row` is the row afterwards, or the key of a deleted one; `old_key` the key before, where an UPDATE changed it.
    """

    table: str
    verb: str
    row: Row
    old_key: Row | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction, in commit order; `at_us` is the database's clock as it committed."""

    number: int
    at_us: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """One dispatcher process: under which name it owned shards, from when to when (None: it still runs).

    A statement of a killed process may still be at work in the server for a while: its own time limit, and some.
    """

    owner: str
    began_us: int
    ended_us: int | None = None
    lingers_us: int = 5_000_000

    def spans(self, at_us: int) -> bool:
        """Whether it may have written then."""
        return self.began_us <= at_us and (self.ended_us is None or at_us <= self.ended_us + self.lingers_us)


@dataclass(slots=True)
class History:
    """The evidence of one episode. `tables` holds the final rows by table; `settled` whether work was let come to rest.

    `owed` lists occurrences that must have a run or a skip beyond what `said` tells: {job id: instants}.
    """

    commits: Sequence[Commit]
    tables: Mapping[str, Sequence[Row]]
    bucket_width_us: int
    said: Sequence[Said] = ()
    noted: Sequence[Noted] = ()
    lives: Sequence[Life] = ()
    owed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    horizon_us: int = 0
    settled: bool = True
    # What ledger_check says of the rows of one snapshot.
    disagreements: Sequence[str] = ()


class Invariant(StrEnum):
    """What must hold. The value is what a report prints."""

    ONE_RUN = "every occurrence of an accepted job has exactly one run or a justified skip"
    NONE_INVENTED = "no run without an occurrence, a trigger or a backfill"
    NEVER_EARLY = "nothing is made, leased or started before it is due"
    CALLS_STAND = "an acknowledged call was done, a refused one was not"
    TERMS_TILE = "the terms of a shard tile time at every commit, grow, and are never extended"
    VALID_TERM = "every write's term was the valid one for its bucket when it committed"
    ONE_LIFE = "no process writes under a term that another process opened"
    ABOVE_FLOOR = "nothing lands below the floor, and floors pass only buckets that have ended"
    BELOW_WATERMARK = "nothing live stands below the watermark, and watermarks never go back"
    ONE_DUE_ROW = "a chain or a run has at most one due row"
    ONE_LEASE = "a run has at most one live lease: none is taken before it ends"
    ENDED_STAYS = "an ended run stays as it ended"
    TOKENS_GROW = "each attempt that starts was leased before, once, under a token of its own that grows"
    ACKNOWLEDGED_STAYS = "no acknowledged result is lost"
    RESULT_OF_WORKER = "a result is what the attempt's worker returned"
    ONE_EFFECT = "the idempotent sink sees each run's effect once"
    ROWS_AGREE = "the final rows agree: attempts, retries, chains, homes, marks (tests/support/ledger_check.py)"
    COMES_TO_REST = "everything that is due is done in the end"
    SOMETHING_REFUSED = "an episode with a stale owner has refused writes"


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, why, and the rows at fault."""

    invariant: Invariant
    what: str
    rows: tuple[object, ...] = ()

    def __str__(self) -> str:
        shown = "".join(f"\n      {row}" for row in self.rows)
        return f"{self.invariant.name}: {self.what}{shown}"


def report(violations: Sequence[Violation], limit: int = 5) -> str:
    """For people: each violated invariant with its first few violations."""
    lines = []
    for invariant in Invariant:
        found = [each for each in violations if each.invariant is invariant]
        if found:
            lines.append(f"  {invariant.name} ({invariant}): violated {len(found)} times")
            lines += [f"    {each}" for each in found[:limit]]
    return "\n".join(lines) or "  every invariant holds"


def read_lines(path: Path) -> Iterable[str]:
    """The whole lines of a log; a last one that was cut off is left out."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def read_said(path: Path) -> list[Said]:
    """The client's log."""
    return [Said.of(line) for line in read_lines(path)]


def read_noted(path: Path) -> list[Noted]:
    """The sink's log."""
    return [Noted(**json.loads(line)) for line in read_lines(path)]
