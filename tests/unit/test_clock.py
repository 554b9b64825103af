"""The clock that follows the database's: never ahead of it, and holding while that clock may have jumped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.clock import US_PER_S, ClockReading, DatabaseClock, SystemClock
from tests.support.clock import NEW_YEAR_2026_US, ManualClock

JUMP_US = 600 * US_PER_S


class Server:
    """A database's clock beside the monotonic one: `offset_us` between them, changed by jumps and drift."""

    def __init__(self, base: ManualClock, offset_us: int = NEW_YEAR_2026_US + 5_000_000) -> None:
        self.base = base
        self.offset_us = offset_us

    @property
    def now_us(self) -> int:
        return round(self.base.monotonic_s() * US_PER_S) + self.offset_us

    async def read(self, there_s: float = 0.001, back_s: float = 0.001) -> ClockReading:
        """One look: so long until the server read its clock, and so long until the answer was here."""
        sent_s = self.base.monotonic_s()
        await self.base.advance(there_s)
        server_us = self.now_us
        await self.base.advance(back_s)
        return ClockReading(server_us, sent_s, self.base.monotonic_s())


def pair() -> tuple[Server, DatabaseClock]:
    base = ManualClock()
    return Server(base), DatabaseClock(base)


async def test_until_the_database_was_read_the_machines_clock_stands_in() -> None:
    server, clock = pair()
    assert clock.now_us() == server.base.now_us()
    clock.observe(await server.read())
    assert clock.ready
    assert clock.now_us() == server.now_us - 1_000, "less what the answer took to come back"


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 1000)), min_size=1, max_size=40))
async def test_it_is_never_ahead_whatever_the_network_does(looks: list[tuple[int, int, int]]) -> None:
    server, clock = pair()
    for there_ms, back_ms, between_ms in looks:
        clock.observe(await server.read(there_ms / 1000, back_ms / 1000))
        await server.base.advance(between_ms / 1000)
        assert clock.now_us() <= server.now_us
        assert not clock.holding


async def test_the_best_of_the_recent_looks_counts() -> None:
    server, clock = pair()
    clock.observe(await server.read(0.0, 0.2))
    clock.observe(await server.read(0.0, 0.001))
    clock.observe(await server.read(0.0, 0.3))
    assert server.now_us - clock.now_us() == 1_000


async def test_slow_drift_is_followed_as_old_looks_age_out() -> None:
    server, clock = pair()
    for _ in range(100):
        clock.observe(await server.read())
        server.offset_us -= 50  # the server's clock goes slower than ours
        await server.base.advance(1.0)
        assert not clock.holding
    for _ in range(40):
        clock.observe(await server.read())
    assert 0 <= server.now_us - clock.now_us() <= 2_000


async def test_a_jump_forward_holds_and_does_not_let_anything_fire_early() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    server.offset_us += JUMP_US
    before_us = clock.now_us()
    clock.observe(await server.read())
    assert clock.holding
    assert clock.now_us() - before_us < US_PER_S, "the old offset goes on"
    for _ in range(4):
        clock.observe(await server.read())
    assert (clock.holding, clock.jumps) == (False, 1)
    assert 0 <= server.now_us - clock.now_us() <= 2_000


async def test_a_jump_back_holds_too_until_it_is_confirmed() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    server.offset_us -= JUMP_US
    for _ in range(4):
        clock.observe(await server.read())
        assert clock.holding
    clock.observe(await server.read())
    assert not clock.holding
    assert clock.now_us() <= server.now_us


async def test_a_single_look_that_contradicts_all_others_changes_nothing() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    now_us, read = clock.now_us(), await server.read()
    clock.observe(ClockReading(read.server_us + JUMP_US, read.sent_s, read.received_s))
    assert clock.holding
    clock.observe(await server.read())
    assert (clock.holding, clock.jumps) == (False, 0)
    assert clock.now_us() - now_us < US_PER_S


async def test_looks_that_contradict_each_other_confirm_no_jump() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    for turn in range(20):
        read = await server.read()
        wild_us = JUMP_US * (1 + turn % 2)
        clock.observe(ClockReading(read.server_us + wild_us, read.sent_s, read.received_s))
    assert clock.holding
    assert clock.jumps == 0


async def test_a_long_silence_is_no_jump() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    await server.base.advance(3600.0)
    clock.observe(await server.read(1.0, 1.0))
    assert not clock.holding
    assert clock.now_us() <= server.now_us


async def test_the_machines_wall_clock_does_not_matter() -> None:
    server, clock = pair()
    clock.observe(await server.read())
    before_us = clock.now_us()
    server.base.set_wall(NEW_YEAR_2026_US - 3600 * US_PER_S)
    assert clock.now_us() == before_us
    assert clock.wall_offset_us == before_us - server.base.now_us()


async def test_waiting_is_on_the_monotonic_clock() -> None:
    clock = SystemClock()
    before_s, wall_us = clock.monotonic_s(), clock.now_us()
    await clock.sleep(-1)
    await clock.sleep(0.001)
    assert clock.monotonic_s() >= before_s + 0.001
    assert clock.now_us() >= wall_us
