"""Settings that only make sense together are checked together, and the key at fault is named."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import controlplane.process
import dispatcher.process
from core.config import (
    ClusterSettings,
    ControlPlaneSettings,
    DatabaseSettings,
    DispatcherSettings,
    EtcdSettings,
    Settings,
    TelemetrySettings,
    check_loopback,
)
from core.coord.settings import etcd_config, session_config
from core.errors import Invalid


def test_the_defaults_fit_together() -> None:
    settings = Settings()
    session = session_config(settings.etcd)
    assert session.ttl_s > 3 * session.renew_s
    dispatcher = settings.dispatcher
    assert dispatcher.attempt_lease_s >= 3 * dispatcher.heartbeat_interval_s
    assert dispatcher.term_check_s <= dispatcher.adoption_margin_s


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("dispatcher.attempt_lease_s", {"attempt_lease_s": 10.0, "heartbeat_interval_s": 5.0}),
        ("dispatcher.batch_limit", {"batch_limit": 0}),
        ("dispatcher.batch_limit", {"batch_limit": 5_001}),
        ("dispatcher.catch_up_runs_per_s", {"catch_up_runs_per_s": 0.0}),
        ("dispatcher.catch_up_runs_per_s", {"catch_up_runs_per_s": float("nan")}),
        ("dispatcher.tick_s", {"tick_s": 0.0}),
        ("dispatcher.term_check_s", {"term_check_s": 3.0}),
        ("dispatcher.heartbeat_interval_s", {"heartbeat_interval_s": 0.0}),
        ("dispatcher.scan_limit_per_shard", {"scan_limit_per_shard": 0}),
        ("dispatcher.waiting_limit", {"waiting_limit": 0}),
        ("dispatcher.pool_size", {"pool_size": 0}),
        ("dispatcher.adoption_margin_s", {"adoption_margin_s": 0.0}),
        ("dispatcher.stand_after_s", {"stand_after_s": 0.0}),
        ("dispatcher.drain_limit_s", {"drain_limit_s": -1.0}),
        ("dispatcher.max_message_bytes", {"max_message_bytes": 1024}),
    ],
)
def test_settings_of_a_dispatcher_that_cannot_work_are_refused(key: str, changes: dict[str, float]) -> None:
    with pytest.raises(Invalid) as refused:
        DispatcherSettings(**changes)  # type: ignore[arg-type]
    assert refused.value.field == key


def test_other_settings_are_refused_by_name_too() -> None:
    with pytest.raises(Invalid, match=r"controlplane.report_interval_s"):
        ControlPlaneSettings(report_interval_s=0)
    with pytest.raises(Invalid, match=r"telemetry.log_level"):
        TelemetrySettings(log_level="loud")
    with pytest.raises(Invalid, match=r"etcd.endpoints"):
        etcd_config(Settings().etcd)


@pytest.mark.parametrize("role", [controlplane.process, dispatcher.process], ids=["controlplane", "dispatcher"])
@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("etcd.ca_file", {"ca_file": "absent.pem"}),
        ("etcd.endpoints", {"endpoints": ("ftp://127.0.0.1:1",)}),
        ("etcd.password_file", {"user": "tidewheel"}),
        ("etcd.lease_ttl_s", {"lease_ttl_s": 1}),
    ],
)
async def test_an_etcd_that_cannot_be_used_as_told_ends_the_start_before_anything_is_waited_for(
    role: object, key: str, changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    etcd = EtcdSettings(**({"endpoints": ("https://127.0.0.1:1",)} | changes))  # type: ignore[arg-type]
    settings = Settings(database=DatabaseSettings("postgresql://nobody@127.0.0.1:1/none"), etcd=etcd)
    with pytest.raises(Invalid) as refused:
        await asyncio.wait_for(role.run(settings, asyncio.Event()), 20)  # type: ignore[attr-defined]
    assert refused.value.field == key


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("cluster.shard_count", {"shard_count": 0}),
        ("cluster.shard_count", {"shard_count": 63}),
        ("cluster.bucket_width_ms", {"bucket_width_ms": 99}),
    ],
)
def test_the_facts_of_a_cluster_are_checked_when_they_are_read(key: str, changes: dict[str, int]) -> None:
    with pytest.raises(Invalid) as refused:
        ClusterSettings(**changes)  # type: ignore[arg-type]
    assert refused.value.field == key


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "127.example.org:1", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"]
)
def test_only_loopback_addresses_with_a_port_are_taken(listen: str) -> None:
    with pytest.raises(Invalid, match=r"dispatcher.listen"):
        check_loopback(listen, "dispatcher.listen")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:1", "[::1]:1", "127.9.9.9:65535"])
def test_loopback_addresses_are_taken_as_they_are(listen: str) -> None:
    assert check_loopback(listen, "dispatcher.listen") == listen
