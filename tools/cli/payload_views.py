"""How bytes of a payload, a result or a progress report are shown to people: as text where they are text."""

from __future__ import annotations

from tools.cli.plain_text import cut, one_line

LONGEST = 400


def payload_text(data: bytes, media_type: str) -> str:
    """The bytes as text on one line, cut at LONGEST; the size and type where they are none."""
    if not data:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{len(data):,} bytes of {media_type or 'unknown type'}"
    shown = cut(one_line(text), LONGEST)
    return f"{shown} ({len(data):,} bytes)" if len(text) > LONGEST else shown
