"""`python -m tools.demo`: tells the story once. DEMO_SECONDS ends it by itself; exit code 0 only if all went well."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from tools.cli.exits import ExitCode, described
from tools.demo.shows import show_for
from tools.demo.stage import perform
from tools.demo.summary import summary_lines
from tools.ending import Told, ending_by_signals

SHORTEST_S, LONGEST_S = 10.0, 86_400.0


def main() -> int:
    """The exit code: 0 all is well, 1 it is not, 2 a setting makes no sense."""
    try:
        seconds = wanted_seconds(os.environ.get("DEMO_SECONDS", ""))
    except ValueError as error:
        print(f"demo: {error}", file=sys.stderr)
        return ExitCode.USAGE
    try:
        with ending_by_signals():
            outcome = perform(seconds, lambda: show_for(Console()))
    except Told:
        print("stopped before it had begun")
        return ExitCode.OK
    except Exception as error:
        print(f"demo: {described(error).line()}", file=sys.stderr)
        return ExitCode.FAILED
    for line in summary_lines(outcome):
        print(line)
    return ExitCode.OK if outcome.good else ExitCode.FAILED


def wanted_seconds(text: str) -> float | None:
    """How long the demo shall run; None until Ctrl-C. ValueError for what is no such number."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"DEMO_SECONDS: must be a number of seconds, not {text!r}") from None
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError(f"DEMO_SECONDS: must be from {SHORTEST_S:g} to {LONGEST_S:g}, not {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
