"""AdminService's Reconcile over a real control plane: each kind is planted, found, repaired where there is a rule."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from tidewheel.v1 import admin_service_pb2 as pb
from tidewheel.v1 import job_pb2

from core.buckets import NO_END
from core.clock import US_PER_S
from core.ids import chain_id, shard_hashes
from tests.support.control_plane import SHARDS, ControlPlane, refused, settings_for
from tests.support.played_dispatcher import Dispatcher
from tests.support.polling import eventually
from tools.servers.etcd import EtcdServer

OPEN = 1
KIND = pb.FindingKind


@pytest.fixture
async def plane(database_url: str, isolation: str, etcd: EtcdServer) -> AsyncIterator[ControlPlane]:
    """A replica that serves, and asks for no moves of its own but the reconciler's."""
    started = ControlPlane(settings_for(database_url, isolation, etcd.endpoint, uuid4().hex, rebalance=False))
    yield await started.serving()
    await started.close()


@pytest.fixture
async def owners(plane: ControlPlane, eye: asyncpg.Connection, etcd: EtcdServer) -> AsyncIterator[list[Dispatcher]]:
    """d1 owns every shard by SQL, since long ago, d2 none; both live and report, and carry nothing out. Floors and
    watermarks stand far ahead: nobody is there to raise them."""
    await eye.executemany(
        "INSERT INTO shard_terms (shard, term, from_bucket, to_bucket, owner, op_id, state, opened_us, reason)"
        " VALUES ($1, 1, 0, $2, 'd1', $3, $4, 1, 'first claim')",
        [(shard, NO_END, uuid4(), OPEN) for shard in range(SHARDS)],
    )
    await eye.execute("UPDATE shard_floors SET floor = floor + 1000")
    await eye.execute("UPDATE shard_marks SET watermark = watermark + 1000")
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


async def passed(plane: ControlPlane, *, reason: str = "", shards: tuple[int, ...] = ()) -> list[pb.Finding]:
    """Every finding of one pass; without a reason a dry run."""
    request = pb.ReconcileRequest(dry_run=not reason, reason=reason, shards=shards)
    found: list[pb.Finding] = []
    while True:
        part = await plane.admin.Reconcile(request)
        found += part.findings
        if not part.next_page_token:
            return found
        request.page_token = part.next_page_token


def kinds(found: list[pb.Finding]) -> list[tuple[str, int, bool]]:
    return [(KIND.Name(one.kind).removeprefix("FINDING_KIND_"), one.shard, one.repaired) for one in found]


async def comes_to(plane: ControlPlane, wanted: list[tuple[str, int, bool]], *, reason: str = "") -> list[pb.Finding]:
    """The findings of the first pass that finds just this. On a busy machine the played dispatchers' reports may be
    late, and they are not well for a moment."""

    async def look() -> list[pb.Finding]:
        found = await passed(plane, reason=reason)
        return found if kinds(found) == wanted else []

    answer: list[pb.Finding] = await eventually(look, what=f"a pass finds {wanted}")
    return answer


async def now_us(eye: asyncpg.Connection) -> int:
    return int(await eye.fetchval("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"))


async def plant_run(eye: asyncpg.Connection, shard: int, scheduled_us: int, **columns: Any) -> UUID:
    """A run of a job of the shard's first hash; PENDING and ready unless told otherwise."""
    first = shard_hashes(shard, SHARDS).start
    run_id = UUID(int=(first << 112) | ((scheduled_us // 1000) << 64) | (uuid4().int & (2**64 - 1)))
    values = {
        "run_id": run_id,
        "job_id": uuid4(),
        "job_version": 1,
        "shard": shard,
        "cause": 1,
        "scheduled_for_us": scheduled_us,
        "due_at_us": scheduled_us,
        "created_us": scheduled_us,
        "state": 1,
        "home_term": 1,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await eye.execute(f"INSERT INTO runs ({', '.join(values)}) VALUES ({places})", *values.values())
    return run_id


async def plant_leased(eye: asyncpg.Connection, shard: int, scheduled_us: int, until_us: int, **columns: Any) -> UUID:
    leased = {"state": 2, "attempt": 1, "lease_until_us": until_us, "token_hash": b"t", "worker": "w", "started_us": 1}
    return await plant_run(eye, shard, scheduled_us, **leased, **columns)


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
        assert "dry run" in dry[0].how
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

    async def test_makes_a_run_stand_that_no_adoption_would_find(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = $1", now - 60 * US_PER_S)
        run_id = await plant_leased(eye, 1, now - 90 * US_PER_S, now + 15 * US_PER_S)
        assert kinds(await passed(plane)) == [("RUN_NOT_STANDING", 1, False)]
        assert kinds(await passed(plane, reason="why")) in ([("RUN_NOT_STANDING", 1, True)], [])
        assert kinds(await passed(plane, reason="why")) in ([("RUN_NOT_STANDING", 1, True)], [])
        assert await eye.fetchval("SELECT run_id FROM open_runs") == run_id

    async def test_orders_one_move_of_a_shard_whose_leases_nobody_reaps(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        for _ in range(2):
            await plant_leased(eye, 5, now - 90 * US_PER_S, now - 70 * US_PER_S)
        await plant_leased(eye, 6, now - 90 * US_PER_S, now - 20 * US_PER_S)
        assert kinds(await passed(plane)) == [("LEASE_OVERRUN", 5, False)] * 2
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
        assert kinds(await passed(plane)) == [("RUN_WITHOUT_HOME", 2, False)]
        await eye.execute("UPDATE shard_terms SET opened_us = $1 WHERE shard = 2 AND term = 2", now)
        assert kinds(await passed(plane)) == [], "its new owner is about to take it home"

    async def test_lands_the_retry_of_a_resting_run(self, plane: ControlPlane, eye: asyncpg.Connection) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        run_id = await plant_run(eye, 4, now, not_before_us=now + 20 * US_PER_S, attempt=1)
        assert kinds(await passed(plane)) == [("RETRY_WITHOUT_DUE_ROW", 4, False)]
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
        assert kinds(await passed(plane)) == [("LOST_CHAIN", shard, False)]
        found = await passed(plane, reason="why")
        assert kinds(found) == [("LOST_CHAIN", shard, True)]
        assert found[0].subject == "job default/lost"
        after = await eye.fetchrow("SELECT * FROM due")
        assert after == before
        assert after["id"] == chain_id(UUID(job.job_id), 1)
        assert kinds(await passed(plane)) == []

    async def test_tells_again_of_a_cancel_that_nobody_heeds(
        self, plane: ControlPlane, eye: asyncpg.Connection
    ) -> None:
        now = await now_us(eye)
        await eye.execute("UPDATE shard_marks SET open_from_us = 0")
        late, early = now - 70 * US_PER_S, now - 20 * US_PER_S
        await plant_leased(eye, 3, now, now + 15 * US_PER_S, cancel_requested_us=late)
        await plant_leased(eye, 3, now, now + 15 * US_PER_S, cancel_requested_us=early)
        assert kinds(await passed(plane, reason="why")) == [("LOST_CANCEL", 3, True)]

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
