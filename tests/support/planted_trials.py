"""How the checker is tried on a planted defect: the same play runs with it and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

from tests.support.history import Violation, report
from tests.support.history_check import names
from tests.support.planted import plant
from tests.support.planter import Planter

Play = TypeVar("Play")


@dataclass(frozen=True, slots=True)
class Trial(Generic[Play]):
    """A play, and the invariant that its history breaks where the defect is planted."""

    defect: str
    play: Play
    invariant: str
    planted: bool

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Until the test has ended."""
        if self.planted:
            plant(self.defect, Planter(monkeypatch.setattr))

    def check(self, found: list[Violation]) -> None:
        """With the defect the history breaks the invariant, without it none."""
        assert (self.invariant in names(found)) is self.planted, report(found)
        assert self.planted or not found, report(found)


def trials_of(cases: Sequence[tuple[str, Play, str]]) -> pytest.MarkDecorator:
    """For a test of one `trial`: defects, plays and invariants, each planted and sound."""
    trials = [Trial(*case, planted) for case in cases for planted in (True, False)]
    ids = [f"{trial.defect}-{'planted' if trial.planted else 'sound'}" for trial in trials]
    return pytest.mark.parametrize("trial", trials, ids=ids)
