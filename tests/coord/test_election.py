"""One leader at a time, as far as etcd can tell; and nobody, on any doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.config import EtcdUser, SessionConfig
from core.coord.election import Election, Leadership
from core.coord.faults import LeadershipLost
from core.coord.mirror import Mirror
from core.coord.records import Compare, Field, Put
from core.coord.session import Session
from core.tasks import Tasks
from tests.coord.conftest import MakeClient, stored
from tests.support import etcd_auth
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer

# Outlasts any stall of the machine: nothing here loses such a lease by mere waiting.
LONG = SessionConfig(ttl_s=60, renew_s=0.5, margin_s=0.5)


@dataclass
class Candidate:
    """Everything that one replica has of its own."""

    name: str
    client: EtcdClient
    tasks: Tasks
    session: Session
    mirror: Mirror
    election: Election
    prefix: str

    async def campaign(self) -> Leadership:
        return await self.election.campaign(self.name.encode())

    async def write(self, leadership: Leadership) -> None:
        """A write as the leader, of this candidate's name."""
        await self.election.guarded_txn(leadership, [Put(self.prefix + "written", self.name.encode())])

    async def abandon(self) -> None:
        """Stop in the middle of everything, as a killed process does: no resignation, no revocation."""
        await self.tasks.close()

    def sees(self, leader: str) -> bool:
        return self.seen_leader() == leader

    def seen_leader(self) -> str | None:
        leader = self.election.observe()
        return leader.value.decode() if leader else None


MakeCandidate = Callable[..., Awaitable[Candidate]]


@pytest.fixture
async def make_candidate(make_client: MakeClient, prefix: str) -> AsyncIterator[MakeCandidate]:
    """Makes replicas, given a name, an endpoint and settings of session and client."""
    async with AsyncExitStack() as stack:

        async def make(
            name: str, endpoint: str, *, under: str = prefix, session: SessionConfig | None = None, **client: object
        ) -> Candidate:
            clock, tasks = SystemClock(), Tasks()
            etcd = make_client(endpoint, **client)
            held = Session(etcd, session or LONG, clock, tasks)
            mirror = Mirror(etcd, under, clock, tasks)
            election = Election(etcd, held, mirror, under + "election/", clock, tasks)
            candidate = Candidate(name, etcd, tasks, held, mirror, election, under)
            stack.push_async_callback(tasks.close)
            held.start()
            mirror.start()
            return candidate

        yield make


