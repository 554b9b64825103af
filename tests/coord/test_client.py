"""The client against a real etcd: plain values in and out, and what becomes of a call when the network fails it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from core.coord.client import EtcdClient
from core.coord.faults import LeaseGone
from core.coord.records import Compare, Delete, Field, Get, Op, Put, Relation
from core.errors import Invalid, OutcomeUnknown, Unavailable
from tests.coord.conftest import MakeClient, stored
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer


@pytest.fixture
def dead_endpoint() -> Iterator[str]:
    """A port that is taken and refuses every connection."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_a_key_comes_back_with_its_revisions(client: EtcdClient, prefix: str) -> None:
    first = await client.put(prefix + "a", b"one")
    second = await client.put(prefix + "a", b"\x00\xfftwo")
    found = await client.get(prefix + "a")
    kv = found.first
    assert kv is not None
    assert (kv.key, kv.value, kv.version, kv.lease) == (prefix + "a", b"\x00\xfftwo", 2, 0)
    assert (kv.create_revision, kv.mod_revision) == (first.revision, second.revision)
    assert found.at.cluster_id == first.cluster_id != 0


async def test_a_prefix_lists_its_keys_only_in_key_order(client: EtcdClient, prefix: str) -> None:
    for name in ("b", "a", "a/deep"):
        await client.put(prefix + name, b"")
    await client.put(prefix.rstrip("/") + "0", b"the next key after the prefix")
    found = await client.list_prefix(prefix)
    assert [kv.key.removeprefix(prefix) for kv in found.kvs] == ["a", "a/deep", "b"]
    assert await client.delete(prefix, prefix=True) == 3
    assert (await client.get(prefix + "a")).first is None


async def test_a_key_that_is_not_text_survives_the_round_trip(client: EtcdClient, prefix: str) -> None:
    key = prefix + b"\xff\xfe".decode("utf-8", "surrogateescape")
    await client.put(key, b"x")
    assert [kv.key for kv in (await client.list_prefix(prefix)).kvs] == [key]


@pytest.mark.parametrize(
    ("field", "holds", "fails"),
    [
        (Field.VERSION, 2, 1),
        (Field.CREATE_REVISION, "create", 1),
        (Field.MOD_REVISION, "mod", "create"),
        (Field.VALUE, b"new", b"old"),
        (Field.LEASE, "lease", 0),
    ],
)
async def test_a_transaction_compares_each_field(
    client: EtcdClient, prefix: str, field: Field, holds: object, fails: object
) -> None:
    key = prefix + "k"
    lease = (await client.grant(60)).lease
    created = await client.put(key, b"old", lease)
    changed = await client.put(key, b"new", lease)
    operands = {"create": created.revision, "mod": changed.revision, "lease": lease}

    async def branch(operand: object) -> bool:
        named = operands[operand] if isinstance(operand, str) else operand
        assert isinstance(named, (int, bytes))
        result = await client.txn([Compare(key, field, named)], [Get(key)], [Get(key), Get(prefix, prefix=True)])
        assert len(result.reads) == (1 if result.succeeded else 2)
        return result.succeeded

    assert await branch(holds)
    assert not await branch(fails)


async def test_a_transaction_writes_all_or_nothing(client: EtcdClient, prefix: str) -> None:
    await client.put(prefix + "old", b"x")
    absent = Compare(prefix + "new", Field.CREATE_REVISION, 0)
    swap: list[Op] = [Put(prefix + "new", b"y"), Delete(prefix + "old")]
    assert (await client.txn([absent], swap)).succeeded
    assert not (await client.txn([absent], [Put(prefix + "other", b"z")])).succeeded
    assert [kv.key.removeprefix(prefix) for kv in (await client.list_prefix(prefix)).kvs] == ["new"]
    later = Compare(prefix + "new", Field.VERSION, 5, Relation.LESS)
    assert (await client.txn([later], [])).succeeded


async def test_a_lease_that_is_gone_is_named_as_such(client: EtcdClient, prefix: str) -> None:
    grant = await client.grant(60)
    assert await client.keep_alive(grant.lease, 10.0) == 60
    assert 0 < await client.time_to_live(grant.lease) <= 60
    await client.put(prefix + "k", b"", grant.lease)
    await client.revoke(grant.lease)
    assert (await client.get(prefix + "k")).first is None
    assert await client.keep_alive(grant.lease, 10.0) == 0
    assert await client.time_to_live(grant.lease) == -1
    with pytest.raises(LeaseGone):
        await client.put(prefix + "k", b"", grant.lease)
    with pytest.raises(LeaseGone):
        await client.revoke(grant.lease)


