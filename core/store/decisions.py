"""What the due loop decided, and what firing made of it: the values that go into and come out of core/store/firing.py.

Instants are microseconds since the epoch. Pure: no SQL here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from core.fence import FenceView
from core.policy import Overlap
from core.states import RunCause, SkipReason


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The right of one worker to run the attempt that a statement makes; times in microseconds."""

    worker: str
    token_hash: bytes
    until_us: int


@dataclass(frozen=True, slots=True)
class DueKey:
    """Where a due row stands, and under which term it is acted on."""

    shard: int
    term: int
    bucket: int
    due_at_us: int
    due_id: UUID


@dataclass(frozen=True, slots=True)
class NewRun:
    """The run that an occurrence makes: leased to a worker, or waiting for a credit when `lease` is None."""

    run_id: UUID
    scheduled_for_us: int
    due_at_us: int
    lease: LeaseGrant | None
    overlap: Overlap
    # Under Overlap.BUFFER_ALL: how many runs may wait for the open one.
    max_buffered: int = 1


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Occurrences from `from_us` to `to_us`, both inclusive, that are recorded without a run."""

    from_us: int
    to_us: int
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class NextOccurrence:
    """Where the chain stands afterwards; `bucket` is that of due_at_us before the floor is applied.

    `back_us` is the next missed occurrence that a catch-up with the newest first has still to run, `back_to_us` the
    last one; both None when there is none.
    """

    bucket: int
    due_at_us: int
    scheduled_for_us: int
    back_us: int | None = None
    back_to_us: int | None = None


@dataclass(frozen=True, slots=True)
class FireChain:
    """One decision about one due occurrence of a job."""

    key: DueKey
    job_id: UUID
    job_version: int
    # The version that the job must still have; the decision was made for it.
    expect_version: int
    run: NewRun | None
    skipped: SkippedRange | None
    next: NextOccurrence | None
    # Open runs of the shard older than this all stand in open_runs.
    open_from_us: int
    # A run that is made older than this stands there from its birth: the mark is about to pass it.
    stand_before_us: int = 0


@dataclass(frozen=True, slots=True)
class FireRun:
    """The next attempt of the run `key.due_id`, leased or made ready to wait."""

    key: DueKey
    lease: LeaseGrant | None
    # As in FireChain.
    stand_before_us: int = 0


@dataclass(frozen=True, slots=True)
class MadeRun:
    """The run behind a consumed due row, as it stands after the statement.

    `attempt` 0 waits for its first credit or, if it is `gated`, perhaps for another run of its job to end, also where a
    lease was offered for it. `blocked`: another one was seen in its way.
    """

    attempt: int
    uncounted: int
    scheduled_for_us: int
    due_at_us: int
    trace: str = ""
    payload: bytes | None = None
    progress: bytes | None = None
    gated: bool = False
    blocked: bool = False
    cause: RunCause = RunCause.SCHEDULE


@dataclass(frozen=True, slots=True)
class Fired:
    """What a batch did, by position in the batch.

    A position is not in `consumed` where the due row was left alone: fence lost, job changed, or row gone. A consumed
    position that is not in `made` has no run to start: an overlap (then its reason stands in `skipped`), a run id that
    was there already, or a canceled run.
    """

    fences: dict[tuple[int, int], FenceView]
    consumed: frozenset[int]
    made: dict[int, MadeRun]
    skipped: dict[int, SkipReason] = field(default_factory=dict)
