"""The Schedule value: when a job runs. Immutable, checked when built, the same on every node and after every restart.

A schedule is one of: a one-off instant, an interval, or a union of cron lines in one zone. All of them may be bounded
by `start_us` (inclusive) and `end_us` (exclusive). Every question is answered from the value alone: no clock here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

from core.civil import END_US
from core.clock import US_PER_S
from core.cron import EveryLine, parse_line, uses_slots
from core.cron.expression import MAX_EVERY_S
from core.errors import Invalid
from core.firetimes import GapRule, Interval, Once, RepeatRule, Source, ZonedLine
from core.zones import UTC_NAME, zone, zone_table

MAX_LINES = 32
MAX_HASH_KEY = 256
_INSTANTS = ("at_us", "anchor_us", "start_us", "end_us")


@dataclass(frozen=True)
class Schedule:
    """When a job runs. Instants are microseconds since the epoch, in [0, 2200-01-01).

    Exactly one of `at_us`, `every_us` and `cron` is given. Building one raises Invalid(field, rule) with a field such
    as `schedule.zone` or `schedule.cron[0].minute`; a Schedule that exists is valid.

    at_us      the one instant.
    every_us   the period of an interval, at least 1 s: anchor_us, anchor_us + every_us, ... (elapsed time).
    anchor_us  where intervals and `@every` lines count from; required by them. The anchor is the first occurrence.
    cron       lines; equal instants of several lines are one occurrence. At most 32.
    zone       IANA name that cron lines are read in; empty becomes UTC.
    start_us   first instant at which an occurrence may be; end_us: first instant at which none may be any more.
    gap        what becomes of wall times that do not exist; repeat: of those that exist twice. Lines whose minute or
               hour field starts with `*` need neither.
    hash_key   chooses the slots of `H`; required by lines that have one.
    """

    at_us: int | None = None
    every_us: int | None = None
    anchor_us: int | None = None
    cron: tuple[str, ...] = ()
    zone: str = UTC_NAME
    start_us: int | None = None
    end_us: int | None = None
    gap: GapRule = GapRule.END
    repeat: RepeatRule = RepeatRule.FIRST
    hash_key: str = ""

    def __post_init__(self) -> None:
        self._check_types()
        object.__setattr__(self, "zone", self.zone or UTC_NAME)
        object.__setattr__(self, "cron", tuple(" ".join(_ascii_words(line)) for line in self.cron))
        self._check_bounds()
        zone(self.zone, field="schedule.zone")
        if not self._sources:
            raise Invalid("schedule", "must have exactly one of at_us, every_us and cron")
        if self.next_after(-1) is None:
            raise Invalid("schedule", "never fires: it has no occurrence between start and end")

    # --- questions -------------------------------------------------------------------------------------------------

    def next_after(self, instant_us: int) -> int | None:
        """The first occurrence later than `instant_us`, or None when there is none any more."""
        if self.start_us is not None and instant_us < self.start_us:
            instant_us = self.start_us - 1
        found = [at for source in self._sources if (at := source.after(instant_us)) is not None]
        end_us = END_US if self.end_us is None else self.end_us
        return min(found) if found and min(found) < end_us else None

    def prev_before(self, instant_us: int) -> int | None:
        """The last occurrence earlier than `instant_us`, or None when there is none."""
        instant_us = min(instant_us, END_US if self.end_us is None else self.end_us)
        found = [at for source in self._sources if (at := source.before(instant_us)) is not None]
        start_us = self.start_us or 0
        return max(found) if found and max(found) >= start_us else None

    def matches(self, instant_us: int) -> bool:
        """Whether `instant_us` is an occurrence."""
        return self.next_after(instant_us - 1) == instant_us

    def between(self, from_us: int, to_us: int, limit: int) -> tuple[int, ...]:
        """The occurrences in [from_us, to_us), in order, at most `limit` of them."""
        return tuple(self._walk(from_us, to_us, limit))

    def _walk(self, from_us: int, to_us: int, limit: int) -> Iterator[int]:
        at = self.next_after(from_us - 1)
        while at is not None and at < to_us and limit > 0:
            yield at
            limit -= 1
            at = self.next_after(at)

    @property
    def recurring(self) -> bool:
        """Whether there can be more than one occurrence."""
        return self.at_us is None

    def anchored(self, instant_us: int) -> Schedule:
        """The same schedule with `anchor_us` set to `instant_us` if it has none yet."""
        return self if self.anchor_us is not None else replace(self, anchor_us=instant_us)

    @cached_property
    def series_key(self) -> str | None:
        """Equal keys, equal occurrences: how results are shared. None where they hang on an anchor of the job's own."""
        if not self.cron or any(isinstance(source, Interval) for source in self._sources):
            return None
        slotted = any(uses_slots(line) for line in self.cron)
        return self._to_json(leave_out={"anchor_us"} if slotted else {"anchor_us", "hash_key"})

    # --- the plan --------------------------------------------------------------------------------------------------

    @cached_property
    def _sources(self) -> tuple[Source, ...]:
        if [self.at_us is not None, self.every_us is not None, bool(self.cron)].count(True) != 1:
            return ()
        if self.at_us is not None:
            return (Once(self.at_us),)
        if self.every_us is not None:
            return (Interval(self.every_us, self._required_anchor("every_us")),)
        return tuple(self._line_source(index, text) for index, text in enumerate(self.cron))

    def _line_source(self, index: int, text: str) -> Source:
        line = parse_line(text, f"schedule.cron[{index}]", self.hash_key or None)
        if isinstance(line, EveryLine):
            return Interval(line.every_s * US_PER_S, self._required_anchor("@every lines"))
        return ZonedLine(line, zone_table(self.zone), self.gap, self.repeat)

    def _required_anchor(self, what: str) -> int:
        if self.anchor_us is None:
            raise Invalid("schedule.anchor_us", f"is required by {what}: the instant that they count from")
        return self.anchor_us

    # --- checks ----------------------------------------------------------------------------------------------------

    def _check_types(self) -> None:
        for name in (*_INSTANTS, "every_us"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise Invalid(f"schedule.{name}", "must be a whole number of microseconds")
        for name in ("zone", "hash_key"):
            if not isinstance(getattr(self, name), str):
                raise Invalid(f"schedule.{name}", "must be text")
        if not isinstance(self.cron, (tuple, list)) or not all(isinstance(line, str) for line in self.cron):
            raise Invalid("schedule.cron", "must be a list of cron lines")
        for name, kind in (("gap", GapRule), ("repeat", RepeatRule)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                raise Invalid(f"schedule.{name}", f"must be one of {', '.join(kind)}") from None

    def _check_bounds(self) -> None:
        for name in _INSTANTS:
            value = getattr(self, name)
            if value is not None and not 0 <= value < END_US:
                raise Invalid(
                    f"schedule.{name}", "must lie between 1970-01-01 and 2199-12-31, in microseconds since the epoch"
                )
        if self.every_us is not None and not US_PER_S <= self.every_us <= MAX_EVERY_S * US_PER_S:
            raise Invalid("schedule.every_us", "must be from 1 second to 100 years, in microseconds")
        if self.start_us is not None and self.end_us is not None and self.end_us <= self.start_us:
            raise Invalid("schedule.end_us", "must be later than start_us")
        if len(self.cron) > MAX_LINES:
            raise Invalid("schedule.cron", f"must be at most {MAX_LINES} lines, not {len(self.cron)}")
        if len(self.hash_key) > MAX_HASH_KEY or not self.hash_key.isprintable():
            raise Invalid("schedule.hash_key", f"must be at most {MAX_HASH_KEY} printable characters")

    # --- JSON ------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Canonical JSON text: equal schedules give equal text; keys at their default are left out."""
        return self._to_json(leave_out=set())

    def _to_json(self, leave_out: set[str]) -> str:
        kept = {
            name: value
            for name, default in _defaults()
            if name not in leave_out and (value := getattr(self, name)) != default
        }
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
