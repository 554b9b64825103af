"""The ledger: accounts for nominal occurrences by what stands of them in the rows. Pure.

Each occurrence gets exactly one account: its run, its recorded skip, the pause or the exclusion that took it away, or
that it is still to come. One that has none of these is MISSING, and a run of the schedule that has no occurrence is
UNEXPECTED. What is read, and in which order, is the business of controlplane/job_accounts.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from uuid import UUID

from core.marks import Entry
from core.states import JobState, RunCause, RunState, SkipReason
from core.store.ledger import Chain, RunRow, SkipRow


class LedgerKind(IntEnum):
    """What became of an occurrence."""

    RUN = 1
    SKIPPED = 2
    PAUSED = 3
    EXCLUDED = 4
    NOT_YET_DUE = 5
    DUE = 6
    MISSING = 7
    UNEXPECTED = 8


SKIP_WORDS = {
    SkipReason.OVERLAP: "a run of the job was open, and its overlap policy skips",
    SkipReason.CATCH_UP: "found later than the grace, and the catch-up policy does not run it",
    SkipReason.BAD_SCHEDULE: "the stored schedule could not be read",
    SkipReason.PAUSED: "the job was paused",
    SkipReason.BUFFER_FULL: "a run of the job was open, and as many waited as its overlap policy lets wait",
    SkipReason.DELETED: "the job was deleted before it became due",
}
PAUSED_WORDS = "the job was paused"
STILL_PAUSED_WORDS = "the job is paused"


@dataclass(frozen=True, slots=True)
class Owned:
    """An occurrence, or what was taken away of one, and the version of the job that answers for it."""

    entry: Entry
    version: int
    state: JobState


@dataclass(frozen=True, slots=True)
class Account:
    """One occurrence, or consecutive ones that share their account. Instants in microseconds.

    `occurrences` is 0 where only a backfill made a run: by the schedules there was none. `shared` is equal for
    accounts that may be joined, None for those that stand alone.
    """

    from_us: int
    to_us: int
    kind: LedgerKind
    version: int
    occurrences: int = 1
    reason: str = ""
    due_us: int | None = None
    run_id: UUID | None = None
    run_state: RunState | None = None
    backfill_run_ids: tuple[UUID, ...] = ()
    shared: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """What was found in the rows for a range. `chains` holds the chains that have something due; None: not looked up.

    They must have been read before `runs` and `skips`: what a chain had passed by then is found in those.
    """

    runs: Sequence[RunRow] = ()
    skips: Sequence[SkipRow] = ()
    chains: Mapping[int, Chain] | None = None


def unaccounted(owned: Iterable[Owned], records: Records, now_us: int) -> set[int]:
    """The versions with occurrences that are due and have no record: where their chains stand must be known."""
    book = _Book(records, now_us)
    return {each.version for each in owned if book.is_open_question(each)}


def account(owned: Sequence[Owned], records: Records, now_us: int, job_error: str = "") -> list[Account]:
    """Account for the occurrences `owned`, ascending, and for runs of their range that belong to none of them."""
    book = _Book(records, now_us, job_error)
    accounts = [book.account(each) for each in owned]
    accounts += book.strangers()
    accounts.sort(key=lambda made: made.from_us)
    return joined(accounts)


def joined(accounts: Iterable[Account]) -> list[Account]:
    """The same accounts, consecutive ones that share theirs made one."""
    made: list[Account] = []
    for each in accounts:
        last = made[-1] if made else None
        if last is not None and each.shared is not None and last.shared == each.shared:
            made[-1] = replace(last, to_us=each.to_us, occurrences=last.occurrences + each.occurrences, due_us=None)
        else:
            made.append(each)
    return made


def counts(accounts: Iterable[Account]) -> list[tuple[LedgerKind, int]]:
    """How many of each kind, MISSING first, then UNEXPECTED, then the others in their order."""
    found: dict[LedgerKind, int] = defaultdict(int)
    for each in accounts:
        found[each.kind] += each.occurrences
    first = (LedgerKind.MISSING, LedgerKind.UNEXPECTED)
    order = [*first, *(kind for kind in LedgerKind if kind not in first)]
    return [(kind, found[kind]) for kind in order if kind in found]


class _Book:
    """The records of a range. A run is struck off where it accounts for an occurrence; what is left is a stranger."""

    def __init__(self, records: Records, now_us: int, job_error: str = "") -> None:
        self._now_us = now_us
        self._job_error = job_error
        self._chains = records.chains or {}
        self._skips = _SkipRanges(records.skips)
        self._runs = _by_instant(records.runs, RunCause.SCHEDULE)
        self._backfills = _by_instant(records.runs, RunCause.BACKFILL)

    def is_open_question(self, owned: Owned) -> bool:
        """Whether an occurrence is due and nothing accounts for it."""
        entry = owned.entry
        return (
            owned.state is JobState.ACTIVE
            and not entry.excluded_by
            and entry.due_us <= self._now_us
            and entry.nominal_us not in self._runs
            and self._skips.at(entry.nominal_us) is None
        )

    def account(self, owned: Owned) -> Account:
        """The one account of an occurrence."""
        entry, at_us = owned.entry, owned.entry.nominal_us
        backfills = tuple(run.run_id for run in self._backfills.pop(at_us, ()))
        base = Account(at_us, at_us, LedgerKind.MISSING, owned.version, due_us=entry.due_us, backfill_run_ids=backfills)
        if entry.excluded_by:
            return _shared(replace(base, kind=LedgerKind.EXCLUDED, reason=entry.excluded_by, due_us=None))
        # A paused version makes no runs: one that is there all the same stays a stranger.
        if owned.state is JobState.ACTIVE and self._runs.get(at_us):
            run = self._runs[at_us].pop(0)
            return replace(base, kind=LedgerKind.RUN, run_id=run.run_id, run_state=run.state, due_us=run.due_at_us)
        if (skip := self._skips.at(at_us)) is not None:
            kind = LedgerKind.PAUSED if skip.reason is SkipReason.PAUSED else LedgerKind.SKIPPED
            return _shared(replace(base, kind=kind, reason=SKIP_WORDS[skip.reason]), skip.from_us)
        if owned.state is not JobState.ACTIVE and entry.due_us <= self._now_us:
            return _shared(replace(base, kind=LedgerKind.PAUSED, reason=PAUSED_WORDS))
        if entry.due_us > self._now_us:
            words = "" if owned.state is JobState.ACTIVE else STILL_PAUSED_WORDS
            return replace(base, kind=LedgerKind.NOT_YET_DUE, reason=words)
        return self._overdue(base)

    def _overdue(self, base: Account) -> Account:
        chain = self._chains.get(base.version)
        if chain is None or not chain.has_before_it(base.from_us):
            gone = "stands past it" if chain is not None else "has nothing due any more"
            return replace(base, reason=f"neither a run nor a skip is recorded, and the job's chain {gone}")
        if self._job_error:
            return replace(base, kind=LedgerKind.DUE, reason=f"the job is set aside: {self._job_error}")
        return replace(base, kind=LedgerKind.DUE, reason="due, and waits for its dispatcher")

    def strangers(self) -> Iterator[Account]:
        """Runs that are no occurrence's: of the schedule (there must be none), or made by a backfill alone."""
        for run in (run for runs in self._runs.values() for run in runs):
            words = "a run of the schedule at an instant that is no occurrence of the job, or a second one"
            yield _of_run(run, LedgerKind.UNEXPECTED, words)
        for runs in self._backfills.values():
            words = "made by a backfill: the job had no occurrence of its own here"
            ids = tuple(run.run_id for run in runs)
            yield replace(_of_run(runs[-1], LedgerKind.RUN, words), backfill_run_ids=ids)


