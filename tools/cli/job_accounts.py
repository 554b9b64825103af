"""`tidewheel job explain` and `ledger`: why a job does or does not run, and what became of each of its occurrences.

Called by main.py, which puts the commands into the group of the jobs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import ExitCode, Failure, usage
from tools.cli.jobs import OptionalName
from tools.cli.printing import Column

if TYPE_CHECKING:
    from tidewheel.v1 import job_service_pb2

IdOption = Annotated[str, typer.Option("--id", help="Job id instead of the name; finds deleted jobs too.")]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the jobs."""
    client_command(app, "explain")(explain)
    client_command(app, "ledger")(ledger)


async def explain(
    call: Call,
    name: OptionalName = None,
    at: Annotated[str, typer.Option(help="The instant: RFC 3339 with offset, or relative.")] = "now",
    job_id: IdOption = "",
) -> None:
    """Say why a job does or does not run at an instant."""
    from tidewheel.schedules import timestamp, to_datetime
    from tidewheel.v1 import job_service_pb2

    from tools.cli.instants import read_instant, write_instant

    _check_name(name, job_id)
    request = job_service_pb2.ExplainJobRequest(namespace=call.namespace, name=name or "", job_id=job_id)
    request.at.CopyFrom(timestamp("at", read_instant(at, "--at", call.now)))
    answer = await call.api.jobs("ExplainJob", request)
    if call.as_json:
        call.printer.message(answer)
        return
    call.printer.facts(
        [
            ("at", write_instant(to_datetime(request.at))),
            ("fires", "yes" if answer.fires else "no"),
            ("version", answer.version or "none yet"),
            ("run", answer.run_id),
            ("previous", write_instant(to_datetime(answer.previous)) if answer.HasField("previous") else ""),
            ("next", write_instant(to_datetime(answer.next)) if answer.HasField("next") else ""),
            *(("because" if index == 0 else "and", reason) for index, reason in enumerate(answer.reasons)),
        ]
    )


async def ledger(
    call: Call,
    name: OptionalName = None,
    since: Annotated[str, typer.Option("--from", help="Occurrences at or after this.")] = "24h ago",
    until: Annotated[str, typer.Option("--to", help="Occurrences before this.")] = "now",
    job_id: IdOption = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many entries; 0 shows all.")] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Fail if an occurrence is missing, or a run unexpected.")
    ] = False,
) -> None:
    """Account for every occurrence of a job in a range: its run, why it has none, or that it is still to come."""
    from tidewheel.schedules import timestamp
    from tidewheel.v1 import job_service_pb2

    from tools.cli.api import all_pages
    from tools.cli.instants import read_instant

    _check_name(name, job_id)
    request = job_service_pb2.GetJobLedgerRequest(namespace=call.namespace, name=name or "", job_id=job_id)
    # `from` is a keyword of Python: the field can only be reached by its name.
    getattr(request, "from").CopyFrom(timestamp("from", read_instant(since, "--from", call.now)))
    request.to.CopyFrom(timestamp("to", read_instant(until, "--to", call.now)))
    answer = await all_pages(call.api.jobs, "GetJobLedger", request, "entries", limit)
    del answer.entries[limit or len(answer.entries) :]
    counts = _count(answer)
    if call.as_json:
        call.printer.message(answer)
    else:
        _show(call, answer, counts)
    faults = [f"{counts[kind] or 'some'} {kind}" for kind in ("missing", "unexpected") if kind in counts]
    if check and faults:
        raise Failure(ExitCode.FAILED, f"the ledger of {name or job_id} does not add up: {', '.join(faults)}")


def _count(answer: job_service_pb2.GetJobLedgerResponse) -> Counter[str]:
    """How many of each kind over all pages; the answer, which holds those of its first page, is put right."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli.words import word_of

    by_kind: Counter[job_service_pb2.LedgerKind] = Counter()
    for entry in answer.entries:
        by_kind[entry.kind] += entry.occurrences
    first = (job_service_pb2.LEDGER_KIND_MISSING, job_service_pb2.LEDGER_KIND_UNEXPECTED)
    order = sorted(by_kind, key=lambda kind: (kind not in first, first.index(kind) if kind in first else kind))
    del answer.counts[:]
    answer.counts.extend(job_service_pb2.LedgerCount(kind=kind, occurrences=by_kind[kind]) for kind in order)
    return Counter({word_of(job_service_pb2.LedgerKind.DESCRIPTOR, kind): by_kind[kind] for kind in order})


def _show(call: Call, answer: job_service_pb2.GetJobLedgerResponse, counts: Counter[str]) -> None:
    columns = [
        Column("SCHEDULED FOR", least=20),
        Column("UNTIL", 2, least=20),
        Column("COUNT", 1, right=True),
        Column("WHAT", least=11),
        Column("RUN", 4, least=36),
        Column("RUN STATE", 3),
        Column("VERSION", 5, right=True),
        Column("WHY", 1, least=20),
    ]
    call.printer.table(columns, map(_row, answer.entries), empty="no occurrence in this range")
    if call.printer.terminal:
        call.printer.line(", ".join(f"{count} {kind}" for kind, count in counts.items()))
        if answer.next_page_token:
            call.printer.line("there is more: --limit 0 shows all")


def _row(entry: job_service_pb2.LedgerEntry) -> list[object]:
    from tidewheel.schedules import to_datetime
    from tidewheel.v1 import job_service_pb2, run_pb2

    from tools.cli.instants import write_instant
    from tools.cli.words import word_of

    backfills = f"backfilled by {' '.join(entry.backfill_run_ids)}" if entry.backfill_run_ids else ""
    return [
        write_instant(to_datetime(entry.scheduled_for)),
        write_instant(to_datetime(entry.last_scheduled_for)) if entry.HasField("last_scheduled_for") else "",
        entry.occurrences,
        word_of(job_service_pb2.LedgerKind.DESCRIPTOR, entry.kind),
        entry.run_id,
        word_of(run_pb2.RunState.DESCRIPTOR, entry.run_state),
        entry.job_version or "",
        "; ".join(part for part in (entry.reason, backfills) if part),
    ]


def _check_name(name: str | None, job_id: str) -> None:
    if bool(name) == bool(job_id):
        raise usage("give either a name or --id")
