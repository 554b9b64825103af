"""Says why a due row was not fired in time, from what was read about it. Pure. Called by missed_fires.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from core.errors import Invalid
from core.fence import TermRow
from core.occurrences import Occurrences, SearchLimit
from core.states import TermState
from core.store.overdue import LateRow
from core.telemetry.control_plane_metrics import MissedFire

WORDS = {
    MissedFire.NO_TERM: "no dispatcher owns the shard",
    MissedFire.OWNER_SILENT: "the owner of the shard is not heard of",
    MissedFire.SET_ASIDE: "the job could not be read and is set aside",
    MissedFire.UNREADABLE: "the version that the due row names does not exist",
    MissedFire.CATCH_UP: "the catch-up pace of the namespace holds it back",
    MissedFire.BEHIND: "the owner fires what is late, and has not come to it yet",
    MissedFire.STUCK: "the owner is alive and does not fire it",
    MissedFire.LOST_CHAIN: "no due row stands for what is to come",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one row was not fired; `detail` names what is at fault, where there is something to name."""

    reason: MissedFire
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was known around a look: the newest terms by shard, who is heard of, and since when a row is late."""

    terms: Mapping[int, Sequence[TermRow]]
    is_heard: Callable[[str], bool]
    before_us: int

    def owner(self, row: LateRow) -> str:
        """Who may fire the row; empty: nobody."""
        terms = self.terms.get(row.shard, ())
        covering = [term for term in terms if term.state is TermState.OPEN and term.covers(row.bucket)]
        return covering[-1].owner if covering else ""

    def cause_of(self, row: LateRow, going: Collection[str]) -> Cause:
        """Why this row is still there; `going` are the owners that fired late rows lately.

        What holds a whole shard up comes first.
        """
        owner = self.owner(row)
        if not owner:
            return Cause(MissedFire.NO_TERM, f"shard {row.shard}")
        if not self.is_heard(owner):
            return Cause(MissedFire.OWNER_SILENT, f"shard {row.shard} of {owner}")
        if not row.has_version:
            return Cause(MissedFire.UNREADABLE, f"there is no version {row.job_version} of job {row.job_id}")
        if row.error:
            return Cause(MissedFire.SET_ASIDE, row.error)
        if row.due_at_us >= self.before_us:
            return Cause(MissedFire.CATCH_UP, f"namespace {row.namespace}")
        return Cause(MissedFire.BEHIND if owner in going else MissedFire.STUCK, owner)

    def going(self, before: Mapping[UUID, LateRow], now: Mapping[UUID, LateRow]) -> frozenset[str]:
        """The owners under which rows that were late at the look before are gone, or have moved on."""
        moved = (row for due_id, row in before.items() if due_id not in now or now[due_id].stand != row.stand)
        return frozenset(self.owner(row) for row in moved if row.due_at_us < self.before_us)


def is_put_off(row: LateRow, occurrences: Occurrences | Invalid | None, before_us: int) -> bool:
    """Whether a chain whose row lies ahead should have been fired before `before_us`, rather than being deferred.

    `occurrences` are those of its version: Invalid where they cannot be computed, None where there are none.
    """
    if occurrences is None:
        return False
    if isinstance(occurrences, Invalid) or row.back_us is not None:
        return True
    try:
        head = occurrences.at(row.scheduled_for_us)
    except SearchLimit:
        return False
    return head is not None and head.due_us < before_us
