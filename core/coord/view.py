"""The documents of one cluster, decoded from the mirror, each once. What cannot be read is logged and skipped.

Called by coord.py. Never writes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from core.coord.layout import Document, Layout, LeaderInfo, Member, Owner, Plan
from core.coord.mirror import Mirror, Snapshot
from core.coord.records import KeyValue
from core.errors import Invalid

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that etcd holds about a cluster, as of one revision."""

    members: dict[str, Member] = field(default_factory=dict)
    owners: dict[int, Owner] = field(default_factory=dict)
    plan: Plan | None = None
    leader: LeaderInfo | None = None


class ViewOfMirror:
    """Keeps the decoded view beside the mirror's snapshot."""

    def __init__(self, mirror: Mirror, layout: Layout) -> None:
        self._mirror = mirror
        self._layout = layout
        self._snapshot: Snapshot | None = None
        self._view = ClusterView()
        self._decoded: dict[str, tuple[KeyValue, Document | None]] = {}

    def now(self) -> ClusterView:
        """The view of the mirror's present snapshot."""
        snapshot = self._mirror.snapshot()
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._decoded = {key: self._decode(kv) for key, kv in snapshot.kvs.items()}
            self._view = self._assemble()
        return self._view

    def _decode(self, kv: KeyValue) -> tuple[KeyValue, Document | None]:
        known = self._decoded.get(kv.key)
        if known is not None and known[0] == kv:
            return known
        try:
            return kv, self._layout.read(kv.key, kv.value)
        except Invalid as error:
            log.warning("skipping %r in etcd: %s", kv.key, error)
            return kv, None

    def _assemble(self) -> ClusterView:
        members: dict[str, Member] = {}
        owners: dict[int, Owner] = {}
        plan: Plan | None = None
        candidates: list[tuple[int, LeaderInfo]] = []
        for kv, document in self._decoded.values():
            match document:
                case Member():
                    members[document.dispatcher_id] = document
                case Owner():
                    owners[document.shard] = document
                case Plan():
                    plan = document
                case LeaderInfo():
                    candidates.append((kv.create_revision, document))
                case None:
                    pass
        leader = min(candidates, key=lambda each: each[0])[1] if candidates else None
        return ClusterView(members=members, owners=owners, plan=plan, leader=leader)
