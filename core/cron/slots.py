"""`H`: a stable slot per key, so that many jobs with the same line spread instead of starting together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from core.errors import Invalid

_SLOT = re.compile(r"(?:^|[\s,])h(?=$|[\s,(/])", re.IGNORECASE)


def uses_slots(line: str) -> bool:
    """Whether a cron line has an `H` in it, so that its times hang on a key."""
    return _SLOT.search(line) is not None


@dataclass(frozen=True, slots=True)
class Slots:
    """Draws the slots of one key. The same key, field and bounds always give the same value, on every node."""

    key: str | None

    def pick(self, field_name: str, low: int, high: int, path: str) -> int:
        """A value in [low, high]."""
        if not self.key:
            raise Invalid(path, "H needs a hash_key, which chooses the slot")
        digest = sha256(f"{self.key}\0{field_name}".encode()).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)
