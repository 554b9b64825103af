"""What the leader asks for by itself: drains within their budget, rounds that spare the frozen and the newly come."""

from __future__ import annotations

from collections import Counter
from itertools import count
from uuid import UUID

from controlplane.balancing import drains, pinned, rebalancing, wishes
from controlplane.picture import Standing
from controlplane.placement import Step
from controlplane.preview import preview_of
from core.config import ControlPlaneSettings
from core.states import MoveCause, MoveState
from tests.unit.controlplane.pictures import loads, member, move, owned, picture, roster, term

SETTINGS = ControlPlaneSettings()


class TestDrains:
    def test_whoever_leaves_loses_its_shards_to_the_others_evenly(self) -> None:
        rows = [*owned("a", range(20)), *owned("b", range(20, 40)), *owned("c", range(40, 60))]
        steps = drains(picture(rows, roster("bc", leaving="a")), SETTINGS)
        assert Counter(step.target for step in steps) == {"b": 10, "c": 10}
        assert {step.shard for step in steps} == set(range(20))

    def test_an_operators_drain_is_the_same(self) -> None:
        rules = Standing(drained=frozenset("a"))
        steps = drains(picture([*owned("a", [0, 1]), *owned("b", [2])], roster("ab"), rules=rules), SETTINGS)
        assert steps == [Step(0, "a", "b"), Step(1, "a", "b")]

    def test_its_zone_takes_them_while_it_can(self) -> None:
        rows = [*owned("a", range(4)), *owned("b", range(4, 12)), *owned("c", range(12, 20))]
        members = [member("a", zone="east"), member("b", zone="east"), member("c", zone="west")]
        steps = drains(picture(rows, roster("bc", leaving="a"), members=members), SETTINGS)
        assert Counter(step.target for step in steps) == {"b": 4}

    def test_no_more_than_four_times_the_budget_is_open_at_once(self) -> None:
        few = ControlPlaneSettings(moves_at_once=2)
        rows = [*owned("a", range(20)), *owned("b", [30])]
        leaving = roster("b", leaving="a")
        assert len(drains(picture(rows, leaving), few)) == 8
        moving = [move(shard, "a", "b", MoveState.SPLIT, cause=MoveCause.DRAIN) for shard in range(6)]
        assert [step.shard for step in drains(picture(rows, leaving, moves=moving), few)] == [6, 7]

    def test_frozen_shards_and_those_on_the_move_stay(self) -> None:
        rows = [*owned("a", range(3)), *owned("b", [9])]
        rules, moving = Standing(frozen=frozenset({0})), [move(1, "a", "b")]
        steps = drains(picture(rows, roster("b", leaving="a"), rules=rules, moves=moving), SETTINGS)
        assert [step.shard for step in steps] == [2]
        everything = Standing(all_frozen=True)
        assert drains(picture(rows, roster("b", leaving="a"), rules=everything), SETTINGS) == []

    def test_with_nobody_to_take_them_nothing_is_asked_for(self) -> None:
        assert drains(picture(owned("a", [0]), roster(leaving="a")), SETTINGS) == []
        assert drains(picture(owned("a", [0]), roster(leaving="ab")), SETTINGS) == []


class TestRounds:
    ROWS = (*owned("a", range(8)), term(8, 3, "a", opened_s=-59), term(9, 3, "a", opened_s=-61))

    def test_a_shard_stays_a_while_where_a_plan_has_brought_it(self) -> None:
        steps = rebalancing(picture(self.ROWS, roster("ab")), SETTINGS, limit=99)
        assert len(steps) == 5
        held = pinned(picture(self.ROWS, roster("ab")), SETTINGS)
        assert held == {8: "moved less than 60 s ago"}
        needs = ("first claim", "takeover", "drain")
        fresh = [term(shard, 1, "a", opened_s=0, reason=why) for shard, why in enumerate(needs)]
        assert pinned(picture(fresh, roster("ab")), SETTINGS) == {}, "these had to go somewhere"
        fresh = [term(shard, 1, "a", opened_s=0, reason=why) for shard, why in enumerate(("move", "rebalance"))]
        assert pinned(picture(fresh, roster("ab")), SETTINGS).keys() == {0, 1}

    def test_frozen_shards_and_those_on_the_move_stay(self) -> None:
        rules, moving = Standing(frozen=frozenset(range(5))), [move(5, "a", "b")]
        seen = picture(owned("a", range(8)), roster("ab"), rules=rules, moves=moving)
        assert {step.shard for step in rebalancing(seen, SETTINGS, limit=99)} == {6, 7}
        assert rebalancing(picture(self.ROWS, roster("ab"), rules=Standing(all_frozen=True)), SETTINGS, limit=99) == []

    def test_what_is_on_its_way_counts_where_it_goes(self) -> None:
        moving = [move(shard, "a", "b") for shard in range(4)]
        assert rebalancing(picture(owned("a", range(8)), roster("ab"), moves=moving), SETTINGS, limit=99) == []

    def test_a_wish_names_the_term_that_it_is_to_replace(self) -> None:
        seen = picture([*owned("a", [0], 7), *owned("c", [1], 9)], roster("ab"))
        ids = (UUID(int=n) for n in count())
        made = wishes([Step(0, "a", "b"), Step(1, "a", "b")], seen, MoveCause.DRAIN, "why", lambda: next(ids))
        assert [(w.shard, w.from_owner, w.from_term, w.to_dispatcher, w.reason) for w in made] == [
            (0, "a", 7, "b", "why")
        ], "the second has another owner by now"


class TestPreviews:
    def test_it_says_what_moves_and_the_loads_before_and_after(self) -> None:
        rows = [*owned("a", range(4)), *owned("b", [4, 5])]
        measured = loads({0: 9.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 1.0, 5: 1.0})
        seen = preview_of(picture(rows, roster("ab"), measured=measured), SETTINGS)
        assert [(each.shard, each.from_dispatcher, each.to_dispatcher, each.cost) for each in seen.moves] == [
            (0, "a", "b", 10.0),
            (3, "a", "b", 10.0),
        ]
        assert [
            (d.dispatcher_id, d.shards_before, d.shards_after, d.load_before, d.load_after, d.fair_load)
            for d in seen.dispatchers
        ] == [("a", 4, 2, 40.0, 20.0, 22.0), ("b", 2, 4, 4.0, 24.0, 22.0)]
        assert seen.loads_known
        assert seen.held_back == ()

    def test_it_says_what_holds_a_round_back(self) -> None:
        rules = Standing(frozen=frozenset({0}))
        rows = [*owned("a", range(3)), term(3, 2, "a", opened_s=-1)]
        seen = preview_of(picture(rows, roster("ab"), rules=rules, moves=[move(1, "a", "b")]), SETTINGS)
        assert seen.held_back == (
            "1 shards stay: frozen",
            "1 shards stay: moved less than 60 s ago",
            "1 shards stay: on the move",
        )
        assert not seen.loads_known
        frozen = preview_of(picture(rows, roster("ab"), rules=Standing(all_frozen=True)), SETTINGS)
        assert (frozen.moves, frozen.held_back) == ((), ("all shards are frozen",))

    def test_those_who_leave_are_shown_without_a_share(self) -> None:
        seen = preview_of(picture([*owned("a", [0]), *owned("b", [1])], roster("b", leaving="a")), SETTINGS)
        assert [(d.dispatcher_id, d.load_before, d.fair_load) for d in seen.dispatchers] == [
            ("a", 1.0, 0.0),
            ("b", 1.0, 1.0),
        ]