async def test_of_three_candidates_one_leads_and_the_next_follows_when_it_is_killed(
    etcd: EtcdServer, make_candidate: MakeCandidate
) -> None:
    mortal = SessionConfig(ttl_s=5, renew_s=0.5, margin_s=0.5)
    candidates = {name: await make_candidate(name, etcd.endpoint, session=mortal) for name in ("a", "b", "c")}
    campaigns = {name: asyncio.create_task(each.campaign()) for name, each in candidates.items()}
    terms: list[int] = []
    while campaigns:
        done, _ = await asyncio.wait(campaigns.values(), timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1, "one leader, and only after the one before it is gone"
        name = next(name for name, each in campaigns.items() if each in done)
        leadership = campaigns.pop(name).result()
        terms.append(leadership.term_revision)
        for other in campaigns:
            await eventually(partial(candidates[other].sees, name))
        await candidates[name].write(leadership)
        await candidates[name].abandon()
    assert terms == sorted(set(terms)), "terms grow"


async def test_a_resigned_leader_is_followed_without_waiting_for_its_lease(
    etcd: EtcdServer, make_candidate: MakeCandidate
) -> None:
    a, b = await make_candidate("a", etcd.endpoint), await make_candidate("b", etcd.endpoint)
    first = await a.campaign()
    waiting = asyncio.create_task(b.campaign())
    await eventually(lambda: len(a.mirror.snapshot().kvs) == 2)
    await a.election.resign(first)
    assert first.lost.is_set()
    second = await asyncio.wait_for(waiting, 20)
    assert second.term_revision > first.term_revision
    assert second.valid
    with pytest.raises(LeadershipLost):
        await a.write(first)


async def test_of_two_that_believe_they_lead_only_the_real_one_writes(
    etcd: EtcdServer, client: EtcdClient, make_candidate: MakeCandidate, prefix: str
) -> None:
    """B70: the first was paused and has heard nothing; its lease looks alive to it, its write is refused."""
    a, b = await make_candidate("a", etcd.endpoint), await make_candidate("b", etcd.endpoint)
    old = await a.campaign()
    await a.tasks.close()
    await client.revoke(old.held.lease)
    new = await b.campaign()
    assert old.valid, "it believes"
    with pytest.raises(LeadershipLost):
        await a.write(old)
    assert old.lost.is_set()
    await b.write(new)
    written = await stored(client, prefix + "written")
    assert written is not None
    assert (written.value, written.version) == (b"b", 1)


async def test_a_condition_that_fails_is_told_from_a_lost_leadership(
    etcd: EtcdServer, make_candidate: MakeCandidate, prefix: str
) -> None:
    a = await make_candidate("a", etcd.endpoint)
    leadership = await a.campaign()
    unmet = Compare(prefix + "written", Field.VERSION, 7)
    result = await a.election.guarded_txn(leadership, [Put(prefix + "written", b"")], [unmet])
    assert not result.succeeded
    assert leadership.valid


async def test_a_leader_whose_key_is_removed_steps_down(
    etcd: EtcdServer, client: EtcdClient, make_candidate: MakeCandidate
) -> None:
    a = await make_candidate("a", etcd.endpoint)
    leadership = await a.campaign()
    await client.delete(leadership.key)
    await asyncio.wait_for(leadership.lost.wait(), 20)
    assert leadership.loss == "the election key is gone"
    again = await asyncio.wait_for(a.campaign(), 20)
    assert again.term_revision > leadership.term_revision


async def test_b70_a_leader_cut_off_steps_down_before_the_next_can_lead(
    etcd: EtcdServer, proxy: TcpProxy, make_candidate: MakeCandidate
) -> None:
    mortal = SessionConfig(ttl_s=6, renew_s=0.5, margin_s=3.0)
    a, b = await make_candidate("a", proxy.endpoint, session=mortal), await make_candidate("b", etcd.endpoint)
    first = await a.campaign()
    waiting = asyncio.create_task(b.campaign())
    proxy.stall()
    await asyncio.wait({waiting, lost := asyncio.create_task(first.lost.wait())}, return_when="FIRST_COMPLETED")
    assert lost.done(), "the old leader knew first"
    assert not waiting.done()
    second = await asyncio.wait_for(waiting, 30)
    proxy.heal()
    with pytest.raises(LeadershipLost):
        await a.write(first)
    assert second.valid


@pytest.mark.parametrize("failure", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
async def test_b71_an_error_while_campaigning_makes_nobody_leader(
    etcd: EtcdServer, proxy: TcpProxy, make_candidate: MakeCandidate, failure: str
) -> None:
    """The only candidate there is, on a network that fails: not leader until etcd says so."""
    a = await make_candidate("a", proxy.endpoint, total_timeout_s=1.0)
    await eventually(lambda: a.session.held)
    if failure == "UNAVAILABLE":
        await proxy.refuse()
        proxy.cut()
    else:
        proxy.drop(to_client=True)
    campaign = asyncio.create_task(a.campaign())
    await eventually(lambda: not a.client.reachable)
    await asyncio.sleep(2)  # several tries
    assert not campaign.done()
    assert a.seen_leader() is None
    proxy.heal()
    if failure == "UNAVAILABLE":
        await proxy.start()
    assert (await asyncio.wait_for(campaign, 30)).valid


async def test_b71_a_denied_permission_makes_nobody_leader(
    locked_etcd: EtcdServer, make_candidate: MakeCandidate, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, tried with back-off, and taken for no victory."""
    user = EtcdUser(etcd_auth.USER, etcd_auth.PASSWORD)
    ours = await make_candidate("ours", locked_etcd.endpoint, under="/mine/", user=user)
    theirs = await make_candidate("theirs", locked_etcd.endpoint, under="/theirs/", user=user)
    campaign = asyncio.create_task(theirs.campaign())

    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if "campaigning for leadership failed" in r.getMessage()]

    assert (await asyncio.wait_for(ours.campaign(), 20)).valid
    await eventually(lines)
    await asyncio.sleep(2)  # several tries more
    assert not campaign.done()
    said = lines()
    assert len(said) == 1, said
    assert "PERMISSION_DENIED" in said[0]
    campaign.cancel()


async def test_a_campaign_given_up_leaves_the_field(
    etcd: EtcdServer, client: EtcdClient, make_candidate: MakeCandidate, prefix: str
) -> None:
    a = await make_candidate("a", etcd.endpoint)
    b = await make_candidate("b", etcd.endpoint, connect_timeout_s=5.0)  # so long it may take to leave
    await a.campaign()
    waiting = asyncio.create_task(b.campaign())
    await eventually(lambda: len(a.mirror.snapshot().kvs) == 2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [kv.value for kv in (await client.list_prefix(prefix)).kvs] == [b"a"]


async def test_a_leader_of_an_emptied_etcd_steps_down_and_an_election_follows(
    own_etcd: EtcdServer, make_candidate: MakeCandidate
) -> None:
    a, b = await make_candidate("a", own_etcd.endpoint), await make_candidate("b", own_etcd.endpoint)
    first = await a.campaign()
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    await asyncio.wait_for(first.lost.wait(), 30)
    winner, pending = await asyncio.wait(
        {asyncio.create_task(each.campaign()) for each in (a, b)}, timeout=30, return_when=asyncio.FIRST_COMPLETED
    )
    assert len(winner) == 1
    assert winner.pop().result().valid
    for each in pending:
        each.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
