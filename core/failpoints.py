"""Named places where a test makes this process die, stand still or wait: around each step of a hand-off, and in loops.

Nothing happens unless TIDEWHEEL_FAILPOINTS names a place, as "name=action" with commas in between. Actions: `kill`
(SIGKILL to oneself), `freeze` (SIGSTOP to oneself), `wait:SECONDS` (the caller sleeps), `block:SECONDS` (the whole
event loop stands still). Before an action, `once:` means the first passing only, and `when:PATH:` the first passing
after a file of that path exists; the file is removed, and may be made again. For tests and fault drills; a name that
is not in NAMES is refused at start.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import Invalid

ENVIRONMENT_VARIABLE = "TIDEWHEEL_FAILPOINTS"

# In the order in which a move meets them. "before" is before the transaction is sent, "after" once its commit is known.
NAMES: tuple[str, ...] = (
    "leader.before_order",
    "leader.after_order",
    "target.before_split",
    "target.after_split",
    "target.before_take_over_rest",
    "target.after_take_over_rest",
    "owner.before_last_floor",
    "owner.after_last_floor",
    "owner.before_last_watermark",
    "owner.after_last_watermark",
    "target.before_rehome",
    "target.after_rehome",
    "target.before_close",
    "target.after_close",
    "leader.before_complete",
    "leader.after_complete",
    "claim.before",
    "claim.after",
    # Passed for ever, several times a second.
    "report.before",
    "due.before",
)
_ACTIONS = ("kill", "freeze")
_LASTING_ACTIONS = ("wait", "block")
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Point:
    action: str
    lasts_s: float = 0.0
    once: bool = False
    when: str = ""


class Failpoints:
    """The places that do something in this process; empty in production."""

    def __init__(self, points: Mapping[str, _Point] | None = None) -> None:
        self._points = dict(points or {})

    def pass_by(self, name: str) -> float:
        """To be called at the place; returns how many seconds the caller is to wait (0.0 unless told so)."""
        if not self._points:
            return 0.0
        point = self._points.get(name)
        if point is None or (point.when and not _took(point.when)):
            return 0.0
        if point.once:
            del self._points[name]
        match point.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "block":
                threading.Event().wait(point.lasts_s)
            case "wait":
                return point.lasts_s
        return 0.0


def _took(path: str) -> bool:
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    return True


def read_failpoints(environment: Mapping[str, str]) -> Failpoints:
    """The failpoints that the environment names; raises Invalid for a name or an action that does not exist."""
    points: dict[str, _Point] = {}
    for part in filter(None, (piece.strip() for piece in environment.get(ENVIRONMENT_VARIABLE, "").split(","))):
        name, _, action = part.partition("=")
        if name not in NAMES:
            raise Invalid(ENVIRONMENT_VARIABLE, f"{name!r} is not one of {', '.join(NAMES)}")
        points[name] = _read_action(action)
    return Failpoints(points)


def _read_action(text: str) -> _Point:
    once, when, action = text.startswith("once:"), "", text.removeprefix("once:")
    if action.startswith("when:"):
        when, _, action = action.removeprefix("when:").partition(":")
    if action in _ACTIONS:
        return _Point(action, 0.0, once, when)
    kind, _, seconds = action.partition(":")
    try:
        lasts_s = float(seconds) if kind in _LASTING_ACTIONS else -1.0
    except ValueError:
        lasts_s = -1.0
    if not 0 <= lasts_s <= _LONGEST_WAIT_S:
        raise Invalid(
            ENVIRONMENT_VARIABLE,
            f"{text!r} is not kill, freeze, wait:SECONDS or block:SECONDS (at most 60), after once: or when:PATH: or"
            " neither",
        )
    return _Point(kind, lasts_s, once, when)
