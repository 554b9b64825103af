"""The client: registers and steers jobs, reads and cancels runs. Plain Python values in and out.

Every change carries a request id, made here unless the caller gives one, and kept over all repetitions of the call:
it is done at most once. Errors are the exceptions of tidewheel.errors.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from google.protobuf.field_mask_pb2 import FieldMask

from tidewheel.addresses import control_plane_addresses
from tidewheel.clock import Clock, SystemClock
from tidewheel.failover import Failover
from tidewheel.job_messages import UNSET, Unset, fill, given
from tidewheel.payloads import encode
from tidewheel.policies import CatchUp, RetryPolicy, paused_value
from tidewheel.records import Attempt, Job, Run
from tidewheel.schedules import AnySchedule, duration, timestamp
from tidewheel.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc, run_service_pb2, run_service_pb2_grpc

Payload = bytes | str | dict[str, Any] | list[Any] | int | float | bool | None


class Client:
    """Talks to the control planes at `addresses` (a list, or one string with commas; absent: TIDEWHEEL_ADDRESS).

    `timeout_s` bounds each call, with all its repetitions at other addresses. Use it within one event loop, as
    `async with Client() as client`, or call `close()`.
    """

    def __init__(
        self,
        addresses: str | Iterable[str] | None = None,
        *,
        namespace: str = "default",
        timeout_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._planes = Failover(control_plane_addresses(addresses), clock or SystemClock())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._planes.close()

    async def create_job(
        self,
        name: str,
        *,
        handler: str,
        schedule: AnySchedule | None = None,
        queue: str = "",
        payload: Payload = None,
        payload_type: str | None = None,
        retry: RetryPolicy | None = None,
        overlap: str | None = None,
        max_buffered: int | None = None,
        catch_up: str | CatchUp | None = None,
        start_to_close_timeout: timedelta | None = None,
        description: str = "",
        contact: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> Job:
        """Register a job. Without a schedule it runs only when triggered.

        `payload` is bytes, text or anything with a JSON form; `payload_type` is derived unless given. `overlap` is
        "skip", "allow", "buffer_one", "buffer_all" (at most `max_buffered` wait) or "cancel_other", `catch_up` a
        `CatchUp` or its mode alone: "latest", "skip" or "all". What is absent takes the server's default.
        """
        job = job_pb2.Job(namespace=self._namespace, name=name)
        fill(
            job,
            handler=handler,
            schedule=given(schedule),
            queue=queue,
            payload=given(payload),
            payload_type=given(payload_type),
            retry=given(retry),
            overlap=given(overlap),
            max_buffered=given(max_buffered),
            catch_up=given(catch_up),
            start_to_close_timeout=given(start_to_close_timeout),
            description=description,
            contact=contact,
            labels=given(labels),
        )
        request = job_service_pb2.CreateJobRequest(job=job, request_id=_request_id(request_id))
        return Job.of(await self._job_call("CreateJob", request))

    async def get_job(self, name: str = "", *, job_id: str = "") -> Job:
        """One job by name, or by id, which finds deleted jobs too."""
        request = job_service_pb2.GetJobRequest(namespace=self._namespace, name=name, job_id=job_id)
        return Job.of(await self._job_call("GetJob", request))

    async def list_jobs(self, *, name_prefix: str = "", page_size: int = 100) -> AsyncIterator[Job]:
        """Every job, by name; pages are fetched as they are needed."""
        request = job_service_pb2.ListJobsRequest(
            namespace=self._namespace, page_size=page_size, name_prefix=name_prefix
        )
        while True:
            page: job_service_pb2.ListJobsResponse = await self._job_call("ListJobs", request)
            for job in page.jobs:
                yield Job.of(job)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def update_job(
        self,
        name: str,
        *,
        handler: str | Unset = UNSET,
        schedule: AnySchedule | Unset | None = UNSET,
        queue: str | Unset = UNSET,
        payload: Payload | Unset = UNSET,
        payload_type: str | Unset = UNSET,
        retry: RetryPolicy | Unset | None = UNSET,
        overlap: str | Unset | None = UNSET,
        max_buffered: int | Unset | None = UNSET,
        catch_up: str | CatchUp | Unset | None = UNSET,
        start_to_close_timeout: timedelta | Unset | None = UNSET,
        description: str | Unset = UNSET,
        contact: str | Unset = UNSET,
        labels: Mapping[str, str] | Unset = UNSET,
        etag: str = "",
        note: str = "",
        request_id: str | None = None,
    ) -> Job:
        """Change what is given, from now on; None puts a field back to its default.

        With `etag` (of a job read before) the change is refused (StaleEtag) if somebody else was faster.
        """
        job = job_pb2.Job(namespace=self._namespace, name=name, etag=etag)
        mask = fill(
            job,
            handler=handler,
            schedule=schedule,
            queue=queue,
            payload=payload,
            payload_type=payload_type,
            retry=retry,
            overlap=overlap,
            max_buffered=max_buffered,
            catch_up=catch_up,
            start_to_close_timeout=start_to_close_timeout,
            description=description,
            contact=contact,
            labels=labels,
        )
        request = job_service_pb2.UpdateJobRequest(
            job=job, update_mask=FieldMask(paths=mask), request_id=_request_id(request_id), note=note
        )
        return Job.of(await self._job_call("UpdateJob", request))

    async def pause_job(self, name: str, *, etag: str = "", note: str = "", request_id: str | None = None) -> Job:
        """No occurrence that becomes due while the job is paused is run. Triggers still work."""
        request = job_service_pb2.PauseJobRequest(
            namespace=self._namespace, name=name, etag=etag, request_id=_request_id(request_id), note=note
        )
        return Job.of(await self._job_call("PauseJob", request))

    async def resume_job(
        self, name: str, *, paused: str = "skip", etag: str = "", note: str = "", request_id: str | None = None
    ) -> Job:
        """End a pause. Its occurrences are recorded as skipped, or with "catch_up" left to the catch-up policy."""
        request = job_service_pb2.ResumeJobRequest(
            namespace=self._namespace,
            name=name,
            etag=etag,
            request_id=_request_id(request_id),
            note=note,
            paused=paused_value(paused),
        )
        return Job.of(await self._job_call("ResumeJob", request))

    async def delete_job(self, name: str, *, etag: str = "", note: str = "", request_id: str | None = None) -> Job:
        """End the schedule and free the name. Open runs go on; history stays."""
        request = job_service_pb2.DeleteJobRequest(
            namespace=self._namespace, name=name, etag=etag, request_id=_request_id(request_id), note=note
        )
        return Job.of(await self._job_call("DeleteJob", request))

    async def trigger_job(
        self,
        name: str,
        *,
        payload: Payload = None,
        delay: timedelta | None = None,
        allow_overlap: bool = False,
        note: str = "",
        request_id: str | None = None,
    ) -> Run:
        """Make one run now (or `delay` later), beside the schedule. The same `request_id` always means the same run.

        A payload replaces the job's in this run; it keeps the job's payload type.
        """
        request = job_service_pb2.TriggerJobRequest(
            namespace=self._namespace,
            name=name,
            request_id=_request_id(request_id),
            payload=None if payload is None else encode(payload)[0],
            allow_overlap=allow_overlap,
            delay=None if delay is None else duration(delay),
            note=note,
        )
        return Run.of(await self._job_call("TriggerJob", request))

    async def get_run(self, run_id: str) -> Run:
        request = run_service_pb2.GetRunRequest(namespace=self._namespace, run_id=run_id)
        return Run.of(await self._run_call("GetRun", request))

    async def list_runs(
        self,
        job: str = "",
        *,
        job_id: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        states: Iterable[str] = (),
        page_size: int = 100,
    ) -> AsyncIterator[Run]:
        """Runs of one job, newest first, whose `scheduled_for` lies in [since, until); pages are fetched as needed.

        `states` are words such as "SUCCEEDED"; none means all.
        """
        request = run_service_pb2.ListRunsRequest(
            namespace=self._namespace,
            job=job,
            job_id=job_id,
            to=None if until is None else timestamp("until", until),
            states=[f"RUN_STATE_{state.upper()}" for state in states],
            page_size=page_size,
        )
        if since is not None:
            # `from` is a keyword of Python: the field can only be reached by its name.
            getattr(request, "from").CopyFrom(timestamp("since", since))
        while True:
            page: run_service_pb2.ListRunsResponse = await self._run_call("ListRuns", request)
            for run in page.runs:
                yield Run.of(run)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        """The run's attempts in order, the open one last."""
        request = run_service_pb2.ListAttemptsRequest(namespace=self._namespace, run_id=run_id)
        answer: run_service_pb2.ListAttemptsResponse = await self._run_call("ListAttempts", request)
        return [Attempt.of(attempt) for attempt in answer.attempts]

    async def cancel_run(self, run_id: str, *, note: str = "", request_id: str | None = None) -> Run:
        """Cancel a run that waits, or tell the handler of one that runs to stop; a success that is faster wins."""
        request = run_service_pb2.CancelRunRequest(
            namespace=self._namespace, run_id=run_id, request_id=_request_id(request_id), note=note
        )
        return Run.of(await self._run_call("CancelRun", request))

    async def _job_call(self, method: str, request: Any) -> Any:
        return await self._planes.call(job_service_pb2_grpc.JobServiceStub, method, request, timeout_s=self._timeout_s)

    async def _run_call(self, method: str, request: Any) -> Any:
        return await self._planes.call(run_service_pb2_grpc.RunServiceStub, method, request, timeout_s=self._timeout_s)


def _request_id(given: str | None) -> str:
    return str(uuid.uuid4()) if given is None else given
