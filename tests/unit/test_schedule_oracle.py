"""The engine against two oracles: a naive walk over the real clock, and cronsim where it takes the syntax."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import Invalid
from core.occurrences import Occurrence, Occurrences, SearchLimit
from core.schedule import Schedule
from core.zones import ZoneTable, zone, zone_table
from tests.support.cron_strategies import ZONES, random_line
from tests.support.naive_cron import NaiveLine, NaiveWalk
from tests.support.naive_schedule import inside, put_off
from tests.support.schedule_strategies import MINUTE_ZONES, Shaped, random_shaped

HOUR_S = 3600
DAY_S = 24 * HOUR_S
US_PER_S = 1_000_000
YEAR_2100_S = 4_102_444_800
GAPS, REPEATS = ("end", "shift", "skip"), ("first", "second", "both")


def changes(table: ZoneTable) -> list[tuple[int, int]]:
    """The wall times just before and after each change of the zone's clock."""
    pairs = zip(table.starts_s[1:-1], pairwise(table.offsets_s), strict=True)
    return [(start + before, start + after) for start, (before, after) in pairs]


def changes_by_whole_hours(table: ZoneTable) -> bool:
    """Whether every change is from a whole hour on the wall to another; after others cronsim loses its way or loops."""
    return all(before % HOUR_S == after % HOUR_S == 0 for before, after in changes(table))


