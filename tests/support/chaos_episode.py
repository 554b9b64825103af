"""One episode from its beginning to its verdict: a system, a load, moves, faults, a rest, and the judgement.

report = await run_episode(home, Episode(seed=7, seconds=60, runs_per_s=300, moves=200))
assert not report.violations, report
"""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.chaos_faults import FAULTS, Nemesis
from tests.support.chaos_moves import Mover
from tests.support.chaos_system import ChaosSystem
from tests.support.history import History, Invariant, Violation
from tests.support.history import report as shown
from tests.support.history_check import judge
from tests.support.live_system import US, Size, now_us

# The last part of an episode is left in peace, so that what was begun can end.
PEACE_S = 6.0
# Moves that were under way at the last fault may take so long, on a machine that is busy.
MOVES_END_WITHIN_S = 40.0


@dataclass(frozen=True)
class Episode:
    """What is to happen. Jobs fire for `seconds`; `faults` name the kinds (chaos_faults.FAULTS), none for none."""

    seed: int
    seconds: float
    runs_per_s: int = 100
    moves: int = 0
    moves_at_once: int = 4
    faults: tuple[str, ...] = ()
    size: Size = field(default_factory=lambda: Size(control_planes=2, dispatchers=3, workers=2))


@dataclass
class Report:
    """What happened, and what does not hold."""

    episode: Episode
    began_us: int
    faults: list[tuple[int, str]]
    runs: int
    moves: Counter[str]
    stale_owners: int
    refused_writes: float
    violations: list[Violation]
    history: History = field(repr=False)

    def keep(self, directory: Path) -> Path:
        """Write the whole history down, for a look at what led to a violation."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"history-{self.episode.seed}.pickle"
        path.write_bytes(pickle.dumps(self.history))
        return path

    def __str__(self) -> str:
        lines = [
            f"seed {self.episode.seed}: {self.episode.seconds:g} s, {self.runs} runs,"
            f" {sum(self.moves.values())} moves ({dict(self.moves)}), {len(self.faults)} faults,"
            f" {self.stale_owners} stale owners, {self.refused_writes:g} refused writes"
        ]
        lines += [f"  {(at_us - self.began_us) / US:8.2f} s  {what}" for at_us, what in self.faults]
        return "\n".join([*lines, shown(self.violations)])


async def run_episode(home: Path, episode: Episode) -> Report:
    """Play it, then judge. Everything that was started has ended when this returns or raises."""
    rand = Random(episode.seed)
    async with ChaosSystem(home, episode.size) as chaos:
        began_us = now_us()
        load = chaos.load(Random(rand.getrandbits(32)), seconds=episode.seconds)
        mover = Mover(chaos, Random(rand.getrandbits(32)))
        nemesis = Nemesis(chaos, Random(rand.getrandbits(32)), episode.faults or FAULTS)
        busy = 6
        await load.register(steady=max(1, episode.runs_per_s - 3 * busy), busy=busy)
        quiet_us = chaos.horizon_us - round(PEACE_S * US)
        playing = [asyncio.create_task(load.trouble(quiet_us))]
        if episode.moves:
            until_us = quiet_us if episode.faults else chaos.horizon_us + round(90 * US)
            moving = mover.make(episode.moves, at_once=episode.moves_at_once, until_us=until_us)
            playing.append(asyncio.create_task(moving))
        if episode.faults:
            playing.append(asyncio.create_task(nemesis.trouble(quiet_us)))
        try:
            done, _ = await asyncio.wait(playing, timeout=episode.seconds + 150)
            for task in done:
                task.result()
        finally:
            for task in playing:
                task.cancel()
            await asyncio.wait(playing)
        violations = []
        try:
            await mover.all_ended(MOVES_END_WITHIN_S)
        except AssertionError as unended:
            violations.append(Violation(Invariant.COMES_TO_REST, str(unended)))
        history = await chaos.history()
        violations += await asyncio.to_thread(judge, history)
        if nemesis.stale and not chaos.refused_writes:
            violations.append(Violation(Invariant.SOMETHING_REFUSED, f"{nemesis.stale} owners were stale"))
        ends = await mover.ends()
        return Report(
            episode,
            began_us,
            chaos.faults,
            len(history.tables["runs"]),
            ends,
            nemesis.stale,
            chaos.refused_writes,
            violations,
            history,
        )
