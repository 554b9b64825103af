"""Tells what was missed from what only queues here: since when the due loop has been at work without a break. No I/O.

Told by the due loop of every step that came through, read by drafting. A crowd that takes minutes to fire is behind,
and goes as fast as it can; what was due while nobody fired comes back at the pace of its namespace.
"""

from __future__ import annotations

from core.clock import US_PER_S

# The loop comes by several times a second, but for a statement that takes long.
BREAK_US = 30 * US_PER_S


class Presence:
    """`since_us` is when the loop began, or went on after the last break: a freeze, an outage, a jump of the clock."""

    def __init__(self) -> None:
        self.since_us = 0
        self._seen_us: int | None = None

    def went_on(self, now_us: int) -> None:
        """A step came through: what was due is fired, or nothing is due."""
        self.look(now_us)
        self._seen_us = now_us

    def look(self, now_us: int) -> None:
        """Notice a break, if there was one."""
        if self._seen_us is None or now_us - self._seen_us > BREAK_US:
            self.since_us = now_us
