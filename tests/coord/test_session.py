"""The lease of a process: kept through outages, and its loss told before the server could have expired it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.config import SessionConfig
from core.coord.session import HeldLease, Session
from core.tasks import Tasks
from tests.coord.conftest import MakeClient, stored
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer

MakeSession = Callable[..., Session]


@pytest.fixture
def make_session(tasks: Tasks) -> MakeSession:
    """Makes and starts sessions, given a client and settings."""

    def make(client: EtcdClient, **settings: float) -> Session:
        # No stall of the machine loses such a lease: a test that is about the loss of one says how long it is.
        config = SessionConfig(**({"ttl_s": 60, "renew_s": 0.5, "margin_s": 1.0} | settings))  # type: ignore[arg-type]
        session = Session(client, config, SystemClock(), tasks)
        session.start()
        return session

    return make


async def holding(session: Session) -> HeldLease:
    """The lease, as soon as there is one."""
    return await eventually(lambda: session.held)


async def test_keys_are_put_and_removed_as_wished(client: EtcdClient, make_session: MakeSession, prefix: str) -> None:
    session = make_session(client)
    session.put(prefix + "a", b"1")
    session.put(prefix + "b", b"1")
    session.put(prefix + "a", b"2")
    await session.settled()
    found = {kv.key: kv for kv in (await client.list_prefix(prefix)).kvs}
    assert {key.removeprefix(prefix): kv.value for key, kv in found.items()} == {"a": b"2", "b": b"1"}
    assert {kv.lease for kv in found.values()} == {(await holding(session)).lease}
    session.delete(prefix + "b")
    await session.settled()
    assert await stored(client, prefix + "b") is None


async def test_a_thousand_keys_go_in_several_transactions(
    client: EtcdClient, make_session: MakeSession, prefix: str
) -> None:
    session = make_session(client)
    for shard in range(1024):
        session.put(f"{prefix}{shard}", b"x")
    await session.settled()
    assert (await client.list_prefix(prefix)).count == 1024


async def test_a_key_that_somebody_else_has_taken_is_left_alone(
    client: EtcdClient, make_session: MakeSession, prefix: str
) -> None:
    """By deleting always, by putting where the caller's rule says so."""
    session, other = make_session(client), make_session(client)
    session.put(prefix + "k", b"1")
    await session.settled()
    other.put(prefix + "k", b"2")
    await other.settled()
    session.delete(prefix + "k")
    await session.settled()
    session.put(prefix + "k", b"1", lambda present: present < b"1")
    await session.settled()
    kept = await stored(client, prefix + "k")
    assert kept is not None
    assert (kept.value, kept.lease) == (b"2", (await holding(other)).lease)


async def test_closing_removes_the_keys_at_once(
    client: EtcdClient, make_client: MakeClient, etcd: EtcdServer, prefix: str
) -> None:
    tasks = Tasks()
    session = Session(make_client(etcd.endpoint), SessionConfig(ttl_s=60, renew_s=10.0), SystemClock(), tasks)
    session.start()
    session.put(prefix + "k", b"1")
    await session.settled()
    lease = await holding(session)
    await tasks.close()
    await session.close()
    assert lease.lost.is_set()
    assert await stored(client, prefix + "k") is None


async def test_a_lease_of_20_s_is_kept_over_an_outage_of_4_s(
    own_etcd: EtcdServer, own_client: EtcdClient, make_session: MakeSession
) -> None:
    session = make_session(own_client, ttl_s=20)
    session.put("/k", b"1")
    await session.settled()
    lease = await holding(session)
    own_etcd.kill()
    await asyncio.sleep(4)  # the outage itself
    assert lease.valid
    own_etcd.launch()
    await eventually(lambda: own_client.reachable, 20)
    assert await own_client.keep_alive(lease.lease, 10.0) == 20
    await eventually(lambda: lease.trusted_for_s > 18)
    assert session.held is lease
    kept = await stored(own_client, "/k")
    assert kept is not None
    assert kept.version == 1


async def test_a_lease_revoked_by_somebody_else_is_told_and_replaced_with_its_keys(
    client: EtcdClient, make_session: MakeSession, prefix: str
) -> None:
    session = make_session(client)
    session.put(prefix + "k", b"1")
    await session.settled()
    first = await holding(session)
    await client.revoke(first.lease)
    await asyncio.wait_for(first.lost.wait(), 20)
    assert not first.valid
    second = await holding(session)
    assert second.lease != first.lease
    await eventually(lambda: stored(client, prefix + "k"))
    assert session.losses == 1


