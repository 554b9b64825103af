"""Reads what the ledger and the explanation of a job need, in the order that makes the answer true, piece by piece.

A page costs a bounded number of occurrences and rows, however long the range is: a piece is what one version says of
about a thousand occurrences, and a page is a few pieces. Called by controlplane/api/ledgers.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controlplane.explanation import Situation
from controlplane.ledger import Account, LedgerKind, Owned, Records, account, joined, unaccounted
from controlplane.version_spans import PastOneOff, VersionSpan, past_one_offs, span_at, spans_of, unknown_befores
from core.buckets import BucketScale
from core.civil import DAY_S, END_US
from core.clock import US_PER_S, Clock
from core.errors import Invalid
from core.marks import Entry
from core.occurrences import Occurrences, SearchLimit, occurrences_of
from core.states import JobState, RunCause
from core.store.calendar_lookup import load_contents
from core.store.database import Database
from core.store.jobs import JobRecord
from core.store.ledger import LedgerReads, LedgerVersion, RunRow, SkipRow

_PIECE_OCCURRENCES = 1_000
_PIECES = 10
# A chain that a catch-up paces stands a little ahead of now.
_CHAIN_AHEAD_US = DAY_S * US_PER_S
# How many versions are asked for the occurrence before or after an instant.
_NEIGHBOUR_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class AccountPage:
    """The accounts of a beginning of the range; `next_us` is where to go on, None at its end."""

    accounts: list[Account]
    next_us: int | None


@dataclass(frozen=True, slots=True)
class _Series:
    """The occurrences of a version: None without a schedule, with the fault where they cannot be computed."""

    occurrences: Occurrences | None
    fault: str = ""


@dataclass(slots=True)
class _History:
    """The versions that answer for [.., end_us), and their series as far as they were needed."""

    spans: list[VersionSpan]
    one_offs: dict[int, PastOneOff]
    end_us: int
    series: dict[int, _Series] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was found of [.., end_us)."""

    owned: list[Owned]
    accounts: list[Account]
    end_us: int


