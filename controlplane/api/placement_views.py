"""Moves and placement rules as messages. Pure."""

from __future__ import annotations

from tidewheel.v1 import admin_service_pb2

from controlplane.api.decode_schedule import timestamp
from core.states import MoveCause, MoveState, PlacementRuleKind
from core.store.move_records import MoveRecord
from core.store.placement_rules import PlacementRule

_STATES = {
    MoveState.PENDING: admin_service_pb2.MOVE_STATE_PENDING,
    MoveState.ORDERED: admin_service_pb2.MOVE_STATE_ORDERED,
    MoveState.SPLIT: admin_service_pb2.MOVE_STATE_SPLIT,
    MoveState.COMPLETED: admin_service_pb2.MOVE_STATE_COMPLETED,
    MoveState.ROLLED_BACK: admin_service_pb2.MOVE_STATE_ROLLED_BACK,
}
_CAUSES = {
    MoveCause.OPERATOR: admin_service_pb2.MOVE_CAUSE_OPERATOR,
    MoveCause.REBALANCE: admin_service_pb2.MOVE_CAUSE_REBALANCE,
    MoveCause.DRAIN: admin_service_pb2.MOVE_CAUSE_DRAIN,
}
_KINDS = {
    PlacementRuleKind.FREEZE_ALL: admin_service_pb2.PLACEMENT_RULE_KIND_FREEZE_ALL,
    PlacementRuleKind.FREEZE_SHARD: admin_service_pb2.PLACEMENT_RULE_KIND_FREEZE_SHARD,
    PlacementRuleKind.DRAIN_DISPATCHER: admin_service_pb2.PLACEMENT_RULE_KIND_DRAIN_DISPATCHER,
}


def encode_move(move: MoveRecord) -> admin_service_pb2.Move:
    """A move as a message."""
    message = admin_service_pb2.Move(
        move_id=str(move.move_id),
        shard=move.shard,
        from_dispatcher_id=move.from_owner,
        from_term=move.from_term,
        to_dispatcher_id=move.to_dispatcher,
        cause=_CAUSES[move.cause],
        state=_STATES[move.state],
        new_term=move.new_term,
        author=move.author,
        reason=move.reason,
        request_time=timestamp(move.requested_us),
        error=move.error,
    )
    if move.boundary:
        message.boundary = move.boundary
    for name, instant_us in (
        ("order_time", move.ordered_us),
        ("split_time", move.split_us),
        ("end_time", move.ended_us),
    ):
        if instant_us:
            getattr(message, name).CopyFrom(timestamp(instant_us))
    return message


def encode_rule(rule: PlacementRule) -> admin_service_pb2.PlacementRule:
    """A placement rule as a message."""
    message = admin_service_pb2.PlacementRule(
        kind=_KINDS[rule.kind],
        author=rule.author,
        reason=rule.reason,
        create_time=timestamp(rule.created_us),
    )
    if rule.kind is PlacementRuleKind.FREEZE_SHARD:
        message.shard = int(rule.subject)
    elif rule.kind is PlacementRuleKind.DRAIN_DISPATCHER:
        message.dispatcher_id = rule.subject
    return message
