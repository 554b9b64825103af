"""How workers find dispatchers: from any control plane, and without one from the last list."""

from __future__ import annotations

import pytest
from tidewheel import Worker

from tests.link.scripted_control_plane import control_planes
from tests.link.scripted_dispatcher import assignment, dispatchers, running
from tests.support.polling import eventually
from tests.support.tcp_proxy import TcpProxy


def a_worker(*addresses: str) -> Worker:
    worker = Worker(addresses)
    worker.handler("work")(lambda ctx: "done")
    return worker


async def test_a_worker_follows_the_list() -> None:
    async with control_planes() as (plane,), dispatchers(3) as (first, second, third):
        plane.names(first.address)
        async with running(a_worker(plane.address)):
            await first.stream()
            assert second.streams == []
            plane.names(first.address, second.address)
            await second.stream()
            plane.names(second.address, third.address)
            await third.stream()  # the worker has the list in which the first one is missing
            made = assignment()
            stream = await first.stream()
            stream.assign(made)
            await eventually(lambda: stream.result_of(made))
            await first.stop()
            await first.start()
            plane.names()
            again = assignment()
            (await second.stream()).assign(again)
            await eventually(lambda: second.streams[0].result_of(again))
    assert len(first.streams) == 1, "a dispatcher that is not listed is not connected to anew"


async def test_the_last_list_serves_while_every_control_plane_is_away() -> None:
    async with control_planes() as (plane,), dispatchers() as (dispatcher,):
        plane.names(dispatcher.address)
        async with running(a_worker(plane.address)):
            await dispatcher.stream()
            await plane.stop()
            await dispatcher.stop()
            await dispatcher.start()
            await eventually(lambda: len(dispatcher.streams) == 2)
            stream = await dispatcher.stream()
            made = assignment()
            stream.assign(made)
            await eventually(lambda: stream.result_of(made))


async def test_the_other_control_plane_takes_over_the_watch() -> None:
    async with control_planes(2) as (one, other), dispatchers(2) as (first, second):
        for plane in (one, other):
            plane.names(first.address)
        async with running(a_worker(one.address, other.address)):
            await first.stream()
            watched, spare = (one, other) if one.watchers else (other, one)
            await watched.stop()
            spare.names(first.address, second.address)
            await second.stream()
            assert spare.watchers == 1


async def test_a_frozen_control_plane_does_not_keep_a_worker_from_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.discovery.FIRST_LIST_WITHIN_S", 0.3)
    async with control_planes() as (plane,), dispatchers() as (dispatcher,):
        plane.names(dispatcher.address)
        async with TcpProxy("127.0.0.1", plane.port) as frozen:
            frozen.stall()
            async with running(a_worker(frozen.endpoint, plane.address)):
                await dispatcher.stream()
