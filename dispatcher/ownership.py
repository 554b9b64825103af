"""Ownership: which shards this dispatcher holds, by SQL; which it should hold, by the leader's plan.

Every second, and at every hint, it reads the newest terms of all shards. A term of ours that is not served is taken up,
one that is served but no longer ours is dropped (rule of ownership 19). Shards that the plan gives us are claimed by
compare-and-set on the very term the plan names; shards that the plan gives away are given up: nothing more is written
under them, then the ownership key is withdrawn, and the successor claims. A claim is published only once committed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from core.coord.layout import Assignment, Owner
from core.coord.ports import DispatcherCoord
from core.errors import OutcomeUnknown, Unavailable
from core.fence import TermRow
from core.states import TermState
from core.store.marks import MarkKeeper
from core.store.terms import Claim, Terms
from core.telemetry.health import Pulse
from dispatcher.adoption import Adoption
from dispatcher.holdings import HeldTerm
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

_CLAIM_BATCH = 16
_SWEEP_EVERY_S = 30.0


class Ownership:
    """Claims, takes up, gives up and drops terms."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        coord: DispatcherCoord,
        terms: Terms,
        marks: MarkKeeper,
        adoption: Adoption,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._coord = coord
        self._terms = terms
        self._marks = marks
        self._adoption = adoption
        # Terms that were given up: ours by SQL until the successor claims, but not to be taken up again.
        self._given_up: set[tuple[int, int]] = set()
        self._swept_s = runtime.clock.monotonic_s()
        self.draining = False
        # When SQL last told the terms, in monotonic seconds.
        self.read_s = self._swept_s
        # Waits until no write of the loops is under way; set by the process when the loops are built.
        self.quiet: Callable[[], Awaitable[None]] | None = None
        self._pulse: Pulse | None = None

    def watch(self, pulse: Pulse) -> None:
        """Let readiness follow this loop."""
        self._pulse = pulse

    async def run(self) -> None:
        """For ever: reconcile at each hint and every term check."""
        self._coord.subscribe(self._memory.wakes.own)
        while True:
            try:
                await self.step()
                if self._pulse is not None:
                    self._pulse.beat()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("ownership waits for the database: %s", error)
                await self._runtime.clock.sleep(0.2)
            await self._memory.wakes.own.wait(self._runtime.clock, self._runtime.settings.term_check_s)

    async def step(self) -> None:
        """Reconcile once: SQL's terms with ours, then ours with the plan."""
        sent_s = self._runtime.clock.monotonic_s()
        rows = await self._terms.newest(list(self._runtime.cluster.shards))
        self.read_s = self._runtime.clock.monotonic_s()
        opened = [row for row in rows if row.state is TermState.OPEN]
        await self._follow_sql(opened, sent_s)
        if self.draining:
            await self._give_up(list(self._memory.holdings))
            return
        await self._give_away()
        await self._claim(rows, opened)
        await self._read_again()

    # --- what SQL says ---

    async def _follow_sql(self, opened: Sequence[TermRow], sent_s: float) -> None:
        mine = {row.key: row for row in opened if row.owner == self._runtime.dispatcher_id}
        self._given_up &= mine.keys()
        for held in self._memory.holdings:
            row = mine.get(held.key)
            if row is None and held.proven_s < sent_s:
                log.info("shard %d: term %d is no longer ours", held.shard, held.term)
                self._memory.drop_term(held.shard, held.term)
                self._coord.withdraw_owner(held.shard)
            elif row is not None and held.key not in self._given_up:
                held.from_bucket, held.to_bucket = row.from_bucket, row.to_bucket
                held.proven_s = max(held.proven_s, sent_s)
                held.acting = True
        unserved = [r for k, r in mine.items() if self._memory.holdings.get(k) is None and k not in self._given_up]
        await self._take_up(unserved, sent_s)

    async def _take_up(self, rows: Sequence[TermRow], sent_s: float) -> None:
        """Serve these terms from now on: due rows at once, open runs when they are adopted at the end of the step."""
        if not rows:
            return
        marks = await self._marks.read([row.shard for row in rows])
        for row in rows:
            self._memory.holdings.add(row, marks[row.shard], sent_s)
            self._coord.publish_owner(Owner(row.shard, row.term, row.from_bucket, self._runtime.dispatcher_id))
        self._memory.wakes.discover.set()
        self._count()

    async def _adopt(self, taken: Sequence[HeldTerm]) -> None:
        for held in taken:
            if self._memory.holdings.get(held.key) is held:
                await self._adoption.adopt(held)

    async def _read_again(self) -> None:
        """Adopt what is not adopted yet, what a lost answer left in doubt, what did not fit; and all now and then."""
        now_s = self._runtime.clock.monotonic_s()
        routes, gates = self._memory.routes, self._memory.gates
        room = max(routes.waiting, gates.waiting) < self._runtime.settings.waiting_limit // 2
        everything = now_s - self._swept_s >= _SWEEP_EVERY_S
        wanted = [h for h in self._memory.holdings if everything or h.doubtful or (h.overflowed and room)]
        if everything:
            self._swept_s = now_s
        if everything or room:
            routes.overflowed.clear()
            gates.overflowed = False
        await self._adopt(wanted)

    # --- what the plan says ---

    def _orders(self) -> dict[int, Assignment]:
        plan = self._coord.plan()
        return {} if plan is None else plan.by_shard

    async def _give_away(self) -> None:
        """Give up held terms that the plan names as to be replaced by another dispatcher."""
        orders = self._orders()
        leaving = []
        for held in self._memory.holdings:
            order = orders.get(held.shard)
            if (
                order is not None
                and order.dispatcher_id != self._runtime.dispatcher_id
                and order.replaces_term == held.term
                and order.dispatcher_id in self._coord.members()
            ):
                leaving.append(held)
        await self._give_up(leaving)

    async def _give_up(self, leaving: Sequence[HeldTerm]) -> None:
        leaving = [held for held in leaving if held.key not in self._given_up]
        if not leaving:
            return
        for held in leaving:
            held.acting = False
            self._given_up.add(held.key)
        if self.quiet is not None:
            await self.quiet()
        for held in leaving:
            self._memory.drop_term(held.shard, held.term)
            self._coord.withdraw_owner(held.shard)
        log.info("gave up %d shards", len(leaving))
        self._count()

    async def _claim(self, rows: Sequence[TermRow], opened: Sequence[TermRow]) -> None:
        claimed_before = {row.shard for row in rows}
        by_key = {row.key: row for row in opened}
        planned: dict[str, list[Claim]] = {"first claim": [], "takeover": [], "move": []}
        for shard, order in self._orders().items():
            if order.dispatcher_id != self._runtime.dispatcher_id or shard not in self._runtime.cluster.shards:
                continue
            if order.replaces_term == 0:
                if shard not in claimed_before:
                    planned["first claim"].append(Claim(shard, None))
                continue
            row = by_key.get((shard, order.replaces_term))
            if row is None or row.owner != order.replaces_owner:
                continue
            if row.owner == self._runtime.dispatcher_id:
                self._given_up.discard(row.key)  # given back to us before anybody else claimed it
                continue
            is_gone = order.seize or row.owner not in self._coord.members()
            if is_gone:
                planned["takeover"].append(Claim(shard, row))
            elif self._is_withdrawn(row):
                planned["move"].append(Claim(shard, row))
        for reason, claims in planned.items():
            for start in range(0, len(claims), _CLAIM_BATCH):
                await self._open(claims[start : start + _CLAIM_BATCH], reason)

    def _is_withdrawn(self, row: TermRow) -> bool:
        owner = self._coord.owners().get(row.shard)
        return self._coord.reachable and (owner is None or owner.term != row.term)

    async def _open(self, claims: Sequence[Claim], reason: str) -> None:
        if not claims:
            return
        sent_s = self._runtime.clock.monotonic_s()
        won = await self._terms.claim(
            claims,
            owner=self._runtime.dispatcher_id,
            op_id=self._runtime.rand.uuid(),
            now_us=self._runtime.clock.now_us(),
            reason=reason,
        )
        log.info("%s: claimed %d of %d shards", reason, len(won), len(claims))
        if reason == "takeover":
            self._runtime.metrics.taken_over(len(won))
        elif reason == "move":
            self._runtime.metrics.moved_in(len(won))
        await self._take_up(won, sent_s)

    # --- the end ---

    async def drain(self) -> None:
        """Give every shard up, and claim none from here on."""
        self.draining = True
        await self._give_up(list(self._memory.holdings))

    @property
    def succeeded(self) -> bool:
        """Whether everything that was given up has a new owner, or nobody is there who could be one."""
        return not self._given_up or self._coord.members().keys() <= {self._runtime.dispatcher_id}

    def _count(self) -> None:
        memory = self._memory
        open_runs = len(memory.attempts) + memory.routes.waiting + memory.gates.waiting + len(memory.resting)
        self._runtime.metrics.set_owned(len(memory.holdings.shards), open_runs)
        memory.wakes.match.set()
