"""The difference of two schedules, as occurrences gained, lost and moved. Pure.

It only knows instants: who calls (controlplane/schedule_comparison.py) walks the schedules, and says of each occurrence
on which local day it lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class ChangeKind(IntEnum):
    """What became of an occurrence."""

    GAINED = 1
    LOST = 2
    MOVED = 3


class Placed(NamedTuple):
    """One occurrence: instants in microseconds, and its local day in its schedule's zone as a number."""

    nominal_us: int
    due_us: int
    day: int


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, by nominal instants: `before_us` None for GAINED, `after_us` None for LOST."""

    kind: ChangeKind
    before_us: int | None
    after_us: int | None

    @property
    def at_us(self) -> int:
        """Where it stands in the order of changes: the earlier of its instants."""
        return min(at for at in (self.before_us, self.after_us) if at is not None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every change in order, and how many occurrences are the same in both."""

    changes: tuple[Change, ...]
    unchanged: int

    def count(self, kind: ChangeKind) -> int:
        """How many changes of one kind there are."""
        return sum(change.kind is kind for change in self.changes)


def compare(before: Sequence[Placed], after: Sequence[Placed]) -> Comparison:
    """What differs between two lists of occurrences, each ascending and without doubles.

    The same instant in both is unchanged, or MOVED if it is due at another time. Of the others, the only one of its
    local day in each list has MOVED; what is left is LOST and GAINED.
    """
    old, new = _by_instant(before), _by_instant(after)
    shared = old.keys() & new.keys()
    deferred = [at for at in shared if old[at].due_us != new[at].due_us]
    changes = [Change(ChangeKind.MOVED, at, at) for at in deferred]
    lone_old, lone_new = _alone(before, shared), _alone(after, shared)
    days = lone_old.keys() & lone_new.keys()
    changes += (Change(ChangeKind.MOVED, lone_old[day], lone_new[day]) for day in days)
    moved_old, moved_new = {lone_old[day] for day in days}, {lone_new[day] for day in days}
    changes += (Change(ChangeKind.LOST, at, None) for at in old.keys() - shared - moved_old)
    changes += (Change(ChangeKind.GAINED, None, at) for at in new.keys() - shared - moved_new)
    changes.sort(key=lambda change: (change.at_us, change.kind))
    return Comparison(tuple(changes), len(shared) - len(deferred))


def _by_instant(occurrences: Iterable[Placed]) -> Mapping[int, Placed]:
    return {each.nominal_us: each for each in occurrences}


def _alone(occurrences: Sequence[Placed], shared: Iterable[int]) -> dict[int, int]:
    """The instant by local day, of those that are the only one of their day and not `shared`."""
    shared = frozenset(shared)
    counts = Counter(each.day for each in occurrences)
    return {
        each.day: each.nominal_us for each in occurrences if counts[each.day] == 1 and each.nominal_us not in shared
    }
