"""Faults of the database at chosen moments: conflicts anywhere, COMMITs whose answer is lost, both ways.

They are raised from SQLAlchemy's own events, inside the calls that the product makes: what reaches the product is what
a driver would raise, and what happened in the database is real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from core.store.database import Database
from core.store.statement import STATEMENTS


class SerializationFailure(Exception):
    """Looks like the driver's: the server rolled the transaction back."""

    sqlstate = "40001"


class DbFaults:
    """The faults of one Database. Each method arms them within its `with`; `count` says how many were raised.

    `statements` is how many statements were begun meanwhile, where statements are watched.
    """

    def __init__(self, database: Database) -> None:
        self._engine = database.engine.sync_engine
        self.count = 0
        self.statements = 0

    @contextmanager
    def lost_commits(self, *, applied: bool, times: int = 1) -> Iterator[None]:
        """The next `times` COMMITs end in a lost connection: after the server did them, or before it heard of them."""

        def lose(connection: Any) -> None:
            if self.count < times:
                self.count += 1
                held = connection.connection.dbapi_connection
                if applied:
                    held.commit()
                else:
                    held.rollback()
                raise ConnectionResetError("connection lost at COMMIT (injected)")

        with self._listening("commit", lose):
            yield

    @contextmanager
    def refused_commits(self, times: int = 1) -> Iterator[None]:
        """The next `times` COMMITs end in 40001: rolled back, as the server does it."""

        def refuse(connection: Any) -> None:
            if self.count < times:
                self.count += 1
                connection.connection.dbapi_connection.rollback()
                raise SerializationFailure("could not serialize access (injected)")

        with self._listening("commit", refuse):
            yield

    @contextmanager
    def conflict_at_statement(self, number: int) -> Iterator[None]:
        """The statement of that number from now on, counted from 1, ends in 40001 instead of being run."""
        with self.conflicts_where(lambda begun: begun == number):
            yield

    @contextmanager
    def conflicts_where(self, which: Callable[[int], bool]) -> Iterator[None]:
        """Each statement for whose number, counted from 1, `which` is true ends in 40001 instead of being run.

        The server itself raises it, so that it also aborts the transaction that it meets.
        """

        def refuse(_connection: Any, cursor: Any, *_: Any) -> None:
            self.statements += 1
            if which(self.statements):
                self.count += 1
                cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '40001'; END $$")

        with self._listening("before_cursor_execute", refuse):
            yield

    @contextmanager
    def lost_answers(self, times: Mapping[str, int], *, applied: bool = True) -> Iterator[None]:
        """Single statements, named as in core/store, end so many times each in a lost connection.

        The server did each of them, or never heard of it.
        """
        left = {id(STATEMENTS[name].clause): count for name, count in times.items()}

        def lose(*arguments: Any) -> None:
            context = arguments[4]
            key = id(context.compiled.statement) if context.compiled is not None else 0
            if left.get(key, 0) > 0:
                left[key] -= 1
                self.count += 1
                raise ConnectionResetError("connection lost under way (injected)")

        with self._listening("after_cursor_execute" if applied else "before_cursor_execute", lose):
            yield

    @contextmanager
    def _listening(self, name: str, listener: Any) -> Iterator[None]:
        self.count = self.statements = 0
        event.listen(self._engine, name, listener)
        try:
            yield
        finally:
            event.remove(self._engine, name, listener)
