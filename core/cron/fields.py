"""The fields of a cron line: their bounds and names, and the expansion of plain items into bit masks.

A plain item is a number, a name, a range or a step. Ascending ones are expanded by croniter; a range that wraps round
the end of its field is ours, because croniter loses the values at the start of the field when such a range has a step,
and reads `5-5` as the whole field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from croniter import croniter

from core.civil import FIRST_YEAR, LAST_YEAR


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field: its name in error paths, its bounds, and how croniter is asked (-1: not at all)."""

    name: str
    low: int
    high: int
    croniter_position: int
    digits: int = 2
    names: Mapping[str, int] = field(default_factory=dict, hash=False)
    alias_high: int | None = None  # a second spelling of `low` above `high`: 7 is Sunday

    @property
    def max_step(self) -> int:
        """A larger step would only ever give the first value."""
        return self.high - self.low

    @property
    def takes(self) -> str:
        """The rule as error texts say it."""
        top = self.high if self.alias_high is None else self.alias_high
        names = f" or names {'|'.join(self.names)}" if self.names else ""
        return f"takes numbers {self.low}-{top}{names}, ranges a-b, steps /n up to {self.max_step}, and lists"


_MONTH_NAMES = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_DAY_NAMES = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}

SECOND = FieldSpec("second", 0, 59, 5)
MINUTE = FieldSpec("minute", 0, 59, 0)
HOUR = FieldSpec("hour", 0, 23, 1)
DAY_OF_MONTH = FieldSpec("day_of_month", 1, 31, 2)
MONTH = FieldSpec("month", 1, 12, 3, names=_MONTH_NAMES)
DAY_OF_WEEK = FieldSpec("day_of_week", 0, 6, 4, names=_DAY_NAMES, alias_high=7)
YEAR = FieldSpec("year", FIRST_YEAR, LAST_YEAR, -1, digits=4)


def full_mask(spec: FieldSpec) -> int:
    """Every value of the field; bit v stands for the value v (for years, for FIRST_YEAR + v)."""
    low = FIRST_YEAR if spec is YEAR else 0
    return (1 << spec.high - low + 1) - (1 << spec.low - low)


def range_mask(spec: FieldSpec, first: int, last: int, step: int) -> int:
    """The values first, first+step, ... up to last; a range with last < first wraps round the end of the field."""
    if spec is YEAR:
        return _bits(range(first - FIRST_YEAR, last - FIRST_YEAR + 1, step))
    if (first, last, step) == (spec.low, spec.high, 1):
        return full_mask(spec)
    if first < last:
        return _expanded(spec.croniter_position, f"{first}-{last}/{step}")
    size = spec.high - spec.low + 1
    span = (last - first) % size
    return _bits(spec.low + (value - spec.low) % size for value in range(first, first + span + 1, step))


@lru_cache(maxsize=4096)
def _expanded(position: int, item: str) -> int:
    # The vocabulary of single items is small, and croniter takes 60 us and more for one: a memo of a pure function.
    fields = ["*"] * 6
    fields[position] = item
    values = croniter.expand(" ".join(fields))[0][position]
    return _bits(int(value) for value in values)


def _bits(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask
