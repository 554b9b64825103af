"""Every exception of the SDK, named by what the caller should do next. Imports nothing but the standard library."""

from __future__ import annotations

from dataclasses import dataclass


class TidewheelError(Exception):
    """Root of the errors that calls to a control plane raise."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field at fault: its path from the request's root (`job.schedule.cron[0]`), and the rule that it breaks."""

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"


class InvalidArgument(TidewheelError):
    """The request breaks a rule and changed nothing. `violations` name each field at fault."""

    def __init__(self, message: str, violations: tuple[FieldViolation, ...] = ()) -> None:
        super().__init__("; ".join(map(str, violations)) or message)
        self.violations = violations


class NotFound(TidewheelError):
    """The named job or run does not exist in the namespace."""


class Conflict(TidewheelError):
    """The request is sound, but the present state refuses it; nothing was changed."""


class AlreadyExists(Conflict):
    """The name is taken, or the request id came back with another body than the first time."""


class StaleEtag(Conflict):
    """Somebody else changed the job since its etag was read: read again, then decide."""


class Unavailable(TidewheelError):
    """No control plane gave an answer in time.

    A change may or may not have been applied: call again with the same `request_id`, which does it at most once.
    """

    def __init__(self, message: str, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class CallFailed(TidewheelError):
    """Any other refusal; `code` is the name of the gRPC status code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class WorkerRefused(TidewheelError):
    """Every dispatcher refuses this worker's registration: `field` of Hello breaks `rule`."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class NotRetryable(Exception):
    """Raised by a handler: the run ends FAILED, whatever attempts are left."""


class Cancelled(Exception):
    """Raised in a handler by `RunContext.raise_if_cancelled()`: it was told to stop, and does."""
