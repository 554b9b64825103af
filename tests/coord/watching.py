"""Watching and writing as the tests of this room do: every event into a list, every write until it is there."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from core.coord.client import EtcdClient
from core.coord.records import Event
from core.errors import OutcomeUnknown, Unavailable


async def collect(client: EtcdClient, prefix: str, start_revision: int, into: list[Event]) -> None:
    """Append every event to `into`, for ever."""
    async with aclosing(client.watch(prefix, start_revision)) as batches:
        async for batch in batches:
            into.extend(batch.events)


async def fill(client: EtcdClient, prefix: str, count: int, value: bytes = b"") -> list[str]:
    """Write so many keys, one revision each; their names in order."""
    keys = [f"{prefix}{number:05}" for number in range(count)]
    for start in range(0, count, 100):
        await asyncio.gather(*(client.put(key, value) for key in keys[start : start + 100]))
    return keys


async def write_through(client: EtcdClient, key: str) -> None:
    """Write a key of its own until it is there for certain: a repeat of this write changes nothing that is watched."""
    while True:
        try:
            if (await client.get(key)).first is None:
                await client.put(key, b"")
            return
        except (Unavailable, OutcomeUnknown):
            continue
