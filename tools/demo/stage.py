"""Puts the story on: starts everything, tells it into a show, stops everything. For the demo and its picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tools.cli.api import open_api
from tools.demo.observer import Observer
from tools.demo.shows import Show
from tools.demo.story import Story
from tools.demo.summary import Outcome
from tools.demo.system import DemoSystem, demo_system, import_sample
from tools.ending import Asked, noting_signals

CALL_TIMEOUT_S = 5.0


def perform(seconds: float | None, show: Callable[[], Show]) -> Outcome:
    """One performance, from nothing to nothing. The show is opened when the curtain rises."""
    _say("starting the database, etcd, two control planes, two dispatchers and two workers")
    with demo_system() as system:
        for line in system.backing.lines:
            _say(line)
        _say(f"imported {import_sample(system)} jobs from deploy/samples/crontab")
        _say(f"control planes at {system.fleet.addresses}")
        with noting_signals() as asked:
            outcome = asyncio.run(_tell(system, seconds, show(), asked))
        _say("stopping everything")
    return outcome


async def _tell(system: DemoSystem, seconds: float | None, show: Show, asked: Asked) -> Outcome:
    async with open_api(system.fleet.addresses, CALL_TIMEOUT_S) as api:
        observer = Observer(api)
        await observer.look()
        return await Story(system, observer, await observer.jobs(), seconds, show).tell(asked)


def _say(text: str) -> None:
    print(text, flush=True)
