"""`tidewheel shard ...`: who owns what, under which term, and how far each shard has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.commands import Call, client_command, group
from tools.cli.exits import ExitCode, Failure
from tools.cli.printing import Column

if TYPE_CHECKING:
    from tidewheel.v1 import admin_service_pb2

app = group("See who owns which shard, under which term.")


@client_command(app, "list")
async def list_shards(call: Call) -> None:
    """List the shards with their owners."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("ListShards", admin_service_pb2.ListShardsRequest())
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("SHARD", right=True),
        Column("DISPATCHER", least=16),
        Column("TERM", right=True),
        Column("LAG", 1, right=True),
        Column("WATERMARK", 2, right=True),
        Column("FLOOR", 3, right=True),
    ]
    rows = [
        (
            shard.shard,
            shard.dispatcher_id or "nobody",
            shard.term,
            f"{shard.watermark_lag_s:.1f}s",
            shard.watermark,
            shard.floor,
        )
        for shard in answer.shards
    ]
    call.printer.table(columns, rows, empty="no shards")


@client_command(app, "show")
async def show(call: Call, shard: Annotated[int, typer.Argument(min=0, help="Number of the shard.")]) -> None:
    """Show one shard and all its terms, the oldest first."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("ListShards", admin_service_pb2.ListShardsRequest(shard=shard))
    if not answer.shards:
        raise Failure(ExitCode.NOT_FOUND, f"shard {shard} does not exist", "see `tidewheel shard list`")
    if call.as_json:
        call.printer.message(answer)
        return
    found = answer.shards[0]
    call.printer.facts(
        [
            ("shard", found.shard),
            ("dispatcher", found.dispatcher_id or "nobody"),
            ("term", found.term),
            ("watermark", f"{found.watermark} ({found.watermark_lag_s:.1f} s behind)"),
            ("floor", found.floor),
        ]
    )
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
