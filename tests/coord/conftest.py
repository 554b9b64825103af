"""What the tests of this room share: clients with short deadlines, proxies, and tasks that are ended with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from core.clock import SystemClock
from core.coord.client import EtcdClient
from core.coord.config import EtcdConfig, EtcdTls, EtcdUser
from core.coord.records import KeyValue
from core.rand import SystemRand
from core.tasks import Tasks
from tests.support import etcd_auth
from tests.support.servers import started
from tests.support.tcp_proxy import TcpProxy
from tools.servers.etcd import EtcdServer
from tools.servers.etcd_cluster import EtcdCluster

MakeClient = Callable[..., EtcdClient]


def quick(*endpoints: str, **changes: float | EtcdTls | EtcdUser | None) -> EtcdConfig:
    """Settings with which a lost connection shows within a second or two.

    A call that was sent waits longer for its answer, unless the test has it otherwise: a machine that stands still for
    a moment must not make an unknown outcome of a write.
    """
    total_s = changes.get("total_timeout_s", 12.0)
    assert isinstance(total_s, float)
    settings: dict[str, object] = {
        "connect_timeout_s": 0.5,
        "call_timeout_s": min(6.0, total_s),
        "total_timeout_s": total_s,
        "retry_max_s": 0.5,
        "watch_silence_s": 0.5,
    }
    return EtcdConfig(endpoints=endpoints, **(settings | changes))  # type: ignore[arg-type]


async def stored(client: EtcdClient, key: str) -> KeyValue | None:
    """What etcd holds under a key now."""
    return (await client.get(key)).first


@pytest.fixture
async def make_client() -> AsyncIterator[MakeClient]:
    """Makes clients, given endpoints and settings; they are closed after the test."""
    async with AsyncExitStack() as stack:

        def make(*endpoints: str, **changes: float | EtcdTls | EtcdUser | None) -> EtcdClient:
            client = EtcdClient(quick(*endpoints, **changes), SystemClock(), SystemRand())
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
async def client(etcd: EtcdServer, make_client: MakeClient) -> EtcdClient:
    """A client of the shared etcd."""
    return make_client(etcd.endpoint)


@pytest.fixture
async def own_client(own_etcd: EtcdServer, make_client: MakeClient) -> EtcdClient:
    """A client of this test's own etcd."""
    return make_client(own_etcd.endpoint)


@pytest.fixture
def locked_etcd(own_etcd: EtcdServer) -> EtcdServer:
    """This test's own etcd with access control: only etcd_auth.USER may do anything, and only under /mine/."""
    etcd_auth.restrict(own_etcd, "/mine/")
    return own_etcd


@pytest.fixture(scope="module")
def standing_members() -> Iterator[EtcdCluster]:
    """Three members for a module; tests take `members`, which are whole again for each of them."""
    with started(lambda home: EtcdCluster(home / "etcd")) as cluster:
        yield cluster


@pytest.fixture
def members(standing_members: EtcdCluster) -> Iterator[EtcdCluster]:
    """Three members to kill, freeze, wipe and restore: all running, one of them leading."""
    standing_members.leader()
    yield standing_members
    for member in standing_members.members:
        member.thaw()
    standing_members.start()
    standing_members.leader()


@pytest.fixture
async def proxy(etcd: EtcdServer) -> AsyncIterator[TcpProxy]:
    """A proxy before the shared etcd."""
    assert etcd.port is not None
    async with TcpProxy("127.0.0.1", etcd.port) as proxy:
        yield proxy


@pytest.fixture
async def proxy_of_own(own_etcd: EtcdServer) -> AsyncIterator[TcpProxy]:
    """A proxy before this test's own etcd."""
    assert own_etcd.port is not None
    async with TcpProxy("127.0.0.1", own_etcd.port) as proxy:
        yield proxy


@pytest.fixture
async def tasks(make_client: MakeClient) -> AsyncIterator[Tasks]:
    """Background tasks, ended before the clients are closed; one that failed fails the test."""
    tasks = Tasks()
    yield tasks
    await tasks.close()
    assert tasks.failure is None


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A prefix of this test's own in the shared etcd."""
    return f"/test/{request.node.nodeid}/"
