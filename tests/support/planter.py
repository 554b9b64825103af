"""Plants defects into the running code: replaces a piece of a statement's text, or a function."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import text

import core.store
from core.store.statement import STATEMENTS, Statement

Setter = Callable[[Any, str, Any], None]


class Planter:
    """Replaces what it is told to, by `put` (setattr; a test gives one that puts everything back)."""

    def __init__(self, put: Setter = setattr) -> None:
        self.put = put

    def sql(self, name: str, old: str, new: str) -> None:
        """In the statement of that name, a piece of its text by another."""
        assert old in STATEMENTS[name].sql, f"the statement {name} has no {old!r} any more"
        self._change(old, new, lambda found: found.name == name)

    def every_sql(self, old: str, new: str) -> None:
        """In each statement of the store that has it, a piece of its text by another."""
        self._change(old, new, lambda found: old in found.sql)

    def _change(self, old: str, new: str, wanted: Callable[[Statement], bool]) -> None:
        """Where a statement is imported by other modules, in those too."""
        count = 0
        for info in pkgutil.iter_modules(core.store.__path__):
            module = importlib.import_module(f"core.store.{info.name}")
            for name, found in list(vars(module).items()):
                if isinstance(found, Statement) and old in found.sql and wanted(found):
                    changed = found.sql.replace(old, new)
                    self.put(module, name, replace(found, sql=changed, clause=text(changed)))
                    count += 1
        assert count, f"no statement has {old!r} any more"


Defect = Callable[[Planter], None]


def by_name(*defects: Defect) -> dict[str, Defect]:
    """Defects by the names of their functions."""
    return {defect.__name__: defect for defect in defects}
