"""Turns on etcd's access control: a user "tidewheel" that may only use one prefix.

On a single member through its JSON gateway; on a cluster by etcdctl, with the commands of docs/operations-etcd.md.
"""

from __future__ import annotations

import base64
import json
from http.client import HTTPConnection
from pathlib import Path

from tools.servers.etcd import EtcdServer
from tools.servers.etcd_cluster import EtcdCluster

USER = "tidewheel"
PASSWORD = "for-tests-only"
_DOCUMENT = Path(__file__).parents[2] / "docs" / "operations-etcd.md"


def restrict(etcd: EtcdServer, prefix: str) -> None:
    """Enable access control; from now on only USER may do anything, and only under `prefix` (which ends in "/")."""
    _post(etcd, "user/add", {"name": "root", "password": PASSWORD})
    _post(etcd, "role/add", {"name": "root"})
    _post(etcd, "user/grant", {"user": "root", "role": "root"})
    _post(etcd, "user/add", {"name": USER, "password": PASSWORD})
    _post(etcd, "role/add", {"name": "ours"})
    end = prefix[:-1] + chr(ord("/") + 1)
    permission = {"permType": "READWRITE", "key": _base64(prefix), "range_end": _base64(end)}
    _post(etcd, "role/grant", {"name": "ours", "perm": permission})
    _post(etcd, "user/grant", {"user": USER, "role": "ours"})
    _post(etcd, "enable", {})


def restrict_cluster(cluster: EtcdCluster, prefix: str) -> None:
    """The same for a cluster; etcdctl goes on as its root."""
    for command in documented_commands():
        words = command.replace("/tidewheel/default/", prefix).split()
        if words[:2] == ["user", "add"]:
            words[2] += f":{PASSWORD}"  # instead of being asked for it
        cluster.control(*words)
    cluster.control_user = f"root:{PASSWORD}"


def documented_commands() -> list[str]:
    """What docs/operations-etcd.md has the operator tell etcdctl, in order."""
    lines = _DOCUMENT.read_text(encoding="utf-8").splitlines()
    commands = [line.removeprefix("etcdctl ") for line in lines if line.startswith("etcdctl ")]
    assert commands[-1] == "auth enable", commands
    return commands


def _post(etcd: EtcdServer, path: str, body: dict[str, object]) -> None:
    connection = HTTPConnection(etcd.endpoint, timeout=5)
    try:
        connection.request("POST", f"/v3/auth/{path}", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    finally:
        connection.close()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
