"""One hand-off of a shard: its phases, and what each of the two owners has to do in which. Pure.

A hand-off is known by two open rows of `shard_terms`: `before`, which ends at the boundary, and `after`, which begins
there. The owner of `before` serves the buckets below the boundary and finishes them; the owner of `after`, the target,
fires from the boundary on, and is the one who brings the hand-off to its end, whatever becomes of the other. Nobody
remembers a phase: each is read off the rows, the watermark and the time, so that whoever comes in goes on from there.

Called by dispatcher/ (which carries the duties out), controlplane/ (which accounts for moves) and by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from core.buckets import NO_END, BucketScale
from core.fence import TermRow
from core.states import TermState

# During a hand-off its two owners look so often, in seconds (rule of ownership 4).
TICK_S = 0.05
# The boundary is the second bucket that begins after the lead: the first one may begin while the split commits.
_BUCKETS_AHEAD = 2


class Phase(IntEnum):
    """How far a hand-off is."""

    ORDERED = 1  # the leader's order names the term; the target has not split it
    SPLIT = 2  # the boundary stands and lies ahead
    PASSED = 3  # the boundary has passed; the owner before it finishes its buckets
    DRAINED = 4  # no bucket before the boundary is left, so that no run can be made there any more
    REHOMED = 5  # the open runs are at home under the target's term
    CLOSED = 6  # the shard is the target's alone
    KEPT = 7  # the order could not be carried out: the term was too young, or not the one it named any more
    TAKEN_OVER = 8  # what was left before the boundary went to another owner
    GIVEN_BACK = 9  # the range from the boundary on went to another owner


class Step(IntEnum):
    """What takes a hand-off from one phase to the next. The comment says who does it."""

    SPLIT = 1  # target: one transaction ends the old term at the boundary and opens the new one from there
    REFUSE = 2  # SQL: the split changed nothing
    PASS = 3  # time
    DRAIN = 4  # owner before: floor to the boundary, a scan, watermark to the boundary
    REHOME = 5  # target: adoption, in chunks
    CLOSE = 6  # target: closes the drained term
    TAKE_OVER = 7  # target, or whom the leader orders: the owner before is gone or too slow
    REPLACE = 8  # whom the leader orders: the target is gone


HANDOFF_TRANSITIONS: dict[tuple[Phase, Step], Phase] = {
    (Phase.ORDERED, Step.SPLIT): Phase.SPLIT,
    (Phase.ORDERED, Step.REFUSE): Phase.KEPT,
    (Phase.SPLIT, Step.PASS): Phase.PASSED,
    (Phase.SPLIT, Step.TAKE_OVER): Phase.TAKEN_OVER,
    (Phase.SPLIT, Step.REPLACE): Phase.GIVEN_BACK,
    (Phase.PASSED, Step.DRAIN): Phase.DRAINED,
    (Phase.PASSED, Step.TAKE_OVER): Phase.TAKEN_OVER,
    (Phase.PASSED, Step.REPLACE): Phase.GIVEN_BACK,
    (Phase.DRAINED, Step.REHOME): Phase.REHOMED,
    (Phase.DRAINED, Step.REPLACE): Phase.GIVEN_BACK,
    (Phase.REHOMED, Step.CLOSE): Phase.CLOSED,
    (Phase.REHOMED, Step.REPLACE): Phase.GIVEN_BACK,
}


class Duty(IntEnum):
    """What an owner has to do now."""

    SERVE = 1  # owner before: fire what is below the boundary, forget what is above it
    FINISH = 2  # owner before: bring floor and watermark to the boundary, at once
    ANSWER = 3  # owner before: acknowledge and renew the runs that are still at home here
    LEAVE = 4  # owner before: forget the term, tell its workers where to go
    WAIT = 5  # target: nothing yet but preloading, and firing from the boundary on
    TAKE_OVER_REST = 6  # target: claim what is left before the boundary
    BRING_HOME = 7  # target: adopt the open runs of the term before
    CLOSE = 8  # target: close the term before


@dataclass(frozen=True, slots=True)
class Handoff:
    """The two open rows of a shard in two ranges. Both may be of one owner: after it took over the rest."""

    before: TermRow
    after: TermRow

    @property
    def shard(self) -> int:
        return self.after.shard

    @property
    def boundary(self) -> int:
        """The first bucket of the target's range."""
        return self.after.from_bucket

    @property
    def is_of_one_owner(self) -> bool:
        return self.before.owner == self.after.owner


