"""`tidewheel job ...`: registers, reads, changes and triggers jobs. What else is said of jobs stands beside it.

Called by main.py, which puts the commands into their group.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.commands import Call, client_command
from tools.cli.exits import usage
from tools.cli.job_options import FIELDS, changed_in_part, fill, read_payload
from tools.cli.option_fields import takes_options
from tools.cli.printing import Column

if TYPE_CHECKING:
    from tidewheel.v1 import job_pb2

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)]
OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the job.", show_default=False)]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Job as .json or .toml, in the form of `job get -o json`; options win over it."),
]
RequestIdOption = Annotated[str | None, typer.Option(help="Repeating a call with the same id changes nothing twice.")]
EtagOption = Annotated[str, typer.Option(help="Refuse if somebody changed the job since it was read.")]
NoteOption = Annotated[str, typer.Option(help="Why, for the job's history.")]


def register(app: typer.Typer) -> None:
    """Put the commands into the group of the jobs."""
    for name, command in (
        ("create", create),
        ("get", get),
        ("list", list_jobs),
        ("update", update),
        ("delete", delete),
        ("trigger", trigger),
    ):
        client_command(app, name)(command)


@takes_options(FIELDS)
async def create(
    call: Call,
    given: dict[str, Any],
    name: OptionalName = None,
    file: FileOption = None,
    request_id: RequestIdOption = None,
) -> None:
    """Register a job: what to run and when. Without a schedule it runs only when triggered."""
    from tidewheel.v1 import job_pb2, job_service_pb2

    from tools.cli import api, job_file, job_views

    job = job_file.read_job(file) if file else job_pb2.Job()
    fill(job, given, call.now)
    job.namespace = job.namespace or call.namespace
    job.name = name or job.name
    if not job.name:
        raise usage("the job needs a name", "tidewheel job create NAME ..., or `name` in the file")
    request = job_service_pb2.CreateJobRequest(job=job, request_id=api.request_id(request_id))
    job_views.show_change(call, "created", await call.api.jobs("CreateJob", request))


async def get(
    call: Call,
    name: OptionalName = None,
    job_id: Annotated[str, typer.Option("--id", help="Job id instead of the name; finds deleted jobs too.")] = "",
) -> None:
    """Show a job."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli import job_views

    if bool(name) == bool(job_id):
        raise usage("give either a name or --id")
    request = job_service_pb2.GetJobRequest(namespace=call.namespace, name=name or "", job_id=job_id)
    job_views.show_job(call, await call.api.jobs("GetJob", request))


async def list_jobs(
    call: Call,
    prefix: Annotated[str, typer.Option(help="Only names that begin with this.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 shows all.")] = 0,
) -> None:
    """List jobs by name."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api, job_views

    request = job_service_pb2.ListJobsRequest(namespace=call.namespace, name_prefix=prefix)
    answer = await api.all_pages(call.api.jobs, "ListJobs", request, "jobs", limit)
    if call.as_json:
        call.printer.message(answer)
        return
    columns = [
        Column("NAME", least=12),
        Column("STATE", 2),
        Column("SCHEDULE", 1, least=10),
        Column("NEXT (UTC)", least=20),
        Column("NEXT (ITS ZONE)", 4, least=23),
        Column("HANDLER", 3),
        Column("QUEUE", 5),
    ]
    rows = [job_views.row(job, whole=not call.printer.terminal) for job in answer.jobs]
    call.printer.table(columns, rows, empty=f"no jobs in namespace {call.namespace}")


@takes_options(FIELDS)
async def update(
    call: Call,
    given: dict[str, Any],
    name: OptionalName = None,
    file: FileOption = None,
    etag: EtagOption = "",
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Change what is given of a job, from now on. Lists and labels that are given replace those of the job."""
    from google.protobuf.field_mask_pb2 import FieldMask
    from tidewheel.v1 import job_pb2, job_service_pb2

    from tools.cli import api, job_file, job_views

    job = job_file.read_job(file) if file else job_pb2.Job()
    job.namespace = job.namespace or call.namespace
    job.name = name or job.name
    job.etag = etag or job.etag
    if not job.name:
        raise usage("which job? its name is missing", "tidewheel job update NAME ...")
    in_file = {field.name for field, _ in job.ListFields()} - {"namespace", "name", "etag"}
    await _take_present(call, job, [path for path in changed_in_part(given) if path not in in_file])
    paths = in_file | set(fill(job, given, call.now))
    if not paths:
        raise usage("nothing to change was given", "see `tidewheel job update --help`")
    request = job_service_pb2.UpdateJobRequest(
        job=job, update_mask=FieldMask(paths=sorted(paths)), request_id=api.request_id(request_id), note=note
    )
    job_views.show_change(call, "updated", await call.api.jobs("UpdateJob", request))


async def _take_present(call: Call, job: job_pb2.Job, paths: list[str]) -> None:
    """Fill fields that are changed in part with what the job has; whoever changes it meanwhile has this refused."""
    from tidewheel.v1 import job_service_pb2

    if not paths:
        return
    request = job_service_pb2.GetJobRequest(namespace=job.namespace, name=job.name)
    present = await call.api.jobs("GetJob", request)
    for path in paths:
        if present.HasField(path):
            getattr(job, path).CopyFrom(getattr(present, path))
    job.etag = job.etag or present.etag


async def delete(
    call: Call, name: NameArgument, etag: EtagOption = "", note: NoteOption = "", request_id: RequestIdOption = None
) -> None:
    """End a job's schedule and free its name. Open runs go on, history stays."""
    await steer(call, "DeleteJob", "deleted", name, etag, note, request_id)


async def trigger(
    call: Call,
    name: NameArgument,
    payload: Annotated[str | None, typer.Option(help="Replaces the job's payload in this run.")] = None,
    payload_file: Annotated[Path | None, typer.Option(help="File with the payload of this run.")] = None,
    delay: Annotated[str | None, typer.Option(help="Start so much later, for example 5m.")] = None,
    allow_overlap: Annotated[bool, typer.Option("--allow-overlap", help="Even if a run of the job is open.")] = False,
    note: NoteOption = "",
    request_id: RequestIdOption = None,
) -> None:
    """Make one run now, beside the schedule."""
    from tidewheel.schedules import duration
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api, run_views
    from tools.cli.instants import read_length

    given = payload is not None or payload_file is not None
    request = job_service_pb2.TriggerJobRequest(
        namespace=call.namespace,
        name=name,
        request_id=api.request_id(request_id),
        payload=read_payload(payload, payload_file)[0] if given else None,
        allow_overlap=allow_overlap,
        delay=duration(read_length(delay, "--delay")) if delay else None,
        note=note,
    )
    run_views.show_change(call, "triggered", await call.api.jobs("TriggerJob", request))


async def steer(
    call: Call, method: str, done: str, name: str, etag: str, note: str, request_id: str | None, **more: Any
) -> None:
    """Make the one call that changes the state of the job `name`, and show what it has become."""
    from tidewheel.v1 import job_service_pb2

    from tools.cli import api, job_views

    kind = getattr(job_service_pb2, f"{method}Request")
    own = {"namespace": call.namespace, "name": name, "etag": etag, "note": note}
    request = kind(**own, request_id=api.request_id(request_id), **more)
    job_views.show_change(call, done, await call.api.jobs(method, request))
