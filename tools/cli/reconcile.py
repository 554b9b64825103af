"""`tidewheel reconcile`: look for what should be impossible, and repair what has a safe rule.

One row a finding. It ends with 0 when nothing is left unrepaired, with 1 when anything is.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import ExitCode, Failure, usage
from tools.cli.printing import Column


def register(app: typer.Typer) -> None:
    """Put the command into `app`."""
    client_command(app, "reconcile")(reconcile)


async def reconcile(
    call: Call,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look; change nothing.")] = False,
    shards: Annotated[
        list[str] | None,
        typer.Option("--shard", metavar="SHARD", help="Only this shard, or a range such as 8-15; may be repeated."),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why, for the record. Required unless it is a dry run.", show_default=False)
    ] = "",
    request_id: Annotated[
        str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.", show_default=False)
    ] = None,
) -> None:
    """Look for what should be impossible, and repair what can be repaired safely. Fails when anything is left."""
    from tidewheel.v1 import admin_service_pb2

    from tools.cli import api
    from tools.cli.shard_moves import read_shards

    if not dry_run and not reason.strip():
        raise usage("a repair needs a reason", "give --reason, or --dry-run to only look")
    request = admin_service_pb2.ReconcileRequest(dry_run=dry_run, shards=read_shards(shards or ()), reason=reason)
    answer = await _all_parts(call, request, "" if dry_run else api.request_id(request_id))
    _show(call, answer)
    left = [finding for finding in answer.findings if not finding.repaired]
    if left:
        hint = "see docs/reconciler.md" if not dry_run else "without --dry-run what has a safe rule is repaired"
        raise Failure(ExitCode.FAILED, f"{len(left)} of {len(answer.findings)} findings are not repaired", hint)


async def _all_parts(call: Call, request: Any, request_id: str) -> Any:
    """One answer with the findings of every part, each under an id of its own."""
    from tidewheel.v1 import admin_service_pb2

    whole, number = admin_service_pb2.ReconcileResponse(), 0
    while True:
        request.request_id = f"{request_id}-{number}" if request_id and number else request_id
        part = await call.api.admin("Reconcile", request)
        whole.findings.extend(part.findings)
        if not part.next_page_token:
            return whole
        request.page_token, number = part.next_page_token, number + 1


def _show(call: Call, answer: Any) -> None:
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("KIND", least=12),
        Column("SHARD", right=True),
        Column("SUBJECT", least=16),
        Column("REPAIRED"),
        Column("SINCE", 2, least=20),
        Column("HOW", least=20),
        Column("DETAIL", 1, least=20),
    ]
    call.printer.table(columns, [_row(finding) for finding in answer.findings], empty="nothing is wrong")


def _row(finding: Any) -> list[object]:
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import admin_service_pb2

    from tools.cli.instants import write_instant

    kind = admin_service_pb2.FindingKind.Name(finding.kind).removeprefix("FINDING_KIND_")
    return [
        kind.lower().replace("_", " "),
        finding.shard,
        finding.subject,
        "yes" if finding.repaired else "no",
        write_instant(to_datetime(finding.since)) if finding.HasField("since") else "",
        finding.how,
        finding.detail,
    ]
