"""What committed, in the order in which it did: PostgreSQL's own record (logical decoding), read as `Commit`s.

The product neither writes nor knows it. The server has to run with wal_level=logical; `begin_record` comes before the
first row that matters, `read_record` once everything has come to rest.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import asyncpg

from tests.support.history import Change, Commit, Row

TABLES = (
    "runs",
    "due",
    "attempts",
    "skips",
    "shard_terms",
    "shard_term_events",
    "shard_floors",
    "shard_marks",
)
_SLOT = "tidewheel_history"
# So many changes are decoded and fetched at a time.
_PORTION = 50_000
_LINE = re.compile(r"table public\.(\w+): (INSERT|UPDATE|DELETE): (?:old-key: (.*?) new-tuple: )?(.*)", re.DOTALL)
_COLUMN = re.compile(r"(\w+)\[([^\]]+)\]:('(?:[^']|'')*'|\S+)")
_COMMITTED = re.compile(r"COMMIT (\d+) \(at ([^)]+)\)")
# Large or of no interest to a judge.
_LEFT_OUT = {"payload", "progress", "trace", "last_error", "error"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def begin_record(connection: asyncpg.Connection) -> None:
    """From here on what commits in this database is kept."""
    await connection.execute("SELECT pg_create_logical_replication_slot($1, 'test_decoding')", slot_of(connection))


async def read_record(connection: asyncpg.Connection) -> list[Commit]:
    """Everything that committed since the record began, or was read last."""
    slot = slot_of(connection)
    wanted = f"^(COMMIT|table public\\.({'|'.join(TABLES)}):)"
    commits: list[Commit] = []
    changes: list[Change] = []
    # One look beforehand: what committed after it is not waited for.
    end = await connection.fetchval("SELECT pg_current_wal_lsn()")
    while True:
        rows = await connection.fetch(
            "SELECT lsn, data FROM pg_logical_slot_get_changes($1, $2, $3, 'include-timestamp', '1',"
            " 'skip-empty-xacts', '1') WHERE data ~ $4",
            *(slot, end, _PORTION, wanted),
        )
        if not rows:
            return commits
        for row in rows:
            committed = _COMMITTED.match(row["data"])
            if committed is None:
                changes.append(_change(row["data"]))
            else:
                if changes:
                    commits.append(Commit(int(committed[1]), _us(committed[2]), tuple(changes)))
                changes = []


async def end_record(connection: asyncpg.Connection) -> None:
    """Let go of the record; a database with one cannot be dropped."""
    await connection.execute("SELECT pg_drop_replication_slot($1)", slot_of(connection))


def slot_of(connection: asyncpg.Connection) -> str:
    """Slots are the server's: one name a database."""
    return f"{_SLOT}_{connection._params.database}"


def _change(line: str) -> Change:
    said = _LINE.match(line)
    assert said is not None, line
    return Change(said[1], said[2], _row(said[4]), None if said[3] is None else _row(said[3]))


def _row(text: str) -> Row:
    return {name: _value(kind, value) for name, kind, value in _COLUMN.findall(text) if name not in _LEFT_OUT}


def _value(kind: str, value: str) -> Any:
    if value == "null":
        return None
    if kind in ("bigint", "smallint", "integer"):
        return int(value)
    if kind == "boolean":
        return value == "true"
    return value[1:-1].replace("''", "'") if value.startswith("'") else value


def _us(text: str) -> int:
    since = datetime.fromisoformat(text) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
