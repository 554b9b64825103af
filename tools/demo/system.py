"""The system that the demo shows: servers, two control planes, two dispatchers, two workers, and a crontab imported."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.store.migrations import migrate
from tools.fleet import Fleet, until_served
from tools.servers.embedded import Backing
from tools.servers.process import ServerFailed

SAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "samples"
REPLICAS = 2
IMPORT_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class DemoSystem:
    """What runs, and the file to which its commands append."""

    backing: Backing
    fleet: Fleet
    run_log: Path

    @property
    def server_names(self) -> str:
        """Names and versions of the servers below, in short."""
        return ", ".join(line.partition(" (")[0] for line in self.backing.lines[:2])


@contextmanager
def demo_system() -> Iterator[DemoSystem]:
    """Everything started and serving; stopped at the end, in order, with nothing left behind."""
    with Backing() as backing:
        asyncio.run(migrate(backing.database_url, connect_timeout_s=30.0))
        environ = {name: text for name, text in os.environ.items() if not name.startswith("TIDEWHEEL_")}
        fleet = Fleet(backing, backing.home / "log", environ)
        try:
            for number in range(1, REPLICAS + 1):
                fleet.start_control_plane(f"controlplane-{number}")
            for number in range(1, REPLICAS + 1):
                fleet.start_dispatcher(f"dispatcher-{number}")
                fleet.start_worker(f"worker-{number}")
            asyncio.run(until_served(fleet, dispatchers=REPLICAS))
            yield DemoSystem(backing, fleet, backing.home / "runs.log")
        finally:
            fleet.stop()


def import_sample(system: DemoSystem) -> int:
    """Import the sample crontab by the command that a user would type; returns the number of jobs.

    Two lines are put before it: where the stand-in for the sample's program is, and where it shall write.
    """
    crontab = system.backing.home / "crontab"
    head = f"PATH={SAMPLES / 'bin'}:/usr/local/bin:/usr/bin:/bin\nTIDEWHEEL_DEMO_LOG={system.run_log}\n"
    crontab.write_text(head + (SAMPLES / "crontab").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "tools.cli.main", "import", "crontab", str(crontab), "--output", "json"]
    done = subprocess.run(
        [*command, "--address", system.fleet.addresses],
        cwd=SAMPLES.parents[1],
        env={name: text for name, text in os.environ.items() if not name.startswith("TIDEWHEEL_")},
        capture_output=True,
        text=True,
        timeout=IMPORT_WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"the sample crontab could not be imported: {done.stderr.strip() or done.stdout.strip()}")
    return len(json.loads(done.stdout)["lines"])
