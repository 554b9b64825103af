"""`placement_rules`: what operators forbid the leader, each rule until it is lifted. Audited in the same statement.

A rule names its subject: nothing for all shards, a shard's number, or a dispatcher's id. The leader reads them all at
every look; whoever adds or lifts one says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from core.clock import Clock
from core.errors import NotFound
from core.states import PlacementRuleKind
from core.store.audit import AUDITED, Call, audited_params
from core.store.database import Database, Transaction
from core.store.requests import ANSWERED, answer, answered_params, once
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

_COLUMNS = "r.kind, r.subject, r.author, r.reason, r.created_us"

_LIST = statement(
    "list_placement_rules",
    Kind.READ,
    f"SELECT {_COLUMNS} FROM placement_rules r ORDER BY r.kind, r.subject",
)
_FIND = statement(
    "find_placement_rule",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM placement_rules r
    WHERE r.kind = CAST(:kind AS SMALLINT) AND r.subject = CAST(:subject AS TEXT)
    """,
)
_ADD = statement(
    "add_placement_rule",
    Kind.WRITE,
    f"""
    WITH changed AS (
      INSERT INTO placement_rules (kind, subject, author, reason, created_us)
      VALUES (CAST(:kind AS SMALLINT), CAST(:subject AS TEXT), CAST(:actor AS TEXT), CAST(:note AS TEXT),
              CAST(:now_us AS BIGINT))
      ON CONFLICT (kind, subject) DO NOTHING
      RETURNING kind
    ), {AUDITED}, {ANSWERED}
    SELECT c.kind FROM changed c
    """,
)
_REMOVE = statement(
    "remove_placement_rule",
    Kind.WRITE,
    f"""
    WITH changed AS (
      DELETE FROM placement_rules AS r
      WHERE r.kind = CAST(:kind AS SMALLINT) AND r.subject = CAST(:subject AS TEXT)
        AND r.created_us = CAST(:created_us AS BIGINT)
      RETURNING r.kind
    ), {AUDITED}, {ANSWERED}
    SELECT c.kind FROM changed c
    """,
)

_ADDED = {
    PlacementRuleKind.FREEZE_ALL: "shards.freeze",
    PlacementRuleKind.FREEZE_SHARD: "shard.freeze",
    PlacementRuleKind.DRAIN_DISPATCHER: "dispatcher.drain",
}
_LIFTED = {
    PlacementRuleKind.FREEZE_ALL: "shards.unfreeze",
    PlacementRuleKind.FREEZE_SHARD: "shard.unfreeze",
    PlacementRuleKind.DRAIN_DISPATCHER: "dispatcher.undrain",
}
_WORDS = {
    PlacementRuleKind.FREEZE_ALL: "freeze",
    PlacementRuleKind.FREEZE_SHARD: "freeze of shard",
    PlacementRuleKind.DRAIN_DISPATCHER: "drain of dispatcher",
}


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """One rule; `subject` is "" for FREEZE_ALL, the shard's number, or the dispatcher's id."""

    kind: PlacementRuleKind
    subject: str
    author: str
    reason: str
    created_us: int


Render = Callable[[PlacementRule], bytes]


def _unchecked() -> None:
    """Nothing to look at before a rule is added."""


class PlacementRules:
    """Reads, adds and lifts rules."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def standing(self) -> list[PlacementRule]:
        """Every rule that stands."""
        return [_rule(row) for row in await self._database.run(_LIST)]

    async def add(
        self,
        call: Call,
        kind: PlacementRuleKind,
        subject: str,
        *,
        render: Render,
        check: Callable[[], None] = _unchecked,
    ) -> bytes:
        """Let a rule stand from now on, for the reason in `call.note`; the answer for the caller.

        One that stands already stays as it is, with its own author and reason, and is the answer. `check` may refuse; a
        repeat of the call is not checked again. Raises whatever `check` raises, RequestReused, Unavailable,
        OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> bytes:
            check()
            rule = PlacementRule(kind, subject, call.actor, call.note, now_us)
            answer_bytes = render(rule)
            if await tx.run(_ADD, _params(call, rule, _ADDED[kind], now_us, answer_bytes)):
                return answer_bytes
            present = await _found(tx, kind, subject)
            if not present:
                raise RestartTransaction("the rule was lifted in between")
            answer_bytes = render(present[0])
            await answer(tx, call.key, answer_bytes)
            return answer_bytes

        return await once(self._database, self._clock, call.key, body, bytes)

    async def lift(self, call: Call, kind: PlacementRuleKind, subject: str, *, render: Render) -> bytes:
        """End a rule; the answer for the caller, made of the rule as it was.

        Raises NotFound, RequestReused, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> bytes:
            found = await _found(tx, kind, subject)
            if not found:
                raise NotFound(_WORDS[kind], subject)
            rule = found[0]
            answer_bytes = render(rule)
            params = _params(call, rule, _LIFTED[kind], now_us, answer_bytes)
            if not await tx.run(_REMOVE, {**params, "created_us": rule.created_us}):
                raise RestartTransaction("the rule was lifted in between")
            return answer_bytes

        return await once(self._database, self._clock, call.key, body, bytes)


async def _found(tx: Transaction, kind: PlacementRuleKind, subject: str) -> list[PlacementRule]:
    return [_rule(row) for row in await tx.run(_FIND, {"kind": int(kind), "subject": subject})]


def _params(call: Call, rule: PlacementRule, action: str, now_us: int, answer_bytes: bytes) -> dict[str, Any]:
    return {
        **audited_params(call, action=action, subject=rule.subject, version=0, now_us=now_us),
        **answered_params(call.key, answer_bytes),
        "kind": int(rule.kind),
        "subject": rule.subject,
    }


def _rule(row: Row[Any]) -> PlacementRule:
    return PlacementRule(PlacementRuleKind(row.kind), row.subject, row.author, row.reason, row.created_us)