async def test_the_holder_hears_of_a_frozen_server_before_it_could_expire_the_lease(
    own_etcd: EtcdServer, own_client: EtcdClient, make_session: MakeSession
) -> None:
    """SIGSTOP with a TTL of 10 s: the server counts from the last renewal that it saw."""
    session = make_session(own_client, ttl_s=10, margin_s=6.0)
    lease = await holding(session)
    await eventually(lambda: lease.trusted_for_s > 3.5)
    frozen_s = time.monotonic()
    own_etcd.freeze()
    await asyncio.wait_for(lease.lost.wait(), 20)
    told_after_s = time.monotonic() - frozen_s
    assert told_after_s < 10, "no renewal was seen after the freeze, so 10 s after it the server may expire"
    assert session.held is None
    own_etcd.thaw()
    assert (await holding(session)).lease != lease.lease


async def test_a_renewal_whose_answers_are_lost_does_not_extend_the_trust(
    proxy: TcpProxy, make_client: MakeClient, make_session: MakeSession
) -> None:
    session = make_session(make_client(proxy.endpoint), ttl_s=5)
    lease = await holding(session)
    proxy.drop(to_client=True)
    await asyncio.wait_for(lease.lost.wait(), 15)
    assert lease.loss == "no renewal was answered in time"
    proxy.heal()
    assert (await holding(session)).lease != lease.lease


async def test_after_a_lost_lease_the_keys_move_and_the_old_lease_is_revoked(
    client: EtcdClient, proxy: TcpProxy, make_client: MakeClient, make_session: MakeSession, prefix: str
) -> None:
    """The old lease still lives at the server, with the keys on it: they must not vanish in between."""
    session = make_session(make_client(proxy.endpoint), ttl_s=60, renew_s=0.5, margin_s=56)
    session.put(prefix + "k", b"1")
    await session.settled()
    first = await holding(session)
    created = await stored(client, prefix + "k")
    assert created is not None
    proxy.stall()
    await asyncio.wait_for(first.lost.wait(), 20)
    assert await client.time_to_live(first.lease) > 0
    proxy.heal()
    second = await holding(session)

    async def old_lease_is_gone() -> bool:
        return await client.time_to_live(first.lease) == -1

    await eventually(old_lease_is_gone)
    moved = await stored(client, prefix + "k")
    assert moved is not None
    assert (moved.lease, moved.create_revision) == (second.lease, created.create_revision)


async def test_a_session_survives_an_emptied_and_restarted_etcd(
    own_etcd: EtcdServer, own_client: EtcdClient, make_session: MakeSession
) -> None:
    session = make_session(own_client)
    for number in range(100):
        session.put(f"/k/{number}", b"1")
    await session.settled()
    first = await holding(session)
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    await asyncio.wait_for(first.lost.wait(), 30)

    async def all_are_back() -> bool:
        return (await own_client.list_prefix("/k/")).count == 100

    await eventually(all_are_back)


async def test_a_key_that_vanished_is_put_again(client: EtcdClient, make_session: MakeSession, prefix: str) -> None:
    """Whoever removed it, and although the lease is kept."""
    session = make_session(client, verify_s=0.3)
    session.put(prefix + "k", b"1")
    await session.settled()
    await client.delete(prefix + "k")
    await eventually(lambda: stored(client, prefix + "k"))
    assert session.losses == 0


async def test_a_process_that_was_paused_does_not_trust_its_lease(
    client: EtcdClient, make_session: MakeSession
) -> None:
    """B70: nothing of ours runs while a process is stopped, so trust is asked of the clock, not of a timer."""
    session = make_session(client, ttl_s=5)
    lease = await holding(session)
    time.sleep(4.5)  # noqa: ASYNC251 - the pause: the whole process stands still
    assert not lease.valid
    assert session.held is None
    await asyncio.wait_for(lease.lost.wait(), 5)


async def test_a_server_that_is_slow_is_not_said_to_be_away(
    proxy: TcpProxy, make_client: MakeClient, make_session: MakeSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Others would be asked as well by then; here there is only one, and it answers in the end."""
    behind = make_client(proxy.endpoint, call_timeout_s=5.0, connect_timeout_s=5.0)
    session = make_session(behind, ttl_s=20, renew_s=6.0, margin_s=1.0)
    lease = await holding(session)
    granted_until_s = lease.trusted_for_s + time.monotonic()
    proxy.delay_s = 0.9  # there and back: more than the quarter of the interval after which another would be asked
    await eventually(lambda: lease.trusted_for_s + time.monotonic() > granted_until_s + 1, 25)
    assert session.held is lease
    assert behind.reachable
    assert not [record for record in caplog.records if "cannot be reached" in record.getMessage()]
