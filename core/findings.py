"""What the reconciler finds: states of the rows that should be impossible, and what was done about each. Pure.

Made by controlplane/inspection.py, carried out by controlplane/reconciler.py, shown by AdminService.Reconcile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from uuid import UUID

from core.fence import TermRow
from core.handoff import tiles
from core.states import TermState


class FindingKind(IntEnum):
    """What is wrong. The comment says what is done about it."""

    DUE_BELOW_WATERMARK = 1  # a due row where nobody looks: landed anew at the floor
    TERMS_DO_NOT_TILE = 2  # buckets of a shard that are nobody's, or two owners': reported
    RUN_NOT_STANDING = 3  # an open run that no adoption finds: made to stand in open_runs
    RUN_WITHOUT_HOME = 4  # an open run whose home term is closed long since: a move, which brings it home
    LEASE_OVERRUN = 5  # a leased run that nobody reaps: a move, as above
    RETRY_WITHOUT_DUE_ROW = 6  # a run that rests until an attempt for which no due row stands: landed
    LOST_CHAIN = 7  # a job with occurrences to come and no due row: landed where its account ends
    LOST_CANCEL = 8  # a cancel that no worker has heeded: its owner is told again
    FORGOTTEN_RUN = 9  # a run that could start, of an owner in whose memory none waits: a move, as above
    FROZEN_SHARD = 10  # a floor that does not rise although its owner reports: a move, as above


class Repair(IntEnum):
    """How a finding is repaired."""

    RELAND = 1  # put a due row where its owner finds it
    STAND = 2  # make a run stand in open_runs
    HINT = 3  # tell the owner
    MOVE = 4  # order a move of the shard: the new owner reads everything anew


RULES: dict[FindingKind, Repair | None] = {
    FindingKind.DUE_BELOW_WATERMARK: Repair.RELAND,
    FindingKind.TERMS_DO_NOT_TILE: None,
    FindingKind.RUN_NOT_STANDING: Repair.STAND,
    FindingKind.RUN_WITHOUT_HOME: Repair.MOVE,
    FindingKind.LEASE_OVERRUN: Repair.MOVE,
    FindingKind.RETRY_WITHOUT_DUE_ROW: Repair.RELAND,
    FindingKind.LOST_CHAIN: Repair.RELAND,
    FindingKind.LOST_CANCEL: Repair.HINT,
    FindingKind.FORGOTTEN_RUN: Repair.MOVE,
    FindingKind.FROZEN_SHARD: Repair.MOVE,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should be impossible. `since_us` is an instant in microseconds, 0 where nobody knows it.

    `how` says what was done, or why nothing was. `subject` names the thing: a run, a job, a due row, a term, a shard.
    """

    kind: FindingKind
    shard: int
    subject: str
    detail: str
    since_us: int = 0
    repaired: bool = False
    how: str = ""

    @property
    def rule(self) -> Repair | None:
        """How it is to be repaired, None where only a person can know."""
        return RULES[self.kind]

    def settled(self, how: str) -> Finding:
        """The same, repaired."""
        return replace(self, repaired=True, how=how)

    def left(self, why: str) -> Finding:
        """The same, left as it is."""
        return replace(self, repaired=False, how=why)


@dataclass(frozen=True, slots=True)
class StrayRow:
    """A due row below the watermark of its shard; its whole key, and what it stands for."""

    shard: int
    bucket: int
    due_at_us: int
    due_id: UUID
    job_id: UUID
    watermark: int


@dataclass(frozen=True, slots=True)
class SeenRun:
    """An open run as the reconciler sees it; instants in microseconds."""

    run_id: UUID
    job_id: UUID
    job_version: int
    shard: int
    scheduled_for_us: int
    due_at_us: int
    is_leased: bool
    attempt: int
    home_term: int
    lease_until_us: int
    not_before_us: int
    cancel_requested_us: int
    gated: bool

    @property
    def is_resting(self) -> bool:
        """Whether its next attempt has a due row of its own."""
        return not self.is_leased and self.not_before_us > 0

    @property
    def keyed_ms(self) -> int:
        """The instant in its id, in milliseconds: what a walk by the primary key finds it by."""
        return (self.run_id.int >> 64) & ((1 << 48) - 1)


def faults_of_terms(rows: Sequence[TermRow]) -> list[str]:
    """What is wrong with all terms of one shard, in words; nothing for a shard that nobody has owned yet."""
    faults = tiles(rows)
    if rows and not any(row.state is TermState.OPEN for row in rows):
        faults.append("no term is open")
    return faults
