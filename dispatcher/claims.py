"""What the leader's plan orders of this dispatcher: first claims, takeovers, and moves of shards that are alive.

An order names the term that it replaces. A term whose owner is gone, or that the leader seizes, is claimed at once; a
living owner's is split at a bucket boundary (core/handoff.py says where). Either is a compare-and-set in SQL; what came
of it is read from the terms again, by ownership, which calls this.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from core.coord.layout import Assignment
from core.coord.ports import CoordView
from core.fence import TermRow
from core.handoff import boundary_for
from core.states import TermState
from core.store.terms import Claim, Split, Terms
from dispatcher.holdings import Key
from dispatcher.neighbours import Neighbours
from dispatcher.runtime import Memory, Runtime

log = logging.getLogger(__name__)

_BATCH = 16


class Claims:
    """Claims and splits for one dispatcher."""

    def __init__(
        self, runtime: Runtime, memory: Memory, coord: CoordView, terms: Terms, neighbours: Neighbours
    ) -> None:
        self._runtime = runtime
        self._memory = memory
        self._coord = coord
        self._terms = terms
        self._neighbours = neighbours
        # Terms that our own splits opened: before its boundary no run is at home under one.
        self._split_off: set[Key] = set()

    def is_still_empty(self, row: TermRow) -> bool:
        """Whether no run can be at home under a term of ours yet: we split it off, and its boundary lies ahead."""
        return row.key in self._split_off and self._present_bucket() < row.from_bucket

    def _present_bucket(self) -> int:
        return self._runtime.scale.bucket_of(self._runtime.clock.now_us())

    async def read(self) -> list[TermRow]:
        """The newest terms of all shards, every open one among them."""
        return await self._terms.newest(list(self._runtime.cluster.shards))

    async def carry_out(self, rows: Sequence[TermRow]) -> bool:
        """Carry out what the plan orders and the `rows` allow; true when any term became ours."""
        won = 0
        wanted = self._sort(rows)
        for reason in ("first claim", "takeover", "move"):
            claims = wanted.claims[reason]
            for start in range(0, len(claims), _BATCH):
                won += await self._claim(claims[start : start + _BATCH], reason)
        for start in range(0, len(wanted.splits), _BATCH):
            won += await self._split(wanted.splits[start : start + _BATCH])
        return won > 0

    def _sort(self, rows: Sequence[TermRow]) -> _Wanted:
        me = self._runtime.dispatcher_id
        claimed_before = {row.shard for row in rows}
        opened = {row.key: row for row in rows if row.state is TermState.OPEN}
        wanted = _Wanted()
        for shard, order in self._orders().items():
            if order.dispatcher_id != me or shard not in self._runtime.cluster.shards:
                continue
            if order.replaces_term == 0:
                if shard not in claimed_before:
                    wanted.claims["first claim"].append(Claim(shard, None))
                continue
            row = opened.get((shard, order.replaces_term))
            if row is None or row.owner != order.replaces_owner or row.owner == me:
                continue
            if order.seize or row.owner not in self._coord.members():
                wanted.claims["takeover"].append(Claim(shard, row))
            elif self._is_withdrawn(row):
                wanted.claims["move"].append(Claim(shard, row, order.planned_move))
            elif sum(1 for s, _ in opened if s == shard) == 1:
                wanted.splits.append((row, order))
        return wanted

    def _orders(self) -> dict[int, Assignment]:
        plan = self._coord.plan()
        return {} if plan is None else plan.by_shard

    def _is_withdrawn(self, row: TermRow) -> bool:
        """Whether its owner, though alive, has given it up: nobody is shown to own the shard."""
        return self._coord.reachable and row.shard not in self._coord.owners()

    async def _claim(self, claims: Sequence[Claim], reason: str) -> int:
        await self._runtime.pass_by("claim.before")
        won = await self._terms.claim(
            claims,
            owner=self._runtime.dispatcher_id,
            op_id=self._runtime.rand.uuid(),
            now_us=self._runtime.clock.now_us(),
            reason=reason,
        )
        await self._runtime.pass_by("claim.after")
        level = logging.INFO if won else logging.DEBUG
        log.log(level, "%s: claimed %d of %d shards", reason, len(won), len(claims))
        if reason == "takeover":
            self._runtime.metrics.taken_over(len(won))
        elif reason == "move":
            self._runtime.metrics.moved_in(len(won))
        self._tell(won, claims_of=[c.replaces for c in claims if c.replaces is not None])
        return len(won)

    async def _split(self, wanted: Sequence[tuple[TermRow, Assignment]]) -> int:
        clock, scale = self._runtime.clock, self._runtime.scale
        await self._runtime.pass_by("target.before_split")
        now_us = clock.now_us()
        boundary = boundary_for(scale, now_us, self._runtime.settings.handoff_lead_s)
        won = await self._terms.split(
            [Split(row.shard, row, boundary, order.residency_us, order.planned_move) for row, order in wanted],
            owner=self._runtime.dispatcher_id,
            op_id=self._runtime.rand.uuid(),
            now_us=now_us,
            reason="move",
        )
        await self._runtime.pass_by("target.after_split")
        level = logging.INFO if won else logging.DEBUG  # an order that SQL refuses may stand for a while
        log.log(level, "move: split %d of %d shards at bucket %d", len(won), len(wanted), boundary)
        # Known too late to be ready at the boundary: as abrupt as a takeover, and counted as one (rule 18).
        if self._present_bucket() >= boundary - 1:
            self._runtime.metrics.taken_over(len(won))
        else:
            self._runtime.metrics.moved_in(len(won))
        self._split_off = {row.key for row in won} | {key for key in self._split_off if self._memory.holdings.get(key)}
        self._tell(won, claims_of=[row for row, _ in wanted])
        return len(won)

    def _tell(self, won: Sequence[TermRow], *, claims_of: Sequence[TermRow]) -> None:
        """Let those whose terms were changed know at once."""
        shards = {row.shard for row in won}
        for row in claims_of:
            if row.shard in shards:
                self._neighbours.changed(row.shard, row.owner)


class _Wanted:
    """What is to be claimed, by reason, and split, with its order."""

    def __init__(self) -> None:
        self.claims: dict[str, list[Claim]] = {"first claim": [], "takeover": [], "move": []}
        self.splits: list[tuple[TermRow, Assignment]] = []
