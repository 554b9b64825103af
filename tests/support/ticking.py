"""A steady load for a live system, and how late it was: jobs that fire every second, judged when they have ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidewheel import Client, Every

from tests.support.live_system import US, LiveSystem, now_us

EVERY_S = 1


class Ticking:
    """`count` jobs that each fire once a second until `seconds` from the start on."""

    def __init__(self, system: LiveSystem, *, count: int, seconds: int) -> None:
        self._system = system
        self._until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        self.names = [f"tick-{number}" for number in range(count)]

    async def start(self, client: Client) -> None:
        """Register the jobs."""
        every = Every(timedelta(seconds=EVERY_S), end=self._until)
        for name in self.names:
            await client.create_job(name, handler="record", schedule=every, overlap="allow")

    async def judge(self, client: Client, *, within_s: float, repeats_explained: bool = False) -> None:
        """Wait until all has ended; each occurrence has exactly one run, none was early, and terms tile."""
        until_us = round(self._until.timestamp() * US)
        for name in self.names:
            expected = await self._system.job_occurrences(client, name, EVERY_S * US, until_us)
            assert expected, "the job owes something"
            await self._system.settled(name, expected, within_s=within_s)
            await self._system.assert_each_once(name, expected, repeats_explained=repeats_explained)
        await self._system.assert_terms_tile()

    def p99_late_s(self, from_us: int, to_us: int) -> float:
        """The lateness that 99 of 100 starts of an interval kept to. An interval without starts fails the test."""
        late = sorted(
            start.late_s
            for start in self._system.starts()
            if start.job in self.names and from_us <= start.due_us < to_us and start.attempt == 1
        )
        assert late, "there were starts"
        return late[min(len(late) - 1, int(len(late) * 0.99))]


def in_us(seconds: float) -> int:
    """The machine's clock so many seconds from now."""
    return now_us() + round(seconds * US)
