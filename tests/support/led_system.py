"""A leader over a real etcd and database, with dispatchers that own their shards by SQL (PlayedOwner)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise
from typing import Any

import asyncpg
from tidewheel.v1 import admin_service_pb2 as pb

from core.states import MoveState
from core.store.database import Database
from tests.support.control_plane import SHARDS, ControlPlane
from tests.support.played_owner import PlayedOwner
from tests.support.polling import eventually

COMPLETED, ROLLED_BACK = MoveState.COMPLETED, MoveState.ROLLED_BACK
# A move takes well under a second here; a leader that is new gives everybody three to be heard.
WITHIN_S = 60.0
# Settings under which who joins within so long of each other is placed together, on a busy machine too.
TOGETHER = {"join_settle_s": 2.0}


class System:
    """One control plane, its dispatchers, and a look at the rows."""

    def __init__(self, plane: ControlPlane, database: Database, eye: asyncpg.Connection) -> None:
        self.plane = plane
        self.database = database
        self.eye = eye
        self.owners: dict[str, PlayedOwner] = {}

    async def join(self, *names: str, **member: Any) -> list[PlayedOwner]:
        """Dispatchers that live and report, and that the control plane has seen.

        They come at once. That they are placed together as well is certain only in a system made with TOGETHER.
        """
        etcd, cluster = self.plane.settings.etcd.endpoints[0], self.plane.settings.cluster.name
        made = [PlayedOwner(etcd, cluster, name, self.database, SHARDS, **member) for name in names]
        self.owners.update(zip(names, made, strict=True))
        await asyncio.gather(*(owner.join() for owner in made))
        for owner in made:
            owner.report_to(self.plane.address)

        async def seen() -> bool:
            listed = (await self.plane.admin.ListDispatchers(pb.ListDispatchersRequest())).dispatchers
            return set(names) <= {one.dispatcher_id for one in listed if one.alive}

        await eventually(seen, WITHIN_S)
        return [self.owners[name] for name in names]

    async def shared_out(self) -> None:
        """Wait until every shard has an owner that lives, and none is on the move."""

        async def settled() -> bool:
            held = await self.held()
            living = sum(count for name, count in held.items() if self.owners[name].lives)
            return living == SHARDS and not await self.moves("ended_us = 0")

        await eventually(settled, WITHIN_S)

    async def held(self) -> Counter[str]:
        """How many shards each dispatcher owns from now on."""
        return Counter({name: len(await owner.shards()) for name, owner in self.owners.items()})

    async def moves(self, condition: str = "true") -> list[asyncpg.Record]:
        return list(await self.eye.fetch(f"SELECT * FROM shard_moves WHERE {condition} ORDER BY requested_us, shard"))

    async def move(self, shards: Iterable[int], to: str) -> None:
        await self.plane.admin.MoveShards(
            pb.MoveShardsRequest(shards=sorted(shards), dispatcher_id=to, reason="a test")
        )

    async def reaches(self, state: MoveState, *, of: int = 1) -> list[asyncpg.Record]:
        """Wait until so many moves are in that state; they."""

        async def found() -> list[asyncpg.Record]:
            moves = await self.moves(f"state = {int(state)}")
            return moves if len(moves) >= of else []

        return await eventually(found, WITHIN_S, what=f"{of} moves are {state.name}")

    async def assert_tiles(self) -> None:
        """The terms of each shard that are not void cover all time from its beginning, once."""
        for shard in range(SHARDS):
            rows = await self.eye.fetch(
                "SELECT from_bucket, to_bucket FROM shard_terms WHERE shard = $1 AND state <> 3 ORDER BY from_bucket",
                shard,
            )
            assert all(a["to_bucket"] == b["from_bucket"] for a, b in pairwise(rows)), rows


Make = Callable[..., Awaitable[System]]
