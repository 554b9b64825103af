"""What a replica does while it leads: looks who is alive, reads who owns what, carries moves on, puts the plan right.

Everything here may be done by two leaders at once without harm: the plan is written guarded by the election key, orders
name the terms that they replace, steps of moves are compare-and-set, and SQL alone decides who owns a shard. Called by
election.py for each tenure.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controlplane.loads import Loads
from controlplane.membership import TICK_EVERY_S, Membership, Roster
from controlplane.moves import MoveAccount
from controlplane.picture import Picture
from controlplane.placement import imbalance
from controlplane.placement_store import PlacementStore
from controlplane.planner import assignments, bounded, moves
from controlplane.rebalancer import Rebalancer
from controlplane.seams import ControlPlaneMetrics
from core.clock import Clock
from core.config import ControlPlaneSettings
from core.coord.faults import LeadershipLost
from core.coord.layout import Assignment, Plan
from core.coord.ports import LeaderCoord, Leadership
from core.errors import Conflict, OutcomeUnknown, Unavailable
from core.tasks import Tasks, Wake
from core.telemetry.health import Pulse

log = logging.getLogger(__name__)

# The rows are read at least this often, whatever hints were lost; more often while a shard is on the move.
_READ_EVERY_S = 1.0
_READ_IN_A_MOVE_EVERY_S = 0.25
# Hints come in crowds (one a shard that is claimed); so long they are gathered.
_GATHER_S = 0.02


@dataclass(slots=True)
class Seat:
    """Whether this replica leads, for those who serve requests: the present tenure's membership and loads, or None.

    `roster` is the tenure's newest judgement on who is alive, `picture` what it last read; setting `wake` makes it look
    at once.
    """

    membership: Membership | None = None
    plan_version: int = 0
    roster: Roster | None = None
    picture: Picture | None = None
    loads: Loads | None = None
    wake: Wake | None = None

    def leads(self) -> bool:
        """Whether there is a tenure of this replica now."""
        return self.membership is not None


@dataclass(frozen=True, slots=True)
class Duties:
    """What the leader works with: the rows, the account of moves, and whoever asks for moves on the leader's behalf."""

    shards: Sequence[int]
    store: PlacementStore
    account: MoveAccount
    rebalancer: Rebalancer


