"""Passes of the reconciler over AdminService, and runs planted for them to find."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
from tidewheel.v1 import admin_service_pb2 as pb

from core.buckets import NO_END
from core.ids import shard_hashes
from tests.support.control_plane import SHARDS, ControlPlane
from tests.support.polling import eventually

OPEN = 1
KIND = pb.FindingKind


async def own_everything(eye: asyncpg.Connection, owner: str) -> None:
    """By SQL, since long ago. Floors and watermarks stand far ahead: nobody is there to raise them."""
    await eye.executemany(
        "INSERT INTO shard_terms (shard, term, from_bucket, to_bucket, owner, op_id, state, opened_us, reason)"
        " VALUES ($1, 1, 0, $2, $3, $4, $5, 1, 'first claim')",
        [(shard, NO_END, owner, uuid4(), OPEN) for shard in range(SHARDS)],
    )
    await eye.execute("UPDATE shard_floors SET floor = floor + 1000")
    await eye.execute("UPDATE shard_marks SET watermark = watermark + 1000")


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

    async def look() -> tuple[list[pb.Finding]]:
        found = await passed(plane, reason=reason)
        assert kinds(found) == wanted, found
        return (found,)

    (answer,) = await eventually(look, what=f"a pass finds {wanted}")
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
    leased = {
        "state": 2,
        "attempt": 1,
        "lease_until_us": until_us,
        "token_hash": b"t",
        "worker": "w",
        "started_us": scheduled_us,
    }
    return await plant_run(eye, shard, scheduled_us, **leased, **columns)
