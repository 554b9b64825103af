"""How long the processor works on something, for tests that a search is bounded: other work on the machine, and its
standing still, must not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5


def least_ms(work: Callable[[], object]) -> float:
    """The least of a few tries, in milliseconds of this thread's own time.

    A bound on it is ten times the figure: it tells a bounded search from one that is not, on a slow machine too.
    """
    took_ns = []
    for _ in range(TRIES):
        began_ns = time.thread_time_ns()
        work()
        took_ns.append(time.thread_time_ns() - began_ns)
    return min(took_ns) / 1e6
