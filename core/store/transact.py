"""The one retry loop for the database, keyed on SQLSTATE.

It tells apart what certainly did not happen (run again, or Unavailable), what may have happened (OutcomeUnknown) and
what is a defect (raised as it is). Bodies are run again from their start, so they are idempotent and free of side
effects. SQLSTATEs: 40001 and 40P01 restart; 40003 and a connection lost under way are ambiguous.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from core.clock import Clock
from core.errors import OutcomeUnknown, Unavailable
from core.rand import Rand

T = TypeVar("T")


class RestartTransaction(Exception):
    """Raised by a body that found its transaction hopeless: it is rolled back and run again like a 40001."""

    sqlstate = "40001"


class Consequence(Enum):
    RESTART = "restart"  # certainly rolled back; the same body may win the next time
    NOT_APPLIED = "not applied"  # certainly not applied: the server refused it or was never reached
    UNKNOWN = "unknown"  # the answer was lost
    DEFECT = "defect"  # neither: a broken statement or a broken constraint


_RESTART = frozenset({"40001", "40P01"})
# 53xxx: out of connections, memory or disk. 57P03: starting up. 55P03: a lock was not to be had in time. 25006: the
# server is read-only. 28xxx, 3D000: it does not let us in (a password or a database that is being changed).
_NOT_APPLIED = frozenset({"53000", "53100", "53200", "53300", "57P03", "55P03", "25006", "28000", "28P01", "3D000"})
_UNKNOWN = frozenset({"40003"})
# A statement that ran into its timeout or was cancelled. At a COMMIT, or an autocommit statement's own, nobody knows
# which side of it the cancel met.
_CANCELED = "57014"


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE behind a SQLAlchemy or asyncpg error, or None."""
    original = error.orig if isinstance(error, DBAPIError) else error
    for candidate in (original, getattr(original, "__cause__", None)):
        state = getattr(candidate, "sqlstate", None) or getattr(candidate, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def lost_ddl_race(error: BaseException) -> bool:
    """Whether two sessions ran the same DDL at once: IF NOT EXISTS does not look at what is not yet committed.

    23505 from the catalog's own indexes, 42P07 and 42710 "already exists"; PostgreSQL has no better code than XX000 for
    a catalog row that changed under it.
    """
    state = sqlstate_of(error)
    return state in {"23505", "42P07", "42710"} or (state == "XX000" and "concurrently updated" in str(error))


def consequence_of(error: BaseException, *, sent: bool) -> Consequence:
    """What `error` means for the write; `sent` says whether a statement had left for the server."""
    state = sqlstate_of(error)
    if state in _RESTART:
        return Consequence.RESTART
    if state in _NOT_APPLIED:
        return Consequence.NOT_APPLIED
    if state in _UNKNOWN:
        return Consequence.UNKNOWN
    if state == _CANCELED or _is_connection_trouble(error, state):
        return Consequence.UNKNOWN if sent else Consequence.NOT_APPLIED
    return Consequence.DEFECT


def _is_connection_trouble(error: BaseException, state: str | None) -> bool:
    if state is not None:
        # 08xxx connection exceptions; 57P01, 57P02, 57P05: the server ended the session; 25P0x: it timed it out.
        return state.startswith("08") or state in {"57P01", "57P02", "57P05", "25P03", "25P04"}
    if isinstance(error, PoolTimeout | ConnectionError | OSError | TimeoutError | InterfaceError):
        return True
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or isinstance(error.orig.__cause__ if error.orig else None, OSError)
    )


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Bounds of the loop: tries in all, and the first and longest wait between them (seconds, before jitter)."""

    tries: int = 8
    first_wait_s: float = 0.005
    longest_wait_s: float = 0.5


class Retrier:
    """Runs a body against the database until it succeeds or its tries are used up."""

    def __init__(self, clock: Clock, rand: Rand, limits: RetryLimits | None = None) -> None:
        self._clock = clock
        self._rand = rand
        self._limits = limits or RetryLimits()
        self.restarts = 0

    async def run(self, body: Callable[[Progress], Awaitable[T]], *, repeat_unknown: bool) -> T:
        """Run `body`; it calls `progress.sent()` before its first write leaves.

        `repeat_unknown` says that the body recognises its own effect, so that a lost answer is settled by running it
        again. Raises Unavailable (not applied), OutcomeUnknown (may have happened), or a defect as it is.
        """
        unknown, cancels = False, _cancels()
        for attempt in range(1, self._limits.tries + 1):
            progress = Progress()
            try:
                return await body(progress)
            except Exception as error:
                if _cancels() > cancels:
                    # Giving a session back failed and hid the cancellation that it was for (B106).
                    raise asyncio.CancelledError from error
                consequence = consequence_of(error, sent=progress.was_sent)
                if consequence is Consequence.DEFECT:
                    raise
                unknown = unknown or consequence is Consequence.UNKNOWN
                last = attempt == self._limits.tries
                if last or (consequence is Consequence.UNKNOWN and not repeat_unknown):
                    raise _final(error, unknown=unknown) from error
            self.restarts += 1
            await self._clock.sleep(self._wait_s(attempt))
        raise AssertionError("unreachable: the last try returns or raises")

    def _wait_s(self, attempt: int) -> float:
        ceiling = min(self._limits.longest_wait_s, self._limits.first_wait_s * 2 ** (attempt - 1))
        return self._rand.uniform(ceiling / 2, ceiling)


def _cancels() -> int:
    """How many cancellations the running task has been asked for and has not taken back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class Progress:
    """Whether a body's write has left for the server; before that, any failure is certain."""

    def __init__(self) -> None:
        self.was_sent = False

    def sent(self) -> None:
        self.was_sent = True


def _final(error: BaseException, *, unknown: bool) -> Exception:
    original = error.orig if isinstance(error, DBAPIError) else None
    said = str((original and original.__cause__) or original or error)
    reason = said.splitlines()[0] if said else type(error).__name__
    return OutcomeUnknown(reason) if unknown else Unavailable(f"the database is not available: {reason}")
