"""The cached view of a prefix: always what etcd holds, in the end, whatever happened in between."""

from __future__ import annotations

import asyncio

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.mirror import Mirror, Snapshot
from core.tasks import Tasks
from tests.coord.conftest import MakeClient
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer


class Followed:
    """A started mirror, with what its listeners heard."""

    def __init__(self, client: EtcdClient, prefix: str, tasks: Tasks, audit_s: float = 15.0) -> None:
        self.mirror = Mirror(client, prefix, SystemClock(), tasks, audit_s=audit_s)
        self.changes = 0
        self.resets = 0
        self.mirror.on_change(self._changed)
        self.mirror.on_reset(self._reset)
        self.mirror.start()

    def values(self) -> dict[str, bytes]:
        """Names below the prefix, and what they hold."""
        kvs = self.mirror.snapshot().kvs
        return {key.removeprefix(self.mirror.prefix): kv.value for key, kv in kvs.items()}

    def _changed(self) -> None:
        self.changes += 1

    def _reset(self) -> None:
        self.resets += 1


async def test_it_shows_what_was_there_and_follows_what_comes(client: EtcdClient, tasks: Tasks, prefix: str) -> None:
    await client.put(prefix + "old", b"1")
    followed = Followed(client, prefix, tasks)
    await eventually(lambda: followed.values() == {"old": b"1"})
    await client.put(prefix + "new", b"2")
    await client.put(prefix + "old", b"3")
    await eventually(lambda: followed.values() == {"old": b"3", "new": b"2"})
    before = followed.mirror.snapshot()
    await client.delete(prefix + "old")
    await eventually(lambda: followed.values() == {"new": b"2"})
    assert len(before.kvs) == 2, "a snapshot taken stays as it was"
    assert followed.mirror.snapshot().revision > before.revision


async def test_it_waits_for_an_etcd_that_is_not_there_yet(
    own_etcd: EtcdServer, own_client: EtcdClient, tasks: Tasks
) -> None:
    own_etcd.kill()
    followed = Followed(own_client, "/m/", tasks)
    await eventually(lambda: not own_client.reachable)
    assert not followed.mirror.synced
    own_etcd.launch()
    await eventually(lambda: followed.mirror.synced)


async def test_b76_cut_off_for_100_writes_and_a_compaction_it_resyncs(
    client: EtcdClient,
    proxy: TcpProxy,
    make_client: MakeClient,
    tasks: Tasks,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    behind = make_client(proxy.endpoint)
    followed = Followed(behind, prefix, tasks)
    await eventually(lambda: followed.mirror.synced)
    await proxy.refuse()
    proxy.cut()
    for number in range(100):
        newest = await client.put(f"{prefix}{number % 10}", str(number).encode())
    await client.compact(newest.revision)
    await client.put(prefix + "after", b"x")
    await proxy.start()
    await eventually(lambda: len(followed.values()) == 11, 30)
    assert followed.values()["9"] == b"99"
    await eventually(lambda: sum("compacted, resync" in record.getMessage() for record in caplog.records) == 1)
    await client.put(prefix + "later", b"y")
    await eventually(lambda: "later" in followed.values())
    assert followed.resets == 0
    assert sum("compacted, resync" in record.getMessage() for record in caplog.records) == 1


async def test_after_an_emptied_etcd_it_starts_over_and_says_so(
    own_etcd: EtcdServer, own_client: EtcdClient, tasks: Tasks
) -> None:
    for number in range(10):
        await own_client.put(f"/m/{number}", b"1")
    followed = Followed(own_client, "/m/", tasks)
    await eventually(lambda: len(followed.values()) == 10)
    generation = followed.mirror.snapshot().generation
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    await eventually(lambda: followed.values() == {}, 30)
    assert followed.resets == 1
    assert followed.mirror.snapshot().generation == generation + 1
    await own_client.put("/m/new", b"2")
    await eventually(lambda: followed.values() == {"new": b"2"})


async def test_an_emptied_etcd_that_others_filled_past_our_revision_is_not_mistaken_for_the_old(
    own_etcd: EtcdServer, proxy_of_own: TcpProxy, own_client: EtcdClient, make_client: MakeClient, tasks: Tasks
) -> None:
    """While we were cut off, its revisions have overtaken ours, so nothing but the content tells."""
    await own_client.put("/m/old", b"1")
    followed = Followed(make_client(proxy_of_own.endpoint), "/m/", tasks)
    await eventually(lambda: followed.values() == {"old": b"1"})
    await proxy_of_own.refuse()
    proxy_of_own.cut()
    own_etcd.kill()
    own_etcd.wipe()
    own_etcd.start()
    await own_client.get("/m/old")  # asked again until the new server answers
    for number in range(20):
        await own_client.put(f"/m/{number}", b"2")
    await proxy_of_own.start()
    await eventually(lambda: followed.values() == {str(number): b"2" for number in range(20)})
    assert followed.resets == 1


async def test_the_audit_repairs_a_view_that_missed_events(client: EtcdClient, tasks: Tasks, prefix: str) -> None:
    """As old servers can lose events; here a wrong view is made by hand."""
    await client.put(prefix + "k", b"1")
    followed = Followed(client, prefix, tasks, audit_s=0.5)
    await eventually(lambda: followed.values() == {"k": b"1"})
    followed.mirror._snapshot = Snapshot(followed.mirror.snapshot().revision)
    assert followed.values() == {}
    await eventually(lambda: followed.values() == {"k": b"1"})


async def test_a_quiet_prefix_costs_no_change_and_a_later_write_is_seen(
    client: EtcdClient, tasks: Tasks, prefix: str
) -> None:
    """B76: a watch that hears nothing for long is alive, not stuck; here for several silences and audits."""
    followed = Followed(client, prefix, tasks, audit_s=0.5)
    await eventually(lambda: followed.mirror.synced)
    changes = followed.changes
    await asyncio.sleep(3)  # the quiet itself
    assert followed.changes == changes
    await client.put(prefix + "k", b"1")
    await eventually(lambda: followed.values() == {"k": b"1"})
