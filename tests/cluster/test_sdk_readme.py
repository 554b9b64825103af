"""The programs in the SDK's README, as they stand there, against a whole system."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.live_system import LiveSystem, Size
from tools.servers.homes import temporary_home

README = Path(__file__).parents[2] / "worker_sdk" / "python" / "README.md"

# What is done with the schedule and the policy that the README shows.
REGISTERED = """
import asyncio
from tidewheel import Client

async def register():
    async with Client() as client:
        return await client.create_job("all-kinds", handler="greet", schedule=schedule, catch_up=catch_up)

print(asyncio.run(register()).state)
"""


def programs() -> list[str]:
    """The README's Python blocks, in order: worker, client, schedules, test of a handler."""
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.fixture
async def live() -> AsyncIterator[LiveSystem]:
    with temporary_home() as home:
        async with LiveSystem(home, size=Size(control_planes=1, dispatchers=1, workers=0)) as system:
            yield system


async def run(*arguments: str, cwd: Path, environ: dict[str, str]) -> str:
    """What the program prints; it has to end by itself, with 0."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=cwd, env=environ, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_the_readmes_programs_do_what_it_says(live: LiveSystem, tmp_path: Path) -> None:
    worker, client, schedules, test = programs()
    for name, text in (
        ("worker.py", worker),
        ("client.py", client),
        ("schedules.py", schedules + REGISTERED),
        ("test_greet.py", test),
    ):
        (tmp_path / name).write_text(text)
    environ = {**os.environ, "TIDEWHEEL_ADDRESS": live.fleet.addresses, "PYTHONPATH": live.import_path}

    serving = await asyncio.create_subprocess_exec(
        sys.executable, "worker.py", cwd=tmp_path, env=environ, stdout=PIPE, stderr=STDOUT
    )
    try:
        printed = await run("client.py", cwd=tmp_path, environ=environ)
        assert "ACTIVE" in await run("schedules.py", cwd=tmp_path, environ=environ)
        serving.send_signal(signal.SIGTERM)
        said, _ = await asyncio.wait_for(serving.communicate(), 30)
    finally:
        if serving.returncode is None:
            serving.kill()
            await serving.wait()

    assert printed.startswith("SUCCEEDED {'greeting': 'Hello, Ada', 'run': '")
    assert (serving.returncode, said) == (0, b"")
    options = ("-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), "test_greet.py")
    assert "1 passed" in await run("-m", "pytest", *options, cwd=tmp_path, environ=environ)
