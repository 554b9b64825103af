"""JobService.TriggerJob: one run now, beside the schedule."""

from __future__ import annotations

from tidewheel.v1 import job_service_pb2, run_pb2

from controlplane.api import fields
from controlplane.api.calls import Calls, Origin
from controlplane.api.naming import faults_of_name
from controlplane.api.run_views import RunViews
from controlplane.hints import HintSink
from core.civil import DAY_S
from core.clock import US_PER_S
from core.errors import Invalid
from core.jobspec import check_payload
from core.store.run_changes import RunChanges, Trigger

_MAX_DELAY_US = 366 * DAY_S * US_PER_S


class Triggers:
    """Makes runs on request."""

    def __init__(self, calls: Calls, changes: RunChanges, views: RunViews, hints: HintSink) -> None:
        self._calls = calls
        self._changes = changes
        self._views = views
        self._hints = hints

    async def trigger(self, request: job_service_pb2.TriggerJobRequest, origin: Origin) -> run_pb2.Run:
        """The run that the request made, now or the first time it came."""
        faults, delay_us = faults_of_name(request.namespace, request.name), 0
        with faults.noted():
            check_payload(request.payload)
        with faults.noted():
            delay_us = _delay_us(request)
        call = self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)
        payload = request.payload if request.HasField("payload") else None
        wish = Trigger(request.name, payload, delay_us, request.allow_overlap)
        changed = await self._changes.trigger(call, wish, self._views.rendered)
        if changed.shard is not None:
            self._hints.landed(changed.shard)
        return run_pb2.Run.FromString(changed.answer)


def _delay_us(request: job_service_pb2.TriggerJobRequest) -> int:
    delay_us = fields.duration_us(request.delay, "delay")
    if delay_us > _MAX_DELAY_US:
        raise Invalid("delay", "must lie within 0 s and 366 days")
    return delay_us
