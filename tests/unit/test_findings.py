"""What is wrong with the terms of a shard, and that every kind of finding is told of everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidewheel.v1 import admin_service_pb2

from controlplane.reconciler import REPAIRS, WORDS
from core.buckets import NO_END
from core.fence import TermRow
from core.findings import RULES, Finding, FindingKind, Repair, faults_of_terms
from core.states import TermState

ROOT = Path(__file__).parents[2]


def term(number: int, begin: int, end: int = NO_END, state: TermState = TermState.OPEN) -> TermRow:
    return TermRow(0, number, begin, end, "a", state)


CLOSED, VOID = TermState.CLOSED, TermState.VOID


@pytest.mark.parametrize(
    ("terms", "fault"),
    [
        ([], ""),
        ([term(1, 0)], ""),
        ([term(1, 0, 7, CLOSED), term(2, 7, 9), term(3, 9, NO_END, VOID), term(4, 9)], ""),
        ([term(1, 0, 7, CLOSED), term(2, 8)], "nobody's: buckets [7, 8)"),
        ([term(1, 0, 9, CLOSED), term(2, 8)], "twice: buckets [8, 9)"),
        ([term(1, 0), term(2, 8)], "twice"),
        ([term(1, 0, 7)], "nobody's: every bucket from 7 on"),
        ([term(1, 0, NO_END, CLOSED)], "no term is open"),
    ],
)
def test_terms_tile_time_and_their_end_is_open(terms: list[TermRow], fault: str) -> None:
    faults = faults_of_terms(terms)
    assert bool(faults) is bool(fault)
    assert fault in "; ".join(faults)


def test_every_kind_has_a_rule_or_none_and_is_told_of() -> None:
    assert RULES.keys() == WORDS.keys() == set(FindingKind)
    assert REPAIRS.keys() == set(Repair)
    sent = {name for name in admin_service_pb2.FindingKind.keys() if not name.endswith("UNSPECIFIED")}  # noqa: SIM118
    assert sent == {f"FINDING_KIND_{kind.name}" for kind in FindingKind}
    page = (ROOT / "docs/reconciler.md").read_text()
    missing = [kind.name for kind in FindingKind if f"| {kind.name.lower().replace('_', ' ')} |" not in page]
    assert missing == []


def test_a_finding_is_settled_or_left_with_its_reason() -> None:
    found = Finding(FindingKind.TERMS_DO_NOT_TILE, 3, "shard 3", "why")
    assert found.rule is None
    assert (found.settled("done").repaired, found.left("no rule").how) == (True, "no rule")
