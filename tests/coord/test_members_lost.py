"""Three members of etcd, one of them lost: a gap of about one election, no event missed, no lease given up."""

from __future__ import annotations

import asyncio
import time

import pytest

from core.clock import SystemClock
from core.config import EtcdSettings
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig
from core.coord.records import Event
from core.coord.session import Session
from core.coord.settings import etcd_config, session_config
from core.rand import SystemRand
from core.tasks import Tasks
from tests.coord.conftest import MakeClient, stored
from tests.coord.watching import collect, write_through
from tests.support.polling import eventually
from tools.servers.etcd_cluster import EtcdCluster, EtcdMember

# An election of etcd's takes one to two seconds; with the way to it, three are expected.
GAP_BOUND_S = 10.0


def led_first(members: EtcdCluster, leader: EtcdMember) -> tuple[str, ...]:
    """The endpoints with the leader's in front: whoever is given them begins at the member that is to be lost."""
    return (leader.client_url, *(each.client_url for each in members.members if each is not leader))


def lose(member: EtcdMember, fault: str) -> None:
    """By SIGKILL or SIGSTOP."""
    if fault == "killed":
        member.kill()
    else:
        member.freeze()


class Writer:
    """Writes one key after another, and knows the longest time between two that went through."""

    def __init__(self, client: EtcdClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self.written: list[str] = []
        self.longest_s = 0.0

    async def write(self, count: int) -> None:
        """So many more keys, none twice."""
        for _ in range(count):
            began_s = time.monotonic()
            key = f"{self._prefix}{len(self.written):05}"
            await write_through(self._client, key)
            self.written.append(key)
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_a_lost_leader_costs_one_election_and_no_event(
    members: EtcdCluster, tasks: Tasks, fault: str, prefix: str
) -> None:
    """With the product's own deadlines, and everybody at the member that is lost."""
    leader = members.leader()
    config = EtcdConfig(led_first(members, leader))
    writing, watching = (EtcdClient(config, SystemClock(), SystemRand()) for _ in range(2))
    seen: list[Event] = []
    try:
        begin = (await watching.get(prefix)).at.revision + 1
        tasks.spawn(collect(watching, prefix, begin, seen), name="watch")
        writer = Writer(writing, prefix)
        await writer.write(50)
        await eventually(lambda: len(seen) == 50)
        lose(leader, fault)
        await writer.write(50)
        await eventually(lambda: len(seen) == 100, GAP_BOUND_S)
        assert [event.kv.key for event in seen] == writer.written, "each once, in order"
        assert writer.longest_s < GAP_BOUND_S
        assert members.leader() is not leader
        print(f"{fault}: longest gap between writes {writer.longest_s:.1f} s")
    finally:
        await tasks.close()
        await writing.close()
        await watching.close()


@pytest.mark.parametrize(
    ("lost", "fault"), [("the leader", "killed"), ("the leader", "frozen"), ("a follower", "frozen")]
)
async def test_a_lease_is_kept_over_the_loss_of_a_member_by_asking_the_others(
    members: EtcdCluster, tasks: Tasks, lost: str, fault: str, prefix: str
) -> None:
    """For longer than its TTL, so that only the other members can have renewed it.

    The TTL is one and a half times the product's own: an election of etcd's takes long on a machine that is busy.
    """
    leader = members.leader()
    victim = leader if lost == "the leader" else members.followers()[0]
    settings = EtcdSettings(endpoints=led_first(members, victim), lease_ttl_s=8)
    client = EtcdClient(etcd_config(settings), SystemClock(), SystemRand())
    session = Session(client, session_config(settings), SystemClock(), tasks)
    session.put(prefix + "k", b"1")
    session.start()
    try:
        await session.settled()
        lease = await eventually(lambda: session.held)
        assert (await client.server_version()).startswith("3.")
        lose(victim, fault)
        gone_s = time.monotonic()
        await eventually(lambda: lease.lost.is_set() or time.monotonic() - gone_s > settings.lease_ttl_s + 2, 30)
        assert session.held is lease, lease.loss
        kept = await stored(client, prefix + "k")
        assert kept is not None
        assert (kept.version, kept.lease) == (1, lease.lease)
    finally:
        await tasks.close()
        await session.close()
        await client.close()


async def test_a_thawed_leader_of_before_misleads_nobody(
    members: EtcdCluster, make_client: MakeClient, tasks: Tasks, prefix: str
) -> None:
    """It comes back believing that it leads: what it is asked it must not answer from its old state."""
    leader = members.leader()
    client = make_client(*led_first(members, leader))
    seen: list[Event] = []
    await client.put(prefix + "0", b"")
    leader.freeze()
    through_others = make_client(*(each.client_url for each in members.members if each is not leader))
    for number in range(1, 20):
        await write_through(through_others, f"{prefix}{number}")
    leader.thaw()
    again = make_client(leader.client_url)
    assert (await again.list_prefix(prefix)).count == 20, "linearizable, also at the member that was away"
    tasks.spawn(collect(again, prefix, 1, seen), name="watch")
    await eventually(lambda: len(seen) == 20)


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_without_a_quorum_nothing_is_answered_and_with_it_all_is_back(
    members: EtcdCluster, make_client: MakeClient, tasks: Tasks, fault: str, prefix: str
) -> None:
    client = make_client(*members.endpoints)
    seen: list[Event] = []
    session = Session(client, session_config(EtcdSettings()), SystemClock(), tasks)
    session.put(prefix + "k", b"1")
    session.start()
    await session.settled()
    lease = await eventually(lambda: session.held)
    tasks.spawn(collect(client, prefix, (await client.get(prefix)).at.revision + 1, seen), name="watch")
    for member in members.followers():
        lose(member, fault)
    await eventually(lambda: not client.reachable, 30)
    await asyncio.wait_for(lease.lost.wait(), 30)
    for member in members.members:
        if fault == "killed" and not member.running:
            member.launch()
        member.thaw()
    await eventually(lambda: client.reachable, 30)
    again = await eventually(lambda: session.held, 30)

    async def is_back() -> bool:
        kept = await stored(client, prefix + "k")
        return kept is not None and kept.lease == again.lease

    await eventually(is_back, 30)
    await write_through(client, prefix + "after")
    await eventually(lambda: seen and seen[-1].kv.key == prefix + "after", 10)