def boundary_for(scale: BucketScale, now_us: int, lead_s: float) -> int:
    """The bucket at which a split that is made now begins: at least one whole bucket after the lead."""
    return scale.bucket_of(now_us + round(lead_s * 1_000_000)) + _BUCKETS_AHEAD


def handoffs_of(rows: Iterable[TermRow]) -> dict[int, Handoff]:
    """The hand-offs under way, by shard, among rows of any shards and states."""
    opened: dict[int, list[TermRow]] = {}
    for row in rows:
        if row.state is TermState.OPEN:
            opened.setdefault(row.shard, []).append(row)
    found = {}
    for shard, mine in opened.items():
        by_start = {row.from_bucket: row for row in mine}
        for row in mine:
            after = by_start.get(row.to_bucket)
            if after is not None:
                found[shard] = Handoff(row, after)
    return found


def phase_of(handoff: Handoff, *, bucket: int, watermark: int, rehomed: bool = False) -> Phase:
    """The phase of a hand-off whose rows stand open.

    `bucket` is the present one by the database's clock. `rehomed` says that an adoption was completed that had begun
    after the watermark was read at the boundary.
    """
    if watermark >= handoff.boundary:
        return Phase.REHOMED if rehomed else Phase.DRAINED
    return Phase.PASSED if bucket >= handoff.boundary else Phase.SPLIT


def owner_duty(phase: Phase) -> Duty:
    """What the owner before the boundary does."""
    match phase:
        case Phase.ORDERED | Phase.SPLIT | Phase.KEPT | Phase.GIVEN_BACK:
            return Duty.SERVE
        case Phase.PASSED:
            return Duty.FINISH
        case Phase.DRAINED | Phase.REHOMED:
            return Duty.ANSWER
        case Phase.CLOSED | Phase.TAKEN_OVER:
            return Duty.LEAVE


def target_duty(handoff: Handoff, phase: Phase, *, overdue: bool, gone: bool) -> Duty:
    """What the owner of the range from the boundary on does.

    `overdue`: the time that the other one has to finish its buckets is over; `gone`: it is no longer there. Neither
    matters once it is drained, and nobody takes over from itself.
    """
    if phase is Phase.DRAINED:
        return Duty.BRING_HOME
    if phase is Phase.REHOMED:
        return Duty.CLOSE
    late = phase is Phase.PASSED and overdue
    if phase in (Phase.SPLIT, Phase.PASSED) and (gone or late) and not handoff.is_of_one_owner:
        return Duty.TAKE_OVER_REST
    return Duty.WAIT


def tiles(rows: Sequence[TermRow]) -> list[str]:
    """What is wrong with the rows of one shard, all of them, in words; empty when they tile time.

    Those that are not void follow each other without gap or overlap from bucket 0 to no end; open ones are the last in
    time, two at most; numbers are given once.
    """
    faults = []
    numbers = [row.term for row in rows]
    faults += [f"term {n} stands twice" for n in sorted({n for n in numbers if numbers.count(n) > 1})]
    live = sorted((row for row in rows if row.state is not TermState.VOID), key=lambda r: (r.from_bucket, r.to_bucket))
    if not live:
        return [*faults, "no term that is not void"] if rows else faults
    end = 0
    for row in live:
        if row.from_bucket > end:
            faults.append(f"nobody's: buckets [{end}, {row.from_bucket}) before term {row.term}")
        elif row.from_bucket < end:
            faults.append(f"twice: buckets [{row.from_bucket}, {min(end, row.to_bucket)}) in term {row.term}")
        end = max(end, row.to_bucket)
    if end != NO_END:
        faults.append(f"nobody's: every bucket from {end} on")
    opened = [position for position, row in enumerate(live) if row.state is TermState.OPEN]
    if len(opened) > 2:
        faults.append(f"{len(opened)} terms are open")
    if opened != list(range(len(live) - len(opened), len(live))):
        faults.append("a closed term begins after an open one")
    return faults
