"""Whose ailments cost it its shards: only those that others do not have, and only after a while."""

from __future__ import annotations

import pytest

from controlplane.membership import Load, Membership, Roster
from controlplane.sickness import (
    ALONE_AFTER_ALL_S,
    ALONE_S,
    SEIZE_AFTER_S,
    WELL_AFTER_S,
    WORKERS_AFTER_S,
    Condition,
)
from core.ailments import AilmentKind
from core.config import ControlPlaneSettings
from core.coord.layout import Member
from core.tasks import Wake
from tests.support.clock import ManualClock

ORDERS, MAILS = 11, 12


class Ward:
    """A leader, and dispatchers that have joined and say of themselves what the test lets them say."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.membership = Membership(ControlPlaneSettings(), self.clock, Wake())
        self.conditions = dict.fromkeys("abc", Condition(workers=2, served=frozenset((ORDERS, MAILS))))
        self.ages: dict[tuple[str, AilmentKind], float] = {}

    def ail(self, kind: AilmentKind, *names: str) -> None:
        self.ages |= {(name, kind): 0.0 for name in names}

    def heal(self, kind: AilmentKind, *names: str) -> None:
        for name in names:
            del self.ages[name, kind]

    def lose_workers(self, *names: str, waiting: tuple[int, ...] = ()) -> None:
        self.conditions |= dict.fromkeys(names, Condition(unserved=frozenset(waiting)))

    async def live(self, seconds: float) -> Roster:
        roster = None
        for _ in range(max(1, round(seconds / 0.1))):
            await self.pass_without_a_look(0.1)
            roster = self.look()
        assert roster is not None
        return roster

    def look(self) -> Roster:
        members = {name: Member(name, "127.0.0.1:1", "", 0) for name in self.conditions}
        return self.membership.look(members, frozenset(self.conditions))

    async def pass_without_a_look(self, seconds: float) -> None:
        """Time in which the leader waits for its database: reports come, and nothing is planned."""
        for _ in range(max(1, round(seconds / 0.1))):
            await self.clock.advance(0.1)
            self.membership.tick()
            for name, said in self.conditions.items():
                ailments = {kind: age for (who, kind), age in self.ages.items() if who == name}
                condition = Condition(ailments, said.workers, said.served, said.unserved)
                self.membership.report(name, Load(0.0, 0, 0), condition)
            self.ages = {key: age + 0.1 for key, age in self.ages.items()}


@pytest.fixture
async def ward() -> Ward:
    made = Ward()
    assert (await made.live(2.0)).eligible == set("abc")
    return made


@pytest.mark.parametrize("kind", SEIZE_AFTER_S)
async def test_who_alone_has_an_ailment_loses_its_shards_after_a_while(ward: Ward, kind: AilmentKind) -> None:
    ward.ail(kind, "a")
    assert (await ward.live(SEIZE_AFTER_S[kind] - 0.3)).suspects == frozenset()
    roster = await ward.live(0.6)
    assert (roster.suspects, roster.eligible) == ({"a"}, {"b", "c"})
    assert roster.is_gone("a")
    assert roster.sick == {("a", kind)}
    assert ward.membership.suspicions == 1


@pytest.mark.parametrize("kind", SEIZE_AFTER_S)
async def test_what_ails_all_costs_nobody_anything(ward: Ward, kind: AilmentKind) -> None:
    ward.ail(kind, "a", "b", "c")
    roster = await ward.live(60)
    assert (roster.suspects, roster.leaving, roster.keepers) == (frozenset(), frozenset(), set("abc"))


async def test_who_fall_ill_almost_together_are_ill_together(ward: Ward) -> None:
    """A dispatcher names an ailment a second and more before it counts."""
    ward.ail(AilmentKind.DATABASE, "a")
    await ward.live(1.0)
    ward.ail(AilmentKind.DATABASE, "b", "c")
    assert (await ward.live(30)).suspects == frozenset()


async def test_who_hears_last_that_the_database_is_back_is_not_sick_alone(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a", "b", "c")
    await ward.live(10)
    ward.heal(AilmentKind.DATABASE, "a", "b")
    assert (await ward.live(ALONE_AFTER_ALL_S - 0.3)).suspects == frozenset()
    ward.heal(AilmentKind.DATABASE, "c")
    assert (await ward.live(5)).keepers == set("abc")


async def test_who_never_hears_that_the_database_is_back_is_sick_alone(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a", "b", "c")
    await ward.live(10)
    ward.heal(AilmentKind.DATABASE, "a", "b")
    assert (await ward.live(ALONE_AFTER_ALL_S + 0.3)).suspects == {"c"}


async def test_who_was_ill_with_all_once_is_well_or_sick_like_any_other_later(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a", "b", "c")
    await ward.live(10)
    ward.heal(AilmentKind.DATABASE, "a", "b", "c")
    await ward.live(1)
    ward.ail(AilmentKind.DATABASE, "a")
    assert (await ward.live(SEIZE_AFTER_S[AilmentKind.DATABASE] + 0.3)).suspects == {"a"}


async def test_who_was_taken_for_sick_alone_keeps_its_shards_once_all_are_ill(ward: Ward) -> None:
    """The others noticed late that the database is away; when it is back nobody has a reason to take anything."""
    ward.ail(AilmentKind.DATABASE, "a")
    assert (await ward.live(4.0)).suspects == {"a"}
    ward.ail(AilmentKind.DATABASE, "b", "c")
    assert (await ward.live(0.1)).suspects == frozenset()
    await ward.live(10)
    ward.heal(AilmentKind.DATABASE, "b", "c")
    assert (await ward.live(ALONE_AFTER_ALL_S - 0.3)).suspects == frozenset()


async def test_a_leader_that_waits_for_its_database_misses_nothing_that_is_reported_meanwhile(ward: Ward) -> None:
    """Else the first one to notice that a database is away would count as sick alone for all the time of the wait."""
    ward.ail(AilmentKind.DATABASE, "a")
    await ward.live(1.0)
    ward.ail(AilmentKind.DATABASE, "b", "c")
    await ward.pass_without_a_look(10)
    ward.heal(AilmentKind.DATABASE, "b", "c")
    await ward.pass_without_a_look(0.2)
    assert ward.look().suspects == frozenset()
    assert ward.membership.suspicions == 0


async def test_what_passed_while_the_leader_stood_still_makes_nobody_sick(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a")
    await ward.live(ALONE_S / 2)
    ward.ages["a", AilmentKind.DATABASE] = 2 * SEIZE_AFTER_S[AilmentKind.DATABASE]
    await ward.live(0.2)
    await ward.clock.advance(30.0)
    ward.membership.tick()
    assert ward.look().suspects == frozenset()
    assert (await ward.live(ALONE_S)).suspects == {"a"}


async def test_two_sick_with_different_ailments_and_nobody_well_keep_what_they_have(ward: Ward) -> None:
    del ward.conditions["c"]
    ward.ail(AilmentKind.DATABASE, "a")
    ward.ail(AilmentKind.DUE_LOOP, "b")
    assert (await ward.live(30)).keepers >= set("ab")


async def test_who_was_sick_joins_again_when_it_has_been_well_for_a_while(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a")
    await ward.live(4.0)
    ward.heal(AilmentKind.DATABASE, "a")
    assert (await ward.live(WELL_AFTER_S - 0.3)).suspects == {"a"}
    roster = await ward.live(1.5)
    assert (roster.suspects, roster.eligible) == (frozenset(), set("abc"))


async def test_a_short_relapse_keeps_it_sick(ward: Ward) -> None:
    ward.ail(AilmentKind.DATABASE, "a")
    await ward.live(4.0)
    for _ in range(5):
        ward.heal(AilmentKind.DATABASE, "a")
        await ward.live(WELL_AFTER_S - 0.5)
        ward.ail(AilmentKind.DATABASE, "a")
        assert (await ward.live(0.3)).suspects == {"a"}
    assert ward.membership.suspicions == 1


async def test_whom_no_worker_reaches_loses_its_shards_in_order(ward: Ward) -> None:
    ward.lose_workers("a")
    roster = await ward.live(WORKERS_AFTER_S - 1)
    assert (roster.leaving, roster.keepers) == (frozenset(), set("abc"))
    assert roster.eligible == {"b", "c"}, "and gets no new ones meanwhile"
    roster = await ward.live(2.0)
    assert (roster.leaving, roster.suspects, roster.eligible) == ({"a"}, frozenset(), {"b", "c"})


async def test_workers_that_nobody_has_are_missed_by_nobody(ward: Ward) -> None:
    ward.lose_workers("a", "b", "c", waiting=(ORDERS,))
    roster = await ward.live(60)
    assert (roster.leaving, roster.eligible) == (frozenset(), set("abc"))


async def test_it_is_the_queues_with_waiting_runs_that_count(ward: Ward) -> None:
    ward.conditions["a"] = Condition(workers=1, served=frozenset((MAILS,)))
    assert (await ward.live(30)).leaving == frozenset(), "no run of the other queue waits there"
    ward.conditions["a"] = Condition(workers=1, served=frozenset((MAILS,)), unserved=frozenset((ORDERS, 99)))
    assert (await ward.live(WORKERS_AFTER_S + 1)).leaving == {"a"}


async def test_an_emptied_one_does_not_get_its_shards_back_while_the_workers_stay_away(ward: Ward) -> None:
    """Without shards no run waits there any more: taken for health, that would move shards to and fro for ever."""
    ward.conditions["a"] = Condition(workers=1, served=frozenset((MAILS,)), unserved=frozenset((ORDERS,)))
    await ward.live(WORKERS_AFTER_S + 1)
    ward.conditions["a"] = Condition(workers=1, served=frozenset((MAILS,)))
    assert (await ward.live(120)).leaving == {"a"}
    ward.conditions["a"] = Condition(workers=2, served=frozenset((MAILS, ORDERS)))
    roster = await ward.live(WELL_AFTER_S + 2)
    assert (roster.leaving, roster.eligible) == (frozenset(), set("abc"))
    assert ward.membership.suspicions == 1


async def test_who_joins_gets_shards_once_workers_found_it(ward: Ward) -> None:
    ward.conditions["d"] = Condition()
    assert "d" not in (await ward.live(5)).eligible
    ward.conditions["d"] = Condition(workers=1)
    assert "d" in (await ward.live(0.2)).eligible


async def test_a_worse_ailment_counts_for_one_that_lacks_workers(ward: Ward) -> None:
    ward.lose_workers("a")
    await ward.live(WORKERS_AFTER_S + 1)
    ward.ail(AilmentKind.DUE_LOOP, "a")
    roster = await ward.live(SEIZE_AFTER_S[AilmentKind.DUE_LOOP] + 1)
    assert (roster.leaving, roster.suspects) == (frozenset(), {"a"})
