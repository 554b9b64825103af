"""Moves during which one process dies or stands still at a named place: the same for every place of core/failpoints.

drill = Drill(chaos, "kill", Random(seed))      # before the first process is started: it arms them all
await drill.at("target.after_split")            # raises AssertionError if the move does not end in time

Each process has each place armed with a file of its own, so that the drill chooses at run time who stumbles where.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from core.failpoints import NAMES
from core.states import MoveState
from tests.support.chaos_faults import Nemesis
from tests.support.chaos_moves import Mover
from tests.support.chaos_system import ChaosSystem, Watched
from tests.support.live_system import US, now_us
from tests.support.polling import eventually
from tools.fleet import Member
from tools.servers.process import Child

# A move ends within 5 s of the fault or of its boundary, whichever is later; three times that decides here.
ENDS_WITHIN_S = 15.0
PASSES_WITHIN_S = 20.0
# Places that are passed for ever are no steps of a move.
PLACES = tuple(name for name in NAMES if not name.startswith(("report.", "due.")))


def is_stopped(child: Child) -> bool:
    """Whether the process stands still by SIGSTOP."""
    try:
        state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


class Drill:
    """Faults at places. `action` is kill or freeze."""

    def __init__(self, chaos: ChaosSystem, action: str, rand: Random) -> None:
        self._chaos = chaos
        self._action = action
        self._rand = rand
        self._mover = Mover(chaos, rand)
        self._nemesis = Nemesis(chaos, rand)
        self.ends: dict[str, str] = {}
        chaos.failpoints_of = self.armed

    def armed(self, process: str) -> str:
        """The setting with which a process of that name starts."""
        return ",".join(f"{place}=when:{self._file(process, place)}:{self._action}" for place in PLACES)

    def _file(self, process: str, place: str) -> Path:
        return self._chaos.home / f"{process}.{place}"

    # ---- one fault ----

    async def at(self, place: str) -> None:
        """Begin a move, let the process whose step it is stumble at `place`, and wait until the move has ended."""
        shard, owner, target = await self._parties()
        stumbling: Watched | Member = target
        if place.startswith("owner."):
            stumbling = owner
        elif place.startswith("leader."):
            leader = await eventually(self._nemesis.leader, within_s=20, what="somebody leads")
            stumbling = leader
        member = stumbling.member if isinstance(stumbling, Watched) else stumbling
        aside = await self._prepare(place, owner)
        self._file(member.name, place).touch()
        move = (await self._begin(shard, owner, target, place))[0]
        await eventually(lambda: self._stumbled(member), PASSES_WITHIN_S, what=f"{member.name} passes {place}")
        self._note_fault(stumbling, place)
        await self._ended(move, place)
        await self._recover(stumbling, [owner] if aside else [])
        row = (await self._chaos.rows("SELECT state, error FROM shard_moves WHERE move_id = $1", move))[0]
        self.ends[place] = f"{MoveState(row['state']).name} {row['error']}".strip()

    async def _parties(self) -> tuple[int, Watched, Watched]:
        """A shard, who owns it, and another dispatcher."""
        rows = await self._chaos.rows("SELECT shard, owner FROM shard_terms WHERE state = 1 ORDER BY shard")
        alive = {self._chaos.owner_of(each): each for each in self._chaos.running if not each.frozen}
        row = self._rand.choice([row for row in rows if row["owner"] in alive])
        owner = alive[row["owner"]]
        target = self._rand.choice([each for name, each in alive.items() if name and each is not owner])
        return row["shard"], owner, target

    async def _prepare(self, place: str, owner: Watched) -> bool:
        """The rest is taken over only from an owner that does not finish its buckets."""
        if "take_over_rest" in place:
            self._file(owner.member.name, "owner.before_last_floor").touch()
            return True
        return False

    async def _begin(self, shard: int, owner: Watched, target: Watched, place: str) -> list[object]:
        accepted = await eventually(
            lambda: self._mover.ask_for(shard, self._chaos.owner_of(target)), 20, what="the move is accepted"
        )
        if place.startswith("claim."):  # a claim is a takeover's
            self._chaos.kill(owner)
        return [accepted[0].move_id]

    def _stumbled(self, member: Member) -> bool:
        return is_stopped(member.child) if self._action == "freeze" else not member.running

    def _note_fault(self, stumbling: Watched | Member, place: str) -> None:
        member = stumbling.member if isinstance(stumbling, Watched) else stumbling
        self._chaos.note(f"{self._action} {member.name} at {place}")
        if isinstance(stumbling, Watched):
            stumbling.frozen = self._action == "freeze"
            if not stumbling.frozen:
                stumbling.ended_us = now_us()
                self._chaos.live.fleet.members.remove(member)

    async def _ended(self, move: object, place: str) -> None:
        async def ended() -> bool:
            row = (await self._chaos.rows("SELECT * FROM shard_moves WHERE move_id = $1", move))[0]
            assert row["ended_us"] > 0, f"{place}: {dict(row)}"
            return True

        boundary = (await self._chaos.rows("SELECT boundary FROM shard_moves WHERE move_id = $1", move))[0]["boundary"]
        left_s = max(0.0, boundary * self._chaos.bucket_width_s - now_us() / US)
        await eventually(ended, ENDS_WITHIN_S + left_s, what=f"the move ends after a fault at {place}")
        await eventually(self._settled, ENDS_WITHIN_S, what=f"living processes own every shard after {place}")

    async def _settled(self) -> bool:
        return await self._chaos.all_owned()

    async def _recover(self, stumbling: Watched | Member, others: list[Watched]) -> None:
        """As many processes as before, none of them frozen."""
        if isinstance(stumbling, Member) and self._action == "kill":
            self._chaos.live.fleet.members.remove(stumbling)
            self._chaos.live.control_planes.remove(stumbling)
            self._chaos.start_control_plane(port=int(stumbling.address.rpartition(":")[2]))
        elif isinstance(stumbling, Member):
            stumbling.child.thaw()
        for each in [stumbling, *others]:
            if isinstance(each, Watched):
                await self._recover_dispatcher(each)
        while len(self._chaos.running) < self._chaos.size.dispatchers:
            self._chaos.start_dispatcher()
        await eventually(lambda: all(map(self._chaos.owner_of, self._chaos.running)), 30, what="all have started")

    async def _recover_dispatcher(self, each: Watched) -> None:
        if each.ended_us is None and not each.member.running:  # the one aside died as well
            each.ended_us = now_us()
            self._chaos.live.fleet.members.remove(each.member)
        if each.ended_us is None and is_stopped(each.member.child):
            self._chaos.thaw(each)
        await asyncio.sleep(0)
