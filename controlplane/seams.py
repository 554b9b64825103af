"""What the control plane asks of telemetry: narrow ports, met by core/telemetry, or by Silent for none at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from core.ailments import AilmentKind
from core.findings import FindingKind
from core.states import MoveCause, MoveState
from core.telemetry.control_plane_metrics import MissedFire
from core.telemetry.run_traces import TraceContext


class ControlPlaneMetrics(Protocol):
    """What a replica counts. No argument ever becomes a label that a caller chooses."""

    def set_leading(self, leading: bool) -> None: ...

    def set_members(self, dispatchers: int, unowned_shards: int) -> None: ...

    def suspected(self, dispatchers: int = 1) -> None: ...

    def set_ailing(self, dispatchers: Mapping[AilmentKind, int]) -> None: ...

    def planned_moves(self, shards: int) -> None: ...

    def move_ended(self, cause: MoveCause, end: MoveState) -> None: ...

    def plan_refused(self) -> None: ...

    def set_imbalance(self, part: float) -> None: ...

    def set_missed(self, counts: Mapping[MissedFire, int]) -> None: ...

    def set_findings(self, counts: Mapping[FindingKind, int], at_us: int) -> None: ...

    def repaired(self, counts: Mapping[FindingKind, int]) -> None: ...

    def call_ended(self, method: str, code: str, seconds: float) -> None: ...


class CallTracing(Protocol):
    """Where the spans of calls go; instants in microseconds."""

    @property
    def enabled(self) -> bool: ...

    def run_traceparent(self, run_id: UUID) -> str: ...

    def record_call(
        self,
        here: TraceContext,
        parent: TraceContext | None,
        name: str,
        began_us: int,
        ended_us: int,
        code: str,
        flawed: bool,
    ) -> None: ...


class Silent:
    """Counts nothing and exports nothing."""

    enabled = False

    def set_leading(self, leading: bool) -> None:
        """Nobody asks."""

    def set_members(self, dispatchers: int, unowned_shards: int) -> None:
        """Nobody asks."""

    def suspected(self, dispatchers: int = 1) -> None:
        """Nobody asks."""

    def set_ailing(self, dispatchers: Mapping[AilmentKind, int]) -> None:
        """Nobody asks."""

    def planned_moves(self, shards: int) -> None:
        """Nobody asks."""

    def move_ended(self, cause: MoveCause, end: MoveState) -> None:
        """Nobody asks."""

    def plan_refused(self) -> None:
        """Nobody asks."""

    def set_imbalance(self, part: float) -> None:
        """Nobody asks."""

    def set_missed(self, counts: Mapping[MissedFire, int]) -> None:
        """Nobody asks."""

    def set_findings(self, counts: Mapping[FindingKind, int], at_us: int) -> None:
        """Nobody asks."""

    def repaired(self, counts: Mapping[FindingKind, int]) -> None:
        """Nobody asks."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Nobody asks."""

    def run_traceparent(self, run_id: UUID) -> str:
        """No trace is kept, so a run has none to show."""
        return ""

    def record_call(
        self,
        here: TraceContext,
        parent: TraceContext | None,
        name: str,
        began_us: int,
        ended_us: int,
        code: str,
        flawed: bool,
    ) -> None:
        """Nobody asks."""
