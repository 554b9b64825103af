"""How shards, moves and placement rules are shown, and how moves are followed until they are done.

Called by shards.py and shard_moves.py. Shows nothing that the server did not say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidewheel.schedules import to_datetime
from tidewheel.v1 import admin_service_pb2

from tools.cli.exits import ExitCode, Failure
from tools.cli.instants import write_instant
from tools.cli.printing import Column
from tools.cli.progress_bar import ProgressBar
from tools.cli.words import word_of

if TYPE_CHECKING:
    from tools.cli.commands import Call

_LOOK_EVERY_S = 0.5
_OPEN = (
    admin_service_pb2.MOVE_STATE_PENDING,
    admin_service_pb2.MOVE_STATE_ORDERED,
    admin_service_pb2.MOVE_STATE_SPLIT,
)

SHARD_COLUMNS: Sequence[Column] = (
    Column("SHARD", right=True),
    Column("DISPATCHER", least=16),
    Column("TERM", right=True),
    Column("RANGE", 3, least=12),
    Column("LAG", 1, right=True),
    Column("FIRES/S", 2, right=True),
    Column("OPEN", 4, right=True),
    Column("BACKLOG", 2, right=True),
    Column("MOVE", 1, least=12),
)
MOVE_COLUMNS: Sequence[Column] = (
    Column("SHARD", right=True),
    Column("STATE", least=9),
    Column("FROM", least=16),
    Column("TO", least=16),
    Column("CAUSE", 2, least=9),
    Column("BOUNDARY", 3, right=True),
    Column("ASKED", 3, least=20),
    Column("TOOK", 2, right=True),
    Column("REASON", 1, least=10),
    Column("MOVE", 4, least=36),
)


def shard_row(shard: admin_service_pb2.Shard, *, loads_known: bool) -> list[object]:
    """The cells of one shard in a list; without known loads theirs are empty."""
    return [
        shard.shard,
        shard.dispatcher_id or "nobody",
        shard.term,
        _ranges(shard),
        f"{shard.watermark_lag_s:.1f}s",
        f"{shard.fires_per_second:.1f}" if loads_known else "",
        shard.open_runs if loads_known else "",
        shard.waiting_runs if loads_known else "",
        _move_in_a_word(shard),
    ]


def _ranges(shard: admin_service_pb2.Shard) -> str:
    """The buckets of each open term: `17-` without end, `10-17 17-` while it is handed off."""
    opened = [term for term in shard.terms if term.state == admin_service_pb2.TERM_STATE_OPEN]
    return " ".join(f"{t.from_bucket}-{t.to_bucket if t.HasField('to_bucket') else ''}" for t in opened)


def _move_in_a_word(shard: admin_service_pb2.Shard) -> str:
    if shard.HasField("move"):
        return f"{move_state(shard.move)} to {shard.move.to_dispatcher_id}"
    return "frozen" if shard.frozen else ""


def move_state(move: admin_service_pb2.Move) -> str:
    """Its state in a word."""
    return word_of(admin_service_pb2.MoveState.DESCRIPTOR, move.state)


def move_row(move: admin_service_pb2.Move) -> list[object]:
    """The cells of one move in a list."""
    return [
        move.shard,
        move_state(move),
        move.from_dispatcher_id,
        move.to_dispatcher_id,
        word_of(admin_service_pb2.MoveCause.DESCRIPTOR, move.cause),
        move.boundary if move.HasField("boundary") else "",
        write_instant(to_datetime(move.request_time)) if move.HasField("request_time") else "",
        _took(move),
        f"{move.reason}: {move.error}" if move.error else move.reason,
        move.move_id,
    ]


def _took(move: admin_service_pb2.Move) -> str:
    if not move.HasField("end_time"):
        return ""
    return f"{(to_datetime(move.end_time) - to_datetime(move.request_time)).total_seconds():.1f}s"


def rule_row(rule: admin_service_pb2.PlacementRule) -> list[object]:
    """The cells of one placement rule in a list."""
    subject = str(rule.shard) if rule.HasField("shard") else rule.dispatcher_id
    return [
        word_of(admin_service_pb2.PlacementRuleKind.DESCRIPTOR, rule.kind),
        subject or "all shards",
        rule.author,
        write_instant(to_datetime(rule.create_time)) if rule.HasField("create_time") else "",
        rule.reason,
    ]


RULE_COLUMNS: Sequence[Column] = (
    Column("RULE", least=16),
    Column("WHAT", least=16),
    Column("AUTHOR", 3),
    Column("SINCE", 2, least=20),
    Column("REASON", 1, least=10),
)


async def followed(call: Call, moves: Iterable[admin_service_pb2.Move], longest_s: float) -> list[Any]:
    """The moves when all have ended; a bar grows on a terminal meanwhile.

    Raises Failure(FAILED) when some go on after `longest_s` seconds.
    """
    standing = {move.move_id: move for move in moves}
    with ProgressBar(call) as bar:
        given_up_s = time.monotonic() + longest_s
        while left := [move_id for move_id, move in standing.items() if move.state in _OPEN]:
            bar.show("moving", len(standing) - len(left), len(standing))
            if time.monotonic() >= given_up_s:
                raise Failure(ExitCode.FAILED, f"{len(left)} of {len(standing)} moves go on", "tidewheel shard moves")
            await asyncio.sleep(_LOOK_EVERY_S)
            for move_id in left:
                request = admin_service_pb2.GetMoveRequest(move_id=move_id)
                standing[move_id] = await call.api.admin("GetMove", request)
        bar.show("moving", len(standing), len(standing))
    return list(standing.values())


async def until(call: Call, what: str, total: int, count_left: Callable[[], Awaitable[int]], longest_s: float) -> None:
    """Wait until `count_left` answers 0, with a bar on a terminal. Raises Failure(FAILED) after `longest_s` seconds."""
    with ProgressBar(call) as bar:
        given_up_s = time.monotonic() + longest_s
        while left := await count_left():
            bar.show(what, total - left, total)
            if time.monotonic() >= given_up_s:
                raise Failure(ExitCode.FAILED, f"{what} goes on: {left} left", "tidewheel shard moves --open")
            await asyncio.sleep(_LOOK_EVERY_S)


def check_moved(moves: Iterable[admin_service_pb2.Move]) -> None:
    """Raises Failure(FAILED) when a move was rolled back, naming the first."""
    back = [move for move in moves if move.state == admin_service_pb2.MOVE_STATE_ROLLED_BACK]
    if back:
        first = back[0]
        raise Failure(ExitCode.FAILED, f"{len(back)} moves were rolled back; shard {first.shard}: {first.error}")
