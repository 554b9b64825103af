"""`tidewheel import crontab FILE`: makes a job of each line, and says of each line what became of it.

A second import changes nothing: jobs are found by their names, which come from the commands. What a job has that cron
has not (retries, no second start while nobody asked for it) takes the server's defaults, but for overlap: cron starts a
command whether or not the last one still runs, and so do these jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import ExitCode, Failure, usage

if TYPE_CHECKING:
    from tidewheel.v1 import job_pb2

    from tools.crontab import ImportedJob, Problem

LABEL, LABEL_VALUE = "imported-from", "crontab"
STANDARD_INPUT = Path("-")


@dataclass(frozen=True, slots=True)
class LineResult:
    """What became of one line: created, updated, unchanged, would create, or failed with a reason."""

    line_no: int
    outcome: str
    job: str = ""
    detail: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.outcome == "failed"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What holds for every line of one import."""

    namespace: str
    prefix: str
    queue: str
    update: bool
    dry_run: bool


def register(app: typer.Typer) -> None:
    """Put the import into its group; the callback keeps it a group although it has one command."""
    client_command(app, "crontab")(crontab)
    app.callback()(_group)


def _group() -> None:
    """Bring in schedules from elsewhere."""


async def crontab(
    call: Call,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Crontab to read; - is standard input.", show_default=False)
    ],
    system: Annotated[
        bool, typer.Option("--system", help="Lines have a user column, as in /etc/crontab and /etc/cron.d.")
    ] = False,
    zone: Annotated[str, typer.Option(help="Zone of the lines before the first CRON_TZ.")] = "UTC",
    prefix: Annotated[str, typer.Option(help="Put before every job's name.")] = "",
    queue: Annotated[str, typer.Option(help="Queue of the jobs.")] = "",
    update: Annotated[bool, typer.Option("--update", help="Change jobs that exist and differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made; asks no server.")] = False,
) -> None:
    """Make a job of each line of a crontab, run by `tidewheel worker exec`. Exit code 1 if a line could not be kept."""
    from core.zones import use_pinned_tzdata
    from core.zones import zone as checked_zone
    from tools.crontab import parse_crontab

    use_pinned_tzdata()
    checked_zone(zone, field="--zone")
    anchor_us = int(call.now.timestamp()) * 1_000_000
    parsed = parse_crontab(_text(file), system=system, anchor_us=anchor_us, default_zone=zone)
    options = ImportOptions(call.namespace, prefix, queue, update, dry_run)
    results = [await import_line(call, item, options) for item in parsed]
    show(call, results)
    failed = sum(result.failed for result in results)
    if failed:
        raise Failure(ExitCode.FAILED, f"{failed} of {len(results)} lines could not be kept")


async def import_line(call: Call, item: ImportedJob | Problem, options: ImportOptions) -> LineResult:
    """Bring one line in. What the server refuses is the line's failure, not the import's."""
    from tidewheel.errors import Conflict, InvalidArgument
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api
    from tools.crontab import Problem

    if isinstance(item, Problem):
        return LineResult(item.line_no, "failed", detail=item.reason)
    job = job_of(item, options)
    if options.dry_run:
        return LineResult(item.line_no, "would create", job.name, _when(job), item.notes)
    try:
        existing = await _existing(call, job)
        if existing is not None:
            return await _keep(call, item, job, existing, options)
        request = job_service_pb2.CreateJobRequest(job=job, request_id=api.request_id(None))
        made = await call.api.jobs("CreateJob", request)
    except (InvalidArgument, Conflict) as error:
        return LineResult(item.line_no, "failed", job.name, str(error), item.notes)
    return LineResult(item.line_no, "created", job.name, _when(made), item.notes)


async def _keep(
    call: Call, item: ImportedJob, job: job_pb2.Job, existing: job_pb2.Job, options: ImportOptions
) -> LineResult:
    """A job of that name is there already."""
    from google.protobuf.field_mask_pb2 import FieldMask
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api

    paths = differences(job, existing)
    if not paths:
        return LineResult(item.line_no, "unchanged", job.name, _when(existing), item.notes)
    if not options.update:
        reason = f"a job of this name differs in {', '.join(paths)}; --update changes it, --prefix makes another"
        return LineResult(item.line_no, "failed", job.name, reason, item.notes)
    request = job_service_pb2.UpdateJobRequest(
        job=job, update_mask=FieldMask(paths=paths), request_id=api.request_id(None), note="crontab imported again"
    )
    request.job.etag = existing.etag
    return LineResult(item.line_no, "updated", job.name, _when(await call.api.jobs("UpdateJob", request)), item.notes)


