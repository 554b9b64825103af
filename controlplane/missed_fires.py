"""The missed-fire watch: finds what was due long ago and has not been fired, counts it, and says why.

It stands outside the firing path and only reads: what the rows say, not what a dispatcher believes, so that a frozen or
broken one cannot hide. Every replica looks, so that each can tell the cluster's problems; the leader alone counts and
logs. Nothing is reported that was not there at the look before too: rows move while one looks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from controlplane.leader import Seat
from controlplane.lost_chains import LostChains
from controlplane.overdue_causes import WORDS, Cause, Surroundings, is_put_off
from controlplane.seams import ControlPlaneMetrics
from core.clock import US_PER_S, DatabaseClock
from core.coord.ports import LeaderCoord
from core.enumerator import Enumerator
from core.errors import Invalid, OutcomeUnknown, Unavailable
from core.fence import TermRow
from core.jobspec import JobSpec
from core.occurrences import Occurrences, occurrences_of
from core.store.calendar_lookup import Contents, load_contents
from core.store.cluster import Cluster
from core.store.database import Database
from core.store.overdue import LateRow, Overdue, StoredSpec
from core.store.terms import Terms
from core.telemetry.control_plane_metrics import MissedFire

log = logging.getLogger(__name__)

_EVERY_S = 5.0
# A count stops here, for each shard: beyond it only the cause matters.
_ROWS_PER_SHARD = 200
# Chains that were put off are looked for so far ahead (a job that cannot be read is looked at again after a minute),
# among so many rows of a shard; and so many are looked at closely.
_AHEAD_US = 65 * US_PER_S
_AHEAD_ROWS_PER_SHARD = 1_000
_PUT_OFF_ROWS = 500
_NAMED = 3
_SAID_AGAIN_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Missed:
    """One thing that should have been fired; `due_at_us` is None for a chain that has no due row at all."""

    job: str
    due_at_us: int | None
    cause: Cause

    def __str__(self) -> str:
        due = "" if self.due_at_us is None else f", due {_shown(self.due_at_us)}"
        return f"{self.job}{due}" + (f" ({self.cause.detail})" if self.cause.detail else "")


class Heard:
    """Who is alive: by the leader's own judgement where this replica leads, else by etcd."""

    def __init__(self, coord: LeaderCoord, seat: Seat) -> None:
        self._coord = coord
        self._seat = seat

    @property
    def leads(self) -> bool:
        return self._seat.leads()

    def __call__(self, dispatcher_id: str) -> bool:
        roster = self._seat.roster
        return dispatcher_id in self._coord.members() if roster is None else not roster.is_gone(dispatcher_id)


