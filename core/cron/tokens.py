"""The tokeniser: one field's text to items. Every number and name is checked against the field's bounds here.

The grammar is regular and each item is matched once: the work is linear in the text, which has at most 256 characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, YEAR, FieldSpec
from core.cron.slots import Slots
from core.errors import Invalid


@dataclass(frozen=True, slots=True)
class Values:
    """first, first+step, ... up to last; last < first wraps round."""

    first: int
    last: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L` and `L-n`: n days before the last of the month."""

    back: int


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """`15W`: the Monday to Friday nearest to that day, in the same month. `LW` is day None: the last of them."""

    day: int | None


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`5#2`: the second Friday. `5L` is nth None: the last Friday."""

    weekday: int
    nth: int | None


Item = Values | LastDay | NearestWeekday | NthWeekday

_VALUE = r"[0-9]+|[a-z]{3}"
_PLAIN = re.compile(rf"(?:(?P<star>\*)|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]+))?")
_HASHED = re.compile(rf"h(?:\((?P<first>{_VALUE})-(?P<last>{_VALUE})\))?(?:/(?P<step>[0-9]+))?")
_LAST_DAY = re.compile(r"l(?:-(?P<back>[0-9]+))?")
_WEEKDAY_NEAR = re.compile(r"(?:(?P<day>[0-9]+)|l)w")
_WEEKDAY_NTH = re.compile(r"(?P<weekday>[0-7]|[a-z]{3})(?:#(?P<nth>[0-9]+)|(?P<last>l))")


@dataclass(frozen=True, slots=True)
class FieldText:
    """One field as the caller wrote it, where it stands (`schedule.cron[0].minute`), and the key of its `H` slots."""

    spec: FieldSpec
    text: str
    path: str
    slots: Slots

    @property
    def starred(self) -> bool:
        """Whether the field starts with `*`; `?` is another spelling of `*` in the day fields."""
        return self.text[0] in "*?"

    def items(self) -> list[Item]:
        """The field's items in the order they were written."""
        text = self.text.lower()
        if text == "?" and self.spec in (DAY_OF_MONTH, DAY_OF_WEEK):
            text = "*"
        return [self._item(part) for part in text.split(",")]

    def _item(self, part: str) -> Item:
        if match := _PLAIN.fullmatch(part):
            return self._plain(match)
        if match := _HASHED.fullmatch(part):
            return self._hashed(match)
        if self.spec is DAY_OF_MONTH:
            if match := _LAST_DAY.fullmatch(part):
                return LastDay(self._bounded(match["back"] or "0", 0, 30, "L-n"))
            if match := _WEEKDAY_NEAR.fullmatch(part):
                return NearestWeekday(None if match["day"] is None else self._value(match["day"]))
        if self.spec is DAY_OF_WEEK and (match := _WEEKDAY_NTH.fullmatch(part)):
            nth = None if match["last"] else self._bounded(match["nth"], 1, 5, "the number after #")
            return NthWeekday(self._value(match["weekday"]) % 7, nth)
        raise self._refused(part)

    def _plain(self, match: re.Match[str]) -> Values:
        step = self._step(match["step"], self.spec.max_step)
        if match["star"]:
            return Values(self.spec.low, self.spec.high, step)
        first = self._value(match["first"])
        if match["last"] is None:
            if match["step"] is None:
                return Values(self._folded(first), self._folded(first))
            return Values(self._folded(first), self.spec.high, step)
        last = self._value(match["last"])
        if self.spec is YEAR and last < first:
            raise Invalid(self.path, f"a range of years must not run backwards: {match[0]}")
        return self._range(first, last, step)

    def _range(self, first: int, last: int, step: int) -> Values:
        if self.spec.alias_high is not None and last == self.spec.alias_high and first < last:
            # 5-7 counts on past Saturday; 0-7 is the whole week once.
            return Values(first, self.spec.high, step) if first == self.spec.low else Values(first, self.spec.low, step)
        return Values(self._folded(first), self._folded(last), step)

    def _hashed(self, match: re.Match[str]) -> Values:
        low, high = self.spec.low, min(self.spec.high, 28) if self.spec is DAY_OF_MONTH else self.spec.high
        if self.spec is YEAR:
            raise Invalid(self.path, "H is not possible for years")
        if match["first"] is not None:
            low, high = self._folded(self._value(match["first"])), self._folded(self._value(match["last"]))
            if high <= low:
                raise Invalid(self.path, "the range of H must run upwards")
        if match["step"] is None:
            value = self.slots.pick(self.spec.name, low, high, self.path)
            return Values(value, value)
        step = self._step(match["step"], high - low)
        return Values(self.slots.pick(self.spec.name, low, low + step - 1, self.path), high, step)

    def _folded(self, value: int) -> int:
        return self.spec.low if value == self.spec.alias_high else value

    def _value(self, text: str) -> int:
        if not text.isdigit():
            if text not in self.spec.names:
                raise self._refused(text)
            return self.spec.names[text]
        top = self.spec.high if self.spec.alias_high is None else self.spec.alias_high
        if len(text) > self.spec.digits or not self.spec.low <= int(text) <= top:
            raise Invalid(self.path, f"{text[:20]} is out of bounds: {self.spec.takes}")
        return int(text)

    def _step(self, text: str | None, largest: int) -> int:
        return 1 if text is None else self._bounded(text, 1, largest, "the step")

    def _bounded(self, text: str, low: int, high: int, what: str) -> int:
        if len(text) > 4 or not low <= int(text) <= high:
            raise Invalid(self.path, f"{what} must be {low} to {high}, not {text[:20]}")
        return int(text)

    def _refused(self, part: str) -> Invalid:
        extra = {
            DAY_OF_MONTH.name: "; also L, L-n, nW, LW, ?, H",
            DAY_OF_WEEK.name: "; also n#1 to n#5, nL, ?, H",
            YEAR.name: "",
        }.get(self.spec.name, "; also H")
        return Invalid(self.path, f"{part[:20]!r} is not understood: {self.spec.takes}{extra}")
