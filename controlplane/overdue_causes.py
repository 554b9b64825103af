"""Says why a due row was not fired in time, from what was read about it. Pure. Called by missed_fires.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from core.catch_up import LATE_AFTER_US
from core.fence import TermRow
from core.states import TermState
from core.store.overdue import LateRow
from core.telemetry.metrics import MissedFire

WORDS = {
    MissedFire.NO_TERM: "no dispatcher owns their shard",
    MissedFire.OWNER_SILENT: "the owner of their shard is not heard of",
    MissedFire.SET_ASIDE: "their job could not be read and is set aside",
    MissedFire.UNREADABLE: "the version that they belong to cannot be read",
    MissedFire.CATCH_UP: "they wait for the catch-up pace of their namespace",
    MissedFire.STUCK: "their owner is alive and does not fire them",
    MissedFire.LOST_CHAIN: "their job has occurrences to come, and no due row stands for them",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one row was not fired; `detail` names what is at fault, where there is something to name."""

    reason: MissedFire
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was known around a look: the newest terms by shard, who is heard of, and the time."""

    terms: Mapping[int, Sequence[TermRow]]
    is_heard: Callable[[str], bool]
    now_us: int

    def owner(self, shard: int, bucket: int) -> str:
        """Who may fire a row of that bucket; empty: nobody."""
        covering = [t for t in self.terms.get(shard, ()) if t.state is TermState.OPEN and t.covers(bucket)]
        return covering[-1].owner if covering else ""

    def cause_of(self, row: LateRow, going: Collection[tuple[str, str]]) -> Cause:
        """Why this row is still there; `going` is what `moving` found. What holds a whole shard up comes first."""
        owner = self.owner(row.shard, row.bucket)
        if not owner:
            return Cause(MissedFire.NO_TERM, f"shard {row.shard}")
        if not self.is_heard(owner):
            return Cause(MissedFire.OWNER_SILENT, f"shard {row.shard} of {owner}")
        if not row.has_version:
            return Cause(MissedFire.UNREADABLE, f"there is no version {row.job_version} of job {row.job_id}")
        if row.error:
            return Cause(MissedFire.SET_ASIDE, row.error)
        if self.now_us - row.due_at_us > LATE_AFTER_US and (owner, row.namespace) in going:
            return Cause(MissedFire.CATCH_UP, f"namespace {row.namespace}")
        return Cause(MissedFire.STUCK, owner)


def moving(
    before: Mapping[UUID, LateRow], now: Mapping[UUID, LateRow], owner: Callable[[int, int], str]
) -> frozenset[tuple[str, str]]:
    """The (owner, namespace) pairs in which late rows were fired since the look before: they go or move on."""
    return frozenset(
        (owner(row.shard, row.bucket), row.namespace)
        for due_id, row in before.items()
        if due_id not in now or now[due_id].stand != row.stand
    )