class MissedFires:
    """Looks every few seconds; `found` is what the last two looks agree on, by the time at which it was due."""

    def __init__(
        self,
        database: Database,
        cluster: Cluster,
        clock: DatabaseClock,
        heard: Heard,
        enumerator: Enumerator,
        *,
        after_s: float,
    ) -> None:
        self._database = database
        self._overdue = Overdue(database)
        self._terms = Terms(database)
        self._cluster = cluster
        self._clock = clock
        self._heard = heard
        self._enumerator = enumerator
        self._chains = LostChains(database, cluster.scale, enumerator, clock)
        self._after_s = after_s
        self._before: dict[UUID, LateRow] = {}
        self._silent_until_s = 0.0
        self.found: Sequence[Missed] = ()

    async def run(self, metrics: ControlPlaneMetrics) -> None:
        """For ever, every few seconds."""
        while True:
            await self._clock.sleep(_EVERY_S)
            try:
                await self.step()
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("the missed-fire watch waits for the database: %s", error)
                continue
            leads = self._heard.leads
            metrics.set_missed(self.counts if leads else {})
            self._tell(list(self.problems()) if leads else [])

    def _tell(self, problems: list[str]) -> None:
        """Log what is new, and what goes on once a minute."""
        now_s = self._clock.monotonic_s()
        if problems and now_s >= self._silent_until_s:
            for problem in problems:
                log.warning("missed: %s", problem)
            self._silent_until_s = now_s + _SAID_AGAIN_S
        elif not problems and self._silent_until_s:
            log.info("nothing is missed any more")
            self._silent_until_s = 0.0

    async def step(self) -> None:
        """One look."""
        if self._clock.holding:
            self._before, self.found = {}, ()
            return  # nobody knows what is due
        now_us = self._clock.now_us()
        before_us = now_us - round(self._after_s * US_PER_S)
        rows = {row.due_id: row for row in await self._late(now_us, before_us)}
        again = [row for due_id, row in rows.items() if due_id in self._before]
        missed = await self._explained(again, rows, before_us) if again else []
        lost = await self._chains.step()
        chains = [Missed(f"{job.namespace}/{job.name}", None, Cause(MissedFire.LOST_CHAIN)) for job in lost]
        self._before, self.found = rows, (*missed, *chains)

    @property
    def counts(self) -> Counter[MissedFire]:
        """How many are missed, by reason."""
        return Counter(missed.cause.reason for missed in self.found)

    def problems(self) -> Iterable[str]:
        """One line a reason, with the first few by name."""
        for reason, count in sorted(self.counts.items()):
            named = [str(missed) for missed in self.found if missed.cause.reason is reason][:_NAMED]
            more = f"; and {count - len(named)} more" if count > len(named) else ""
            what = "jobs" if reason is MissedFire.LOST_CHAIN else f"overdue by more than {self._after_s:g} s"
            yield f"{count} {what}, {WORDS[reason]}: {'; '.join(named)}{more}"

    async def _late(self, now_us: int, before_us: int) -> list[LateRow]:
        shards, scale = list(self._cluster.shards), self._cluster.scale
        current = scale.bucket_of(now_us)
        late = await self._overdue.late(
            shards,
            before_us=before_us,
            # What landed late stands at the floor, which may be ahead of the present bucket by one.
            high_bucket=current + 2,
            limit_per_shard=_ROWS_PER_SHARD,
        )
        put_off = await self._overdue.put_off(
            shards,
            range(current, scale.bucket_of(now_us + _AHEAD_US) + 1),
            before_us=before_us,
            limit_per_shard=_AHEAD_ROWS_PER_SHARD,
            limit=_PUT_OFF_ROWS,
        )
        return sorted([*late, *await self._really_put_off(put_off, before_us)], key=lambda row: row.due_at_us)

    async def _really_put_off(self, rows: Sequence[LateRow], before_us: int) -> list[LateRow]:
        """Those of chains ahead whose occurrence was due long ago: the others are deferred by jitter or a window."""
        if not rows:
            return []
        specs = await self._overdue.specs({(row.job_id, row.job_version) for row in rows})
        read = {key: _read(spec, self._enumerator) for key, spec in specs.items()}
        pins = {p for spec in read.values() if isinstance(spec, JobSpec) for p in spec.pins.calendars.values()}
        contents = await load_contents(self._database, pins)
        found = []
        for row in rows:
            spec = read.get((row.job_id, row.job_version), Invalid("version", "does not exist"))
            occurrences = spec if isinstance(spec, Invalid) else _computed(spec, contents, self._enumerator)
            if is_put_off(row, occurrences, before_us):
                found.append(row)
        return found

    async def _explained(self, rows: Sequence[LateRow], now: dict[UUID, LateRow], before_us: int) -> list[Missed]:
        terms: dict[int, list[TermRow]] = {}
        for term in await self._terms.newest(list(self._cluster.shards)):
            terms.setdefault(term.shard, []).append(term)
        around = Surroundings(terms, self._heard, before_us)
        going = around.going(self._before, now)
        return [Missed(_job_of(row), row.due_at_us, around.cause_of(row, going)) for row in rows]


def _read(spec: StoredSpec, enumerator: Enumerator) -> JobSpec | Invalid:
    try:
        return spec.read(enumerator)
    except Invalid as fault:
        return fault


def _computed(spec: JobSpec, contents: Contents, enumerator: Enumerator) -> Occurrences | Invalid | None:
    try:
        return occurrences_of(spec, contents, enumerator)
    except Invalid as fault:
        return fault


def _job_of(row: LateRow) -> str:
    return f"{row.namespace}/{row.name}" if row.name else f"job {row.job_id}"


def _shown(instant_us: int) -> str:
    text = (_EPOCH + timedelta(microseconds=instant_us)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
