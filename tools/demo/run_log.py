"""The file to which the demo's commands append: one line for each start, written by the command itself.

It is what the verdict is judged from: not what the system says it did, but what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELDS = 7


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one command. Instants are microseconds since the epoch, of the machine's clock."""

    job: str
    run_id: str
    scheduled_us: int
    started_us: int
    attempt: int
    worker: str
    task: str

    @property
    def late_us(self) -> int:
        """Below zero: it was early."""
        return self.started_us - self.scheduled_us


def read_start(line: str) -> Start:
    """The start that a line tells of. ValueError if it is not such a line."""
    parts = line.rstrip("\n").split("\t")
    if len(parts) != FIELDS:
        raise ValueError(f"{len(parts)} fields, not {FIELDS}: {line!r}")
    job, run_id, scheduled, started, attempt, worker, task = parts
    scheduled_us = (datetime.fromisoformat(scheduled) - _EPOCH) // timedelta(microseconds=1)
    return Start(job, run_id, scheduled_us, int(Decimal(started) * 1_000_000), int(attempt), worker, task)


class RunLog:
    """Reads the file as it grows; a line that is not finished yet waits for the next look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def new(self) -> list[Start]:
        """The starts since the last look."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [read_start(line.decode()) for line in whole.splitlines()]
