"""Drafts what firing writes: for each due row of a batch the statement's item, with the lease it draws for its run.

Called by the due loop. It reserves credits and touches the agenda only to keep away what cannot be fired now: rows of
jobs that cannot be read, a job's second occurrence in one batch, which must see the run of the first, and late runs
that wait for their turn in the pace of their namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from core.clock import US_PER_S
from core.states import DueKind
from core.store.decisions import FireChain, FireRun
from core.store.discovery import DueRow
from dispatcher.delivery import Delivery, DrawnLease
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import JobVersion, Unreadable
from dispatcher.pace import HORIZON_US, Pace
from dispatcher.planner import SET_ASIDE_RETRY_US, Decision, chain_item, decide, due_key, put_off, set_aside
from dispatcher.presence import Presence
from dispatcher.routes import route_of
from dispatcher.runtime import Memory, Runtime


@dataclass(slots=True)
class Draft:
    """A due row on its way through a statement, with the lease that was drawn for it."""

    row: DueRow
    job: JobVersion | None
    item: FireChain | FireRun
    drawn: DrawnLease | None


@dataclass(slots=True)
class Drafts:
    """One batch, by statement; and the errors of jobs: of those that cannot be read, and "" where that is over."""

    moving: list[Draft] = field(default_factory=list)
    ending: list[Draft] = field(default_factory=list)
    readying: list[Draft] = field(default_factory=list)
    errors: dict[UUID, tuple[int, int, UUID, str]] = field(default_factory=dict)

    @property
    def parts(self) -> list[list[Draft]]:
        """The statements that have something to write."""
        return [part for part in (self.moving, self.ending, self.readying) if part]


class Drafting:
    """Turns due rows under held terms into items. Their jobs are loaded already."""

    def __init__(self, runtime: Runtime, memory: Memory, delivery: Delivery) -> None:
        self._runtime = runtime
        self._memory = memory
        self._delivery = delivery
        self._pace = Pace(runtime.settings.catch_up_runs_per_s)
        self.presence = Presence()

    def draft(self, held: Mapping[DueRow, HeldTerm], now_us: int) -> Drafts:
        """Decide about every row, in the order given."""
        self.presence.look(now_us)
        drafts = Drafts()
        seen: set[UUID] = set()
        for row, term in held.items():
            job = self._memory.jobs.get((row.job_id, row.job_version))
            if isinstance(job, JobVersion) and job.was_set_aside:
                self._is_well_again(row, term, drafts)
            if job is None or (row.kind is DueKind.OCCURRENCE and row.job_id in seen):
                self._memory.agenda.put_back(row)  # its turn comes with the next batch
            elif isinstance(job, Unreadable):
                self._keep_away(row, job, term, now_us, drafts)
            elif row.kind is DueKind.RUN:
                drafts.readying.append(self._run(row, job, term, now_us))
            else:
                draft = self._occurrence(row, job, term, now_us)
                if draft is None:
                    continue
                seen.add(row.job_id)
                moves = isinstance(draft.item, FireChain) and draft.item.next is not None
                (drafts.moving if moves else drafts.ending).append(draft)
        return drafts

    def _occurrence(self, row: DueRow, job: JobVersion, held: HeldTerm, now_us: int) -> Draft | None:
        """The row's draft; None where it waits in memory."""
        decision = decide(row, job, now_us, self._runtime.scale)
        turn_us = self._turn_us(row, job, decision, held, now_us)
        if turn_us > now_us + HORIZON_US:
            return Draft(row, job, put_off(row, job, held, turn_us, self._runtime.scale), None)
        if turn_us > now_us:
            self._memory.agenda.postpone(row, turn_us)
            return None
        drawn = self._draw(job, now_us) if decision.run is not None else None
        return Draft(row, job, chain_item(row, job, decision, None if drawn is None else drawn.grant, held), drawn)

    def _turn_us(self, row: DueRow, job: JobVersion, decision: Decision, held: HeldTerm, now_us: int) -> int:
        """When the decision may be carried out: a late run waits for its turn, and lets go first what is on time."""
        run = decision.run
        if run is None or not decision.late or run.due_us >= self._attended_since_us(job, held, now_us):
            return now_us
        return self._pace.ask(job.namespace, row.id, now_us, decision.yields_us)

    def _attended_since_us(self, job: JobVersion, held: HeldTerm, now_us: int) -> int:
        """Since when this dispatcher would have fired at their time the occurrences of this version."""
        held_for_s = self._runtime.clock.monotonic_s() - held.since_s
        return max(now_us - round(held_for_s * US_PER_S), self.presence.since_us, job.cutover_us)

    def _run(self, row: DueRow, job: JobVersion, held: HeldTerm, now_us: int) -> Draft:
        drawn = self._draw(job, now_us)
        lease = None if drawn is None else drawn.grant
        return Draft(row, job, FireRun(due_key(row, held.term), lease, held.stand_before_us), drawn)

    def _keep_away(self, row: DueRow, broken: Unreadable, held: HeldTerm, now_us: int, drafts: Drafts) -> None:
        """A chain is moved on to another look, in SQL too; a run, and a row without a job, stay where they are."""
        self._memory.jobs.forget([(row.job_id, row.job_version)])
        drafts.errors[row.job_id] = (row.shard, held.term, row.job_id, broken.error)
        if row.kind is DueKind.OCCURRENCE and broken.current_version > 0:
            item = set_aside(row, broken, held, now_us, self._runtime.scale)
            drafts.moving.append(Draft(row, None, item, None))
        else:
            self._memory.agenda.postpone(row, now_us + SET_ASIDE_RETRY_US)

    def _is_well_again(self, row: DueRow, held: HeldTerm, drafts: Drafts) -> None:
        """The job of this row could not be read once, and can be now: its error goes."""
        self._memory.jobs.forget([(row.job_id, row.job_version)])
        drafts.errors[row.job_id] = (row.shard, held.term, row.job_id, "")

    def _draw(self, job: JobVersion, now_us: int) -> DrawnLease | None:
        route = route_of(job)
        if self._memory.routes.is_waiting(route):
            return None  # a newer run does not overtake those that wait
        taker = self._memory.routes.reserve(route)
        return None if taker is None else self._delivery.draw_lease(taker, now_us)
