"""Three members with TLS, client certificates, users and expiring tokens, set up as docs/operations-etcd.md says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.clock import SystemClock
from core.config import EtcdSettings
from core.coord.client import EtcdClient
from core.coord.config import EtcdTls, EtcdUser
from core.coord.coord import EtcdCoord
from core.coord.faults import AccessDenied
from core.coord.layout import Layout, LeaderInfo, Member, Owner, Plan
from core.coord.settings import etcd_config, session_config
from core.errors import Invalid, Unavailable
from core.rand import SystemRand
from tests.coord.conftest import MakeClient
from tests.coord.watching import collect
from tests.support import etcd_auth
from tests.support.certificates import Authority, signing_keys
from tests.support.polling import eventually
from tools.servers.etcd_cluster import EtcdCluster
from tools.servers.homes import temporary_home

TOKEN_TTL_S = 2
CLUSTER = "secured"
D1 = Member("d1", "127.0.0.1:7001", "", 1)

MakeCoord = Callable[[], EtcdCoord]


class Secured:
    """A cluster that takes nobody without a certificate and a password, and what ours are."""

    def __init__(self, home: Path, *tokens: str) -> None:
        self.authority = Authority(home / "authority")
        self.stranger = Authority(home / "stranger")
        self.cluster = EtcdCluster(home / "etcd", tls=self.authority.etcd_files(), flags=tokens)
        self.cert, self.key = self.authority.client("tidewheel-client")
        self.password_file = home / "password"
        self.password_file.write_text(etcd_auth.PASSWORD + "\n")

    @property
    def settings(self) -> EtcdSettings:
        """As a configuration file would give them."""
        return EtcdSettings(
            endpoints=self.cluster.endpoints,
            ca_file=str(self.authority.cert),
            cert_file=str(self.cert),
            key_file=str(self.key),
            user=etcd_auth.USER,
            password_file=str(self.password_file),
        )

    def authentications(self) -> float:
        """How often a token was asked for, at all members together since each was started."""
        method = 'grpc_method="Authenticate"'
        return sum(each.metric("grpc_server_started_total", method) for each in self.cluster.members)


@contextmanager
def secured(*tokens: str) -> Iterator[Secured]:
    with temporary_home() as home:
        made = Secured(home, *tokens)
        try:
            made.cluster.start()
            etcd_auth.restrict_cluster(made.cluster, Layout(CLUSTER).prefix)
            yield made
        finally:
            made.cluster.stop()


@pytest.fixture(scope="module")
def etcd() -> Iterator[Secured]:
    """One for all tests that leave it as it is."""
    with secured() as made:
        yield made


@pytest.fixture
async def coords() -> AsyncIterator[Callable[[EtcdSettings], EtcdCoord]]:
    """Makes and starts the port of one process, given its settings."""
    async with AsyncExitStack() as stack:

        def make(settings: EtcdSettings) -> EtcdCoord:
            config, session = etcd_config(settings), session_config(settings)
            coord = EtcdCoord(config, session, CLUSTER, SystemClock(), SystemRand())
            coord.start()
            stack.push_async_callback(finish, coord)
            return coord

        async def finish(coord: EtcdCoord) -> None:
            await coord.close()
            assert coord.tasks.failure is None

        yield make


@pytest.mark.parametrize("tokens", ["simple", "jwt"])
async def test_expired_tokens_and_restarted_members_are_not_noticed(
    coords: Callable[[EtcdSettings], EtcdCoord], tmp_path: Path, tokens: str
) -> None:
    """Permission for the cluster's own prefix is enough for everything that a dispatcher and a leader do."""
    public, private = signing_keys(tmp_path)
    signed = f"--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={TOKEN_TTL_S}s"
    with secured(f"--auth-token-ttl={TOKEN_TTL_S}" if tokens == "simple" else signed) as etcd:
        dispatcher, replica = coords(etcd.settings), coords(etcd.settings)
        dispatcher.register(D1)
        leadership = await asyncio.wait_for(replica.campaign(LeaderInfo("r1", "127.0.0.1:7000")), 30)
        await eventually(lambda: replica.members() == {"d1": D1})
        asked = etcd.authentications()
        await asyncio.sleep(TOKEN_TTL_S + 1.5)  # the tokens' own time, with nothing to do
        await replica.write_plan(leadership, Plan(1, ()))
        dispatcher.publish_owner(Owner(1, 1, 0, "d1"))
        await eventually(lambda: dispatcher.plan() == Plan(1, ()) and 1 in replica.owners())
        await eventually(lambda: etcd.authentications() > asked, what="the tokens did expire")
        for number, member in enumerate(etcd.cluster.members):
            await asyncio.to_thread(member.kill)
            member.launch()
            await asyncio.to_thread(member.wait_ready)
            dispatcher.publish_owner(Owner(10 + number, 1, 0, "d1"))
            await eventually(lambda: 10 + number in replica.owners(), 30)  # noqa: B023
        await eventually(lambda: replica.members() == {"d1": D1})
        assert (dispatcher.resets, replica.resets) == (0, 0)


