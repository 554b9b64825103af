"""Firing: due rows become runs, in one fenced autocommit statement a batch (firing_statements.py).

Each statement is idempotent: a due row is consumed by compare-and-set on its whole key, and run ids are derived. Called
by the due loop of a dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.policy import Overlap
from core.states import RunCause, SkipReason
from core.store.database import Database
from core.store.decisions import DueKey, FireChain, Fired, FireRun, LeaseGrant, MadeRun, NewRun
from core.store.fencing import fence_params, fence_views
from core.store.firing_statements import FIRE_ENDING, FIRE_MOVING, FIRE_RUNS, FREE, READ_MADE, WAITS


class Firing:
    """Writes batches of decisions for one owner.

    A batch whose answer was lost is run again at once. Its rows are then gone if the first try was applied, so that
    the runs it made are recognised by the term and the secret that only this owner gave them.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    async def fire_chains(self, items: Sequence[FireChain], *, now_us: int) -> Fired:
        """Fire occurrences: those with a next one and those without must come in separate calls."""
        moving = items[0].next is not None
        if any((item.next is not None) is not moving for item in items):
            raise ValueError("chains that move and chains that end go into separate statements")
        order = sorted(range(len(items)), key=lambda n: _place(items[n].key))
        chains = _chain_params([items[n] for n in order])
        params = {**self._fences(items), **chains, "ords": order, "now_us": now_us}
        rows = await self._database.run(FIRE_MOVING if moving else FIRE_ENDING, params, repeat_unknown=True)
        attempts = {run_id: (attempt, gated) for *_, run_id, attempt, _, gated in rows if attempt is not None}
        verdicts = {ord_: verdict for *_, ord_, _, _, verdict, _ in rows if ord_ is not None}
        made = {
            n: MadeRun(
                attempts[i.run.run_id][0],
                0,
                i.run.scheduled_for_us,
                i.run.due_at_us,
                gated=attempts[i.run.run_id][1],
                blocked=verdicts.get(n) == WAITS,
            )
            for n, i in enumerate(items)
            if i.run is not None and i.run.run_id in attempts
        }
        runs = {n: (i.key, i.run.run_id, i.run.lease) for n, i in enumerate(items) if i.run is not None}
        skipped = {n: SkipReason(verdict) for n, verdict in verdicts.items() if verdict > FREE}
        return await self._with_own_effects(rows, made, runs, skipped)

    async def fire_runs(self, items: Sequence[FireRun], *, now_us: int) -> Fired:
        """Start, or make ready, the next attempt of runs that are in `runs` already.

        The first attempt of a gated run is made ready only, whatever lease is offered.
        """
        params = {**self._fences(items), **_run_params(items), "now_us": now_us}
        rows = await self._database.run(FIRE_RUNS, params, repeat_unknown=True)
        made = {r.ord: _made(r) for r in rows if r.attempt is not None}
        runs = {n: (item.key, item.key.due_id, item.lease) for n, item in enumerate(items)}
        return await self._with_own_effects(rows, made, runs, {})

    def _fences(self, items: Sequence[FireChain] | Sequence[FireRun]) -> dict[str, Any]:
        return fence_params(self._owner, ((item.key.shard, item.key.term) for item in items))

    async def _with_own_effects(
        self,
        rows: Sequence[Row[Any]],
        made: dict[int, MadeRun],
        runs: dict[int, tuple[DueKey, UUID, LeaseGrant | None]],
        skipped: dict[int, SkipReason],
    ) -> Fired:
        fences = fence_views(rows)
        consumed = {ord_ for _, _, _, _, ord_, *_ in rows if ord_ is not None}
        doubtful = {n: r for n, r in runs.items() if n not in consumed and (r[0].shard, r[0].term) in fences}
        if doubtful:
            found = await self._database.run(READ_MADE, {"run_ids": [run_id for _, run_id, _ in doubtful.values()]})
            by_id = {row.run_id: row for row in found}
            for n, (key, run_id, lease) in doubtful.items():
                row = by_id.get(run_id)
                if row is not None and _is_own_effect(row, key, lease):
                    consumed.add(n)
                    made[n] = _made(row)
        return Fired(fences, frozenset(consumed), made, skipped)


