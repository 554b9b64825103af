"""An owner of every shard who fires by the product's own decisions, from beliefs of a chosen moment: for tests of
changes of a job that are under way meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from controlplane.job_accounts import JobAccounts
from controlplane.ledger import Account, LedgerKind
from core.enumerator import Enumerator
from core.states import DueKind, RunCause
from core.store.database import Transaction
from core.store.decisions import FireChain
from core.store.job_lookup import JobLookup
from core.store.statement import Statement
from dispatcher.holdings import HeldTerm
from dispatcher.jobs import Jobs, JobVersion
from dispatcher.planner import chain_item, decide
from tests.support.api_store import NAMESPACE, ApiStore
from tests.support.store_world import OWNER, SHARDS, StoreWorld

# Of a chain that is due at last, more often than any test needs.
_MOST_ROUNDS = 50


@dataclass
class FiringOwner:
    """Holds every shard. What it decided it may carry out much later."""

    world: StoreWorld
    held: dict[int, HeldTerm] = field(default_factory=dict)

    async def begin(self) -> None:
        for shard in range(SHARDS):
            term = await self.world.own(shard)
            self.held[shard] = HeldTerm(
                shard, term.term, term.from_bucket, term.to_bucket, self.world.bucket, self.world.bucket, 0, 0.0
            )

    async def decided(self, now_us: int) -> list[FireChain]:
        """What is to be written at `now_us`, as far as the rows know of jobs by now."""
        rows = [row for shard in self.held for row in await self.world.due(shard)]
        rows = [row for row in rows if row.kind is DueKind.OCCURRENCE and row.due_at_us <= now_us]
        jobs = Jobs(JobLookup(self.world.database, OWNER), Enumerator())
        await jobs.load((row.job_id, row.job_version) for row in rows)
        items = []
        for row in rows:
            job = jobs.get((row.job_id, row.job_version))
            assert isinstance(job, JobVersion)
            items.append(chain_item(row, job, decide(row, job, now_us, self.world.scale), None, self.held[row.shard]))
        return items

    async def fire(self, items: Sequence[FireChain], now_us: int) -> int:
        """Write it; returns how many of the rows were consumed."""
        consumed = 0
        for part in ([i for i in items if i.next is not None], [i for i in items if i.next is None]):
            if part:
                consumed += len((await self.world.firing().fire_chains(part, now_us=now_us)).consumed)
        return consumed

    async def go_on(self, now_us: int) -> None:
        """Fire until nothing is due any more."""
        for _ in range(_MOST_ROUNDS):
            if not (items := await self.decided(now_us)):
                return
            assert await self.fire(items, now_us), "nothing that is due can be fired"
        raise AssertionError("it does not end")


def just_before(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Let something happen before a transaction comes to its first statement of that name, and only once."""
    run, acts = Transaction.run, [act]

    async def run_after(tx: Transaction, what: Statement, params: Mapping[str, Any] | None = None) -> Any:
        if what.name == name and acts:
            await acts.pop()()
        return await run(tx, what, params)

    monkeypatch.setattr(Transaction, "run", run_after)


async def accounts_of(store: ApiStore, job_id: UUID, from_us: int, to_us: int) -> list[Account]:
    """The job's ledger, which has to be clean: nothing missing, nothing unexpected, no run that is a skip as well."""
    accounts = JobAccounts(store.world.database, store.clock, store.world.scale)
    page = await accounts.page(await store.jobs.by_id(NAMESPACE, job_id), from_us, to_us, 1_000)
    assert page.next_us is None
    faults = [each for each in page.accounts if each.kind in (LedgerKind.MISSING, LedgerKind.UNEXPECTED)]
    assert not faults, faults
    runs = [run["scheduled_for_us"] for run in await store.world.rows("runs") if run["cause"] == RunCause.SCHEDULE]
    skips = await store.world.rows("skips")
    both = [at_us for at_us in runs for skip in skips if skip["from_us"] <= at_us <= skip["to_us"]]
    assert not both, "a run and a skip"
    return page.accounts
