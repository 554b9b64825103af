"""The Rand port: the only place where the product draws a random value."""

from __future__ import annotations

import random
import secrets
import uuid
from typing import Protocol


class Rand(Protocol):
    """Randomness as the product uses it; tests pass a seeded one."""

    def uuid(self) -> uuid.UUID:
        """A fresh version 4 UUID."""
        ...

    def token(self, size: int = 32) -> bytes:
        """`size` unguessable bytes, for attempt tokens."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high], for jitter of waits."""
        ...


class SystemRand:
    """The operating system's randomness."""

    def __init__(self) -> None:
        self._waits = random.Random()  # noqa: S311 - spreads waits, protects nothing

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def token(self, size: int = 32) -> bytes:
        return secrets.token_bytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._waits.uniform(low, high)


class SeededRand:
    """Repeatable randomness for tests and simulations: the same seed draws the same values in the same order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._random.randbytes(16), version=4)

    def token(self, size: int = 32) -> bytes:
        return self._random.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
