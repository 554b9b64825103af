"""Faults put into a Database's sessions: errors that the server itself raises before a chosen statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event

from core.store.database import Database

SERIALIZATION_FAILURE = "40001"


@dataclass
class Faults:
    """What was run, and how many faults were put in. `statements` counts every statement of the sessions."""

    statements: int = 0
    injected: int = 0
    texts: list[str] = field(default_factory=list)


@contextmanager
def failing(
    database: Database, which: Callable[[int, str], bool], sqlstate: str = SERIALIZATION_FAILURE
) -> Iterator[Faults]:
    """Let the server raise `sqlstate` in place of each statement for which `which(number, text)` is true.

    Numbers count from 0 over every session of the database. The error is a real one: it aborts the transaction that it
    meets, and comes to the product as the driver makes it.
    """
    faults = Faults()
    target = database.engine.sync_engine

    def before(_connection: Any, cursor: Any, text: str, *_: Any) -> None:
        number, faults.statements = faults.statements, faults.statements + 1
        faults.texts.append(text)
        if which(number, text):
            faults.injected += 1
            cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{sqlstate}'; END $$")

    event.listen(target, "before_cursor_execute", before)
    try:
        yield faults
    finally:
        event.remove(target, "before_cursor_execute", before)
