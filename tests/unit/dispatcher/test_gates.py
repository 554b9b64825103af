"""Gates: who is tried next, what wakes a line, and what happens when memory is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.jobspec import JobSpec
from core.policy import Overlap
from core.states import RunCause
from dispatcher.gates import Gates
from dispatcher.jobs import JobVersion
from dispatcher.routes import WaitingRun
from tests.support.dispatcher_parts import NOW_US, job_version, waiting_run


def run_of(job: JobVersion, number: int = 0, **changes: object) -> WaitingRun:
    """The gated run of the job that comes so manyth."""
    at_us = NOW_US + number
    values = {"scheduled_for_us": at_us, "due_at_us": at_us, "gated": True} | changes
    return waiting_run(job, **values)


def lined_up(gates: Gates, job: JobVersion, count: int) -> list[WaitingRun]:
    runs = [run_of(job, n) for n in range(count)]
    for run in runs:
        gates.add(run)
    return runs


def canceling() -> JobVersion:
    return job_version(JobSpec(handler="work", overlap=Overlap.CANCEL_OTHER))


class TestALine:
    def test_lets_one_run_of_a_job_be_tried_at_a_time_the_first_one(self) -> None:
        gates, job = Gates(100), job_version()
        second, first = run_of(job, 2), run_of(job, 1)
        gates.add(second)
        gates.add(first)
        assert gates.next_of(job.job_id) is first
        assert gates.next_of(job.job_id) is None
        assert (gates.waiting, list(gates.waiting_runs())) == (1, [second])

    def test_puts_backfills_behind_the_schedules_own_runs(self) -> None:
        gates, job = Gates(100), job_version()
        gates.add(run_of(job, 1, cause=RunCause.BACKFILL))
        own = run_of(job, 2)
        gates.add(own)
        assert gates.next_of(job.job_id) is own

    def test_of_one_job_does_not_hold_up_another(self) -> None:
        gates, one, other = Gates(100), job_version(), job_version()
        runs = [run_of(one), run_of(other)]
        for run in runs:
            gates.add(run)
        assert [gates.next_of(job.job_id) for job in (one, other)] == runs

    def test_sleeps_once_its_first_run_was_kept_back_until_a_run_of_the_job_ends(self) -> None:
        gates, job = Gates(100), job_version()
        first, _ = lined_up(gates, job, 2)
        gates.next_of(job.job_id)
        gates.kept_back(first)
        assert gates.next_of(job.job_id) is None
        assert gates.sleepers(10) == [first]
        gates.stir(job.job_id)
        assert gates.next_of(job.job_id) is first

    def test_sleeps_from_the_start_where_something_was_seen_in_the_way(self) -> None:
        gates, job = Gates(100), job_version()
        gates.add(run_of(job), blocked=True)
        assert gates.next_of(job.job_id) is None

    def test_does_not_sleep_when_a_run_ended_while_its_first_was_tried(self) -> None:
        gates, job = Gates(100), job_version()
        (first,) = lined_up(gates, job, 1)
        gates.next_of(job.job_id)
        gates.stir(job.job_id)
        gates.kept_back(first)
        assert gates.next_of(job.job_id) is first

    def test_tries_an_earlier_one_that_came_while_its_first_was_tried(self) -> None:
        gates, job = Gates(100), job_version()
        late, early = run_of(job, 2), run_of(job, 1)
        gates.add(late)
        gates.next_of(job.job_id)
        gates.add(early)
        gates.kept_back(late)
        assert gates.next_of(job.job_id) is early

    def test_sleeps_while_its_first_runs_and_goes_on_after_its_end(self) -> None:
        gates, job = Gates(100), job_version()
        first, second = lined_up(gates, job, 2)
        gates.next_of(job.job_id)
        gates.started(first)
        assert gates.next_of(job.job_id) is None
        gates.stir(job.job_id)
        assert gates.next_of(job.job_id) is second

    def test_goes_on_at_once_where_the_run_ended_before_its_start_was_known(self) -> None:
        gates, job = Gates(100), job_version()
        first, second = lined_up(gates, job, 2)
        gates.next_of(job.job_id)
        gates.stir(job.job_id)
        gates.started(first)
        assert gates.next_of(job.job_id) is second

    def test_goes_on_at_once_when_its_first_is_forgotten(self) -> None:
        gates, job = Gates(100), job_version()
        first, second = lined_up(gates, job, 2)
        gates.next_of(job.job_id)
        gates.forget(first)
        assert gates.next_of(job.job_id) is second

    def test_loses_a_run_that_was_canceled(self) -> None:
        gates, job = Gates(100), job_version()
        first, second = lined_up(gates, job, 2)
        assert gates.drop_run(second.run_id) is second
        assert gates.drop_run(second.run_id) is None
        assert gates.next_of(job.job_id) is first
        assert gates.drop_run(first.run_id) is None, "it is held by whoever tries it"

    def test_takes_a_run_up_once(self) -> None:
        gates, job = Gates(100), job_version()
        run = run_of(job)
        assert gates.add(run)
        assert gates.add(run)
        assert gates.waiting == 1
        gates.next_of(job.job_id)
        assert gates.add(run)
        assert (gates.waiting, gates.holds(run.run_id)) == (0, False)


def test_a_term_that_is_dropped_takes_its_runs_along_also_the_one_that_is_tried() -> None:
    gates, job = Gates(100), job_version()
    first, second = lined_up(gates, job, 2)
    gates.next_of(job.job_id)
    gates.drop_term(0, 1)
    assert (gates.waiting, gates.next_of(job.job_id)) == (0, None)
    for run in (first, second):
        assert gates.add(run)
    assert gates.next_of(job.job_id) is first
    gates.drop_term(0, 2)
    assert gates.holds(second.run_id)


class TestMakingWay:
    def test_is_asked_for_by_the_newest_run_of_a_job_that_cancels_the_others(self) -> None:
        gates, job = Gates(100), canceling()
        runs = lined_up(gates, job, 3)
        gates.add(run_of(job_version()))
        assert gates.take_to_make_way(10) == [runs[-1]]
        assert gates.take_to_make_way(10) == []

    def test_is_asked_for_by_a_run_that_is_tried_and_has_no_credit(self) -> None:
        gates, job = Gates(100), canceling()
        (run,) = lined_up(gates, job, 1)
        assert gates.next_of(job.job_id) is run
        assert gates.take_to_make_way(10) == [run]

    def test_is_not_asked_for_where_nothing_was_seen_in_the_way(self) -> None:
        gates, job = Gates(100), canceling()
        gates.add(run_of(job), blocked=False)
        assert gates.take_to_make_way(10) == []

    def test_is_asked_for_again_by_one_that_was_kept_back_and_by_one_that_sleeps(self) -> None:
        gates, job = Gates(100), canceling()
        (run,) = lined_up(gates, job, 1)
        gates.take_to_make_way(10)
        gates.next_of(job.job_id)
        gates.kept_back(run)
        assert gates.take_to_make_way(10) == [run]
        gates.sleepers(10)
        assert gates.take_to_make_way(10) == [run]

    def test_is_not_asked_for_by_a_backfill(self) -> None:
        gates, job = Gates(100), canceling()
        gates.add(run_of(job, cause=RunCause.BACKFILL))
        assert gates.take_to_make_way(10) == []


def test_sleepers_are_looked_at_in_turn() -> None:
    gates, jobs = Gates(100), [job_version() for _ in range(5)]
    for job in jobs:
        gates.add(run_of(job), blocked=True)
    seen = [run.job_id for _ in range(3) for run in gates.sleepers(2)]
    assert seen == [job.job_id for job in jobs]
    assert [run.job_id for run in gates.sleepers(2)] == [job.job_id for job in jobs[:2]]


class TestAFullMemory:
    def test_takes_nothing_more_until_the_open_runs_are_read_again(self) -> None:
        gates, job, other = Gates(2), job_version(), job_version()
        lined_up(gates, job, 2)
        assert not gates.add(run_of(other))
        gates.drop_run(next(gates.waiting_runs()).run_id)
        assert not gates.add(run_of(other)), "an earlier one of its job may be in SQL alone"
        gates.overflowed = False
        assert gates.add(run_of(other))

    def test_keeps_the_first_in_line_and_lets_the_last_go(self) -> None:
        gates, job = Gates(2), job_version()
        late = [run_of(job, n) for n in (5, 6)]
        for run in late:
            gates.add(run)
        early = run_of(job, 1)
        assert not gates.add(early), "one of them waits in SQL alone"
        assert gates.overflowed
        assert (gates.holds(early.run_id), gates.holds(late[1].run_id), gates.waiting) == (True, False, 2)
        assert gates.next_of(job.job_id) is early


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 5)), max_size=60))
def test_whatever_happens_one_is_tried_at_a_time_and_none_is_lost(acts: list[tuple[int, int, int]]) -> None:
    gates, jobs = Gates(100), [job_version(), canceling(), job_version()]
    tried: dict[int, WaitingRun] = {}
    waiting: list[set[int]] = [set(), set(), set()]
    known = [{n: run_of(job, n) for n in range(6)} for job in jobs]
    for which, act, number in acts:
        job_id = jobs[which].job_id
        if act <= 1:
            gates.add(known[which][number], blocked=bool(act))
            if tried.get(which) is not known[which][number]:
                waiting[which].add(number)
        elif act == 2:
            found = gates.next_of(job_id)
            if found is not None:
                assert which not in tried
                tried[which] = found
                waiting[which].remove(min(waiting[which]))
        elif which in tried:
            run = tried.pop(which)
            {3: gates.kept_back, 4: gates.started, 5: gates.forget, 6: gates.forget}[act](run)
            if act == 3:
                waiting[which].add(run.scheduled_for_us - NOW_US)
        if number == 5:
            gates.stir(job_id)
    assert gates.waiting == sum(map(len, waiting))
    for which, job in enumerate(jobs):
        if which in tried:
            gates.forget(tried.pop(which))
        gates.stir(job.job_id)
        while (following := gates.next_of(job.job_id)) is not None:
            assert following.scheduled_for_us - NOW_US == min(waiting[which])
            waiting[which].remove(min(waiting[which]))
            gates.started(following)
            gates.stir(job.job_id)
        assert not waiting[which]
    assert gates.waiting == 0
