"""Pages: every item exactly once whatever happens in between, tokens bound to their listing, and bounded sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import run_pb2
from tidewheel.v1.job_service_pb2 import DeleteJobRequest, ListJobsRequest
from tidewheel.v1.run_service_pb2 import ListRunsRequest

from tests.support.control_plane import ControlPlane, refused

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def every_page(
    list_page: Callable[[str], Any], items: str, after_first: Callable[[Any], Any] | None = None
) -> list[Any]:
    """The items of all pages; `after_first` runs between the first two."""
    found, token = [], ""
    while True:
        page = await list_page(token)
        found += getattr(page, items)
        if not page.next_page_token:
            return found
        if not token and after_first is not None:
            await after_first(page)
        token = page.next_page_token


async def test_b120_paging_survives_deletions_and_additions(plane: ControlPlane, eye: asyncpg.Connection) -> None:
    names = [f"job-{number:03}" for number in range(250)]
    for start in range(0, 250, 50):
        await asyncio.gather(*(plane.create(name) for name in names[start : start + 50]))
    await eye.execute("UPDATE jobs SET created_us = 1, updated_us = 1")

    async def meddle(page: Any) -> None:
        await plane.jobs.DeleteJob(DeleteJobRequest(name=page.jobs[-1].name))
        await plane.jobs.DeleteJob(DeleteJobRequest(name="job-200"))
        await asyncio.gather(*(plane.create(f"job-{number:03}-new") for number in (10, 49, 60, 150, 249)))

    def list_page(token: str) -> Any:
        return plane.jobs.ListJobs(ListJobsRequest(page_size=50, page_token=token))

    listed = [job.name for job in await every_page(list_page, "jobs", meddle)]
    assert listed == sorted(listed)
    old = [name for name in listed if not name.endswith("-new")]
    assert old == [name for name in names if name != "job-200"], "what was deleted had been shown, or is gone"
    assert {name for name in listed if name.endswith("-new")} == {"job-060-new", "job-150-new", "job-249-new"} | (
        {"job-049-new"} & set(listed)
    )


async def test_the_last_page_has_no_token_even_when_it_is_full(plane: ControlPlane) -> None:
    for name in ("a", "b", "c", "d"):
        await plane.create(name)
    first = await plane.jobs.ListJobs(ListJobsRequest(page_size=2))
    second = await plane.jobs.ListJobs(ListJobsRequest(page_size=2, page_token=first.next_page_token))
    assert ([job.name for job in second.jobs], second.next_page_token) == (["c", "d"], "")
    assert not (await plane.jobs.ListJobs(ListJobsRequest(namespace="empty"))).jobs


async def test_a_prefix_and_a_namespace_are_kept_to(plane: ControlPlane) -> None:
    for name in ("a", "a-1", "a.2", "aZ", "b", "A"):
        await plane.create(name)
    await plane.create("a-other", namespace="other")
    listed = [job.name for job in (await plane.jobs.ListJobs(ListJobsRequest(name_prefix="a"))).jobs]
    assert listed == ["a", "a-1", "a.2", "aZ"]


async def test_a_token_of_another_listing_is_refused(plane: ControlPlane) -> None:
    for name in ("a", "b", "c"):
        await plane.create(name)
    token = (await plane.jobs.ListJobs(ListJobsRequest(page_size=1))).next_page_token
    assert await plane.jobs.ListJobs(ListJobsRequest(page_size=2, page_token=token)), "the size may change"
    for request in (
        ListJobsRequest(page_token=token, name_prefix="a"),
        ListJobsRequest(page_token=token, namespace="other"),
        ListJobsRequest(page_token=token[:-2]),
        ListJobsRequest(page_token=token.swapcase()),
    ):
        refusal = await refused(plane.jobs.ListJobs(request))
        assert (refusal.code, list(refusal.fields)) == (INVALID, ["page_token"])
    refusal = await refused(plane.runs.ListRuns(ListRunsRequest(job="a", page_token=token)))
    assert (refusal.code, list(refusal.fields)) == (INVALID, ["page_token"])


async def test_a_page_of_large_jobs_is_cut_before_it_is_too_large_to_send(plane: ControlPlane) -> None:
    for number in range(20):
        await plane.create(f"job-{number:02}", payload=b"x" * 262_144)

    sizes = []

    async def list_page(token: str) -> Any:
        page = await plane.jobs.ListJobs(ListJobsRequest(page_size=1000, page_token=token))
        sizes.append(len(page.jobs))
        return page

    assert len(await every_page(list_page, "jobs")) == 20
    assert len(sizes) > 1
    assert max(sizes) <= 8


class TestRuns:
    async def _plant(self, plane: ControlPlane, eye: asyncpg.Connection, count: int = 25) -> None:
        """Runs of one job, several at each instant, of which every fifth succeeded."""
        await plane.create("a")
        await eye.execute(
            """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us,
                                 state, attempt, home_term, ended_us)
               SELECT gen_random_uuid(), job_id, 1, shard, 1, CAST(n / 4 AS BIGINT) * 1000000, n, n,
                      CASE WHEN n % 5 = 0 THEN 3 ELSE 6 END, 1, 1, 1
               FROM jobs, generate_series(0, $1 - 1) AS n""",
            count,
        )

    async def test_come_newest_first_each_once(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await self._plant(plane, eye)

        def list_page(token: str) -> Any:
            return plane.runs.ListRuns(ListRunsRequest(job="a", page_size=4, page_token=token))

        runs = await every_page(list_page, "runs")
        keys = [(run.scheduled_for.seconds, run.run_id) for run in runs]
        assert keys == sorted(keys, reverse=True)
        assert len({run.run_id for run in runs}) == 25

    async def test_are_bounded_by_time_and_state(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await self._plant(plane, eye)
        request = ListRunsRequest(job="a", to=Timestamp(seconds=5), states=[run_pb2.RUN_STATE_SUCCEEDED], page_size=2)
        getattr(request, "from").CopyFrom(Timestamp(seconds=1))

        def list_page(token: str) -> Any:
            request.page_token = token
            return plane.runs.ListRuns(request)

        runs = await every_page(list_page, "runs")
        assert [run.scheduled_for.seconds for run in runs] == [3, 2, 1]  # 15, 10 and 5 of 4..19
        assert {run.state for run in runs} == {run_pb2.RUN_STATE_SUCCEEDED}

    async def test_that_match_rarely_cost_a_bounded_walk_a_page(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        """A page may be short, or empty, and have a next one: the whole is complete all the same."""
        await self._plant(plane, eye, count=12_000)
        await eye.execute("UPDATE runs SET state = 5 WHERE due_at_us = 3")
        pages = []

        async def list_page(token: str) -> Any:
            page = await plane.runs.ListRuns(
                ListRunsRequest(job="a", states=[run_pb2.RUN_STATE_DEAD], page_token=token)
            )
            pages.append(len(page.runs))
            return page

        (run,) = await every_page(list_page, "runs")
        assert run.scheduled_for.seconds == 0
        assert pages == [0, 0, 1]

    async def test_of_a_deleted_job_are_listed_by_its_id(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await self._plant(plane, eye)
        job = await plane.get("a")
        await plane.jobs.DeleteJob(DeleteJobRequest(name="a"))
        assert (await refused(plane.runs.ListRuns(ListRunsRequest(job="a")))).code is grpc.StatusCode.NOT_FOUND
        assert len((await plane.runs.ListRuns(ListRunsRequest(job_id=job.job_id))).runs) == 25

    async def test_a_token_of_other_bounds_is_refused(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await self._plant(plane, eye)
        token = (await plane.runs.ListRuns(ListRunsRequest(job="a", page_size=3))).next_page_token
        for request in (
            ListRunsRequest(job="a", page_token=token, to=Timestamp(seconds=3)),
            ListRunsRequest(job="a", page_token=token, states=[run_pb2.RUN_STATE_DEAD]),
        ):
            refusal = await refused(plane.runs.ListRuns(request))
            assert (refusal.code, list(refusal.fields)) == (INVALID, ["page_token"])
