"""Who wants to hear of a change: callbacks, added and removed, called in the order of their coming."""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[], None]


class Listeners:
    """A set of callbacks. They run at once, so they only set flags and wake-ups."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Listener:
        """Have `listener` called from now on; the result, when called, ends that."""
        self._listeners.append(listener)

        def forget() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return forget

    def tell(self) -> None:
        """Call everybody."""
        for listener in tuple(self._listeners):
            listener()
