"""Which dispatcher should have which shard: by measured load and by weight, with few moves. Pure and deterministic.

The same input gives the same answer on every replica, so that a change of leader moves nothing. Two questions are
answered: where shards without a home go (`house`), at once; and which moves would even out the loads (`even_out`),
which leaves alone what is about even. docs/placement.md says what is weighed against what.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

# A round that has begun evens out to within this part of the tolerance, so that noise does not begin the next one.
_AIM_OF_TOLERANCE = 0.25
# Nothing is moved to where the processor is busier by so much, whatever the loads say, nor to where it is that busy.
_BUSIER = 0.25
_BUSY = 0.9
# Costs are sums of floats: differences below this part of the fair load are none.
_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class Target:
    """A dispatcher that may get shards. `cpu` is the share of one processor that it used, None if it did not say."""

    dispatcher_id: str
    weight: float = 1.0
    zone: str = ""
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Homeless:
    """A shard to be given to somebody. `zone` is where it was ("" for nowhere), `preferred` who gets it if it can."""

    shard: int
    zone: str = ""
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One shard from one dispatcher to another."""

    shard: int
    source: str
    target: str


def house(
    homeless: Iterable[Homeless],
    targets: Sequence[Target],
    homes: Mapping[int, str],
    costs: Mapping[int, float],
    tolerance: float,
) -> dict[int, str]:
    """A dispatcher for each homeless shard, the costliest first, to whoever has least for its weight.

    One of the shard's zone is taken while it would have no more than `tolerance` above its fair load. `homes` says
    where the other shards are, `costs` what each shard costs. Empty when there are no targets.
    """
    tallies = _tallies(targets, homes, costs)
    if not tallies:
        return {}
    waiting = sorted(homeless, key=lambda each: (-costs[each.shard], each.shard))
    total = sum(each.load for each in tallies.values()) + sum(costs[each.shard] for each in waiting)
    fair = total / sum(each.target.weight for each in tallies.values())
    placed: dict[int, str] = {}
    for each in waiting:
        cost = costs[each.shard]
        best = tallies.get(each.preferred) or _roomiest(tallies.values(), cost, each.zone, fair * (1 + tolerance))
        best.take(each.shard, cost)
        placed[each.shard] = best.target.dispatcher_id
    return placed


def even_out(
    targets: Sequence[Target],
    homes: Mapping[int, str],
    costs: Mapping[int, float],
    pinned: frozenset[int],
    tolerance: float,
    *,
    limit: int,
    always: bool = False,
) -> list[Step]:
    """The moves, at most `limit`, that even out the loads of `targets`; none while all of them are within `tolerance`
    of their fair loads, unless `always`.

    Shards in `pinned` stay; shards at homes that are no targets do not count. Once begun, a round goes on until
    everybody is within a quarter of the tolerance, or no single move is worth its while; shards of equal cost are
    evened out to the last. A shard that is too heavy for any better place stays where it is.
    """
    tallies = _tallies(targets, homes, costs)
    if len(tallies) < 2:
        return []
    round_ = _Round(tallies, tolerance)
    round_.open(homes, costs, pinned)
    if not always and round_.within(tolerance):
        return []
    steps: dict[int, Step] = {}
    while len(steps) < limit:
        step = round_.next()
        if step is None:
            break
        steps[step.shard] = step
    return sorted(steps.values(), key=lambda step: step.shard)


def imbalance(targets: Sequence[Target], homes: Mapping[int, str], costs: Mapping[int, float]) -> float:
    """The largest difference of a load from its fair one, as a part of the fair one; 0.0 without targets or shards."""
    tallies = _tallies(targets, homes, costs)
    fair = _fair(tallies)
    return max((abs(each.relative / fair - 1) for each in tallies.values()), default=0.0) if fair > 0 else 0.0