def lacks_a_midnight(table: ZoneTable) -> bool:
    """Whether the clock ever jumped over 00:00; there cronsim makes up an occurrence for wildcard lines as well."""
    return any((before - 1) // DAY_S < (after - 1) // DAY_S for before, after in changes(table))


DATE_LINE_ZONES = {"Pacific/Apia", "Pacific/Enderbury", "Pacific/Fakaofo", "Pacific/Kwajalein"}  # skipped a whole day
SECOND_ZONES = [name for name in ZONES if name not in DATE_LINE_ZONES]
CRONSIM_ZONES = [name for name in ZONES if changes_by_whole_hours(zone_table(name))]
CRONSIM_FIXED_ZONES = {name for name in CRONSIM_ZONES if lacks_a_midnight(zone_table(name))}

slow_example = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


def near_a_change(draw: Random, name: str, *, within_s: int) -> int:
    """A whole minute near a change of the zone's clock in the years 1970 to 2100, or anywhere where there is none."""
    starts = [start for start in zone_table(name).starts_s[1:-1] if 4 * DAY_S < start < YEAR_2100_S]
    around = draw.choice(starts) if starts else draw.randrange(4 * DAY_S, YEAR_2100_S)
    return (around + draw.randint(-within_s, within_s)) // 60 * 60


def build(line: str, name: str, gap: str, repeat: str, exclude: tuple[str, ...] = ()) -> Schedule | None:
    """The schedule, or None where the drawn days never exist."""
    try:
        return Schedule(cron=(line,), zone=name, gap=gap, repeat=repeat, exclude_cron=exclude)  # type: ignore[arg-type]
    except Invalid as refusal:
        if "never fires" in refusal.rule:
            return None
        raise


def compare(draw: Random, name: str, *, seconds: bool = False) -> int:
    """Compare one drawn line over one stretch of time; returns how many occurrences agreed."""
    line, naive = random_line(draw, seconds=seconds)
    gap, repeat = draw.choice(GAPS), draw.choice(REPEATS)
    excluded = excluded_lines(draw, line, naive) if seconds else []
    schedule = build(line, name, gap, repeat, tuple(text for text, _ in excluded))
    if schedule is None:
        return 0
    start = near_a_change(draw, name, within_s=2 * HOUR_S if seconds else 24 * HOUR_S)
    length, step_s = (2 * HOUR_S, 1) if seconds else (48 * HOUR_S, 60)
    lead_s = 90 * 60 if seconds else 25 * HOUR_S
    walk = NaiveWalk(zone(name), start, start + length, step_s=step_s, lead_s=lead_s)
    left = set(walk.occurrences(naive, gap=gap, repeat=repeat))
    for _, each in excluded:
        left.difference_update(walk.occurrences(each, gap=gap, repeat=repeat))
    walked = sorted(left)
    what = (line, [text for text, _ in excluded], name, gap, repeat, start)
    found = schedule.between(start * US_PER_S, (start + length) * US_PER_S, 100_000)
    assert [at // US_PER_S for at in found] == walked, what
    ask_at_random(draw, schedule, list(found), start * US_PER_S, (start + length) * US_PER_S, what)
    return len(walked)


def excluded_lines(draw: Random, line: str, naive: NaiveLine) -> list[tuple[str, NaiveLine]]:
    """A few lines that exclude, some of them with times of the line itself; those of five fields name whole minutes."""
    excluded = []
    for _ in range(draw.choice((0, 0, 1, 2))):
        by_second = draw.random() < 0.5
        text, each = random_line(draw, seconds=by_second)
        if draw.random() < 0.5:
            fields, kept = text.split(), line.split()
            fields[-5:-3] = kept[1:3]
            text = " ".join(fields)
            each = replace(each, minutes=naive.minutes, hours=naive.hours, wildcard=naive.wildcard)
        if not by_second:
            each = replace(each, seconds=frozenset(range(60)))
        if build(text, "UTC", "end", "first") is not None:
            excluded.append((text, each))
    return excluded


def ask_at_random(draw: Random, schedule: Schedule, found: list[int], from_us: int, to_us: int, what: object) -> None:
    """Next, previous and match agree with the range, at any microsecond of it."""
    instants = [draw.randrange(from_us, to_us) for _ in range(4)]
    instants += [at + nudge for at in found[:1] + found[-1:] for nudge in (-1, 0, 1)]
    for instant in instants:
        later, earlier = bisect_right(found, instant), bisect_left(found, instant)
        if later < len(found):
            assert schedule.next_after(instant) == found[later], (what, instant)
        if earlier > 0:
            assert schedule.prev_before(instant) == found[earlier - 1], (what, instant)
        if from_us <= instant < to_us:
            assert schedule.matches(instant) == (instant in found), (what, instant)


@given(st.integers(0, 2**32), st.sampled_from(MINUTE_ZONES))
@settings(slow_example, max_examples=250)
def test_agrees_with_a_walk_over_the_real_minutes(seed: int, name: str) -> None:
    compare(Random(seed), name)


@given(st.integers(0, 2**32), st.sampled_from(SECOND_ZONES))
@settings(slow_example, max_examples=40)
def test_agrees_with_a_walk_over_the_real_seconds(seed: int, name: str) -> None:
    compare(Random(seed), name, seconds=True)


def compare_shaped(draw: Random, name: str) -> int:
    """Compare one drawn schedule with exclusions, calendars and windows; returns how many occurrences agreed."""
    start = near_a_change(draw, name, within_s=24 * HOUR_S)
    length = 36 * HOUR_S
    shaped = random_shaped(draw, name, start, start + length)
    if shaped is None:
        return 0
    walked = walk_naively(shaped, start, start + length)
    if walked is None:
        return 0
    what, occurrences = (shaped.text, start), shaped.occurrences
    found = walk_through(occurrences, start * US_PER_S, (start + length) * US_PER_S)
    assert found == walked, what
    counted = [
        (entry.nominal_us, entry.due_us)
        for entry in occurrences.entries(start * US_PER_S, (start + length) * US_PER_S, 100_000)
        if not entry.excluded_by
    ]
    assert counted == walked, what
    assert all(late.due_us >= early.due_us for early, late in pairwise(found)), what
    ask_shaped_at_random(draw, occurrences, found, start * US_PER_S, (start + length) * US_PER_S, what)
    return len(walked)


def walk_naively(shaped: Shaped, from_s: int, to_s: int) -> list[tuple[int, int]] | None:
    """(nominal, due) in microseconds; None where a deferral goes further than the oracle looked."""
    walked = []
    end_s = to_s + 10**6 if shaped.end_s is None else shaped.end_s
    for at in shaped.naive.nominal(NaiveWalk(shaped.naive.zone, from_s, to_s)):
        due = put_off(at, shaped.defer)
        if due >= shaped.sure_s:
            return None
        if at >= end_s or due >= end_s or inside(at, shaped.skip) or (due != at and inside(due, shaped.skip)):
            continue
        due_us = due * US_PER_S + shaped.offset_us
        walked.append((at * US_PER_S, due_us if shaped.end_s is None else min(due_us, end_s * US_PER_S - 1)))
    return walked


def walk_through(occurrences: Occurrences, from_us: int, to_us: int) -> list[Occurrence]:
    """Every occurrence in [from_us, to_us), each asked for after the last; searches that give up are taken up again."""
    found: list[Occurrence] = []
    at_us = from_us - 1
    while at_us < to_us:
        try:
            following = occurrences.next_after(at_us)
        except SearchLimit as limit:
            at_us = max(limit.at_us, at_us + 1)  # were it not later, the occurrences after it would be missed
            continue
        if following is None or following.nominal_us >= to_us:
            break
        found.append(following)
        at_us = following.nominal_us
    return found


def ask_shaped_at_random(
    draw: Random, occurrences: Occurrences, found: list[Occurrence], from_us: int, to_us: int, what: object
) -> None:
    """Previous, match and the questions by due time agree with the walk."""
    nominal, due = [each.nominal_us for each in found], [each.due_us for each in found]
    instants = [draw.randrange(from_us, to_us) for _ in range(4)]
    instants += [at + nudge for at in nominal[:1] + due[-1:] for nudge in (-1, 0, 1)]
    for instant in instants:
        earlier, due_earlier = bisect_left(nominal, instant), bisect_left(due, instant)
        assert (occurrences.at(instant) is not None) == (instant in nominal) or not from_us <= instant < to_us, what
        with suppress(SearchLimit):
            if earlier > 0 and instant < to_us:
                assert occurrences.prev_before(instant) == found[earlier - 1], (what, instant)
            if 0 < due_earlier < len(found):
                assert occurrences.last_due_before(instant) == found[due_earlier - 1], (what, instant)
                assert occurrences.first_due_from(instant) == found[due_earlier], (what, instant)


@given(st.integers(0, 2**32), st.sampled_from(MINUTE_ZONES))
@settings(slow_example, max_examples=100)
def test_unions_with_exclusions_and_calendars_agree_with_a_walk_over_the_real_minutes(seed: int, name: str) -> None:
    compare_shaped(Random(seed), name)


@given(st.integers(0, 2**32), st.sampled_from(CRONSIM_ZONES))
@settings(slow_example, max_examples=400)
def test_agrees_with_cronsim_under_the_default_rules(seed: int, name: str) -> None:
    compare_with_cronsim(Random(seed), name, answers=20)


def compare_with_cronsim(draw: Random, name: str, *, answers: int) -> int:
    """Follow both from one instant; cronsim's rules are Debian's, which are our defaults."""
    line, naive = random_line(draw)
    if naive.wildcard and name in CRONSIM_FIXED_ZONES:
        return 0
    start = near_a_change(draw, name, within_s=24 * HOUR_S)
    schedule = build(line, name, "end", "first")
    try:
        reference = CronSim(line, datetime.fromtimestamp(start, UTC).astimezone(zone(name)))
    except CronSimError:
        return 0  # wrapped ranges and the like, which it refuses
    if schedule is None or re.search(r"(^|,)[0-6]/", line.split()[4]) or re.search(r"\b(\d+)-\1/", line):
        # cronsim counts the weekdays of `5/1` on to 7, Sunday; for us, as for croniter, the week ends on Saturday.
        # And it reads `4-4/2` as `4/2`.
        return 0
    at, agreed = start * US_PER_S, 0
    for wall in reference:
        instant = int(wall.astimezone(UTC).timestamp()) * US_PER_S
        if instant <= at:
            continue  # started inside the second pass of a repeated hour, it first answers with the past
        at = schedule.next_after(at) or 0
        assert at == instant, (line, name, start)
        agreed += 1
        if agreed == answers or at > YEAR_2100_S * US_PER_S:
            break
    return agreed


@pytest.mark.long
def test_two_million_occurrences_agree_with_the_oracles() -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")  # shown by pytest on failure
    draw = Random(seed)
    agreed = 0
    while agreed < 2_000_000:
        for name in ZONES:
            if name in MINUTE_ZONES:
                agreed += compare(draw, name)
                agreed += compare_shaped(draw, name)
            if name in CRONSIM_ZONES:
                agreed += compare_with_cronsim(draw, name, answers=50)
            if name in SECOND_ZONES:
                agreed += compare(draw, name, seconds=True)
