"""Two leaders that both believe in themselves: the plan is the newer one's, wherever the older one was stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.config import SessionConfig
from core.coord.coord import EtcdCoord
from core.coord.faults import LeadershipLost
from core.coord.layout import Layout, LeaderInfo, Plan, decode_plan
from core.coord.records import Event
from core.rand import SystemRand
from core.tasks import Tasks
from tests.coord.conftest import MakeClient, quick
from tests.coord.watching import collect
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer
from tools.servers.etcd_cluster import EtcdCluster
from tools.servers.process import Child, start_child

R1, R2 = LeaderInfo("r1", "127.0.0.1:7000"), LeaderInfo("r2", "127.0.0.1:7010")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> str:
    """A cluster of this test's own in the shared etcd."""
    return "".join(mark if mark.isalnum() else "-" for mark in str(request.node.name))[-60:].strip("-")


def plan_writer(members: EtcdCluster, cluster: str, name: str, home: Path) -> Child:
    """Start a process that writes plans while it leads."""
    return start_child(
        name,
        [sys.executable, "-m", "tests.support.plan_writer", ",".join(members.endpoints), cluster, name],
        log=home / f"{name}.log",
        env={"PYTHONPATH": os.pathsep.join(part for part in sys.path if part), "no_proxy": "127.0.0.1"},
    )


@pytest.mark.parametrize("after", [40, 97])
async def test_b70_a_leader_frozen_over_its_lease_in_the_middle_of_a_write_changes_nothing(
    members: EtcdCluster, make_client: MakeClient, tasks: Tasks, cluster: str, tmp_path: Path, after: int
) -> None:
    """Two processes that do nothing but write plans; the first is stopped somewhere in a write, and let go on later."""
    client = make_client(*members.endpoints)
    plans: list[Event] = []
    tasks.spawn(collect(client, Layout(cluster).plan, 1, plans), name="watch")
    old = plan_writer(members, cluster, "old", tmp_path)
    young: Child | None = None
    try:
        await eventually(lambda: len(plans) >= after, 30)
        old.freeze()
        young = plan_writer(members, cluster, "young", tmp_path)
        taken = await eventually(lambda: _first_of("young", plans), 60, what="the next leader's first plan")
        old.thaw()
        await eventually(lambda: not old.running, 30, what="the old leader noticed")
        assert "lost: not leading" in old.log.read_text().splitlines()[-1]
        seen = len(plans)
        await eventually(lambda: len(plans) >= seen + 20, 30, what="the next leader goes on")
        writers = [_writer(event) for event in plans]
        assert set(writers[:taken]) == {"old"}
        assert set(writers[taken:]) == {"young"}, "no plan of the old leader after the first of the next one"
        versions = [decode_plan(event.kv.value).version for event in plans]
        assert versions == sorted(set(versions))
        assert "wrote" in young.log.read_text()
    finally:
        for child in filter(None, (old, young)):
            child.stop(within_s=5)


@pytest.mark.parametrize("next_wrote", [True, False], ids=["after the next plan", "before the next plan"])
@pytest.mark.parametrize("held_up", ["before it is sent", "on its way"])
async def test_a_plan_held_up_until_another_leads_is_refused(
    etcd: EtcdServer,
    proxy: TcpProxy,
    client: EtcdClient,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    held_up: str,
    next_wrote: bool,
) -> None:
    """The very point at which a pause does harm: after the look at what is there, and before the write is decided."""
    trusting = SessionConfig(ttl_s=60)
    config = quick(proxy.endpoint, call_timeout_s=20.0, total_timeout_s=20.0, watch_silence_s=20.0)
    old = EtcdCoord(config, trusting, cluster, SystemClock(), SystemRand())
    new = EtcdCoord(quick(etcd.endpoint), trusting, cluster, SystemClock(), SystemRand())
    looked, go_on = asyncio.Event(), asyncio.Event()
    guarded_txn = old._election.guarded_txn

    async def hold_up(*arguments: object) -> object:
        looked.set()
        if held_up == "on its way":
            proxy.stall()
        else:
            await go_on.wait()
        return await guarded_txn(*arguments)  # type: ignore[arg-type]

    try:
        for each in (old, new):
            each.start()
        first = await asyncio.wait_for(old.campaign(R1), 20)
        await old.write_plan(first, Plan(1, ()))
        monkeypatch.setattr(old._election, "guarded_txn", hold_up)
        writing = asyncio.create_task(old.write_plan(first, Plan(2, ())))
        await looked.wait()
        await old.tasks.close()  # it hears nothing any more, as a process that stands still
        await client.revoke(first.held.lease)
        second = await asyncio.wait_for(new.campaign(R2), 20)
        if next_wrote:
            await new.write_plan(second, Plan(3, ()))
        assert first.valid, "it believes"
        go_on.set()
        proxy.heal()
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(writing, 20)
        if not next_wrote:
            await new.write_plan(second, Plan(3, ()))
        stored = (await client.get(Layout(cluster).plan)).first
        assert stored is not None
        assert (decode_plan(stored.value).version, stored.version) == (3, 2), "one plan, the new leader's"
        assert second.valid
    finally:
        await old.close()
        await new.close()


def _writer(event: Event) -> str:
    return decode_plan(event.kv.value).assignments[0].dispatcher_id


def _first_of(name: str, plans: list[Event]) -> int:
    """The position of the first plan of this writer, 0 while there is none."""
    return next((at for at, event in enumerate(plans) if _writer(event) == name), 0)
