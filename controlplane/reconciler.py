"""The reconciler: looks from outside the firing path for what should be impossible, repairs what has a safe rule, and
reports the rest.

It trusts the rows and not what a dispatcher believes, so that a frozen one cannot hide. Every repair looks again in its
own statement and loses to whatever the owner did meanwhile; nothing is ever deleted. On the leader it makes a pass now
and then, one shard after the other with a pause between; an operator may have one at once (AdminService.Reconcile).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from controlplane.hints import HintSink
from controlplane.inspection import Case, Inspection, Known
from controlplane.leader import Seat
from controlplane.repair_moves import RepairMoves
from controlplane.seams import ControlPlaneMetrics
from core.clock import DatabaseClock
from core.errors import OutcomeUnknown, Unavailable
from core.findings import Finding, FindingKind, Repair
from core.store.cluster import Cluster
from core.store.repairs import Repairs

log = logging.getLogger(__name__)

_PAUSE_S = 0.05
# What one pass repairs at most; the others come with the next ones.
_MOST_REPAIRS = 200
# Rounds of jobs in a pass of the leader's own: the next pass goes on from there.
_JOB_ROUNDS = 100
_FIRST = UUID(int=0)
_NAMED = 3
_UNREPAIRABLE = "no rule repairs this safely: it is for a person to judge"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a pass on request has come: the shards before `shard` are done, of this one the runs up to `run`, if any,
    and after all shards the jobs up to `job`."""

    shard: int = 0
    run: UUID | None = None
    job: UUID = _FIRST


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pass is to do: these shards; `reason` for the audit, empty with `dry_run`, which changes nothing.

    A `patient` one moves a shard only for what the pass before found too: right after a long outage of the database,
    say, leases and floors lag for a moment, and mend themselves.
    """

    shards: Sequence[int]
    dry_run: bool
    reason: str = ""
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Remedies:
    """What repairs: rows, moves of shards, hints to owners."""

    repairs: Repairs
    moves: RepairMoves
    hints: HintSink


class Reconciler:
    """Makes passes for one replica; `standing` is what the last pass left unrepaired."""

    def __init__(
        self,
        cluster: Cluster,
        clock: DatabaseClock,
        inspection: Inspection,
        remedies: Remedies,
        seat: Seat,
        *,
        every_s: float,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._inspection = inspection
        self._remedies = remedies
        self._seat = seat
        self._every_s = every_s
        self._job = _FIRST
        self._before: frozenset[tuple[FindingKind, str]] = frozenset()
        self.standing: Sequence[Finding] = ()

    @property
    def leads(self) -> bool:
        """Whether this replica knows what a pass needs to know: it leads, and has looked who is alive."""
        return self._seat.leads() and self._seat.picture is not None

    async def run(self, metrics: ControlPlaneMetrics) -> None:
        """For ever: a pass now and then while this replica leads."""
        while True:
            await self._clock.sleep(self._every_s)
            if not self.leads:
                self.standing, self._before = (), frozenset()
                continue
            try:
                found = await self.sweep()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("the reconciler waits for the database: %s", error)
                continue
            for finding in found:
                log.warning("%s of shard %d: %s: %s", finding.subject, finding.shard, finding.detail, finding.how)
            metrics.set_findings(self.counts, self._clock.now_us())
            metrics.repaired(Counter(finding.kind for finding in found if finding.repaired))

    async def sweep(self) -> list[Finding]:
        """A pass over all shards, and over the next jobs. What it leaves stands until the next one."""
        wish = Wish(list(self._cluster.shards), dry_run=False, reason="reconciler", patient=True)
        found = await self._frozen(wish)
        for shard in wish.shards:
            found += await self._shard(shard, wish, _MOST_REPAIRS - len(found))
            await self._clock.sleep(_PAUSE_S)
        for _ in range(_JOB_ROUNDS):
            cases, after = await self._inspection.jobs(self._job, set(wish.shards))
            found += await self._settled(cases, wish, _MOST_REPAIRS - len(found))
            self._job = after or _FIRST
            if after is None:
                break
            await self._clock.sleep(_PAUSE_S)
        self._before = frozenset((finding.kind, finding.subject) for finding in found)
        self.standing = [finding for finding in found if not finding.repaired]
        return found

    async def part(self, wish: Wish, place: Place, budget_s: float) -> tuple[list[Finding], Place | None]:
        """A part of a pass on request that takes about `budget_s`; and where to go on, None at the end.

        Raises Unavailable, OutcomeUnknown.
        """
        found = await self._frozen(wish) if place == Place() else []
        until_s = self._clock.monotonic_s() + budget_s

        def is_enough() -> bool:
            return self._clock.monotonic_s() >= until_s or len(found) >= _MOST_REPAIRS

        # At least one step each time, so that every part comes further.
        for shard in [each for each in wish.shards if each >= place.shard]:
            run = place.run if shard == place.shard else None
            if run is None:
                found += await self._settled(await self._inspection.rows(shard), wish, _MOST_REPAIRS)
            while True:
                cases, run = await self._inspection.runs(shard, run, self._known())
                found += await self._settled(cases, wish, _MOST_REPAIRS)
                if is_enough():
                    return found, Place(shard + 1) if run is None else Place(shard, run)
                if run is None:
                    break
        after: UUID | None = place.job
        while after is not None:
            cases, after = await self._inspection.jobs(after, set(wish.shards))
            found += await self._settled(cases, wish, _MOST_REPAIRS)
            if is_enough() and after is not None:
                return found, Place(self._cluster.shard_count, job=after)
        return found, None

    @property
    def counts(self) -> Counter[FindingKind]:
        """How many findings stand, by kind."""
        return Counter(finding.kind for finding in self.standing)

    def problems(self) -> Iterable[str]:
        """One line a kind, with the first few by name."""
        for kind, count in sorted(self.counts.items()):
            named = [f"{f.subject} of shard {f.shard}" for f in self.standing if f.kind is kind][:_NAMED]
            more = f"; and {count - len(named)} more" if count > len(named) else ""
            yield f"the reconciler found {count} times {WORDS[kind]}: {'; '.join(named)}{more}"

    # --- repairing -------------------------------------------------------------------------------------------------

    def _known(self) -> Known:
        roster, membership = self._seat.roster, self._seat.membership

        def waiting(owner: str) -> int | None:
            load = None if membership is None else membership.load_of(owner)
            return None if load is None else load.waiting_runs

        return Known(lambda owner: roster is not None and owner in roster.keepers, waiting)

    async def _frozen(self, wish: Wish) -> list[Finding]:
        return await self._settled(await self._inspection.frozen(wish.shards, self._known()), wish, _MOST_REPAIRS)

    async def _shard(self, shard: int, wish: Wish, limit: int) -> list[Finding]:
        return await self._settled(await self._inspection.shard(shard, self._known()), wish, limit)

    async def _settled(self, cases: Sequence[Case], wish: Wish, limit: int) -> list[Finding]:
        """The findings, repaired as far as there is a rule and `limit` allows."""
        settled = []
        for number, case in enumerate(cases):
            if case.finding.rule is None:
                settled.append(case.finding.left(_UNREPAIRABLE))
            elif wish.dry_run:
                settled.append(case.finding.left(f"dry run; else: {REPAIRS[case.finding.rule]}"))
            elif wish.patient and case.finding.rule is Repair.MOVE and not self._was_there(case.finding):
                settled.append(case.finding.left("the shard is moved if the next pass finds this too"))
            elif number >= limit:
                settled.append(case.finding.left("as many were repaired as one pass may: the next one goes on"))
            else:
                settled.append(await self._repaired(case, case.finding.rule, wish.reason))
        return settled

    def _was_there(self, finding: Finding) -> bool:
        return (finding.kind, finding.subject) in self._before

    async def _repaired(self, case: Case, rule: Repair, reason: str) -> Finding:
        finding = case.finding
        note = f"{reason}: {finding.subject}: {finding.detail}"[:1_000]
        if rule is Repair.MOVE:
            return await self._remedies.moves.order(finding, note)
        if rule is Repair.HINT:
            assert case.run is not None, "a hint speaks of a run"
            self._remedies.hints.canceled(finding.shard, case.run.run_id)
            return finding.settled("its owner was told again")
        if await self._written(case, note):
            return finding.settled(DONE[rule])
        return finding.left(
            "not repaired: it changed meanwhile, or another row of it stands; the next pass looks again"
        )

    async def _written(self, case: Case, note: str) -> bool:
        if case.stray is not None:
            return await self._remedies.repairs.reland(case.stray, note)
        if case.landing is not None:
            return await self._remedies.repairs.land_chain(case.landing, note)
        if case.run is None:
            return False
        if case.finding.kind is FindingKind.RUN_NOT_STANDING:
            return await self._remedies.repairs.stand(case.run, note)
        return await self._remedies.repairs.land_retry(
            case.run, self._cluster.scale.bucket_of(case.run.not_before_us), note
        )


WORDS = {
    FindingKind.DUE_BELOW_WATERMARK: "a due row below the watermark",
    FindingKind.TERMS_DO_NOT_TILE: "terms that do not tile",
    FindingKind.RUN_NOT_STANDING: "an open run that no adoption finds",
    FindingKind.RUN_WITHOUT_HOME: "an open run whose home term is closed",
    FindingKind.LEASE_OVERRUN: "a leased run that nobody reaps",
    FindingKind.RETRY_WITHOUT_DUE_ROW: "a resting run without a due row",
    FindingKind.LOST_CHAIN: "a job without its next occurrence",
    FindingKind.LOST_CANCEL: "a cancel that is not heeded",
    FindingKind.FORGOTTEN_RUN: "a run that waits while its owner knows of none",
    FindingKind.FROZEN_SHARD: "a shard that stands still",
}
REPAIRS = {
    Repair.RELAND: "a due row is landed at or above the floor",
    Repair.STAND: "the run is made to stand in open_runs",
    Repair.HINT: "the owner is told again",
    Repair.MOVE: "the shard is moved, so that the new owner reads everything anew",
}
DONE = {
    Repair.RELAND: "a due row was landed at or above the floor",
    Repair.STAND: "the run was made to stand in open_runs",
}
