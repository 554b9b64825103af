"""Chains as a whole: over random downtimes, jitter, deferrals, stops and policies, every occurrence has its account.

A chain is played through the planner with a clock of the test's own, from its first row to its last, in arbitrary units
of time. What the planner does not decide (credits, overlap, the fence) is not here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from core.buckets import BucketScale
from core.calendars import Window, WindowAction, Windows
from core.clock import US_PER_S
from core.jobspec import JobSpec
from core.occurrences import Occurrence, Occurrences
from core.policy import CatchUp, CatchUpMode, CatchUpOrder
from core.schedule import Schedule
from core.states import JobState, SkipReason
from core.store.discovery import DueRow
from dispatcher.jobs import JobVersion
from dispatcher.planner import Decision, decide
from tests.support.dispatcher_parts import due_row, job_version
from tests.support.instants import us
from tests.support.listed_occurrences import Listed

SCALE = BucketScale(100)
END = 400


@dataclass(frozen=True)
class Story:
    """What happens to one version of a job: when nobody looks at it, and when it is stopped."""

    listed: Listed
    policy: CatchUp
    downtimes: tuple[tuple[int, int], ...]
    stop: tuple[int, JobState] | None = None

    @property
    def job(self) -> JobVersion:
        changes: dict[str, Any] = {"occurrences": cast("Occurrences", self.listed)}
        if self.stop is not None:
            at_us, state = self.stop
            changes["occurrences"] = cast("Occurrences", self.listed.until(at_us))
            changes |= {"superseded_us": at_us, "stopped_us": at_us, "stopped_as": state, "current_version": 2}
        return job_version(JobSpec(handler="work", catch_up=self.policy), **changes)

    @property
    def owned(self) -> list[Occurrence]:
        """The occurrences that must have their account."""
        return [each for each in self.listed.all if self.stop is None or each.nominal_us <= self.stop[0]]

    def up_at(self, now: int) -> int:
        """The first instant from `now` on at which somebody looks."""
        for begin, end in self.downtimes:
            now = end if begin <= now < end else now
        return now


@dataclass
class Played:
    """What came of it: (when, which) of each run, and each skipped range with its reason and when."""

    runs: list[tuple[int, Occurrence, DueRow]] = field(default_factory=list)
    skips: list[tuple[int, int, int, SkipReason]] = field(default_factory=list)
    decisions: list[tuple[int, DueRow, Decision]] = field(default_factory=list)

    def skipped(self, occurrence: Occurrence) -> list[tuple[int, SkipReason]]:
        return [(at, why) for at, low, high, why in self.skips if low <= occurrence.nominal_us <= high]


def play(story: Story, pauses: list[int], occurrences: Occurrences | None = None) -> Played:
    """Decide until the chain has ended; between decisions go by `pauses`, over and over.

    `occurrences` are the real ones that the story only lists.
    """
    played, job, now = Played(), story.job, 0
    job = job if occurrences is None else replace(job, occurrences=occurrences)
    owned = story.owned
    row: DueRow | None = None
    if owned:
        row = due_row(owned[0].due_us, scheduled_for_us=owned[0].nominal_us, bucket=0)
    for turn in range(10 * len(owned) + 1000):
        if row is None:
            return played
        now = story.up_at(max(now + pauses[turn % len(pauses)], row.due_at_us))
        decision = decide(row, job, now, SCALE)
        played.decisions.append((now, row, decision))
        if decision.run is not None:
            played.runs.append((now, decision.run, row))
        if decision.skipped is not None:
            skipped = decision.skipped
            played.skips.append((now, skipped.from_us, skipped.to_us, skipped.reason))
        row = _moved(row, decision)
    raise AssertionError(f"the chain does not end: {played.decisions[-5:]}")


def _moved(row: DueRow, decision: Decision) -> DueRow | None:
    at = decision.next
    if at is None:
        return None
    moved = replace(
        row,
        bucket=at.bucket,
        due_at_us=at.due_at_us,
        scheduled_for_us=at.scheduled_for_us,
        back_us=at.back_us,
        back_to_us=at.back_to_us,
    )
    assert moved.due_at_us > row.due_at_us, "a row never lands on the key that it leaves"
    return moved


policies = st.builds(
    CatchUp,
    mode=st.sampled_from(CatchUpMode),
    grace_us=st.integers(0, 40),
    max_runs=st.integers(1, 6),
    window_us=st.sampled_from([0, 20, 100, 10_000]),
    order=st.sampled_from(CatchUpOrder),
)


@st.composite
def listings(draw: st.DrawFn) -> Listed:
    """Occurrences with one jitter, some of them put off to the end of windows; among them some that are taken away."""
    nominals = draw(st.lists(st.integers(0, END), min_size=1, max_size=40, unique=True).map(sorted))
    jitter = draw(st.integers(0, 15))
    windows = draw(st.lists(st.tuples(st.integers(0, END), st.integers(1, 60)), max_size=3))
    dues: list[int] = []
    for nominal in nominals:
        due = nominal
        for begin, length in sorted(windows):
            due = begin + length if begin <= due < begin + length else due
        dues.append(max(due + jitter, dues[-1] if dues else 0))
    holes = draw(st.sets(st.integers(0, END), max_size=30))
    patience = draw(st.sampled_from([1, 5, 10**6]))
    return Listed(map(Occurrence, nominals, dues), holes, patience)


@st.composite
def downtimes(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    edges = draw(st.lists(st.integers(0, END + 100), max_size=6, unique=True).map(sorted))
    return tuple(zip(edges[::2], edges[1::2], strict=False))


stops = st.none() | st.tuples(st.integers(0, END), st.sampled_from([JobState.PAUSED, JobState.DELETED]))
stories = st.builds(Story, listings(), policies, downtimes(), stops)
pauses = st.lists(st.integers(0, 12), min_size=1, max_size=5)


@settings(max_examples=400, deadline=None)
@given(story=stories, pauses=pauses)
def test_every_occurrence_has_one_run_or_lies_in_one_skipped_range_and_none_runs_early(
    story: Story, pauses: list[int]
) -> None:
    played = play(story, pauses)
    ran = Counter(run.nominal_us for _, run, _ in played.runs)
    for occurrence in story.owned:
        assert ran[occurrence.nominal_us] + len(played.skipped(occurrence)) == 1, occurrence
    assert set(ran) <= {each.nominal_us for each in story.owned}
    for now, run, _ in played.runs:
        assert run.due_us <= now, "early"
        assert run in story.owned, "with a due time of its own"


@settings(max_examples=300, deadline=None)
@given(story=stories, pauses=pauses)
def test_what_is_skipped_has_a_reason_that_holds(story: Story, pauses: list[int]) -> None:
    played = play(story, pauses)
    policy = story.policy
    for occurrence in story.owned:
        for now, reason in played.skipped(occurrence):
            late = now - occurrence.due_us
            if reason is SkipReason.CATCH_UP:
                assert late > policy.grace_us
            else:
                assert story.stop is not None
                assert (occurrence.due_us > story.stop[0], reason.name) == (True, story.stop[1].name)
    for now, run, _ in played.runs:
        late = now - run.due_us
        assert late <= policy.grace_us or policy.mode is not CatchUpMode.SKIP
        assert late <= max(policy.grace_us, policy.window_us)
        assert story.stop is None or run.due_us <= story.stop[0]


def test_a_search_that_was_given_up_does_not_lead_to_what_only_became_due_after_a_pause() -> None:
    listed = Listed([Occurrence(100, 100), Occurrence(119, 122)], taken_away={120, 121}, patience=1)
    latest = CatchUp(CatchUpMode.LATEST, grace_us=0)
    played = play(Story(listed, latest, downtimes=((0, 122),), stop=(121, JobState.PAUSED)), [0])
    assert [run.nominal_us for _, run, _ in played.runs] == [100]
    assert [(low, why) for _, low, _, why in played.skips] == [(119, SkipReason.PAUSED)]


def test_a_search_that_was_given_up_does_not_lead_to_what_is_within_the_grace() -> None:
    listed = Listed([Occurrence(100, 100), Occurrence(119, 160)], taken_away={120, 121}, patience=1)
    played = play(Story(listed, CatchUp(CatchUpMode.SKIP, grace_us=20), downtimes=((0, 165),)), [0])
    assert [run.nominal_us for _, run, _ in played.runs] == [119]
    assert [(low, high, why) for _, low, high, why in played.skips] == [(100, 100, SkipReason.CATCH_UP)]


@settings(max_examples=300, deadline=None)
@given(story=stories, pauses=pauses)
def test_runs_are_in_the_order_that_is_promised(story: Story, pauses: list[int]) -> None:
    played = play(story, pauses)
    forward = [run.nominal_us for _, run, row in played.runs if run.nominal_us != row.back_us]
    newest_first = story.policy.mode is CatchUpMode.ALL and story.policy.order is CatchUpOrder.NEWEST_FIRST
    if not newest_first:
        assert forward == sorted(run.nominal_us for _, run, _ in played.runs)
        return
    owned = {each.nominal_us: each for each in story.owned}
    for now, run, row in played.runs:
        if run.nominal_us == row.back_us:
            head = owned.get(row.scheduled_for_us)
            assert head is None or head.due_us > now, "what is due at the head goes first"
    backward = [run.nominal_us for _, run, row in played.runs if run.nominal_us == row.back_us]
    for earlier, later in pairwise(backward):
        between = [each for each in forward if earlier < each]
        assert later < earlier or between, "backwards, until a further downtime begins another catch-up"


@settings(max_examples=300, deadline=None)
@given(listed=listings(), policy=policies, begin=st.integers(0, END), length=st.integers(0, END))
def test_one_downtime_costs_one_range_and_runs_the_newest_that_the_cap_and_the_window_allow(
    listed: Listed, policy: CatchUp, begin: int, length: int
) -> None:
    """With no time between decisions: then it is known beforehand what is within the grace.

    In larger units, so that it does not matter that rows of one due time stand a microsecond apart.
    """
    unit = 1000
    plain = Listed(Occurrence(each.nominal_us * unit, each.due_us * unit) for each in listed.all)
    policy = replace(policy, grace_us=(policy.grace_us + 1) * unit, window_us=policy.window_us * unit)
    begin, end = begin * unit, (begin + length) * unit
    played = play(Story(plain, policy, ((begin, end),) if length else ()), [0])
    missed = [each for each in plain.all if begin <= each.due_us < end - policy.grace_us]
    superseded = any(end - policy.grace_us <= each.due_us <= end for each in plain.all)
    wanted = {
        CatchUpMode.SKIP: 0,
        CatchUpMode.LATEST: 0 if superseded else 1,
        CatchUpMode.ALL: policy.max_runs,
    }[policy.mode]
    kept = [each for each in missed[len(missed) - min(wanted, len(missed)) :] if each.due_us >= end - policy.window_us]
    on_time = [each for each in plain.all if each not in missed]
    assert sorted(run for _, run, _ in played.runs) == sorted([*kept, *on_time])
    assert len(played.skips) == (len(kept) < len(missed)), "one range at most"


@settings(max_examples=300, deadline=None)
@given(story=stories, pauses=pauses)
def test_the_number_of_ranges_grows_with_the_downtimes_and_not_with_what_was_missed(
    story: Story, pauses: list[int]
) -> None:
    """A decision skips at most one range; none is empty, and without hidden candidates ranges of one reason adjoin
    only where a run, or another downtime, lies between them."""
    plain = replace(story, listed=Listed(story.listed.all))
    played = play(plain, [0])
    assert len(played.skips) <= 3 * (len(plain.downtimes) + 1)
    for _, low, high, _ in played.skips:
        assert any(low <= each.nominal_us <= high for each in plain.owned)


# --- over real schedules: a change of the clock, jitter, windows that put off, exclusions that searches give up on ---

HOUR_US = 3600 * US_PER_S
FROM_US, TO_US = us("2026-03-27T00:00:00Z"), us("2026-03-31T00:00:00Z")
BERLIN = "Europe/Berlin"
NIGHTS = Windows(WindowAction.DEFER, (Window(cron="0 1 * * *", zone=BERLIN, duration_us=4 * HOUR_US),))
NOON = Windows(WindowAction.SKIP, (Window(cron="0 11 * * *", zone=BERLIN, duration_us=2 * HOUR_US),))
REAL = [
    Occurrences(Schedule(cron=("30 * * * *",), zone=BERLIN, end_us=TO_US)),
    Occurrences(Schedule(cron=("30 2 * * *", "0 * * * *"), zone=BERLIN, end_us=TO_US), offset_us=HOUR_US // 2),
    Occurrences(
        Schedule(cron=("*/20 * * * *",), zone=BERLIN, end_us=TO_US, windows=("nights", "noon")),
        {"nights": NIGHTS, "noon": NOON},
        offset_us=90 * US_PER_S,
    ),
    Occurrences(Schedule(cron=("* * * * * *",), exclude_cron=("* 1-59 * * * *", "1-59 * * * * *"), end_us=TO_US)),
]


@settings(max_examples=120, deadline=None)
@given(
    occurrences=st.sampled_from(REAL),
    mode=st.sampled_from(CatchUpMode),
    order=st.sampled_from(CatchUpOrder),
    cap=st.integers(1, 30),
    hours=st.lists(st.integers(0, 96), max_size=4, unique=True).map(sorted),
    stop_hour=st.none() | st.integers(0, 96),
)
def test_real_schedules_have_one_account_for_each_occurrence_too(
    occurrences: Occurrences,
    mode: CatchUpMode,
    order: CatchUpOrder,
    cap: int,
    hours: list[int],
    stop_hour: int | None,
) -> None:
    from_now = [FROM_US + hour * HOUR_US + 17 * US_PER_S for hour in hours]
    downtimes = tuple(zip(from_now[::2], from_now[1::2], strict=False))
    owned = occurrences.until(None if stop_hour is None else FROM_US + stop_hour * HOUR_US)
    every = owned.between(FROM_US, TO_US, 1_000)
    stop = None if stop_hour is None else (FROM_US + stop_hour * HOUR_US, JobState.PAUSED)
    policy = CatchUp(mode, 60 * US_PER_S, cap, order=order)
    story = Story(Listed(every), policy, downtimes, stop)
    played = play(story, [US_PER_S // 10], owned)
    ran = Counter(run for _, run, _ in played.runs)
    for occurrence in every:
        assert ran[occurrence] + len(played.skipped(occurrence)) == 1
    assert set(ran) <= set(every)
    assert all(run.due_us <= now for now, run, _ in played.runs)
    assert len(played.skips) <= 3 * (len(downtimes) + 1)
