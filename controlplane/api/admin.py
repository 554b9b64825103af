"""AdminService: one servicer over handlers that have a duty each. Contract: proto/tidewheel/v1/admin_service.proto.

Who answers what: cluster_reads.py, shard_reads.py, shard_moves.py, placement_rules.py.
"""

from __future__ import annotations

from tidewheel.v1 import admin_service_pb2, admin_service_pb2_grpc

from controlplane.api.calls import Calls
from controlplane.api.servicers import Handlers, servicer_of

_SERVICE = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
SERVICE = _SERVICE.full_name


def admin_servicer(calls: Calls, *parts: Handlers) -> admin_service_pb2_grpc.AdminServiceServicer:
    """A servicer that answers each method with the handler of its name; what no part answers is UNIMPLEMENTED."""
    made: admin_service_pb2_grpc.AdminServiceServicer = servicer_of(
        admin_service_pb2_grpc.AdminServiceServicer, _SERVICE, calls, *parts
    )
    return made
