"""The Coord port: who is alive, who should own what, who says it does, and who leads.

Dispatchers and control plane see these Protocols only; coord.py implements them over etcd. All reads are local: the
last state known, also while etcd cannot be reached, since owners go on until SQL fences them. All wake-ups are hints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from core.coord.layout import LeaderInfo, Member, Owner, Plan
from core.tasks import Wake


class Leadership(Protocol):
    """One tenure as the leader. Look at `valid` before acting; `lost` is set soon after any doubt."""

    @property
    def lost(self) -> asyncio.Event: ...

    @property
    def valid(self) -> bool: ...

    @property
    def term_revision(self) -> int:
        """Grows from leader to leader, as long as etcd is not restored or emptied."""
        ...


class CoordView(Protocol):
    """What every process may see."""

    @property
    def synced(self) -> bool:
        """Whether etcd was read at least once; until then the views are empty and mean nothing."""
        ...

    @property
    def reachable(self) -> bool:
        """Whether etcd answered lately."""
        ...

    @property
    def resets(self) -> int:
        """How often etcd was found restored or emptied; a growth means: re-check everything against SQL."""
        ...

    def members(self) -> Mapping[str, Member]:
        """Live dispatchers by id."""
        ...

    def owners(self) -> Mapping[int, Owner]:
        """Published ownership by shard. Advice: the truth is the term row in SQL."""
        ...

    def plan(self) -> Plan | None:
        """The leader's present plan."""
        ...

    def leader(self) -> LeaderInfo | None:
        """Who leads, as far as is known."""
        ...

    def subscribe(self, wake: Wake) -> None:
        """Have `wake` set at every change of anything above, and of the session."""
        ...

    def unsubscribe(self, wake: Wake) -> None:
        """End that."""
        ...


class DispatcherCoord(CoordView, Protocol):
    """What a dispatcher does. Nothing here waits for etcd: wishes are kept, and written as soon as it answers."""

    @property
    def session_held(self) -> bool:
        """Whether this process's lease is alive for certain; without it, go on until fenced, but expect takeovers."""
        ...

    @property
    def session_losses(self) -> int:
        """How many leases were lost since the start."""
        ...

    def register(self, member: Member) -> None:
        """Appear among the members, now and after every loss of the lease or the store."""
        ...

    def withdraw(self, dispatcher_id: str) -> None:
        """Disappear from the members."""
        ...

    def publish_owner(self, owner: Owner) -> None:
        """Show a term whose claim has committed in SQL. Never replaces another process's newer term."""
        ...

    def withdraw_owner(self, shard: int) -> None:
        """Stop showing that term; another process's entry for the shard is left alone."""
        ...

    async def settled(self) -> None:
        """Wait until etcd holds all of that."""
        ...


class LeaderCoord(CoordView, Protocol):
    """What a control plane replica does."""

    @property
    def server_version(self) -> str:
        """The version of the etcd that answered first; empty until one did."""
        ...

    async def campaign(self, info: LeaderInfo) -> Leadership:
        """Wait until this replica leads, through any outage of etcd."""
        ...

    async def resign(self, leadership: Leadership) -> None:
        """Stop leading, so that the next one need not wait for the lease."""
        ...

    async def write_plan(self, leadership: Leadership, plan: Plan) -> None:
        """Write the plan, as the leader only.

        Raises LeadershipLost when another leads, Conflict when the stored plan's version is not below this one's,
        Unavailable when it was certainly not written, OutcomeUnknown when it may have been.
        """
        ...


class Coord(DispatcherCoord, LeaderCoord, Protocol):
    """Everything, and its life."""

    def start(self) -> None:
        """Begin; never waits for etcd."""
        ...

    async def ready(self) -> None:
        """Wait until etcd was read once and the lease is held, however long that takes."""
        ...

    async def close(self) -> None:
        """Revoke the lease, so that what hangs on it vanishes at once, and close the connections."""
        ...
