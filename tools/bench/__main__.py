"""`make bench`: runs the cases named by CASES (all without it), prints a table, writes build/bench.json.

What has a goal stands in a second table with it, beside the undisturbed figure of the same rounds. BENCH_SCALE shrinks
(or grows) the amounts. Exit 1 when a case lost, doubled or ran early: then it has no figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench import cases, firetimes, moving
from tools.bench.figures import Figure
from tools.bench.system import CaseFailed

SystemCase = Callable[[float], Coroutine[Any, Any, list[Figure]]]

SYSTEM_CASES: dict[str, SystemCase] = {
    "throughput": cases.throughput,
    "lateness": cases.lateness,
    "move": moving.move,
    "kill9": moving.kill9,
    "drain": moving.drain,
    "rolling": moving.rolling,
}
OUTPUT = Path("build/bench.json")
# Where the output is no terminal: as wide as the second table.
PLAIN_WIDTH = 110


def machine() -> str:
    """What these figures were measured on, and how busy it is now."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return (
        f"{os.cpu_count()} cores, {model}, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, {os.getloadavg()[0]:.1f} processes ready to run"
    )


def show(console: Console, figures: list[Figure], title: str) -> None:
    """The table: median, least and greatest of the rounds."""
    table = Table(title=title, title_justify="left")
    table.add_column("case", min_width=max((len(each.name) for each in figures), default=4))
    for heading in ("median", "min", "max"):
        table.add_column(heading, justify="right")
    table.add_column("unit")
    for each in figures:
        table.add_row(each.name, f"{each.value:,.1f}", f"{min(each.runs):,.1f}", f"{max(each.runs):,.1f}", each.unit)
    console.print(table)
    if any(each.goal for each in figures):
        console.print(goals(figures))


def goals(figures: list[Figure]) -> Table:
    """Figures beside their goals: `+50` is so much more than the undisturbed figure of the same rounds."""
    table = Table(title="goals", title_justify="left")
    table.add_column("case", min_width=max(len(each.name) for each in figures))
    for heading in ("goal", "figure", "undisturbed", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for each in figures:
        if each.goal is None:
            continue
        calm = "" if each.undisturbed is None else f"{each.undisturbed:,.1f}"
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        verdict = "met" if each.met else "missed"
        table.add_row(each.name, f"{each.goal} {each.unit}", f"{each.value:,.1f}", calm, ratio, verdict)
    return table


def main() -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    if sys.argv[1:]:
        console.print("no arguments are taken: CASES=move,drain picks cases, BENCH_SCALE=0.2 shrinks them")
        return 2
    begun_on = machine()
    wanted = [name for name in os.environ.get("CASES", "").split(",") if name] or [*SYSTEM_CASES, "firetimes"]
    unknown = [name for name in wanted if name not in SYSTEM_CASES and name != "firetimes"]
    if unknown:
        console.print(f"no such case: {', '.join(unknown)}; there are {', '.join([*SYSTEM_CASES, 'firetimes'])}")
        return 2
    scale = float(os.environ.get("BENCH_SCALE", "1"))
    figures: list[Figure] = []
    failed = False
    for name in wanted:
        console.print(f"running {name} ...")
        try:
            figures += firetimes.all_cases() if name == "firetimes" else asyncio.run(SYSTEM_CASES[name](scale))
        except CaseFailed as error:
            console.print(f"[red]{name} failed:[/red] {error}")
            failed = True
    show(console, figures, begun_on)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps([each.to_json() for each in figures], indent=2) + "\n")
    console.print(f"written to {OUTPUT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
