"""Looks at one shard, or at the next jobs, for what should be impossible. Only reads; the repairs are reconciler.py's.

What it compares is either one snapshot, or read in an order in which a row on the move cannot look lost, or looked at
twice, or judged only after a margin beyond which nothing of the kind is under way in a healthy system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from controlplane.lost_chains import LostChains
from core.clock import US_PER_S, DatabaseClock
from core.enumerator import Enumerator
from core.fence import TermRow
from core.findings import Finding, FindingKind, SeenRun, StrayRow, faults_of_terms
from core.ids import hashes_range, run_id_ranges, shard_hashes
from core.states import TermState
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.findings import Findings, Walked
from core.store.landing import Landing
from core.store.marks import MarkKeeper
from core.store.open_run_lists import OpenRunLists
from core.store.overdue import DuePlace, Overdue
from core.store.terms import Terms

# A leased run whose lease ended so long ago is not reaped: the home owner does it within a second, a new one after a
# full lease.
LEASE_MARGIN_S = 60.0
# A claim brings the open runs of the terms before home within seconds.
HOME_MARGIN_S = 60.0
# A worker that was told of a cancel has ended by then, or does not listen: telling it again costs nothing.
CANCEL_MARGIN_S = 60.0
# A run that could start has waited for so long, and nobody counts it among those that wait.
FORGOTTEN_AFTER_S = 120.0
# Floors rise about once a second.
FROZEN_AFTER_S = 30.0
# Between two looks at what changes by itself: longer than two reports of a dispatcher.
_LOOK_AGAIN_S = 1.0
# Runs, ended ones too, that a pass walks through in each shard; and those that an operator's pass, which walks through
# them all, reads at once.
_WALKED_A_PASS = 5_000
_WALKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Case:
    """A finding with what its repair needs: the row, the run, or the due row that is to be landed."""

    finding: Finding
    stray: StrayRow | None = None
    run: SeenRun | None = None
    landing: Landing | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What the leader knows of dispatchers: who keeps its shards, and how many runs each says wait in its memory."""

    is_well: Callable[[str], bool]
    waiting: Callable[[str], int | None]


