"""AdminService's Reconcile over a real control plane: each kind is planted, found, repaired where there is a rule."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tidewheel.v1 import admin_service_pb2 as pb
from tidewheel.v1 import job_pb2

from controlplane import inspection
from controlplane.api import reconciliation
from core.buckets import NO_END
from core.clock import US_PER_S
from core.coord.layout import Owner
from core.ids import chain_id
from tests.support.control_plane import SHARDS, ControlPlane, refused, settings_for
from tests.support.played_dispatcher import Dispatcher
from tests.support.polling import eventually
from tests.support.reconciling import KIND, comes_to, kinds, now_us, own_everything, passed, plant_leased, plant_run
from tools.servers.etcd import EtcdServer


@pytest.fixture
async def plane(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[ControlPlane]:
    """A replica that serves, and asks for no moves of its own but the reconciler's."""
    started = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, rebalance=False))
    yield await started.serving()
    await started.close()


@pytest.fixture
async def owners(plane: ControlPlane, eye: asyncpg.Connection, etcd: EtcdServer) -> AsyncIterator[list[Dispatcher]]:
    """d1 owns every shard by SQL, d2 none; both live and report, and carry nothing out."""
    await own_everything(eye, "d1")
    joined = [await Dispatcher(etcd.endpoint, plane.settings.cluster.name, name).join() for name in ("d1", "d2")]
    for each in joined:
        each.report_to(plane.address)

    async def leads() -> bool:
        listed = (await plane.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
        return [(one.dispatcher_id, one.open_runs) for one in listed] == [("d1", 3), ("d2", 3)]

    await eventually(leads)
    yield joined
    for each in joined:
        await each.leave()


@pytest.mark.usefixtures("owners")
class TestAPass:
    async def test_of_a_healthy_cluster_finds_nothing(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        for number in range(5):
            await plane.create(f"job-{number}", schedule=job_pb2.Schedule(cron=["0 4 * * *"]))
        now = await now_us(eye)
        await plant_leased(eye, 0, now, now + 15 * US_PER_S)
        await plant_run(eye, 1, now)
        assert kinds(await passed(plane)) == []
        assert kinds(await passed(plane, reason="to be sure")) == []

    async def test_lands_a_due_row_from_below_the_watermark(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        """A row that landed below the watermark would never be fired."""
        await eye.execute("INSERT INTO due VALUES (3, 5, 25000000, $1, 1, $2, 1, 25000000)", uuid4(), uuid4())
        dry = await passed(plane)
        assert kinds(dry) == [("DUE_BELOW_WATERMARK", 3, False)]
        assert "stands in bucket 5, below the watermark" in dry[0].detail
        assert dry[0].how == "dry run; else: a due row is landed at or above the floor"
        assert await eye.fetchval("SELECT bucket FROM due") == 5
        assert kinds(await passed(plane, reason="why")) == [("DUE_BELOW_WATERMARK", 3, True)]
        floor = await eye.fetchval("SELECT floor FROM shard_floors WHERE shard = 3")
        assert await eye.fetchval("SELECT bucket FROM due") == floor
        assert kinds(await passed(plane)) == []
        row = await eye.fetchrow("SELECT note, object FROM audit WHERE action = 'reconcile.reland'")
        assert row is not None
        assert row["note"].startswith("why: due row")

    async def test_reports_terms_that_do_not_tile(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await eye.execute("UPDATE shard_terms SET from_bucket = 7 WHERE shard = 2")
        await eye.execute("UPDATE shard_terms SET state = 2 WHERE shard = 4")
        found = await passed(plane, reason="why")
        assert kinds(found) == [("TERMS_DO_NOT_TILE", 2, False), ("TERMS_DO_NOT_TILE", 4, False)]
        assert "[0, 7)" in found[0].detail
        assert "no term is open" in found[1].detail
        assert {one.how for one in found} == {"no rule repairs this safely: it is for a person to judge"}
        rows = await eye.fetch("SELECT shard, from_bucket, state FROM shard_terms WHERE shard IN (2, 4) ORDER BY shard")
        assert [tuple(row) for row in rows] == [(2, 7, 1), (4, 0, 2)], "they are left alone"
        assert await eye.fetchval("SELECT count(*) FROM shard_moves") == 0

    async def test_makes_a_run_stand_that_no_adoption_would_find(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = $1", now - 60 * US_PER_S)
        run_id = await plant_leased(eye, 1, now - 90 * US_PER_S, now + 15 * US_PER_S)
        dry = await passed(plane)
        assert kinds(dry) == [("RUN_NOT_STANDING", 1, False)]
        assert dry[0].detail == "lies before the open-from mark, and does not stand in open_runs"
        assert await eye.fetchval("SELECT count(*) FROM open_runs") == 0
        assert kinds(await passed(plane, reason="why")) == [("RUN_NOT_STANDING", 1, True)]
        assert await eye.fetchval("SELECT run_id FROM open_runs") == run_id
        assert kinds(await passed(plane)) == []

    async def test_orders_one_move_of_a_shard_whose_leases_nobody_reaps(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        for _ in range(2):
            await plant_leased(eye, 5, now - 90 * US_PER_S, now - 70 * US_PER_S)
        await plant_leased(eye, 6, now - 90 * US_PER_S, now - 20 * US_PER_S)
        dry = await passed(plane)
        assert kinds(dry) == [("LEASE_OVERRUN", 5, False)] * 2
        assert {one.detail for one in dry} == {"attempt 1"}
        assert await eye.fetchval("SELECT count(*) FROM shard_moves") == 0
        await comes_to(plane, [("LEASE_OVERRUN", 5, True)] * 2, reason="why")
        moves = await eye.fetch("SELECT shard, from_owner, to_dispatcher, author FROM shard_moves")
        assert [tuple(move)[:3] for move in moves] == [(5, "d1", "d2")]
        assert moves[0]["author"].startswith("controlplane-")

    async def test_moves_nothing_that_an_operator_froze(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await plane.admin.FreezeShards(pb.FreezeShardsRequest(shard=5, reason="not this one"))
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        await plant_leased(eye, 5, now - 90 * US_PER_S, now - 70 * US_PER_S)

        async def frozen() -> bool:
            found = await passed(plane, reason="why")
            return [one.repaired for one in found] == [False] and "froze" in found[0].how

        await eventually(frozen)
        assert await eye.fetchval("SELECT count(*) FROM shard_moves") == 0

    async def test_moves_a_shard_whose_run_has_a_closed_home(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        await eye.execute("UPDATE shard_terms SET state = 2, to_bucket = 50 WHERE shard = 2")
        await eye.execute("INSERT INTO shard_terms VALUES (2, 2, 50, $1, 'd1', $2, 1, 1, 'takeover')", NO_END, uuid4())
        await plant_run(eye, 2, now)
        (found,) = await passed(plane)
        assert kinds([found]) == [("RUN_WITHOUT_HOME", 2, False)]
        assert found.detail == "its home term 1 of d1 is closed"
        await eye.execute("UPDATE shard_terms SET opened_us = $1 WHERE shard = 2 AND term = 2", now)
        assert kinds(await passed(plane)) == [], "its new owner is about to take it home"

    async def test_lands_the_retry_of_a_resting_run(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        run_id = await plant_run(eye, 4, now, not_before_us=now + 20 * US_PER_S, attempt=1)
        dry = await passed(plane)
        assert kinds(dry) == [("RETRY_WITHOUT_DUE_ROW", 4, False)]
        assert (dry[0].subject, dry[0].detail) == (f"run {run_id}", "rests until attempt 2")
        assert await eye.fetchval("SELECT count(*) FROM due") == 0
        assert kinds(await passed(plane, reason="why")) == [("RETRY_WITHOUT_DUE_ROW", 4, True)]
        row = await eye.fetchrow("SELECT id, kind, due_at_us FROM due")
        assert row is not None
        assert tuple(row) == (run_id, 2, now + 20 * US_PER_S)
        assert kinds(await passed(plane)) == []

    async def test_lands_a_lost_chain_after_what_is_accounted_for(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        job = await plane.create("lost", schedule=job_pb2.Schedule(cron=["0 4 * * *"]))
        before = await eye.fetchrow("DELETE FROM due RETURNING *")
        assert before is not None
        shard = before["shard"]
        dry = await passed(plane)
        assert kinds(dry) == [("LOST_CHAIN", shard, False)]
        assert dry[0].detail == "version 1 has occurrences to come, and no due row stands for them"
        assert await eye.fetchval("SELECT count(*) FROM due") == 0
        found = await passed(plane, reason="why")
        assert kinds(found) == [("LOST_CHAIN", shard, True)]
        assert found[0].subject == "job default/lost"
        after = await eye.fetchrow("SELECT * FROM due")
        assert after == before
        assert after["id"] == chain_id(UUID(job.job_id), 1)
        assert kinds(await passed(plane)) == []

    async def test_tells_again_of_a_cancel_that_nobody_heeds(
        self, plane: ControlPlane, eye: asyncpg.Connection, owners: list[Dispatcher]
    ) -> None:
        owner = owners[0]
        owner.coord.publish_owner(Owner(3, 1, 0, "d1"))
        await owner.coord.settled()
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        late, early = now - 70 * US_PER_S, now - 20 * US_PER_S
        unheeded = await plant_leased(eye, 3, now, now + 15 * US_PER_S, cancel_requested_us=late)
        await plant_leased(eye, 3, now, now + 15 * US_PER_S, cancel_requested_us=early)
        dry = await passed(plane)
        assert kinds(dry) == [("LOST_CANCEL", 3, False)]
        assert (dry[0].subject, dry[0].since.ToMicroseconds()) == (f"run {unheeded}", late)
        assert dry[0].how == "dry run; else: the owner is told again"

        async def told() -> list[str]:
            found = await passed(plane, reason="why")
            assert kinds(found) == [("LOST_CANCEL", 3, True)]
            assert found[0].how == "its owner was told again"
            return [run_id for hint in owner.hints for run_id in hint.canceled_run_ids]

        assert set(await eventually(told)) == {str(unheeded)}

    async def test_moves_a_shard_whose_owner_knows_of_no_run_that_waits(
        self, plane: ControlPlane, eye: asyncpg.Connection, owners: list[Dispatcher]
    ) -> None:
        """Of what could start, that is: nobody forgets what rests, what waits for others of its job, what is new."""
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        long_ago = now - 130 * US_PER_S
        forgotten = await plant_run(eye, 2, long_ago)
        await plant_run(eye, 2, long_ago, gated=True)
        await plant_run(eye, 2, now - 60 * US_PER_S)
        (found,) = await comes_to(plane, [("FORGOTTEN_RUN", 2, False)])
        assert (found.subject, found.since.ToMicroseconds()) == (f"run {forgotten}", long_ago)
        assert found.detail == "waits for nothing that d1 knows of"
        assert "the shard is moved" in found.how
        owners[0].said["waiting_runs"] = 1
        await comes_to(plane, [])
        owners[0].said["waiting_runs"] = 0
        (found,) = await comes_to(plane, [("FORGOTTEN_RUN", 2, True)], reason="why")
        moves = await eye.fetch("SELECT shard, from_owner, to_dispatcher FROM shard_moves")
        assert [tuple(move) for move in moves] == [(2, "d1", "d2")]

    async def test_walks_through_all_runs_of_a_shard_in_many_parts(
        self, plane: ControlPlane, eye: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However much has ended, and although each step reads a few rows only and each part takes one step."""
        monkeypatch.setattr(inspection, "_WALKED_AT_ONCE", 3)
        monkeypatch.setattr(reconciliation, "_BUDGET_S", 0.0)
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = $1", now - 60 * US_PER_S)
        for number in range(20):
            await plant_run(eye, 1, now - (200 + number) * US_PER_S, state=3, ended_us=1)
        last = await plant_leased(eye, 1, now - 90 * US_PER_S, now + 15 * US_PER_S)
        first = await plant_leased(eye, 1, now - 900 * US_PER_S, now + 15 * US_PER_S)
        overrun = await plant_leased(eye, 6, now - 90 * US_PER_S, now - 70 * US_PER_S)
        found = await passed(plane)
        assert [(KIND.Name(one.kind).removeprefix("FINDING_KIND_"), one.subject) for one in found] == [
            ("RUN_NOT_STANDING", f"run {first}"),
            ("RUN_NOT_STANDING", f"run {last}"),
            ("LEASE_OVERRUN", f"run {overrun}"),
            ("RUN_NOT_STANDING", f"run {overrun}"),
        ]
        assert await eye.fetchval("SELECT count(*) FROM open_runs") == 0
        await passed(plane, reason="why")
        assert {row["run_id"] for row in await eye.fetch("SELECT run_id FROM open_runs")} == {first, last, overrun}

    async def test_moves_shards_whose_floor_stands_still(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await eye.execute("UPDATE shard_floors SET floor = floor - 1020 WHERE shard = 6")
        await eye.execute("UPDATE shard_marks SET watermark = watermark - 1020 WHERE shard = 6")
        found = await comes_to(plane, [("FROZEN_SHARD", 6, False)])
        assert "d1 reports as if all were well" in found[0].detail
        await comes_to(plane, [("FROZEN_SHARD", 6, True)], reason="why")

    async def test_looks_at_the_shards_that_are_named_only(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        for shard in (3, 5):
            await eye.execute("INSERT INTO due VALUES ($1, 5, 1, $2, 1, $3, 1, 1)", shard, uuid4(), uuid4())
        assert kinds(await passed(plane, shards=(5, 6))) == [("DUE_BELOW_WATERMARK", 5, False)]

    async def test_is_done_once_under_one_request_id(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        await eye.execute("INSERT INTO due VALUES (3, 5, 1, $1, 1, $2, 1, 1)", uuid4(), uuid4())
        request = pb.ReconcileRequest(reason="why", request_id="r", shards=[3])
        first = await plane.admin.Reconcile(request)
        assert [one.repaired for one in first.findings] == [True]
        assert await plane.admin.Reconcile(request) == first


async def test_bad_input_is_named(plane: ControlPlane) -> None:
    no_reason = await refused(plane.admin.Reconcile(pb.ReconcileRequest()))
    assert (no_reason.code, set(no_reason.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, {"reason"})
    twice = await refused(plane.admin.Reconcile(pb.ReconcileRequest(dry_run=True, shards=[1, 1])))
    assert set(twice.fields) == {"shards"}
    nowhere = await refused(plane.admin.Reconcile(pb.ReconcileRequest(dry_run=True, shards=[SHARDS])))
    assert set(nowhere.fields) == {"shards"}
    token = await refused(plane.admin.Reconcile(pb.ReconcileRequest(dry_run=True, page_token="x")))
    assert set(token.fields) == {"page_token"}
