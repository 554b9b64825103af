"""tests/support: what every other test leans on."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import NEW_YEAR_2026_US, ManualClock
from tests.support.live_system import whole_lines
from tests.support.memory import use_memory_for_temporary_files
from tests.support.monitor import scrape
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy
from tools.servers.free_port import _keep


async def test_time_stands_still_until_it_is_advanced(clock: ManualClock) -> None:
    asleep = asyncio.create_task(clock.sleep(1.0))
    await clock.advance(0.999)
    assert not asleep.done()
    await clock.advance(0.001)
    await asleep
    assert clock.now_us() == NEW_YEAR_2026_US + 1_000_000
    assert clock.monotonic_s() == 1.0


async def test_sleepers_wake_in_order_and_each_sees_its_own_instant(clock: ManualClock) -> None:
    seen: list[tuple[str, float]] = []

    async def ticker(name: str, every_s: float) -> None:
        while True:
            await clock.sleep(every_s)
            seen.append((name, clock.monotonic_s()))

    tasks = [asyncio.create_task(ticker("slow", 3.0)), asyncio.create_task(ticker("fast", 2.0))]
    await clock.advance(6.5)
    assert seen == [("fast", 2.0), ("slow", 3.0), ("fast", 4.0), ("slow", 6.0), ("fast", 6.0)]
    for task in tasks:
        task.cancel()


async def test_a_jump_of_the_wall_clock_wakes_nobody(clock: ManualClock) -> None:
    asleep = asyncio.create_task(clock.sleep(10.0))
    await clock.advance(0)
    clock.set_wall(NEW_YEAR_2026_US + 3_600_000_000)
    await clock.advance(1.0)
    assert not asleep.done()
    assert clock.now_us() == NEW_YEAR_2026_US + 3_601_000_000
    assert clock.sleeping == 1
    asleep.cancel()


async def test_eventually_returns_the_value_it_waited_for() -> None:
    answers = iter([0, None, 7])
    assert await eventually(lambda: next(answers)) == 7


async def test_eventually_says_what_it_waited_for_and_what_it_saw() -> None:
    def colour_is_blue() -> bool:
        colour = "grey"
        assert colour == "blue", f"it is {colour}"
        return True

    with pytest.raises(AssertionError, match=r"not within 0.05 s: the moon is blue; last assertion: it is grey"):
        await eventually(colour_is_blue, 0.05, what="the moon is blue")
    with pytest.raises(AssertionError, match=r"colour_is_blue"):
        await eventually(colour_is_blue, 0.05)
    with pytest.raises(AssertionError, match=r"lambda: 1 > 2.*last value False"):
        await eventually(lambda: 1 > 2, 0.05)


async def test_a_proxy_cuts_connections_that_are_being_made_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dial, dials, may_go_on = asyncio.open_connection, asyncio.Event(), asyncio.Event()

    async def dial_slowly(*address: Any) -> Any:
        dials.set()
        await may_go_on.wait()
        return await dial(*address)

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    greeter = await asyncio.start_server(greet, "127.0.0.1", 0)
    monkeypatch.setattr(asyncio, "open_connection", dial_slowly)
    async with asyncio.timeout(30), TcpProxy("127.0.0.1", greeter.sockets[0].getsockname()[1]) as proxy:
        reader, writer = await dial("127.0.0.1", proxy.port)
        await dials.wait()
        proxy.cut()
        may_go_on.set()
        assert await reader.read() == b""
        writer.close()
    greeter.close()


async def test_a_proxy_keeps_its_port_while_it_refuses() -> None:
    async with TcpProxy("127.0.0.1", 1) as proxy:
        port = proxy.port
        await proxy.refuse()
        assert not _keep(port), "nobody else is given it"
        await proxy.start()
        assert proxy.port == port


async def test_a_page_that_is_cut_off_is_a_broken_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\ntidewheel_")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(ConnectionError):
        await scrape("{}:{}".format(*server.sockets[0].getsockname()))
    server.close()


def test_a_line_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthr")
    assert whole_lines(log) == ["one", "two"]


@pytest.fixture
def no_place_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "")  # so that it is put back, also where it was not set
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.usefixtures("no_place_chosen")
class TestThePlaceOfTemporaryFiles:
    def test_is_memory_where_there_is_room(self, tmp_path: Path) -> None:
        use_memory_for_temporary_files(tmp_path, wanted_bytes=1)
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)

    @pytest.mark.parametrize(("name", "wanted_bytes"), [("", 1 << 60), ("not there", 1)])
    def test_stays_what_it_was_without(self, name: str, wanted_bytes: int, tmp_path: Path) -> None:
        before = tempfile.gettempdir()
        use_memory_for_temporary_files(tmp_path / name, wanted_bytes)
        assert tempfile.gettempdir() == before
        assert "TMPDIR" not in os.environ

    def test_is_the_callers_where_one_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        use_memory_for_temporary_files(Path("/"), wanted_bytes=1)
        assert tempfile.gettempdir() == str(tmp_path)