class _Tally:
    """What one dispatcher has: its load and its count of shards."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.load = 0.0
        self.count = 0
        # In one round nobody both gives and receives: what comes of such moves is not worth them.
        self.gave = self.received = False
        # Movable ones, by cost and number.
        self.movable: list[tuple[float, int]] = []

    @property
    def relative(self) -> float:
        """Load for its weight."""
        return self.load / self.target.weight

    def relative_with(self, cost: float) -> float:
        return (self.load + cost) / self.target.weight

    def take(self, shard: int, cost: float) -> None:
        self.load += cost
        self.count += 1

    def lose(self, cost: float) -> None:
        self.load -= cost
        self.count -= 1


def _tallies(targets: Sequence[Target], homes: Mapping[int, str], costs: Mapping[int, float]) -> dict[str, _Tally]:
    tallies = {each.dispatcher_id: _Tally(each) for each in sorted(targets, key=lambda each: each.dispatcher_id)}
    for shard in sorted(homes):
        tally = tallies.get(homes[shard])
        if tally is not None:
            tally.take(shard, costs[shard])
    return tallies


def _fair(tallies: Mapping[str, _Tally]) -> float:
    """The load that each dispatcher of weight 1 should have."""
    weights = sum(each.target.weight for each in tallies.values())
    return sum(each.load for each in tallies.values()) / weights if weights else 0.0


def _roomiest(tallies: Collection[_Tally], cost: float, zone: str, most: float) -> _Tally:
    """Who would have least for its weight with this shard; one of its zone, while that would have at most `most`."""

    def would_have(tally: _Tally) -> tuple[float, float, str]:
        return (
            round(tally.relative_with(cost), 9),
            (tally.count + 1) / tally.target.weight,
            tally.target.dispatcher_id,
        )

    at_home = [each for each in tallies if zone and each.target.zone == zone]
    if at_home:
        best = min(at_home, key=would_have)
        if best.relative_with(cost) <= most:
            return best
    return min(tallies, key=would_have)


class _Round:
    """The state of one round of evening out."""

    def __init__(self, tallies: dict[str, _Tally], tolerance: float) -> None:
        self._tallies = tallies
        self._fair = _fair(tallies)
        self._aim = tolerance * _AIM_OF_TOLERANCE

    def open(self, homes: Mapping[int, str], costs: Mapping[int, float], pinned: frozenset[int]) -> None:
        """Note which shards may move, and whether they all cost the same."""
        counted = [costs[shard] for shard, home in homes.items() if home in self._tallies]
        for shard in sorted(homes, key=lambda each: (costs[each], each)):
            tally = self._tallies.get(homes[shard])
            if tally is not None and shard not in pinned:
                tally.movable.append((costs[shard], shard))
        if counted and max(counted) - min(counted) <= _DUST * max(counted):
            self._aim = _DUST

    def within(self, part: float) -> bool:
        """Whether everybody is within `part` of the fair load."""
        allowed = part * self._fair + _DUST
        return all(abs(each.relative - self._fair) <= allowed for each in self._tallies.values())

    def next(self) -> Step | None:
        """Carry out the next move that is worth its while; None when there is none."""
        if self.within(self._aim):
            return None
        by_load = sorted(self._tallies.values(), key=lambda each: (-each.relative, each.target.dispatcher_id))
        for source in by_load:
            for target in reversed(by_load):
                if target.relative >= source.relative or not self._worth_looking(source, target):
                    break
                if source.received or target.gave:
                    continue
                found = None if _processors_forbid(source.target, target.target) else self._pick(source, target)
                if found is not None:
                    return self._carry_out(source, target, found)
        return None

    def _worth_looking(self, source: _Tally, target: _Tally) -> bool:
        slack = self._aim * self._fair
        return source.relative > self._fair + slack or target.relative < self._fair - slack

    def _pick(self, source: _Tally, target: _Tally) -> tuple[float, int] | None:
        """The costliest shard that is not more than one has too much and the other too little; else the cheapest, if
        the two are then less far from the fair load by enough.

        The larger of the two distances counts, above and below: so no move makes `imbalance` worse.
        """
        if not source.movable:
            return None
        excess = source.load - self._fair * source.target.weight
        lack = self._fair * target.target.weight - target.load
        fitting = bisect_right(source.movable, (min(excess, lack) * (1 + _DUST), 1 << 62))
        if fitting > 0:
            return source.movable[fitting - 1]
        cost, shard = source.movable[0]
        before = self._distance(source.relative, target.relative)
        after = self._distance(source.relative_with(-cost), target.relative_with(cost))
        enough = max(self._aim, _DUST) * self._fair
        return (cost, shard) if before - after > enough else None

    def _distance(self, *loads: float) -> float:
        """How far the farthest of `loads` is from the fair one."""
        return max(abs(each - self._fair) for each in loads)

    def _carry_out(self, source: _Tally, target: _Tally, found: tuple[float, int]) -> Step:
        cost, shard = found
        source.movable.remove(found)  # and it is not movable at its target: one move a shard and round
        source.gave = target.received = True
        source.lose(cost)
        target.take(shard, cost)
        return Step(shard, source.target.dispatcher_id, target.target.dispatcher_id)


def _processors_forbid(source: Target, target: Target) -> bool:
    """A check on the costs: what their figures call lighter may be busier in truth."""
    if source.cpu is None or target.cpu is None:
        return False
    return target.cpu > source.cpu + _BUSIER or (target.cpu >= _BUSY and target.cpu >= source.cpu)
