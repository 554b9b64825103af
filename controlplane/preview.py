"""What a round of rebalancing would do now, and the loads that are expected after it. Pure.

Called by placement_requests.py, for `tidewheel shard plan` and for a round that an operator asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.balancing import pinned, rebalancing
from controlplane.picture import Picture
from core.config import ControlPlaneSettings


@dataclass(frozen=True, slots=True)
class PreviewedMove:
    """A move that a round would ask for; `cost` is the shard's load as the plan counts it (docs/placement.md)."""

    shard: int
    from_dispatcher: str
    to_dispatcher: str
    cost: float


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """One dispatcher before and after the round, in the same unit; `fair_load` is its share by weight."""

    dispatcher_id: str
    shards_before: int
    shards_after: int
    load_before: float
    load_after: float
    fair_load: float


@dataclass(frozen=True, slots=True)
class Preview:
    """A round. `loads_known` is false where no load was reported yet: then shards were counted.

    `held_back` says in words what keeps the round from doing more, one line each.
    """

    moves: tuple[PreviewedMove, ...]
    dispatchers: tuple[ExpectedLoad, ...]
    loads_known: bool
    held_back: tuple[str, ...]


def preview_of(picture: Picture, settings: ControlPlaneSettings) -> Preview:
    """The round that would be done if an operator asked for one now."""
    steps = rebalancing(picture, settings, limit=len(picture.shards), always=True)
    costs, homes = picture.loads.costs(picture.shards), picture.heads()
    after = {**homes, **{step.shard: step.target for step in steps}}
    return Preview(
        tuple(PreviewedMove(step.shard, step.source, step.target, costs[step.shard]) for step in steps),
        tuple(_expected(picture, homes, after, costs)),
        picture.loads.known,
        tuple(_held_back(picture, settings)),
    )


def _expected(
    picture: Picture, before: Mapping[int, str], after: Mapping[int, str], costs: Mapping[int, float]
) -> Iterable[ExpectedLoad]:
    targets = {each.dispatcher_id: each for each in picture.targets()}
    weights = sum(each.weight for each in targets.values())
    total = sum(costs[shard] for shard, home in before.items() if home in targets)
    shards_before, shards_after = Counter(before.values()), Counter(after.values())
    for dispatcher_id in sorted({*targets, *before.values()}):
        target = targets.get(dispatcher_id)
        yield ExpectedLoad(
            dispatcher_id,
            shards_before[dispatcher_id],
            shards_after[dispatcher_id],
            _load(dispatcher_id, before, costs),
            _load(dispatcher_id, after, costs),
            0.0 if target is None else total * target.weight / weights,
        )


def _load(dispatcher_id: str, homes: Mapping[int, str], costs: Mapping[int, float]) -> float:
    return sum(costs[shard] for shard, home in homes.items() if home == dispatcher_id)


def _held_back(picture: Picture, settings: ControlPlaneSettings) -> Iterable[str]:
    if picture.rules.all_frozen:
        yield "all shards are frozen"
        return
    reasons = Counter(pinned(picture, settings).values())
    for reason in sorted(reasons):
        yield f"{reasons[reason]} shards stay: {reason}"
    if not picture.targets():
        yield "no dispatcher can be given shards"
