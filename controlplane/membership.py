"""Who is alive, as one leader sees it during one tenure: etcd's members, and the report streams that it receives.

A dispatcher is suspected after it missed reports, or when its broken stream did not come back; either makes the leader
order a takeover, which costs a move if it was wrong, never a double run. A dispatcher that lost its etcd session but
goes on reporting keeps its shards and gets no new ones. Nobody gets shards whom no worker has found, while
others have workers. A leader that was held up itself suspects nobody for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controlplane.sickness import SEIZE_AFTER_S, WELL, Condition, Sickness
from core.ailments import AilmentKind
from core.clock import Clock
from core.config import ControlPlaneSettings
from core.coord.layout import Member
from core.tasks import Wake

log = logging.getLogger(__name__)

# A dispatcher that was never heard of in this tenure has so long to find the new leader, or to appear in etcd.
_FIRST_WORD_GRACE_S = 3.0
# Between two ticks; a much longer gap was a pause of this process, or of its machine.
TICK_EVERY_S = 0.1
_PAUSE_S = 0.5
# Whose stream ends so soon after a pause broke it off for that; it has to look for the leader, and may take as long as
# between any two reports.
_BREAKS_AFTER_PAUSE_S = 1.0
# A crowd that never stops joining is placed all the same.
_LONGEST_SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a dispatcher last reported of itself."""

    fires_per_second: float
    open_runs: int
    waiting_runs: int


@dataclass(frozen=True, slots=True)
class Roster:
    """The judgement at one moment, over dispatcher ids.

    `eligible` may get shards, `keepers` may keep theirs, `leaving` are to lose them in order, `suspects` at once. While
    `settling`, somebody who was never heard of is given the benefit of the doubt.
    """

    eligible: frozenset[str]
    keepers: frozenset[str]
    leaving: frozenset[str]
    suspects: frozenset[str]
    settling: bool
    # What ails those of `suspects` and `leaving` that still report.
    sick: frozenset[tuple[str, AilmentKind]] = frozenset()

    def may_keep(self, dispatcher_id: str) -> bool:
        """Whether shards of this owner stay where they are."""
        return dispatcher_id in self.keepers or (self.settling and not self._knows(dispatcher_id))

    def is_gone(self, dispatcher_id: str) -> bool:
        """Whether shards of this owner may be taken without waiting for it."""
        return dispatcher_id in self.suspects or (not self.settling and not self._knows(dispatcher_id))

    def _knows(self, dispatcher_id: str) -> bool:
        return any(dispatcher_id in group for group in (self.keepers, self.leaving, self.suspects))


@dataclass(slots=True)
class _Seen:
    first_s: float
    settled: bool = False
    reported_s: float | None = None
    broken_s: float | None = None
    streams: int = 0
    draining: bool = False
    suspected: bool = False
    load: Load = Load(0.0, 0, 0)
    condition: Condition = WELL
    sick: AilmentKind | None = None

    @property
    def lost(self) -> bool:
        """Whether its shards are to be taken without waiting for it."""
        return self.suspected or self.sick in SEIZE_AFTER_S

    @property
    def leaves(self) -> bool:
        """Whether its shards are to be moved away in order."""
        return not self.lost and (self.draining or self.sick is not None)


