"""Collects what is wrong with a request, so that the caller hears of every field at fault at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from core.errors import Invalid, TidewheelError


class BadRequest(TidewheelError):
    """One or more fields of a request break rules; nothing was changed."""

    def __init__(self, violations: Sequence[Invalid]) -> None:
        super().__init__("; ".join(str(each) for each in violations))
        self.violations = tuple(violations)


class Violations:
    """The faults found so far."""

    def __init__(self) -> None:
        self._found: list[Invalid] = []

    def add(self, field: str, rule: str) -> None:
        """Note a fault."""
        self._found.append(Invalid(field, rule))

    def noted(self) -> _Noted:
        """For `with`: note an Invalid or a BadRequest that is raised within, and go on after it."""
        return _Noted(self._found)

    def refuse(self) -> None:
        """Raise BadRequest if anything was noted."""
        if self._found:
            raise BadRequest(self._found)


class _Noted:
    def __init__(self, found: list[Invalid]) -> None:
        self._found = found

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Invalid):
            self._found.append(error)
        elif isinstance(error, BadRequest):
            self._found.extend(error.violations)
        else:
            return False
        return True
