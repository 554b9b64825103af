"""AdminService's Reconcile: a part of a pass of the reconciler, on request.

That is the leader's business, who knows the dispatchers: another replica forwards the call to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidewheel.v1 import admin_service_pb2

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Calls, Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.leader_view import LeaderView
from controlplane.api.servicers import Handlers
from controlplane.api.shard_reads import check_shard
from controlplane.api.violations import Violations
from controlplane.reconciler import Place, Reconciler, Wish
from core.clock import Clock
from core.findings import Finding
from core.store.audit import Call
from core.store.cluster import Cluster
from core.store.database import Database, Transaction
from core.store.requests import answer, once, recall

MOST_SHARDS = 1_024
# Of one part; a replica that forwards the call waits for three seconds.
_BUDGET_S = 1.0


class Reconciliation:
    """Makes passes on request. A part that repairs is done once however often it is sent with its request id."""

    def __init__(
        self,
        calls: Calls,
        reconciler: Reconciler,
        view: LeaderView,
        database: Database,
        clock: Clock,
        cluster: Cluster,
    ) -> None:
        self._calls = calls
        self._reconciler = reconciler
        self._view = view
        self._database = database
        self._clock = clock
        self._cluster = cluster

    def handlers(self) -> Handlers:
        """The methods of AdminService that are answered here."""
        return {"Reconcile": self.reconcile}

    async def reconcile(
        self, request: admin_service_pb2.ReconcileRequest, origin: Origin
    ) -> admin_service_pb2.ReconcileResponse:
        """Look through some shards or jobs, and repair."""
        faults = Violations()
        shards, place = self._decoded(request, origin, faults)
        call = None if request.dry_run else self._calls.cluster_mutation(origin, request, faults)
        faults.refuse()
        if not self._reconciler.leads:
            forwarded: admin_service_pb2.ReconcileResponse = await self._view.forward(request, origin)
            return forwarded
        stored = None if call is None else await recall(self._database, call.key)
        if stored is not None:
            return admin_service_pb2.ReconcileResponse.FromString(stored)
        wish = Wish(shards, request.dry_run, "" if call is None else call.note)
        found, after = await self._reconciler.part(wish, place, _BUDGET_S)
        made = admin_service_pb2.ReconcileResponse(findings=[_encode(finding) for finding in found])
        if after is not None:
            end = (after.shard, after.run or after.job)
            made.next_page_token = page_tokens.following(_listing(request, origin), end)
        return made if call is None else await self._kept(call, made)

    async def _kept(self, call: Call, made: admin_service_pb2.ReconcileResponse) -> admin_service_pb2.ReconcileResponse:
        """The answer, kept for repeats; the first one's where two calls of one id came at once."""

        async def body(tx: Transaction, _: int) -> bytes:
            await answer(tx, call.key, made.SerializeToString())
            return made.SerializeToString()

        kept = await once(self._database, self._clock, call.key, body, bytes)
        return admin_service_pb2.ReconcileResponse.FromString(kept)

    def _decoded(
        self, request: admin_service_pb2.ReconcileRequest, origin: Origin, faults: Violations
    ) -> tuple[Sequence[int], Place]:
        place = Place()
        if len(request.shards) > MOST_SHARDS:
            faults.add("shards", f"must name at most {MOST_SHARDS} shards")
        elif len(set(request.shards)) < len(request.shards):
            faults.add("shards", "must name each shard once")
        for shard in request.shards[:MOST_SHARDS]:
            with faults.noted():
                check_shard(shard, self._cluster, "shards")
        with faults.noted():
            key = page_tokens.decode(request.page_token, _listing(request, origin), shape=(int, str))
            if key is not None:
                shard = page_tokens.within(int(key[0]), 0, self._cluster.shard_count + 1)
                place = _place(shard, fields.uuid(str(key[1]), "page_token"), self._cluster.shard_count)
        return sorted(request.shards) or list(self._cluster.shards), place


def _place(shard: int, passed: UUID, shard_count: int) -> Place:
    """`passed` is a run of the shard, or a job where the shards are done; the nil id where nothing is."""
    if shard == shard_count:
        return Place(shard, job=passed)
    return Place(shard, run=passed if passed.int else None)


def _listing(request: admin_service_pb2.ReconcileRequest, origin: Origin) -> tuple[object, ...]:
    return (origin.method, request.dry_run, *request.shards)


def _encode(finding: Finding) -> admin_service_pb2.Finding:
    message = admin_service_pb2.Finding(
        kind=f"FINDING_KIND_{finding.kind.name}",
        shard=finding.shard,
        subject=finding.subject,
        detail=finding.detail,
        repaired=finding.repaired,
        how=finding.how,
    )
    if finding.since_us > 0:
        message.since.CopyFrom(timestamp(finding.since_us))
    return message
