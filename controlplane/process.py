"""One control-plane replica: its start, its life, its end. assembly.py says which parts it has.

Called by `tidewheel controlplane`. The port opens first, refusing calls until the database has answered; etcd is waited
for by nobody: without it the API serves all the same, and only the leader's duties rest. The end goes the other way
round: the leadership is given up, calls under way end, the lease is revoked, telemetry comes last.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from controlplane.api.server import ApiServer
from controlplane.assembly import Assembly, Base, assemble, build_server
from controlplane.election import Campaign
from controlplane.retention import Retention
from core.clock import DatabaseClock, SystemClock
from core.config import Settings, check_loopback
from core.coord.coord import EtcdCoord
from core.coord.layout import LeaderInfo
from core.errors import OutcomeUnknown, TidewheelError, Unavailable
from core.rand import SystemRand
from core.store.cluster import found_cluster
from core.store.database import Database, DatabaseConfig, connect_with_patience
from core.store.schema_check import wait_for_schema
from core.tasks import Tasks
from core.telemetry.tracing import start_tracing
from core.zones import use_pinned_tzdata

log = logging.getLogger(__name__)

# Reads of the leader, the clock and operators never wait behind a crowd of API calls; nor behind the missed-fire watch,
# which may hold one of these for a while.
_HOUSEKEEPING_SESSIONS = 3
_STOP_GRACE_S = 5.0


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run a replica until `stop` is set, then end in order.

    Raises Invalid for a configuration that cannot work, Unavailable for a port that is taken. A database or etcd that
    is away is waited for.
    """
    tzdata_version = use_pinned_tzdata()
    check_loopback(settings.controlplane.listen, "controlplane.listen")
    system, rand, tasks = SystemClock(), SystemRand(), Tasks()
    clock = DatabaseClock(system)
    replica_id = f"controlplane-{rand.uuid().hex[:12]}"
    database = _database(settings, system, rand, settings.controlplane.pool_size, replica_id)
    housekeeping = _database(settings, system, rand, _HOUSEKEEPING_SESSIONS, replica_id)
    tracing = start_tracing(settings.telemetry, role="controlplane", instance=replica_id)
    base = Base(settings, replica_id, tzdata_version, clock, rand, database, housekeeping, tracing, tasks)
    try:
        await _serve(base, stop)
    finally:
        await tasks.close()
        await database.close()
        await housekeeping.close()
        await asyncio.to_thread(tracing.close, settings.telemetry.flush_limit_s)


def _database(settings: Settings, clock: SystemClock, rand: SystemRand, pool_size: int, name: str) -> Database:
    config = DatabaseConfig(
        settings.database.url,
        isolation=settings.database.isolation,
        pool_size=pool_size,
        application_name=f"tidewheel {name}",
    )
    return Database(config, clock, rand)


async def _serve(base: Base, stop: asyncio.Event) -> None:
    settings = base.settings.controlplane
    parts = assemble(base)
    server = build_server(base, parts)
    address = await server.start()
    monitor_address = parts.monitor.start()
    info = LeaderInfo(base.replica_id, settings.advertise or address)
    try:
        base.tasks.spawn(server.watch_health(base.clock), name="health")
        base.tasks.spawn(parts.discovery.run(), name="discovery")
        log.info("%s listens on %s, metrics on %s", base.replica_id, address, monitor_address)
        start = _Start(asyncio.Event())
        base.tasks.spawn(_begin_or_tell(base, parts, info, start), name="start")
        await _until(stop, start, base.tasks, parts.coord)
    finally:
        await _shut_down(base, parts, server)


@dataclass(slots=True)
class _Start:
    """How the start went, where it did not go well: an error that ends the process, in one line."""

    refused: asyncio.Event
    error: TidewheelError | None = None


async def _begin_or_tell(base: Base, parts: Assembly, info: LeaderInfo, start: _Start) -> None:
    try:
        await _begin(base, parts, info)
    except TidewheelError as error:
        start.error = error
        start.refused.set()


async def _begin(base: Base, parts: Assembly, info: LeaderInfo) -> None:
    """What has to wait for the database; then the gate opens and the loops begin."""
    parts.coord.start()
    system, settings = SystemClock(), base.settings
    await connect_with_patience(base.housekeeping, system)
    while True:
        try:
            await base.database.check()
            await wait_for_schema(base.housekeeping, system)
            await parts.probe.begin()
            await found_cluster(
                base.housekeeping,
                cluster_id=base.rand.uuid(),
                shard_count=settings.cluster.shard_count,
                bucket_width_ms=settings.cluster.bucket_width_ms,
                now_us=base.clock.now_us(),
            )
            break
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("the database went away during the start: %s", error)
            await connect_with_patience(base.housekeeping, system)
    base.tasks.spawn(parts.probe.run(), name="clock probe")
    base.tasks.spawn(parts.hints.run(), name="hints")
    campaign = Campaign(parts.coord, info, base.clock, parts.leader.lead)
    base.tasks.spawn(campaign.run(), name="campaign")
    retention = Retention(base.housekeeping, base.clock, parts.leader.seat.leads)
    base.tasks.spawn(retention.run(), name="retention")
    base.tasks.spawn(parts.services.runner.run(), name="operations")
    base.tasks.spawn(parts.missed.run(parts.metrics), name="missed-fire watch")
    base.tasks.spawn(parts.reconciler.run(parts.metrics), name="reconciler")
    parts.gate.open()
    log.info("%s serves on %s", base.replica_id, info.address)


async def _until(stop: asyncio.Event, start: _Start, tasks: Tasks, coord: EtcdCoord) -> None:
    """Wait for the order to stop; a start that was refused, or a loop that broke, ends the process with its error."""
    waits = [
        tasks.spawn(stop.wait(), name="stop"),
        tasks.spawn(start.refused.wait(), name="refused start"),
        tasks.spawn(tasks.failed.wait(), name="broken loops"),
        tasks.spawn(coord.tasks.failed.wait(), name="broken coordination"),
    ]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    failure = start.error or tasks.failure or coord.tasks.failure
    if failure is not None and not stop.is_set():
        raise failure


async def _shut_down(base: Base, parts: Assembly, server: ApiServer) -> None:
    parts.gate.closed_because = "this replica is shutting down"
    parts.discovery.close()
    # Ends the campaign, which resigns: the next leader need not wait for the lease.
    await base.tasks.close()
    await server.stop(_STOP_GRACE_S)
    await parts.coord.close()
    await asyncio.to_thread(parts.monitor.stop)
    log.info("%s ended", base.replica_id)
