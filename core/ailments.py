"""What can keep a dispatcher from its duties while it still reports: names that owner and leader share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AilmentKind(StrEnum):
    DATABASE = "database unreachable"  # no statement of its loops has succeeded for a while
    EVENT_LOOP = "event loop blocked"  # its own timer came late
    DUE_LOOP = "due loop stands still"  # its passes have ended for nobody knows what reason
    WORKERS = "workers unreachable"  # others have workers connected, it has none


@dataclass(frozen=True, slots=True)
class Ailment:
    """One trouble and for how long it has lasted, in seconds."""

    kind: AilmentKind
    age_s: float
