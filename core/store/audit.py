"""`audit`: who changed what, when and why. Append-only, written in the statement of the change itself.

Reading it is the operator's business and comes with the interface for it; nothing decides by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.store.requests import RequestKey

# One row if, and only if, the statement's CTE `changed` has its one row.
AUDITED = """audited AS (
      INSERT INTO audit (namespace, at_us, audit_id, actor, action, object, version, request_id, note, server_us)
      SELECT CAST(:namespace AS TEXT), CAST(:now_us AS BIGINT), CAST(:audit_id AS UUID), CAST(:actor AS TEXT),
             CAST(:action AS TEXT), CAST(:object AS TEXT), CAST(:audit_version AS BIGINT),
             CAST(:shown_request_id AS TEXT), CAST(:note AS TEXT),
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM changed c
    )"""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the API as the record keeps it. One per call, kept over repetitions of its transaction.

    `trace` is the traceparent of the request, `audit_id` names the audit row.
    """

    key: RequestKey
    audit_id: UUID
    actor: str
    note: str
    trace: str


def audited_params(call: Call, *, action: str, subject: str, version: int, now_us: int) -> dict[str, Any]:
    """Binds of AUDITED. `action` is a word such as "job.create", `subject` what was changed."""
    return {
        "namespace": call.key.namespace,
        "now_us": now_us,
        "audit_id": call.audit_id,
        "actor": call.actor,
        "action": action,
        "object": subject,
        "audit_version": version,
        "shown_request_id": call.key.shown_id,
        "note": call.note,
    }
