"""The reconciler beside dispatchers at work: it repairs what was lost, and leaves what is merely on the move alone."""

from __future__ import annotations

import asyncio

from controlplane.hints import Hints, HintSink
from controlplane.inspection import Inspection
from controlplane.leader import Seat
from controlplane.membership import Roster
from controlplane.reconciler import Place, Reconciler, Remedies, Wish
from controlplane.repair_moves import RepairMoves
from core.clock import US_PER_S, ClockReading, DatabaseClock, SystemClock
from core.enumerator import Enumerator
from core.findings import Finding, FindingKind
from core.policy import Retry
from core.rand import SeededRand
from core.states import RunState
from core.store.cluster import read_cluster
from core.store.moves import Moves
from core.store.repairs import Repairs
from tests.support.dispatcher_room import Room, now_us
from tests.support.moves import EVERY, belongs_to, ordered
from tests.support.polling import eventually
from tests.support.scripted_worker import ScriptedWorker, failure, success

DONE = RunState.SUCCEEDED


class NoHints:
    """Takes hints, and forgets them."""

    def landed(self, shard: int) -> None:
        """Nobody is told."""

    def canceled(self, shard: int, run_id: object) -> None:
        """Nobody is told."""


async def reconciler(room: Room, *names: str, hints: HintSink | None = None) -> Reconciler:
    """Of a leader to whom these dispatchers are well. It orders no moves: it has no picture."""
    clock = DatabaseClock(SystemClock())
    now_s = clock.monotonic_s()
    clock.observe(ClockReading(now_us(), now_s, now_s))
    everybody = frozenset(names)
    seat = Seat(roster=Roster(everybody, everybody, frozenset(), frozenset(), settling=False))
    cluster, rand = await read_cluster(room.database), SeededRand(7)
    remedies = Remedies(
        Repairs(room.database, clock, rand, "controlplane-1"),
        RepairMoves(Moves(room.database, clock), seat, clock, rand, "controlplane-1"),
        hints or NoHints(),
    )
    inspection = Inspection(room.database, cluster, clock, Enumerator())
    return Reconciler(cluster, clock, inspection, remedies, seat, every_s=1.0)


async def test_a_busy_system_whose_shards_move_to_and_fro_shows_nothing_and_is_not_repaired(room: Room) -> None:
    first, second = await room.owner("first"), await room.dispatcher("second")
    looks = await reconciler(room, first.name, second.name)
    found: list[Finding] = []
    ended = asyncio.Event()

    async def look_on() -> None:
        while not ended.is_set():
            found.extend(await looks.sweep())

    async def look_through() -> None:
        """As an operator does, through all runs."""
        while not ended.is_set():
            place: Place | None = Place()
            while place is not None:
                some, place = await looks.part(Wish(sorted(EVERY), dry_run=False, reason="to be sure"), place, 0.05)
                found.extend(some)

    looking = asyncio.gather(look_on(), look_through())
    retry = Retry(max_attempts=5, first_delay_us=500_000, max_delay_us=500_000, jitter=0.0)
    async with (
        ScriptedWorker(first.address, "worker-1", work=success, slots=200) as at_first,
        ScriptedWorker(second.address, "worker-1", work=success, slots=200) as at_second,
        ScriptedWorker(first.address, "flaky", ["flaky"], work=failure) as flaky,
    ):
        await at_first.grant(200)
        await at_second.grant(200)
        await flaky.grant(2)
        await room.trigger(await room.job(handler="flaky", retry=retry))
        jobs = [await room.every_second(8, first_after_s=1.0 + n / 20) for n in range(20)]
        await eventually(lambda: len(at_first.starts) >= 20)
        await ordered(room, second)
        await belongs_to(room, second)
        await ordered(room, first)
        await belongs_to(room, first)
        for job_id in jobs:
            await room.all_become(job_id, [DONE] * 8)
        ended.set()
        await asyncio.wait_for(looking, 30)
        assert found == []
        assert await room.eye.fetchval("SELECT count(*) FROM audit WHERE action LIKE 'reconcile.%'") == 0
        await room.check(at_first, at_second, flaky)


