"""What a replica does while it leads: looks who is alive, reads who owns what, writes the plan when it should change.

Everything here may be done by two leaders at once without harm: the plan is written guarded by the election key, orders
name the terms that they replace, and SQL alone decides who owns a shard. Called by election.py for each tenure.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from controlplane.membership import TICK_EVERY_S, Membership, Roster
from controlplane.picture import Picture
from controlplane.planner import assignments, moves, newest_terms
from controlplane.seams import ControlPlaneMetrics
from core.clock import Clock
from core.config import ControlPlaneSettings
from core.coord.faults import LeadershipLost
from core.coord.layout import Assignment, Plan
from core.coord.ports import LeaderCoord, Leadership
from core.errors import Conflict, OutcomeUnknown, Unavailable
from core.fence import TermRow
from core.store.cluster import Cluster
from core.store.terms import Terms
from core.tasks import Tasks, Wake
from core.telemetry.health import Pulse

log = logging.getLogger(__name__)

# The terms are read at least this often, whatever hints were lost.
_READ_EVERY_S = 1.0
# Hints come in crowds (one a shard that is claimed); so long they are gathered.
_GATHER_S = 0.02


@dataclass(slots=True)
class Seat:
    """Whether this replica leads, for those who serve requests: the present tenure's membership, or None.

    `roster` is the tenure's newest judgement on who is alive, `picture` what it last read; setting `wake` makes it look
    at once.
    """

    membership: Membership | None = None
    plan_version: int = 0
    roster: Roster | None = None
    picture: Picture | None = None
    wake: Wake | None = None


class Leader:
    """The duties of one replica, tenure by tenure."""

    def __init__(
        self,
        coord: LeaderCoord,
        terms: Terms,
        cluster: Cluster,
        settings: ControlPlaneSettings,
        clock: Clock,
        metrics: ControlPlaneMetrics,
    ) -> None:
        self._coord = coord
        self._terms = terms
        self._cluster = cluster
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
        tenure = _Tenure(leadership, Membership(self._settings, self._clock, wake))
        self.seat.membership = tenure.membership
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
            self.seat.membership, self.seat.plan_version, self.seat.roster = None, 0, None
            self._metrics.set_leading(False)
            if self._pulse is not None:
                self._pulse.rest()

    async def _tick(self, membership: Membership) -> None:
        while True:
            membership.tick()
            await self._clock.sleep(TICK_EVERY_S)

    async def _step(self, tenure: _Tenure, *, hinted: bool) -> None:
        """Look; and where anything changed, or it is time, read the terms and put the plan right."""
        roster = self.seat.roster = tenure.membership.look(self._coord.members(), tenure.owners)
        now_s = self._clock.monotonic_s()
        if roster == tenure.roster and not hinted and now_s - tenure.read_s < _READ_EVERY_S:
            return
        newest = await self._newest(tenure)
        if newest is None:
            return
        tenure.owners = frozenset(row.owner for row in newest.values())
        roster = self.seat.roster = tenure.membership.look(self._coord.members(), tenure.owners)
        tenure.roster, tenure.read_s = roster, now_s
        self._count(tenure, roster, newest)
        plan = self._next_plan(newest, roster, self._present(tenure))
        if plan is not None and tenure.leadership.valid:
            await self._write(tenure, plan)

    async def _newest(self, tenure: _Tenure) -> dict[int, TermRow] | None:
        """The rows by which shards are owned now; None while the database is away."""
        try:
            rows = await self._terms.newest(list(self._cluster.shards))
        except (Unavailable, OutcomeUnknown) as error:
            if not tenure.database_away:
                log.warning("the leader waits for the database: %s", error)
            tenure.database_away = True
            return None
        tenure.database_away = False
        return newest_terms(rows)

    def _count(self, tenure: _Tenure, roster: Roster, newest: dict[int, TermRow]) -> None:
        owned = sum(1 for row in newest.values() if row.owner in roster.keepers)
        self._metrics.set_members(len(roster.keepers), self._cluster.shard_count - owned)
        self._metrics.set_ailing(Counter(kind for _, kind in roster.sick))
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

    def _next_plan(self, newest: dict[int, TermRow], roster: Roster, present: Plan | None) -> Plan | None:
        """The plan that should stand instead of `present`, None when that is right as it is."""
        wanted = assignments(list(self._cluster.shards), newest, roster, present)
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
            return
        except (Conflict, Unavailable, OutcomeUnknown) as error:
            log.warning("the plan was not written: %s", error)
            return
        tenure.written = plan
        self.seat.plan_version = plan.version


@dataclass(slots=True)
class _Tenure:
    """What one tenure remembers between two steps."""

    leadership: Leadership
    membership: Membership
    roster: Roster | None = None
    owners: frozenset[str] = frozenset()
    written: Plan | None = None
    read_s: float = 0.0
    suspicions: int = 0
    database_away: bool = False


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
