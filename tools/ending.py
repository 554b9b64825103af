"""Being told to end: the signals that ask a program of ours to stop everything it started. For `dev` and the demo."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Told(BaseException):
    """A signal asked us to end."""


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Whatever asks us to end raises Told in the main thread, so that everything that was started is stopped.

    Once: stopping is bounded, and must not be left half done because somebody is impatient.
    """

    def tell(number: int, frame: object) -> None:
        for ending in ENDING_SIGNALS:
            signal.signal(ending, signal.SIG_IGN)
        raise Told(signal.Signals(number).name)

    before = {number: signal.signal(number, tell) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Asked:
    """Whether somebody asked us to end. For loops that look at it often and end by themselves."""

    def __init__(self) -> None:
        self.told = False


@contextmanager
def noting_signals() -> Iterator[Asked]:
    """Within it, what asks us to end is only noted; what comes after that is ignored for good."""
    asked = Asked()

    def note(number: int, frame: object) -> None:
        asked.told = True
        for ending in ENDING_SIGNALS:
            signal.signal(ending, signal.SIG_IGN)

    before = {number: signal.signal(number, note) for number in ENDING_SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items() if not asked.told else ():
            signal.signal(number, handler)