class Inspection:
    """Looks for one replica. It remembers how far it has walked through the runs of each shard."""

    def __init__(self, database: Database, cluster: Cluster, clock: DatabaseClock, enumerator: Enumerator) -> None:
        self._cluster = cluster
        self._clock = clock
        self._findings = Findings(database)
        self._terms = Terms(database)
        self._marks = MarkKeeper(database, owner="")
        self._open_runs = OpenRunLists(database)
        self._overdue = Overdue(database)
        self._chains = LostChains(database, cluster.scale, enumerator, clock)
        self._walked: dict[int, UUID | None] = {}

    async def shard(self, shard: int, known: Known) -> list[Case]:
        """What is wrong with the rows of one shard: its terms, its due rows, the open runs that an adoption would find,
        and the next step of a walk through all its runs, round and round. Raises Unavailable."""
        terms = await self._terms.history(shard)
        cases = await self._rows(shard, terms)
        marks = (await self._marks.read([shard])).get(shard)
        if marks is None:
            return cases
        hashes = await self._open_runs.peopled_hashes(shard_hashes(shard, self._cluster.shard_count))
        runs = await self._findings.open_runs(shard, run_id_ranges(hashes, marks.open_from_us))
        step = await self._walk(shard, self._walked.get(shard), _WALKED_A_PASS)
        self._walked[shard] = step.after
        every = list({run.run_id: run for run in (*runs, *step.runs)}.values())
        return cases + await self._of_runs(every, terms, known) + _not_standing(step)

    async def rows(self, shard: int) -> list[Case]:
        """What is wrong with the terms and the due rows of one shard. Raises Unavailable."""
        return await self._rows(shard, await self._terms.history(shard))

    async def runs(self, shard: int, after: UUID | None, known: Known) -> tuple[list[Case], UUID | None]:
        """What is wrong with the next runs of one shard by id, ended ones being passed over, from the first one on
        where `after` is None; and where to go on, None at the end. Remembers nothing. Raises Unavailable."""
        terms = await self._terms.history(shard)
        step = await self._walk(shard, after, _WALKED_AT_ONCE)
        return await self._of_runs(step.runs, terms, known) + _not_standing(step), step.after

    async def frozen(self, shards: Sequence[int], known: Known) -> list[Case]:
        """The shards whose floor stands still, although the owner who should raise it reports. Looks twice.

        Nobody raises a floor by a clock that may have jumped: then there is nothing to find.
        """
        before = await self._lagging(shards)
        if not before or self._clock.holding:
            return []
        await self._clock.sleep(_LOOK_AGAIN_S)
        after = await self._lagging(list(before))
        stuck = {shard: floor for shard, floor in after.items() if before[shard] == floor}
        heads = _heads(await self._terms.newest(sorted(stuck))) if stuck else {}
        old_us = self._clock.now_us() - round(FROZEN_AFTER_S * US_PER_S)
        found = []
        for shard, floor in sorted(stuck.items()):
            head = heads.get(shard)
            if head is not None and head.opened_us < old_us and known.is_well(head.owner):
                since_us = self._cluster.scale.start_us(floor)
                detail = f"the floor stands at bucket {floor}, and {head.owner} reports as if all were well"
                found.append(Case(Finding(FindingKind.FROZEN_SHARD, shard, f"term {head.term}", detail, since_us)))
        return found

    async def jobs(self, after: UUID, shards: Collection[int]) -> tuple[list[Case], UUID | None]:
        """Of the next jobs by id those of `shards` whose chain is lost; and where to go on, None at the end."""
        lost, next_after = await self._chains.look_through(after, shards)
        cases = []
        for job in lost:
            end_us = await self._findings.account_end_us(job.job_id, job.version)
            landing = None if end_us is None else await self._chains.next_landing(job, end_us)
            since_us = 0 if landing is None else landing.due_at_us
            detail = f"version {job.version} has occurrences to come, and no due row stands for them"
            finding = Finding(FindingKind.LOST_CHAIN, job.shard, f"job {job.namespace}/{job.name}", detail, since_us)
            cases.append(Case(finding, landing=landing))
        return cases, next_after

    # --- one kind each ---------------------------------------------------------------------------------------------

    async def _rows(self, shard: int, terms: Sequence[TermRow]) -> list[Case]:
        faults = "; ".join(faults_of_terms(terms))
        finding = Finding(FindingKind.TERMS_DO_NOT_TILE, shard, f"shard {shard}", faults)
        return ([Case(finding)] if faults else []) + [_stray(row) for row in await self._findings.strays(shard)]

    async def _of_runs(self, runs: Sequence[SeenRun], terms: Sequence[TermRow], known: Known) -> list[Case]:
        """`terms` were read before the runs: no run stays at home in a term that was closed by then."""
        cases = await self._resting([run for run in runs if run.is_resting])
        cases += self._overdue_ones(runs, terms)
        return cases + await self._forgotten(runs, terms, known)

    async def _resting(self, runs: Sequence[SeenRun]) -> list[Case]:
        """Runs whose next attempt has no due row: none at its place, nor anywhere, while the run has not changed."""
        places = {run.run_id: self._place(run) for run in runs}
        standing = await self._overdue.standing(list(places.values())) if places else set()
        missing = {run.run_id: run for run in runs if run.run_id not in standing}
        if not missing:
            return []
        found = await self._overdue.anywhere({run_id: run.shard for run_id, run in missing.items()})
        again = await self._findings.again([run_id for run_id in missing if run_id not in found])
        return [
            _case(FindingKind.RETRY_WITHOUT_DUE_ROW, run, f"rests until attempt {run.attempt + 1}", run.not_before_us)
            for run_id, run in again.items()
            if run == missing[run_id]
        ]

    def _overdue_ones(self, runs: Sequence[SeenRun], terms: Sequence[TermRow]) -> list[Case]:
        """Leases that ended, cancels that were not heeded, homes that are closed: each beyond its margin."""
        now_us = self._clock.now_us()
        homes = {term.term: term for term in terms}
        settled = all(t.opened_us < now_us - HOME_MARGIN_S * US_PER_S for t in terms if t.state is TermState.OPEN)
        cases = []
        for run in runs:
            home = homes.get(run.home_term)
            if run.is_leased and run.lease_until_us < now_us - LEASE_MARGIN_S * US_PER_S:
                cases.append(_case(FindingKind.LEASE_OVERRUN, run, f"attempt {run.attempt}", run.lease_until_us))
            elif not run.is_resting and settled and home is not None and home.state is not TermState.OPEN:
                detail = f"its home term {run.home_term} of {home.owner} is {home.state.name.lower()}"
                cases.append(_case(FindingKind.RUN_WITHOUT_HOME, run, detail, run.due_at_us))
            elif run.is_leased and 0 < run.cancel_requested_us < now_us - CANCEL_MARGIN_S * US_PER_S:
                cases.append(_case(FindingKind.LOST_CANCEL, run, f"attempt {run.attempt}", run.cancel_requested_us))
        return cases

    async def _forgotten(self, runs: Sequence[SeenRun], terms: Sequence[TermRow], known: Known) -> list[Case]:
        """Runs that could start, of an owner who says twice that none waits in its memory."""
        before_us = self._clock.now_us() - round(FORGOTTEN_AFTER_S * US_PER_S)
        owners = {term.term: term.owner for term in terms if term.state is TermState.OPEN}
        suspects = {run.run_id: run for run in runs if _could_start(run, before_us) and _has_none(run, owners, known)}
        if not suspects:
            return []
        await self._clock.sleep(_LOOK_AGAIN_S)
        again = await self._findings.again(list(suspects))
        return [
            _case(
                FindingKind.FORGOTTEN_RUN,
                run,
                f"waits for nothing that {owners[run.home_term]} knows of",
                run.due_at_us,
            )
            for run_id, run in again.items()
            if run == suspects[run_id] and _has_none(run, owners, known)
        ]

    async def _walk(self, shard: int, after: UUID | None, limit: int) -> Walked:
        low, high = hashes_range(shard_hashes(shard, self._cluster.shard_count))
        first = UUID(int=max(0, low.int - 1))
        return await self._findings.walk(shard, after or first, high, limit)

    def _place(self, run: SeenRun) -> DuePlace:
        return DuePlace(run.shard, self._cluster.scale.bucket_of(run.not_before_us), run.not_before_us, run.run_id)

    async def _lagging(self, shards: Sequence[int]) -> Mapping[int, int]:
        scale = self._cluster.scale
        lowest = scale.bucket_of(self._clock.now_us() - round(FROZEN_AFTER_S * US_PER_S)) - 1
        return {shard: m.floor for shard, m in (await self._marks.read(shards)).items() if m.floor < lowest}