async def test_b110_what_was_lost_is_landed_where_the_owner_finds_it_and_runs_once(room: Room) -> None:
    """A due row below the watermark, a chain without its row, a retry without its row: all run in the end."""
    owner = await room.owner("first")
    looks = await reconciler(room, owner.name)
    retry = Retry(max_attempts=2, first_delay_us=6_000_000, max_delay_us=6_000_000, jitter=0.0)
    async with (
        ScriptedWorker(owner.address, "worker-1", work=success, slots=20) as worker,
        ScriptedWorker(owner.address, "flaky", ["flaky"], work=failure) as flaky,
    ):
        await flaky.grant(1)
        rests = await room.trigger(await room.job(handler="flaky", retry=retry))
        await eventually(lambda: rests in owner.parts.memory.resting)
        await owner.stop()
        stray = await room.once(after_s=3600.0)
        chain = await room.every_second(3, first_after_s=2.0)
        await room.eye.execute(
            "UPDATE due SET bucket = 5, due_at_us = $2 WHERE job_id = $1", stray, now_us() - 2 * US_PER_S
        )
        await room.eye.execute("DELETE FROM due WHERE job_id = $1", chain)
        await room.eye.execute("DELETE FROM due WHERE id = $1", rests)
        found = await looks.sweep()
        kinds = (FindingKind.DUE_BELOW_WATERMARK, FindingKind.RETRY_WITHOUT_DUE_ROW, FindingKind.LOST_CHAIN)
        assert sorted((one.kind, one.repaired) for one in found) == [(kind, True) for kind in kinds]
        assert list(looks.problems()) == []
        assert worker.starts == []
    heir = await room.dispatcher("heir")
    await room.give(heir, seize=True)
    async with ScriptedWorker(heir.address, "worker-2", ["work", "flaky"], 20, work=success) as worker:
        await worker.grant(20)
        await room.becomes(rests, DONE)
        await room.all_become(chain, [DONE] * 3)
        await eventually(lambda: bool(worker.starts))
        assert await looks.sweep() == []


async def test_what_no_rule_repairs_stands_as_a_problem_until_it_is_gone(room: Room) -> None:
    await room.owner("first")
    looks = await reconciler(room, "first")
    await room.eye.execute("UPDATE shard_terms SET from_bucket = 7 WHERE shard = 0")
    (finding,) = await looks.sweep()
    assert (finding.kind, finding.repaired) == (FindingKind.TERMS_DO_NOT_TILE, False)
    assert list(looks.problems()) == ["the reconciler found 1 times terms that do not tile: shard 0 of shard 0"]
    await room.eye.execute("UPDATE shard_terms SET from_bucket = 0 WHERE shard = 0")
    assert await looks.sweep() == []
    assert list(looks.problems()) == []


async def test_a_shard_is_moved_only_for_what_two_passes_in_a_row_have_found(room: Room) -> None:
    """After a long outage of the database leases have ended for everybody, until their owners come to reap them."""
    owner = await room.owner("first")
    looks = await reconciler(room, owner.name)
    async with ScriptedWorker(owner.address, "worker-1") as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        await worker.assigned(1)
        await owner.stop()
        ended_us = now_us() - 70 * US_PER_S
        await room.eye.execute("UPDATE runs SET lease_until_us = $2 WHERE run_id = $1", run_id, ended_us)
        (first,) = await looks.sweep()
        assert (first.kind, first.since_us, first.repaired) == (FindingKind.LEASE_OVERRUN, ended_us, False)
        assert "the next pass" in first.how
        (second,) = await looks.sweep()
        assert second.how == "this replica does not lead any more", "it would be moved now"
        await room.eye.execute("UPDATE runs SET lease_until_us = $2 WHERE run_id = $1", run_id, now_us())
        assert await looks.sweep() == []


async def test_a_cancel_of_which_its_owner_never_heard_reaches_the_worker(room: Room) -> None:
    """The hint was lost, and the worker's lease was not renewed since: its owner has not looked at the row."""
    owner = await room.owner("first")
    hints = Hints(room.leader, SystemClock())
    sending = asyncio.ensure_future(hints.run())
    looks = await reconciler(room, owner.name, hints=hints)
    async with ScriptedWorker(owner.address, "worker-1") as worker:
        await worker.grant(1)
        run_id = await room.trigger(await room.job())
        given = await worker.assignment()
        requested_us = now_us() - 70 * US_PER_S
        await room.eye.execute("UPDATE runs SET cancel_requested_us = $2 WHERE run_id = $1", run_id, requested_us)
        (finding,) = await looks.sweep()
        assert (finding.kind, finding.since_us, finding.repaired) == (FindingKind.LOST_CANCEL, requested_us, True)
        await eventually(lambda: bool(worker.cancels), what="the worker is told")
        await worker.stop(given.ref)
        await room.becomes(run_id, RunState.CANCELED)
        assert await looks.sweep() == []
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