class Membership:
    """One tenure's view. `wake` is set when somebody's report changes the picture."""

    def __init__(self, settings: ControlPlaneSettings, clock: Clock, wake: Wake) -> None:
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._began_s = clock.monotonic_s()
        self._ticked_s = self._began_s
        self._resumed_s = float("-inf")
        self._seen: dict[str, _Seen] = {}
        self._sickness = Sickness()
        self.suspicions = 0

    # --- what the report streams say -------------------------------------------------------------------------------

    def stream_opened(self, dispatcher_id: str) -> None:
        """A report stream of this dispatcher began."""
        self._of(dispatcher_id).streams += 1

    def report(self, dispatcher_id: str, load: Load, condition: Condition = WELL, *, draining: bool = False) -> None:
        """A report came."""
        seen = self._of(dispatcher_id)
        news = seen.suspected or seen.draining is not draining
        if seen.suspected:
            seen.suspected = False
            self._join_again(dispatcher_id, seen)
        seen.reported_s, seen.broken_s = self._clock.monotonic_s(), None
        seen.load, seen.draining, seen.condition = load, draining, condition
        if news:
            self._wake.set()

    def stream_closed(self, dispatcher_id: str) -> None:
        """A report stream of this dispatcher ended, however it ended."""
        seen = self._of(dispatcher_id)
        seen.streams -= 1
        now_s = self._clock.monotonic_s()
        if seen.streams <= 0 and now_s - self._resumed_s > _BREAKS_AFTER_PAUSE_S:
            seen.broken_s = now_s

    def load_of(self, dispatcher_id: str) -> Load | None:
        """The newest report, or None."""
        seen = self._seen.get(dispatcher_id)
        return None if seen is None or seen.reported_s is None else seen.load

    def tick(self) -> None:
        """To be called every TICK_EVERY_S by a task that does nothing else: it notices when this process stood still.

        Reports that could not be read meanwhile were not missed by their senders. And it judges, since whoever looks
        may wait long for a database that is away: what the reports say meanwhile is not to be missed.
        """
        now_s = self._clock.monotonic_s()
        gap_s, self._ticked_s = now_s - self._ticked_s, now_s
        if gap_s >= _PAUSE_S:
            self._pass_over(gap_s, now_s)
        self._judge(now_s)

    def _pass_over(self, gap_s: float, now_s: float) -> None:
        self._began_s += gap_s
        self._resumed_s = now_s
        self._sickness.paused(gap_s)
        for seen in self._seen.values():
            seen.first_s += gap_s
            if seen.reported_s is not None:
                seen.reported_s = min(now_s, seen.reported_s + gap_s)
            if seen.broken_s is not None:
                seen.broken_s = min(now_s, seen.broken_s + gap_s)

    # --- the judgement ---------------------------------------------------------------------------------------------

    def look(self, members: Mapping[str, Member], owners: Collection[str]) -> Roster:
        """Judge everybody now. `members` are etcd's, `owners` those who own shards by SQL."""
        now_s = self._clock.monotonic_s()
        for dispatcher_id in members:
            self._of(dispatcher_id)
        self._settle(now_s, owners)
        self._judge(now_s)
        self._forget(members, owners)
        seen_now = self._seen.items()
        well = {each for each, seen in seen_now if not seen.lost and not seen.leaves}
        served = any(self._seen[each].condition.workers for each in well)
        return Roster(
            eligible=frozenset(each for each in well if each in members and self._is_ready(self._seen[each], served)),
            keepers=frozenset(well),
            leaving=frozenset(each for each, seen in seen_now if seen.leaves),
            suspects=frozenset(each for each, seen in seen_now if seen.lost),
            settling=now_s - self._began_s < _FIRST_WORD_GRACE_S,
            sick=frozenset((each, seen.sick) for each, seen in seen_now if seen.sick is not None),
        )

    def _judge(self, now_s: float) -> None:
        for dispatcher_id, seen in self._seen.items():
            if not seen.suspected and (silence := self._silence(seen, now_s)):
                seen.suspected = True
                self._suspect(dispatcher_id, silence)
        self._judge_sickness(now_s)

    def _judge_sickness(self, now_s: float) -> None:
        staying = {
            each: seen.condition
            for each, seen in self._seen.items()
            if not seen.suspected and not seen.draining and seen.reported_s is not None
        }
        sick = self._sickness.judge(staying, now_s)
        for dispatcher_id, seen in self._seen.items():
            before, seen.sick = seen.sick, sick.get(dispatcher_id)
            if seen.sick is not None and seen.sick is not before:
                self._suspect(dispatcher_id, seen.sick.value)
            elif before is not None and seen.sick is None and not seen.suspected:
                self._join_again(dispatcher_id, seen)

    def _suspect(self, dispatcher_id: str, why: str) -> None:
        self.suspicions += 1
        log.warning("%s is to lose its shards: %s", dispatcher_id, why)

    def _join_again(self, dispatcher_id: str, seen: _Seen) -> None:
        """Like somebody who joins, it first has to stay."""
        log.info("%s counts as well again", dispatcher_id)
        seen.settled, seen.first_s = False, self._clock.monotonic_s()

    def _of(self, dispatcher_id: str) -> _Seen:
        return self._seen.setdefault(dispatcher_id, _Seen(self._clock.monotonic_s()))

    def _settle(self, now_s: float, owners: Collection[str]) -> None:
        """Those who own shards have joined long ago; new ones are placed together, when no more of them come."""
        joining = []
        for dispatcher_id, seen in self._seen.items():
            if not seen.settled and dispatcher_id in owners and seen.reported_s is not None:
                seen.settled = True
            elif not seen.settled and not seen.lost:
                joining.append(seen)
        if not joining:
            return
        newest_s, oldest_s = max(seen.first_s for seen in joining), min(seen.first_s for seen in joining)
        if now_s - newest_s >= self._settings.join_settle_s or now_s - oldest_s >= _LONGEST_SETTLE_S:
            for seen in joining:
                seen.settled = True

    @staticmethod
    def _is_ready(seen: _Seen, served: bool) -> bool:
        """`served`: whether anybody has workers."""
        return seen.settled and seen.reported_s is not None and (seen.condition.workers > 0 or not served)

    def _silence(self, seen: _Seen, now_s: float) -> str:
        """Why it counts as dead; empty when it does not."""
        if seen.reported_s is None:
            late = now_s - max(seen.first_s, self._began_s) > _FIRST_WORD_GRACE_S
            return "it has never reported" if late else ""
        if seen.broken_s is not None and now_s - seen.broken_s > self._settings.broken_stream_grace_s:
            return "its report stream broke and did not come back"
        silent_s = now_s - seen.reported_s
        if silent_s > self._settings.missed_reports * self._settings.report_interval_s:
            return f"its last report came {silent_s:.1f} s ago"
        return ""

    def _forget(self, members: Mapping[str, Member], owners: Collection[str]) -> None:
        """Who neither lives, owns nor speaks is history."""
        for dispatcher_id in [each for each, seen in self._seen.items() if seen.suspected and seen.streams <= 0]:
            if dispatcher_id not in members and dispatcher_id not in owners:
                del self._seen[dispatcher_id]
