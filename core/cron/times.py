"""Times of day as bit masks, and the small questions about masks. Pure."""

from __future__ import annotations

from typing import NamedTuple

SIXTY = (1 << 60) - 1
ALL_HOURS = (1 << 24) - 1


class TimesOfDay(NamedTuple):
    """Every combination of these hours, minutes and seconds."""

    hours: int
    minutes: int
    seconds: int

    @classmethod
    def single(cls, second_of_day: int) -> TimesOfDay:
        """One time."""
        hour, rest = divmod(second_of_day, 3600)
        return cls(1 << hour, 1 << rest // 60, 1 << rest % 60)

    def mask(self) -> int:
        """Bit s is set for each second s of the day that is one of these."""
        hour = 0
        for minute in range(60):
            if self.minutes >> minute & 1:
                hour |= self.seconds << 60 * minute
        return sum(hour << 3600 * number for number in range(24) if self.hours >> number & 1)

    def cover(self, other: TimesOfDay) -> bool:
        """Whether every time of `other` is one of these."""
        return not (other.hours & ~self.hours or other.minutes & ~self.minutes or other.seconds & ~self.seconds)


def bits_around(mask: int, bit: int) -> tuple[int, int]:
    """[first, end) of the set bits on end around `bit`, which is set."""
    unset_above = ~(mask >> bit)
    unset_below = ~mask & (1 << bit) - 1
    return unset_below.bit_length(), bit + (unset_above & -unset_above).bit_length() - 1