class JobAccounts:
    """Accounts for the occurrences of one job at a time."""

    def __init__(
        self, database: Database, clock: Clock, scale: BucketScale, piece_occurrences: int = _PIECE_OCCURRENCES
    ) -> None:
        self._piece_occurrences = piece_occurrences
        self._database = database
        self._reads = LedgerReads(database)
        self._clock = clock
        self._scale = scale

    async def page(self, job: JobRecord, from_us: int, to_us: int, size: int) -> AccountPage:
        """At most `size` accounts of the nominal instants from `from_us` on, before `to_us`."""
        history = await self._history(job, from_us, to_us)
        accounts: list[Account] = []
        at_us, now_us = from_us, self._clock.now_us()
        for _ in range(_PIECES):
            if at_us >= history.end_us or len(accounts) > size:
                break
            piece = await self._piece(job, history, at_us, history.end_us, now_us)
            accounts = joined([*accounts, *piece.accounts])
            at_us = piece.end_us
        kept = _cut(accounts, size)
        if kept < len(accounts):
            at_us = accounts[kept].from_us
        return AccountPage(accounts[:kept], at_us if at_us < to_us else None)

    async def situation(self, job: JobRecord, at_us: int) -> Situation:
        """What is to be said of one instant."""
        history = await self._history(job, at_us, at_us + 1)
        now_us = self._clock.now_us()
        piece = await self._piece(job, history, at_us, at_us + 1, now_us)
        span = span_at(history.spans, at_us)
        version = None if span is None else span.version
        owned = next(iter(piece.owned), None)
        series = await self._series_of(history, version)
        mismatches: tuple[str, ...] = ()
        if owned is None and series.occurrences is not None and version and version.state is not JobState.DELETED:
            mismatches = tuple(series.occurrences.mismatches(at_us))
        return Situation(
            at_us=at_us,
            now_us=now_us,
            created_us=job.created_us,
            version=version,
            superseded_us=None if span is None or span.until_us >= END_US else span.until_us,
            fault=series.fault,
            owner=_owner(history, owned),
            entry=None if owned is None else owned.entry,
            accounts=tuple(piece.accounts),
            mismatches=mismatches,
            previous_us=await self._previous(job, at_us),
            next_us=await self._next(job, at_us),
        )

    # --- pieces ----------------------------------------------------------------------------------------------------

    async def _history(self, job: JobRecord, from_us: int, to_us: int) -> _History:
        found = await self._reads.versions(job.job_id, from_us, to_us)
        befores: dict[int, LedgerVersion] = {}
        for number in unknown_befores(found.items):
            before = await self._reads.version(job.job_id, number - 1)
            if before is not None:
                befores[number] = before
        return _History(spans_of(found.items), past_one_offs(found.items, befores), found.end_us)

    async def _piece(self, job: JobRecord, history: _History, from_us: int, to_us: int, now_us: int) -> _Piece:
        """A beginning of [from_us, to_us)."""
        span = span_at(history.spans, from_us)
        end_us = to_us if span is None else min(to_us, span.until_us + 1)
        version = None if span is None else span.version
        series = await self._series_of(history, version)
        owned: dict[int, Owned] = {}
        if version is not None and version.state is not JobState.DELETED and series.occurrences is not None:
            entries, end_us = _entries(series.occurrences, from_us, end_us, self._piece_occurrences)
            owned = {entry.nominal_us: Owned(entry, version.version, version.state) for entry in entries}
        for each in history.one_offs.values():
            if from_us <= each.at_us < end_us and (each.at_us not in owned or owned[each.at_us].entry.excluded_by):
                owned.update(await self._past_one_off(history, each))
        ordered = sorted(owned.values(), key=lambda one: one.entry.nominal_us)
        return await self._accounted(job, ordered, from_us, end_us, now_us, version, series.fault)

    async def _accounted(
        self,
        job: JobRecord,
        owned: list[Owned],
        from_us: int,
        end_us: int,
        now_us: int,
        version: LedgerVersion | None,
        fault: str,
    ) -> _Piece:
        records, end_us = await self._records(job, from_us, end_us)
        if versions := unaccounted(owned, records, now_us):
            # Where the chains stand is read first: what they had passed by then is in the rows that are read after it.
            ahead = self._scale.bucket_of(now_us + _CHAIN_AHEAD_US)
            chains = await self._reads.chains(job.shard, job.job_id, sorted(versions), ahead)
            again, end_us = await self._records(job, from_us, end_us)
            records = replace(again, chains=chains)
        owned = [one for one in owned if one.entry.nominal_us < end_us]
        accounts: list[Account] = []
        if fault and version is not None:
            owned = _by_their_runs(records.runs, version)
            accounts.append(_unreadable(version, fault, from_us, end_us))
        return _Piece(owned, [*accounts, *account(owned, records, now_us, job.error)], end_us)

    async def _records(self, job: JobRecord, from_us: int, end_us: int) -> tuple[Records, int]:
        runs = await self._reads.runs(job.job_id, from_us, end_us)
        skips = await self._reads.skips(job.job_id, from_us, runs.end_us)
        end_us = min(runs.end_us, skips.end_us)
        kept_runs = [run for run in runs.items if run.scheduled_for_us < end_us]
        kept_skips: list[SkipRow] = [skip for skip in skips.items if skip.from_us < end_us]
        return Records(kept_runs, kept_skips), end_us

    async def _past_one_off(self, history: _History, one_off: PastOneOff) -> dict[int, Owned]:
        version = one_off.version
        series = await self._series_of(history, version)
        if series.occurrences is None:
            return {}
        entries, _ = _entries(series.occurrences, one_off.at_us, one_off.at_us + 1, 8)
        return {entry.nominal_us: Owned(entry, version.version, version.state) for entry in entries}

    async def _series_of(self, history: _History, version: LedgerVersion | None) -> _Series:
        if version is None:
            return _Series(None)
        if version.version not in history.series:
            history.series[version.version] = await self._read_series(version)
        return history.series[version.version]

    async def _read_series(self, version: LedgerVersion) -> _Series:
        if version.spec is None:
            return _Series(None, version.fault)
        try:
            contents = await load_contents(self._database, version.spec.pins.calendars.values())
            return _Series(occurrences_of(version.spec, contents, None))
        except Invalid as fault:
            return _Series(None, f"the occurrences of version {version.version} cannot be computed: {fault.rule}")

    # --- neighbours ------------------------------------------------------------------------------------------------

    async def _next(self, job: JobRecord, at_us: int) -> int | None:
        for _ in range(_NEIGHBOUR_VERSIONS):
            history = await self._history(job, at_us + 1, at_us + 2)
            span = span_at(history.spans, at_us + 1)
            if span is None:
                return None
            series = await self._series_of(history, span.version)
            if series.occurrences is not None and span.version and span.version.state is JobState.ACTIVE:
                try:
                    found = series.occurrences.until(span.until_us).next_after(at_us)
                except SearchLimit:
                    return None
                if found is not None:
                    return found.nominal_us
            at_us = span.until_us
            if at_us >= END_US - 1:
                return None
        return None

    async def _previous(self, job: JobRecord, at_us: int) -> int | None:
        for _ in range(_NEIGHBOUR_VERSIONS):
            history = await self._history(job, at_us - 1, at_us)
            span = span_at(history.spans, at_us - 1)
            if span is None or span.version is None:
                return None
            series = await self._series_of(history, span.version)
            if series.occurrences is not None and span.version.state is JobState.ACTIVE:
                try:
                    found = series.occurrences.prev_before(at_us)
                except SearchLimit:
                    return None
                if found is not None and found.nominal_us > span.after_us:
                    return found.nominal_us
            at_us = span.after_us + 1
        return None


