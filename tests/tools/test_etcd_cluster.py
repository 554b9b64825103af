"""tools/servers/etcd_cluster: several members of etcd, their backup and restore, and the etcdctl that does it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.servers.etcd import find_etcd, find_etcdctl
from tools.servers.etcd_cluster import EtcdCluster
from tools.servers.homes import temporary_home
from tools.servers.process import ServerFailed


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    with temporary_home() as home:
        cluster = EtcdCluster(home / "etcd", size=2)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def revision(cluster: EtcdCluster) -> int:
    fields = cluster.control("get", "/k", "-w", "fields")
    return int(next(line.split()[-1] for line in fields.splitlines() if line.startswith('"Revision"')))


def test_a_restore_brings_back_keys_and_revisions_of_the_backup_at_the_same_addresses(
    cluster: EtcdCluster, tmp_path: Path
) -> None:
    endpoints = cluster.endpoints
    cluster.control("put", "/k", "old")
    backed_up = revision(cluster)
    cluster.backup(tmp_path / "backup")
    cluster.control("put", "/k", "new")
    cluster.kill()
    cluster.restore(tmp_path / "backup")
    cluster.start()
    assert cluster.endpoints == endpoints
    assert "old" in cluster.control("get", "/k")
    assert revision(cluster) == backed_up
    assert len(cluster.followers()) == 1


def test_data_of_running_members_is_left_alone(cluster: EtcdCluster, tmp_path: Path) -> None:
    for change in (cluster.wipe, lambda: cluster.restore(tmp_path / "backup")):
        with pytest.raises(ServerFailed, match="etcd is running"):
            change()


def test_what_etcdctl_complains_of_is_said_in_one_line(cluster: EtcdCluster) -> None:
    with pytest.raises(ServerFailed, match=r"^etcdctl role get: .*role name not found"):
        cluster.control("role", "get", "nobody")


def test_etcdctl_beside_the_server_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, beside, on_path = tmp_path / "a" / "etcd", tmp_path / "a" / "etcdctl", tmp_path / "b" / "etcdctl"
    for program in (server, beside, on_path):
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{on_path.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_etcdctl(server) == beside
    beside.unlink()
    assert find_etcdctl(server) == on_path


def test_there_is_an_etcdctl_wherever_there_is_an_etcd() -> None:
    assert find_etcdctl(find_etcd().path).exists()
