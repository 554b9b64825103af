"""What a backfill is to do, and how far it has come: what stands in its operation's `spec` and `progress`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from core.store.operation_records import OperationRecord

_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class BackfillSpec:
    """What a backfill does. Instants are nominal, [from_us, to_us); `per_s` is how many runs become due in a second."""

    job_id: str
    version: int
    from_us: int
    to_us: int
    per_s: float
    gated: bool
    include_run: bool
    trace: str = ""

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """How far it came: occurrences before `next_us` are dealt with, for which `made` runs were made; of these, those up
    to (`seen_us`, `seen_id`) have started. `taken_back` were canceled before they started."""

    next_us: int
    made: int = 0
    seen_us: int = -1
    seen_id: str = str(_NO_ID)
    taken_back: int = 0

    @classmethod
    def of(cls, operation: OperationRecord) -> BackfillProgress:
        """The progress of a backfill."""
        if not operation.progress:
            return cls(operation.spec["from_us"], seen_us=operation.spec["from_us"] - 1)
        return cls(**json.loads(operation.progress))

    def text(self) -> str:
        """The stored form."""
        return json.dumps(asdict(self), separators=(",", ":"))
