"""Every unary call goes through here: limits, unknown fields, the caller's trace, errors to statuses, counting.

Servicers hand over what they would do; nothing they raise leaves in any other shape than a status of status.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from controlplane.api import fields
from controlplane.api.status import DETAILS_TRAILER, Overloaded, Refusal, internal_refusal, refusal_of
from controlplane.api.violations import Violations
from controlplane.seams import CallTracing, ControlPlaneMetrics
from core.clock import Clock
from core.errors import TidewheelError, Unavailable
from core.rand import Rand
from core.store.audit import Call
from core.store.moves import CLUSTER_NAMESPACE
from core.store.requests import RequestKey, own_request_id
from core.telemetry.run_traces import TraceContext, parse_traceparent

log = logging.getLogger(__name__)
Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer")

# Until callers prove who they are, the record says so.
_UNKNOWN_ACTOR = "unauthenticated"
_TRACE_HEADER = "traceparent"
# Set by a replica that passes a call on to the leader.
FORWARDED_HEADER = "tidewheel-forwarded"


class Change(Protocol):
    """The request of a call that is to change something."""

    request_id: str

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...


class ClusterChange(Change, Protocol):
    """The request of a call that is to change something of the whole cluster."""

    reason: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call came from: `trace` is the traceparent that what it makes is linked to.

    `forwarded`: by another replica, which took this one for the leader.
    """

    method: str
    trace: str
    forwarded: bool = False


class Gate:
    """Whether calls are taken at all: closed, with the reason, until the process has all that it needs."""

    def __init__(self, closed_because: str) -> None:
        self.closed_because = closed_because

    def open(self) -> None:
        self.closed_because = ""


class Calls:
    """Carries out unary calls of the API."""

    def __init__(
        self, gate: Gate, clock: Clock, rand: Rand, metrics: ControlPlaneMetrics, tracing: CallTracing, limit: int
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._rand = rand
        self._metrics = metrics
        self._tracing = tracing
        self._limit = limit
        self._under_way = 0

    async def answer(
        self,
        method: str,
        request: Request,
        context: grpc.aio.ServicerContext[Any, Any],
        handle: Callable[[Request, Origin], Awaitable[Answer]],
    ) -> Answer:
        """What `handle` answers; `method` is the full name, "/package.Service/Method"."""
        began_us, began_s = self._clock.now_us(), self._clock.monotonic_s()
        metadata = list(context.invocation_metadata() or ())
        parent = _parent(metadata)
        here = self._here(parent)
        code = grpc.StatusCode.OK
        self._under_way += 1
        try:
            # Without an exporter our own span would be a link to nothing: the caller's is the one to keep.
            kept = here if self._tracing.enabled or parent is None else parent
            forwarded = any(key == FORWARDED_HEADER for key, _ in metadata)
            return await self._attempt(request, Origin(method, kept.traceparent, forwarded), handle)
        except TidewheelError as error:
            refusal = refusal_of(error) or self._defect(method, error)
            code = refusal.code
            await _abort(context, refusal)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            refusal = self._defect(method, error)
            code = refusal.code
            await _abort(context, refusal)
        finally:
            self._under_way -= 1
            self._metrics.call_ended(method, code.name, self._clock.monotonic_s() - began_s)
            if self._tracing.enabled:
                flawed = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
                name = method.removeprefix("/")
                self._tracing.record_call(here, parent, name, began_us, self._clock.now_us(), code.name, flawed)

    async def _attempt(
        self, request: Request, origin: Origin, handle: Callable[[Request, Origin], Awaitable[Answer]]
    ) -> Answer:
        if self._under_way > self._limit:
            raise Overloaded(f"{self._limit} calls are under way at this replica already")
        if self._gate.closed_because:
            raise Unavailable(self._gate.closed_because)
        fields.refuse_unknown(request)
        return await handle(request, origin)

    def mutation(self, origin: Origin, request: Change, faults: Violations, *, namespace: str, note: str) -> Call:
        """The record of a call that is to change something in `namespace`, "" being the default one.

        The last step of decoding: raises BadRequest with every fault that was noted before, or is found here.
        """
        return self._recorded(origin, request, faults, namespace or "default", "note", note)

    def cluster_mutation(self, origin: Origin, request: ClusterChange, faults: Violations) -> Call:
        """The record of a call that is to change something of the whole cluster; its `reason` must be given.

        The last step of decoding, as above.
        """
        if not request.reason.strip():
            faults.add("reason", "must say why: it stands in the audit")
        return self._recorded(origin, request, faults, CLUSTER_NAMESPACE, "reason", request.reason)

    def _recorded(
        self, origin: Origin, request: Change, faults: Violations, namespace: str, note_field: str, note: str
    ) -> Call:
        request_id = ""
        with faults.noted():
            fields.note(note, note_field)
            request_id = fields.request_id(request.request_id)
        faults.refuse()
        body = request.SerializeToString(deterministic=True)
        key = RequestKey(
            namespace,
            request_id or own_request_id(self._rand),
            origin.method,
            blake2b(body, digest_size=32, person=b"tw-request").digest(),
        )
        return Call(key, self._rand.uuid(), _UNKNOWN_ACTOR, note, origin.trace)

    def _here(self, parent: TraceContext | None) -> TraceContext:
        span_id = int.from_bytes(self._rand.token(8), "big") or 1
        if parent is not None:
            return TraceContext(parent.trace_id, span_id, parent.sampled)
        return TraceContext(int.from_bytes(self._rand.token(16), "big") or 1, span_id, True)

    def _defect(self, method: str, error: Exception) -> Refusal:
        reference = self._rand.uuid().hex[:12]
        log.error("%s failed (%s)", method, reference, exc_info=error)
        return internal_refusal(reference)


def _parent(metadata: Iterable[tuple[str, str | bytes]]) -> TraceContext | None:
    for key, value in metadata:
        if key == _TRACE_HEADER and isinstance(value, str):
            return parse_traceparent(value)
    return None


async def _abort(context: grpc.aio.ServicerContext[Any, Any], refusal: Refusal) -> NoReturn:
    await context.abort(refusal.code, refusal.message, ((DETAILS_TRAILER, refusal.details),))
    raise AssertionError("unreachable: abort raises")
