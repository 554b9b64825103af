"""The plan: every order names what it replaces, seizes only from those who are gone, and moves follow their rows."""

from __future__ import annotations

from controlplane.picture import Picture, Standing
from controlplane.planner import assignments, bounded, moves, newest_terms
from core.config import ControlPlaneSettings
from core.coord.layout import Assignment, Plan, encode
from core.states import MoveCause, MoveState, TermState
from tests.unit.controlplane.pictures import loads, member, move, owned, picture, roster, term

SETTINGS = ControlPlaneSettings()
FOUR = [0, 1, 2, 3]
OLD, NEW = (0, 100), (100, 2**62)


def orders(seen: Picture, present: Plan | None = None) -> dict[int, tuple[str, int, str, bool]]:
    made = assignments(seen, present, SETTINGS)
    return {o.shard: (o.dispatcher_id, o.replaces_term, o.replaces_owner, o.seize) for o in made}


class TestOwners:
    def test_a_shard_that_never_had_a_term_is_to_be_claimed_first(self) -> None:
        assert orders(picture([], roster("a"), shards=[0, 1])) == {0: ("a", 0, "", False), 1: ("a", 0, "", False)}

    def test_first_claims_are_spread_by_count_and_weight(self) -> None:
        seen = picture([], roster("abc"), shards=range(8), members=[member("a", 2.0), member("b"), member("c")])
        made = [order[0] for order in orders(seen).values()]
        assert [made.count(name) for name in "abc"] == [4, 2, 2]

    def test_an_owner_that_is_well_keeps_its_shards(self) -> None:
        seen = picture([*owned("a", [0, 1]), *owned("b", [2], 5)], roster("ab"))
        assert orders(seen) == {0: ("a", 1, "a", False), 1: ("a", 1, "a", False), 2: ("b", 5, "b", False)}

    def test_the_shards_of_a_suspect_and_of_one_who_is_gone_are_seized(self) -> None:
        for judged in (roster("b", suspects="a"), roster("b")):
            assert orders(picture(owned("a", [0], 7), judged)) == {0: ("b", 7, "a", True)}

    def test_seized_shards_are_shared_out_by_load_and_go_to_others_of_the_zone(self) -> None:
        rows = [*owned("a", range(4)), *owned("b", [4]), *owned("c", [5]), *owned("d", [6])]
        members = [member("b", zone="east"), member("c", zone="east"), member("d", zone="west")]
        seen = picture(rows, roster("bcd", suspects="a"), members=[*members, member("a", zone="east")])
        assert sorted(orders(seen)[shard][0] for shard in range(4)) == ["b", "b", "c", "d"]
        fires = {0: 100.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 30.0, 5: 30.0, 6: 5.0}
        hot = picture(rows, roster("bcd", suspects="a"), members=members, measured=loads(fires))
        assert orders(hot)[0][0] == "d"

    def test_the_shards_of_one_who_leaves_stay_until_a_move_of_theirs_is_ordered(self) -> None:
        rows = owned("a", [0, 1])
        seen = picture(rows, roster("b", leaving="a"), moves=[move(0, "a", "b", MoveState.ORDERED), move(1, "a", "b")])
        assert orders(seen) == {0: ("b", 1, "a", False), 1: ("a", 1, "a", False)}

    def test_while_the_leader_is_new_an_owner_never_heard_of_keeps_what_it_has(self) -> None:
        assert orders(picture(owned("a", [0]), roster("b", settling=True))) == {}
        assert orders(picture(owned("a", [0]), roster("b"))) == {0: ("b", 1, "a", True)}

    def test_one_who_lost_its_session_keeps_its_shards(self) -> None:
        seen = picture([*owned("a", [0]), *owned("x", [1, 2])], roster("b", keepers="a"))
        assert {shard: order[0] for shard, order in orders(seen).items()} == {0: "a", 1: "b", 2: "b"}

    def test_one_whom_an_operator_drains_gets_nothing(self) -> None:
        rules = Standing(drained=frozenset("b"))
        seen = picture([*owned("a", [0]), *owned("b", [1])], roster("bc", suspects="a"), rules=rules)
        assert orders(seen) == {0: ("c", 1, "a", True), 1: ("b", 1, "b", False)}

    def test_where_all_are_drained_a_dead_ones_shards_are_taken_all_the_same(self) -> None:
        rules = Standing(drained=frozenset("bc"))
        seen = picture([*owned("a", [0]), *owned("b", [1])], roster("bc", suspects="a"), rules=rules)
        assert orders(seen) == {0: ("c", 1, "a", True), 1: ("b", 1, "b", False)}

    def test_with_nobody_to_give_them_to_shards_keep_the_order_they_had(self) -> None:
        present = Plan(1, (Assignment(0, "a", 0, ""),))
        seen = picture(owned("a", [0, 1]), roster(suspects="a"))
        assert assignments(seen, present, SETTINGS) == present.assignments

    def test_whoever_was_told_to_take_a_shard_remains_the_one(self) -> None:
        """Although by now another would be chosen: it may be doing it at this moment."""
        present = Plan(1, (Assignment(0, "c", 1, "a", seize=True),))
        seen = picture([*owned("a", [0]), *owned("c", [1, 2])], roster("bc", suspects="a"))
        assert orders(seen, present)[0] == ("c", 1, "a", True)
        gone = picture([*owned("a", [0]), *owned("b", [1, 2])], roster("b", suspects="ac"))
        assert orders(gone, present)[0] == ("b", 1, "a", True)

    def test_an_order_that_names_another_term_than_the_newest_does_not_count(self) -> None:
        """An old plan out of a restored etcd moves nothing: SQL's owners are well."""
        old = Plan(9, tuple(Assignment(shard, "b", 1, "a") for shard in FOUR))
        seen = picture([*owned("a", [0, 1], 4), *owned("b", [2, 3], 6)], roster("ab"))
        assert {shard: order[0] for shard, order in orders(seen, old).items()} == {0: "a", 1: "a", 2: "b", 3: "b"}

    def test_terms_of_which_none_is_open_are_nobodys_to_give(self) -> None:
        assert orders(picture([term(0, 1, "a", OLD, TermState.CLOSED)], roster("ab"))) == {}


