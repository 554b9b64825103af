"""Why a job does or does not run at an instant, in sentences for people. Pure.

Works on what controlplane/job_accounts.py found: the version in force, the occurrence at the instant, and the ledger's
account of it. Says nothing that the ledger would not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controlplane.ledger import Account, LedgerKind
from core.marks import Entry
from core.states import JobState
from core.store.ledger import LedgerVersion
from core.wording import local_text, utc_text
from core.zones import UTC_NAME, zone_table


@dataclass(frozen=True, slots=True)
class Situation:
    """An instant of a job. Instants in microseconds.

    `version` is that in force then, None before the job was registered at `created_us`; `superseded_us` is the last
    instant that it answers for, None for the present version. `owner` answers for `entry`: another version than that
    in force only for a one-off that was given when it was past. `accounts` are the ledger's of this very instant, the
    occurrence's own first.
    """

    at_us: int
    now_us: int
    created_us: int
    version: LedgerVersion | None
    superseded_us: int | None = None
    fault: str = ""
    owner: LedgerVersion | None = None
    entry: Entry | None = None
    accounts: tuple[Account, ...] = ()
    mismatches: tuple[str, ...] = ()
    previous_us: int | None = None
    next_us: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether an occurrence that counts lies at the instant, and the reasons, from the outcome to the details."""

    fires: bool
    reasons: tuple[str, ...]


def explain(situation: Situation) -> Explanation:
    """The explanation of one instant of one job."""
    entry, owner = situation.entry, situation.owner
    fires = entry is not None and not entry.excluded_by and owner is not None and owner.state is JobState.ACTIVE
    reasons = (
        *_outcome(situation),
        *_strangers(situation),
        *_version(situation),
        *(_details(situation, entry) if entry is not None else map(_sentence, situation.mismatches)),
        *_neighbours(situation),
    )
    return Explanation(fires, reasons)


# --- the outcome ---


def _outcome(situation: Situation) -> Iterator[str]:
    account = _own_account(situation)
    if situation.entry is None or account is None:
        yield _why_no_occurrence(situation)
    else:
        yield _of_account(account, situation)
        if account.backfill_run_ids:
            ids = ", ".join(map(str, account.backfill_run_ids))
            yield f"Backfills made runs for this instant: {ids}."


def _own_account(situation: Situation) -> Account | None:
    return situation.accounts[0] if situation.entry is not None and situation.accounts else None


def _why_no_occurrence(situation: Situation) -> str:
    version = situation.version
    if version is None:
        return f"It does not run then: the job was registered later, at {utc_text(situation.created_us)}."
    if version.state is JobState.DELETED:
        return f"It does not run then: the job was deleted at {utc_text(version.cutover_us)}."
    if situation.fault:
        return f"Nobody can say whether it runs then: {_lower(situation.fault)}."
    if version.spec is None or version.spec.schedule is None:
        return "It does not run by itself: the job has no schedule, and runs only when it is triggered."
    return "It does not run then: nothing in its schedule names this instant."


def _of_account(account: Account, situation: Situation) -> str:
    match account.kind:
        case LedgerKind.RUN:
            state = account.run_state.name.lower() if account.run_state is not None else "unknown"
            return f"It runs then: run {account.run_id} is {state}."
        case LedgerKind.SKIPPED:
            return f"It was to run then, and was skipped: {account.reason}."
        case LedgerKind.PAUSED:
            return f"It did not run then: {account.reason}."
        case LedgerKind.EXCLUDED:
            return f"It does not run then: {account.reason}."
        case LedgerKind.NOT_YET_DUE if account.reason:
            return f"It will not run then unless things change: {account.reason}."
        case LedgerKind.NOT_YET_DUE:
            return f"It will run then: due at {utc_text(account.due_us or situation.at_us)}, which is still to come."
        case LedgerKind.DUE:
            return f"It has not run yet: {account.reason}."
        case _:
            return f"It was to run then, and what became of it is not known: {account.reason}. This must not be."


def _strangers(situation: Situation) -> Iterator[str]:
    own = _own_account(situation)
    for account in situation.accounts:
        if account is own:
            continue
        state = account.run_state.name.lower() if account.run_state is not None else "unknown"
        yield f"Run {account.run_id}, which is {state}, is there all the same: {account.reason}."


# --- the details ---


def _version(situation: Situation) -> Iterator[str]:
    if situation.version is not None:
        yield _of_version(situation.version, "in force then", situation.superseded_us)
    if situation.owner is not None and situation.owner is not situation.version:
        yield _of_version(situation.owner, "which gave this one-off later, for the past", None)


def _of_version(version: LedgerVersion, role: str, superseded_us: int | None) -> str:
    until = f" until {utc_text(superseded_us)}" if superseded_us is not None else ""
    author = f" by {version.author}" if version.author else ""
    note = f" ({' '.join(version.note.split())})" if version.note else ""
    state = {JobState.ACTIVE: "", JobState.PAUSED: ", paused", JobState.DELETED: ", deleted"}[version.state]
    reaches_back = version.state is JobState.ACTIVE and version.from_us < version.cutover_us
    more = ", and answers for the pause before it" if reaches_back else ""
    made = f"made at {utc_text(version.cutover_us)}{author}{note}"
    return f"Version {version.version}{state}, {role}: {made}{until}{more}."


def _details(situation: Situation, entry: Entry) -> Iterator[str]:
    yield f"On the wall of {_zone(situation)} it is {entry.local}."
    yield from map(_sentence, entry.notes)
    if entry.due_us != entry.nominal_us and not entry.excluded_by:
        yield f"Its run may start at {utc_text(entry.due_us)}."


def _neighbours(situation: Situation) -> Iterator[str]:
    name = _zone(situation)
    if situation.previous_us is not None:
        yield f"The occurrence before it is at {_on_wall(situation.previous_us, name)}."
    if situation.next_us is not None:
        yield f"The next one is at {_on_wall(situation.next_us, name)}."
    elif situation.version is not None:
        yield "There is none after it."


def _zone(situation: Situation) -> str:
    version = situation.owner or situation.version
    schedule = version.spec.schedule if version is not None and version.spec is not None else None
    return schedule.zone if schedule is not None else UTC_NAME


def _on_wall(instant_us: int, zone_name: str) -> str:
    """The instant in UTC, and on the wall of a zone that is not UTC."""
    text = utc_text(instant_us)
    return text if zone_name == UTC_NAME else f"{text} ({local_text(instant_us, zone_table(zone_name))} in {zone_name})"


def _sentence(words: str) -> str:
    words = words.strip()
    return f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else ""


def _lower(words: str) -> str:
    return words.strip().rstrip(".")
