"""tools/servers/embedded: the database and the etcd that `tidewheel dev` starts."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from tools.servers.embedded import Backing
from tools.servers.postgres import PostgresServer
from tools.servers.process import ServerFailed


@pytest.fixture(autouse=True)
def no_cockroach(monkeypatch: pytest.MonkeyPatch) -> None:
    """These statements are about the default; where CockroachDB is at hand it would be taken."""
    monkeypatch.setattr("tools.servers.embedded.find_cockroach", lambda: None)


async def test_a_data_directory_is_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    with Backing(tmp_path / "data") as backing:
        connection = await asyncpg.connect(backing.database_url)
        await connection.execute("CREATE TABLE kept (x INT8)")
        await connection.close()
        assert any(line.endswith("(kept)") for line in backing.lines)
    with Backing(tmp_path / "data") as backing:
        connection = await asyncpg.connect(backing.database_url)
        assert await connection.fetchval("SELECT count(*) FROM kept") == 0
        await connection.close()


def test_without_a_data_directory_nothing_is_left_and_two_run_at_once() -> None:
    with Backing() as first, Backing() as second:
        homes = [first.home, second.home]
        assert first.database_url != second.database_url
        assert first.etcd_endpoints != second.etcd_endpoints
        processes = [server for pair in (first, second) for server in (pair.database, pair.etcd)]
        assert all(server is not None and server.running for server in processes)
    assert not any(home.exists() for home in homes)
    assert not any(server is not None and server.running for server in processes)


def test_what_is_there_already_is_taken_and_its_password_not_shown() -> None:
    with Backing(database_url="postgresql://me:secret@db:5432/x", etcd_endpoints=("etcd-1:2379",)) as backing:
        assert backing.database is None
        assert backing.etcd is None
        assert "database given: postgresql://me@db:5432/x" in backing.lines
        assert "etcd given: etcd-1:2379" in backing.lines


def test_a_failure_of_the_second_server_stops_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[PostgresServer] = []
    real_stop = PostgresServer.stop

    def stop_and_note(server: PostgresServer) -> None:
        real_stop(server)
        stopped.append(server)

    monkeypatch.setattr(PostgresServer, "stop", stop_and_note)
    monkeypatch.setenv("ETCD_BIN", "/nonexistent/etcd")
    with pytest.raises(ServerFailed, match=r"/nonexistent/etcd is not an executable"), Backing():
        pass
    assert stopped
    assert not any(server.running for server in stopped)
