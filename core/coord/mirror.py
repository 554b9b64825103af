"""A cached view of one prefix: listed at a revision, followed by a watch from the next, audited by listing again.

One per prefix and process. A store that was restored or emptied is noticed: the view is replaced by what is there now,
and subscribers are told. The audit also finds what a watch of an old server lost, which looks the same and is told
likewise. It never writes. Made by coord.py; read by election.py and coord.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType

from core.clock import Clock
from core.coord.client import EtcdClient
from core.coord.faults import Compacted, StoreReplaced
from core.coord.listeners import Listener, Listeners
from core.coord.notice import Notice
from core.coord.records import Event, KeyValue, RangeResult, StorePoint
from core.errors import TidewheelError
from core.tasks import Tasks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every key of the prefix as of one revision. `generation` grows when the store is replaced."""

    revision: int = 0
    generation: int = 0
    kvs: Mapping[str, KeyValue] = field(default_factory=lambda: MappingProxyType({}))


class Mirror:
    """The view, kept up to date by a task in the set that it is given."""

    def __init__(self, client: EtcdClient, prefix: str, clock: Clock, tasks: Tasks, *, audit_s: float = 15.0) -> None:
        self.prefix = prefix
        self._client = client
        self._clock = clock
        self._audit_s = audit_s
        self._audited_s = 0.0
        self._at: StorePoint | None = None
        self._snapshot = Snapshot()
        self._on_change = Listeners()
        self._on_reset = Listeners()
        self._notice = Notice(log, f"following {prefix}")
        self._tasks = tasks
        self._told_replaced = False

    @property
    def synced(self) -> bool:
        """Whether the prefix was listed at least once."""
        return self._at is not None

    def snapshot(self) -> Snapshot:
        """What is known now: the last state seen, also while etcd cannot be reached."""
        return self._snapshot

    def on_change(self, listener: Listener) -> Listener:
        """Have `listener` called after every change of the view, the first list included."""
        return self._on_change.add(listener)

    def on_reset(self, listener: Listener) -> Listener:
        """Have `listener` called after the view was replaced because the store was."""
        return self._on_reset.add(listener)

    def start(self) -> None:
        """Begin to follow; never waits for etcd."""
        self._tasks.spawn(self._run(), name=f"mirror {self.prefix}")

    async def _run(self) -> None:
        backoff = self._client.backoff()
        while True:
            try:
                await self._list()
                backoff.reset()
                await self._follow()
            except Compacted as gone:
                log.warning("watch of %s: %s: compacted, resync", self.prefix, gone)
            except StoreReplaced as replaced:
                log.warning("watch of %s: %s, resync", self.prefix, replaced)
                self._told_replaced = True
            except TidewheelError as error:
                self._notice.failed(error)
                await backoff.wait()

    async def _follow(self) -> None:
        """Apply the watch until the store turns out to be another one."""
        generation = self._snapshot.generation
        async with aclosing(self._client.watch(self.prefix, self._snapshot.revision + 1)) as batches:
            async for batch in batches:
                self._notice.worked()
                self._apply(batch.events)
                due = self._clock.monotonic_s() - self._audited_s >= self._audit_s
                if batch.resumed or due:
                    await self._list()
                if self._snapshot.generation != generation:
                    return

    async def _list(self) -> None:
        """List the prefix and take over what differs."""
        found = await self._client.list_prefix(self.prefix)
        self._audited_s = self._clock.monotonic_s()
        replaced = self._is_replaced(found)
        self._told_replaced = False
        first, self._at = self._at is None, found.at
        if replaced:
            log.warning("etcd under %s was restored or emptied: starting over from what it holds", self.prefix)
        if replaced or first or self._differs(found):
            kvs = MappingProxyType({kv.key: kv for kv in found.kvs})
            generation = self._snapshot.generation + int(replaced)
            self._install(Snapshot(found.at.revision, generation, kvs))
        else:
            self._snapshot = Snapshot(found.at.revision, self._snapshot.generation, self._snapshot.kvs)
        if replaced:
            self._on_reset.tell()

    def _is_replaced(self, found: RangeResult) -> bool:
        """Whether the store is not the one that we followed.

        Linearizable reads of one store never go back, nor does its raft term; and a key last changed at or before the
        revision that we know stands as we know it. (The last one holds even when the new store has overtaken the old.)
        """
        before, now, known = self._at, found.at, self._snapshot
        if before is None:
            return False
        return (
            self._told_replaced
            or now.cluster_id != before.cluster_id
            or now.revision < before.revision
            or now.raft_term < before.raft_term
            or any(kv.mod_revision <= known.revision and known.kvs.get(kv.key) != kv for kv in found.kvs)
        )

    def _differs(self, found: RangeResult) -> bool:
        known = self._snapshot.kvs
        return len(known) != len(found.kvs) or any(known.get(kv.key) != kv for kv in found.kvs)

    def _apply(self, events: tuple[Event, ...]) -> None:
        # A list taken in between is newer than the events that were already on their way.
        fresh = [event for event in events if event.kv.mod_revision > self._snapshot.revision]
        if not fresh:
            return
        kvs = dict(self._snapshot.kvs)
        for event in fresh:
            if event.deleted:
                kvs.pop(event.kv.key, None)
            else:
                kvs[event.kv.key] = event.kv
        self._install(Snapshot(fresh[-1].kv.mod_revision, self._snapshot.generation, MappingProxyType(kvs)))

    def _install(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if self._at is not None:
            revision = max(self._at.revision, snapshot.revision)
            self._at = StorePoint(self._at.cluster_id, revision, self._at.raft_term)
        self._on_change.tell()
