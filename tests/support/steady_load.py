"""A steady load on a live system, and its judgement: each occurrence once, none early, and how late they were."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tidewheel import Every

from tests.support.live_system import US, LiveSystem, Start

_LOADS = itertools.count(1)


class SteadyLoad:
    """Jobs that fire each second for `seconds` from now on; enough of them that every dispatcher has some."""

    def __init__(self, system: LiveSystem, seconds: int, jobs: int = 32) -> None:
        self._system = system
        # Several loads may follow one another on one system.
        number_of_load = next(_LOADS)
        self._jobs = [f"tick-{number_of_load}-{number}" for number in range(jobs)]
        self._until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        self._owed: dict[str, list[int]] = {}
        self.firsts: list[Start] = []

    async def begin(self) -> SteadyLoad:
        """Register the jobs through the API."""
        async with self._system.client() as client:
            for name in self._jobs:
                schedule = Every(timedelta(seconds=1), end=self._until)
                await client.create_job(name, handler="record", schedule=schedule, overlap="allow")
            until_us = round(self._until.timestamp() * US)
            for name in self._jobs:
                self._owed[name] = await self._system.job_occurrences(client, name, US, until_us)
        return self

    async def judge(self, *, within_s: float) -> None:
        """Wait until everything is accounted for, then hold it against what was owed, the sink and the rows."""
        self.firsts = []
        for name, expected in self._owed.items():
            assert expected, "the job owes something"
            await self._system.settled(name, expected, within_s=within_s)
            starts = await self._system.assert_each_once(name, expected, repeats_explained=True)
            self.firsts += [start for start in starts if start.attempt == 1]
        await self._system.assert_terms_tile()

    def late_s(self, from_us: int = 0, until_us: int = 2**62) -> list[float]:
        """How late first attempts were whose due time lies in [from_us, until_us), smallest first. After `judge`."""
        return sorted(start.late_s for start in self.firsts if from_us <= start.due_us < until_us)


def p99(values: Iterable[float]) -> float:
    """The 99th percentile; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0
