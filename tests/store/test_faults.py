"""The store under faults: serialization failures anywhere, lost answers both ways, cancelled callers, crashes midway.

Whatever happens, the outcome is the same as without the fault, or an error that says what the caller has to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url

from core.clock import US_PER_S
from core.errors import OutcomeUnknown, Unavailable
from core.states import AttemptOutcome, DueKind, RunState
from core.store.completion import Ending
from core.store.database import DatabaseConfig, Transaction
from core.store.landing import Landing, land
from core.store.leases import LeaseOrder
from core.store.marks import Raise
from core.store.statement import STATEMENTS
from core.store.terms import Claim
from core.store.transact import RetryLimits
from tests.support.db_faults import DbFaults
from tests.support.polling import eventually
from tests.support.raw_statements import captured, connect, fetch, until_waiting
from tests.support.store_world import (
    NOW_US,
    OTHER,
    StoreWorld,
    close_world,
    fire_chain,
    grant,
    open_world,
    tiles,
)
from tests.support.tcp_proxy import TcpProxy

NEXT_US = NOW_US + 60 * US_PER_S
TRIES = 4


async def fire(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    term, job = await world.own(0), await world.plant_job()
    item = fire_chain(world, job, await world.plant_occurrence(job), term, lease=grant(), next_us=NEXT_US)

    async def act() -> object:
        fired = await world.firing().fire_chains([item], now_us=NOW_US)
        return fired.consumed, {n: made.attempt for n, made in fired.made.items()}

    return act


async def end_and_retry(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)
    run_id = await world.plant_run(await world.plant_job())
    item = Ending(0, 1, run_id, 1, RunState.PENDING, AttemptOutcome.FAILED, b"token", retry_at_us=NEXT_US)

    async def act() -> object:
        await world.completion().end([item], now_us=NOW_US)
        holding = (await world.completion().holdings([run_id]))[run_id]
        return holding.state, holding.attempt

    return act


async def claim(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    held, op_id = await world.own(0), world.rand.uuid()

    async def act() -> object:
        claims = [Claim(0, held), Claim(1, None)]
        return await world.terms.claim(claims, owner=OTHER, op_id=op_id, now_us=NOW_US, reason="test")

    return act


async def raise_floor(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)

    async def act() -> object:
        await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)])
        return (await world.marks().read([0]))[0].floor

    return act


async def land_one(world: StoreWorld) -> Callable[[], Awaitable[object]]:
    await world.own(0)
    job = await world.plant_job()
    row = Landing(0, world.bucket, NOW_US, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, NOW_US)
    return lambda: world.database.transaction(lambda tx: land(tx, row))


OPERATIONS = {"fire": fire, "end": end_and_retry, "claim": claim, "raise": raise_floor, "land": land_one}
Operation = Callable[[StoreWorld], Awaitable[Callable[[], Awaitable[object]]]]


async def everything(world: StoreWorld) -> dict[str, list[dict[str, Any]]]:
    """All that stands in the database, but the server's own times."""
    tables = ["due", "runs", "attempts", "open_runs", "skips", "shard_floors", "shard_marks", "shard_terms"]
    rows = {table: await world.rows(table) for table in [*tables, "shard_term_events"]}
    for row in rows["shard_term_events"]:
        del row["server_us"]
    return rows


