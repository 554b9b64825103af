"""`tidewheel shard drain|undrain|freeze|unfreeze|rules`: what operators forbid the leader.

Every change needs a reason and stands in the audit. `drain` waits until the dispatcher holds no shard.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import usage
from tools.cli.shard_moves import LongestOption, ReasonOption, RequestIdOption, WaitOption

DispatcherArgument = Annotated[str, typer.Argument(metavar="DISPATCHER", help="Its id.", show_default=False)]
ShardArgument = Annotated[int | None, typer.Argument(min=0, help="Number of the shard.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="Every shard.")]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the shards."""
    client_command(app, "drain")(drain)
    client_command(app, "undrain")(undrain)
    client_command(app, "freeze")(freeze)
    client_command(app, "unfreeze")(unfreeze)
    client_command(app, "rules")(list_rules)


async def drain(
    call: Call,
    dispatcher: DispatcherArgument,
    reason: ReasonOption,
    wait: WaitOption = True,
    longest: LongestOption = "5m",
    request_id: RequestIdOption = None,
) -> None:
    """Empty a dispatcher: it gets no shard any more, and those it has move to others."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api, shard_views
    from tools.cli.instants import read_length

    longest_s = read_length(longest, "--for").total_seconds()
    request = admin_service_pb2.DrainDispatcherRequest(
        dispatcher_id=dispatcher, reason=reason, request_id=api.request_id(request_id)
    )
    rule = await call.api.admin("DrainDispatcher", request)
    if wait:

        async def left() -> int:
            return await _open_terms_of(call, dispatcher)

        await shard_views.until(call, f"draining {dispatcher}", await left(), left, longest_s)
    _show_rule(call, rule)


async def undrain(
    call: Call, dispatcher: DispatcherArgument, reason: ReasonOption, request_id: RequestIdOption = None
) -> None:
    """Lift a drain: the dispatcher may get shards again."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api

    request = admin_service_pb2.UndrainDispatcherRequest(
        dispatcher_id=dispatcher, reason=reason, request_id=api.request_id(request_id)
    )
    _show_rule(call, await call.api.admin("UndrainDispatcher", request))


async def freeze(
    call: Call,
    reason: ReasonOption,
    shard: ShardArgument = None,
    every: AllOption = False,
    request_id: RequestIdOption = None,
) -> None:
    """Forbid planned moves of a shard, or of all; takeovers from dead dispatchers go on."""
    from tidewheel.v1 import admin_service_pb2

    await _frozen(call, "FreezeShards", admin_service_pb2.FreezeShardsRequest, shard, every, reason, request_id)


async def unfreeze(
    call: Call,
    reason: ReasonOption,
    shard: ShardArgument = None,
    every: AllOption = False,
    request_id: RequestIdOption = None,
) -> None:
    """Lift a freeze of a shard, or the freeze of all."""
    from tidewheel.v1 import admin_service_pb2

    await _frozen(call, "UnfreezeShards", admin_service_pb2.UnfreezeShardsRequest, shard, every, reason, request_id)


async def _frozen(
    call: Call, method: str, kind: Any, shard: int | None, every: bool, reason: str, request_id: str | None
) -> None:
    from tools.cli import api

    if (shard is None) is not every:
        raise usage("give the number of a shard, or --all")
    request = kind(shard=shard, reason=reason, request_id=api.request_id(request_id))
    _show_rule(call, await call.api.admin(method, request))


async def list_rules(call: Call) -> None:
    """List what is drained and frozen, and why."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import shard_views

    answer = await call.api.admin("ListPlacementRules", admin_service_pb2.ListPlacementRulesRequest())
    if call.as_json:
        call.printer.message(answer)
        return
    rows = [shard_views.rule_row(rule) for rule in answer.rules]
    call.printer.table(shard_views.RULE_COLUMNS, rows, empty="nothing is drained or frozen")


async def _open_terms_of(call: Call, dispatcher: str) -> int:
    """Terms that the dispatcher still has to finish."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("ListShards", admin_service_pb2.ListShardsRequest())
    opened = [term for shard in answer.shards for term in shard.terms]
    return sum(1 for t in opened if t.dispatcher_id == dispatcher and t.state == admin_service_pb2.TERM_STATE_OPEN)


def _show_rule(call: Call, rule: Any) -> None:
    from tools.cli import shard_views

    if call.as_json:
        call.printer.message(rule)
        return
    call.printer.table(shard_views.RULE_COLUMNS, [shard_views.rule_row(rule)])
