"""JobService.ExplainJob and GetJobLedger: what became of the occurrences of a job. They change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from tidewheel.v1 import job_service_pb2, run_pb2

from controlplane.api import fields, page_tokens
from controlplane.api.calls import Origin
from controlplane.api.decode_schedule import timestamp
from controlplane.api.encode import RUN_STATES
from controlplane.api.job_reads import find_job
from controlplane.api.naming import faults_of_namespace
from controlplane.api.servicers import Handlers
from controlplane.api.violations import Violations
from controlplane.explanation import explain
from controlplane.job_accounts import JobAccounts
from controlplane.ledger import Account, LedgerKind, counts
from core.civil import END_US
from core.errors import Invalid
from core.jobspec import check_job_name
from core.store.jobs import Jobs

KINDS: Final[Mapping[LedgerKind, job_service_pb2.LedgerKind]] = {
    LedgerKind.RUN: job_service_pb2.LEDGER_KIND_RUN,
    LedgerKind.SKIPPED: job_service_pb2.LEDGER_KIND_SKIPPED,
    LedgerKind.PAUSED: job_service_pb2.LEDGER_KIND_PAUSED,
    LedgerKind.EXCLUDED: job_service_pb2.LEDGER_KIND_EXCLUDED,
    LedgerKind.NOT_YET_DUE: job_service_pb2.LEDGER_KIND_NOT_YET_DUE,
    LedgerKind.DUE: job_service_pb2.LEDGER_KIND_DUE,
    LedgerKind.MISSING: job_service_pb2.LEDGER_KIND_MISSING,
    LedgerKind.UNEXPECTED: job_service_pb2.LEDGER_KIND_UNEXPECTED,
}


class JobAnswers:
    """Accounts for occurrences, and explains single instants."""

    def __init__(self, jobs: Jobs, accounts: JobAccounts) -> None:
        self._jobs = jobs
        self._accounts = accounts

    def handlers(self) -> Handlers:
        """The methods that are answered here."""
        return {"ExplainJob": self.explain, "GetJobLedger": self.ledger}

    async def explain(
        self, request: job_service_pb2.ExplainJobRequest, origin: Origin
    ) -> job_service_pb2.ExplainJobResponse:
        """Why the job does or does not run at an instant."""
        faults, at_us = _named(request.namespace, request.name, request.job_id), 0
        with faults.noted():
            at_us = _required(request.at, "at", request.HasField("at"))
        faults.refuse()
        job = await find_job(self._jobs, request.namespace, request.name, request.job_id)
        situation = await self._accounts.situation(job, at_us)
        explanation = explain(situation)
        run_ids = [made.run_id for made in situation.accounts if made.run_id is not None]
        answer = job_service_pb2.ExplainJobResponse(
            fires=explanation.fires,
            version=0 if situation.version is None else situation.version.version,
            reasons=explanation.reasons,
            run_id=str(run_ids[0]) if run_ids else "",
        )
        for name, instant_us in (("previous", situation.previous_us), ("next", situation.next_us)):
            if instant_us is not None:
                getattr(answer, name).CopyFrom(timestamp(instant_us))
        return answer

    async def ledger(
        self, request: job_service_pb2.GetJobLedgerRequest, origin: Origin
    ) -> job_service_pb2.GetJobLedgerResponse:
        """A page of the account of a range."""
        faults, from_us, to_us = _named(request.namespace, request.name, request.job_id), 0, END_US
        with faults.noted():
            from_us = _required(getattr(request, "from"), "from", request.HasField("from"))
        with faults.noted():
            to_us = _required(request.to, "to", request.HasField("to"))
        if to_us <= from_us:
            faults.add("to", "must be later than from")
        namespace = request.namespace or "default"
        listing = (origin.method, namespace, request.name, request.job_id, from_us, to_us)

        def begin(key: page_tokens.Key) -> int:
            return page_tokens.within(int(key[0]), from_us, to_us)

        size, begin_us = page_tokens.page(request, listing, faults, (int,), begin)
        job = await find_job(self._jobs, namespace, request.name, request.job_id)
        page = await self._accounts.page(job, from_us if begin_us is None else begin_us, to_us, size)
        return job_service_pb2.GetJobLedgerResponse(
            entries=[encode_account(made) for made in page.accounts],
            next_page_token=page_tokens.following(listing, page.next_us),
            counts=[
                job_service_pb2.LedgerCount(kind=KINDS[kind], occurrences=count)
                for kind, count in counts(page.accounts)
            ],
        )


def encode_account(made: Account) -> job_service_pb2.LedgerEntry:
    """One account as a message."""
    entry = job_service_pb2.LedgerEntry(
        scheduled_for=timestamp(made.from_us),
        last_scheduled_for=timestamp(made.to_us) if made.to_us != made.from_us else None,
        occurrences=made.occurrences,
        kind=KINDS[made.kind],
        job_version=made.version,
        run_id="" if made.run_id is None else str(made.run_id),
        run_state=run_pb2.RUN_STATE_UNSPECIFIED if made.run_state is None else RUN_STATES[made.run_state],
        reason=made.reason,
        backfill_run_ids=[str(run_id) for run_id in made.backfill_run_ids],
    )
    if made.due_us is not None:
        entry.due_at.CopyFrom(timestamp(made.due_us))
    return entry


def _named(namespace: str, name: str, job_id: str) -> Violations:
    """What is wrong with the naming of the job, so that it is told together with the rest."""
    faults = faults_of_namespace(namespace)
    with faults.noted():
        if bool(name) == bool(job_id):
            raise Invalid("name", "exactly one of name and job_id must be given")
        if job_id:
            fields.uuid(job_id, "job_id")
        else:
            check_job_name(name)
    return faults


def _required(value: Timestamp, at: str, given: bool) -> int:
    if not given:
        raise Invalid(at, "must be given")
    return fields.instant_us(value, at)
