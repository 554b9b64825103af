"""Words for the values of enums: what callers write becomes the number. Called by schedules.py and policies.py."""

from __future__ import annotations

from typing import Any


def member(argument: str, enum: Any, prefix: str, word: str) -> Any:
    """The enum's value that `word` names. ValueError, with the words there are, for another one."""
    name = f"{prefix}_{word.upper()}"
    choices = [key for key in enum.keys() if not key.endswith("_UNSPECIFIED")]  # noqa: SIM118  # no mapping
    if name not in choices:
        words = ", ".join(repr(key.removeprefix(f"{prefix}_").lower()) for key in choices)
        raise ValueError(f"{argument}: must be one of {words}, not {word!r}")
    return enum.Value(name)
