"""`shard_moves`: the account of planned moves, what was wanted and why, and how far it came.

A shard has one open move at most: of two that are asked for at once, one wins. Rows are made by operators (through the
API) and by the leader, each with its audit row in the same statement. The leader carries them on, by compare-and-set on
their state, so that two who take themselves for the leader harm nobody; their split is for the target to write
(move_orders.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from core.clock import Clock
from core.errors import Conflict, NotFound
from core.states import MoveCause, MoveState
from core.store.audit import Call
from core.store.database import Database, Transaction
from core.store.move_records import Advance, MoveKey, MovePage, MoveRecord, MoveWish
from core.store.requests import answer, once
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

# Of the audit rows and idempotency keys of what concerns the whole cluster.
CLUSTER_NAMESPACE = ""

_COLUMNS = """m.move_id, m.shard, m.from_owner, m.from_term, m.to_dispatcher, m.cause, m.state, m.boundary, m.new_term,
           m.author, m.reason, m.request_id, m.requested_us, m.ordered_us, m.split_us, m.ended_us, m.error"""

_REQUEST = statement(
    "request_moves",
    Kind.WRITE,
    # One open move a shard: a wish for a shard that has one comes back without its row. Audited under the move's id.
    f"""
    WITH changed AS (
      INSERT INTO shard_moves AS m (move_id, shard, from_owner, from_term, to_dispatcher, cause, state, author, reason,
                                    request_id, requested_us)
      SELECT i.move_id, i.shard, i.from_owner, i.from_term, i.to_dispatcher, i.cause, 1, CAST(:actor AS TEXT), i.reason,
             CAST(:request_id AS TEXT), CAST(:now_us AS BIGINT)
      FROM unnest(CAST(:move_ids AS UUID[]), CAST(:shards AS BIGINT[]), CAST(:from_owners AS TEXT[]),
                  CAST(:from_terms AS BIGINT[]), CAST(:to_dispatchers AS TEXT[]), CAST(:causes AS SMALLINT[]),
                  CAST(:reasons AS TEXT[]))
           AS i(move_id, shard, from_owner, from_term, to_dispatcher, cause, reason)
      ON CONFLICT (shard) WHERE ended_us = 0 DO NOTHING
      RETURNING {_COLUMNS}
    ), audited AS (
      INSERT INTO audit (namespace, at_us, audit_id, actor, action, object, version, request_id, note, server_us)
      SELECT CAST(:namespace AS TEXT), c.requested_us, c.move_id, c.author, 'shard.move', CAST(c.shard AS TEXT), 0,
             c.request_id, c.reason, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM changed c
    )
    SELECT {_COLUMNS} FROM changed m ORDER BY m.shard
    """,
)
_ADVANCE = statement(
    "advance_moves",
    Kind.WRITE,
    # Compare-and-set on the state, which no move enters twice.
    """
    UPDATE shard_moves AS m
    SET state = i.new_state, boundary = i.boundary, new_term = i.new_term, ordered_us = i.ordered_us,
        split_us = i.split_us, ended_us = i.ended_us, error = i.error
    FROM unnest(CAST(:move_ids AS UUID[]), CAST(:old_states AS SMALLINT[]), CAST(:new_states AS SMALLINT[]),
                CAST(:boundaries AS BIGINT[]), CAST(:new_terms AS BIGINT[]), CAST(:ordered AS BIGINT[]),
                CAST(:splits AS BIGINT[]), CAST(:ends AS BIGINT[]), CAST(:errors AS TEXT[]))
         AS i(move_id, old_state, new_state, boundary, new_term, ordered_us, split_us, ended_us, error)
    WHERE m.move_id = i.move_id AND m.state = i.old_state
    RETURNING m.move_id
    """,
)
_GET = statement(
    "get_move", Kind.READ, f"SELECT {_COLUMNS} FROM shard_moves m WHERE m.move_id = CAST(:move_id AS UUID)"
)
_OPEN = statement(
    "list_open_moves",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM shard_moves m
    WHERE m.ended_us = 0
    ORDER BY m.shard
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_OPEN_OF = statement(
    "find_open_move",
    Kind.READ,
    f"SELECT {_COLUMNS} FROM shard_moves m WHERE m.ended_us = 0 AND m.shard = CAST(:shard AS BIGINT)",
)
_LIST = statement(
    "list_moves",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM shard_moves m
    WHERE (m.requested_us, m.move_id) < (CAST(:before_us AS BIGINT), CAST(:before_id AS UUID))
    ORDER BY m.requested_us DESC, m.move_id DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_LIST_OF = statement(
    "list_moves_of_shard",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM shard_moves m
    WHERE m.shard = CAST(:shard AS BIGINT)
      AND (m.requested_us, m.move_id) < (CAST(:before_us AS BIGINT), CAST(:before_id AS UUID))
    ORDER BY m.shard DESC, m.requested_us DESC, m.move_id DESC
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_SINCE = statement(
    "list_moves_since",
    Kind.READ,
    f"""
    SELECT {_COLUMNS} FROM shard_moves m
    WHERE m.requested_us >= CAST(:since_us AS BIGINT)
    ORDER BY m.requested_us, m.move_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_LIST_OLD = statement(
    "list_old_moves",
    Kind.READ,
    """
    SELECT m.move_id FROM shard_moves m
    WHERE m.requested_us < CAST(:before_us AS BIGINT) AND m.ended_us > 0
    ORDER BY m.requested_us, m.move_id
    LIMIT CAST(:row_limit AS BIGINT)
    """,
)
_DELETE = statement(
    "delete_moves",
    Kind.WRITE,
    """
    DELETE FROM shard_moves AS m
    WHERE m.move_id = ANY(CAST(:move_ids AS UUID[])) AND m.ended_us > 0
    RETURNING m.move_id
    """,
)

