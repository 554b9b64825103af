"""JobService: one servicer over handlers that have a duty each. Contract: proto/tidewheel/v1/job_service.proto.

Who answers what: job_reads.py, job_edits.py, job_versions.py, triggers.py; the accounts of occurrences and the
operations over many of them have modules of their own. Each hands over its methods by name (`handlers()`).
"""

from __future__ import annotations

from tidewheel.v1 import job_service_pb2, job_service_pb2_grpc

from controlplane.api.calls import Calls
from controlplane.api.servicers import Handlers, servicer_of

_SERVICE = job_service_pb2.DESCRIPTOR.services_by_name["JobService"]
SERVICE = _SERVICE.full_name


def job_servicer(calls: Calls, *parts: Handlers) -> job_service_pb2_grpc.JobServiceServicer:
    """A servicer that answers each method with the handler of its name; what no part answers is UNIMPLEMENTED."""
    made: job_service_pb2_grpc.JobServiceServicer = servicer_of(
        job_service_pb2_grpc.JobServiceServicer, _SERVICE, calls, *parts
    )
    return made
