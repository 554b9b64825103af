"""The cases that need the whole system: throughput, lateness, takeover. Each returns figures from several rounds."""

from __future__ import annotations

import asyncio
import time

from tools.bench.figures import Figure, figure, percentile
from tools.bench.load import US, one_offs, recurring
from tools.bench.system import CaseFailed, System

ROUNDS = 3


async def throughput(scale: float) -> list[Figure]:
    """runs_per_s_e2e: a crowd of no-op runs, half of them from recurring jobs, offered faster than they can be done."""
    each = max(2_000, int(40_000 * scale))
    rounds: list[float] = []
    costs: list[dict[str, float]] = []
    with System() as system:
        await system.start()
        for number in range(ROUNDS):
            now_us = time.time_ns() // 1000
            begin_us = now_us + 6 * US
            half = each // 2
            # Half one-offs, half from jobs that fire twice, a second apart: most are due within the first second.
            schedules = one_offs(half, begin_us, US) + recurring(half // 2, US, begin_us, begin_us + 2 * US)
            expected = await system.loader.load(schedules, now_us=now_us, prefix=f"crowd-{number}")
            before = system.cpu_s()
            await system.finish(expected, within_s=120)
            after = system.cpu_s()
            costs.append({part: (after[part] - before[part]) * 1e6 / each for part in after})
            await system.starts(expected)
            ends = await system.loader.ended_us(expected)
            if any(state != 3 for state, _ in ends.values()):
                raise CaseFailed("a run did not succeed")
            span_s = (max(end for _, end in ends.values()) - begin_us) / US
            rounds.append(len(expected.due_us) / span_s)
        settings = await system.loader.settings()
    detail = f"{each} runs a round, half one-off, half recurring; 2 dispatchers, 2 workers, 64 shards; {settings}"
    figures = [figure("runs_per_s_e2e", "1/s", rounds, detail)]
    for part in costs[0]:
        name = f"cpu_us_per_run_{part.replace(' ', '_')}"
        figures.append(figure(name, "us", [cost[part] for cost in costs], "processor time of that part, a run"))
    return figures


async def lateness(scale: float) -> list[Figure]:
    """lateness_100_*: 100 runs a second, half of them recurring; measured at the handler's first line."""
    seconds = max(5, int(20 * scale))
    p50s, p99s, worst = [], [], []
    with System() as system:
        await system.start()
        for number in range(ROUNDS):
            now_us = time.time_ns() // 1000
            begin_us = now_us + 6 * US
            until_us = begin_us + seconds * US
            schedules = one_offs(50 * seconds, begin_us, seconds * US) + recurring(50, US, begin_us, until_us)
            expected = await system.loader.load(schedules, now_us=now_us, prefix=f"steady-{number}")
            await system.finish(expected, within_s=seconds + 60)
            late = [start.late_ms for start in await system.starts(expected)]
            p50s.append(percentile(late, 0.5))
            p99s.append(percentile(late, 0.99))
            worst.append(max(late))
    detail = f"100 runs/s for {seconds} s a round, half of them recurring, from due_at to the handler's first line"
    return [
        figure("lateness_100_p50_ms", "ms", p50s, detail),
        figure("lateness_100_p99_ms", "ms", p99s, detail),
        figure("lateness_100_max_ms", "ms", worst, detail),
    ]


async def takeover(scale: float) -> list[Figure]:
    """kill9_takeover_*: kill -9 of one of two dispatchers at 100 runs a second; the runs due in the 10 s after it."""
    p99s, worst, calm = [], [], []
    for number in range(max(1, round(ROUNDS * min(1.0, scale * 2)))):
        with System() as system:
            await system.start()
            now_us = time.time_ns() // 1000
            begin_us = now_us + 6 * US
            until_us = begin_us + 20 * US
            schedules = one_offs(1_000, begin_us, 20 * US) + recurring(50, US, begin_us, until_us)
            expected = await system.loader.load(schedules, now_us=now_us, prefix=f"kill-{number}")
            await asyncio.sleep((begin_us + 5 * US) / US - time.time())
            killed_us = time.time_ns() // 1000
            system.fleet.kill(system.dispatchers[0])
            await system.finish(expected, within_s=90)
            starts = await system.starts(expected, doubles_explained=True)
            first = [start for start in starts if start.attempt == 1]
            after = [s.late_ms for s in first if killed_us <= s.due_us < killed_us + 10 * US]
            before = [s.late_ms for s in first if s.due_us < killed_us]
            p99s.append(percentile(after, 0.99))
            worst.append(max(after))
            calm.append(percentile(before, 0.99))
    detail = (
        f"first starts of runs due within 10 s of the kill; p99 before it: {', '.join(f'{p:.1f}' for p in calm)} ms"
    )
    return [
        figure("kill9_takeover_p99_ms", "ms", p99s, detail),
        figure("kill9_takeover_max_ms", "ms", worst, detail),
    ]
