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

from core.civil import END_S
from core.errors import Invalid, InvariantBroken

UTC_NAME = "UTC"
_NOT_ZONES = frozenset({"Factory"})  # a placeholder for "not configured", no place's time
_EPOCH = datetime(1970, 1, 1)
_PROBE_STEP_S = 6 * 86_400  # the shortest stay away from an offset since 1970 is 6.96 days (a test holds this)


def use_pinned_tzdata(expected: str | None = None) -> str:
    """Make zoneinfo read the tzdata package only; returns its version, which must be `expected` where that is given."""
    zoneinfo.reset_tzpath(())
    ZoneInfo.clear_cache()
    zone_table.cache_clear()
    version = metadata.version("tzdata")
    if expected is not None and version != expected:
        raise InvariantBroken(f"tzdata {version} is installed, but this cluster is pinned to {expected}")
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
    return ZoneInfo(name)


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
    offset_of = zone(key).utcoffset
    probes = _probes()
    offsets = [_seconds(offset_of(wall)) for wall in probes]
    starts_s = [-2 * 86_400]
    kept = [offsets[0]]
    for (low, high), (before, after) in zip(pairwise(range(len(probes))), pairwise(offsets), strict=True):
        if before != after:
            _bisect(ZoneInfo(key), low * _PROBE_STEP_S, high * _PROBE_STEP_S, starts_s, kept)
    return ZoneTable((*starts_s, END_S + 2 * 86_400), tuple(kept))


@cache
def _probes() -> tuple[datetime, ...]:
    return tuple(_wall(second) for second in range(0, END_S + _PROBE_STEP_S, _PROBE_STEP_S))


def _wall(second: int) -> datetime:
    return _EPOCH + timedelta(seconds=second - 86_400)


def _seconds(offset: timedelta | None) -> int:
    if offset is None:
        raise InvariantBroken("a listed zone has no offset")
    return offset.days * 86_400 + offset.seconds


def _bisect(where: ZoneInfo, low: int, high: int, starts_s: list[int], offsets_s: list[int]) -> None:
    """Append every change of offset between the two wall times to the lists.

    Read at fold 0, a zone's offset turns from `before` to `after` at the wall time change + max(before, after): the end
    of a gap, and the end of the first pass of a repeat.
    """
    before = _seconds(where.utcoffset(_wall(low)))
    target = _seconds(where.utcoffset(_wall(high)))
    while before != target:
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            if _seconds(where.utcoffset(_wall(middle))) == before:
                left = middle
            else:
                right = middle
        after = _seconds(where.utcoffset(_wall(right)))
        starts_s.append(right - 86_400 - max(before, after))
        offsets_s.append(after)
        low, before = right, after
