"""What shapes an occurrence, as marks and in words: entries of previews and ledgers. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Mark(IntEnum):
    """What is to be known about an occurrence. The numbers are those of the public contract."""

    GAP = 1  # the wall time that was asked for does not exist on that day
    REPEATED = 2  # the wall time comes twice on that day
    EXCLUDED = 3  # taken away; never runs
    DEFERRED = 4  # put off to the end of a window
    JITTERED = 5  # put off by the job's share of the jitter


class Entry(NamedTuple):
    """One nominal instant with what shapes it; `excluded_by` says in words what took it away, "" when it counts.

    `local` is the nominal instant on the wall of the schedule's zone with its offset: 2026-03-08T03:00:00-04:00.
    """

    nominal_us: int
    due_us: int
    local: str
    marks: tuple[Mark, ...]
    notes: tuple[str, ...]
    excluded_by: str
