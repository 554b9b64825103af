"""The retry loop: what each error means for the write, and what the loop does about it."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from core.errors import OutcomeUnknown, Unavailable
from core.rand import SeededRand
from core.store.transact import (
    Consequence,
    Progress,
    RestartTransaction,
    Retrier,
    RetryLimits,
    consequence_of,
    lost_ddl_race,
    sqlstate_of,
)
from tests.support.clock import ManualClock


class DriverError(Exception):
    """As the driver raises it: the SQLSTATE is an attribute."""

    def __init__(self, sqlstate: str | None, text: str = "it broke") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(sqlstate: str | None, *, invalidated: bool = False) -> DBAPIError:
    """As SQLAlchemy hands it on, with the driver's error behind its own."""
    adapted = Exception("(adapted) it broke")
    adapted.__cause__ = DriverError(sqlstate)
    return DBAPIError("SELECT 1", {}, adapted, connection_invalidated=invalidated)


def closed() -> InterfaceError:
    return InterfaceError("SELECT 1", {}, Exception("connection is closed"), connection_invalidated=True)


R, N, U, D = Consequence.RESTART, Consequence.NOT_APPLIED, Consequence.UNKNOWN, Consequence.DEFECT
# The error; what it means before anything was sent; and after.
MEANINGS: list[tuple[str, BaseException, Consequence, Consequence]] = [
    ("a serialization failure", wrapped("40001"), R, R),
    ("a deadlock", wrapped("40P01"), R, R),
    ("a body that gives up its transaction", RestartTransaction("raced"), R, R),
    ("an ambiguous result", wrapped("40003"), U, U),
    ("too many connections", wrapped("53300"), N, N),
    ("a full disk", wrapped("53100"), N, N),
    ("a server that starts up", wrapped("57P03"), N, N),
    ("a lock that was not to be had", wrapped("55P03"), N, N),
    ("a read-only server", wrapped("25006"), N, N),
    ("a wrong password", DriverError("28P01"), N, N),
    ("a database that is not there", DriverError("3D000"), N, N),
    ("a statement that ran into its timeout", wrapped("57014"), N, U),
    ("a connection failure", wrapped("08006"), N, U),
    ("a connection closed under way", wrapped("08003", invalidated=True), N, U),
    ("a session ended by the operator", wrapped("57P01"), N, U),
    ("a crash of the server", wrapped("57P02"), N, U),
    ("a session that idled in its transaction", wrapped("25P03"), N, U),
    ("a closed connection", closed(), N, U),
    ("a reset", ConnectionResetError(), N, U),
    ("a refused connection", ConnectionRefusedError(), N, U),
    ("an unknown host", OSError("no such host"), N, U),
    ("no answer in time", TimeoutError(), N, U),
    ("an exhausted pool", PoolTimeout(), N, U),
    ("a duplicate key", wrapped("23505"), D, D),
    ("a broken CHECK", wrapped("23514"), D, D),
    ("a syntax error", wrapped("42601"), D, D),
    ("an argument of a wrong type", wrapped("22000"), D, D),
    ("an aborted transaction", wrapped("25P02"), D, D),
    ("a mistake of our own", ValueError("no"), D, D),
]


@pytest.mark.parametrize(("name", "error", "before", "after"), MEANINGS, ids=[m[0] for m in MEANINGS])
def test_what_an_error_means_for_the_write(
    name: str, error: BaseException, before: Consequence, after: Consequence
) -> None:
    assert consequence_of(error, sent=False) is before
    assert consequence_of(error, sent=True) is after


def test_the_sqlstate_is_found_wherever_it_is() -> None:
    assert sqlstate_of(DriverError("40001")) == "40001"
    assert sqlstate_of(wrapped("40001")) == "40001"
    assert sqlstate_of(DBAPIError("SELECT 1", {}, DriverError("40001"))) == "40001"
    assert sqlstate_of(ValueError()) is None


def test_the_errors_of_two_sessions_with_the_same_ddl() -> None:
    assert all(lost_ddl_race(wrapped(state)) for state in ("23505", "42P07", "42710"))
    assert lost_ddl_race(DriverError("XX000", "tuple concurrently updated"))
    assert not lost_ddl_race(DriverError("XX000", "out of luck"))
    assert not lost_ddl_race(wrapped("42601"))


