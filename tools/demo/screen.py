"""What the demo looks like: one screen that fits the terminal, however small, or plain lines where there is none.

Pure: a View goes in, something that rich prints comes out. The picture in the README is the same screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.demo.run_log import Start

NARROW, TINY = 76, 52
LATE_US = 100_000
TITLE_STYLE, FAINT, GOOD, BAD = "bold", "dim", "green", "bold red"


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process of the system. `shards` and `terms` are of dispatchers only."""

    name: str
    pid: int
    state: str
    shards: int | None = None
    terms: str = ""
    ran: int = 0


@dataclass(frozen=True, slots=True)
class StartRow:
    """A start, and where: which shard's run, whose shard that is, which worker ran it."""

    start: Start
    shard: int
    dispatcher: str
    worker: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything that one picture shows."""

    elapsed_s: float
    total_s: float | None
    servers: str
    fired: int
    late_p50_us: int
    late_p99_us: int
    late_max_us: int
    overdue: int
    doubled: int
    early: int
    upcoming: str = ""
    processes: Sequence[ProcessRow] = ()
    recent: Sequence[StartRow] = field(default=())
    events: Sequence[str] = ()


def render(view: View, width: int, height: int) -> RenderableType:
    """One screen of at most `height` lines; what matters least is left out first."""
    head: list[RenderableType] = [_line(_title(view), width), _line(_figures(view, width), width)]
    processes = list(view.processes) if height >= 16 else [row for row in view.processes if row.shards is not None]
    events = view.events[-3:] if height >= 20 else view.events[-1:]
    tail: list[RenderableType] = [_line(Text(event, style="yellow"), width) for event in events]
    # Titles of both tables, and a blank line before each.
    room = height - len(head) - len(tail) - len(processes) - 4
    parts = [*head, Text(""), _processes(processes, width)]
    if room > 0:
        parts += [Text(""), _starts(list(view.recent)[-room:], width)]
    return Group(*parts, *tail)


def _title(view: View) -> Text:
    clock = _minutes(view.elapsed_s) + (f" of {_minutes(view.total_s)}" if view.total_s else "")
    title = Text.assemble(("Tidewheel", TITLE_STYLE), f"  {clock}  ", (view.servers, FAINT))
    if view.upcoming:
        title.append(f"  next {view.upcoming}", style=FAINT)
    return title


def _figures(view: View, width: int) -> Text:
    faults = [("overdue", view.overdue), ("doubled", view.doubled), ("early", view.early)]
    words = Text.assemble("fired ", (str(view.fired), TITLE_STYLE))
    for name, count in faults:
        words.append(f"  {name} ").append(str(count), style=BAD if count else GOOD)
    quantiles = [("p50", view.late_p50_us), ("p99", view.late_p99_us), ("max", view.late_max_us)]
    late = "  ".join(f"{name} {milliseconds(us)}" for name, us in quantiles)
    words.append(f"  late {late}" if width >= NARROW else f"  p99 {milliseconds(view.late_p99_us)}")
    return words


def _processes(rows: Sequence[ProcessRow], width: int) -> Table:
    table = _table()
    table.add_column("PROCESS", no_wrap=True, overflow="ellipsis", min_width=12)
    if width >= TINY:
        table.add_column("PID", justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True, min_width=7)
    table.add_column("SHARDS", justify="right", no_wrap=True)
    if width >= TINY:
        table.add_column("TERMS", no_wrap=True)
    table.add_column("RAN", justify="right", no_wrap=True)
    for row in rows:
        state = Text(row.state, style=GOOD if row.state == "running" else BAD)
        cells: list[RenderableType] = [row.name]
        cells += [str(row.pid)] if width >= TINY else []
        cells += [state, "" if row.shards is None else str(row.shards)]
        cells += [row.terms] if width >= TINY else []
        table.add_row(*cells, str(row.ran) if row.ran else "")
    return table


def _starts(rows: Sequence[StartRow], width: int) -> Table:
    table = _table()
    table.add_column("STARTED", no_wrap=True, min_width=8)
    table.add_column("JOB", no_wrap=True, overflow="ellipsis", min_width=10)
    if width >= NARROW:
        table.add_column("SHARD", justify="right", no_wrap=True)
    if width >= TINY:
        table.add_column("DISPATCHER", no_wrap=True, overflow="ellipsis")
    if width >= NARROW:
        table.add_column("WORKER", no_wrap=True, overflow="ellipsis")
    table.add_column("LATE", justify="right", no_wrap=True)
    for row in rows:
        late = Text(milliseconds(row.start.late_us), style="yellow" if row.start.late_us > LATE_US else GOOD)
        cells: list[RenderableType] = [_time(row.start.started_us), row.start.job]
        cells += [str(row.shard)] if width >= NARROW else []
        cells += [row.dispatcher] if width >= TINY else []
        cells += [row.worker] if width >= NARROW else []
        table.add_row(*cells, late)
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=f"{TITLE_STYLE} {FAINT}")


def _line(text: Text, width: int) -> Text:
    """One line, its end cut where it is too long."""
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    return text


def plain_line(row: StartRow) -> str:
    """A start on a line of its own, for pipes and logs."""
    where = f"shard {row.shard} of {row.dispatcher}, {row.worker}"
    return f"{_time(row.start.started_us)} {row.start.job}: {milliseconds(row.start.late_us)} late ({where})"


def milliseconds(us: int) -> str:
    """A short time as people say it."""
    return f"{us / 1_000_000:.2f} s" if abs(us) >= 1_000_000 else f"{us / 1000:.0f} ms"


def _time(instant_us: int) -> str:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC).strftime("%H:%M:%S")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
