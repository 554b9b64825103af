"""`python -m tools.demo`: tells the story once. DEMO_SECONDS ends it by itself; exit code 0 only if all went well."""

from __future__ import annotations

import asyncio
import os
import sys

from rich.console import Console

from tools.demo.observer import Observer
from tools.demo.shows import Show, show_for
from tools.demo.story import Story
from tools.demo.summary import Outcome, summary_lines
from tools.demo.system import DemoSystem, demo_system, import_sample
from tools.ending import Asked, Told, ending_by_signals, noting_signals

SHORTEST_S, CALL_TIMEOUT_S = 10.0, 5.0


def main() -> int:
    """The exit code: 0 all is well, 1 it is not, 2 a setting makes no sense."""
    from tools.cli.exits import described

    try:
        seconds = wanted_seconds(os.environ.get("DEMO_SECONDS", ""))
    except ValueError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    try:
        with ending_by_signals():
            return run(seconds)
    except Told:
        print("stopped before it had begun")
        return 0
    except Exception as error:
        print(f"demo: {described(error).line()}", file=sys.stderr)
        return 1


def wanted_seconds(text: str) -> float | None:
    """How long the demo shall run; None until Ctrl-C. ValueError for what is no such number."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"DEMO_SECONDS: must be a number of seconds, not {text!r}") from None
    if not SHORTEST_S <= seconds <= 86_400:
        raise ValueError(f"DEMO_SECONDS: must be from {SHORTEST_S:g} to 86400, not {text}")
    return seconds


def run(seconds: float | None) -> int:
    """Start everything, tell the story, stop everything, and say how it went."""
    console = Console()
    print("starting the database, etcd, two control planes, two dispatchers and two workers", flush=True)
    with demo_system() as system:
        for line in system.backing.lines:
            print(line)
        count = import_sample(system)
        print(f"imported {count} jobs from deploy/samples/crontab")
        print(f"control planes at {system.fleet.addresses}", flush=True)
        with noting_signals() as asked:
            outcome = asyncio.run(tell(system, seconds, show_for(console), asked))
        print("stopping everything", flush=True)
    for line in summary_lines(outcome):
        print(line)
    return 0 if outcome.good else 1


async def tell(system: DemoSystem, seconds: float | None, show: Show, asked: Asked) -> Outcome:
    """The story over one connection."""
    from tools.cli.api import open_api

    async with open_api(system.fleet.addresses, CALL_TIMEOUT_S) as api:
        observer = Observer(api)
        await observer.look()
        return await Story(system, observer, await observer.jobs(), seconds, show).tell(asked)


if __name__ == "__main__":
    sys.exit(main())
