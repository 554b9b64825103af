"""OperationService: looks at operations, cancels them. The contract is proto/tidewheel/v1/operation_service.proto."""

from __future__ import annotations

from typing import Any

import grpc
from tidewheel.v1 import operation_pb2, operation_service_pb2, operation_service_pb2_grpc

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Calls, Origin
from controlplane.api.naming import faults_of_namespace
from controlplane.api.operation_views import OperationViews, encode_operation
from core.jobspec import check_namespace
from core.store.operations import Operations

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "tidewheel.v1.OperationService"


class OperationServicer(operation_service_pb2_grpc.OperationServiceServicer):
    """Decodes, calls the store, encodes."""

    def __init__(self, calls: Calls, operations: Operations, views: OperationViews) -> None:
        self._calls = calls
        self._operations = operations
        self._views = views

    async def GetOperation(
        self, request: operation_service_pb2.GetOperationRequest, context: Context
    ) -> operation_pb2.Operation:
        return await self._calls.answer(f"/{SERVICE}/GetOperation", request, context, self._get)

    async def ListOperations(
        self, request: operation_service_pb2.ListOperationsRequest, context: Context
    ) -> operation_service_pb2.ListOperationsResponse:
        return await self._calls.answer(f"/{SERVICE}/ListOperations", request, context, self._list)

    async def CancelOperation(
        self, request: operation_service_pb2.CancelOperationRequest, context: Context
    ) -> operation_pb2.Operation:
        return await self._calls.answer(f"/{SERVICE}/CancelOperation", request, context, self._cancel)

    async def _get(self, request: operation_service_pb2.GetOperationRequest, origin: Origin) -> operation_pb2.Operation:
        namespace = check_namespace(request.namespace)
        operation_id = fields.uuid(request.operation_id, "operation_id")
        return encode_operation(await self._operations.get(namespace, operation_id))

    async def _list(
        self, request: operation_service_pb2.ListOperationsRequest, origin: Origin
    ) -> operation_service_pb2.ListOperationsResponse:
        faults = faults_of_namespace(request.namespace)
        listing = (origin.method, request.namespace or "default")
        size, after = page_tokens.page(request, listing, faults, (int, str), page_tokens.instant_and_id)
        page = await self._operations.page(request.namespace or "default", after=after, size=size)
        return operation_service_pb2.ListOperationsResponse(
            operations=[encode_operation(each) for each in page.operations],
            next_page_token=page_tokens.following(listing, page.more_after),
        )

    async def _cancel(
        self, request: operation_service_pb2.CancelOperationRequest, origin: Origin
    ) -> operation_pb2.Operation:
        faults, operation_id = faults_of_namespace(request.namespace), None
        with faults.noted():
            operation_id = fields.uuid(request.operation_id, "operation_id")
        call = self._calls.mutation(origin, request, faults, namespace=request.namespace, note=request.note)
        assert operation_id is not None, "nothing was wrong"
        answer = await self._operations.cancel(
            call, operation_id, lambda operation: encode_operation(operation).SerializeToString()
        )
        return await self._views.begun(operation_pb2.Operation.FromString(answer))
