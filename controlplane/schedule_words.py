"""A schedule in words: what its lines and intervals mean, and the rules that hold for them. Pure.

Shown with previews, so that whoever wrote `0 0 1-31 * 1` sees that it is every day. Called by
controlplane/schedule_preview.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from core.clock import US_PER_S
from core.cron import parse_line, uses_slots
from core.cron.expression import EveryLine
from core.firetimes import GapRule, RepeatRule
from core.intervals import Every
from core.schedule import Schedule
from core.wording import span_text, utc_text
from core.zones import zone_table

_GAPS: Final = {
    GapRule.END: "a wall time that does not exist counts as the first instant after the gap",
    GapRule.SHIFT: "a wall time that does not exist is put off by the length of the gap",
    GapRule.SKIP: "a wall time that does not exist is left out",
}
_REPEATS: Final = {
    RepeatRule.FIRST: "one that comes twice counts the first time",
    RepeatRule.SECOND: "one that comes twice counts the second time",
    RepeatRule.BOTH: "one that comes twice counts both times",
}
# Positions of day-of-month and day-of-week, by the number of fields.
_DAY_FIELDS: Final = {5: (2, 4), 6: (3, 5), 7: (3, 5)}
_ANY = re.compile(r"[*?]\Z")


def words_of(schedule: Schedule) -> list[str]:
    """One sentence for each part of the schedule, and for each rule that holds for it."""
    return [
        *(f"Once at {utc_text(at_us)}." for at_us in schedule.at_us),
        *(_interval(every, schedule) for every in schedule.every),
        *(_line(text, schedule) for text in schedule.cron),
        *_rules(schedule),
        *_bounds(schedule),
        *_exclusions(schedule),
    ]


def _interval(every: Every, schedule: Schedule) -> str:
    anchor_us = every.anchor_us if every.anchor_us is not None else schedule.anchor_us
    since = f", counted from {utc_text(anchor_us)}" if anchor_us is not None else ""
    if every.elapsed_us is not None:
        return f"Every {span_text(every.elapsed_us)} of elapsed time{since}; clocks that are set change nothing."
    count, unit = (every.days, "day") if every.days is not None else (every.months, "month")
    clamped = "; in a month that is too short, on its last day" if unit == "month" else ""
    period = unit if count == 1 else f"{count} {unit}s"
    return f"Every {period} at the same wall time in {schedule.zone}{since}{clamped}."


def _line(text: str, schedule: Schedule) -> str:
    line = parse_line(text, "schedule.cron", schedule.hash_key or None)
    if isinstance(line, EveryLine):
        since = f", counted from {utc_text(schedule.anchor_us)}" if schedule.anchor_us is not None else ""
        return f"`{text}`: every {span_text(line.every_s * US_PER_S)} of elapsed time{since}."
    remarks = [*_days(text)]
    if line.wildcard and _has_transitions(schedule.zone):
        remarks.append("its minute or hour begins with `*`: it follows elapsed time, and needs no gap or repeat rule")
    if uses_slots(text):
        remarks.append("`H` stands for slots that follow from the job's name")
    return f"`{text}` in {schedule.zone}{''.join(f'; {remark}' for remark in remarks)}."


def _days(text: str) -> Iterator[str]:
    """What the two day fields are to each other; nothing where one of them does not restrict anything."""
    words = text.split()
    positions = _DAY_FIELDS.get(len(words))
    if positions is None:
        return
    day_of_month, day_of_week = (words[position] for position in positions)
    if _ANY.match(day_of_month) or _ANY.match(day_of_week):
        return
    both = f"day-of-month `{day_of_month}` and day-of-week `{day_of_week}`"
    if day_of_month.startswith("*") or day_of_week.startswith("*"):
        yield f"{both} must both match, since one of them begins with `*`"
    else:
        yield f"either of {both} is enough"


def _rules(schedule: Schedule) -> Iterator[str]:
    """The gap and repeat rules, where the zone has transitions and something follows the clock on the wall."""
    follows_wall = any(every.elapsed_us is None for every in schedule.every)
    for text in schedule.cron:
        line = parse_line(text, "schedule.cron", schedule.hash_key or None)
        follows_wall = follows_wall or (not isinstance(line, EveryLine) and not line.wildcard)
    if follows_wall and _has_transitions(schedule.zone):
        yield f"When clocks in {schedule.zone} are set, {_GAPS[schedule.gap]}, and {_REPEATS[schedule.repeat]}."


def _bounds(schedule: Schedule) -> Iterator[str]:
    if schedule.start_us is not None:
        yield f"Nothing before {utc_text(schedule.start_us)}."
    if schedule.end_us is not None:
        yield f"Nothing at or after {utc_text(schedule.end_us)}."
    if schedule.max_runs:
        yield f"It ends after {schedule.max_runs} occurrences."
    if schedule.jitter_us:
        yield f"Each run is put off by an amount of at most {span_text(schedule.jitter_us)} that is fixed for the job."


def _exclusions(schedule: Schedule) -> Iterator[str]:
    for names, words in (
        (schedule.exclude_dates, "Not on {}."),
        (schedule.exclude_cron, "Not at instants of {}."),
        (schedule.exclude_calendars, "Not on days off of {}."),
        (schedule.windows, "Skipped or put off in the windows of {}."),
    ):
        if names:
            yield words.format(_listed(names))


def _listed(names: tuple[str, ...]) -> str:
    first = ", ".join(f"`{name}`" for name in names[:5])
    return first if len(names) <= 5 else f"{first} and {len(names) - 5} more"


def _has_transitions(name: str) -> bool:
    return len(set(zone_table(name).offsets_s)) > 1
