"""What a calendar says: days off, or maintenance windows. Frozen values with a strict JSON form. Pure.

Calendars are shared by the jobs of a namespace and versioned; a version of a job names the versions it is computed by
(`CalendarPin`), so that its occurrences never change behind its back. Kept by core/store, evaluated by
core/occurrences.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any
from uuid import UUID

from core.errors import Invalid
from core.zones import UTC_NAME


@dataclass(frozen=True, slots=True)
class CalendarPin:
    """One immutable version of one calendar."""

    calendar_id: UUID
    version: int

    def to_json(self) -> list[Any]:
        """The stored form."""
        return [str(self.calendar_id), self.version]

    @classmethod
    def from_json(cls, stored: list[Any]) -> CalendarPin:
        """Read the stored form back. Raises ValueError or TypeError where it is not one."""
        calendar_id, version = stored
        return cls(UUID(calendar_id), int(version))


class WindowAction(IntEnum):
    """What becomes of an occurrence inside a maintenance window."""

    SKIP = 1
    DEFER = 2


@dataclass(frozen=True, slots=True)
class DayOff:
    """`date` is `2026-12-24`, a range with both ends `2026-12-24/2027-01-02`, or every year `*-12-25`."""

    date: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class DaysOff:
    """Days on which nothing runs, read in the zone of the schedule that refers to them.

    `weekdays` counts from 0 (Sunday) to 6. `working` holds single dates that are worked all the same.
    """

    weekdays: tuple[int, ...] = ()
    days: tuple[DayOff, ...] = ()
    working: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """[from_us, to_us), or from each occurrence of `cron` in `zone` for `duration_us`."""

    from_us: int | None = None
    to_us: int | None = None
    cron: str = ""
    zone: str = UTC_NAME
    duration_us: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Windows:
    """Maintenance windows and what they do. Windows that touch are one."""

    action: WindowAction
    windows: tuple[Window, ...]


CalendarContent = DaysOff | Windows


def content_to_json(content: CalendarContent) -> dict[str, Any]:
    """The stored form; `content_from_json` gives an equal value back."""
    kind = "days_off" if isinstance(content, DaysOff) else "windows"
    return {kind: asdict(content)}


def content_from_json(stored: Any) -> CalendarContent:
    """Read the stored form back. Raises Invalid where it is not one."""
    try:
        ((kind, body),) = stored.items()
        if kind == "days_off":
            days = tuple(DayOff(**day) for day in body["days"])
            return DaysOff(tuple(body["weekdays"]), days, tuple(body["working"]))
        windows = tuple(Window(**window) for window in body["windows"])
        return Windows(WindowAction(body["action"]), windows)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Invalid("content", f"the stored calendar is not readable: {error}") from error
