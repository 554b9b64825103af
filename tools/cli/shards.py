"""`tidewheel shard ...`: who owns what, under which term, how far each shard has come, and what it costs.

What changes anything is in shard_moves.py and placement_rules.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli import placement_rules, shard_moves
from tools.cli.commands import Call, client_command, group
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Column, Printer

if TYPE_CHECKING:
    from tidewheel.v1 import admin_service_pb2

app = group("See who owns which shard, under which term; move shards between dispatchers.")
shard_moves.register(app)
placement_rules.register(app)


@client_command(app, "list")
async def list_shards(
    call: Call,
    dispatcher: Annotated[str | None, typer.Option(metavar="ID", help="Only shards of this dispatcher.")] = None,
) -> None:
    """List the shards with their owners, loads and backlogs."""
    answer = await _shards(call)
    if dispatcher is not None:
        for index in reversed(range(len(answer.shards))):
            if answer.shards[index].dispatcher_id != dispatcher:
                del answer.shards[index]
    if call.as_json:
        call.printer.message(answer)
        return
    _table(call.printer, answer)


@client_command(app, "watch")
async def watch(
    call: Call,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 1.0,
    longest: Annotated[
        str | None, typer.Option("--for", help="At most so long, such as 10m; else until Ctrl-C.")
    ] = None,
) -> None:
    """Show the list again and again: on a terminal in place, in a pipe one table after the other."""
    from tools.cli.instants import read_length

    ends_s = time.monotonic() + read_length(longest, "--for").total_seconds() if longest else float("inf")
    with _Screen(call) as screen:
        while True:
            screen.show(await _shards(call))
            if time.monotonic() + every_s >= ends_s:
                return
            await asyncio.sleep(every_s)


@client_command(app, "show")
async def show(call: Call, shard: Annotated[int, typer.Argument(min=0, help="Number of the shard.")]) -> None:
    """Show one shard and all its terms, the oldest first: who held it, from when, and why."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("ListShards", admin_service_pb2.ListShardsRequest(shard=shard))
    if not answer.shards:
        raise Failure(ExitCode.NOT_FOUND, f"shard {shard} does not exist", "see `tidewheel shard list`")
    if call.as_json:
        call.printer.message(answer)
        return
    found = answer.shards[0]
    call.printer.facts(_facts(found, loads_known=answer.loads_known))
    call.printer.line("")
    columns = [
        Column("TERM", right=True),
        Column("STATE"),
        Column("FROM", 1, right=True),
        Column("TO", 1, right=True),
        Column("OPENED", 2, least=20),
        Column("DISPATCHER", least=16),
        Column("REASON", 3, least=10),
    ]
    call.printer.table(columns, [_term_row(term) for term in found.terms], empty="no terms yet")


async def _shards(call: Call) -> Any:
    from tidewheel.v1 import admin_service_pb2

    return await call.api.admin("ListShards", admin_service_pb2.ListShardsRequest())


def _table(printer: Printer, answer: admin_service_pb2.ListShardsResponse) -> None:
    from tools.cli import shard_views

    rows = [shard_views.shard_row(shard, loads_known=answer.loads_known) for shard in answer.shards]
    printer.table(shard_views.SHARD_COLUMNS, rows, empty="no shards")


def _facts(found: admin_service_pb2.Shard, *, loads_known: bool) -> list[tuple[str, object]]:
    from tools.cli import shard_views

    facts: list[tuple[str, object]] = [
        ("shard", found.shard),
        ("dispatcher", found.dispatcher_id or "nobody"),
        ("term", found.term),
        ("watermark", f"{found.watermark} ({found.watermark_lag_s:.1f} s behind)"),
        ("floor", found.floor),
        ("frozen", "yes" if found.frozen else ""),
    ]
    if found.HasField("move"):
        facts.append(("move", f"{shard_views.move_state(found.move)} to {found.move.to_dispatcher_id}"))
    if loads_known:
        facts += [("fires", f"{found.fires_per_second:.1f}/s"), ("open", found.open_runs)]
        facts.append(("backlog", found.waiting_runs))
        facts += [("hot job", f"{_job(hot)} {hot.fires_per_second:.1f}/s") for hot in found.hottest_jobs]
    return facts


def _job(hot: admin_service_pb2.HotJob) -> str:
    return f"{hot.namespace}/{hot.name}" if hot.name else hot.job_id


def _term_row(term: admin_service_pb2.Term) -> list[object]:
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import admin_service_pb2

    from tools.cli.instants import write_instant

    return [
        term.term,
        admin_service_pb2.TermState.Name(term.state).removeprefix("TERM_STATE_").lower(),
        term.from_bucket,
        term.to_bucket if term.HasField("to_bucket") else "",
        write_instant(to_datetime(term.open_time)) if term.HasField("open_time") else "",
        term.dispatcher_id,
        term.reason,
    ]


class _Screen:
    """Where `watch` shows its tables: in place on a terminal, below each other elsewhere, one JSON document a look."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._live: Any = None
        if call.printer.terminal and not call.as_json:
            from rich.live import Live

            self._live = Live(screen=True, auto_refresh=False)

    def __enter__(self) -> _Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, answer: admin_service_pb2.ListShardsResponse) -> None:
        """One look."""
        if self._live is not None:
            self._live.update(self._fitted(answer), refresh=True)
        elif self._call.as_json:
            self._call.printer.message(answer)
        else:
            _table(self._call.printer, answer)
            self._call.printer.line("")

    def _fitted(self, answer: admin_service_pb2.ListShardsResponse) -> Any:
        """As much as fits the screen; the last line says how much does not."""
        import io

        from rich.text import Text

        text = io.StringIO()
        size = self._live.console.size
        _table(Printer(text, terminal=True, width=size.width), answer)
        lines = text.getvalue().splitlines()
        if len(lines) > size.height:
            left_out = len(lines) - size.height + 1
            lines = [
                *lines[: size.height - 1],
                f"... {left_out} more: make the screen taller, or `tidewheel shard list`",
            ]
        return Text("\n".join(lines))