async def _existing(call: Call, job: job_pb2.Job) -> job_pb2.Job | None:
    from tidewheel.errors import NotFound
    from tidewheel.v1 import job_pb2, job_service_pb2

    try:
        found = await call.api.jobs("GetJob", job_service_pb2.GetJobRequest(namespace=job.namespace, name=job.name))
    except NotFound:
        return None
    assert isinstance(found, job_pb2.Job)
    return found


def job_of(item: ImportedJob, options: ImportOptions) -> job_pb2.Job:
    """The job that a line means. `@every` becomes an interval, counted from the registration."""
    from tidewheel.payloads import JSON_TYPE
    from tidewheel.v1 import job_pb2

    from tools.exec_payload import HANDLER, Command, write_payload

    argv = item.argv
    shell = item.shell_command
    if shell and item.shell != "/bin/sh":
        argv, shell = (item.shell, "-c", shell), ""
    job = job_pb2.Job(
        namespace=options.namespace,
        name=options.prefix + item.name,
        handler=HANDLER,
        queue=options.queue,
        payload=write_payload(Command(argv=argv, shell=shell, stdin=item.stdin or "", env=item.env)),
        payload_type=JSON_TYPE,
        overlap=job_pb2.OVERLAP_POLICY_ALLOW,
        description=item.description,
        labels={LABEL: LABEL_VALUE},
    )
    (line,) = item.schedule.cron
    if line.lower().startswith("@every"):
        from tidewheel.schedules import duration

        from tools.cli.instants import read_length

        job.schedule.every.add(elapsed=duration(read_length(line.split()[1], line)))
    else:
        job.schedule.cron.append(line)
        job.schedule.zone = item.schedule.zone
    if item.schedule.jitter_us:
        job.schedule.jitter.FromMicroseconds(item.schedule.jitter_us)
    return job


def differences(job: job_pb2.Job, existing: job_pb2.Job) -> list[str]:
    """Paths in which an existing job differs from what its line means. Defaults that the server filled in do not."""
    pairs = {
        "handler": (job.handler, existing.handler),
        "queue": (job.queue or "default", existing.queue or "default"),
        "payload": (job.payload, existing.payload),
        "overlap": (job.overlap, existing.overlap),
        "description": (job.description, existing.description),
        "schedule": (_essence(job), _essence(existing)),
    }
    return sorted(path for path, (ours, theirs) in pairs.items() if ours != theirs)


def _essence(job: job_pb2.Job) -> job_pb2.Schedule:
    """The schedule but for what the server fills in: where intervals count from."""
    from tidewheel.v1 import job_pb2

    when = job_pb2.Schedule()
    when.CopyFrom(job.schedule)
    when.ClearField("anchor")
    for interval in when.every:
        interval.ClearField("anchor")
    when.zone = when.zone or "UTC"
    when.gap = when.gap or job_pb2.GAP_RULE_END
    when.repeat = when.repeat or job_pb2.REPEAT_RULE_FIRST
    return when


def _when(job: job_pb2.Job) -> str:
    from tidewheel.schedules import to_datetime

    from tools.cli.instants import write_instant
    from tools.cli.job_views import schedule

    following = f", next {write_instant(to_datetime(job.next_occurrence))}" if job.HasField("next_occurrence") else ""
    return schedule(job) + following


def show(call: Call, results: Sequence[LineResult]) -> None:
    """One line a result, what could not be kept below it; each note once, with the lines it holds for."""
    if call.as_json:
        call.printer.document(
            {
                "lines": [
                    {
                        "line": result.line_no,
                        "outcome": result.outcome.replace(" ", "_"),
                        "job": result.job,
                        "detail": result.detail,
                        "notes": list(result.notes),
                    }
                    for result in results
                ]
            }
        )
        return
    from tools.cli.plain_text import one_line

    for result in results:
        call.printer.line(
            one_line(f"line {result.line_no}: {result.outcome} {result.job}: {result.detail}".replace(" : ", ": "))
        )
    for note, lines in _by_note(results).items():
        call.printer.line(one_line(f"not kept: {note} ({_ranges(lines)})"))
    counts = {
        outcome: sum(one.outcome == outcome for one in results)
        for outcome in dict.fromkeys(one.outcome for one in results)
    }
    call.printer.line(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no lines with a command")


def _by_note(results: Sequence[LineResult]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for result in results:
        for note in result.notes:
            lines.setdefault(note, []).append(result.line_no)
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    return f"line {numbers[0]}" if len(numbers) == 1 else f"lines {', '.join(map(str, numbers))}"


def _text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise usage(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise usage(f"{file}: is not UTF-8 text") from error
