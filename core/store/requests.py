"""`requests`: what was asked under which key, and the answer. A repeat gets the first answer and changes nothing.

Every mutation of the API goes through `once`, whose transaction begins by reserving the key: two callers with one key
wait for each other there, and a transaction that is run again after a lost COMMIT finds its own row. A call without a
request id gets a key of its own (`own_request_id`) for the second reason alone. Rows are kept for 7 days.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from core.clock import Clock
from core.errors import RequestReused
from core.rand import Rand
from core.store.database import Database, Transaction
from core.store.statement import Kind, statement
from core.store.transact import RestartTransaction

Answer = TypeVar("Answer")

# No caller's request id begins with it: theirs are printable.
_OWN_PREFIX = "\x1f"

_RESERVE = statement(
    "reserve_request",
    Kind.WRITE,
    """
    INSERT INTO requests (namespace, request_id, method, body_hash, answer, created_us)
    VALUES (CAST(:namespace AS TEXT), CAST(:request_id AS TEXT), CAST(:method AS TEXT), CAST(:body_hash AS BYTEA),
            CAST('' AS BYTEA), CAST(:now_us AS BIGINT))
    ON CONFLICT (namespace, request_id) DO NOTHING
    RETURNING request_id
    """,
)
_FIND = statement(
    "find_request",
    Kind.READ,
    """
    SELECT method, body_hash, answer FROM requests
    WHERE namespace = CAST(:namespace AS TEXT) AND request_id = CAST(:request_id AS TEXT)
    """,
)
_ANSWER = statement(
    "answer_request",
    Kind.WRITE,
    """
    UPDATE requests SET answer = CAST(:answer AS BYTEA)
    WHERE namespace = CAST(:namespace AS TEXT) AND request_id = CAST(:request_id AS TEXT)
    """,
)
_LIST_OLD = statement(
    "list_old_requests",
    Kind.READ,
    """
    SELECT namespace, request_id FROM requests
    WHERE created_us < CAST(:before_us AS BIGINT)
    ORDER BY created_us, namespace, request_id
    LIMIT CAST(:limit AS BIGINT)
    """,
)
_DELETE = statement(
    "delete_requests",
    Kind.WRITE,
    """
    DELETE FROM requests AS q
    USING unnest(CAST(:namespaces AS TEXT[]), CAST(:request_ids AS TEXT[])) AS i(namespace, request_id)
    WHERE q.namespace = i.namespace AND q.request_id = i.request_id
    RETURNING q.request_id
    """,
)

# For statements that change something: the answer is kept if, and only if, their CTE `changed` has its one row.
ANSWERED = """answered AS (
      UPDATE requests AS q SET answer = CAST(:answer AS BYTEA)
      FROM changed c
      WHERE q.namespace = CAST(:namespace AS TEXT) AND q.request_id = CAST(:request_id AS TEXT)
    )"""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes two calls the same: namespace and request id; and what must then be equal: method and body."""

    namespace: str
    request_id: str
    method: str
    body_hash: bytes

    @property
    def shown_id(self) -> str:
        """The caller's request id, empty where there was none."""
        return "" if self.request_id.startswith(_OWN_PREFIX) else self.request_id


def own_request_id(rand: Rand) -> str:
    """The key of a call whose caller gave none."""
    return _OWN_PREFIX + rand.uuid().hex


async def once(
    database: Database,
    clock: Clock,
    key: RequestKey,
    change: Callable[[Transaction, int], Awaitable[Answer]],
    repeated: Callable[[bytes], Answer],
) -> Answer:
    """Carry a call out in one transaction: what `change` makes of it, given the time at which that began.

    Where the key got an answer before, nothing is changed: it is what `repeated` makes of that answer. Raises whatever
    `change` raises, RequestReused for a key of another method or body, Unavailable, OutcomeUnknown.
    """

    async def body(tx: Transaction) -> Answer:
        now_us = clock.now_us()
        stored = await _reserve(tx, key, now_us)
        return await change(tx, now_us) if stored is None else repeated(stored)

    return await database.transaction(body, repeat_unknown=True)


async def _reserve(tx: Transaction, key: RequestKey, now_us: int) -> bytes | None:
    """Take the key, or return the answer that it got before. Waits for a transaction that holds the key."""
    params = _key_params(key)
    reserved = await tx.run(_RESERVE, {**params, "method": key.method, "body_hash": key.body_hash, "now_us": now_us})
    if reserved:
        return None
    stored = await recall(tx, key)
    if stored is None:
        raise RestartTransaction("the request's row was removed in between")
    return stored


async def recall(source: Database | Transaction, key: RequestKey) -> bytes | None:
    """The answer that the key got before, None if it is new. Raises RequestReused for another method or body."""
    found = await source.run(_FIND, _key_params(key))
    if not found:
        return None
    if found[0].method != key.method or bytes(found[0].body_hash) != key.body_hash:
        raise RequestReused(
            f"request id {key.request_id!r} was used for another request; a repeat must have the same body",
            field="request_id",
        )
    return bytes(found[0].answer)


async def answer(tx: Transaction, key: RequestKey, answer_bytes: bytes) -> None:
    """Keep the answer of a call that changed nothing else."""
    await tx.run(_ANSWER, answered_params(key, answer_bytes))


def answered_params(key: RequestKey, answer_bytes: bytes) -> dict[str, Any]:
    """Binds of ANSWERED."""
    return {**_key_params(key), "answer": answer_bytes}


async def forget_old(database: Database, *, before_us: int, limit: int = 500) -> int:
    """Remove up to `limit` requests made before an instant; returns how many. Running it again goes on."""
    old = await database.run(_LIST_OLD, {"before_us": before_us, "limit": limit})
    if not old:
        return 0
    params = {"namespaces": [row.namespace for row in old], "request_ids": [row.request_id for row in old]}
    return len(await database.run(_DELETE, params, repeat_unknown=True))


def _key_params(key: RequestKey) -> dict[str, Any]:
    return {"namespace": key.namespace, "request_id": key.request_id}
