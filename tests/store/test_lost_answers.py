"""Answers lost under way, both ways: settled where the operation knows its own effect, else said to be unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event

from core.clock import US_PER_S
from core.errors import OutcomeUnknown
from core.states import AttemptOutcome, RunState
from core.store.completion import Ending
from core.store.database import Transaction
from core.store.leases import LeaseOrder
from core.store.statement import STATEMENTS
from tests.support.polling import eventually
from tests.support.raw_statements import captured
from tests.support.store_world import (
    NOW_US,
    OTHER,
    StoreWorld,
    fire_chain,
    grant,
    record_number,
    tiles,
)
from tests.support.tcp_proxy import TcpProxy

NEXT_US = NOW_US + 60 * US_PER_S


async def _cut_before_arrival(proxy: TcpProxy) -> None:
    """Swallow what the product sends next, and break its connection."""
    proxy.drop(to_server=True)

    def swallowed() -> bool:
        return any(connection.lost_bytes for connection in proxy._connections)

    await eventually(swallowed, what="something was sent into the void")
    proxy.heal()


class TestLostAnswers:
    """The connection breaks after the statement or the COMMIT has left: it was applied, or it was not."""

    async def leased(self, world: StoreWorld) -> LeaseOrder:
        run_id = await world.plant_run(await world.plant_job(), state=RunState.PENDING, attempt=0)
        return LeaseOrder(0, 1, run_id, 1, grant())

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
    async def test_of_a_write_that_cannot_know_its_own_effect_is_said_to_be_unknown(
        self, proxied: tuple[StoreWorld, TcpProxy], applied: bool
    ) -> None:
        world, proxy = proxied
        await world.own(0)
        await world.leases().lease([await self.leased(world)], now_us=NOW_US)  # prepares the statement
        order = await self.leased(world)
        write = asyncio.create_task(_once(world, order))
        await _break(proxy, applied)
        with pytest.raises(OutcomeUnknown):
            await write
        assert (await world.run(order.run_id))["state"] == (RunState.LEASED if applied else RunState.PENDING)

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
    async def test_of_firing_is_settled_by_firing_again(
        self, proxied: tuple[StoreWorld, TcpProxy], applied: bool
    ) -> None:
        world, proxy = proxied
        term = await world.own(0)
        for prepared in (True, False):
            job = await world.plant_job()
            item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant(), next_us=NEXT_US)
            write = asyncio.create_task(world.firing().fire_chains([item], now_us=NOW_US))
            if not prepared:
                await _break(proxy, applied)
            fired = await write
            assert fired.consumed == {0}
            assert {n: made.attempt for n, made in fired.made.items()} == {0: 1}
        assert world.database.restarts >= 1
        assert len(await world.rows("runs")) == len(await world.due()) == 2

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
    async def test_of_completion_is_settled_by_a_second_run_and_a_look(
        self, proxied: tuple[StoreWorld, TcpProxy], applied: bool
    ) -> None:
        world, proxy = proxied
        await world.own(0)
        for prepared in (True, False):
            run_id = await world.plant_run(await world.plant_job())
            item = Ending(0, 1, run_id, 1, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, b"token")
            write = asyncio.create_task(world.completion().end([item], now_us=NOW_US))
            if not prepared:
                await _break(proxy, applied)
            await write
            assert (await world.completion().holdings([run_id]))[run_id].state is RunState.SUCCEEDED
        assert len(await world.rows("attempts")) == 2

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
    async def test_of_a_commit_is_settled_by_the_operations_id(
        self, proxied: tuple[StoreWorld, TcpProxy], applied: bool
    ) -> None:
        world, proxy = proxied
        held = await world.own(0)
        breaking = _at_commit(world, proxy, applied)
        won = await world.take_over(held)
        await breaking()
        assert (won.term, won.owner) == (2, OTHER)
        history = await world.terms.history(0)
        assert [t.term for t in history] == [1, 2]
        assert tiles(history)

    @pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
    async def test_of_a_commit_that_cannot_be_repeated_is_said_to_be_unknown(
        self, proxied: tuple[StoreWorld, TcpProxy], applied: bool
    ) -> None:
        world, proxy = proxied
        breaking = _at_commit(world, proxy, applied)
        with pytest.raises(OutcomeUnknown):
            await world.database.transaction(record_number)
        await breaking()
        found = await world.eye.fetchval("SELECT count(*) FROM schema_migrations WHERE number = 777")
        assert found == (1 if applied else 0)

    async def test_before_the_commit_was_sent_nothing_is_unknown(self, proxied: tuple[StoreWorld, TcpProxy]) -> None:
        world, proxy = proxied
        runs = 0

        async def body(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                proxy.cut()
            await record_number(tx)

        await world.database.transaction(body)
        assert runs == 2
        assert await world.eye.fetchval("SELECT count(*) FROM schema_migrations WHERE number = 777") == 1

    @pytest.mark.parametrize("proxied", [1.0], indirect=True, ids=["limit of 1 s"])
    async def test_a_server_that_never_answers_is_given_up_in_time(self, proxied: tuple[StoreWorld, TcpProxy]) -> None:
        world, proxy = proxied
        await world.own(0)
        order = await self.leased(world)
        proxy.drop(to_client=True)
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(_once(world, order), timeout=30)
        proxy.heal()
        assert len(await world.database.run(STATEMENTS["read_cluster"])) == 1


async def _once(world: StoreWorld, order: LeaseOrder) -> None:
    """The lease statement as a write that does not know its own effect."""
    call = await captured(world.database, lambda: world.leases().lease([order], now_us=NOW_US))
    await world.database.run(STATEMENTS[call.name], call.params, repeat_unknown=False)


async def _break(proxy: TcpProxy, applied: bool) -> None:
    if applied:
        proxy.cut_after(1)
    else:
        await _cut_before_arrival(proxy)


def _at_commit(world: StoreWorld, proxy: TcpProxy, applied: bool) -> Callable[[], Awaitable[None]]:
    """Break the connection at the next COMMIT; returns a wait for the break's own end."""
    breaking: list[asyncio.Task[None]] = []
    broken = False

    def at_commit(_connection: Any) -> None:
        nonlocal broken
        if broken:
            return
        broken = True
        if applied:
            proxy.cut_after(1)
        else:
            proxy.drop(to_server=True)
            breaking.append(asyncio.create_task(_cut_before_arrival(proxy)))

    event.listen(world.database.engine.sync_engine, "commit", at_commit)

    async def ended() -> None:
        await asyncio.gather(*breaking)

    return ended
