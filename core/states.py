"""Every state machine of the records: one transition table each. Pure.

The numbers are stored; CHECK constraints in core/store/schema mirror them, and STATES.md draws them. A test compares
the three. Nothing else in the product decides which state may follow which.
"""

from __future__ import annotations

from enum import IntEnum

from core.errors import InvariantBroken


class RunState(IntEnum):
    PENDING = 1
    LEASED = 2
    SUCCEEDED = 3
    FAILED = 4
    DEAD = 5
    CANCELED = 6


OPEN_RUN_STATES = frozenset({RunState.PENDING, RunState.LEASED})
ENDED_RUN_STATES = frozenset(RunState) - OPEN_RUN_STATES


class RunEvent(IntEnum):
    """What can happen to a run. The comment beside each says who may cause it."""

    LEASE = 1  # dispatcher: a worker's credit was reserved
    RETURN = 2  # dispatcher: the worker gave the attempt back unstarted
    SUCCEED = 3  # dispatcher: the worker's result
    RETRY = 4  # dispatcher: failed, timed out or lost, and attempts are left
    FAIL = 5  # dispatcher: the worker's result, not retryable
    EXHAUST = 6  # dispatcher: failed, timed out or lost, and no attempt is left
    CANCEL_PENDING = 7  # API, or dispatcher for a newer run of a job that cancels the others: no worker holds it
    REQUEST_CANCEL = 8  # API, or dispatcher as before: cancel of a leased run; the worker is told
    CONFIRM_CANCEL = 9  # dispatcher: the worker stopped, or the lease of a run with a requested cancel ended
    REPLAY = 10  # operator


RUN_TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    (RunState.PENDING, RunEvent.LEASE): RunState.LEASED,
    (RunState.PENDING, RunEvent.CANCEL_PENDING): RunState.CANCELED,
    (RunState.LEASED, RunEvent.RETURN): RunState.PENDING,
    (RunState.LEASED, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.LEASED, RunEvent.RETRY): RunState.PENDING,
    (RunState.LEASED, RunEvent.FAIL): RunState.FAILED,
    (RunState.LEASED, RunEvent.EXHAUST): RunState.DEAD,
    (RunState.LEASED, RunEvent.REQUEST_CANCEL): RunState.LEASED,
    (RunState.LEASED, RunEvent.CONFIRM_CANCEL): RunState.CANCELED,
    (RunState.FAILED, RunEvent.REPLAY): RunState.PENDING,
    (RunState.DEAD, RunEvent.REPLAY): RunState.PENDING,
}


def next_run_state(state: RunState, event: RunEvent) -> RunState:
    """The state after `event`. Raises InvariantBroken for a pair that the table does not list."""
    try:
        return RUN_TRANSITIONS[state, event]
    except KeyError:
        raise InvariantBroken(f"a run in state {state.name} cannot take {event.name}") from None


class AttemptOutcome(IntEnum):
    SUCCEEDED = 1
    FAILED = 2
    TIMED_OUT = 3
    LOST = 4
    CANCELED = 5


class JobState(IntEnum):
    ACTIVE = 1
    PAUSED = 2
    DELETED = 3


class JobEvent(IntEnum):
    EDIT = 1
    PAUSE = 2
    RESUME = 3
    DELETE = 4


JOB_TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (JobState.ACTIVE, JobEvent.EDIT): JobState.ACTIVE,
    (JobState.ACTIVE, JobEvent.PAUSE): JobState.PAUSED,
    (JobState.ACTIVE, JobEvent.DELETE): JobState.DELETED,
    (JobState.PAUSED, JobEvent.EDIT): JobState.PAUSED,
    (JobState.PAUSED, JobEvent.RESUME): JobState.ACTIVE,
    (JobState.PAUSED, JobEvent.DELETE): JobState.DELETED,
}


class TermState(IntEnum):
    OPEN = 1
    CLOSED = 2
    VOID = 3


class TermEvent(IntEnum):
    CLOSE = 1  # drained, given up, or taken over
    REPLACE = 2  # taken over before its range began
    SPLIT = 3  # a hand-off ended its range at a boundary; the next term goes on from there


TERM_TRANSITIONS: dict[tuple[TermState, TermEvent], TermState] = {
    (TermState.OPEN, TermEvent.SPLIT): TermState.OPEN,
    (TermState.OPEN, TermEvent.CLOSE): TermState.CLOSED,
    (TermState.OPEN, TermEvent.REPLACE): TermState.VOID,
}


