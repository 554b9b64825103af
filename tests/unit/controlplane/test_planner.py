"""The plan: every order names what it replaces, seizes only from those who are gone, and is not turned back."""

from __future__ import annotations

from controlplane.membership import Roster
from controlplane.planner import assignments, moves, newest_terms
from core.buckets import NO_END
from core.coord.layout import Assignment, Plan
from core.fence import TermRow
from core.states import TermState


def term(shard: int, number: int, owner: str, state: TermState = TermState.OPEN) -> TermRow:
    return TermRow(shard, number, 0, NO_END, owner, state)


def roster(
    eligible: str = "", *, keepers: str = "", leaving: str = "", suspects: str = "", settling: bool = False
) -> Roster:
    """Ids of one letter each; who is eligible may keep, too."""
    return Roster(frozenset(eligible), frozenset(eligible + keepers), frozenset(leaving), frozenset(suspects), settling)


def owned(owner: str, shards: range, number: int = 1) -> dict[int, TermRow]:
    return {shard: term(shard, number, owner) for shard in shards}


FOUR = [0, 1, 2, 3]


def by_shard(orders: tuple[Assignment, ...]) -> dict[int, tuple[str, int, str, bool]]:
    return {o.shard: (o.dispatcher_id, o.replaces_term, o.replaces_owner, o.seize) for o in orders}


def test_a_shard_that_never_had_a_term_is_to_be_claimed_first() -> None:
    orders = assignments([0, 1], {}, roster("a"), None)
    assert by_shard(orders) == {0: ("a", 0, "", False), 1: ("a", 0, "", False)}


def test_an_owner_that_is_well_keeps_its_shards() -> None:
    newest = owned("a", range(2)) | {shard: term(shard, 5, "b") for shard in (2, 3)}
    orders = assignments(FOUR, newest, roster("ab"), None)
    assert by_shard(orders) == {
        0: ("a", 1, "a", False),
        1: ("a", 1, "a", False),
        2: ("b", 5, "b", False),
        3: ("b", 5, "b", False),
    }


def test_the_shards_of_a_suspect_and_of_one_who_is_gone_are_seized() -> None:
    for judged in (roster("b", suspects="a"), roster("b")):
        orders = assignments([0], owned("a", range(1), 7), judged, None)
        assert by_shard(orders) == {0: ("b", 7, "a", True)}


def test_the_shards_of_one_who_leaves_are_asked_for_not_seized() -> None:
    orders = assignments([0], owned("a", range(1)), roster("b", leaving="a"), None)
    assert by_shard(orders) == {0: ("b", 1, "a", False)}


def test_while_the_leader_is_new_an_owner_never_heard_of_keeps_what_it_has() -> None:
    assert assignments([0], owned("a", range(1)), roster("b", settling=True), None) == ()
    assert by_shard(assignments([0], owned("a", range(1)), roster("b"), None)) == {0: ("b", 1, "a", True)}


def test_an_order_under_way_stands_until_it_is_carried_out() -> None:
    moving = Plan(3, (Assignment(0, "b", 1, "a"), *(Assignment(s, "a", 1, "a") for s in (1, 2))))
    newest = owned("a", range(3))
    assert assignments([0, 1, 2], newest, roster("ab"), moving) == moving.assignments
    newest[0] = term(0, 2, "b")
    assert assignments([0, 1, 2], newest, roster("ab"), moving) == moving.assignments, "done: nothing to write"


def test_an_order_whose_target_died_is_given_to_another() -> None:
    moving = Plan(3, (Assignment(0, "b", 1, "a"),))
    orders = assignments([0], owned("a", range(1)), roster("a", suspects="b"), moving)
    assert by_shard(orders) == {0: ("a", 1, "a", False)}, "back to its owner, which is well"


def test_an_order_turns_into_a_seizure_when_the_owner_dies_meanwhile() -> None:
    moving = Plan(3, (Assignment(0, "b", 1, "a"),))
    orders = assignments([0], owned("a", range(1)), roster("b", suspects="a"), moving)
    assert by_shard(orders) == {0: ("b", 1, "a", True)}


def test_an_order_that_names_another_term_than_the_newest_does_not_count() -> None:
    """An old plan out of a restored etcd moves nothing: SQL's owners are well."""
    old = Plan(9, tuple(Assignment(shard, "b", 1, "a") for shard in FOUR))
    newest = {0: term(0, 4, "a"), 1: term(1, 4, "a"), 2: term(2, 6, "b"), 3: term(3, 6, "b")}
    orders = assignments(FOUR, newest, roster("ab"), old)
    assert {order.shard: order.dispatcher_id for order in orders} == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_one_who_lost_its_session_keeps_its_shards_and_gets_no_more() -> None:
    newest = owned("a", range(1)) | {shard: term(shard, 1, "x") for shard in (1, 2, 3)}
    orders = assignments(FOUR, newest, roster("b", keepers="a"), None)
    assert {order.shard: order.dispatcher_id for order in orders} == {0: "a", 1: "b", 2: "b", 3: "b"}


def test_with_nobody_to_give_them_to_shards_keep_the_order_they_had() -> None:
    present = Plan(1, (Assignment(0, "a", 0, ""),))
    assert assignments([0, 1], owned("a", range(2)), roster(suspects="a"), present) == present.assignments


def test_moves_count_what_is_taken_from_those_who_are_well() -> None:
    present = Plan(1, tuple(Assignment(shard, "a", 0, "") for shard in FOUR))
    newest = owned("a", range(4))
    made = assignments(FOUR, newest, roster("ab"), present)
    assert moves(made, present) == 2
    assert moves(made, Plan(2, made)) == 0
    assert moves(assignments(FOUR, newest, roster("b"), present), present) == 0


def test_a_shard_is_owned_by_its_newest_open_term() -> None:
    rows = [term(0, 1, "a", TermState.CLOSED), term(0, 2, "b"), term(0, 3, "c"), term(0, 4, "d", TermState.VOID)]
    assert newest_terms(rows)[0].owner == "c"
    assert newest_terms(rows[:1])[0].owner == "a"