def _entries(occurrences: Occurrences, from_us: int, to_us: int, limit: int) -> tuple[list[Entry], int]:
    """One entry an instant, and how far they go; what counts goes before what is taken away at the same instant."""
    try:
        found = occurrences.entries(from_us, to_us, limit)
    except SearchLimit as stop:
        return [], min(to_us, max(stop.at_us, from_us) + 1)
    kept: dict[int, Entry] = {}
    for entry in found:
        if entry.nominal_us not in kept or not entry.excluded_by:
            kept[entry.nominal_us] = entry
    return list(kept.values()), to_us if len(found) < limit else found[-1].nominal_us + 1


def _owner(history: _History, owned: Owned | None) -> LedgerVersion | None:
    if owned is None:
        return None
    versions = [span.version for span in history.spans if span.version is not None]
    versions += [each.version for each in history.one_offs.values()]
    return next((version for version in versions if version.version == owned.version), None)


def _by_their_runs(runs: Iterable[RunRow], version: LedgerVersion) -> list[Owned]:
    """Of a version that cannot be read nothing is known but what it ran."""
    instants = {run.scheduled_for_us: run for run in runs if run.cause is RunCause.SCHEDULE}
    return [
        Owned(Entry(at_us, run.due_at_us, "", (), (), ""), version.version, JobState.ACTIVE)
        for at_us, run in sorted(instants.items())
    ]


def _unreadable(version: LedgerVersion, fault: str, from_us: int, end_us: int) -> Account:
    words = f"what else there was cannot be known: {fault}"
    shared = (LedgerKind.MISSING, version.version, "unreadable")
    return Account(from_us, end_us - 1, LedgerKind.MISSING, version.version, 0, words, shared=shared)


def _cut(accounts: list[Account], size: int) -> int:
    """How many accounts a page takes: those of one instant stay together."""
    kept = min(size, len(accounts))
    while 0 < kept < len(accounts) and accounts[kept].from_us == accounts[kept - 1].from_us:
        kept += 1
    return kept