def _case(kind: FindingKind, run: SeenRun, detail: str, since_us: int) -> Case:
    return Case(Finding(kind, run.shard, f"run {run.run_id}", detail, since_us), run=run)


def _stray(row: StrayRow) -> Case:
    detail = f"of job {row.job_id} stands in bucket {row.bucket}, below the watermark {row.watermark}"
    kind = FindingKind.DUE_BELOW_WATERMARK
    return Case(Finding(kind, row.shard, f"due row {row.due_id}", detail, row.due_at_us), stray=row)


def _not_standing(step: Walked) -> list[Case]:
    detail = "lies before the open-from mark, and does not stand in open_runs"
    return [_case(FindingKind.RUN_NOT_STANDING, run, detail, run.due_at_us) for run in step.unfound]


def _heads(rows: Sequence[TermRow]) -> dict[int, TermRow]:
    """The open term of each shard whose owner moves the marks: the one that begins first."""
    heads: dict[int, TermRow] = {}
    for row in rows:
        if row.state is TermState.OPEN and (row.shard not in heads or row.from_bucket < heads[row.shard].from_bucket):
            heads[row.shard] = row
    return heads


def _could_start(run: SeenRun, before_us: int) -> bool:
    return not run.is_leased and not run.is_resting and not run.gated and run.due_at_us < before_us


def _has_none(run: SeenRun, owners: Mapping[int, str], known: Known) -> bool:
    owner = owners.get(run.home_term)
    return owner is not None and known.is_well(owner) and known.waiting(owner) == 0