class TestMoves:
    def test_an_ordered_move_stands_in_the_plan_and_is_left_alone_once_it_was_carried_out(self) -> None:
        order = move(0, "a", "b", MoveState.ORDERED)
        ordered = picture(owned("a", [0]), roster("ab"), moves=[order])
        plan = Plan(3, assignments(ordered, None, SETTINGS))
        assert plan.assignments == (Assignment(0, "b", 1, "a", move_id=str(order.move_id)),)
        split = picture(
            [term(0, 1, "a", OLD), term(0, 2, "b", NEW)],
            roster("ab"),
            moves=[move(0, "a", "b", MoveState.SPLIT)],
        )
        assert assignments(split, plan, SETTINGS) == plan.assignments
        done = picture([term(0, 1, "a", OLD, TermState.CLOSED), term(0, 2, "b", NEW)], roster("ab"))
        assert assignments(done, plan, SETTINGS) == plan.assignments, "nothing to write"

    def test_a_hand_off_under_way_is_not_turned_back_whatever_the_loads_say(self) -> None:
        seen = picture([term(0, 1, "a", OLD), term(0, 2, "b", NEW), *owned("b", [1, 2, 3])], roster("ab"))
        assert orders(seen)[0] == ("b", 2, "b", False)

    def test_only_moves_of_rebalancing_wait_for_the_residency(self) -> None:
        for cause, wanted in ((MoveCause.REBALANCE, 60_000_000), (MoveCause.OPERATOR, 0), (MoveCause.DRAIN, 0)):
            moving = move(0, "a", "b", MoveState.ORDERED, cause=cause)
            (order,) = assignments(picture(owned("a", [0]), roster("ab"), moves=[moving]), None, SETTINGS)
            assert order.residency_us == wanted
        taken = [term(0, 1, "a", reason="takeover")]
        moving = move(0, "a", "b", MoveState.ORDERED, cause=MoveCause.REBALANCE)
        (order,) = assignments(picture(taken, roster("ab"), moves=[moving]), None, SETTINGS)
        assert order.residency_us == 0, "no plan brought it here, so no plan can go back and forth"

    def test_a_move_that_is_pending_stands_in_no_plan(self) -> None:
        assert orders(picture(owned("a", [0]), roster("ab"), moves=[move(0, "a", "b")])) == {0: ("a", 1, "a", False)}

    def test_an_order_that_nobody_carries_out_is_withdrawn_after_ten_seconds(self) -> None:
        moving = [move(0, "a", "b", MoveState.ORDERED)]
        present = Plan(3, (Assignment(0, "b", 1, "a"),))
        assert orders(picture(owned("a", [0]), roster("ab"), moves=moving, at_s=9), present)[0][0] == "b"
        assert orders(picture(owned("a", [0]), roster("ab"), moves=moving, at_s=11), present)[0][0] == "a"

    def test_an_order_from_before_this_tenure_has_its_ten_seconds_from_its_beginning(self) -> None:
        moving = [move(0, "a", "b", MoveState.ORDERED, ordered_s=-120.0)]
        assert orders(picture(owned("a", [0]), roster("ab"), moves=moving, at_s=9))[0][0] == "b"

    def test_an_order_turns_into_a_takeover_when_the_owner_dies_before_the_split(self) -> None:
        moving = [move(0, "a", "b", MoveState.ORDERED)]
        seen = picture([*owned("a", [0]), *owned("b", [1, 2])], roster("bc", suspects="a"), moves=moving)
        assert orders(seen)[0] == ("b", 1, "a", True), "and its target gets it all the same"

    def test_a_row_that_names_another_term_gives_no_order(self) -> None:
        moving = [move(0, "a", "b", MoveState.ORDERED, from_term=1)]
        assert orders(picture(owned("a", [0], 5), roster("ab"), moves=moving))[0] == ("a", 5, "a", False)


