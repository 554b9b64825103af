"""How a job is shown. Instants are the server's own: the next occurrence is never computed here (B133)."""

from __future__ import annotations

from tidewheel.schedules import to_datetime, to_timedelta
from tidewheel.v1 import job_pb2

from tools.cli.commands import Call
from tools.cli.instants import write_age, write_instant, write_length, write_local, write_rough_length
from tools.cli.payload_views import payload_text
from tools.cli.plain_text import cut
from tools.cli.schedule_words import schedule_line
from tools.cli.words import word_of

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
            ("anchor", write_instant(to_datetime(job.schedule.anchor)) if job.schedule.HasField("anchor") else ""),
            ("next", next_occurrence(call, job)),
            ("due", _due(call, job)),
            ("handler", job.handler),
            ("queue", job.queue),
            ("payload", payload_text(job.payload, job.payload_type)),
            ("retry", _retry(job)),
            ("overlap", _overlap(job)),
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
    call.printer.facts(
        [
            (done, job.name),
            ("schedule", schedule(job)),
            ("next", next_occurrence(call, job)),
            ("due", _due(call, job)),
        ]
    )


def row(job: job_pb2.Job, *, whole: bool) -> list[str]:
    """The cells of one job in a list; its schedule `whole` or cut."""
    upcoming = to_datetime(job.next_occurrence) if job.HasField("next_occurrence") else None
    return [
        job.name,
        "error" if job.error else state(job),
        schedule(job) if whole else cut(schedule(job), LONGEST_SCHEDULE),
        write_instant(upcoming),
        write_local(upcoming, job.schedule.zone),
        job.handler,
        job.queue,
    ]


def state(job: job_pb2.Job) -> str:
    return word_of(job_pb2.JobState.DESCRIPTOR, job.state)


def schedule(job: job_pb2.Job) -> str:
    """When, on one line."""
    return schedule_line(job.schedule) if job.HasField("schedule") else "when triggered"


def next_occurrence(call: Call, job: job_pb2.Job) -> str:
    """The server's next occurrence in UTC, in the job's zone, and from now."""
    if not job.HasField("next_occurrence"):
        return "none"
    instant = to_datetime(job.next_occurrence)
    local = write_local(instant, job.schedule.zone)
    beside = [f"{local} {job.schedule.zone}"] if local else []
    return f"{write_instant(instant)} ({', '.join([*beside, write_age(instant, call.now)])})"


def _due(call: Call, job: job_pb2.Job) -> str:
    """When the next run may start, where that is not its nominal instant: jitter or a window puts it off."""
    if not job.HasField("next_due") or job.next_due == job.next_occurrence:
        return ""
    due = to_datetime(job.next_due)
    later = due - to_datetime(job.next_occurrence)
    jitter = to_timedelta(job.jitter_offset)
    why = (
        "jitter"
        if later == jitter
        else f"of this jitter {write_rough_length(jitter)}"
        if jitter
        else "put off by a window"
    )
    return f"{write_instant(due)} ({write_rough_length(later)} later: {why}; {write_age(due, call.now)})"


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


def _overlap(job: job_pb2.Job) -> str:
    word = word_of(job_pb2.OverlapPolicy.DESCRIPTOR, job.overlap)
    if job.overlap == job_pb2.OVERLAP_POLICY_BUFFER_ALL and job.max_buffered:
        return f"{word}, at most {job.max_buffered} wait"
    return word


def _catch_up(job: job_pb2.Job) -> str:
    policy = job.catch_up
    words = [word_of(job_pb2.CatchUpMode.DESCRIPTOR, policy.mode)]
    if policy.mode == job_pb2.CATCH_UP_MODE_ALL:
        words += [f"at most {policy.max_runs}"] if policy.max_runs else []
        words += [f"{order} first"] if (order := word_of(job_pb2.CatchUpOrder.DESCRIPTOR, policy.order)) else []
    if policy.mode != job_pb2.CATCH_UP_MODE_SKIP and policy.HasField("window"):
        words.append(f"window {write_length(to_timedelta(policy.window))}")
    if policy.HasField("grace"):
        words.append(f"grace {write_length(to_timedelta(policy.grace))}")
    return ", ".join(word for word in words if word)


def _length(job: job_pb2.Job, name: str) -> str:
    return write_length(to_timedelta(getattr(job, name))) if job.HasField(name) else ""