async def test_what_the_user_may_not_read_is_an_error_and_not_a_hang(etcd: Secured, make_client: MakeClient) -> None:
    config = etcd_config(etcd.settings)
    ours = make_client(*config.endpoints, tls=config.tls, user=config.user)
    for prefix in (Layout("another").prefix, "/"):
        with pytest.raises(AccessDenied):
            await asyncio.wait_for(collect(ours, prefix, 1, []), 10)
        with pytest.raises(AccessDenied):
            await ours.list_prefix(prefix)
    with pytest.raises(AccessDenied):
        await ours.put(Layout("another").plan, b"{}")
    nobody = make_client(*config.endpoints, tls=config.tls)
    with pytest.raises(AccessDenied):
        await asyncio.wait_for(collect(nobody, Layout(CLUSTER).prefix, 1, []), 10)
    wrong = make_client(*config.endpoints, tls=config.tls, user=EtcdUser(etcd_auth.USER, "guessed"))
    with pytest.raises(AccessDenied, match="authentication failed"):
        await wrong.get(Layout(CLUSTER).plan)


@pytest.mark.parametrize("fault", ["no certificate", "a stranger's certificate", "a stranger's authority", "no TLS"])
async def test_a_wrong_certificate_is_named_as_the_cause(
    etcd: Secured, make_client: MakeClient, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    ca, own, endpoints = etcd.authority.cert, (etcd.cert, etcd.key), etcd.cluster.endpoints
    tls, said = {
        "no certificate": (EtcdTls(ca), "it does not accept our certificate; see etcd.cert_file"),
        "a stranger's certificate": (
            EtcdTls(ca, *etcd.stranger.client("someone")),
            "it does not accept our certificate; see etcd.cert_file",
        ),
        "a stranger's authority": (
            EtcdTls(etcd.stranger.cert, *own),
            "its certificate does not hold up against etcd.ca_file",
        ),
        "no TLS": (None, "it closed the connection; with TLS write https:// in etcd.endpoints"),
    }[fault]
    if tls is None:
        endpoints = tuple(each.endpoint for each in etcd.cluster.members)
    # One try that is over between two handshakes: those become rarer, and tell nothing while they last.
    patience = {"connect_timeout_s": 2.1, "total_timeout_s": 2.2, "retry_max_s": 60.0}
    client: EtcdClient = make_client(endpoints[0], tls=tls, **patience)
    with pytest.raises(Unavailable, match=said):
        await client.get("/k")
    lines = [record.getMessage() for record in caplog.records if record.name == "core.coord.endpoints"]
    assert len(lines) == 1, lines
    assert said in lines[0]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ca_file": "absent"}, "etcd.ca_file"),
        ({"ca_file": "password"}, "etcd.ca_file"),
        ({"cert_file": "absent"}, "etcd.cert_file"),
        ({"key_file": "password"}, "etcd.cert_file"),
        ({"cert_file": "stranger"}, "etcd.cert_file"),
        ({"key_file": ""}, "etcd.tls"),
        ({"password_file": "absent"}, "etcd.password_file"),
        ({"password_file": ""}, "etcd.password_file"),
    ],
)
def test_files_that_cannot_be_used_are_refused_at_the_start(
    etcd: Secured, tmp_path: Path, changes: dict[str, str], field: str
) -> None:
    files = {"absent": tmp_path / "absent", "password": etcd.password_file, "": ""}
    files["stranger"] = etcd.stranger.client("other")[0]
    assert etcd_config(etcd.settings).tls is not None
    with pytest.raises(Invalid) as refused:
        etcd_config(replace(etcd.settings, **{name: str(files[file]) for name, file in changes.items()}))
    assert refused.value.field == field
