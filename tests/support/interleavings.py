"""Two owners and a lander who act on one shard at random, at the same time, from memories that may be stale.

They use the product's own statements and nothing else. What must hold meanwhile is watched by the database itself: see
WATCH. A `Play` is random only in what its seed draws and in how the server happens to order what runs at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from core.clock import US_PER_S
from core.fence import FenceView, TermRow
from core.policy import Overlap
from core.states import AttemptOutcome, DueKind, RunState, TermState
from core.store.completion import Ending
from core.store.decisions import FireChain, FireRun
from core.store.discovery import BucketRange, Discovery, DueRow
from core.store.landing import Landing, land
from core.store.marks import Raise
from core.store.terms import Claim
from tests.support.store_world import NOW_US, WIDTH_MS, Job, StoreWorld, fire_chain, fire_run, grant

SHARD = 0
WIDTH_US = WIDTH_MS * 1000
FAR_US = 10**9 * US_PER_S

# Deferred to the COMMIT, so that it sees what is true then. Each write of a term draws a number there, and so does the
# end of the term: a number behind it is a write under a closed term.
WATCH = """
CREATE SEQUENCE moments;
CREATE TABLE moments_of_terms (term BIGINT NOT NULL, what TEXT NOT NULL, moment BIGINT NOT NULL);

CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.home_term > 0 THEN
    INSERT INTO moments_of_terms VALUES (NEW.home_term, 'write', nextval('moments'));
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_write AFTER INSERT OR UPDATE ON runs DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION note_write();

CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state <> 1 AND OLD.state = 1 THEN
    INSERT INTO moments_of_terms VALUES (NEW.term, 'end', nextval('moments'));
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_end AFTER UPDATE ON shard_terms DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION note_end();

