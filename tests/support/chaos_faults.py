"""Faults at random moments: processes killed and started again, frozen and thawed, told to end.

nemesis = Nemesis(chaos, Random(seed))
await nemesis.trouble(until_us)     # ends with everything thawed and as many processes as there were

Whoever dies is replaced, as a supervisor would do it; a control plane on its own port, so that clients find it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

from tidewheel.errors import TidewheelError
from tidewheel.v1 import admin_service_pb2 as pb

from tests.support.chaos_system import ChaosSystem, Watched
from tests.support.live_system import US, now_us
from tools.cli.api import open_api
from tools.fleet import Member

FAULTS = ("kill", "kill", "freeze", "freeze", "end", "kill leader", "freeze leader", "kill worker")
# By then an owner that was thawed has been refused, and its metrics have been read (chaos_system._SCRAPE_EVERY_S).
SHOWN_AFTER_S = 10.0


class Nemesis:
    """One fault at a time, each over before the next begins."""

    def __init__(self, chaos: ChaosSystem, rand: Random, faults: tuple[str, ...] = FAULTS) -> None:
        self._chaos = chaos
        self._rand = rand
        self._faults = faults
        self._workers = 0
        self._stale: list[tuple[Watched, int]] = []

    @property
    def stale(self) -> int:
        """How many owners stood still over a takeover, and lived long enough afterwards for their refusals to show."""
        return sum((each.ended_us or now_us()) - thawed_us > SHOWN_AFTER_S * US for each, thawed_us in self._stale)

    async def trouble(self, until_us: int, *, rest_s: tuple[float, float] = (0.5, 3.0)) -> None:
        """Go on until an instant; the last fault may be over a few seconds after it."""
        while True:
            await asyncio.sleep(self._rand.uniform(*rest_s))
            if now_us() + 3 * US > until_us:
                return
            await self.one(self._rand.choice(self._faults))

    async def one(self, fault: str) -> None:
        """Do one of FAULTS, and undo what can be undone."""
        victims = [each for each in self._chaos.running if self._chaos.owner_of(each)]
        victim = self._rand.choice(victims)
        match fault:
            case "kill":
                self._chaos.kill(victim)
                await asyncio.sleep(self._rand.uniform(0.0, 2.0))
                self._chaos.start_dispatcher()
            case "freeze":
                await self._freeze(victim)
            case "end":
                await self._end(victim)
            case "kill worker":
                self._kill_worker()
            case _:
                await self._leader(fault)

    async def _freeze(self, victim: Watched) -> None:
        owner = self._chaos.owner_of(victim)
        held = "SELECT count(*) AS n FROM shard_terms WHERE owner = $1 AND state = 1"
        before = (await self._chaos.rows(held, owner))[0]["n"]
        self._chaos.freeze(victim)
        await asyncio.sleep(self._rand.choice([0.4, 1.5, 4.0, 7.0]))
        lost = before - (await self._chaos.rows(held, owner))[0]["n"]
        self._chaos.thaw(victim)
        if lost > 0:
            self._stale.append((victim, now_us()))

    async def _end(self, victim: Watched) -> None:
        self._chaos.note(f"SIGTERM {victim.member.name}")
        self._chaos.start_dispatcher()
        await self._chaos.end(victim)

    def _kill_worker(self) -> None:
        self._workers += 1
        name = self._rand.choice(sorted(self._chaos.live.workers))
        self._chaos.note(f"kill -9 {name}")
        self._chaos.live.kill_worker(name)
        self._chaos.start_worker(f"worker-again-{self._workers}")

    async def _leader(self, fault: str) -> None:
        leader = await self.leader()
        if leader is None:
            return
        if fault == "kill leader":
            self._chaos.kill_control_plane(leader)
            await asyncio.sleep(self._rand.uniform(0.0, 2.0))
            self._chaos.start_control_plane(port=int(leader.address.rpartition(":")[2]))
            return
        self._chaos.note(f"freeze the leader, {leader.name}")
        leader.child.freeze()
        await asyncio.sleep(self._rand.choice([0.5, 2.0, 7.0]))
        self._chaos.note(f"thaw {leader.name}")
        leader.child.thaw()

    async def leader(self) -> Member | None:
        """The control plane that leads, as far as anybody says."""
        with contextlib.suppress(TidewheelError):
            async with open_api(self._chaos.live.fleet.addresses, 3.0) as api:
                status = await api.admin("GetClusterStatus", pb.GetClusterStatusRequest())
            return next((m for m in self._chaos.live.control_planes if m.address == status.leader_address), None)
        return None
