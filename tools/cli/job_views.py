"""How a job is shown. Instants are the server's own: the next occurrence is never computed here (B133)."""

from __future__ import annotations

from tidewheel.schedules import to_datetime, to_timedelta
from tidewheel.v1 import job_pb2

from tools.cli.commands import Call
from tools.cli.instants import write_age, write_instant, write_length, write_local
from tools.cli.payload_views import payload_text
from tools.cli.plain_text import cut

LONGEST_SCHEDULE = 40


def show_job(call: Call, job: job_pb2.Job) -> None:
    """Everything about one job."""
    if call.as_json:
        call.printer.message(job)
        return
    call.printer.facts(
        [
            ("name", job.name),
            ("namespace", job.namespace),
            ("state", state(job)),
            ("error", job.error),
            ("schedule", schedule(job)),
            ("next", next_occurrence(call, job)),
            ("handler", job.handler),
            ("queue", job.queue),
            ("payload", payload_text(job.payload, job.payload_type)),
            ("retry", _retry(job)),
            ("overlap", _word(job_pb2.OverlapPolicy.Name(job.overlap), "OVERLAP_POLICY_")),
            ("catch-up", _catch_up(job)),
            ("time limit", _length(job, "start_to_close_timeout")),
            ("description", job.description),
            ("contact", job.contact),
            ("labels", " ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))),
            ("job id", job.job_id),
            ("version", f"{job.version} (etag {job.etag})"),
            ("created", write_instant(to_datetime(job.create_time)) if job.HasField("create_time") else ""),
            ("updated", write_instant(to_datetime(job.update_time)) if job.HasField("update_time") else ""),
        ]
    )


def show_change(call: Call, done: str, job: job_pb2.Job) -> None:
    """One line about a change, or the job as JSON."""
    if call.as_json:
        call.printer.message(job)
        return
    call.printer.facts([(done, job.name), ("schedule", schedule(job)), ("next", next_occurrence(call, job))])


def row(job: job_pb2.Job) -> list[str]:
    """The cells of one job in a list: name, state, schedule, next in UTC and in its zone, handler, queue."""
    upcoming = to_datetime(job.next_occurrence) if job.HasField("next_occurrence") else None
    return [
        job.name,
        "error" if job.error else state(job),
        cut(schedule(job), LONGEST_SCHEDULE),
        write_instant(upcoming),
        write_local(upcoming, job.schedule.zone),
        job.handler,
        job.queue,
    ]


def state(job: job_pb2.Job) -> str:
    return _word(job_pb2.JobState.Name(job.state), "JOB_STATE_")


def schedule(job: job_pb2.Job) -> str:
    """When, in the words of the options that would make it."""
    when = job.schedule
    if not job.HasField("schedule"):
        return "when triggered"
    if when.HasField("at"):
        words = [f"at {write_instant(to_datetime(when.at))}"]
    elif when.HasField("every"):
        words = [f"every {write_length(to_timedelta(when.every))}"]
    else:
        words = [" | ".join(when.cron), f"in {when.zone or 'UTC'}"]
    if when.HasField("start"):
        words.append(f"from {write_instant(to_datetime(when.start))}")
    if when.HasField("end"):
        words.append(f"until {write_instant(to_datetime(when.end))}")
    return " ".join(words)


def next_occurrence(call: Call, job: job_pb2.Job) -> str:
    """The server's next occurrence in UTC, in the job's zone, and from now."""
    if not job.HasField("next_occurrence"):
        return "none"
    instant = to_datetime(job.next_occurrence)
    local = write_local(instant, job.schedule.zone)
    beside = [f"{local} {job.schedule.zone}"] if local else []
    return f"{write_instant(instant)} ({', '.join([*beside, write_age(instant, call.now)])})"


def _retry(job: job_pb2.Job) -> str:
    retry = job.retry
    words = [f"{retry.max_attempts} attempts"] if retry.max_attempts else []
    if retry.HasField("first_delay"):
        words.append(f"first after {write_length(to_timedelta(retry.first_delay))}")
    if retry.factor:
        words.append(f"then times {retry.factor:g}")
    if retry.HasField("max_delay"):
        words.append(f"at most {write_length(to_timedelta(retry.max_delay))}")
    return ", ".join(words)


def _catch_up(job: job_pb2.Job) -> str:
    mode = _word(job_pb2.CatchUpMode.Name(job.catch_up.mode), "CATCH_UP_MODE_")
    grace = f"grace {write_length(to_timedelta(job.catch_up.grace))}" if job.catch_up.HasField("grace") else ""
    return ", ".join(part for part in (mode, grace) if part)


def _length(job: job_pb2.Job, name: str) -> str:
    return write_length(to_timedelta(getattr(job, name))) if job.HasField(name) else ""


def _word(name: str, prefix: str) -> str:
    word = name.removeprefix(prefix).lower()
    return "" if word == "unspecified" else word
