"""Servers that last as long as a fixture does, each in a temporary home of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tools.servers.homes import temporary_home


class Servable(Protocol):
    """One server, or the members of a cluster."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


Made = TypeVar("Made", bound=Servable)


@contextmanager
def started(make: Callable[[Path], Made]) -> Iterator[Made]:
    """What `make` builds in a new home, started; stopped at the end, and its home gone."""
    with temporary_home() as home:
        server = make(home)
        try:
            server.start()
            yield server
        finally:
            server.stop()
