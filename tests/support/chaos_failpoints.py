"""Moves during which one process dies or stands still at a named place: the same for every place of core/failpoints.

drill = Drill(chaos, actions, Random(seed))     # before the first process is started: it arms them all
await drill.at("target.after_split")            # raises AssertionError if the move does not end in time

Each process has each place armed with a file of its own, so that the drill chooses at run time who stumbles where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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

# A move ends within 5 s of the fault or of its boundary, whichever is later; here the machine may be busy, and stand
# still for seconds.
ENDS_WITHIN_S = 30.0
PASSES_WITHIN_S = 60.0
# Places that are passed for ever are no steps of a move.
PLACES = tuple(name for name in NAMES if not name.startswith(("report.", "due.")))


def is_stopped(child: Child) -> bool:
    """Whether the process stands still by SIGSTOP."""
    try:
        state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


def alternating(first: str) -> dict[str, str]:
    """Kill at one place, freeze at the next, and so on: both ways together are every place with either."""
    second = "freeze" if first == "kill" else "kill"
    return {place: (first, second)[number % 2] for number, place in enumerate(PLACES)}


class Drill:
    """Faults at places. `actions` says at which place to kill, at which to freeze."""

    def __init__(self, chaos: ChaosSystem, actions: Mapping[str, str], rand: Random) -> None:
        self._chaos = chaos
        self._actions = actions
        self._rand = rand
        self._mover = Mover(chaos, rand)
        self._nemesis = Nemesis(chaos, rand)
        self.ends: dict[str, str] = {}
        chaos.failpoints_of = self.armed

    def armed(self, process: str) -> str:
        """The setting with which a process of that name starts."""
        return ",".join(
            f"{place}=when:{self._file(process, place)}:{action}" for place, action in self._actions.items()
        )

    def _file(self, process: str, place: str) -> Path:
        return self._chaos.home / f"{process}.{place}"

    # ---- one fault ----

    async def at(self, place: str) -> None:
        """Begin a move, let the process whose step it is stumble at `place`, and wait until the move has ended."""
        extra = None
        if "take_over_rest" in place:  # from an owner that is well and takes its time
            extra = await self._owner_of_one("owner.before_last_floor=wait:12")
        elif place.startswith("claim."):
            extra = await self._owner_of_one("")
        shard, owner, target = await self._parties(extra)
        candidates = await self._candidates(place, owner, target)
        for member in candidates:
            self._file(member.name, place).touch()
        move = (await self._begin(shard, owner, target, place))[0]
        froze = self._actions[place] == "freeze"
        member = await eventually(
            lambda: next((each for each in candidates if self._stumbled(each, froze)), None),
            PASSES_WITHIN_S,
            what=f"{' or '.join(each.name for each in candidates)} passes {place}",
        )
        for each in candidates:
            self._file(each.name, place).unlink(missing_ok=True)
        stumbling = next((each for each in self._chaos.watched if each.member is member), member)
        self._note_fault(stumbling, place, froze)
        await self._ended(move, place)
        if extra is not None and extra.ended_us is None:
            self._chaos.kill(extra)
        await self._recover(stumbling, froze)
        row = (await self._chaos.rows("SELECT state, error FROM shard_moves WHERE move_id = $1", move))[0]
        self.ends[place] = f"{MoveState(row['state']).name} {row['error']}".strip()

    async def _candidates(self, place: str, owner: Watched, target: Watched) -> list[Member]:
        """Whose step it is: one process, or any other dispatcher where the leader chooses who claims."""
        if place.startswith("owner."):
            return [owner.member]
        if place.startswith("leader."):
            return [await eventually(self._nemesis.leader, within_s=20, what="somebody leads")]
        if place.startswith("claim."):
            return [each.member for each in self._chaos.running if each is not owner]
        return [target.member]

    async def _parties(self, owner_wanted: Watched | None) -> tuple[int, Watched, Watched]:
        """A shard, who owns it (the one wanted, if any), and another dispatcher."""
        rows = await self._chaos.rows("SELECT shard, owner FROM shard_terms WHERE state = 1 ORDER BY shard")
        alive = {self._chaos.owner_of(each): each for each in self._chaos.running if not each.frozen}
        wanted = alive if owner_wanted is None else {self._chaos.owner_of(owner_wanted)}
        row = self._rand.choice([row for row in rows if row["owner"] in wanted])
        owner = alive[row["owner"]]
        # The one with the fewest shards: where a takeover goes, too.
        counts = Counter(row["owner"] for row in rows)
        others = sorted(name for name, each in alive.items() if name and each is not owner)
        return row["shard"], owner, alive[min(others, key=lambda name: counts[name])]

    async def _owner_of_one(self, failpoints: str) -> Watched:
        """One more dispatcher, which owns one shard."""
        extra = self._chaos.start_dispatcher(failpoints)
        name = await eventually(lambda: self._chaos.owner_of(extra), 30, what="one more has started")
        rows = await self._chaos.rows("SELECT shard FROM shard_terms WHERE state = 1")
        shard = self._rand.choice([row["shard"] for row in rows])
        await eventually(lambda: self._mover.ask_for(shard, name), 20, what="it may get a shard")

        async def has_it() -> bool:
            held = await self._chaos.rows("SELECT owner FROM shard_terms WHERE state = 1 AND shard = $1", shard)
            return [row["owner"] for row in held] == [name]

        await eventually(has_it, ENDS_WITHIN_S, what="it has a shard")
        await self._mover.all_ended(ENDS_WITHIN_S)
        return extra

    async def _begin(self, shard: int, owner: Watched, target: Watched, place: str) -> list[object]:
        accepted = await eventually(
            lambda: self._mover.ask_for(shard, self._chaos.owner_of(target)), 20, what="the move is accepted"
        )
        if place.startswith("claim."):  # a claim is a takeover's
            self._chaos.kill(owner)
        return [accepted[0].move_id]

    def _stumbled(self, member: Member, froze: bool) -> bool:
        return is_stopped(member.child) if froze else not member.running

    def _note_fault(self, stumbling: Watched | Member, place: str, froze: bool) -> None:
        member = stumbling.member if isinstance(stumbling, Watched) else stumbling
        self._chaos.note(f"{self._actions[place]} {member.name} at {place}")
        if isinstance(stumbling, Watched):
            stumbling.frozen = froze
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

    async def _recover(self, stumbling: Watched | Member, froze: bool) -> None:
        """As many processes as before, none of them frozen."""
        if isinstance(stumbling, Member) and not froze:
            self._chaos.live.fleet.members.remove(stumbling)
            self._chaos.live.control_planes.remove(stumbling)
            self._chaos.start_control_plane(port=int(stumbling.address.rpartition(":")[2]))
        elif isinstance(stumbling, Member):
            stumbling.child.thaw()
        elif froze:
            self._chaos.thaw(stumbling)
        while len(self._chaos.running) < self._chaos.size.dispatchers:
            self._chaos.start_dispatcher()
        await eventually(lambda: all(map(self._chaos.owner_of, self._chaos.running)), 30, what="all have started")
