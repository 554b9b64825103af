"""Settings are refused as a whole, with the field at fault, before anything is connected."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.coord.config import Address, EtcdConfig, EtcdTls, EtcdUser, SessionConfig, parse_endpoint
from core.errors import Invalid


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:2379", Address("127.0.0.1:2379", secure=False)),
        ("https://etcd.example:2379/", Address("etcd.example:2379", secure=True)),
        ("etcd-0:2379", Address("etcd-0:2379", secure=False)),
        ("http://[::1]:2379", Address("[::1]:2379", secure=False)),
    ],
)
def test_endpoints_are_read_with_and_without_a_scheme(text: str, address: Address) -> None:
    assert parse_endpoint(text) == address


@pytest.mark.parametrize(
    "text", ["", "etcd", "etcd:", ":2379", "etcd:0", "etcd:70000", "etcd:²", "ftp://etcd:1", "http://a@b:1", "a/b:1"]
)
def test_what_is_not_an_endpoint_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        EtcdConfig(endpoints=(text,))
    assert refused.value.field == "etcd.endpoints"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"endpoints": ()}, "etcd.endpoints"),
        ({"endpoints": ("http://a:1", "a:1")}, "etcd.endpoints"),
        ({"tls": EtcdTls(ca=Path("ca.pem"))}, "etcd.endpoints"),
        ({"connect_timeout_s": 0}, "etcd.connect_timeout_s"),
        ({"call_timeout_s": -1}, "etcd.call_timeout_s"),
        ({"total_timeout_s": 0.5}, "etcd.total_timeout_s"),
        ({"retry_min_s": 3.0}, "etcd.retry_max_s"),
        ({"watch_silence_s": 0}, "etcd.watch_silence_s"),
        ({"ping_interval_s": 1.0}, "etcd.ping_interval_s"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        EtcdConfig(**({"endpoints": ("http://a:1",)} | changes))  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ttl_s": 4}, "etcd.session.ttl_s"),
        ({"margin_s": 3.5}, "etcd.session.margin_s"),
        ({"renew_s": 0}, "etcd.session"),
    ],
)
def test_a_lease_outlives_three_renewals_and_its_margin(changes: dict[str, float], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        SessionConfig(**changes)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_half_a_client_certificate_or_user_is_refused() -> None:
    with pytest.raises(Invalid, match="together"):
        EtcdTls(cert=Path("cert.pem"))
    with pytest.raises(Invalid, match="must not be empty"):
        EtcdUser("tidewheel", "")


def test_a_password_is_not_shown() -> None:
    assert "hush" not in repr(EtcdConfig(endpoints=("a:1",), user=EtcdUser("tidewheel", "hush")))
