"""Runs that wait behind their gate, by job: which one may be tried next, and when. No I/O.

A run under a policy that buffers starts only when no other run of its job is open. That is decided in SQL, where runs
are leased (core/store/overlap.py); this memory only sees to it that what cannot start does not spin: of each job the
first in line is tried (it waits for a credit in routes.py like any other), the rest stay here. One that was kept back
stays too, until a run of its job ends, or the slow tick of gatekeeper.py finds its way free. A belief that is wrong
costs a refused lease or a tick, never a second start.

Memory is bounded: what does not fit waits in SQL. Once something did not fit, whatever comes later does not fit either,
until the open runs are read again: so no run is kept in memory behind an earlier one that is only in SQL, for good.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from core.policy import Overlap
from core.states import RunCause
from dispatcher.routes import WaitingRun

# In the order in which SQL lets them go: backfills behind the schedule's own.
_Turn = tuple[bool, int, UUID]


@dataclass(slots=True)
class _Line:
    """The runs of one job. `trying` is the one that is in routes or in a statement, and not in `waiting`."""

    waiting: list[tuple[_Turn, WaitingRun]] = field(default_factory=list)
    trying: WaitingRun | None = None
    # The first in line was kept back, and nothing has happened since.
    asleep: bool = False
    # A run of the job ended while one was tried: being kept back may be old news.
    stirred: bool = False

    def tries(self, run_id: UUID) -> bool:
        return self.trying is not None and self.trying.run_id == run_id


class Gates:
    """The lines of one dispatcher."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: dict[UUID, _Line] = {}
        self._held: dict[UUID, UUID] = {}
        # Jobs that cancel the others, of which a run may have something in its way: for the gatekeeper.
        self._to_make_way: set[UUID] = set()
        self._turns: deque[UUID] = deque()
        # Some waiting runs are only in SQL, since memory was full.
        self.overflowed = False

    @property
    def waiting(self) -> int:
        return len(self._held)

    def holds(self, run_id: UUID) -> bool:
        """Whether the run waits here; one that is tried is held by whoever tries it."""
        return run_id in self._held

    def waiting_runs(self) -> Iterator[WaitingRun]:
        """Every run that waits here."""
        for line in self._lines.values():
            for _, run in line.waiting:
                yield run

    # --- coming, and being tried ---

    def add(self, run: WaitingRun, *, blocked: bool | None = None) -> bool:
        """Take up a run; false when it waits in SQL alone (or another of its job, that goes after it, does).

        `blocked`: whether something was seen in its way; None when nobody has looked yet.
        """
        line = self._lines.get(run.job_id)
        if run.run_id in self._held or (line is not None and line.tries(run.run_id)):
            return True
        fits = len(self._held) < self._limit and not self.overflowed
        if not fits and not self._make_room(line, run):
            self.overflowed = True
            return False
        line = self._push(run)
        # Whoever was kept back says nothing of one that goes before it.
        line.asleep = blocked is True or (line.asleep and line.waiting[0][1] is not run)
        if blocked is not False:
            self.look_at(run)
        self.overflowed = self.overflowed or not fits
        return fits

    def next_of(self, job_id: UUID) -> WaitingRun | None:
        """Take the first in line, to be tried now; None when one is tried already, or when it would be in vain."""
        line = self._lines.get(job_id)
        if line is None or line.trying is not None or line.asleep or not line.waiting:
            return None
        _, run = heapq.heappop(line.waiting)
        del self._held[run.run_id]
        line.trying, line.stirred = run, False
        return run

    def kept_back(self, run: WaitingRun) -> None:
        """The run was tried, and something is in its way."""
        line = self._push(run)
        stirred, line.trying, line.stirred = line.stirred, None, False
        # Another one that came in between may go before it: that one is tried at once.
        line.asleep = not stirred and line.waiting[0][1] is run
        self.look_at(run)

    def started(self, run: WaitingRun) -> None:
        """The run was leased: the others wait for its end."""
        self._tried(run.job_id, run.run_id, asleep=True)

    def forget(self, run: WaitingRun) -> None:
        """The run is no longer tried, and not to be tried again: it ended, or is only in SQL from here on."""
        self._tried(run.job_id, run.run_id, asleep=False)

    # --- what happens to a job ---

    def stir(self, job_id: UUID) -> None:
        """A run of the job ended: the first in line may go, perhaps."""
        line = self._lines.get(job_id)
        if line is not None:
            line.asleep, line.stirred = False, True

    def drop_run(self, run_id: UUID) -> WaitingRun | None:
        """Forget one run that waits here: it was canceled."""
        job_id = self._held.get(run_id)
        if job_id is None:
            return None
        line = self._lines[job_id]
        run = next(run for _, run in line.waiting if run.run_id == run_id)
        self._take_out(line, run)
        self._close(job_id)
        return run

    def drop_term(self, shard: int, term: int) -> None:
        """Forget the runs of a term that is no longer held."""
        for job_id, line in list(self._lines.items()):
            for run in [run for _, run in line.waiting if (run.shard, run.term) == (shard, term)]:
                self._take_out(line, run)
            if line.trying is not None and (line.trying.shard, line.trying.term) == (shard, term):
                line.trying = None
            self._close(job_id)

    # --- for the gatekeeper ---

    def take_to_make_way(self, limit: int) -> list[WaitingRun]:
        """Of jobs that cancel the others: the newest waiting run of each, for which way is to be made."""
        found: list[WaitingRun] = []
        while self._to_make_way and len(found) < limit:
            line = self._lines.get(self._to_make_way.pop())
            runs = [] if line is None else [run for run in _all_of(line) if _cancels_others(run)]
            if runs:
                found.append(max(runs, key=lambda run: (run.due_at_us, run.run_id)))
        return found

    def look_at(self, run: WaitingRun) -> None:
        """Something may be in the way of the run: if its job cancels the others, way is to be made."""
        if _cancels_others(run):
            self._to_make_way.add(run.job_id)

    def sleepers(self, limit: int) -> list[WaitingRun]:
        """The first in line of jobs of which none is tried, the jobs in turn: perhaps their way is free by now.

        Jobs that cancel the others make way for themselves again.
        """
        if not self._turns:
            self._turns.extend(job_id for job_id, line in self._lines.items() if line.waiting)
        found: list[WaitingRun] = []
        while self._turns and len(found) < limit:
            line = self._lines.get(self._turns.popleft())
            if line is not None and line.waiting and line.trying is None:
                found.append(line.waiting[0][1])
                for run in _all_of(line):
                    self.look_at(run)
        return found

    # --- within ---

    def _push(self, run: WaitingRun) -> _Line:
        line = self._lines.setdefault(run.job_id, _Line())
        heapq.heappush(line.waiting, (_turn(run), run))
        self._held[run.run_id] = run.job_id
        return line

    def _take_out(self, line: _Line, run: WaitingRun) -> None:
        line.waiting.remove((_turn(run), run))
        heapq.heapify(line.waiting)
        del self._held[run.run_id]

    def _make_room(self, line: _Line | None, run: WaitingRun) -> bool:
        """Let the last in line of the job go for the sake of one that goes before it."""
        if line is None or not line.waiting:
            return False
        last = max(line.waiting, key=lambda entry: entry[0])
        if last[0] < _turn(run):
            return False
        self._take_out(line, last[1])
        return True

    def _tried(self, job_id: UUID, run_id: UUID, *, asleep: bool) -> None:
        line = self._lines.get(job_id)
        if line is not None and line.tries(run_id):
            line.asleep = asleep and not line.stirred
            line.trying, line.stirred = None, False
            self._close(job_id)

    def _close(self, job_id: UUID) -> None:
        line = self._lines[job_id]
        if not line.waiting and line.trying is None:
            del self._lines[job_id]
            self._to_make_way.discard(job_id)


def _all_of(line: _Line) -> list[WaitingRun]:
    waiting = [run for _, run in line.waiting]
    return waiting if line.trying is None else [line.trying, *waiting]


def _turn(run: WaitingRun) -> _Turn:
    return (run.cause is RunCause.BACKFILL, run.scheduled_for_us, run.run_id)


def _cancels_others(run: WaitingRun) -> bool:
    return run.job.spec.overlap is Overlap.CANCEL_OTHER and run.cause is not RunCause.BACKFILL