def _is_own_effect(row: Row[Any], key: DueKey, lease: LeaseGrant | None) -> bool:
    if row.home_term != key.term or row.not_before_us != 0:
        return False
    if lease is None or (row.gated and row.attempt == 0):
        return bool(row.state == 1)
    return bool(row.state == 2 and row.token_hash == lease.token_hash)


def _made(row: Row[Any]) -> MadeRun:
    return MadeRun(
        row.attempt,
        row.uncounted,
        row.scheduled_for_us,
        row.due_at_us,
        row.trace,
        row.payload,
        row.progress,
        row.gated,
        cause=RunCause(row.cause),
    )


def _place(key: DueKey) -> tuple[int, int, int, int]:
    """By the row's key: a change of many jobs, which holds their chains for a moment, takes them in that order, too."""
    return key.shard, key.bucket, key.due_at_us, key.due_id.int


def _key_params(keys: Sequence[DueKey]) -> dict[str, Any]:
    return {
        "ords": list(range(len(keys))),
        "shards": [k.shard for k in keys],
        "terms": [k.term for k in keys],
        "buckets": [k.bucket for k in keys],
        "due_ats_us": [k.due_at_us for k in keys],
    }


def _lease_params(leases: Sequence[LeaseGrant | None]) -> dict[str, Any]:
    return {
        "run_states": [1 if lease is None else 2 for lease in leases],
        "workers": ["" if lease is None else lease.worker for lease in leases],
        "token_hashes": [None if lease is None else lease.token_hash for lease in leases],
        "lease_untils_us": [0 if lease is None else lease.until_us for lease in leases],
    }


def _chain_params(items: Sequence[FireChain]) -> dict[str, Any]:
    runs = [item.run for item in items]
    skips = [item.skipped for item in items]
    nexts = [item.next for item in items]
    return {
        **_key_params([item.key for item in items]),
        **_lease_params([None if run is None else run.lease for run in runs]),
        "due_ids": [item.key.due_id for item in items],
        "job_ids": [item.job_id for item in items],
        "job_versions": [item.job_version for item in items],
        "expect_versions": [item.expect_version for item in items],
        "next_buckets": [None if n is None else n.bucket for n in nexts],
        "next_dues_us": [None if n is None else n.due_at_us for n in nexts],
        "next_scheduleds_us": [None if n is None else n.scheduled_for_us for n in nexts],
        "next_backs_us": [None if n is None else n.back_us for n in nexts],
        "next_back_tos_us": [None if n is None else n.back_to_us for n in nexts],
        "run_ids": [None if run is None else run.run_id for run in runs],
        "scheduled_fors_us": [None if run is None else run.scheduled_for_us for run in runs],
        "run_dues_us": [None if run is None else run.due_at_us for run in runs],
        "overlaps": [int(Overlap.ALLOW if run is None else run.overlap) for run in runs],
        "max_buffereds": [_max_waiting(run) for run in runs],
        "open_froms_us": [item.open_from_us for item in items],
        "stand_befores_us": [max(item.open_from_us, item.stand_before_us) for item in items],
        "skip_froms_us": [None if s is None else s.from_us for s in skips],
        "skip_tos_us": [None if s is None else s.to_us for s in skips],
        "skip_reasons": [None if s is None else int(s.reason) for s in skips],
    }


def _max_waiting(run: NewRun | None) -> int:
    return run.max_buffered if run is not None and run.overlap is Overlap.BUFFER_ALL else 1


def _run_params(items: Sequence[FireRun]) -> dict[str, Any]:
    return {
        **_key_params([item.key for item in items]),
        **_lease_params([item.lease for item in items]),
        "run_ids": [item.key.due_id for item in items],
        "stand_befores_us": [item.stand_before_us for item in items],
    }
