"""The cases of a whole system that nobody disturbs: throughput, lateness. Each returns figures from several rounds."""

from __future__ import annotations

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
