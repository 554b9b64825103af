"""Routes: who may take a run, in which order runs leave, and what happens when memory is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.jobspec import JobSpec
from dispatcher.jobs import JobVersion
from dispatcher.routes import Routes, WaitingRun, route_of
from tests.support.dispatcher_parts import NOW_US, PlainTaker, job_version, waiting_run

WORK = ("default", "default", "work")
OTHER = ("default", "default", "other")


def other_job() -> JobVersion:
    return job_version(JobSpec(handler="other"))


def wait(routes: Routes, count: int, job: JobVersion | None = None) -> list[WaitingRun]:
    runs = [waiting_run(job, due_at_us=NOW_US + n) for n in range(count)]
    for run in runs:
        routes.wait(run)
    return runs


def test_the_route_of_a_job_is_its_namespace_queue_and_handler() -> None:
    job = job_version(JobSpec(handler="h", queue="q"), namespace="n")
    assert route_of(job) == ("n", "q", "h")


def test_credits_are_reserved_in_turn_and_only_of_who_serves_the_route() -> None:
    routes = Routes(100)
    first, second, stranger = PlainTaker({WORK}, 2), PlainTaker({WORK}, 1), PlainTaker({OTHER}, 5)
    for session in (first, second, stranger):
        routes.join(session)
    taken = [routes.reserve(WORK) for _ in range(4)]
    assert taken == [first, second, first, None]
    assert stranger.credits == 5


def test_runs_meet_credits_oldest_first() -> None:
    routes = Routes(100)
    runs = wait(routes, 5)
    routes.join(PlainTaker({WORK}, 3))
    assert [run for run, _ in routes.match(100)] == runs[:3]
    assert routes.match(100) == []
    assert (routes.waiting, list(routes.waiting_runs())) == (2, runs[3:])


def test_a_batch_takes_no_more_than_its_limit() -> None:
    routes = Routes(100)
    wait(routes, 5)
    taker = PlainTaker({WORK}, 5)
    routes.join(taker)
    assert len(routes.match(2)) == 2
    assert taker.credits == 3


def test_a_crowd_on_one_route_does_not_keep_the_others_waiting() -> None:
    routes = Routes(1000)
    wait(routes, 50)
    wait(routes, 5, other_job())
    routes.join(PlainTaker({WORK, OTHER}, 10))
    handlers = [run.job.spec.handler for run, _ in routes.match(500)]
    assert handlers.count("other") == 5


def test_single_credits_go_round_the_routes() -> None:
    routes, taker = Routes(1000), PlainTaker({WORK, OTHER}, 0)
    routes.join(taker)
    wait(routes, 10)
    wait(routes, 10, other_job())
    handlers = []
    for _ in range(6):
        taker.credits = 1
        handlers += [run.job.spec.handler for run, _ in routes.match(500)]
    assert handlers == ["work", "other"] * 3


def test_runs_that_nobody_serves_are_counted_and_do_not_hold_up_others() -> None:
    routes = Routes(100)
    wait(routes, 3, other_job())
    (mine,) = wait(routes, 1)
    taker = PlainTaker({WORK}, 5)
    routes.join(taker)
    assert [run for run, _ in routes.match(100)] == [mine]
    assert (routes.without_taker(), routes.demand(taker)) == (3, 0)


def test_a_session_that_left_gets_nothing() -> None:
    routes, taker = Routes(100), PlainTaker({WORK})
    routes.join(taker)
    assert routes.has_taker(WORK)
    routes.leave(taker)
    assert not routes.has_taker(WORK)
    assert routes.reserve(WORK) is None


def test_memory_holds_no_more_runs_than_its_bound_and_says_so() -> None:
    routes = Routes(3)
    runs = [waiting_run() for _ in range(4)]
    assert [routes.wait(run) for run in runs] == [True, True, True, False]
    assert routes.waiting == 3
    assert not routes.holds(runs[3].run_id)
    assert routes.overflowed == {WORK}
    assert routes.is_waiting(WORK), "a newer run must not overtake one that waits in SQL alone"


def test_a_run_waits_once_however_often_it_is_handed_in() -> None:
    routes = Routes(3)
    run = waiting_run()
    assert routes.wait(run)
    assert routes.wait(run)
    assert routes.waiting == 1


def test_a_lost_term_takes_its_runs_with_it() -> None:
    routes = Routes(100)
    mine, lost = waiting_run(term=2), waiting_run(term=1)
    for run in (lost, mine):
        routes.wait(run)
    routes.drop_term(0, 1)
    assert list(routes.waiting_runs()) == [mine]
    assert (routes.waiting, routes.holds(lost.run_id)) == (1, False)
    routes.drop_term(0, 2)
    assert not routes.is_waiting(WORK)


def test_a_canceled_run_leaves_and_the_others_keep_their_order() -> None:
    routes = Routes(100)
    runs = wait(routes, 3)
    routes.drop_run(runs[1].run_id)
    routes.drop_run(runs[1].run_id)
    assert list(routes.waiting_runs()) == [runs[0], runs[2]]
    assert routes.waiting == 2


def test_the_oldest_waiting_run_is_known() -> None:
    routes = Routes(100)
    assert routes.oldest_due_us is None
    routes.wait(waiting_run(other_job(), due_at_us=NOW_US + 5))
    routes.wait(waiting_run(due_at_us=NOW_US + 2))
    assert routes.oldest_due_us == NOW_US + 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_no_run_is_lost_doubled_or_sent_without_a_credit(steps: list[tuple[bool, int]]) -> None:
    routes, taker = Routes(10), PlainTaker({WORK, OTHER}, 0)
    routes.join(taker)
    jobs = [job_version(), other_job()]
    taken_in: list[WaitingRun] = []
    matched: list[WaitingRun] = []
    granted = 0
    for handed_in, number in steps:
        if handed_in:
            run = waiting_run(jobs[number % 2])
            if routes.wait(run):
                taken_in.append(run)
        else:
            taker.credits += number
            granted += number
            matched += [run for run, _ in routes.match(2)]
    everything = matched + list(routes.waiting_runs())
    assert sorted(r.run_id for r in everything) == sorted(r.run_id for r in taken_in)
    assert len(matched) == taker.taken <= granted
    assert routes.waiting == len(everything) - len(matched) <= 10
