"""The credit allocator: the invariant under any interleaving, and where credits go."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tidewheel.credits import StreamCredit, allocate


def streams(*unused: int, waiting: tuple[int, ...] = ()) -> list[StreamCredit]:
    accounts = [StreamCredit(total=count, granted_turn=at) for at, count in enumerate(unused)]
    for account, count in zip(accounts, waiting, strict=False):
        account.demand(count)
    return accounts


def test_the_first_streams_share_the_slots_evenly() -> None:
    assert allocate(10, 0, streams(0, 0, 0)).grants == [4, 3, 3]


def test_every_stream_gets_one_where_slots_allow() -> None:
    assert sorted(allocate(3, 0, streams(0, 0, 0)).grants) == [1, 1, 1]
    assert sum(allocate(2, 0, streams(0, 0, 0)).grants) == 2


def test_free_credits_go_where_runs_wait() -> None:
    assert allocate(10, 0, streams(1, 1, waiting=(0, 20))).grants == [0, 8]


def test_unused_credits_are_asked_back_for_demand_but_for_the_last_one() -> None:
    allocation = allocate(10, 0, streams(5, 5, waiting=(0, 20)))
    assert (allocation.grants, allocation.reclaims) == ([0, 0], [4, 0])


def test_no_more_is_asked_back_than_is_wanted() -> None:
    assert allocate(10, 0, streams(5, 5, waiting=(0, 2))).reclaims == [2, 0]


def test_without_demand_nothing_is_asked_back() -> None:
    assert allocate(10, 0, streams(9, 1)).reclaims == [0, 0]


def test_a_new_stream_gets_its_first_credit_from_the_others() -> None:
    assert allocate(10, 0, streams(10, 0)).reclaims == [1, 0]


def test_with_fewer_slots_than_streams_the_credit_goes_to_demand() -> None:
    assert allocate(1, 0, streams(1, 0, waiting=(0, 3))).reclaims == [1, 0]
    assert allocate(1, 0, streams(0, 0, waiting=(0, 3))).grants == [0, 1]


def test_with_fewer_slots_than_streams_and_demand_everywhere_they_take_turns() -> None:
    accounts = streams(0, 0, waiting=(5, 5))
    order = []
    for turn in range(10, 14):
        grants = allocate(1, 0, accounts).grants
        order.append(grants.index(1))
        accounts[order[-1]].grant(1, turn)
        accounts[order[-1]].receive(1)
    assert order == [0, 1, 0, 1]


def test_an_unanswered_reclaim_is_not_repeated_and_blocks_grants() -> None:
    accounts = streams(5, 5, waiting=(0, 20))
    accounts[0].reclaim(4)
    assert allocate(10, 0, accounts).reclaims == [0, 0]
    assert allocate(20, 0, accounts).grants[0] == 0


def test_a_reclaim_that_brought_nothing_is_not_repeated_at_once() -> None:
    accounts = streams(5, 5, waiting=(0, 20))
    accounts[0].reclaim(4)
    assert accounts[0].release(0)
    assert allocate(10, 0, accounts).reclaims == [0, 0]
    accounts[0].demand(0)
    assert allocate(10, 0, accounts).reclaims == [4, 0]


@given(
    slots=st.integers(1, 50),
    unused=st.lists(st.integers(0, 10), max_size=8),
    waiting=st.lists(st.integers(0, 30), min_size=8, max_size=8),
    taken=st.integers(0, 60),
)
def test_an_allocation_never_grants_beyond_the_slots(
    slots: int, unused: list[int], waiting: list[int], taken: int
) -> None:
    accounts = streams(*unused, waiting=tuple(waiting))
    allocation = allocate(slots, taken, accounts)
    assert sum(allocation.grants) <= max(0, slots - taken - sum(unused))
    for has, back in zip(unused, allocation.reclaims, strict=True):
        assert 0 <= back <= has


class _Dispatcher:
    """The other end of one stream: it uses any credit it believes to have; frames travel in order, but late."""

    def __init__(self) -> None:
        self.account = StreamCredit()
        self.to_dispatcher: deque[tuple[str, int]] = deque()
        self.to_worker: deque[tuple[str, int]] = deque()
        self.total = 0
        self.sent = 0


class CreditsUnderAnyInterleaving(RuleBasedStateMachine):
    """Streams come and go, runs start and end, frames lag: a slot is free for every assignment that arrives."""

    @initialize(slots=st.integers(1, 12), count=st.integers(1, 4))
    def begin(self, slots: int, count: int) -> None:
        self.slots = slots
        self.dispatchers = [_Dispatcher() for _ in range(count)]
        self.running = 0
        self.turns = 0

    @rule()
    def turn(self) -> None:
        accounts = [dispatcher.account for dispatcher in self.dispatchers]
        allocation = allocate(self.slots, self.running, accounts)
        for dispatcher, grant, back in zip(self.dispatchers, allocation.grants, allocation.reclaims, strict=True):
            if grant:
                self.turns += 1
                dispatcher.account.grant(grant, self.turns)
                dispatcher.to_dispatcher.append(("grant", dispatcher.account.total))
            if back:
                dispatcher.account.reclaim(back)
                dispatcher.to_dispatcher.append(("reclaim", back))

    @rule(at=st.integers(0, 3), wanted=st.integers(1, 5))
    def dispatcher_sends(self, at: int, wanted: int) -> None:
        dispatcher = self.dispatchers[at % len(self.dispatchers)]
        count = min(wanted, dispatcher.total - dispatcher.sent)
        if count > 0:
            dispatcher.sent += count
            dispatcher.to_worker.append(("assigned", count))

    @rule(at=st.integers(0, 3), waiting=st.integers(0, 20))
    def dispatcher_has_demand(self, at: int, waiting: int) -> None:
        self.dispatchers[at % len(self.dispatchers)].to_worker.append(("demand", waiting))

    @rule(at=st.integers(0, 3))
    def dispatcher_reads(self, at: int) -> None:
        dispatcher = self.dispatchers[at % len(self.dispatchers)]
        if not dispatcher.to_dispatcher:
            return
        kind, count = dispatcher.to_dispatcher.popleft()
        if kind == "grant":
            assert count > dispatcher.total
            dispatcher.total = count
        else:
            released = min(count, dispatcher.total - dispatcher.sent)
            dispatcher.total -= released
            dispatcher.to_worker.append(("released", released))

    @rule(at=st.integers(0, 3))
    def worker_reads(self, at: int) -> None:
        dispatcher = self.dispatchers[at % len(self.dispatchers)]
        if not dispatcher.to_worker:
            return
        kind, count = dispatcher.to_worker.popleft()
        if kind == "assigned":
            assert dispatcher.account.receive(count) == 0, "a credit that was used is one that we had granted"
            self.running += count
        elif kind == "demand":
            dispatcher.account.demand(count)
        else:
            assert dispatcher.account.release(count)

    @rule()
    def a_handler_ends(self) -> None:
        self.running = max(0, self.running - 1)

    @rule(at=st.integers(0, 3))
    def a_stream_breaks(self, at: int) -> None:
        self.dispatchers[at % len(self.dispatchers)] = _Dispatcher()

    @invariant()
    def credits_and_running_fit_the_slots(self) -> None:
        if hasattr(self, "dispatchers"):
            assert sum(one.account.unused for one in self.dispatchers) + self.running <= self.slots


CreditsUnderAnyInterleaving.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestCreditsUnderAnyInterleaving = CreditsUnderAnyInterleaving.TestCase
