"""Who may send how much: one account per stream, and one allocation over all of them. Pure; no clock, no I/O.

The invariant: the credits that are unused on all streams, and the attempts that hold a slot, never exceed the slots.
So however the dispatchers use their credits, an assignment that arrives always finds a free slot.

Credits move to where runs wait: a dispatcher with demand gets the free ones first, and if there are none, unused ones
are asked back (Reclaim) from those without. They count as used until the answer (Released) says how many came back.
Called by switchboard.py, once per turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class StreamCredit:
    """The account of one stream. A new stream begins with an empty one: credits die with their stream."""

    # As in Grant.total: all credits granted, less those that came back.
    total: int = 0
    # Assignments that arrived.
    received: int = 0
    # The dispatcher's last Demand.
    waiting: int = 0
    # What the unanswered Reclaim asks for; 0 when there is none.
    reclaiming: int = 0
    # The last Reclaim brought nothing though credits were unused: do not ask again until something changes.
    barren: bool = False
    # When it was last granted something, as a number that grows: the one that waits longest goes first.
    granted_turn: int = 0

    @property
    def unused(self) -> int:
        """Credits that the dispatcher may still use."""
        return max(0, self.total - self.received)

    def grant(self, count: int, turn: int) -> None:
        self.total = max(self.total, self.received) + count
        self.granted_turn = turn
        self.barren = False

    def receive(self, count: int) -> int:
        """Assignments arrived; how many of them no credit covers (0 from a correct dispatcher)."""
        excess = max(0, count - self.unused)
        self.received += count
        return excess

    def reclaim(self, count: int) -> None:
        self.reclaiming = count

    def release(self, count: int) -> bool:
        """The answer to the Reclaim: `count` credits are void. False if it answers none, or more than was asked."""
        if not 0 <= count <= self.reclaiming:
            return False
        self.total -= min(count, self.unused)
        self.barren = count == 0 and self.unused > 0
        self.reclaiming = 0
        return True

    def demand(self, waiting: int) -> None:
        self.waiting = max(0, waiting)
        self.barren = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """What to do now, per stream in the order given: credits to grant, and credits to ask back."""

    grants: list[int]
    reclaims: list[int]


def allocate(slots: int, taken: int, streams: Sequence[StreamCredit]) -> Allocation:
    """Share `slots` less the `taken` ones over the streams. Changes nothing itself.

    Nothing is granted on a stream whose Reclaim is unanswered: a Grant names a total, and the two would cross.
    """
    unused = [stream.unused for stream in streams]
    free = slots - taken - sum(unused)
    grants = [0] * len(streams)
    if not streams:
        return Allocation(grants, [])
    targets = _targets(slots, max(0, slots - taken), streams, unused)
    missing = [max(0, target - has) for target, has in zip(targets, unused, strict=True)]
    if free > 0:
        grants = _share_free(free, streams, unused, missing)
    return Allocation(grants, _reclaims(streams, unused, targets, missing, grants))


def _targets(slots: int, budget: int, streams: Sequence[StreamCredit], unused: list[int]) -> list[int]:
    """How many credits each stream should hold: one each, then what demand asks for, then the rest evenly."""
    everyone_gets_one = slots >= len(streams)

    def rank(at: int) -> tuple[bool, bool, int]:
        lacks, idle = not unused[at], not streams[at].waiting
        # With a slot for every stream nobody loses its last credit; with fewer, it goes to where runs wait.
        return (not everyone_gets_one and idle, lacks, streams[at].granted_turn)

    targets = [0] * len(streams)
    for at in sorted(range(len(streams)), key=rank)[:budget]:
        targets[at] = 1
    rest = budget - sum(targets)
    if rest <= 0:
        return targets
    wanted = [
        max(0, has + stream.waiting - target) if stream.waiting else 0
        for stream, has, target in zip(streams, unused, targets, strict=True)
    ]
    targets = _added(targets, _pour(rest, wanted))
    return _added(targets, _pour(budget - sum(targets), [budget] * len(targets)))


def _share_free(free: int, streams: Sequence[StreamCredit], unused: list[int], missing: list[int]) -> list[int]:
    """Give the free credits out: first one to each stream that has none, then to demand, then to the others."""
    open_for = [gap if stream.reclaiming == 0 else 0 for stream, gap in zip(streams, missing, strict=True)]
    grants = [0] * len(streams)
    for at in sorted(range(len(streams)), key=lambda at: streams[at].granted_turn):
        if free and open_for[at] and not unused[at]:
            grants[at] = 1
            free -= 1
    for only_demand in (True, False):
        gaps = [
            gap - given if stream.waiting or not only_demand else 0
            for stream, gap, given in zip(streams, open_for, grants, strict=True)
        ]
        more = _pour(free, gaps)
        free -= sum(more)
        grants = _added(grants, more)
    return grants


def _reclaims(
    streams: Sequence[StreamCredit], unused: list[int], targets: list[int], missing: list[int], grants: list[int]
) -> list[int]:
    """What to ask back for streams that still lack: what demand waits for, and the first credit of an empty one."""
    lacking = sum(
        max(0, min(gap, stream.waiting or int(not has)) - given)
        for stream, has, gap, given in zip(streams, unused, missing, grants, strict=True)
    )
    lacking -= sum(stream.reclaiming for stream in streams)
    spare = [
        has - target if has > target and not stream.reclaiming and not stream.barren else 0
        for stream, has, target in zip(streams, unused, targets, strict=True)
    ]
    return _pour(max(0, lacking), spare)


def _pour(amount: int, room: Sequence[int]) -> list[int]:
    """Fill `room` as evenly as it goes with `amount`; the sum is the smaller of the two."""
    given = [0] * len(room)
    while amount > 0:
        hungry = [at for at, size in enumerate(room) if size > given[at]]
        if not hungry:
            break
        each = max(1, amount // len(hungry))
        for at in hungry:
            part = min(each, room[at] - given[at], amount)
            given[at] += part
            amount -= part
    return given


def _added(some: Sequence[int], more: Sequence[int]) -> list[int]:
    return [one + plus for one, plus in zip(some, more, strict=True)]