async def test_a_request_that_etcd_refuses_is_the_callers_fault(client: EtcdClient, prefix: str) -> None:
    with pytest.raises(Invalid, match="duplicate key"):
        await client.txn([], [Put(prefix + "k", b"1"), Put(prefix + "k", b"2")])
    with pytest.raises(Invalid, match="start_revision"):
        client.watch(prefix, 0)


async def test_a_write_whose_answer_was_lost_is_unknown_and_not_sent_again(
    etcd: EtcdServer, client: EtcdClient, proxy: TcpProxy, make_client: MakeClient, prefix: str
) -> None:
    """Through two endpoints, so that a second try would have had somewhere to go."""
    behind = make_client(proxy.endpoint, etcd.endpoint, connect_timeout_s=5.0, call_timeout_s=3.0)
    await behind.get(prefix)
    proxy.drop(to_client=True)
    with pytest.raises(OutcomeUnknown):
        await behind.put(prefix + "k", b"v")
    applied = await eventually(lambda: stored(client, prefix + "k"))
    assert applied is not None
    assert applied.version == 1
    assert await stored(behind, prefix + "k") == applied, "the next call goes to the other endpoint"


async def test_a_write_cut_off_on_its_way_is_unknown(
    proxy: TcpProxy, make_client: MakeClient, client: EtcdClient, prefix: str
) -> None:
    behind = make_client(proxy.endpoint)
    await behind.get(prefix)
    proxy.drop(to_client=True)
    write = asyncio.create_task(behind.put(prefix + "k", b"v"))
    await eventually(lambda: stored(client, prefix + "k"))
    proxy.cut()
    with pytest.raises(OutcomeUnknown):
        await write


async def test_a_write_that_could_not_be_sent_is_certainly_not_applied(
    make_client: MakeClient, dead_endpoint: str
) -> None:
    nowhere = make_client(dead_endpoint, total_timeout_s=1.0)
    with pytest.raises(Unavailable):
        await nowhere.put("/k", b"v")
    assert not nowhere.reachable


async def test_a_server_that_accepts_and_says_nothing_was_not_written_to(
    make_client: MakeClient, proxy: TcpProxy, client: EtcdClient, prefix: str
) -> None:
    proxy.stall()
    stuck = make_client(proxy.endpoint, total_timeout_s=1.5)
    with pytest.raises(Unavailable):
        await stuck.put(prefix + "k", b"v")
    proxy.heal()
    assert (await client.get(prefix + "k")).first is None


async def test_reads_and_writes_move_on_from_an_endpoint_that_refuses(
    etcd: EtcdServer, make_client: MakeClient, dead_endpoint: str, prefix: str
) -> None:
    """UNAVAILABLE; the endpoint that works is given by a DNS name."""
    both = make_client(f"http://{dead_endpoint}", f"http://localhost:{etcd.port}")
    await both.put(prefix + "k", b"v")
    assert (await both.get(prefix + "k")).first is not None
    assert both.reachable, "one dead endpoint of two is no outage"


async def test_reads_move_on_from_an_endpoint_that_freezes(
    etcd: EtcdServer, make_client: MakeClient, proxy: TcpProxy, prefix: str
) -> None:
    """DEADLINE_EXCEEDED."""
    both = make_client(proxy.endpoint, f"localhost:{etcd.port}", connect_timeout_s=5.0, call_timeout_s=3.0)
    await both.put(prefix + "k", b"v")
    seen = proxy.bytes_to_client
    assert seen > 0
    proxy.stall()
    assert (await both.get(prefix + "k")).first is not None
    assert (await both.put(prefix + "k", b"w")).revision > 0
    assert proxy.bytes_to_client == seen, "and stay away from it"


async def test_a_read_waits_for_a_restart(own_etcd: EtcdServer, own_client: EtcdClient) -> None:
    await own_client.put("/k", b"v")
    own_etcd.kill()
    read = asyncio.create_task(own_client.get("/k"))
    await eventually(lambda: not own_client.reachable)
    own_etcd.launch()
    assert (await read).first is not None
    assert own_client.reachable


async def test_losing_and_finding_etcd_is_one_line_each(
    own_etcd: EtcdServer, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client(own_etcd.endpoint, total_timeout_s=1.5)

    async def answers() -> bool:
        try:
            await client.get("/k")
        except Unavailable:
            return False
        return True

    await eventually(answers)
    caplog.clear()
    own_etcd.kill()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await client.get("/k")
    own_etcd.start()
    await eventually(answers)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("core.coord")]
    assert len(lines) == 2, lines
    assert "cannot be reached" in lines[0]
    assert "answers again" in lines[1]
    assert not any(record.exc_info for record in caplog.records)


async def test_a_closed_client_says_so(etcd: EtcdServer, make_client: MakeClient) -> None:
    client = make_client(etcd.endpoint)
    await client.get("/k")
    await client.close()
    with pytest.raises(Unavailable, match="closed"):
        await client.get("/k")
