"""Membership: who is suspected when, who is forgiven, and how a crowd that joins is placed once."""

from __future__ import annotations

import pytest

from controlplane.membership import Load, Membership, Roster
from core.config import ControlPlaneSettings
from core.coord.layout import Member
from core.tasks import Wake
from tests.support.clock import ManualClock

LOAD = Load(1.0, 2, 3)
STEP_S = 0.1


class Leader:
    """A leader that looks every tenth of a second, and dispatchers that report every half."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wake = Wake()
        self.membership = Membership(ControlPlaneSettings(), self.clock, self.wake)
        self.members: dict[str, Member] = {}
        self.owners: frozenset[str] = frozenset()
        self.reporting: set[str] = set()
        self.draining: set[str] = set()
        self.steps = 0
        self.roster = self.look()

    def join(self, *names: str) -> None:
        for name in names:
            self.members[name] = Member(name, "127.0.0.1:1", "", 0)
            self.open(name)

    def open(self, name: str) -> None:
        self.membership.stream_opened(name)
        self.reporting.add(name)
        self.say(name)

    def say(self, name: str) -> None:
        self.membership.report(name, LOAD, draining=name in self.draining)

    def cut(self, name: str) -> None:
        self.reporting.discard(name)
        self.membership.stream_closed(name)

    def look(self) -> Roster:
        self.roster = self.membership.look(self.members, self.owners)
        return self.roster

    async def live(self, seconds: float) -> Roster:
        for _ in range(round(seconds / STEP_S)):
            await self.clock.advance(STEP_S)
            self.membership.tick()
            self.steps += 1
            if self.steps % 5 == 0:
                for name in sorted(self.reporting):
                    self.say(name)
            self.look()
        return self.roster


@pytest.fixture
def leader() -> Leader:
    return Leader()


async def test_who_joins_is_placed_on_once_no_more_join(leader: Leader) -> None:
    leader.join("a")
    assert (await leader.live(0.4)).eligible == frozenset()
    leader.join("b")
    assert (await leader.live(0.4)).eligible == frozenset(), "the crowd is still coming"
    assert (await leader.live(0.2)).eligible == {"a", "b"}


async def test_a_crowd_that_never_stops_joining_is_placed_all_the_same(leader: Leader) -> None:
    for number in range(30):
        leader.join(f"d{number}")
        await leader.live(0.3)
    assert leader.roster.eligible


async def test_an_owner_has_joined_long_ago(leader: Leader) -> None:
    leader.owners = frozenset("a")
    leader.join("a")
    assert leader.look().eligible == {"a"}


async def test_three_missed_reports_make_a_suspect(leader: Leader) -> None:
    leader.join("a", "b")
    await leader.live(2.0)
    leader.reporting.discard("a")
    assert (await leader.live(1.3)).suspects == frozenset()
    roster = await leader.live(0.5)
    assert roster.suspects == {"a"}
    assert roster.is_gone("a")
    assert not roster.may_keep("a")
    assert roster.eligible == {"b"}
    assert leader.membership.suspicions == 1


async def test_a_broken_stream_makes_one_sooner_unless_it_comes_back(leader: Leader) -> None:
    leader.join("a", "b")
    await leader.live(2.0)
    leader.cut("a")
    leader.cut("b")
    await leader.live(0.2)
    leader.open("b")
    assert (await leader.live(0.3)).suspects == {"a"}


async def test_one_who_comes_back_first_has_to_stay(leader: Leader) -> None:
    leader.join("a", "b")
    await leader.live(2.0)
    leader.cut("a")
    await leader.live(1.0)
    leader.open("a")
    assert leader.look().keepers == {"a", "b"}
    assert leader.roster.eligible == {"b"}
    assert (await leader.live(0.7)).eligible == {"a", "b"}


async def test_one_who_drains_is_neither_keeper_nor_suspect(leader: Leader) -> None:
    leader.join("a", "b")
    await leader.live(2.0)
    leader.draining.add("a")
    roster = await leader.live(0.6)
    assert (roster.leaving, roster.keepers) == ({"a"}, {"b"})
    assert not roster.may_keep("a")
    assert not roster.is_gone("a")


async def test_one_who_lost_its_session_but_reports_keeps_its_shards(leader: Leader) -> None:
    leader.join("a", "b")
    await leader.live(2.0)
    del leader.members["a"]
    roster = await leader.live(10.0)
    assert roster.may_keep("a")
    assert roster.eligible == {"b"}


async def test_a_member_that_never_reports_is_suspected_after_a_grace(leader: Leader) -> None:
    leader.members["a"] = Member("a", "127.0.0.1:1", "", 0)
    assert (await leader.live(2.9)).suspects == frozenset()
    assert (await leader.live(0.3)).suspects == {"a"}


async def test_an_owner_that_nobody_knows_is_gone_once_the_leader_has_settled(leader: Leader) -> None:
    leader.owners = frozenset("x")
    assert (await leader.live(2.9)).may_keep("x")
    assert not leader.roster.is_gone("x")
    roster = await leader.live(0.3)
    assert roster.is_gone("x")
    assert not roster.may_keep("x")


async def test_a_pause_of_the_leader_is_nobodys_fault(leader: Leader) -> None:
    leader.join("a")
    await leader.live(2.0)
    await leader.clock.advance(30.0)
    leader.membership.tick()
    assert leader.look().suspects == frozenset()
    leader.reporting.discard("a")
    assert (await leader.live(2.0)).suspects == {"a"}, "it is judged again from here on"


async def test_who_breaks_off_a_stream_to_a_leader_that_pauses_has_time_to_come_back(leader: Leader) -> None:
    """It gave the leader up, as it should, and looks for it with growing waits."""
    leader.join("a", "b")
    await leader.live(2.0)
    await leader.clock.advance(3.0)
    leader.membership.tick()
    leader.cut("a")
    leader.cut("b")
    assert (await leader.live(1.2)).suspects == frozenset()
    leader.open("a")
    assert (await leader.live(0.5)).suspects == {"b"}, "but not for ever"
    await leader.live(1.0)
    leader.cut("a")
    assert (await leader.live(0.5)).suspects == {"a", "b"}, "and later streams are judged as ever"


async def test_slow_looks_forgive_nobody(leader: Leader) -> None:
    """Only the ticks tell of a pause: a leader whose database is slow looks seldom, and suspects all the same."""
    leader.join("a")
    await leader.live(2.0)
    for _ in range(20):
        await leader.clock.advance(STEP_S)
        leader.membership.tick()
    assert leader.look().suspects == {"a"}


async def test_who_never_reported_gets_nothing(leader: Leader) -> None:
    leader.members["a"] = Member("a", "127.0.0.1:1", "", 0)
    assert (await leader.live(2.0)).eligible == frozenset()


async def test_who_is_gone_for_good_is_forgotten(leader: Leader) -> None:
    leader.join("a", "b")
    leader.owners = frozenset("a")
    await leader.live(1.0)
    leader.cut("a")
    del leader.members["a"]
    assert (await leader.live(1.0)).suspects == {"a"}
    leader.owners = frozenset("b")
    assert (await leader.live(0.2)).suspects == frozenset()
    assert leader.membership.load_of("b") == LOAD
    assert leader.membership.load_of("a") is None


async def test_news_wake_the_leader(leader: Leader) -> None:
    leader.join("a")
    assert not await _hinted(leader)
    leader.draining.add("a")
    leader.say("a")
    assert await _hinted(leader)


async def _hinted(leader: Leader) -> bool:
    return await leader.wake.wait(leader.clock, 0.0)
