"""Time zones: which names are accepted, and each zone's offsets as a table of instants.

The data is the pinned tzdata package and nothing else: `use_pinned_tzdata()` is called by each role at its start,
before any zone is looked up. A name is looked up in the package's own list first: no path is ever made from input.
"""

from __future__ import annotations

import zoneinfo
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import metadata, resources
from itertools import pairwise
from zoneinfo import ZoneInfo

from core.civil import DAY_S, END_S
from core.errors import Invalid, InvariantBroken

UTC_NAME = "UTC"
_NOT_ZONES = frozenset({"Factory"})  # a placeholder for "not configured", no place's time
_PROBE_LEAD_S = DAY_S // 2
_PROBE_START = datetime(1969, 12, 31, 12)
_PROBE_STEP_S = 6 * DAY_S  # the shortest stay away from an offset since 1970 is 6.96 days (a test holds this)


def use_pinned_tzdata(expected: str | None = None) -> str:
    """Make zoneinfo read the tzdata package only; returns its version, which must be `expected` where that is given."""
    zoneinfo.reset_tzpath(())
    ZoneInfo.clear_cache()
    zone_table.cache_clear()
    try:
        version = metadata.version("tzdata")
    except metadata.PackageNotFoundError as missing:
        raise InvariantBroken("the tzdata package is not installed") from missing
    if expected is not None and version != expected:
        raise InvariantBroken(f"tzdata {version} is installed, but this cluster is pinned to {expected}")
    _spellings()  # read now what every look-up needs: no request pays for it
    _probes()
    return version


@cache
def zone_names() -> frozenset[str]:
    """Every accepted name, exactly as IANA spells it."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").splitlines()
    return frozenset(listed) - _NOT_ZONES


@cache
def _spellings() -> dict[str, str]:
    return {name.casefold(): name for name in zone_names()}


def zone(key: str, *, field: str = "zone") -> ZoneInfo:
    """The zone named `key`; empty means UTC. Raises Invalid(field, rule) for anything that is not an IANA name."""
    name = key or UTC_NAME
    if name not in zone_names():
        raise Invalid(field, _refusal(name))
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        # A listed name without data: the job that needs it is set aside, and never runs in UTC instead (B32).
        raise Invalid(field, f"the time zone data of {name} cannot be read on this machine") from None


def _refusal(name: str) -> str:
    rule = "must be an IANA time zone name such as Europe/Berlin, spelt exactly; empty means UTC"
    likely = _spellings().get(name[:64].strip().casefold())
    if likely is not None:
        return f"{rule}; did you mean {likely}?"
    if any(sign in name for sign in "+-") and any(c.isdigit() for c in name):
        return f"{rule}; a fixed offset is written Etc/GMT-3 (three hours east of Greenwich) or Etc/GMT+3 (west)"
    return rule


@dataclass(frozen=True, slots=True)
class ZoneTable:
    """A zone as runs of constant offset: run i covers the instants [starts_s[i], starts_s[i + 1]).

    `starts_s` begins before the epoch and has one entry more than `offsets_s`, after the last instant that counts.
    """

    starts_s: tuple[int, ...]
    offsets_s: tuple[int, ...]

    def index(self, instant_s: int) -> int:
        """The run that holds `instant_s`."""
        return bisect_right(self.starts_s, instant_s) - 1


@cache
def zone_table(key: str) -> ZoneTable:
    """The offsets of the zone `key` over the civil years 1970 to 2199. Kept for good: one per listed zone at most."""
    where = zone(key)
    probed = list(map(where.utcoffset, _probes()))
    starts_s = [-2 * DAY_S]
    offsets_s = [_seconds(probed[0])]
    for index, (before, after) in enumerate(pairwise(probed)):
        if before != after:
            _append_changes(where, index * _PROBE_STEP_S, starts_s, offsets_s)
    return ZoneTable((*starts_s, END_S + 2 * DAY_S), tuple(offsets_s))


@cache
def _probes() -> tuple[datetime, ...]:
    return tuple(_wall(second) for second in range(0, END_S + 2 * DAY_S, _PROBE_STEP_S))


def _wall(second: int) -> datetime:
    """The wall time `second` seconds after noon of the last day before the epoch."""
    return _PROBE_START + timedelta(seconds=second)


def _seconds(offset: timedelta | None) -> int:
    if offset is None:
        raise InvariantBroken("a listed zone has no offset")
    return offset.days * DAY_S + offset.seconds


def _append_changes(where: ZoneInfo, low: int, starts_s: list[int], offsets_s: list[int]) -> None:
    """Append every change of offset between the probe at `low` and the next one.

    Read at fold 0, a zone's offset turns from `before` to `after` at the wall time change + max(before, after): the end
    of a gap, and the end of the first pass of a repeat.
    """
    high = low + _PROBE_STEP_S
    target = where.utcoffset(_wall(high))
    while (before := where.utcoffset(_wall(low))) != target:
        low = _first_other(where, low, high, before, starts_s)
        offsets_s.append(_seconds(where.utcoffset(_wall(low))))
        starts_s.append(low - _PROBE_LEAD_S - max(offsets_s[-2:]))


def _first_other(where: ZoneInfo, low: int, high: int, before: timedelta | None, starts_s: list[int]) -> int:
    """The first wall time in (low, high] whose offset is not `before`."""
    if len(starts_s) > 2:
        # Most changes come 52 or 53 weeks after the last of their kind: two probes instead of twenty.
        last = starts_s[-2] + _PROBE_LEAD_S + max(_seconds(before), _seconds(where.utcoffset(_wall(high))))
        for guess in (last + 364 * DAY_S, last + 371 * DAY_S):
            if low < guess <= high and where.utcoffset(_wall(guess - 1)) == before != where.utcoffset(_wall(guess)):
                return guess
    while high - low > 1:
        middle = (low + high) // 2
        if where.utcoffset(_wall(middle)) == before:
            low = middle
        else:
            high = middle
    return high
