"""Makes text of others safe for a terminal: no escape sequence, no control character, no reordering of letters.

Whatever comes from a server, a job or a file goes through here before it is printed. Pure.
"""

from __future__ import annotations

import re
import unicodedata

# CSI sequences, OSC and its kin with their text up to the terminator, then two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Line breaks of every kind and tabs: in a cell they are one blank.
_BREAKS = re.compile(r"[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_ELLIPSIS = "…"


def one_line(text: str) -> str:
    """`text` without escapes and control characters, line breaks as blanks."""
    return _harmless(_BREAKS.sub(" ", _ESCAPES.sub("", text))).strip()


def lines(text: str) -> list[str]:
    """The lines of `text`, each made harmless; blank ones at the end left out."""
    parts = _ESCAPES.sub("", text).expandtabs().splitlines()
    cleaned = [_harmless(part).rstrip() for part in parts]
    while cleaned and not cleaned[-1]:
        cleaned.pop()
    return cleaned


def cut(text: str, width: int) -> str:
    """`text`, its end replaced by an ellipsis if it has more than `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 1)] + _ELLIPSIS


def _harmless(text: str) -> str:
    # Cc: controls. Cf: invisible formatting, which holds the marks that reorder letters. Cs: lone surrogates.
    return "".join(sign for sign in text if unicodedata.category(sign) not in ("Cc", "Cf", "Cs"))
