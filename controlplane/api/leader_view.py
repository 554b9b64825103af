"""What only the leader knows, for AdminService on any replica: its own picture, or the way to the replica that leads.

A call that the leader alone can answer in full is carried to it, at most one step: a replica that is taken for the
leader and is not says so, and the caller comes again.
"""

from __future__ import annotations

from typing import Any

import grpc
from tidewheel.v1 import admin_service_pb2_grpc

from controlplane.api.calls import FORWARDED_HEADER, Origin
from controlplane.api.status import DETAILS_TRAILER, Refusal, RefusedByLeader
from controlplane.leader import Seat
from controlplane.membership import Load
from controlplane.picture import Picture
from controlplane.placement_requests import NotLeading
from core.coord.ports import CoordView
from core.errors import Unavailable

_TIMEOUT_S = 3.0
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class LeaderView:
    """This replica's picture while it leads; forwards calls over a channel that is opened for each: they are rare."""

    def __init__(self, seat: Seat, coord: CoordView) -> None:
        self._seat = seat
        self._coord = coord

    @property
    def picture(self) -> Picture | None:
        """What the leader knows; None where this replica does not lead, or has not looked yet."""
        return self._seat.picture

    def reported(self, dispatcher_id: str) -> Load | None:
        """What a dispatcher last reported to this replica while it leads, or None."""
        membership = self._seat.membership
        return None if membership is None else membership.load_of(dispatcher_id)

    async def forward(self, request: Any, origin: Origin) -> Any:
        """The leader's answer to the same request.

        Raises NotLeading when nobody leads or the call was forwarded before, Unavailable when the leader cannot be
        asked, RefusedByLeader with what the leader said when it refused.
        """
        leader = self._coord.leader()
        if origin.forwarded or leader is None:
            raise NotLeading("" if leader is None else leader.address)
        async with grpc.aio.insecure_channel(leader.address) as channel:
            method = origin.method.rpartition("/")[2]
            call = getattr(admin_service_pb2_grpc.AdminServiceStub(channel), method)
            try:
                return await call(request, timeout=_TIMEOUT_S, metadata=((FORWARDED_HEADER, "1"),))
            except grpc.aio.AioRpcError as error:
                if error.code() in _UNREACHABLE:
                    raise Unavailable(f"the leader at {leader.address} did not answer: {error.details()}") from error
                raise RefusedByLeader(_refusal(error)) from error

    async def answer(self, request: Any, origin: Origin) -> Any | None:
        """The leader's answer, or None where this replica has the picture or the leader cannot be asked.

        The caller then answers with what it knows itself.
        """
        if self.picture is not None:
            return None
        try:
            return await self.forward(request, origin)
        except Unavailable:
            return None


def _refusal(error: grpc.aio.AioRpcError) -> Refusal:
    trailers = {key: value for key, value in (error.trailing_metadata() or ()) if isinstance(value, bytes)}
    return Refusal(error.code(), error.details() or "", trailers.get(DETAILS_TRAILER, b""))