class TestSerializationFailures:
    @pytest.mark.parametrize("name", OPERATIONS)
    async def test_at_any_statement_change_nothing_about_the_outcome(
        self, store_config: DatabaseConfig, databases: Any, name: str
    ) -> None:
        plain = await open_world(store_config)
        act = await OPERATIONS[name](plain)
        counted = DbFaults(plain.database)
        with counted.conflicts_where(lambda number: False):
            answer = await act()
        expected = await everything(plain)
        await close_world(plain)
        assert counted.statements > 0
        for faulty in range(1, counted.statements + 1):
            url = await databases.create()
            world = await open_world(replace(store_config, url=url))
            act = await OPERATIONS[name](world)
            faults = DbFaults(world.database)
            with faults.conflict_at_statement(faulty):
                assert await act() == answer
            assert faults.count == 1
            assert await everything(world) == expected
            await close_world(world)
            await databases.drop(url)

    @pytest.mark.parametrize("name", OPERATIONS)
    async def test_for_ever_end_in_unavailable_after_so_many_tries_b103(
        self, store_config: DatabaseConfig, name: str
    ) -> None:
        world = await open_world(store_config, RetryLimits(tries=TRIES, first_wait_s=0.001, longest_wait_s=0.002))
        act = await OPERATIONS[name](world)
        before = await everything(world)
        faults = DbFaults(world.database)
        with faults.conflicts_where(lambda number: True), pytest.raises(Unavailable):
            await act()
        assert faults.count == TRIES
        assert await everything(world) == before
        await close_world(world)

    async def test_at_every_commit_are_bounded_too_b103(
        self, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        world = await open_world(store_config, RetryLimits(tries=TRIES, first_wait_s=0.001, longest_wait_s=0.002))
        await _fail_commits(world, 1000)
        with pytest.raises(Unavailable, match="injected at COMMIT"):
            await world.own(0)
        assert await world.eye.fetchval("SELECT last_value FROM commits_seen") == TRIES
        assert await world.rows("shard_terms") == []
        await close_world(world)

    async def test_at_a_commit_run_the_whole_transaction_again(self, world: StoreWorld, on_postgresql: None) -> None:
        await _fail_commits(world, 2)
        assert (await world.own(0)).term == 1
        assert await world.eye.fetchval("SELECT last_value FROM commits_seen") == 3
        assert tiles(await world.terms.history(0))


async def _fail_commits(world: StoreWorld, times: int) -> None:
    """Let the next COMMITs that hold a new term fail with 40001."""
    await world.eye.execute(
        f"""
        CREATE SEQUENCE commits_seen;
        CREATE FUNCTION fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF nextval('commits_seen') <= {times} THEN
            RAISE EXCEPTION 'injected at COMMIT' USING ERRCODE = '40001';
          END IF;
          RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON shard_terms DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION fail_commit()
        """
    )


@pytest.fixture
async def proxied(store_config: DatabaseConfig) -> AsyncIterator[tuple[StoreWorld, TcpProxy]]:
    """A world whose one session runs through a proxy, and has prepared its statements before."""
    address = make_url(store_config.url)
    async with TcpProxy(str(address.host), int(address.port or 0)) as proxy:
        through = address.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        config = replace(store_config, url=through, pool_size=1, statement_timeout_s=1.0)
        world = await open_world(config, eye_url=store_config.url)
        yield world, proxy
        proxy.heal()
        await close_world(world)


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
            await world.database.transaction(_record_number)
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
            await _record_number(tx)

        await world.database.transaction(body)
        assert runs == 2
        assert await world.eye.fetchval("SELECT count(*) FROM schema_migrations WHERE number = 777") == 1

    async def test_a_server_that_never_answers_is_given_up_in_time(self, proxied: tuple[StoreWorld, TcpProxy]) -> None:
        world, proxy = proxied
        await world.own(0)
        order = await self.leased(world)
        proxy.drop(to_client=True)
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(_once(world, order), timeout=20)
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


async def _record_number(tx: Transaction) -> None:
    await tx.run(STATEMENTS["record_migration"], {"number": 777, "name": "probe"})


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


class TestCancelledCallers:
    """Cancelling the task around a query leaks neither its connection nor its locks (B106)."""

    async def free(self, world: StoreWorld) -> bool:
        """Every connection is back, and no session of the product holds a transaction or a lock open."""
        pool: Any = world.database.engine.sync_engine.pool
        left: int = await world.eye.fetchval(
            """SELECT count(*) FROM pg_stat_activity
               WHERE application_name = 'tidewheel' AND datname = current_database() AND state <> 'idle'"""
        )
        return bool(pool.checkedout() == 0 and left == 0)

    async def test_leak_no_connection_b106(self, store_config: DatabaseConfig, on_postgresql: None) -> None:
        world = await open_world(replace(store_config, pool_size=5))
        job = await world.plant_job()
        row = Landing(0, world.bucket, NOW_US, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, NOW_US)

        async def locked(tx: Transaction) -> None:
            await land(tx, row)
            await asyncio.sleep(10)

        async def call(number: int) -> None:
            # Each deadline falls somewhere else: before a connection is there, in the statement, or behind it.
            async with asyncio.timeout(0.002 * (number % 20)):
                if number % 2:
                    await world.database.transaction(locked)
                else:
                    await world.marks().read([0])
                    await asyncio.sleep(10)

        outcomes = await asyncio.gather(*(call(number) for number in range(200)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}
        await eventually(lambda: self.free(world), what="every connection is back and idle")
        assert await world.due() == []
        await world.own(0)
        raised = await world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)])
        assert raised.shards == {0}
        await close_world(world)

    async def test_waiting_for_a_lock_let_go_of_it(
        self, world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
    ) -> None:
        await world.own(0)
        holder = await connect(store_config, "holder")
        begun = holder.transaction()
        await begun.start()
        await holder.execute("SELECT 1 FROM shard_floors FOR SHARE")
        raising = asyncio.create_task(world.marks().raise_floors([Raise(0, 1, world.bucket, world.bucket + 1)]))
        await until_waiting(world.eye, "tidewheel")
        raising.cancel()
        with pytest.raises(asyncio.CancelledError):
            await raising
        await eventually(lambda: self.free(world), what="the session is idle again")
        await begun.commit()
        await holder.close()
        assert (await world.marks().read([0]))[0].floor == world.bucket

    async def test_during_a_commit_learn_of_it_when_the_commit_has_ended(
        self, proxied: tuple[StoreWorld, TcpProxy], on_postgresql: None
    ) -> None:
        world, proxy = proxied
        runs = 0

        async def body(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            await _record_number(tx)
            proxy.stall()

        writing = asyncio.create_task(world.database.transaction(body, repeat_unknown=True))
        await eventually(lambda: runs == 1, what="the COMMIT is on its way")
        await asyncio.sleep(0)
        writing.cancel()
        assert not await _ends_within(writing, 0.2)
        proxy.heal()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert runs == 1
        assert await world.eye.fetchval("SELECT count(*) FROM schema_migrations WHERE number = 777") == 1
        await eventually(lambda: self.free(world), what="the session is idle again")


async def _ends_within(task: asyncio.Task[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)


async def test_a_crash_between_moving_the_chain_and_making_the_run_does_neither_b110(
    world: StoreWorld, store_config: DatabaseConfig, on_postgresql: None
) -> None:
    """The statement is ended by force where it has moved the due row and waits to insert the run."""
    term, job = await world.own(0), await world.plant_job()
    row = await world.plant_occurrence(job)
    item = fire_chain(world, job, row, term, lease=grant(), next_us=NEXT_US)
    call = await captured(world.database, lambda: world.firing().fire_chains([item], now_us=NOW_US))
    blocker = await connect(store_config, "blocker")
    begun = blocker.transaction()
    await begun.start()
    await blocker.execute(
        """INSERT INTO runs (run_id, job_id, job_version, shard, cause, scheduled_for_us, due_at_us, created_us, state,
                             home_term) VALUES ($1, $2, 1, 0, 1, 0, 0, 0, 1, 1)""",
        job.run_id(NOW_US),
        job.job_id,
    )
    owner = await connect(store_config, "owner")
    firing = asyncio.create_task(fetch(owner, call))
    await until_waiting(world.eye, "owner")
    await world.eye.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'owner'")
    with pytest.raises(Exception, match=r"terminat|closed"):
        await firing
    await begun.rollback()
    await blocker.close()
    assert await world.due() == [row]
    assert await world.rows("runs") == []
    fired = await world.firing().fire_chains([item], now_us=NOW_US)
    assert fired.consumed == {0}
    assert len(await world.rows("runs")) == 1