_LAST_ID = UUID(int=(1 << 128) - 1)
_END_US = 1 << 62
# A shard has one open move at most, and there are no more shards than this.
_MOST_OPEN = 65_536
_MOST_RECENT = 5_000

# Called in the transaction of a request: the wishes, or whatever error refuses it. May be called more than once.
Wishes = Callable[[], Sequence[MoveWish]]
Render = Callable[[Sequence[MoveRecord]], bytes]


class Moves:
    """Reads moves, writes wishes down, carries moves on."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def request(self, call: Call, wishes: Wishes, *, render: Render, needs_all: bool) -> bytes:
        """Write an operator's wishes down; the answer for the caller, made of the moves that came of them.

        With `needs_all` a shard that has an open move refuses the whole; without it such shards are left out. A repeat
        of the call gets the first answer. Raises Conflict (naming the open move), RequestReused, whatever `wishes`
        raises, Unavailable, OutcomeUnknown.
        """

        async def body(tx: Transaction, now_us: int) -> bytes:
            wanted = wishes()
            params = _wish_params(wanted, call.actor, call.key.shown_id, now_us)
            made = [_record(row) for row in await tx.run(_REQUEST, params)] if wanted else []
            if needs_all and len(made) < len(wanted):
                raise await _refusal(tx, wanted, made)
            answer_bytes = render(made)
            await answer(tx, call.key, answer_bytes)
            return answer_bytes

        return await once(self._database, self._clock, call.key, body, bytes)

    async def plan(self, wishes: Sequence[MoveWish], *, author: str) -> list[MoveRecord]:
        """Write the leader's own wishes down; the moves that came of them. A shard that has an open move is left out.

        Raises Unavailable, OutcomeUnknown: the open moves, read anew, say what came of it.
        """
        if not wishes:
            return []
        params = _wish_params(wishes, author, "", self._clock.now_us())
        return [_record(row) for row in await self._database.run(_REQUEST, params)]

    async def advance(self, steps: Sequence[Advance]) -> list[MoveRecord]:
        """Carry moves on; those that were still in the state that their step names, as they stand now."""
        if not steps:
            return []
        ordered = sorted(steps, key=lambda step: step.now.move_id)
        rows = await self._database.run(_ADVANCE, _advance_params(ordered))
        moved = {row.move_id for row in rows}
        return [step.now for step in ordered if step.now.move_id in moved]

    async def get(self, move_id: UUID) -> MoveRecord:
        """One move. Raises NotFound."""
        rows = await self._database.run(_GET, {"move_id": move_id})
        if not rows:
            raise NotFound("move", str(move_id))
        return _record(rows[0])

    async def open_moves(self) -> list[MoveRecord]:
        """Every move that has not ended, by shard."""
        return [_record(row) for row in await self._database.run(_OPEN, {"row_limit": _MOST_OPEN})]

    async def page(
        self, *, after: MoveKey | None, size: int, shard: int | None = None, open_only: bool = False
    ) -> MovePage:
        """At most `size` moves after the key `after`, newest first: all, one shard's, those that have not ended."""
        before = after or (_END_US, _LAST_ID)
        if open_only:
            wanted = [move for move in await self.open_moves() if move.key < before and shard in (None, move.shard)]
            found = sorted(wanted, key=lambda move: move.key, reverse=True)[: size + 1]
        else:
            params = {"before_us": before[0], "before_id": before[1], "row_limit": size + 1}
            which = (_LIST, params) if shard is None else (_LIST_OF, {**params, "shard": shard})
            found = [_record(row) for row in await self._database.run(*which)]
        shown = tuple(found[:size])
        return MovePage(shown, shown[-1].key if len(found) > size else None)

    async def since(self, since_us: int) -> list[MoveRecord]:
        """The moves that were asked for from an instant on, oldest first; a few thousand at most."""
        params = {"since_us": since_us, "row_limit": _MOST_RECENT}
        return [_record(row) for row in await self._database.run(_SINCE, params)]


