"""What becomes of a chain that is due: which occurrence runs now, which are recorded as skipped, where it stands next.

Pure: decided from the policy, the occurrences and one instant. Called by the dispatcher's planner for every due
occurrence, on time or late. One decision makes at most one run and one skipped range, and costs a number of searches
that does not grow with how long everything was down: a year of a minutely job is one range.

A chain goes forward: its head is the next occurrence that has neither run nor been skipped. Only a catch-up with the
newest first has a second place, `back`: the missed occurrences that it kept, which it runs backwards while the head
goes on in time. Lateness counts from when an occurrence was due, not from its nominal instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeGuard

from core.clock import US_PER_S
from core.occurrences import Occurrence, SearchLimit
from core.policy import CatchUp, CatchUpMode, CatchUpOrder

# A run later than this, and later than its grace, is held to the pace of its namespace: a crowd that is merely behind
# is not, and neither is what the grace promises.
LATE_AFTER_US = 60 * US_PER_S
# How many times one decision goes on with a search that found nothing as far as it went.
_MAX_ROUNDS = 8


class Chain(Protocol):
    """What decisions ask of the occurrences of a version; instants are nominal, but for `last_due_before`."""

    def at(self, nominal_us: int) -> Occurrence | None: ...

    def next_after(self, nominal_us: int) -> Occurrence | None: ...

    def prev_before(self, nominal_us: int) -> Occurrence | None: ...

    def last_due_before(self, due_us: int) -> Occurrence | None: ...


class Waypoint(NamedTuple):
    """Where a chain stands that is no occurrence: it makes no run and no skip, and the search goes on from there."""

    nominal_us: int
    due_us: int


Stand = Occurrence | Waypoint


class Back(NamedTuple):
    """Missed occurrences that are still to be run backwards, from `next_us` down to `last_us` (nominal instants)."""

    next_us: int
    last_us: int


class Span(NamedTuple):
    """Every occurrence from `first_us` to `last_us`, both inclusive, by nominal instant."""

    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class CatchUpDecision:
    """What to do now. All of it is written by one statement.

    `run` is run, unless None; `late` says that it is held to the pace of its namespace. Until `yields_us` nothing else
    becomes due that goes before it (None: never). The occurrences of `skipped` are recorded with CATCH_UP. Afterwards
    the chain stands at `next` and has `back` left; both None: it has ended.
    """

    run: Occurrence | None = None
    skipped: Span | None = None
    next: Stand | None = None
    back: Back | None = None
    late: bool = False
    yields_us: int | None = None


def decide_catch_up(
    policy: CatchUp, occurrences: Chain, head_us: int, now_us: int, back: Back | None = None
) -> CatchUpDecision:
    """Decide about a chain that stands at `head_us` and has `back` left."""
    return _Moment(policy, occurrences, now_us).decide(head_us, back)


def next_stand(occurrences: Chain, nominal_us: int) -> Stand | None:
    """Where a chain stands that is done with `nominal_us`."""
    try:
        return occurrences.next_after(nominal_us)
    except SearchLimit as limit:
        at_us = max(limit.at_us, nominal_us + 1)
        return Waypoint(at_us, at_us)


class _TooFar(Exception):
    """A search backwards found nothing for so long that this decision does without its answer."""


@dataclass(frozen=True, slots=True)
class _Moment:
    policy: CatchUp
    occurrences: Chain
    now_us: int

    @property
    def _grace_from_us(self) -> int:
        """What was due from here on is within the grace."""
        return self.now_us - self.policy.grace_us

    @property
    def _window_from_us(self) -> int:
        """What was due before is too late to be caught up on."""
        return self.now_us - self.policy.window_us

    def decide(self, head_us: int, back: Back | None) -> CatchUpDecision:
        head = self.occurrences.at(head_us)
        if head is None:
            return self._from_waypoint(head_us, back)
        if head.due_us > self.now_us:
            return CatchUpDecision(next=head) if back is None else self._backwards(head, back)
        if head.due_us >= self._grace_from_us:
            return CatchUpDecision(head, next=_standing(self._after(head_us), head_us, back), back=back)
        try:
            return self._missed(head) if back is None else self._missed_again(head, back)
        except _TooFar:
            return self._by_itself(head, back)

    # --- the chain goes forward ---

    def _from_waypoint(self, head_us: int, back: Back | None) -> CatchUpDecision:
        following = self._after(head_us)
        if back is None or (following is not None and following.due_us <= self.now_us):
            return CatchUpDecision(next=following, back=back)
        made = self._backwards(following or Waypoint(head_us, head_us), back)
        return made if made.back is not None else replace(made, next=following)

    def _missed(self, head: Occurrence) -> CatchUpDecision:
        """The head is older than the grace: so is everything up to `newest`, and `fresh` comes after it."""
        newest = self._newest_missed(head)
        fresh = self._after(newest.nominal_us)
        oldest, before_us = self._kept(head, newest, fresh)
        if oldest is None:
            return self._go_on(fresh, Span(head.nominal_us, newest.nominal_us))
        skipped = None if before_us is None else Span(head.nominal_us, before_us)
        if self.policy.mode is CatchUpMode.ALL and self.policy.order is CatchUpOrder.NEWEST_FIRST:
            return self._newest_first(newest, oldest, fresh, skipped)
        following = fresh if oldest == newest else self._after(oldest.nominal_us)
        waits_behind = self.policy.mode is CatchUpMode.ALL
        yields_us = None if waits_behind or fresh is None else fresh.due_us
        return CatchUpDecision(oldest, skipped, following, late=self._is_late(oldest), yields_us=yields_us)

    def _go_on(self, fresh: Stand | None, skipped: Span) -> CatchUpDecision:
        """Nothing of what was missed is run: go on with what comes after it."""
        if self._is_due(fresh):
            return CatchUpDecision(fresh, skipped, self._after(fresh.nominal_us))
        return CatchUpDecision(skipped=skipped, next=fresh)

    def _kept(self, head: Occurrence, newest: Occurrence, fresh: Stand | None) -> tuple[Occurrence | None, int | None]:
        """The oldest of the missed occurrences that are run, the newest being the last; and the one before it.

        None where none is run; no one before where the head itself is kept.
        """
        mode = self.policy.mode
        superseded = mode is CatchUpMode.LATEST and self._is_due(fresh)
        if mode is CatchUpMode.SKIP or superseded or newest.due_us < self._window_from_us:
            return None, None
        return self._walk_back(newest, head.nominal_us, 1 if mode is CatchUpMode.LATEST else self.policy.max_runs)

    def _by_itself(self, head: Occurrence, back: Back | None) -> CatchUpDecision:
        """So much before now is taken away that the newest missed one is not found: decide about the head alone."""
        following = self._after(head.nominal_us)
        if self._runs_by_itself(head, following):
            standing = _standing(following, head.nominal_us, back)
            return CatchUpDecision(head, None, standing, back, late=self._is_late(head))
        skipped = Span(head.nominal_us, head.nominal_us)
        return CatchUpDecision(None, skipped, _standing(following, head.nominal_us, back), back)

    def _runs_by_itself(self, head: Occurrence, following: Stand | None) -> bool:
        if self.policy.mode is CatchUpMode.SKIP or head.due_us < self._window_from_us:
            return False
        if self.policy.mode is CatchUpMode.LATEST:
            return not self._is_due(following)
        left = self.policy.max_runs
        while left > 0 and isinstance(following, Occurrence) and following.due_us < self._grace_from_us:
            following, left = self._after(following.nominal_us), left - 1
        return left > 0

    # --- and backwards ---

    def _newest_first(
        self, newest: Occurrence, oldest: Occurrence, fresh: Stand | None, skipped: Span | None
    ) -> CatchUpDecision:
        """Begin a catch-up that runs from `newest` back to `oldest`, behind what is fresh."""
        if self._is_due(fresh):
            back = Back(newest.nominal_us, oldest.nominal_us)
            standing = _standing(self._after(fresh.nominal_us), fresh.nominal_us, back)
            return CatchUpDecision(fresh, skipped, standing, back)
        left = self._left_before(newest.nominal_us, oldest.nominal_us)
        return CatchUpDecision(
            newest,
            skipped,
            _standing(fresh, newest.nominal_us, left),
            left,
            self._is_late(newest),
            None if fresh is None else fresh.due_us,
        )

    def _backwards(self, head: Stand, back: Back) -> CatchUpDecision:
        """The head is not due: run the next one of those that are left."""
        skipped = None
        too_old = self._too_old(back)
        if too_old is not None:
            skipped = Span(back.last_us, min(too_old.nominal_us, back.next_us))
            if too_old.nominal_us >= back.next_us:
                return CatchUpDecision(skipped=skipped, next=head)
            back = Back(back.next_us, too_old.nominal_us + 1)
        one = self.occurrences.at(back.next_us)
        late = one is not None and self._is_late(one)
        left = self._left_before(back.next_us, back.last_us)
        return CatchUpDecision(one, skipped, head, left, late, head.due_us if head.due_us > self.now_us else None)

    def _missed_again(self, head: Occurrence, back: Back) -> CatchUpDecision:
        """While some were left to be run backwards, everything was down again, and newer ones are older than the grace.

        The newer ones go first, in the order of their instants, and count towards the cap. Should they fill it, what is
        left is recorded as skipped, and the catch-up begins anew.
        """
        newest = self._newest_missed(head)
        room = self.policy.max_runs - self._count(head, newest)
        kept = self.occurrences.at(back.next_us)
        if room <= 0 or (kept is not None and kept.due_us < self._window_from_us):
            return CatchUpDecision(skipped=Span(back.last_us, back.next_us), next=head)
        skipped = None
        if kept is not None:
            oldest, before_us = self._walk_back(kept, back.last_us, room)
            if before_us is not None:
                skipped, back = Span(back.last_us, before_us), Back(back.next_us, oldest.nominal_us)
        fresh = self._after(newest.nominal_us)
        return CatchUpDecision(
            head,
            skipped,
            _standing(self._after(head.nominal_us), head.nominal_us, back),
            back,
            late=self._is_late(head) and not self._is_due(fresh),
            yields_us=None if fresh is None else fresh.due_us,
        )

    def _left_before(self, nominal_us: int, last_us: int) -> Back | None:
        """What is left of a catch-up down to `last_us` when the one at `nominal_us` is done."""
        try:
            before = self.occurrences.prev_before(nominal_us)
            before_us = None if before is None else before.nominal_us
        except SearchLimit as limit:
            before_us = min(limit.at_us, nominal_us - 1)
        return None if before_us is None or before_us < last_us else Back(before_us, last_us)

    def _too_old(self, back: Back) -> Occurrence | None:
        """The newest of those left that the window leaves out by now."""
        last = self.occurrences.at(back.last_us)
        if last is not None and last.due_us >= self._window_from_us:
            return None
        try:
            found = self._last_due_before(self._window_from_us)
        except _TooFar:
            return None
        return found if found is not None and found.nominal_us >= back.last_us else None

    # --- searches, each of which ends ---

    def _is_due(self, stand: Stand | None) -> TypeGuard[Occurrence]:
        return isinstance(stand, Occurrence) and stand.due_us <= self.now_us

    def _is_late(self, run: Occurrence) -> bool:
        return self.now_us - run.due_us > max(self.policy.grace_us, LATE_AFTER_US)

    def _after(self, nominal_us: int) -> Stand | None:
        return next_stand(self.occurrences, nominal_us)

    def _newest_missed(self, head: Occurrence) -> Occurrence:
        newest = self._last_due_before(self._grace_from_us)
        return head if newest is None or newest.nominal_us < head.nominal_us else newest

    def _last_due_before(self, due_us: int) -> Occurrence | None:
        try:
            return self.occurrences.last_due_before(due_us)
        except SearchLimit as limit:
            found = self._before(limit.at_us)
        # What lies before the place where the search was given up may have been put off beyond `due_us` all the same.
        for _ in range(_MAX_ROUNDS):
            if found is None or found.due_us < due_us:
                return found
            found = self._before(found.nominal_us)
        raise _TooFar

    def _before(self, nominal_us: int) -> Occurrence | None:
        for _ in range(_MAX_ROUNDS):
            try:
                return self.occurrences.prev_before(nominal_us)
            except SearchLimit as limit:
                nominal_us = limit.at_us
        raise _TooFar

    def _walk_back(self, newest: Occurrence, down_to_us: int, count: int) -> tuple[Occurrence, int | None]:
        """Up to `count` occurrences from `newest` down to the nominal instant `down_to_us`, none that the window leaves
        out: the oldest of them, and the nominal instant of the one before it, None where that is not in the range."""
        oldest = newest
        while (before := self._before(oldest.nominal_us)) is not None and before.nominal_us >= down_to_us:
            count -= 1
            if count <= 0 or before.due_us < self._window_from_us:
                return oldest, before.nominal_us
            oldest = before
        return oldest, None

    def _count(self, head: Occurrence, newest: Occurrence) -> int:
        """How many there are from `head` to `newest`, at most one more than the cap."""
        oldest, count = newest, 1
        while count <= self.policy.max_runs and oldest.nominal_us > head.nominal_us:
            before = self._before(oldest.nominal_us)
            if before is None:
                break
            oldest, count = before, count + 1
        return count


def _standing(following: Stand | None, last_us: int, back: Back | None) -> Stand | None:
    """Where a chain stands after `last_us`: with some left to be run backwards it stays, though nothing follows."""
    return Waypoint(last_us + 1, last_us + 1) if following is None and back is not None else following
