"""Watches against a real etcd: every event once and in order, whatever happens to the server or the way to it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig, EtcdUser
from core.coord.faults import AccessDenied, Compacted, StoreReplaced
from core.coord.records import Event, Op, Put
from core.tasks import Tasks
from tests.coord.conftest import MakeClient
from tests.coord.watching import collect, fill, write_through
from tests.support import etcd_auth
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer


async def test_a_live_watch_over_kill_9_and_restart_sees_300_writes_once_each(
    own_etcd: EtcdServer, own_client: EtcdClient, tasks: Tasks
) -> None:
    seen: list[Event] = []
    tasks.spawn(collect(own_client, "/w/", 1, seen), name="watch")
    written: list[str] = []
    for number in range(300):
        if number in (100, 200):
            own_etcd.kill()
            own_etcd.start()
        written.append(f"/w/{number:05}")
        await write_through(own_client, written[-1])
    await eventually(lambda: len(seen) >= 300, 30)
    assert [event.kv.key for event in seen] == written
    assert [event.kv.mod_revision for event in seen] == sorted({event.kv.mod_revision for event in seen})


@pytest.mark.parametrize("size", [10, 10_000], ids=["small values", "10 KB values"])
async def test_a_replay_of_3000_revisions_broken_midway_sees_each_once(
    etcd: EtcdServer, proxy: TcpProxy, make_client: MakeClient, tasks: Tasks, prefix: str, size: int
) -> None:
    direct = make_client(etcd.endpoint, total_timeout_s=20.0, call_timeout_s=10.0)
    begin = (await direct.get(prefix)).at.revision + 1
    keys = await fill(direct, prefix, 3000, b"v" * size)
    seen: list[Event] = []
    for share in (4, 2):
        proxy.cut_after(3000 * (size + 50) // share)
        connections = proxy.connections_seen
        # A server that is busy with a replay gives no other sign of life, and is not to be left for that.
        through = make_client(proxy.endpoint, watch_silence_s=5.0)
        watch = tasks.spawn(collect(through, prefix, begin, seen), name="watch")
        await eventually(lambda: len(seen) >= 3000, 30)
        watch.cancel()
        assert proxy.connections_seen > connections + 1, "the replay was broken midway"
        assert sorted(event.kv.key for event in seen) == keys
        revisions = [event.kv.mod_revision for event in seen]
        assert revisions == sorted(set(revisions))
        seen.clear()


async def test_a_large_transaction_arrives_whole_and_once(
    etcd: EtcdServer, proxy: TcpProxy, make_client: MakeClient, tasks: Tasks, prefix: str
) -> None:
    """One revision with many events may be split over several answers; a break between them repeats none."""
    direct = make_client(etcd.endpoint, call_timeout_s=10.0)
    begin = (await direct.get(prefix)).at.revision + 1
    for round_ in range(20):
        puts: list[Op] = [Put(f"{prefix}{round_:02}/{number:03}", b"v" * 12_000) for number in range(100)]
        await direct.txn([], puts)
    seen: list[Event] = []
    proxy.cut_after(9_000_000)
    through = make_client(proxy.endpoint, watch_silence_s=5.0)
    tasks.spawn(collect(through, prefix, begin, seen), name="watch")
    await eventually(lambda: len(seen) >= 2000, 30)
    assert len({event.kv.key for event in seen}) == len(seen) == 2000


async def test_b76_a_watch_from_a_compacted_revision_raises_and_never_hangs(client: EtcdClient, prefix: str) -> None:
    begin = (await client.put(prefix + "k", b"1")).revision
    await client.put(prefix + "k", b"2")
    newest = (await client.put(prefix + "k", b"3")).revision
    await client.compact(newest)
    with pytest.raises(Compacted) as gone:
        await asyncio.wait_for(collect(client, prefix, begin, []), 20)
    assert gone.value.revision == newest
    seen: list[Event] = []
    watch = asyncio.create_task(collect(client, prefix, newest, seen))
    await eventually(lambda: seen)
    watch.cancel()
    assert seen[0].kv.value == b"3"


async def test_deletions_are_events_and_silence_is_not_the_end(client: EtcdClient, tasks: Tasks, prefix: str) -> None:
    """The watch outlives several times the silence after which a server is asked for a sign of life."""
    begin = (await client.put(prefix + "k", b"1")).revision + 1
    seen: list[Event] = []
    signs: list[int] = []

    async def follow() -> None:
        async with aclosing(client.watch(prefix, begin)) as batches:
            async for batch in batches:
                if batch.resumed:  # a server that stood still for so long was left: begin to count again
                    signs.clear()
                seen.extend(batch.events)
                signs.append(batch.at.revision)

    tasks.spawn(follow(), name="watch")
    await eventually(lambda: len(signs) >= 4, what="signs of life on one stream")
    await client.delete(prefix + "k")
    await eventually(lambda: seen)
    assert [(event.kv.key, event.deleted) for event in seen] == [(prefix + "k", True)]


@pytest.mark.parametrize("fault", ["stalled", "one way"])
async def test_a_silent_server_is_left_for_another_endpoint(
    etcd: EtcdServer,
    client: EtcdClient,
    proxy: TcpProxy,
    make_client: MakeClient,
    tasks: Tasks,
    prefix: str,
    fault: str,
) -> None:
    begin = (await client.get(prefix)).at.revision + 1
    both = make_client(proxy.endpoint, f"localhost:{etcd.port}")
    seen: list[Event] = []
    tasks.spawn(collect(both, prefix, begin, seen), name="watch")
    await client.put(prefix + "1", b"")
    await eventually(lambda: len(seen) == 1)
    if fault == "stalled":
        proxy.stall()
    else:
        proxy.drop(to_client=True)
    await client.put(prefix + "2", b"")
    await eventually(lambda: len(seen) == 2, 20)
    assert [event.kv.key.removeprefix(prefix) for event in seen] == ["1", "2"]


async def test_a_silent_server_is_left_by_its_missing_answer_to_a_ping_too(
    etcd: EtcdServer, client: EtcdClient, proxy: TcpProxy, make_client: MakeClient, tasks: Tasks, prefix: str
) -> None:
    """The connection itself is ended, whatever a stream would still wait for: here for minutes."""
    begin = (await client.get(prefix)).at.revision + 1
    settings = {"watch_silence_s": 300.0, "ping_interval_s": 5.0, "call_timeout_s": 1.0}
    both = make_client(proxy.endpoint, f"localhost:{etcd.port}", **settings)
    seen: list[Event] = []
    tasks.spawn(collect(both, prefix, begin, seen), name="watch")
    await client.put(prefix + "1", b"")
    await eventually(lambda: len(seen) == 1)
    proxy.stall()
    await client.put(prefix + "2", b"")
    await eventually(lambda: len(seen) == 2, 60)


@pytest.mark.long
async def test_etcd_minds_none_of_our_pings(client: EtcdClient, make_client: MakeClient, proxy: TcpProxy) -> None:
    """It ends a connection at the third ping that comes too early; a watch that is quiet all the while shows it."""
    quiet = make_client(proxy.endpoint, watch_silence_s=300.0, ping_interval_s=EtcdConfig(("a:1",)).ping_interval_s)
    watch = asyncio.create_task(collect(quiet, "/quiet/", 1, []))
    await asyncio.wait({watch}, timeout=32)
    assert proxy.connections_seen == 1
    watch.cancel()


async def test_a_frozen_server_that_goes_on_has_lost_nothing(
    own_etcd: EtcdServer, own_client: EtcdClient, tasks: Tasks
) -> None:
    seen: list[Event] = []
    tasks.spawn(collect(own_client, "/w/", 1, seen), name="watch")
    await own_client.put("/w/1", b"")
    await eventually(lambda: len(seen) == 1)
    own_etcd.freeze()
    await eventually(lambda: not own_client.reachable)
    own_etcd.thaw()
    await write_through(own_client, "/w/2")
    await eventually(lambda: len(seen) == 2)
    assert [event.kv.key for event in seen] == ["/w/1", "/w/2"]


async def test_a_watch_notices_an_emptied_etcd(own_etcd: EtcdServer, own_client: EtcdClient) -> None:
    for number in range(5):
        await own_client.put("/w/k", str(number).encode())
    watch = asyncio.create_task(collect(own_client, "/w/", 6, []))
    await asyncio.sleep(0)
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    with pytest.raises(StoreReplaced):
        await asyncio.wait_for(watch, 30)


async def test_a_watch_without_permission_is_an_error_and_not_a_hang(
    locked_etcd: EtcdServer, make_client: MakeClient
) -> None:
    """With no user at all, and with one who may only use another prefix."""
    with pytest.raises(AccessDenied):
        await asyncio.wait_for(collect(make_client(locked_etcd.endpoint), "/mine/", 1, []), 20)
    user = make_client(locked_etcd.endpoint, user=EtcdUser(etcd_auth.USER, etcd_auth.PASSWORD))
    with pytest.raises(AccessDenied):
        await asyncio.wait_for(collect(user, "/theirs/", 1, []), 20)
    seen: list[Event] = []
    watch = asyncio.create_task(collect(user, "/mine/", 1, seen))
    await user.put("/mine/k", b"")
    await eventually(lambda: seen)
    watch.cancel()


async def test_a_user_whose_token_the_server_forgot_authenticates_again(
    locked_etcd: EtcdServer, make_client: MakeClient, tasks: Tasks
) -> None:
    """Tokens live in the server's memory: a restart forgets them."""
    user = make_client(locked_etcd.endpoint, user=EtcdUser(etcd_auth.USER, etcd_auth.PASSWORD))
    seen: list[Event] = []
    tasks.spawn(collect(user, "/mine/", 1, seen), name="watch")
    await user.put("/mine/1", b"")
    await eventually(lambda: len(seen) == 1)
    locked_etcd.kill()
    locked_etcd.start()
    await write_through(user, "/mine/2")
    await eventually(lambda: len(seen) == 2)
    assert [event.kv.key for event in seen] == ["/mine/1", "/mine/2"]
