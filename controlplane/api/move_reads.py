"""AdminService's GetMove and ListMoves: the account of planned moves."""

from __future__ import annotations

from tidewheel.v1 import admin_service_pb2

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Origin
from controlplane.api.placement_views import encode_move
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from core.store.moves import Moves


class MoveReads:
    """Looks moves up."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {"GetMove": self.get, "ListMoves": self.list_moves}

    async def get(self, request: admin_service_pb2.GetMoveRequest, origin: Origin) -> admin_service_pb2.Move:
        """One move."""
        return encode_move(await self._moves.get(fields.uuid(request.move_id, "move_id")))

    async def list_moves(
        self, request: admin_service_pb2.ListMovesRequest, origin: Origin
    ) -> admin_service_pb2.ListMovesResponse:
        """Newest first."""
        shard = request.shard if request.HasField("shard") else None
        listing = (origin.method, shard, request.open_only)
        size, after = page_tokens.page(request, listing, Violations(), (int, str), page_tokens.instant_and_id)
        page = await self._moves.page(after=after, size=size, shard=shard, open_only=request.open_only)
        return admin_service_pb2.ListMovesResponse(
            moves=[encode_move(each) for each in page.moves],
            next_page_token=page_tokens.following(listing, page.more_after),
        )
