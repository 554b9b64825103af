"""`make picture`: the demo's screen of a real run, a moment after the crash was got over, as docs/demo.svg."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from tools.cli.exits import ExitCode, described
from tools.demo.screen import StartRow, View, render
from tools.demo.stage import perform
from tools.demo.summary import summary_lines
from tools.ending import Told, ending_by_signals

TARGET = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
SECONDS = 30.0
WIDTH, HEIGHT = 92, 27
# Of the story: the crash is got over by then, and the killed dispatcher is not back yet.
SHOWN_AT_S = 0.6 * SECONDS
# The pictures' fonts would be fetched from elsewhere by whoever looks at it.
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)


class PictureShow:
    """Keeps the view that is wanted."""

    def __init__(self) -> None:
        self.view: View | None = None

    def started(self, rows: Sequence[StartRow]) -> None:
        """They are part of the next view."""

    def event(self, text: str) -> None:
        """It is part of the next view."""

    def draw(self, view: View) -> None:
        """The last one before the wanted instant stays."""
        if view.elapsed_s <= SHOWN_AT_S:
            self.view = view

    def close(self) -> None:
        """There is nothing to undo."""


def picture(view: View) -> str:
    """The screen as SVG."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    console.print(render(view, WIDTH, HEIGHT))
    return _FONT_FACE.sub("", console.export_svg(title="make demo", theme=MONOKAI))


def main() -> int:
    """Tell the story, and write the picture if all went well."""
    show = PictureShow()
    try:
        with ending_by_signals():
            outcome = perform(SECONDS, lambda: show)
    except Told:
        return ExitCode.INTERRUPTED
    except Exception as error:
        print(f"picture: {described(error).line()}", file=sys.stderr)
        return ExitCode.FAILED
    for line in summary_lines(outcome):
        print(line)
    if show.view is None or not outcome.good:
        return ExitCode.FAILED
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(show.view), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(TARGET.parents[1])}")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
