"""`tidewheel dispatcher list` and `tidewheel status`: what runs, and whether it is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tools.cli.commands import Call, client_command
from tools.cli.printing import Column

if TYPE_CHECKING:
    from tidewheel.v1 import admin_service_pb2


def register(app: typer.Typer, dispatchers: typer.Typer) -> None:
    """Put `status` into `app`, and `list` into the group of the dispatchers."""
    client_command(app, "status")(status)
    client_command(dispatchers, "list")(list_dispatchers)


async def list_dispatchers(call: Call) -> None:
    """List the dispatchers with their load."""
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import admin_service_pb2

    from tools.cli.instants import write_instant

    answer = await call.api.admin("ListDispatchers", admin_service_pb2.ListDispatchersRequest())
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("DISPATCHER", least=16),
        Column("STATE", least=8),
        Column("SHARDS", right=True),
        Column("ADDRESS", 2, least=15),
        Column("FIRES/S", 1, right=True),
        Column("OPEN", 3, right=True),
        Column("WAITING", 3, right=True),
        Column("CPU", 3, right=True),
        Column("WEIGHT", 4, right=True),
        Column("ZONE", 4),
        Column("STARTED", 5, least=20),
    ]
    rows = [
        (
            one.dispatcher_id,
            _state(one),
            one.shards,
            one.address,
            f"{one.fires_per_second:.1f}",
            one.open_runs,
            one.waiting_runs,
            f"{one.cpu:.2f}",
            f"{one.weight:g}",
            one.zone,
            write_instant(to_datetime(one.start_time)) if one.HasField("start_time") else "",
        )
        for one in answer.dispatchers
    ]
    call.printer.table(columns, rows, empty="no dispatchers")


def _state(one: admin_service_pb2.Dispatcher) -> str:
    """In a word or two: what keeps it from its duties before what is planned with it."""
    if one.ailments:
        return ", ".join(one.ailments)
    if not one.alive:
        return "gone"
    return "draining" if one.draining else "well"


async def status(call: Call) -> None:
    """Show what the cluster runs on, who leads, and what needs an operator's eye."""
    from tidewheel.v1 import admin_service_pb2

    answer = await call.api.admin("GetClusterStatus", admin_service_pb2.GetClusterStatusRequest())
    if call.as_json:
        call.printer.message(answer)
        return
    call.printer.facts(
        [
            ("version", answer.version),
            ("database", f"{answer.database} ({answer.database_isolation})"),
            ("etcd", answer.etcd_version or "not reachable"),
            ("time zones", f"tzdata {answer.tzdata_version}"),
            ("leader", f"{answer.leader} at {answer.leader_address}" if answer.leader else "none"),
            ("answered by", answer.replica),
            ("dispatchers", str(answer.dispatchers)),
            ("shards", f"{answer.owned_shards} owned, {answer.unowned_shards} without owner, of {answer.shard_count}"),
            ("bucket", f"{answer.bucket_width_ms / 1000:g} s"),
            ("problems", "" if answer.problems else "none"),
            *(("problem", problem) for problem in answer.problems),
        ]
    )