class MoveState(IntEnum):
    """A planned move of one shard and how far it came; from its split on the leader follows what the terms say."""

    PENDING = 1
    ORDERED = 2
    SPLIT = 3
    COMPLETED = 4
    ROLLED_BACK = 5


OPEN_MOVE_STATES = frozenset({MoveState.PENDING, MoveState.ORDERED, MoveState.SPLIT})


class MoveEvent(IntEnum):
    ORDER = 1  # leader: within the budget of moves; its order stands in the plan
    SPLIT = 2  # target: opened its own term, in the same transaction
    COMPLETE = 3  # leader: the shard is the new owner's alone, the term before is closed
    ROLL_BACK = 4  # leader: the shard stayed, or went to somebody else; `error` says why


MOVE_TRANSITIONS: dict[tuple[MoveState, MoveEvent], MoveState] = {
    (MoveState.PENDING, MoveEvent.ORDER): MoveState.ORDERED,
    (MoveState.PENDING, MoveEvent.ROLL_BACK): MoveState.ROLLED_BACK,
    (MoveState.ORDERED, MoveEvent.SPLIT): MoveState.SPLIT,
    (MoveState.ORDERED, MoveEvent.COMPLETE): MoveState.COMPLETED,
    (MoveState.ORDERED, MoveEvent.ROLL_BACK): MoveState.ROLLED_BACK,
    (MoveState.SPLIT, MoveEvent.COMPLETE): MoveState.COMPLETED,
    (MoveState.SPLIT, MoveEvent.ROLL_BACK): MoveState.ROLLED_BACK,
}


class MoveCause(IntEnum):
    """Who wanted a move."""

    OPERATOR = 1
    REBALANCE = 2  # measured load was uneven, or an operator asked for a round of balancing
    DRAIN = 3  # its owner ends, or an operator empties it


class PlacementRuleKind(IntEnum):
    """What an operator forbids the leader; each stands in `placement_rules` until it is lifted."""

    FREEZE_ALL = 1  # no planned move at all; takeovers go on
    FREEZE_SHARD = 2  # this shard is not moved; takeovers go on
    DRAIN_DISPATCHER = 3  # this dispatcher gets no shard and loses those it has


class DueKind(IntEnum):
    """What a due row stands for."""

    OCCURRENCE = 1  # the next occurrence of one version of a job: firing it makes a run
    RUN = 2  # the next attempt of a run that is already in `runs`: a trigger, or a retry


class RunCause(IntEnum):
    SCHEDULE = 1
    TRIGGER = 2
    BACKFILL = 3  # an occurrence of the past, made on request by an operation


class SkipReason(IntEnum):
    """Why an occurrence has no run; each stands in `skips`."""

    OVERLAP = 1  # a run of the job was open, and its overlap policy is SKIP
    CATCH_UP = 2  # older than the grace, and the catch-up policy does not run it
    BAD_SCHEDULE = 3  # the stored schedule could not be read
    PAUSED = 4  # the job was paused when they became due
    BUFFER_FULL = 5  # a run of the job was open, and as many waited as its overlap policy lets wait
    DELETED = 6  # the job was deleted between the nominal instant and the due time


class OperationKind(IntEnum):
    BACKFILL = 1
    PAUSE_JOBS = 2
    RESUME_JOBS = 3
    CALENDAR_CHANGE = 4


class OperationState(IntEnum):
    RUNNING = 1
    SUCCEEDED = 2
    CANCELING = 3
    CANCELED = 4
    FAILED = 5


OPEN_OPERATION_STATES = frozenset({OperationState.RUNNING, OperationState.CANCELING})


class OperationEvent(IntEnum):
    FINISH = 1  # everything is done
    REQUEST_CANCEL = 2  # API
    CONFIRM_CANCEL = 3  # what it made and had not started is taken back
    FAIL = 4  # it cannot go on; the reason stands in `error`


OPERATION_TRANSITIONS: dict[tuple[OperationState, OperationEvent], OperationState] = {
    (OperationState.RUNNING, OperationEvent.FINISH): OperationState.SUCCEEDED,
    (OperationState.RUNNING, OperationEvent.REQUEST_CANCEL): OperationState.CANCELING,
    (OperationState.RUNNING, OperationEvent.FAIL): OperationState.FAILED,
    (OperationState.CANCELING, OperationEvent.CONFIRM_CANCEL): OperationState.CANCELED,
}
