"""How processes start: they wait for what is away, in one clear line a try, and refuse what can never work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from tidewheel import Client

from core.clock import SystemClock
from core.rand import SystemRand
from core.store.cluster import found_cluster
from core.store.database import Database, DatabaseConfig
from tests.support.command import environment, tidewheel
from tests.support.databases import Databases
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.fleet import Fleet, Member, until_served
from tools.servers.embedded import Backing
from tools.servers.etcd import EtcdServer
from tools.servers.free_port import free_port

WITHIN_S = 60.0
NO_DATABASE = "waiting for the database: "
NO_ETCD = "etcd cannot be reached ("
NO_SCHEMA = "waiting for the schema: "
NO_CONTROL_PLANE = "control plane at "


@dataclass(frozen=True)
class Site:
    """Where a cluster could be: a database without a schema and an etcd, each behind a door that is shut at first."""

    database_url: str
    database: TcpProxy
    etcd: TcpProxy
    log_dir: Path
    cluster: str

    @contextmanager
    def fleet(self, extra: Mapping[str, str] | None = None) -> Iterator[Fleet]:
        """Starts processes that know these addresses, and ends them."""
        parts = urlsplit(self.database_url)
        credentials = parts.netloc.rpartition("@")[0]
        behind = urlunsplit(parts._replace(netloc=f"{credentials}@{self.database.endpoint}"))
        with Backing(database_url=behind, etcd_endpoints=(self.etcd.endpoint,)) as backing:
            environ = environment({"TIDEWHEEL_CLUSTER_NAME": self.cluster, **(extra or {})})
            fleet = Fleet(backing, self.log_dir, environ)
            try:
                yield fleet
            finally:
                fleet.stop()


@pytest.fixture
async def site(databases: Databases, etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Site]:
    url = await databases.create_empty()
    port = urlsplit(url).port
    assert port is not None
    doors = TcpProxy("127.0.0.1", port), TcpProxy("127.0.0.1", int(etcd.endpoint.rpartition(":")[2]))
    for door in doors:
        door.port = free_port()
    yield Site(url, *doors, tmp_path, f"starts-{uuid4().hex}")
    for door in doors:
        await door.refuse()
        door.cut()
    await databases.drop(url)


@pytest.mark.parametrize("away", ["database", "etcd", "database and etcd", "schema"])
async def test_a_server_waits_for_what_is_away_and_comes_up_once_it_is_there(site: Site, away: str) -> None:
    if away != "schema":
        assert tidewheel("migrate", "--database-url", site.database_url).code == 0
    if "database" not in away:
        await site.database.start()
    if "etcd" not in away:
        await site.etcd.start()
    with site.fleet() as fleet:
        patient = [fleet.start_control_plane(), fleet.start_dispatcher()]
        impatient = [fleet.start_control_plane("controlplane-2"), fleet.start_dispatcher("dispatcher-2")]
        for server in [*patient, *impatient]:
            await _complains(server, away)
        for server in impatient:
            await _ends_when_told(server)
        fleet.members = patient
        if "database" in away:
            await site.database.start()
        if "etcd" in away:
            await site.etcd.start()
        if away == "schema":
            assert tidewheel("migrate", "--database-url", site.database_url).code == 0
        await _comes_up(fleet)


async def test_a_worker_waits_for_a_control_plane_and_works_once_there_is_one(site: Site) -> None:
    assert tidewheel("migrate", "--database-url", site.database_url).code == 0
    await site.database.start()
    await site.etcd.start()
    port = free_port()
    with site.fleet({"TIDEWHEEL_CONTROLPLANE_LISTEN": f"127.0.0.1:{port}"}) as fleet:
        worker, impatient = fleet.start_worker(), fleet.start_worker("worker-2")
        for each in (worker, impatient):
            lines = await eventually(partial(_lines, each, NO_CONTROL_PLANE), WITHIN_S, what="it says why")
            assert f"at 127.0.0.1:{port} does not answer: " in lines[0]
        await _ends_when_told(impatient)
        fleet.members = [worker]
        fleet.start_control_plane(port=port)
        fleet.start_dispatcher()
        await _comes_up(fleet)


async def _comes_up(fleet: Fleet) -> None:
    """The system serves, a run succeeds, and no log has a trace."""
    await until_served(fleet, dispatchers=1)
    if all(member.role != "worker" for member in fleet.members):
        fleet.start_worker()
    async with Client(fleet.addresses) as client:
        await client.create_job("first", handler="exec", payload={"argv": ["true"]})
        run = await client.trigger_job("first")
        await eventually(lambda: _succeeded(client, run.run_id), WITHIN_S, what="the first run succeeds")
    for member in fleet.members:
        assert member.running
        assert "Traceback" not in member.child.log.read_text()


async def _complains(server: Member, away: str) -> None:
    """It says in one line what it waits for; of the database, that it tries less and less often."""
    if "database" in away:
        tries = await eventually(lambda: _lines(server, NO_DATABASE, 2), WITHIN_S, what=f"{server.name} says why")
        assert [line.rpartition("; ")[2] for line in tries[:2]] == ["next try in 0.5 s", "next try in 1.0 s"]
    elif away == "etcd":
        (line,) = await eventually(lambda: _lines(server, NO_ETCD), WITHIN_S, what=f"{server.name} says why")
        assert line.endswith("; trying on")
    else:
        (line,) = await eventually(lambda: _lines(server, NO_SCHEMA), WITHIN_S, what=f"{server.name} says why")
        assert line.endswith("run `tidewheel migrate`")
    assert server.running
    assert "Traceback" not in server.child.log.read_text()


async def _ends_when_told(member: Member) -> None:
    """Nobody has to use SIGKILL on a process that waits."""
    member.child.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(member.child.process.wait, 30) == 0, member.name


def _lines(member: Member, text: str, count: int = 1) -> list[str]:
    """The lines of its log that say so, once there are `count` of them."""
    found = [line for line in member.child.log.read_text().splitlines() if text in line]
    return found if len(found) >= count else []


async def _succeeded(client: Client, run_id: str) -> bool:
    return (await client.get_run(run_id)).state == "SUCCEEDED"


@pytest.mark.parametrize("role", ["controlplane", "dispatcher"])
@pytest.mark.parametrize(
    ("key", "given", "decided"), [("cluster.shard_count", "32", "16"), ("cluster.bucket_width_ms", "2000", "5000")]
)
async def test_a_server_that_is_configured_unlike_its_cluster_refuses_to_start(
    database_url: str, etcd: EtcdServer, role: str, key: str, given: str, decided: str
) -> None:
    database = Database(DatabaseConfig(database_url), SystemClock(), SystemRand())
    await found_cluster(database, cluster_id=uuid4(), shard_count=16, bucket_width_ms=5_000, now_us=1)
    await database.close()
    settings = {"cluster.shard_count": "16", "cluster.name": f"unlike-{uuid4().hex}", key: given}
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = await asyncio.to_thread(
        tidewheel,
        *(role, "--listen", "127.0.0.1:0", "--database-url", database_url, "--etcd-endpoints", etcd.endpoint, *flags),
    )
    assert done.code == 2
    rule = f"is {given} here, but {decided} was decided when the cluster was founded"
    assert done.err.splitlines()[-1] == f"tidewheel: {key}: {rule}"
    assert "Traceback" not in done.err


@pytest.mark.parametrize("role", [("controlplane",), ("dispatcher",), ("worker", "exec"), ("migrate",)])
def test_a_misspelt_key_in_the_file_is_refused_by_every_role(tmp_path: Path, role: tuple[str, ...]) -> None:
    file = tmp_path / "tidewheel.toml"
    file.write_text("[dispatcher]\ntick_secs = 0.5\n")
    done = tidewheel(*role, "--config", str(file))
    assert done.code == 2
    assert done.complaint == (f"tidewheel: {file}: unknown key dispatcher.tick_secs (did you mean dispatcher.tick_s?)")
