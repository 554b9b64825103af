"""What the linter reports: one line a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule. `where` names the statement, the migration or the place in a source file."""

    where: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: rule {self.rule}: {self.text}"