CREATE FUNCTION check_landing() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE low BIGINT;
BEGIN
  SELECT floor INTO low FROM shard_floors WHERE shard = NEW.shard;
  IF NEW.bucket < low THEN
    RAISE EXCEPTION 'a row landed in bucket %, below the floor %', NEW.bucket, low;
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER check_landing AFTER INSERT OR UPDATE ON due DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION check_landing();
"""
LATE_WRITES = """
SELECT w.term FROM moments_of_terms w JOIN moments_of_terms e ON e.term = w.term AND e.what = 'end'
WHERE w.what = 'write' AND w.moment > e.moment
"""


Act = Callable[[], Awaitable[None]]


@dataclass
class Chain:
    """A job of the play: `times` occurrences, `every_us` apart."""

    job: Job
    first_us: int
    every_us: int
    times: int
    overlap: Overlap = Overlap.ALLOW

    @property
    def occurrences(self) -> list[int]:
        return [self.first_us + n * self.every_us for n in range(self.times)]

    def after(self, scheduled_for_us: int) -> int | None:
        following = scheduled_for_us + self.every_us
        return following if following <= self.occurrences[-1] else None


@dataclass
class Owner:
    """A dispatcher as the play knows it: the terms that it believes to hold, and decisions it has not acted on yet."""

    name: str
    held: dict[int, TermRow] = field(default_factory=dict)
    decided: list[tuple[TermRow, DueRow]] = field(default_factory=list)
    leased: list[tuple[int, UUID, int]] = field(default_factory=list)


@dataclass
class Play:
    """One run of random acts. `done` counts what each act came to."""

    world: StoreWorld
    random: Random
    now_us: int = NOW_US
    chains: dict[UUID, Chain] = field(default_factory=dict)
    owners: list[Owner] = field(default_factory=lambda: [Owner("dispatcher-a"), Owner("dispatcher-b")])
    done: Counter[str] = field(default_factory=Counter)
    # The test's own eye can do one thing at a time.
    eye: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def step(self) -> None:
        """Some acts at once, and a little time."""
        acts = [self._random_act() for _ in range(self.random.randint(1, 4))]
        await asyncio.gather(*(act() for act in acts))
        self.now_us += self.random.choice((0, 200_000, WIDTH_US // 2, WIDTH_US))

    async def finish(self) -> None:
        """One owner takes everything, and time goes on until nothing is due any more."""
        last = self.owners[0]
        for owner in self.owners:
            owner.decided.clear()
        for _ in range(200):
            await self.claim(last)
            await self.decide(last)
            await self.fire(last)
            await self.end(last)
            await self.finish_buckets(last)
            if not await self.world.due(SHARD):
                return
            self.now_us += WIDTH_US
        raise AssertionError(f"the play does not end: {await self.world.due(SHARD)}")

    def _random_act(self) -> Act:
        owner = self.random.choice(self.owners)
        acts = self.acts(owner)
        return self.random.choices([act for _, act in acts], [weight for weight, _ in acts])[0]

    def acts(self, owner: Owner) -> list[tuple[int, Act]]:
        """What may be done next, with its weight."""
        return [
            (3, self.land),
            (2, lambda: self.claim(owner)),
            (4, lambda: self.decide(owner)),
            (6, lambda: self.fire(owner)),
            (4, lambda: self.end(owner)),
            (4, lambda: self.finish_buckets(owner)),
        ]

    async def land(self) -> None:
        """A new job lands its first occurrence, sometimes in the past."""
        async with self.eye:
            job = await self.world.plant_job(SHARD)
        first_us = self.now_us + self.random.randint(-2 * WIDTH_US, 2 * WIDTH_US)
        chain = Chain(job, first_us, self.random.choice((300_000, 2_000_000, 7_000_000)), self.random.randint(1, 5))
        self.chains[job.job_id] = chain
        bucket = self.world.scale.bucket_of(first_us)
        row = Landing(SHARD, bucket, first_us, job.chain_id, DueKind.OCCURRENCE, job.job_id, 1, first_us)
        await self.world.database.transaction(lambda tx: land(tx, row))
        self.done["landed"] += 1

    async def claim(self, owner: Owner) -> None:
        """Take over whatever is open and not one's own; or be the first."""
        newest = await self.world.terms.newest([SHARD])
        open_terms = [t for t in newest if t.state is TermState.OPEN and t.owner != owner.name]
        claims = [Claim(SHARD, term) for term in open_terms[:1]] or ([] if newest else [Claim(SHARD, None)])
        if claims:
            won = await self.world.terms.claim(
                claims, owner=owner.name, op_id=self.world.rand.uuid(), now_us=self.now_us, reason="play"
            )
            self.done["claims won" if won else "claims lost"] += 1
            owner.held |= {term.term: term for term in won}

    async def decide(self, owner: Owner) -> None:
        """Look at what is due under each term, and remember it: it may be acted on much later."""
        for term in list(owner.held.values()):
            marks = (await self.world.marks(owner.name).read([SHARD]))[SHARD]
            low = max(term.from_bucket, marks.watermark)
            high = min(term.to_bucket, max(marks.floor, self.world.scale.bucket_of(self.now_us)) + 1)
            if low < high:
                found = await Discovery(self.world.database).scan([BucketRange(SHARD, low, high)], limit_per_shard=20)
                owner.decided += [(term, row) for row in found.rows if row.due_at_us <= self.now_us]

    async def fire(self, owner: Owner) -> None:
        """Act on what was decided, in one statement of each kind."""
        decided, owner.decided = owner.decided, []
        unique = {row.id: (term, row) for term, row in decided}
        moving: list[FireChain] = []
        ending: list[FireChain] = []
        attempts: list[FireRun] = []
        for term, row in unique.values():
            lease = grant(owner.name, FAR_US) if self.random.random() < 0.7 else None
            if row.kind is DueKind.RUN:
                attempts.append(fire_run(row, term, lease))
                continue
            chain = self.chains[row.job_id]
            next_us = chain.after(row.scheduled_for_us)
            item = fire_chain(
                self.world, chain.job, row, term, lease=lease, next_us=next_us, overlap=chain.overlap, max_buffered=2
            )
            (ending if next_us is None else moving).append(item)
        firing = self.world.firing(owner.name)
        for batch in (moving, ending):
            if batch:
                fired = await firing.fire_chains(batch, now_us=self.now_us)
                self._note(owner, fired.fences, [item.key.term for item in batch], len(fired.consumed))
                runs = {n: item.run.run_id for n, item in enumerate(batch) if item.run is not None}
                owner.leased += [(batch[n].key.term, runs[n], m.attempt) for n, m in fired.made.items() if m.attempt]
        if attempts:
            fired = await firing.fire_runs(attempts, now_us=self.now_us)
            self._note(owner, fired.fences, [item.key.term for item in attempts], len(fired.consumed))
            made = fired.made.items()
            owner.leased += [(attempts[n].key.term, attempts[n].key.due_id, m.attempt) for n, m in made if m.attempt]

    async def end(self, owner: Owner) -> None:
        """End leased attempts: some succeed, some are tried again."""
        leased, owner.leased = owner.leased, []
        items = [self._ending(*attempt) for attempt in leased]
        if items:
            ended = await self.world.completion(owner.name).end(items, now_us=self.now_us)
            self._note(owner, ended.fences, [item.term for item in items], len(ended.states))

    def _ending(self, term: int, run_id: UUID, attempt: int) -> Ending:
        if attempt >= 3 or self.random.random() < 0.6:
            succeeded = AttemptOutcome.SUCCEEDED
            return Ending(SHARD, term, run_id, attempt, RunState.SUCCEEDED, succeeded, b"token")
        at_us = self.now_us + self.random.randint(0, 2 * WIDTH_US)
        bucket = self.world.scale.bucket_of(at_us)
        failed = AttemptOutcome.FAILED
        return Ending(
            SHARD, term, run_id, attempt, RunState.PENDING, failed, b"token", retry_at_us=at_us, retry_bucket=bucket
        )

    async def finish_buckets(self, owner: Owner) -> None:
        """Raise the floor over ended buckets; then look below it; then let the watermark follow."""
        keeper = self.world.marks(owner.name)
        for term in list(owner.held.values()):
            marks = (await keeper.read([SHARD]))[SHARD]
            new = min(marks.floor + 1, term.to_bucket)
            if new <= self.world.scale.bucket_of(self.now_us):
                raised = await keeper.raise_floors([Raise(SHARD, term.term, marks.floor, new)])
                self._note(owner, raised.fences, [term.term], len(raised.shards))
            marks = (await keeper.read([SHARD]))[SHARD]
            below = BucketRange(SHARD, marks.watermark, marks.floor)
            lowest = (await Discovery(self.world.database).lowest([below])).get(SHARD, marks.floor)
            if lowest > marks.watermark:
                rise = Raise(SHARD, term.term, marks.watermark, min(lowest, term.to_bucket))
                raised = await keeper.raise_watermarks([rise])
                self._note(owner, raised.fences, [term.term], len(raised.shards))

    def _note(self, owner: Owner, fences: dict[tuple[int, int], FenceView], asked: list[int], changed: int) -> None:
        """Count what was accepted; a term that turned out to be lost is forgotten, but not always at once."""
        self.done["accepted"] += changed
        self.done["refused"] += len(asked) - changed
        for term in set(asked):
            if (SHARD, term) not in fences and self.random.random() < 0.5:
                owner.held.pop(term, None)
