"""What a frame of the dispatcher means: the effects that protocol.py makes and switchboard.py acts on. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.v1.worker_service_pb2 import Acknowledgement, Assignment, AttemptRef, CancelOrder

AttemptKey = tuple[str, int]
# An attempt in a heartbeat, and how often it had reported progress then.
Beat = tuple[AttemptKey, int]


@dataclass(frozen=True, slots=True)
class Opened:
    """Welcome: how leases work here, and which attempts of Hello's are no longer ours."""

    dispatcher_id: str
    heartbeat_interval_s: float
    lease_s: float
    stale: Sequence[AttemptRef]


@dataclass(frozen=True, slots=True)
class Refused:
    field: str
    rule: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """Start these; give back those of `beyond`, which no credit covers or which came after Goodbye."""

    items: Sequence[Assignment]
    beyond: Sequence[Assignment]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    items: Sequence[Acknowledgement]


@dataclass(frozen=True, slots=True)
class Extended:
    """The heartbeat that left at `sent_s` was read: leases of `beats` count from then, but for the exceptions."""

    sent_s: float
    beats: Sequence[Beat]
    exceptions: Sequence[Acknowledgement]


@dataclass(frozen=True, slots=True)
class CancelOrdered:
    items: Sequence[CancelOrder]


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """Demand or Released: the credits may have to be shared anew."""


@dataclass(frozen=True, slots=True)
class Violated:
    """The dispatcher broke the protocol: end the stream and open another."""

    rule: str


Effect = Opened | Refused | Assigned | Acknowledged | Extended | CancelOrdered | CreditChanged | Violated
