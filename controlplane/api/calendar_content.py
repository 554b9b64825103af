"""Calendar messages as core contents, and back. Pure: what a content may be is decided by core/calendar_checks.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidewheel.v1 import calendar_service_pb2 as pb

from controlplane.api.decode_schedule import duration, timestamp
from controlplane.api.etags import calendar_etag
from controlplane.api.fields import duration_us, instant_us
from controlplane.api.violations import Violations
from core.calendar_checks import check_content
from core.calendars import CalendarContent, DayOff, DaysOff, Window, WindowAction, Windows
from core.errors import Invalid
from core.store.calendars import CalendarRecord
from core.zones import UTC_NAME

MAX_DESCRIPTION_CHARS = 1024
_ACTIONS = {pb.WINDOW_ACTION_SKIP: WindowAction.SKIP, pb.WINDOW_ACTION_DEFER: WindowAction.DEFER}
_SHOWN_ACTIONS = {action: number for number, action in _ACTIONS.items()}
Value = TypeVar("Value", DaysOff, Windows)


def decode_content(message: pb.Calendar, at: str) -> CalendarContent:
    """What the message says; `at` is its path. Raises BadRequest or Invalid."""
    match message.WhichOneof("content"):
        case "days_off":
            return _days_off(message.days_off, f"{at}.days_off")
        case "windows":
            return _windows(message.windows, f"{at}.windows")
    raise Invalid(at, "must have exactly one of days_off and windows")


def check_description(value: str, at: str) -> str:
    """The description as it is. Raises Invalid."""
    if len(value) > MAX_DESCRIPTION_CHARS:
        raise Invalid(at, f"is {len(value)} characters long; at most {MAX_DESCRIPTION_CHARS} are taken")
    if "\0" in value:
        raise Invalid(at, "must not contain the NUL character")
    return value


def encode_calendar(calendar: CalendarRecord) -> pb.Calendar:
    """The calendar as it stands, with its content where that was read."""
    message = pb.Calendar(
        namespace=calendar.namespace,
        name=calendar.name,
        calendar_id=str(calendar.calendar_id),
        description=calendar.description,
        version=calendar.version,
        etag=calendar_etag(calendar),
        create_time=timestamp(calendar.created_us),
        update_time=timestamp(calendar.updated_us),
        jobs=calendar.jobs,
        author=calendar.author,
        note=calendar.note,
    )
    if calendar.content is not None:
        encode_content(message, calendar.content)
    return message


def encode_content(message: pb.Calendar, content: CalendarContent) -> None:
    """Have the message say what the content says."""
    if isinstance(content, DaysOff):
        _add_days_off(message.days_off, content)
    else:
        _add_windows(message.windows, content)


def _days_off(message: pb.DaysOff, at: str) -> DaysOff:
    return _built(
        at,
        "days_off",
        lambda: DaysOff(
            weekdays=tuple(message.weekdays),
            days=tuple(DayOff(day.date, day.name) for day in message.days),
            working=tuple(message.working),
        ),
    )


def _windows(message: pb.Windows, at: str) -> Windows:
    faults = Violations()
    if message.action not in _ACTIONS:
        faults.add(f"{at}.action", "must be given: skip or defer")
    windows = []
    for index, each in enumerate(message.windows):
        with faults.noted():
            windows.append(_window(each, f"{at}.windows[{index}]"))
    faults.refuse()
    return _built(at, "windows", lambda: Windows(_ACTIONS[message.action], tuple(windows)))


def _window(message: pb.Window, at: str) -> Window:
    # `from` is a keyword of Python: the field can only be reached by its name.
    begin = getattr(message, "from")
    return Window(
        from_us=instant_us(begin, f"{at}.from") if message.HasField("from") else None,
        to_us=instant_us(message.to, f"{at}.to") if message.HasField("to") else None,
        cron=message.cron,
        zone=message.zone or UTC_NAME,
        duration_us=duration_us(message.duration, f"{at}.duration") if message.HasField("duration") else None,
        name=message.name,
    )


def _built(at: str, kind: str, build: Callable[[], Value]) -> Value:
    """What `build` makes, checked; faults that core names by its own fields are named from the request's root."""
    try:
        content = build()
        check_content(content, kind)
        return content
    except Invalid as fault:
        path = fault.field.removeprefix(kind).removeprefix(".").replace("_us", "")
        raise Invalid(f"{at}.{path}" if path else at, fault.rule) from None


def _add_days_off(message: pb.DaysOff, content: DaysOff) -> None:
    message.SetInParent()
    message.weekdays.extend(content.weekdays)
    message.days.extend(pb.DayOff(date=day.date, name=day.name) for day in content.days)
    message.working.extend(content.working)


def _add_windows(message: pb.Windows, content: Windows) -> None:
    message.action = _SHOWN_ACTIONS[content.action]
    for window in content.windows:
        shown = message.windows.add(cron=window.cron, zone=window.zone if window.cron else "", name=window.name)
        if window.from_us is not None:
            getattr(shown, "from").CopyFrom(timestamp(window.from_us))
        if window.to_us is not None:
            shown.to.CopyFrom(timestamp(window.to_us))
        if window.duration_us is not None:
            shown.duration.CopyFrom(duration(window.duration_us))
