"""Moves of shards at random moments, back to back, asked for through the API as an operator would.

mover = Mover(chaos, Random(seed))
await mover.make(200, at_once=4)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

from tidewheel.errors import TidewheelError
from tidewheel.v1 import admin_service_pb2 as pb

from core.states import OPEN_MOVE_STATES, MoveState
from tests.support.chaos_system import ChaosSystem
from tests.support.live_system import US, now_us
from tests.support.polling import eventually
from tools.cli.api import open_api

_POLL_S = 0.1
_CALL_WITHIN_S = 5.0


class Mover:
    """Asks for moves and follows them. `asked` counts those that were accepted, `refused` the clear refusals."""

    def __init__(self, chaos: ChaosSystem, rand: Random) -> None:
        self._chaos = chaos
        self._rand = rand
        self.asked = 0
        self.refused = 0

    async def make(self, count: int, *, at_once: int, until_us: int = 2**62) -> None:
        """Have `count` moves accepted, at most `at_once` under way, until an instant at the latest."""
        while self.asked < count and now_us() < until_us:
            room = at_once - await self.under_way()
            for _ in range(min(room, count - self.asked)):
                await self.ask()
            await asyncio.sleep(self._rand.uniform(0.0, 2 * _POLL_S))

    async def ask(self) -> None:
        """Ask for one move of any shard to any other dispatcher that lives; a refusal is an answer too."""
        target, shard = self._target(), self._rand.randrange(16)
        if target:
            await self.ask_for(shard, target)

    async def ask_for(self, shard: int, target: str) -> list[Any]:
        """Ask for this move; returns what was accepted."""
        request = pb.MoveShardsRequest(
            shards=[shard],
            dispatcher_id=target,
            reason="chaos",
            request_id=str(UUID(int=self._rand.getrandbits(128), version=4)),
        )
        try:
            async with open_api(self._chaos.live.fleet.addresses, _CALL_WITHIN_S) as api:
                answer = await api.admin("MoveShards", request)
        except TidewheelError:
            self.refused += 1
            return []
        self.asked += len(answer.moves)
        return list(answer.moves)

    def _target(self) -> str:
        alive = [self._chaos.owner_of(each) for each in self._chaos.running if not each.frozen]
        known = [owner for owner in alive if owner]
        return self._rand.choice(known) if known else ""

    async def under_way(self) -> int:
        rows = await self._chaos.rows("SELECT count(*) AS n FROM shard_moves WHERE ended_us = 0")
        return int(rows[0]["n"])

    async def all_ended(self, within_s: float) -> None:
        """Wait until no move is open; what is open then is shown."""

        async def none_open() -> bool:
            return await self.under_way() == 0

        with contextlib.suppress(AssertionError):
            await eventually(none_open, within_s, what="every move has ended")
        states = ", ".join(str(int(state)) for state in OPEN_MOVE_STATES)
        left = await self._chaos.rows(f"SELECT * FROM shard_moves WHERE state IN ({states})")
        assert not left, f"moves that have not ended: {[dict(row) for row in left]}"

    async def ends(self) -> Counter[str]:
        """How many moves ended how."""
        rows = await self._chaos.rows("SELECT state, count(*) AS n FROM shard_moves GROUP BY state")
        return Counter({MoveState(row["state"]).name: row["n"] for row in rows})

    async def longest_s(self) -> float:
        """The longest time from an order to its end."""
        rows = await self._chaos.rows("SELECT max(ended_us - ordered_us) AS us FROM shard_moves WHERE ordered_us > 0")
        return (rows[0]["us"] or 0) / US
