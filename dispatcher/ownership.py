"""Ownership: which terms this dispatcher holds, by SQL.

Every second, and at every hint, it reads the newest terms of all shards. A term of ours that is not served is taken up,
whoever won it; one that is served but no longer ours is dropped (rule of ownership 19); one whose range was split keeps
what is below the boundary. What the leader's plan orders is carried out by claims.py, and what came of that is read
again. Several terms of one shard may be ours at once; a term is published only once its claim has committed.

At the end of a process its shards are handed over one by one, as the leader orders it, while they are served on. What
nobody takes is given up: nothing more is written under it, then its ownership key is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from core.coord.layout import Owner
from core.coord.ports import DispatcherCoord
from core.errors import OutcomeUnknown, Unavailable
from core.fence import TermRow
from core.handoff import handoffs_of
from core.states import TermState
from core.store.marks import MarkKeeper
from core.telemetry.health import Pulse
from dispatcher.adoption import Adoption
from dispatcher.claims import Claims
from dispatcher.holdings import HeldTerm, Key
from dispatcher.runtime import Memory, Runtime, Unassigned

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 30.0
# Orders of the leader wait until all is adopted. One term after the other, a pass over 32 took 3 s and more on a busy
# machine, and orders were withdrawn for it; but each that is adopted beside others delays what is fired meanwhile
# (docs/performance.md has the figures).
_ADOPTED_AT_ONCE = 2


class Ownership:
    """Takes up, gives up and drops terms."""

    def __init__(
        self,
        runtime: Runtime,
        memory: Memory,
        coord: DispatcherCoord,
        claims: Claims,
        marks: MarkKeeper,
        adoption: Adoption,
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._coord = coord
        self._claims = claims
        self._marks = marks
        self._adoption = adoption
        # Terms that were given up: ours by SQL until the successor claims, but not to be taken up again.
        self._given_up: set[tuple[int, int]] = set()
        self._swept_s = runtime.clock.monotonic_s()
        self.draining = False
        # When SQL last told the terms, in monotonic seconds.
        self.read_s = self._swept_s
        # Waits until no write of the loops is under way; set when the loops are built.
        self.quiet: Callable[[], Awaitable[None]] | None = None
        # Tells the workers of a lost term where to go; set when the loops are built.
        self.leave: Callable[[Key], None] | None = None
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
        sent_s, rows = await self._read()
        await self._follow(sent_s, rows)
        if not self.draining and await self._claims.carry_out(rows):
            await self._follow(*await self._read())
        await self._read_again()

    async def _read(self) -> tuple[float, list[TermRow]]:
        sent_s = self._runtime.clock.monotonic_s()
        rows = await self._claims.read()
        self.read_s = self._runtime.clock.monotonic_s()
        return sent_s, rows

    # --- what SQL says ---

    async def _follow(self, sent_s: float, rows: Sequence[TermRow]) -> None:
        me, memory = self._runtime.dispatcher_id, self._memory
        mine = {row.key: row for row in rows if row.owner == me and row.state is TermState.OPEN}
        self._given_up &= mine.keys()
        handoffs = handoffs_of(rows)
        before = dict(memory.handoffs)
        memory.handoffs.clear()
        memory.handoffs.update({s: h for s, h in handoffs.items() if me in (h.before.owner, h.after.owner)})
        # A term before ours that was closed, but not by our own hand-off loop: its open runs are not home yet.
        for shard in before.keys() - handoffs.keys():
            ours = memory.holdings.get(before[shard].after.key)
            if ours is not None:
                ours.resolved = None
        for held in memory.holdings:
            row = mine.get(held.key)
            if row is None and held.proven_s < sent_s:
                log.info("shard %d: term %d is no longer ours", held.shard, held.term)
                self._drop(held)
            elif row is not None and held.key not in self._given_up:
                memory.cut(held, row.to_bucket)
                held.proven_s = max(held.proven_s, sent_s)
                held.acting = not held.leaving
        unserved = [r for k, r in mine.items() if memory.holdings.get(k) is None and k not in self._given_up]
        await self._take_up(unserved, sent_s)
        if memory.handoffs:
            memory.wakes.handoff.set()
            memory.wakes.discover.set()

    def _drop(self, held: HeldTerm) -> None:
        """Forget a term; its workers learn where its runs are now."""
        if self.leave is not None:
            self.leave(held.key)
        self._memory.drop_term(held.shard, held.term)
        if not self._memory.holdings.of_shard(held.shard):
            self._coord.withdraw_owner(held.shard)

    async def _take_up(self, rows: Sequence[TermRow], sent_s: float) -> None:
        """Serve these terms from now on: due rows at once, open runs when they are adopted at the end of the step."""
        if not rows:
            return
        marks = await self._marks.read([row.shard for row in rows])
        for row in rows:
            held = self._memory.holdings.add(row, marks[row.shard], sent_s)
            if self._claims.is_still_empty(row):
                held.resolved = (held.doubts, held.overflows)  # its runs come home at the boundary (handoff.py)
            if not row.has_end:  # the range before a boundary is not the one to be hinted
                self._coord.publish_owner(Owner(row.shard, row.term, row.from_bucket, self._runtime.dispatcher_id))
        self._memory.wakes.discover.set()
        self._count()

    async def _adopt(self, taken: Sequence[HeldTerm], waited: Mapping[Key, Sequence[Unassigned]]) -> None:
        for start in range(0, len(taken), _ADOPTED_AT_ONCE):
            chunk = taken[start : start + _ADOPTED_AT_ONCE]
            passes = (self._adopt_one(held, waited.get(held.key, ())) for held in chunk)
            for outcome in await asyncio.gather(*passes, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _adopt_one(self, held: HeldTerm, waited: Sequence[Unassigned]) -> None:
        if self._memory.holdings.get(held.key) is held:
            handoff = self._memory.handoffs.get(held.shard)
            others = () if handoff is None else (handoff.before.term, handoff.after.term)
            await self._adoption.adopt(held, leaving=frozenset(others) - {held.term}, waited=waited)

    async def _read_again(self) -> None:
        """Adopt what is not adopted yet, what a lost answer left in doubt, what did not fit; and all now and then."""
        now_s = self._runtime.clock.monotonic_s()
        routes, gates = self._memory.routes, self._memory.gates
        room = max(routes.waiting, gates.waiting) < self._runtime.settings.waiting_limit // 2
        everything = now_s - self._swept_s >= _SWEEP_EVERY_S
        served = [h for h in self._memory.holdings if not h.leaving]
        wanted = [h for h in served if everything or h.doubtful or (h.overflowed and room)]
        await self._adoption.settle_refused()
        if everything:
            self._swept_s = now_s
        if everything or room:
            routes.overflowed.clear()
            gates.overflowed = False
        # Where nothing is in doubt but the room, nothing that waits is looked for: that is a walk over all of it.
        looked_for = everything or any(held.doubtful for held in wanted)
        await self._adopt(wanted, self._memory.waiting_by_term() if looked_for else {})

    # --- the end ---

    def begin_draining(self) -> None:
        """Claim nothing from here on; what is held is served until the leader has it moved."""
        self.draining = True
        self._memory.wakes.own.set()

    @property
    def is_wanted(self) -> bool:
        """Whether anybody takes what is held: a shard of ours is in two hands, or ordered for another dispatcher."""
        shards = self._memory.holdings.shards
        plan = self._coord.plan()
        orders = {} if plan is None else plan.by_shard
        members = self._coord.members().keys() - {self._runtime.dispatcher_id}
        return any(
            shard in self._memory.handoffs or (shard in orders and orders[shard].dispatcher_id in members)
            for shard in shards
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held any more."""
        return len(self._memory.holdings) == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other dispatcher, as far as etcd can be seen."""
        return self._coord.members().keys() <= {self._runtime.dispatcher_id}

    async def drain(self) -> None:
        """Give up every term that is still held, and claim none from here on."""
        self.draining = True
        leaving = [held for held in self._memory.holdings if held.key not in self._given_up]
        if not leaving:
            return
        for held in leaving:
            held.acting = False
            self._given_up.add(held.key)
        if self.quiet is not None:
            await self.quiet()
        for held in leaving:
            self._drop(held)
        log.info("gave up %d terms", len(leaving))
        self._count()

    @property
    def succeeded(self) -> bool:
        """Whether everything that was given up has a new owner, or nobody is there who could be one."""
        return not self._given_up or self.is_alone

    def _count(self) -> None:
        memory = self._memory
        open_runs = len(memory.attempts) + memory.routes.waiting + memory.gates.waiting + len(memory.resting)
        self._runtime.metrics.set_owned(len(memory.holdings.shards), open_runs)
        memory.wakes.match.set()
