"""Where the demo is shown: on a terminal as one screen that is drawn again and again, else as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tools.demo.screen import StartRow, View, plain_line, render

DRAWN_A_SECOND = 4


class Show(Protocol):
    """Something that shows what happens."""

    def started(self, rows: Sequence[StartRow]) -> None:
        """Runs have started."""
        ...

    def event(self, text: str) -> None:
        """Something out of the ordinary happened."""
        ...

    def draw(self, view: View) -> None:
        """How it stands now."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class LiveShow:
    """One screen of a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._live.start()

    def started(self, rows: Sequence[StartRow]) -> None:
        """They are part of the next view."""

    def event(self, text: str) -> None:
        """It is part of the next view."""

    def draw(self, view: View) -> None:
        width, height = self._console.size
        self._live.update(render(view, width, height - 1), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LineShow:
    """Lines for a pipe, a file or a log."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, rows: Sequence[StartRow]) -> None:
        for row in rows:
            self._say(plain_line(row))

    def event(self, text: str) -> None:
        self._say(text)

    def draw(self, view: View) -> None:
        """What changed was said already."""

    def close(self) -> None:
        """There is nothing to undo."""

    def _say(self, text: str) -> None:
        print(text, file=self._console.file, flush=True)


def show_for(console: Console) -> Show:
    """What fits where the console writes to."""
    return LiveShow(console) if console.is_terminal else LineShow(console)