class _SkipRanges:
    """Finds the recorded range that holds an instant; the one that begins last, where several do."""

    def __init__(self, skips: Iterable[SkipRow]) -> None:
        self._rows = sorted(skips, key=lambda row: row.from_us)
        self._starts = [row.from_us for row in self._rows]
        # How far the ranges up to this one reach: where none reaches the instant, no further one need be looked at.
        self._reach = list(accumulate((row.to_us for row in self._rows), max))

    def at(self, instant_us: int) -> SkipRow | None:
        """The range that holds the instant."""
        index = bisect_right(self._starts, instant_us) - 1
        while index >= 0 and self._reach[index] >= instant_us:
            if self._rows[index].to_us >= instant_us:
                return self._rows[index]
            index -= 1
        return None


def _by_instant(runs: Iterable[RunRow], cause: RunCause) -> dict[int, list[RunRow]]:
    found: dict[int, list[RunRow]] = defaultdict(list)
    for run in runs:
        if run.cause is cause:
            found[run.scheduled_for_us].append(run)
    return found


def _shared(made: Account, *of: object) -> Account:
    """The account, to be joined with equal ones; not where a backfill's runs are shown beside it."""
    if made.backfill_run_ids:
        return made
    return replace(made, shared=(made.kind, made.version, made.reason, *of))


def _of_run(run: RunRow, kind: LedgerKind, words: str) -> Account:
    at_us = run.scheduled_for_us
    return Account(
        at_us,
        at_us,
        kind,
        run.job_version,
        occurrences=1 if kind is LedgerKind.UNEXPECTED else 0,
        reason=words,
        due_us=run.due_at_us,
        run_id=run.run_id,
        run_state=run.state,
    )
