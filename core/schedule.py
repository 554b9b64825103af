"""The Schedule value: when a job runs. Immutable, checked when built, the same on every node and after every restart.

A schedule is the union of one-off instants, intervals and cron lines in one zone, less what it excludes, bounded by
`start_us` (inclusive) and `end_us` (exclusive). Every question is answered from the value alone: no clock here. What
only a job knows (calendars, windows, jitter, the number of runs) is core/occurrences.py's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

from core.civil import END_US
from core.cron import uses_slots
from core.errors import Invalid
from core.exclusions import Remover, exclusions_of
from core.firetimes import GapRule, Interval, RepeatRule, Source
from core.intervals import Every
from core.schedule_checks import check_bounds, check_types
from core.search import Search, SearchLimit
from core.sources import sources_of
from core.zones import UTC_NAME, zone

__all__ = ["Every", "Schedule"]

_OF_THE_JOB = frozenset({"exclude_calendars", "windows", "max_runs", "jitter_us"})  # no question here looks at them


@dataclass(frozen=True)
class Schedule:
    """When a job runs. Instants are microseconds since the epoch, in [0, 2200-01-01).

    At least one of `at_us`, `every` and `cron` is given. Building one raises Invalid(field, rule) with a field such
    as `schedule.zone` or `schedule.cron[0].minute`; a Schedule that exists is valid.

    at_us      single instants, kept in ascending order. At most 64.
    every      intervals (core/intervals.py). At most 16.
    anchor_us  where `@every` lines count from, and intervals without an anchor of their own; required by them. The
               anchor is the first occurrence.
    cron       lines; equal instants of several parts are one occurrence. At most 16.
    zone       IANA name that cron lines, calendar intervals and excluded dates are read in; empty becomes UTC.
    start_us   first instant at which an occurrence may be; end_us: first instant at which none may be any more.
    gap        what becomes of wall times that do not exist; repeat: of those that exist twice. Lines whose minute or
               hour field starts with `*` need neither.
    hash_key   chooses the slots of `H`; required by lines that have one.
    exclude_dates, exclude_cron  what is taken away by date (at most 256) and by line (at most 8): core/exclusions.py.
    exclude_calendars, windows   names of calendars, at most 8 of each.
    max_runs   the schedule ends after so many occurrences; 0 means without end.
    jitter_us  how far runs may be put off, at most 24 h.
    """

    at_us: tuple[int, ...] = ()
    every: tuple[Every, ...] = ()
    anchor_us: int | None = None
    cron: tuple[str, ...] = ()
    zone: str = UTC_NAME
    start_us: int | None = None
    end_us: int | None = None
    gap: GapRule = GapRule.END
    repeat: RepeatRule = RepeatRule.FIRST
    hash_key: str = ""
    exclude_dates: tuple[str, ...] = ()
    exclude_cron: tuple[str, ...] = ()
    exclude_calendars: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    max_runs: int = 0
    jitter_us: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        self._normalise()
        check_bounds(self)
        zone(self.zone, field="schedule.zone")
        if not self._fires():
            raise Invalid("schedule", "never fires: it has no occurrence between start and end")

    def _fires(self) -> bool:
        try:
            return self.next_after(-1) is not None
        except SearchLimit:
            return False  # all that was looked at is excluded, and that is a lot

    def _normalise(self) -> None:
        settle = object.__setattr__  # the value is frozen, but not yet handed out
        settle(self, "gap", GapRule(self.gap))
        settle(self, "repeat", RepeatRule(self.repeat))
        settle(self, "zone", self.zone or UTC_NAME)
        settle(self, "at_us", tuple(sorted(set(self.at_us))))
        settle(self, "every", tuple(self.every))
        for name in ("cron", "exclude_cron"):
            settle(self, name, tuple(" ".join(_ascii_words(line)) for line in getattr(self, name)))
        for name in ("exclude_dates", "exclude_calendars", "windows"):
            settle(self, name, tuple(getattr(self, name)))

    # --- questions -------------------------------------------------------------------------------------------------

    def next_after(self, instant_us: int) -> int | None:
        """The first occurrence later than `instant_us`, or None when there is none any more. Raises SearchLimit."""
        return self._search.next_after(instant_us)

    def prev_before(self, instant_us: int) -> int | None:
        """The last occurrence earlier than `instant_us`, or None when there is none. Raises SearchLimit."""
        return self._search.prev_before(instant_us)

    def matches(self, instant_us: int) -> bool:
        """Whether `instant_us` is an occurrence."""
        return self._search.has(instant_us)

    def between(self, from_us: int, to_us: int, limit: int) -> tuple[int, ...]:
        """The occurrences in [from_us, to_us), in order, at most `limit` of them. Raises SearchLimit."""
        return tuple(self._walk(from_us, to_us, limit))

    def _walk(self, from_us: int, to_us: int, limit: int) -> Iterator[int]:
        at = self.next_after(from_us - 1)
        while at is not None and at < to_us and limit > 0:
            yield at
            limit -= 1
            at = self.next_after(at)

    @property
    def recurring(self) -> bool:
        """Whether more than single instants are given."""
        return bool(self.every or self.cron)

    def anchored(self, instant_us: int) -> Schedule:
        """The same schedule with `anchor_us` set to `instant_us` if it has none yet."""
        return self if self.anchor_us is not None else replace(self, anchor_us=instant_us)

    @cached_property
    def series_key(self) -> str | None:
        """Equal keys, equal answers: how results are shared. None where they hang on instants of the job's own."""
        if self.at_us or self.every or any(isinstance(source, Interval) for source in self.sources):
            return None
        slotted = any(uses_slots(line) for line in (*self.cron, *self.exclude_cron))
        return self._to_json(_OF_THE_JOB | ({"anchor_us"} if slotted else {"anchor_us", "hash_key"}))

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The series whose union the schedule is: of `at_us`, then of each interval, then of each line."""
        return sources_of(self)

    @cached_property
    def exclusions(self) -> tuple[Remover, ...]:
        """What the schedule takes away by itself: dates and lines."""
        return exclusions_of(self)

    @cached_property
    def _search(self) -> Search:
        end_us = END_US if self.end_us is None else self.end_us
        return Search(self.sources, self.exclusions, self.start_us or 0, end_us)

    # --- JSON ------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Canonical JSON text: equal schedules give equal text; keys at their default are left out."""
        return self._to_json(frozenset())

    def _to_json(self, leave_out: frozenset[str] | set[str]) -> str:
        kept = {
            name: value
            for name, default in _defaults()
            if name not in leave_out and (value := getattr(self, name)) != default
        }
        if "every" in kept:
            kept["every"] = [every.to_json() for every in self.every]
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Schedule:
        """Read `to_json()` text. Strict: unknown and doubled keys and wrong types raise Invalid."""
        try:
            document = json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise Invalid("schedule", "must be a JSON object") from None
        if not isinstance(document, dict):
            raise Invalid("schedule", "must be a JSON object")
        known = dict(_defaults())
        for key in document:
            if key not in known:
                raise Invalid(
                    f"schedule.{ascii(key[:40])[1:-1]}", f"is not a known key; known are {', '.join(sorted(known))}"
                )
        if isinstance(document.get("every"), list):
            intervals = enumerate(document["every"])
            document["every"] = [Every.from_json(stored, f"schedule.every[{index}]") for index, stored in intervals]
        return cls(**document)


@cache
def _defaults() -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(Schedule))


def _ascii_words(line: str) -> list[str]:
    # Only blanks and tabs separate fields; anything else is left for the parser to refuse.
    return [word for word in line.replace("\t", " ").split(" ") if word]


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Invalid("schedule", "must not have the same key twice")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(name)
