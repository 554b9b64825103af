"""Random cron lines, each as the text for the product and as plain sets for the naive oracle."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.naive_cron import NaiveLine

ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Monrovia", "America/Asuncion", "America/Chicago",
    "America/Havana", "America/Los_Angeles", "America/New_York", "America/Nuuk", "America/Santiago",
    "America/Sao_Paulo", "America/St_Johns", "Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut",
    "Asia/Damascus", "Asia/Gaza", "Asia/Hebron", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Pyongyang",
    "Asia/Tehran", "Atlantic/Azores", "Australia/Adelaide", "Australia/Lord_Howe", "Australia/Sydney", "EST",
    "Etc/GMT-3", "Europe/Berlin", "Europe/Dublin", "Europe/Istanbul", "Europe/Lisbon", "Europe/London",
    "Europe/Moscow", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter", "Pacific/Enderbury",
    "Pacific/Fakaofo", "Pacific/Kwajalein", "Pacific/Norfolk", "UTC",
)  # fmt: skip
"""Half-hour and double changes, missing midnights, skipped days, negative saving, odd offsets, and none at all."""


@dataclass(frozen=True)
class TextAndSet:
    """A field as text, and the values that it means."""

    text: str
    values: frozenset[int]


def random_field(draw: Random, low: int, high: int, *, star_chance: float) -> TextAndSet:
    """One field of bounds [low, high]: a star, a star with a step, or a list of numbers, ranges and steps."""
    everything = list(range(low, high + 1))
    if draw.random() < star_chance:
        return TextAndSet("*", frozenset(everything))
    if draw.random() < 0.15:
        step = draw.randint(2, high - low)
        return TextAndSet(f"*/{step}", frozenset(everything[::step]))
    texts: list[str] = []
    values: set[int] = set()
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        first, last = draw.randint(low, high), draw.randint(low, high)
        step = draw.choice((1, 1, 2, 5))
        turn = everything[first - low :] + everything[: first - low]
        kind = draw.choice(("number", "range", "step"))
        if kind == "number":
            texts.append(str(first))
            values.add(first)
        elif kind == "range":
            texts.append(f"{first}-{last}" + (f"/{step}" if step > 1 else ""))
            values.update(turn[: turn.index(last) + 1 : step])
        else:
            texts.append(f"{first}/{step}")
            values.update(range(first, high + 1, step))
    return TextAndSet(",".join(texts), frozenset(values))


def random_line(draw: Random, *, seconds: bool = False) -> tuple[str, NaiveLine]:
    """A line of five fields, or six with seconds first."""
    minute = random_field(draw, 0, 59, star_chance=0.1)
    hour = random_field(draw, 0, 23, star_chance=0.3)
    month_day = random_field(draw, 1, 31, star_chance=0.8)
    month = random_field(draw, 1, 12, star_chance=0.9)
    weekday = random_field(draw, 0, 6, star_chance=0.7)
    second = random_field(draw, 0, 59, star_chance=0.2) if seconds else TextAndSet("", frozenset({0}))
    texts = [field.text for field in (minute, hour, month_day, month, weekday)]
    naive = NaiveLine(
        minute.values,
        hour.values,
        month_day.values,
        month.values,
        weekday.values,
        wildcard=minute.text.startswith("*") or hour.text.startswith("*"),
        day_starred=month_day.text.startswith("*") or weekday.text.startswith("*"),
        seconds=second.values,
    )
    return " ".join([second.text, *texts] if seconds else texts), naive
