"""`make chaos CHAOS_SECONDS=600 SEED=…`: episodes of moves and faults, one after the other, until the time is up.

Prints the seed, each fault with its time, and each violated invariant with the rows at fault; exits 1 when there is
any. With CHAOS_KEEP the whole history of such an episode is pickled into that directory. The same seed makes the same
choices; how the processes' steps interleave is the machine's. Ctrl-C ends it and everything that it started.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from random import Random

from tests.support.chaos_episode import Episode, run_episode
from tests.support.chaos_faults import FAULTS
from tools.servers.homes import temporary_home

# An episode fires for about so long; the start, the rest and the judgement take some more.
EPISODE_S = 60.0
LONGEST_S = 6 * 3600.0


def main() -> int:
    """Read the environment, play, print; the exit code."""
    seconds = min(LONGEST_S, float(os.environ.get("CHAOS_SECONDS") or 120))
    seed = int(os.environ.get("SEED") or time.time_ns() // 1_000_000 % 1_000_000_000)
    runs_per_s = int(os.environ.get("CHAOS_RUNS_PER_S") or 300)
    print(f"chaos: SEED={seed} CHAOS_SECONDS={seconds:g} CHAOS_RUNS_PER_S={runs_per_s}", flush=True)
    rand, ends_s, broken, played = Random(seed), time.monotonic() + seconds, 0, 0
    while played == 0 or time.monotonic() + EPISODE_S / 2 < ends_s:
        fires_s = max(20.0, min(EPISODE_S, ends_s - time.monotonic()))
        episode = Episode(
            seed=seed if played == 0 else rand.getrandbits(30),
            seconds=fires_s,
            runs_per_s=runs_per_s,
            moves=max(5, round(fires_s * 1.5)),
            faults=FAULTS,
        )
        with temporary_home() as home:
            report = asyncio.run(run_episode(home, episode))
        print(report, flush=True)
        broken += bool(report.violations)
        if report.violations and os.environ.get("CHAOS_KEEP"):
            print(f"  the history: {report.keep(Path(os.environ['CHAOS_KEEP']))}", flush=True)
        played += 1
    print(f"chaos: {played} episodes, {broken} of them broke an invariant (SEED={seed})")
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
