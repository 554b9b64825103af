"""Errors, named by what the caller should do next (one class per consequence).

Everything that crosses a room's border raises one of these; `controlplane/api/status.py` maps each to one gRPC code.
"""

from __future__ import annotations


class TidewheelError(Exception):
    """Root of every error that the product raises on purpose."""


class Invalid(TidewheelError):
    """The caller's input breaks a rule; nothing was changed. `field` is the path of the input at fault."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class NotFound(TidewheelError):
    """The thing is not in the caller's namespace. `kind` is the thing's word, `name` what was asked for."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} not found")
        self.kind = kind
        self.name = name


class Conflict(TidewheelError):
    """The request is sound, but the present state refuses it; nothing was changed."""

    def __init__(self, reason: str, *, field: str = "") -> None:
        super().__init__(reason)
        self.field = field


class AlreadyExists(Conflict):
    """A thing of that name is already there."""


class StaleEtag(Conflict):
    """The caller's etag is not that of the present version: read again, then decide."""


class StaleCount(Conflict):
    """The count that the caller agreed to is no longer right: look again, then decide."""


class RequestReused(Conflict):
    """A request id came back with another body than the first time."""


class Unavailable(TidewheelError):
    """Certainly not applied: try again later."""


class OutcomeUnknown(TidewheelError):
    """A write whose answer was lost: it may have happened, now or a little later.

    Never settle this by a plain read. Run the idempotent write again, or bump the fence.
    """


class FenceLost(TidewheelError):
    """A re-read by key shows that this process no longer holds (shard, term): drop that term at once."""

    def __init__(self, shard: int, term: int) -> None:
        super().__init__(f"term {term} of shard {shard} is no longer held")
        self.shard = shard
        self.term = term


class InvariantBroken(TidewheelError):
    """Something that cannot be: the component stops rather than go on from a state it does not understand."""