class TestLostSidesOfAHandOff:
    ROWS = (term(0, 1, "o", OLD), term(0, 2, "n", NEW))

    def test_the_new_owner_takes_what_the_old_one_left(self) -> None:
        assert orders(picture(self.ROWS, roster("nx", suspects="o"))) == {0: ("n", 1, "o", True)}
        assert orders(picture(self.ROWS, roster("x", keepers="n", suspects="o"))) == {0: ("n", 1, "o", True)}
        assert orders(picture(self.ROWS, roster("x", leaving="n", suspects="o"))) == {0: ("n", 1, "o", True)}

    def test_the_old_owner_takes_back_what_the_new_one_left(self) -> None:
        assert orders(picture(self.ROWS, roster("ox", suspects="n"))) == {0: ("o", 2, "n", True)}

    def test_an_old_owner_that_leaves_does_not_take_it_back(self) -> None:
        assert orders(picture(self.ROWS, roster("x", leaving="o", suspects="n"))) == {0: ("x", 2, "n", True)}
        drained = Standing(drained=frozenset("o"))
        assert orders(picture(self.ROWS, roster("ox", suspects="n"), rules=drained)) == {0: ("x", 2, "n", True)}

    def test_when_both_are_gone_the_first_range_is_taken_first_and_the_second_by_the_same(self) -> None:
        assert orders(picture(self.ROWS, roster("xy", suspects="on"))) == {0: ("x", 1, "o", True)}
        one_left = [term(0, 1, "o", (0, 90), TermState.CLOSED), self.ROWS[1], term(0, 3, "y", (90, 100))]
        assert orders(picture(one_left, roster("xy", suspects="on"))) == {0: ("y", 2, "n", True)}
        done = [one_left[0], term(0, 2, "n", NEW, TermState.VOID), one_left[2], term(0, 4, "y", NEW)]
        assert orders(picture(done, roster("xy", suspects="on"))) == {0: ("y", 4, "y", False)}

    def test_while_the_leader_is_new_nobody_is_gone(self) -> None:
        present = Plan(3, (Assignment(0, "n", 1, "o"),))
        seen = picture(self.ROWS, roster("x", settling=True))
        assert assignments(seen, present, SETTINGS) == present.assignments


def test_moves_count_what_is_taken_from_those_who_are_well() -> None:
    moving = [move(shard, "a", "b", MoveState.ORDERED) for shard in (0, 1)]
    made = assignments(picture(owned("a", FOUR), roster("ab"), moves=moving), None, SETTINGS)
    assert moves(made, None) == 2
    assert moves(made, Plan(2, made)) == 0
    assert moves(assignments(picture(owned("a", FOUR), roster("b")), None, SETTINGS), None) == 0


def test_a_shard_is_owned_by_the_open_term_with_the_last_range() -> None:
    rows = [
        term(0, 1, "a", OLD, TermState.CLOSED),
        term(0, 2, "b", NEW),
        term(0, 3, "c", (90, 100)),
        term(0, 4, "d", NEW, TermState.VOID),
    ]
    assert newest_terms(rows)[0].owner == "b"
    assert newest_terms(rows[:1])[0].owner == "a"


def test_the_plan_stays_within_what_etcd_takes_and_says_first_what_is_to_be_done() -> None:
    name = "dispatcher-" + "x" * 100
    steady = [Assignment(shard, name, 2**62, name, residency_us=2**62) for shard in range(9_000)]
    to_do = [Assignment(shard, name, 2**62, "other", seize=True) for shard in range(9_000, 9_010)]
    kept = bounded([*steady, *to_do])
    assert set(to_do) <= set(kept)
    assert 1_000 < len(kept) < 9_010
    encode(Plan(1, kept))  # raises where it is too large
    assert bounded([*steady[:100], *to_do]) == (*steady[:100], *to_do)