async def forget_old_moves(database: Database, *, before_us: int, limit: int = 500) -> int:
    """Remove up to `limit` ended moves asked for before an instant; returns how many. Running it again goes on."""
    old = await database.run(_LIST_OLD, {"before_us": before_us, "row_limit": limit})
    if not old:
        return 0
    return len(await database.run(_DELETE, {"move_ids": [row.move_id for row in old]}, repeat_unknown=True))


async def _refusal(tx: Transaction, wanted: Sequence[MoveWish], made: Sequence[MoveRecord]) -> Exception:
    """Why the first wish that came to nothing did."""
    done = {each.shard for each in made}
    shard = next(wish.shard for wish in wanted if wish.shard not in done)
    rows = await tx.run(_OPEN_OF, {"shard": shard})
    if not rows:
        return RestartTransaction("the move that stood in the way has ended")
    return already_moving(_record(rows[0]))


def already_moving(move: MoveRecord) -> Conflict:
    """The refusal of a second move of a shard, naming the first."""
    return Conflict(
        f"shard {move.shard} is on the move already: move {move.move_id} to {move.to_dispatcher},"
        f" {move.state.name}, asked for by {move.author}",
        field="shard",
    )


def _wish_params(wishes: Sequence[MoveWish], actor: str, request_id: str, now_us: int) -> dict[str, Any]:
    ordered = sorted(wishes, key=lambda wish: wish.shard)
    return {
        "namespace": CLUSTER_NAMESPACE,
        "actor": actor,
        "request_id": request_id,
        "now_us": now_us,
        "move_ids": [wish.move_id for wish in ordered],
        "shards": [wish.shard for wish in ordered],
        "from_owners": [wish.from_owner for wish in ordered],
        "from_terms": [wish.from_term for wish in ordered],
        "to_dispatchers": [wish.to_dispatcher for wish in ordered],
        "causes": [int(wish.cause) for wish in ordered],
        "reasons": [wish.reason for wish in ordered],
    }


def _advance_params(steps: Sequence[Advance]) -> dict[str, Any]:
    return {
        "move_ids": [step.now.move_id for step in steps],
        "old_states": [int(step.before.state) for step in steps],
        "new_states": [int(step.now.state) for step in steps],
        "boundaries": [step.now.boundary for step in steps],
        "new_terms": [step.now.new_term for step in steps],
        "ordered": [step.now.ordered_us for step in steps],
        "splits": [step.now.split_us for step in steps],
        "ends": [step.now.ended_us for step in steps],
        "errors": [step.now.error for step in steps],
    }


def _record(row: Row[Any]) -> MoveRecord:
    return MoveRecord(
        move_id=row.move_id,
        shard=row.shard,
        from_owner=row.from_owner,
        from_term=row.from_term,
        to_dispatcher=row.to_dispatcher,
        cause=MoveCause(row.cause),
        state=MoveState(row.state),
        boundary=row.boundary,
        new_term=row.new_term,
        author=row.author,
        reason=row.reason,
        request_id=row.request_id,
        requested_us=row.requested_us,
        ordered_us=row.ordered_us,
        split_us=row.split_us,
        ended_us=row.ended_us,
        error=row.error,
    )
