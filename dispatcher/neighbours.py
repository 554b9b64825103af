"""Hints from one dispatcher to another while a shard is in two hands. No loop ever waits for one.

The owner before the boundary tells its successor of rows that it lands there; a target tells the owner before it that
terms have changed, and passes on what the API hinted to it. A hint that is lost costs a tick of the other one's loops.
"""

from __future__ import annotations

from core.coord.ports import CoordView
from core.hint_post import HintPost
from dispatcher.runtime import Memory


class Neighbours:
    """Knows who owns the other range of a shard, and where it takes hints."""

    def __init__(self, dispatcher_id: str, memory: Memory, coord: CoordView, post: HintPost) -> None:
        self._dispatcher_id = dispatcher_id
        self._memory = memory
        self._coord = coord
        self._post = post

    def landed_after(self, shard: int) -> None:
        """A row of ours landed at or above the boundary: it is the successor's to find."""
        handoff = self._memory.handoffs.get(shard)
        if handoff is not None:
            self._put(handoff.after.owner, landed=shard)

    def pass_on(self, shard: int) -> None:
        """Somebody hinted a row to us, the owner that is published: it may be one of the range before ours."""
        handoff = self._memory.handoffs.get(shard)
        if handoff is not None and handoff.after.owner == self._dispatcher_id:
            self._put(handoff.before.owner, landed=shard)

    def changed(self, shard: int, dispatcher_id: str) -> None:
        """The terms of the shard have changed, and that dispatcher should read them now."""
        self._put(dispatcher_id, changed=shard)

    def is_gone(self, dispatcher_id: str) -> bool:
        """Whether etcd no longer lists it, as far as what we see there can be believed."""
        members = self._coord.members()
        believable = self._coord.reachable and self._dispatcher_id in members
        return believable and dispatcher_id not in members

    async def run(self) -> None:
        """Send for ever."""
        await self._post.run()

    def _put(self, dispatcher_id: str, *, landed: int | None = None, changed: int | None = None) -> None:
        address = None if dispatcher_id == self._dispatcher_id else self._post.address_of(dispatcher_id)
        if address is not None:
            self._post.put(
                address,
                landed=() if landed is None else (landed,),
                changed=() if changed is None else (changed,),
            )
