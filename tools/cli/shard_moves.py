"""`tidewheel shard move|moves|plan|rebalance`: planned moves of shards, asked for and followed.

Every change needs a reason and stands in the audit. A command waits until its moves have ended unless told not to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import usage
from tools.cli.printing import Column

MOST_SHARDS = 1_024

ReasonOption = Annotated[str, typer.Option(help="Why, for the record. Required.", show_default=False)]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Follow until it is done.")]
LongestOption = Annotated[str, typer.Option("--for", help="Follow at most so long.")]
RequestIdOption = Annotated[
    str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the shards."""
    client_command(app, "move")(move)
    client_command(app, "moves")(list_moves)
    client_command(app, "plan")(plan)
    client_command(app, "rebalance")(rebalance)


async def move(
    call: Call,
    shards: Annotated[
        list[str], typer.Argument(metavar="SHARD...", help="Numbers, or ranges such as 8-15.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", metavar="ID", help="The dispatcher that gets them.", show_default=False)],
    reason: ReasonOption,
    wait: WaitOption = True,
    longest: LongestOption = "5m",
    request_id: RequestIdOption = None,
) -> None:
    """Move shards to a dispatcher while dispatch goes on; all are taken on, or none."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api

    request = admin_service_pb2.MoveShardsRequest(
        shards=read_shards(shards), dispatcher_id=to, reason=reason, request_id=api.request_id(request_id)
    )
    await _follow(call, await call.api.admin("MoveShards", request), wait=wait, longest=longest)


async def list_moves(
    call: Call,
    shard: Annotated[int | None, typer.Option(min=0, help="Only of this shard.")] = None,
    open_only: Annotated[bool, typer.Option("--open", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 100,
) -> None:
    """List moves, newest first."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api

    request = admin_service_pb2.ListMovesRequest(shard=shard, open_only=open_only)
    _show(call, await api.all_pages(call.api.admin, "ListMoves", request, "moves", limit), "no moves")


async def plan(call: Call) -> None:
    """Show what a round of rebalancing would do now, and the loads expected after it. Changes nothing."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("PlanRebalance", admin_service_pb2.PlanRebalanceRequest())
    if call.as_json:
        call.printer.message(answer)
        return
    loads = [
        Column("DISPATCHER", least=16),
        Column("SHARDS", right=True),
        Column("AFTER", right=True),
        Column("LOAD", right=True),
        Column("AFTER", right=True),
        Column("FAIR", 1, right=True),
    ]
    rows = [
        (
            one.dispatcher_id,
            one.shards_before,
            one.shards_after,
            f"{one.load_before:.1f}",
            f"{one.load_after:.1f}",
            f"{one.fair_load:.1f}",
        )
        for one in answer.dispatchers
    ]
    call.printer.table(loads, rows, empty="no dispatchers")
    call.printer.line("")
    if not answer.loads_known:
        call.printer.line("loads are not known yet: shards are counted")
    columns = [
        Column("SHARD", right=True),
        Column("LOAD", 1, right=True),
        Column("FROM", least=16),
        Column("TO", least=16),
    ]
    moves = [(one.shard, f"{one.load:.1f}", one.from_dispatcher_id, one.to_dispatcher_id) for one in answer.moves]
    call.printer.table(columns, moves, empty="nothing to move")
    for line in answer.held_back:
        call.printer.line(line)


async def rebalance(
    call: Call,
    reason: ReasonOption,
    wait: WaitOption = True,
    longest: LongestOption = "5m",
    request_id: RequestIdOption = None,
) -> None:
    """Carry out a round of rebalancing now: the moves that `plan` shows."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api

    request = admin_service_pb2.RebalanceRequest(reason=reason, request_id=api.request_id(request_id))
    await _follow(call, await call.api.admin("Rebalance", request), wait=wait, longest=longest)


async def _follow(call: Call, answer: Any, *, wait: bool, longest: str) -> None:
    from tools.cli import shard_views
    from tools.cli.instants import read_length

    longest_s = read_length(longest, "--for").total_seconds()
    if wait:
        ended = await shard_views.followed(call, answer.moves, longest_s)
        del answer.moves[:]
        answer.moves.extend(ended)
    _show(call, answer, "nothing to move")
    shard_views.check_moved(answer.moves)


def _show(call: Call, answer: Any, empty: str) -> None:
    from tools.cli import shard_views

    if call.as_json:
        call.printer.message(answer)
        return
    call.printer.table(shard_views.MOVE_COLUMNS, [shard_views.move_row(one) for one in answer.moves], empty=empty)


def read_shards(texts: Sequence[str]) -> list[int]:
    """The numbers that `3`, `8-15` and the like stand for, ascending, each once. Raises Failure(USAGE)."""
    found: set[int] = set()
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
            raise usage(f"{text!r} is not the number of a shard, nor a range such as 8-15")
        low, high = int(first), int(last or first)
        if high < low or high - low >= MOST_SHARDS:
            raise usage(f"{text!r}: a range goes upwards and has at most {MOST_SHARDS} shards")
        found.update(range(low, high + 1))
    return sorted(found)