class PassingClock(ManualClock):
    """Every wait is over at once, and noted."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        await asyncio.sleep(0)


class Body:
    """Fails with each of `errors` in turn, after `sent` if asked to, and then answers how often it was run."""

    def __init__(self, *errors: BaseException, sent: bool = True) -> None:
        self._errors = list(errors)
        self._sent = sent
        self.runs = 0

    async def __call__(self, progress: Progress) -> int:
        self.runs += 1
        if self._sent:
            progress.sent()
        if self._errors:
            raise self._errors.pop(0)
        return self.runs


@pytest.fixture
def passing() -> PassingClock:
    return PassingClock()


def retrier(clock: PassingClock, tries: int = 4) -> Retrier:
    return Retrier(clock, SeededRand(1), RetryLimits(tries=tries, first_wait_s=0.01, longest_wait_s=0.05))


async def test_a_body_that_succeeds_is_run_once(passing: PassingClock) -> None:
    loop = retrier(passing)
    assert await loop.run(Body(), repeat_unknown=False) == 1
    assert (loop.restarts, passing.waits_s) == (0, [])


@pytest.mark.parametrize("error", [wrapped("40001"), wrapped("40P01"), wrapped("53300"), RestartTransaction("raced")])
async def test_what_certainly_did_not_happen_is_run_again(passing: PassingClock, error: BaseException) -> None:
    loop = retrier(passing)
    assert await loop.run(Body(error, error), repeat_unknown=False) == 3
    assert loop.restarts == 2


async def test_serialization_failures_for_ever_end_in_unavailable_b103(passing: PassingClock) -> None:
    body = Body(*[wrapped("40001")] * 100)
    with pytest.raises(Unavailable, match="the database is not available: it broke"):
        await retrier(passing).run(body, repeat_unknown=True)
    assert body.runs == 4


async def test_a_lost_answer_is_not_settled_by_guessing(passing: PassingClock) -> None:
    body = Body(wrapped("08006"))
    with pytest.raises(OutcomeUnknown, match="it broke"):
        await retrier(passing).run(body, repeat_unknown=False)
    assert body.runs == 1


async def test_a_lost_answer_of_a_body_that_knows_its_own_effect_is_settled_by_running_it_again(
    passing: PassingClock,
) -> None:
    assert await retrier(passing).run(Body(wrapped("08006"), ConnectionResetError()), repeat_unknown=True) == 3


async def test_a_connection_that_breaks_before_anything_was_sent_is_no_riddle(passing: PassingClock) -> None:
    assert await retrier(passing).run(Body(ConnectionResetError(), sent=False), repeat_unknown=False) == 2


async def test_once_unknown_it_stays_unknown(passing: PassingClock) -> None:
    """The later tries certainly failed, but the first may have been applied."""
    body = Body(wrapped("08006"), *[ConnectionRefusedError()] * 9)
    with pytest.raises(OutcomeUnknown):
        await retrier(passing).run(body, repeat_unknown=True)
    assert body.runs == 4


async def test_a_defect_is_raised_as_it_is_and_at_once(passing: PassingClock) -> None:
    body = Body(wrapped("23505"))
    with pytest.raises(DBAPIError):
        await retrier(passing).run(body, repeat_unknown=True)
    assert body.runs == 1


async def test_waits_grow_to_their_bound_and_are_spread(passing: PassingClock) -> None:
    with pytest.raises(Unavailable):
        await retrier(passing, tries=7).run(Body(*[wrapped("40001")] * 9), repeat_unknown=False)
    ceilings = [0.01, 0.02, 0.04, 0.05, 0.05, 0.05]
    assert len(passing.waits_s) == len(ceilings)
    assert all(c / 2 <= wait <= c for wait, c in zip(passing.waits_s, ceilings, strict=True))
    assert len(set(passing.waits_s)) == len(passing.waits_s)


async def test_a_cancelled_caller_is_not_retried(passing: PassingClock) -> None:
    body = Body(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retrier(passing).run(body, repeat_unknown=True)
    assert body.runs == 1