class Leader:
    """The duties of one replica, tenure by tenure."""

    def __init__(
        self,
        coord: LeaderCoord,
        duties: Duties,
        settings: ControlPlaneSettings,
        clock: Clock,
        metrics: ControlPlaneMetrics,
    ) -> None:
        self._coord = coord
        self._duties = duties
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.seat = Seat()
        self._pulse: Pulse | None = None

    def watch(self, pulse: Pulse) -> None:
        """Let readiness follow the duties; it rests while another replica leads."""
        self._pulse = pulse
        pulse.rest()

    async def lead(self, leadership: Leadership) -> None:
        """Do the duties until the leadership is lost."""
        wake = Wake()
        tenure = _Tenure(
            leadership, Membership(self._settings, self._clock, wake), Loads(self._clock), self._clock.now_us()
        )
        self._duties.account.begin()
        self._duties.rebalancer.begin()
        seat = self.seat
        seat.membership, seat.loads, seat.wake = tenure.membership, tenure.loads, wake
        self._metrics.set_leading(True)
        self._coord.subscribe(wake)
        ticks = Tasks()
        ticks.spawn(self._tick(tenure.membership), name="membership ticks")
        try:
            hinted = True
            while leadership.valid:
                await self._step(tenure, hinted=hinted)
                if self._pulse is not None and not tenure.database_away:
                    self._pulse.beat()
                hinted = await wake.wait(self._clock, TICK_EVERY_S)
                if hinted:
                    await self._clock.sleep(_GATHER_S)
        finally:
            await ticks.close()
            self._coord.unsubscribe(wake)
            seat.membership, seat.plan_version, seat.roster = None, 0, None
            seat.picture, seat.loads, seat.wake = None, None, None
            self._metrics.set_leading(False)
            if self._pulse is not None:
                self._pulse.rest()

    async def _tick(self, membership: Membership) -> None:
        while True:
            membership.tick()
            await self._clock.sleep(TICK_EVERY_S)

    async def _step(self, tenure: _Tenure, *, hinted: bool) -> None:
        """Look; and where anything changed, or it is time, read the rows, carry moves on and put the plan right."""
        roster = self.seat.roster = tenure.membership.look(self._coord.members(), tenure.owners)
        now_s = self._clock.monotonic_s()
        every_s = _READ_IN_A_MOVE_EVERY_S if tenure.moving else _READ_EVERY_S
        if roster == tenure.roster and not hinted and now_s - tenure.read_s < every_s:
            return
        try:
            picture = await self._look(tenure)
            self._count(tenure, picture)
            picture = await self._carry_on(picture)
        except (Unavailable, OutcomeUnknown) as error:
            if not tenure.database_away:
                log.warning("the leader waits for the database: %s", error)
            tenure.database_away = True
            return
        tenure.database_away = False
        tenure.moving = bool(picture.moves)
        self.seat.picture = picture
        plan = self._next_plan(picture, self._present(tenure))
        if plan is not None and tenure.leadership.valid:
            await self._write(tenure, plan)

    async def _look(self, tenure: _Tenure) -> Picture:
        """The picture of this moment: the rows, then everybody judged anew by who owns shards."""
        rows = await self._duties.store.read(self._duties.shards)
        members = self._coord.members()
        picture = Picture(
            self._duties.shards, rows.terms, _NOBODY, members, rows.moves, rows.rules, tenure.loads.view()
        )
        tenure.owners = frozenset(row.owner for shard in rows.terms for row in picture.open_terms(shard))
        roster = self.seat.roster = tenure.membership.look(members, tenure.owners)
        tenure.roster, tenure.read_s = roster, self._clock.monotonic_s()
        return replace(picture, roster=roster, now_us=self._clock.now_us(), began_us=tenure.began_us)

    async def _carry_on(self, picture: Picture) -> Picture:
        """Moves: what became of those under way, what is to move beside them, and what may begin."""
        account, rebalancer = self._duties.account, self._duties.rebalancer
        picture = await account.carry_on(picture)
        picture = await rebalancer.ask(picture, await account.rebalancing_left(picture))
        return await account.order(picture)

    def _count(self, tenure: _Tenure, picture: Picture) -> None:
        homes, keepers = picture.heads(), picture.roster.keepers
        tails = (picture.tail(shard) for shard in picture.shards)
        owned = sum(1 for tail in tails if tail is not None and tail.owner in keepers)
        self._metrics.set_members(len(keepers), len(picture.shards) - owned)
        self._metrics.set_imbalance(imbalance(picture.targets(), homes, picture.loads.costs(picture.shards)))
        self._metrics.set_ailing(Counter(kind for _, kind in picture.roster.sick))
        news = tenure.membership.suspicions - tenure.suspicions
        tenure.suspicions = tenure.membership.suspicions
        if news:
            self._metrics.suspected(news)

    def _present(self, tenure: _Tenure) -> Plan | None:
        """The newest plan that is known to stand: etcd's echo of our own writes may be late."""
        stored, written = self._coord.plan(), tenure.written
        if stored is None or (written is not None and written.version > stored.version):
            return written
        return stored

    def _next_plan(self, picture: Picture, present: Plan | None) -> Plan | None:
        """The plan that should stand instead of `present`, None when that is right as it is."""
        wanted = bounded(assignments(picture, present, self._settings))
        if not wanted or (present is not None and wanted == present.assignments):
            return None
        # Counted from the clock, so that it grows over the loss of etcd's data too.
        version = max(0 if present is None else present.version + 1, self._clock.now_us() // 1000)
        planned = moves(wanted, present)
        if planned:
            self._metrics.planned_moves(planned)
        _tell(wanted, present)
        return Plan(version, wanted)

    async def _write(self, tenure: _Tenure, plan: Plan) -> None:
        """Write the plan; whatever keeps it from being written, the next step looks again."""
        try:
            await self._coord.write_plan(tenure.leadership, plan)
        except LeadershipLost:
            self._metrics.plan_refused()
            return
        except (Conflict, Unavailable, OutcomeUnknown) as error:
            self._metrics.plan_refused()
            log.warning("the plan was not written: %s", error)
            return
        tenure.written = plan
        self.seat.plan_version = plan.version


@dataclass(slots=True)
class _Tenure:
    """What one tenure remembers between two steps."""

    leadership: Leadership
    membership: Membership
    loads: Loads
    began_us: int
    roster: Roster | None = None
    owners: frozenset[str] = frozenset()
    written: Plan | None = None
    read_s: float = 0.0
    suspicions: int = 0
    database_away: bool = False
    moving: bool = False


# Of a picture whose owners have to be known before anybody is judged.
_NOBODY = Roster(frozenset(), frozenset(), frozenset(), frozenset(), settling=True)


def _tell(wanted: tuple[Assignment, ...], present: Plan | None) -> None:
    orders = {} if present is None else present.by_shard
    changed = [order for order in wanted if orders.get(order.shard) != order]
    seized = sorted({order.replaces_owner for order in changed if order.seize})
    targets = sorted({order.dispatcher_id for order in changed})
    log.info(
        "planned %d shards for %s%s",
        len(changed),
        ", ".join(targets) or "nobody",
        f"; taken from {', '.join(seized)}" if seized else "",
    )
