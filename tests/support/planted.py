"""Defects for the test of the checker: each is planted into the running code, and a history must show it.

plant("no_term_check", Planter())           # in a process of its own: tests/support/planted_process.py
plant("no_term_check", Planter(monkeypatch.setattr))

The product has no switch for any of them. What they are: statement_defects.py, dispatcher_defects.py.
"""

from __future__ import annotations

from tests.support import dispatcher_defects, statement_defects
from tests.support.planter import Planter

DEFECTS = {**statement_defects.DEFECTS, **dispatcher_defects.DEFECTS}


def plant(name: str, planter: Planter) -> None:
    """Plant one defect; an unknown name is a KeyError."""
    DEFECTS[name](planter)
