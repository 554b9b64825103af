"""Why a job does or does not run at an instant, in words."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from controlplane.explanation import Situation, explain
from controlplane.ledger import Account, LedgerKind
from core.jobspec import JobSpec
from core.marks import Entry, Mark
from core.schedule import Schedule
from core.states import JobState, RunState
from core.store.ledger import LedgerVersion

HOUR = 3_600_000_000
AT, NOW = 10 * HOUR, 20 * HOUR
SPEC = JobSpec("h", schedule=Schedule(cron=("0 * * * *",), zone="Europe/Berlin"))
FIRST = LedgerVersion(1, JobState.ACTIVE, HOUR, HOUR, "", "", SPEC)
ENTRY = Entry(AT, AT, "1970-01-01T11:00:00+01:00", (), (), "")
RUN = UUID(int=5)


def account(kind: LedgerKind, reason: str = "") -> Account:
    return Account(AT, AT, kind, 1, reason=reason, due_us=AT)


def of(kind: LedgerKind, reason: str = "", **changes: object) -> Situation:
    made = Situation(AT, NOW, HOUR, FIRST, owner=FIRST, entry=ENTRY, accounts=(account(kind, reason),))
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("situation", "fires", "first"),
    [
        (
            of(LedgerKind.RUN, accounts=(replace(account(LedgerKind.RUN), run_id=RUN, run_state=RunState.LEASED),)),
            True,
            f"It runs then: run {RUN} is leased.",
        ),
        (of(LedgerKind.SKIPPED, "too late"), True, "It was to run then, and was skipped: too late."),
        (
            of(LedgerKind.PAUSED, "the job was paused", owner=replace(FIRST, state=JobState.PAUSED)),
            False,
            "It did not run then: the job was paused.",
        ),
        (
            of(LedgerKind.EXCLUDED, "Christmas", entry=ENTRY._replace(excluded_by="Christmas")),
            False,
            "It does not run then: Christmas.",
        ),
        (
            of(LedgerKind.NOT_YET_DUE),
            True,
            "It will run then: due at 1970-01-01T10:00:00Z, which is still to come.",
        ),
        (
            of(LedgerKind.NOT_YET_DUE, "the job is paused", owner=replace(FIRST, state=JobState.PAUSED)),
            False,
            "It will not run then unless things change: the job is paused.",
        ),
        (of(LedgerKind.DUE, "waits"), True, "It has not run yet: waits."),
        (
            of(LedgerKind.MISSING, "nothing is recorded"),
            True,
            "It was to run then, and what became of it is not known: nothing is recorded. This must not be.",
        ),
        (
            Situation(AT, NOW, 15 * HOUR, None),
            False,
            "It does not run then: the job was registered later, at 1970-01-01T15:00:00Z.",
        ),
        (
            Situation(AT, NOW, HOUR, replace(FIRST, state=JobState.DELETED, cutover_us=2 * HOUR)),
            False,
            "It does not run then: the job was deleted at 1970-01-01T02:00:00Z.",
        ),
        (
            Situation(AT, NOW, HOUR, replace(FIRST, spec=JobSpec("h"))),
            False,
            "It does not run by itself: the job has no schedule, and runs only when it is triggered.",
        ),
        (Situation(AT, NOW, HOUR, FIRST), False, "It does not run then: nothing in its schedule names this instant."),
        (
            Situation(AT, NOW, HOUR, FIRST, fault="the calendar is gone"),
            False,
            "Nobody can say whether it runs then: the calendar is gone.",
        ),
    ],
)
def test_the_outcome_comes_first(situation: Situation, fires: bool, first: str) -> None:
    explanation = explain(situation)
    assert (explanation.fires, explanation.reasons[0]) == (fires, first)
    assert all(reason.endswith(".") and reason[0].isupper() for reason in explanation.reasons)


def test_the_version_says_who_made_it_when_and_why() -> None:
    version = replace(FIRST, version=3, state=JobState.PAUSED, author="ada", note="too\nloud")
    reasons = explain(of(LedgerKind.PAUSED, "x", version=version, owner=version, superseded_us=12 * HOUR)).reasons
    assert (
        "Version 3, paused, in force then: made at 1970-01-01T01:00:00Z by ada (too loud) until 1970-01-01T12:00:00Z."
        in reasons
    )


def test_a_version_that_catches_up_says_so() -> None:
    version = replace(FIRST, from_us=0)
    reasons = explain(of(LedgerKind.RUN, version=version, owner=version)).reasons
    assert any("answers for the pause before it" in reason for reason in reasons)


def test_what_shapes_it_follows() -> None:
    entry = ENTRY._replace(due_us=AT + HOUR, marks=(Mark.DEFERRED,), notes=("put off by nights",))
    reasons = explain(of(LedgerKind.DUE, "waits", entry=entry)).reasons
    assert "On the wall of Europe/Berlin it is 1970-01-01T11:00:00+01:00." in reasons
    assert "Put off by nights." in reasons
    assert "Its run may start at 1970-01-01T11:00:00Z." in reasons


def test_neighbours_are_shown_in_the_zone() -> None:
    reasons = explain(Situation(AT, NOW, HOUR, FIRST, mismatches=("line 1: no",), previous_us=9 * HOUR)).reasons
    assert reasons[-3:] == (
        "Line 1: no.",
        "The occurrence before it is at 1970-01-01T09:00:00Z (1970-01-01T10:00:00+01:00 in Europe/Berlin).",
        "There is none after it.",
    )


def test_a_run_that_must_not_be_is_told() -> None:
    stranger = replace(account(LedgerKind.UNEXPECTED, "no occurrence"), run_id=RUN, run_state=RunState.DEAD)
    for situation in (
        Situation(AT, NOW, HOUR, FIRST, accounts=(stranger,)),
        of(LedgerKind.EXCLUDED, accounts=(account(LedgerKind.EXCLUDED, "x"), stranger)),
    ):
        assert f"Run {RUN}, which is dead, is there all the same: no occurrence." in explain(situation).reasons


def test_a_one_off_for_the_past_names_the_version_that_gave_it() -> None:
    later = replace(FIRST, version=4, cutover_us=18 * HOUR)
    reasons = explain(of(LedgerKind.RUN, owner=later)).reasons
    assert any(reason.startswith("Version 4, which gave this one-off later") for reason in reasons)


def test_backfills_are_named() -> None:
    made = replace(account(LedgerKind.SKIPPED, "x"), backfill_run_ids=(RUN,))
    assert f"Backfills made runs for this instant: {RUN}." in explain(of(LedgerKind.SKIPPED, accounts=(made,))).reasons
