"""Puts a service together from handlers that have a duty each, every one of them answered through Calls.

Called by jobs.py and admin.py. A handler takes the request and its Origin; its module hands it over by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from controlplane.api.calls import Calls, Origin

Handler = Callable[[Any, Origin], Awaitable[Any]]
Handlers = Mapping[str, Handler]


def servicer_of(base: Any, service: ServiceDescriptor, calls: Calls, *parts: Handlers) -> Any:
    """An instance of `base`, a generated servicer: each method is answered by the handler of its name.

    What no part answers is UNIMPLEMENTED.
    Raises ValueError for a handler whose method the service does not have.
    """
    methods = {name: _answering(calls, f"/{service.full_name}/{name}", h) for part in parts for name, h in part.items()}
    unknown = methods.keys() - {method.name for method in service.methods}
    if unknown:
        raise ValueError(f"{service.full_name} has no method {min(unknown)}")
    return type(base.__name__, (base,), methods)()


def _answering(calls: Calls, method: str, handle: Handler) -> Callable[..., Awaitable[Any]]:
    async def answer(servicer: object, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await calls.answer(method, request, context, handle)

    return answer
