"""How answers are shown: tables and facts for people, plain columns in a pipe, protobuf JSON for scripts.

On a terminal a table fits its width: the least important columns go first, then the widest cells are cut. In a pipe
nothing is cut and an empty cell is `-`, so that every line has the same number of columns. Whatever a server said is
made harmless first (plain_text.py); in JSON every control character is escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tools.cli.plain_text import one_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `importance` 0 always stays; of the others the highest goes first. `least` is its narrowest width."""

    title: str
    importance: int = 0
    least: int = 8
    right: bool = False


class Printer:
    """Writes to one stream; knows whether people look at it, and how wide it is."""

    def __init__(self, stream: TextIO | None = None, *, terminal: bool | None = None, width: int | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self.terminal = self._stream.isatty() if terminal is None else terminal
        self._width = width

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
        """Rows under titles. `empty` is what people read where there is no row."""
        cells = [[one_line(str(cell)) for cell in row] for row in rows]
        if not self.terminal:
            self._plain(columns, cells)
        elif cells:
            self._rich(columns, cells)
        elif empty:
            self.line(empty)

    def facts(self, facts: Iterable[tuple[str, object]]) -> None:
        """Names and values, one a line; those without a value are left out."""
        kept = [(name, one_line(str(value))) for name, value in facts if value not in ("", None)]
        width = max((len(name) for name, _ in kept), default=0)
        for name, value in kept:
            self.line(f"{name.ljust(width)}{GAP}{value}")

    def message(self, message: Message) -> None:
        """Protobuf JSON, fields at their default left out."""
        from google.protobuf import json_format

        self.document(json_format.MessageToDict(message))

    def document(self, document: Any) -> None:
        """One JSON document. Everything but plain ASCII is escaped, control characters included."""
        self.line(json.dumps(document, indent=2))

    def line(self, text: str) -> None:
        """One line of our own words."""
        self._stream.write(text + "\n")

    def _plain(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
        shown = [[column.title for column in columns], *([cell or "-" for cell in row] for row in cells)]
        widths = [max(len(row[index]) for row in shown) for index in range(len(columns))]
        for row in shown:
            padded = (
                cell.rjust(w) if column.right else cell.ljust(w)
                for cell, w, column in zip(row, widths, columns, strict=True)
            )
            self.line(GAP.join(padded).rstrip())

    def _rich(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, width=self._width, highlight=False)
        table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
        chosen = fitting(columns, cells, console.width)
        for index, width in chosen.items():
            column = columns[index]
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(column.title, justify=justify, overflow="ellipsis", no_wrap=True, width=width)
        for row in cells:
            table.add_row(*(Text(row[index]) for index in chosen))
        console.print(table)


def fitting(columns: Sequence[Column], cells: list[list[str]], width: int) -> dict[int, int]:
    """The columns that are shown, and how wide each is.

    Each first gets what it needs, but no more than its narrowest width; columns are left out until that fits. What
    room is left goes to those that need more, from the first on.
    """
    from rich.cells import cell_len

    natural = [max([len(column.title), *(cell_len(row[i]) for row in cells)]) for i, column in enumerate(columns)]
    chosen = {i: min(natural[i], max(column.least, len(column.title))) for i, column in enumerate(columns)}
    while sum(chosen.values()) + len(GAP) * len(chosen) > width:
        droppable = [index for index in chosen if columns[index].importance > 0]
        if not droppable:
            break
        del chosen[max(droppable, key=lambda index: (columns[index].importance, index))]
    room = width - sum(chosen.values()) - len(GAP) * len(chosen)
    for index, least in chosen.items():
        more = max(0, min(natural[index] - least, room))
        chosen[index] += more
        room -= more
    return chosen
