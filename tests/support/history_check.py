"""The checker of histories: every invariant, over everything that was recorded of an episode.

history = await recorded(connection, said=…, noted=…)
violations = judge(history)

What must hold is listed in history.Invariant; docs/chaos.md says from what each is concluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from tests.support.history import History, Invariant, Row, Violation, report
from tests.support.history_commits import read_record
from tests.support.history_occurrences import OccurrenceJudge
from tests.support.history_results import ResultJudge
from tests.support.history_writes import Writes

_FINAL_TABLES = ("jobs", "job_versions", "runs", "attempts", "skips", "due", "shard_terms", "shard_term_events")


def judge(history: History) -> list[Violation]:
    """Everything that does not hold."""
    writes = Writes(history)
    found = writes.judge()
    found += OccurrenceJudge(history, writes).judge()
    found += ResultJudge(history, writes).judge()
    found += _by_rows_alone(history)
    found += [Violation(Invariant.ROWS_AGREE, each) for each in history.disagreements]
    return found


def hold(history: History, *, refused_writes: float | None = None) -> None:
    """Raises AssertionError with each violated invariant and the rows at fault.

    `refused_writes`: how many the fence refused in an episode with a stale owner, where there must be some.
    """
    found = judge(history)
    if refused_writes == 0:
        found.append(Violation(Invariant.SOMETHING_REFUSED, "the episode had a stale owner and proves nothing"))
    if found:
        raise AssertionError(f"the history breaks {len({f.invariant for f in found})} invariants:\n{report(found)}")


async def recorded(connection: asyncpg.Connection, **known: Any) -> History:
    """The history of a database: what committed since its record began, and its rows as of one instant."""
    commits = await read_record(connection)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        tables = {name: await _rows(connection, name) for name in _FINAL_TABLES}
        width_ms = await connection.fetchval("SELECT bucket_width_ms FROM cluster")
    return History(commits=commits, tables=tables, bucket_width_us=width_ms * 1000, **known)


async def _rows(connection: asyncpg.Connection, table: str) -> list[Row]:
    return [
        {name: str(value) if isinstance(value, UUID) else value for name, value in row.items()}
        for row in await connection.fetch(f"SELECT * FROM {table}")
    ]


def _by_rows_alone(history: History) -> list[Violation]:
    """What the final rows say of terms without the record of commits, which a CockroachDB would not have.

    Instants that a writer notes are lower bounds of the database's time before its statement, and the event of a close
    carries the server's clock after it had waited for every write: so no noted instant is later.
    """
    ended = {(e["shard"], e["term"]): e for e in history.tables["shard_term_events"] if e["event"] in ("close", "void")}
    shards = {run["run_id"]: run["shard"] for run in history.tables["runs"]}
    written = [((shards.get(row["run_id"]), row["term"]), row["ended_us"], row) for row in history.tables["attempts"]]
    written += [((row["shard"], row["term"]), row["recorded_us"], row) for row in history.tables["skips"]]
    return [
        Violation(Invariant.VALID_TERM, f"written {at_us - ended[key]['server_us']} us after its term ended", (row,))
        for key, at_us, row in written
        if key in ended and at_us > ended[key]["server_us"]
    ]


def names(violations: Sequence[Violation]) -> set[str]:
    """The violated invariants, by name."""
    return {violation.invariant.name for violation in violations}
