"""The operator of a bench: asks for moves through AdminService and follows them, as `tidewheel shard move` does.

Called by the cases of shards on the move. What a dispatcher is called there is found by the address it serves on.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from tidewheel.errors import TidewheelError
from tidewheel.v1 import admin_service_pb2 as pb

from tools.bench.load import US
from tools.bench.spans import evening
from tools.bench.system import CaseFailed, System
from tools.cli.api import Api, all_pages, open_api, request_id
from tools.fleet import Member

_CALL_WITHIN_S = 5.0
_POLL_S = 0.2
_REASON = "bench"


class Operator:
    """Works on one system, through its control planes."""

    def __init__(self, api: Api, system: System) -> None:
        self._api = api
        self._system = system

    async def owners(self) -> dict[int, str]:
        """The dispatcher of each shard's newest open term; empty where none is open."""
        answer = await self._api.admin("ListShards", pb.ListShardsRequest())
        return {each.shard: each.dispatcher_id for each in answer.shards}

    async def id_of(self, member: Member) -> str:
        """The id under which a dispatcher is a member; empty while it is none."""
        answer = await self._api.admin("ListDispatchers", pb.ListDispatchersRequest())
        found = [each.dispatcher_id for each in answer.dispatchers if each.address == member.address and each.alive]
        return found[0] if found else ""

    async def ids(self) -> list[str]:
        """Of all dispatchers that the bench runs."""
        return [await self.id_of(member) for member in self._system.dispatchers]

    async def spread(self, within_s: float = 90.0) -> None:
        """Give all dispatchers equally many shards, however they came to start; returns when every move has ended."""
        moves = evening(await self.owners(), await self.ids())
        for target, shards in moves.items():
            await self._ask(shards, target)
        deadline_s = time.monotonic() + within_s
        while await self.open_moves():
            if time.monotonic() > deadline_s:
                raise CaseFailed(f"moves to even out the shards had not ended after {within_s:.0f} s")
            await asyncio.sleep(_POLL_S)
        if left := evening(await self.owners(), await self.ids()):
            raise CaseFailed(f"the shards could not be evened out: {left} had still to move")

    async def keep_moving(self, until_us: int, at_once: int) -> None:
        """Planned moves back to back until then, `at_once` under way: shards take turns, to the next dispatcher."""
        dispatchers, turn = await self.ids(), 0
        while time.time_ns() // 1000 < until_us:
            moving = {move.shard for move in await self.open_moves()}
            owners = await self.owners()
            wanted: dict[str, list[int]] = defaultdict(list)
            for step in range(len(owners)):
                shard = (turn + step) % len(owners)
                if len(moving) >= at_once:
                    turn = shard
                    break
                if shard not in moving and owners[shard] in dispatchers:
                    wanted[dispatchers[dispatchers.index(owners[shard]) - 1]].append(shard)
                    moving.add(shard)
            for target, shards in wanted.items():
                await self._ask(shards, target)
            await asyncio.sleep(_POLL_S)

    async def all_ended(self, within_s: float) -> None:
        """Wait until no move is open. Raises CaseFailed when the time is up."""
        deadline_s = time.monotonic() + within_s
        while left := await self.open_moves():
            if time.monotonic() > deadline_s:
                raise CaseFailed(f"{len(left)} moves had not ended after {within_s:.0f} s: {left[0]}")
            await asyncio.sleep(_POLL_S)

    async def open_moves(self) -> list[Any]:
        """Those under way or waiting for their place."""
        return await self._moves(open_only=True)

    async def moves_since(self, since_us: int) -> list[Any]:
        """All moves that were asked for since then."""
        return [move for move in await self._moves(open_only=False) if move.request_time.ToMicroseconds() >= since_us]

    async def _moves(self, *, open_only: bool) -> list[Any]:
        request = pb.ListMovesRequest(open_only=open_only)
        return list((await all_pages(self._api.admin, "ListMoves", request, "moves", 0)).moves)

    async def _ask(self, shards: Collection[int], target: str) -> None:
        asked = pb.MoveShardsRequest(
            shards=sorted(shards), dispatcher_id=target, reason=_REASON, request_id=request_id(None)
        )
        try:
            await self._api.admin("MoveShards", asked)
        except TidewheelError as error:
            raise CaseFailed(f"a planned move was refused: {error}") from error


@asynccontextmanager
async def operator(system: System) -> AsyncIterator[Operator]:
    """One for a system that has started."""
    async with open_api(system.fleet.addresses, _CALL_WITHIN_S) as api:
        yield Operator(api, system)


async def until(instant_us: int) -> None:
    """Sleep until an instant of the machine's clock."""
    await asyncio.sleep(max(0.0, instant_us / US - time.time()))
