"""The cases of shards on the move: planned moves, kill -9, drain, rolling restart.

Each puts what its load went through beside what the same load in the same round went through undisturbed. Every case
judges its whole load by the rows and by what the workers saw: a run that is lost, doubled or early fails it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from tidewheel.v1 import admin_service_pb2 as pb

from tools.bench.cases import ROUNDS
from tools.bench.figures import Figure, Goal, figure, percentile
from tools.bench.load import US, Expected, one_offs, recurring
from tools.bench.operator import Operator, operator, until
from tools.bench.spans import Span, boundary_span, late_within
from tools.bench.system import CaseFailed, Start, System
from tools.fleet import Member

BUCKET_WIDTH_US = 5 * US
# From the load to its first run: as long as a dispatcher may need to find the rows.
LEAD_US = 6 * US
AT_ONCE = 16
DRAINED_WITHIN_S = 60.0
JOINED_WITHIN_S = 60.0
# No case but the rolling restart wants moves that it did not ask for.
QUIET = {"TIDEWHEEL_CONTROLPLANE_REBALANCE": "false"}

P99_ADDED = Goal(50, added=True)
MAX_ADDED = Goal(500, added=True)


@dataclass
class Compared:
    """p99 and max of lateness, disturbed and undisturbed, a pair a round."""

    p99s: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)
    calm_p99s: list[float] = field(default_factory=list)
    calm_worst: list[float] = field(default_factory=list)

    def add(self, disturbed_ms: list[float], calm_ms: list[float]) -> None:
        """One round. Raises CaseFailed when there is nothing to compare."""
        if not disturbed_ms or not calm_ms:
            raise CaseFailed("no run was due while it was disturbed, or none while it was not")
        self.p99s.append(percentile(disturbed_ms, 0.99))
        self.worst.append(max(disturbed_ms))
        self.calm_p99s.append(percentile(calm_ms, 0.99))
        self.calm_worst.append(max(calm_ms))

    def figures(self, name: str, detail: str, p99: Goal = P99_ADDED, worst: Goal = MAX_ADDED) -> list[Figure]:
        """`name`_p99_ms and `name`_max_ms."""
        return [
            figure(f"{name}_p99_ms", "ms", self.p99s, detail, undisturbed=self.calm_p99s, goal=p99),
            figure(f"{name}_max_ms", "ms", self.worst, detail, undisturbed=self.calm_worst, goal=worst),
        ]

    @property
    def added_ms(self) -> list[float]:
        """How much p99 grew, round by round."""
        return [disturbed - calm for disturbed, calm in zip(self.p99s, self.calm_p99s, strict=True)]


@dataclass(frozen=True)
class Steady:
    """A load of `per_s` runs a second, half of them recurring, from `begin_us` on."""

    system: System
    prefix: str
    begin_us: int
    expected: Expected

    @classmethod
    async def begin(cls, system: System, prefix: str, *, per_s: int, seconds: int) -> Steady:
        """Load it; the first run is due in a few seconds."""
        now_us = time.time_ns() // 1000
        begin_us = now_us + LEAD_US
        span_us = seconds * US
        half = per_s // 2
        schedules = one_offs(half * seconds, begin_us, span_us) + recurring(half, US, begin_us, begin_us + span_us)
        return cls(system, prefix, begin_us, await system.loader.load(schedules, now_us=now_us, prefix=prefix))

    async def judged(self, until_us: int, *, killed: bool = False) -> list[Start]:
        """All starts of what is due before `until_us`, once all of it has ended. Raises CaseFailed.

        `killed`: somebody was, so that runs may have had a second attempt.
        """
        owed = self.expected.before(until_us)
        await until(until_us)
        await self.system.finish(owed, within_s=90)
        starts = await self.system.starts(owed, doubles_explained=killed)
        if fault := await self.system.loader.check_rows(owed, self.prefix, until_us):
            raise CaseFailed(fault)
        return starts


async def move(scale: float) -> list[Figure]:
    """move_*: planned moves back to back at 100 and at 300 runs a second, 16 under way at once."""
    calm_s, moving_s = max(4, round(8 * scale)), max(10, round(24 * scale))
    figures: list[Figure] = []
    added: list[float] = []
    with System(environ=QUIET) as system:
        await system.start()
        async with operator(system) as asking:
            await asking.spread()
            for per_s in (100, 300):
                overall, boundary, moves = Compared(), Compared(), []
                for number in range(ROUNDS):
                    load = await Steady.begin(
                        system, f"move-{per_s}-{number}", per_s=per_s, seconds=2 * calm_s + moving_s + 20
                    )
                    moves.append(await _move_round(asking, load, calm_s, moving_s, overall, boundary))
                added += overall.added_ms
                detail = f"{per_s} runs/s, half of them recurring; {moves} moves a round; no run lost or doubled"
                figures += overall.figures(f"move_{per_s}", f"all runs due while shards moved; {detail}")
                figures += boundary.figures(
                    f"move_{per_s}_boundary",
                    f"runs of the moving shard, from 1 s before its boundary to 2 s after; {detail}",
                )
                figures.append(figure(f"move_{per_s}_moves", "moves", [float(count) for count in moves], detail))
    figures.append(
        figure("move_added_p99_ms", "ms", added, "p99 less the undisturbed p99, round by round", goal=Goal(50))
    )
    return figures


async def _move_round(
    asking: Operator, load: Steady, calm_s: int, moving_s: int, overall: Compared, boundary: Compared
) -> int:
    """Calm, moves, calm; returns how many moves were completed."""
    await until(load.begin_us + calm_s * US)
    moving_us = time.time_ns() // 1000
    await asking.keep_moving(moving_us + moving_s * US, AT_ONCE)
    await asking.all_ended(within_s=40)
    moved_us = time.time_ns() // 1000
    end_us = moved_us + calm_s * US
    starts = await load.judged(end_us)
    moves = await asking.moves_since(moving_us)
    undone = [each for each in moves if each.state != pb.MOVE_STATE_COMPLETED]
    if undone or not moves:
        raise CaseFailed(
            f"{len(undone)} of {len(moves)} moves were not completed: {[each.error for each in undone][:1]}"
        )
    calm_ms = late_within(starts, [Span(load.begin_us, moving_us), Span(moved_us, end_us)])
    overall.add(late_within(starts, [Span(moving_us, moved_us)]), calm_ms)
    felt = [boundary_span(each.shard, each.boundary, BUCKET_WIDTH_US) for each in moves]
    boundary.add(late_within(starts, felt), calm_ms)
    return len(moves)


async def kill9(scale: float) -> list[Figure]:
    """kill9_takeover_*: kill -9 of one of two dispatchers at 100 runs/s; what was due while nobody held its shards."""
    unowned, calm_s = Compared(), max(5, round(8 * scale))
    gaps_s: list[float] = []
    counts: list[int] = []
    for number in range(max(1, round(ROUNDS * min(1.0, scale * 2)))):
        with System(environ=QUIET) as system:
            await system.start()
            async with operator(system) as asking:
                await asking.spread()
            load = await Steady.begin(system, f"kill-{number}", per_s=100, seconds=calm_s + 15)
            await until(load.begin_us + calm_s * US)
            system.fleet.kill(system.dispatchers.pop(0))
            killed_us = time.time_ns() // 1000
            starts = await load.judged(load.begin_us + (calm_s + 15) * US, killed=True)
            opened = await system.loader.opened_by_takeover(killed_us)
            gaps = [Span(killed_us, opened_us, shard) for shard, opened_us in opened.items()]
            first = [start for start in starts if start.attempt == 1]
            late = late_within(first, gaps)
            unowned.add(late, late_within(first, [Span(load.begin_us, killed_us - US)]))
            gaps_s.append(max(gap.to_us - killed_us for gap in gaps) / US)
            counts.append(len(late))
    detail = f"runs due while nobody held their shard ({counts} a round), to the handler's first line"
    return [
        *unowned.figures("kill9_takeover", detail, Goal(3_000), Goal(5_000)),
        figure("kill9_unowned_s", "s", gaps_s, "from the kill until the last of its shards had an owner"),
    ]


async def drain(scale: float) -> list[Figure]:
    """drain_*: SIGTERM of one of three dispatchers at 100 runs a second: a third of 64 shards."""
    took_s, during, calm_s = [], Compared(), max(5, round(8 * scale))
    counts: list[int] = []
    for number in range(max(1, round(ROUNDS * min(1.0, scale * 2)))):
        with System(dispatchers=3, environ=QUIET) as system:
            await system.start()
            async with operator(system) as asking:
                await asking.spread()
                seconds = calm_s + round(DRAINED_WITHIN_S)
                load = await Steady.begin(system, f"drain-{number}", per_s=100, seconds=seconds)
                await until(load.begin_us + calm_s * US)
                leaving = system.dispatchers[0]
                counts.append(list((await asking.owners()).values()).count(await asking.id_of(leaving)))
                told_us = time.time_ns() // 1000
                await _drained(system, asking, leaving)
                done_us = time.time_ns() // 1000
            starts = await load.judged(done_us + US)
            took_s.append((done_us - told_us) / US)
            during.add(
                late_within(starts, [Span(told_us, done_us)]), late_within(starts, [Span(load.begin_us, told_us)])
            )
    detail = f"SIGTERM until it has exited 0 and its {counts} shards of 64 have owners; 100 runs/s, buckets of 5 s"
    return [figure("drain_s", "s", took_s, detail, goal=Goal(15)), *during.figures("drain", "runs due meanwhile")]


async def _drained(system: System, asking: Operator, leaving: Member) -> None:
    """SIGTERM it, and wait until it has ended with 0 and others own every shard. Raises CaseFailed."""
    told_us = time.time_ns() // 1000
    name = await asking.id_of(leaving)
    system.end_dispatcher(leaving)
    deadline_s = time.monotonic() + DRAINED_WITHIN_S
    while leaving.child.running or not {"", name}.isdisjoint((await asking.owners()).values()):
        if time.monotonic() > deadline_s:
            raise CaseFailed(f"{leaving.name} had not handed all off and ended after {DRAINED_WITHIN_S:.0f} s")
        await asyncio.sleep(0.1)
    if code := leaving.child.process.returncode:
        raise CaseFailed(f"{leaving.name} ended with code {code}")
    if seized := await system.loader.opened_by_takeover(told_us):
        raise CaseFailed(f"{len(seized)} shards were taken over, not handed off")


async def rolling(scale: float) -> list[Figure]:
    """rolling_*: all three dispatchers ended and started anew, one after the other, at 100 runs a second."""
    during, spans_s, calm_s = Compared(), [], max(5, round(8 * scale))
    for number in range(max(1, round(ROUNDS * min(1.0, scale)))):
        with System(dispatchers=3) as system:
            await system.start()
            async with operator(system) as asking:
                await asking.spread()
                load = await Steady.begin(system, f"rolling-{number}", per_s=100, seconds=calm_s + 240)
                await until(load.begin_us + calm_s * US)
                began_us = time.time_ns() // 1000
                for old in list(system.dispatchers):
                    await _drained(system, asking, old)
                    await _joined(asking, system.start_dispatcher())
                ended_us = time.time_ns() // 1000
            starts = await load.judged(min(ended_us, load.begin_us + (calm_s + 240) * US))
            spans_s.append((ended_us - began_us) / US)
            during.add(
                late_within(starts, [Span(began_us, ended_us)]), late_within(starts, [Span(load.begin_us, began_us)])
            )
    detail = "runs due from the first SIGTERM until the third new dispatcher had shards; 100 runs/s, 64 shards"
    return [*during.figures("rolling", detail), figure("rolling_s", "s", spans_s, "how long that took")]


async def _joined(asking: Operator, member: Member) -> None:
    """Wait until a new dispatcher is a member and has shards, as whoever restarts the next one would."""
    deadline_s = time.monotonic() + JOINED_WITHIN_S
    while True:
        name = await asking.id_of(member)
        if name and name in (await asking.owners()).values():
            return
        if time.monotonic() > deadline_s:
            raise CaseFailed(f"{member.name} had no shards after {JOINED_WITHIN_S:.0f} s")
        await asyncio.sleep(0.2)
