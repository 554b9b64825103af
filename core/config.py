"""Configuration of every role, as frozen dataclasses that are checked as a whole when they are made.

Each field's name carries its unit. deploy/tidewheel.toml shows every key with its default; a test compares the two.
The loader (flags > environment > file > default) is tools/cli/settings.py; this module does no I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from core.errors import Invalid

_ZONE = re.compile(r"[A-Za-z0-9._-]{0,63}")
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}")


def _require(holds: bool, key: str, rule: str) -> None:
    if not holds:
        raise Invalid(key, rule)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Decided once, when the cluster is founded; a process that differs refuses to start."""

    # Name of this cluster's keys in etcd.
    name: str = "default"
    # Hash slots of jobs, owned as units. A power of two.
    shard_count: int = 64
    bucket_width_ms: int = 5_000

    def __post_init__(self) -> None:
        count = self.shard_count
        is_power_of_two = 1 <= count <= 65_536 and count & (count - 1) == 0
        _require(is_power_of_two, "cluster.shard_count", "must be a power of two of at most 65536")
        _require(100 <= self.bucket_width_ms <= 3_600_000, "cluster.bucket_width_ms", "must lie within 100 and 3600000")


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """API server, election and placement."""

    listen: str = "127.0.0.1:7233"
    # What others are told to call; empty: as `listen`, with the port that was bound.
    advertise: str = ""
    metrics_listen: str = "127.0.0.1:0"
    reflection: bool = False
    pool_size: int = 8
    max_message_bytes: int = 4 * 1024 * 1024
    # Calls under way at once; more are refused with RESOURCE_EXHAUSTED.
    max_concurrent_calls: int = 1_000
    # A dispatcher is suspected after so many reports of `report_interval_s` were missed.
    report_interval_s: float = 0.5
    missed_reports: int = 3
    # How long a broken report stream may take to come back before its dispatcher is suspected.
    broken_stream_grace_s: float = 0.3
    # A joining dispatcher waits so long before shards are placed on it, so that a crowd that starts is placed once.
    join_settle_s: float = 0.5
    # What is due for longer and has not been fired is reported as missed, with the reason.
    missed_fire_after_s: float = 30.0
    # Whether the leader moves shards by measured load; takeovers, drains and operators' moves go on without it.
    rebalance: bool = True
    rebalance_interval_s: float = 10.0
    # Dispatchers whose loads differ from their fair share by less than this part of it are left as they are.
    rebalance_tolerance: float = 0.2
    # Budget of planned moves under way at once, and begun within a minute by rebalancing.
    moves_at_once: int = 16
    moves_per_minute: int = 60
    # A shard stays at least so long where it came to, unless an operator, a drain or a death moves it.
    min_residency_s: float = 60.0
    # How often the leader's reconciler looks for what should be impossible.
    reconcile_interval_s: float = 300.0

    def __post_init__(self) -> None:
        _require(self.report_interval_s > 0, "controlplane.report_interval_s", "must be above 0")
        _require(self.missed_reports >= 1, "controlplane.missed_reports", "must be at least 1")
        _require(self.missed_fire_after_s > 0, "controlplane.missed_fire_after_s", "must be above 0")
        _require(self.rebalance_interval_s > 0, "controlplane.rebalance_interval_s", "must be above 0")
        _require(0 < self.rebalance_tolerance <= 1, "controlplane.rebalance_tolerance", "must be above 0, at most 1")
        _require(self.moves_at_once >= 1, "controlplane.moves_at_once", "must be at least 1")
        _require(self.moves_per_minute >= 1, "controlplane.moves_per_minute", "must be at least 1")
        _require(self.min_residency_s >= 0, "controlplane.min_residency_s", "must not be below 0")
        _require(self.reconcile_interval_s > 0, "controlplane.reconcile_interval_s", "must be above 0")


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """A shard owner: how it looks ahead, batches, leases and gives up."""

    listen: str = "127.0.0.1:0"
    advertise: str = ""
    metrics_listen: str = "127.0.0.1:0"
    pool_size: int = 8
    max_message_bytes: int = 4 * 1024 * 1024
    # The due loop's bound on a lost hint.
    tick_s: float = 0.25
    # Rows read a shard and pass, and kept in memory ahead of their time.
    scan_limit_per_shard: int = 2_000
    # Items in one fenced statement.
    batch_limit: int = 500
    # Runs that wait for a credit and are kept in memory; the rest waits in SQL.
    waiting_limit: int = 20_000
    # Late runs made a second for each namespace, when it catches up on what was missed.
    catch_up_runs_per_s: float = 100.0
    # Attempts end when no heartbeat came for the lease; workers are told to send one every heartbeat interval.
    attempt_lease_s: float = 15.0
    heartbeat_interval_s: float = 5.0
    # Added to every adopted lease: an owner acknowledges renewals only while its term was proven not longer ago.
    adoption_margin_s: float = 2.0
    # Open terms are read and compared with what is served.
    term_check_s: float = 1.0
    # Runs open for longer stand in open_runs, so that the open-from mark can pass them.
    stand_after_s: float = 10.0
    # A move of a shard to this dispatcher begins with the second bucket that starts after so long.
    handoff_lead_s: float = 0.25
    # After the boundary, the owner before has so long to finish its buckets; then what is left is taken over.
    handoff_drain_s: float = 1.0
    # How many shards this dispatcher is to get, beside others of weight 1.
    weight: float = 1.0
    # Where it stands (a rack, a site); shards of a zone's dispatchers go to others of the zone where loads allow it.
    zone: str = ""
    # SIGTERM: how long to wait until others have the shards and batches in flight are settled.
    drain_limit_s: float = 20.0

    def __post_init__(self) -> None:
        _require(
            self.attempt_lease_s > 2 * self.heartbeat_interval_s,
            "dispatcher.attempt_lease_s",
            "must be more than twice heartbeat_interval_s, so that one lost heartbeat ends nothing",
        )
        _require(1 <= self.batch_limit <= 5_000, "dispatcher.batch_limit", "must lie within 1 and 5000")
        _require(
            0.01 <= self.catch_up_runs_per_s <= 1_000_000,
            "dispatcher.catch_up_runs_per_s",
            "must lie within 0.01 and 1000000",
        )
        _require(0.001 <= self.weight <= 1_000, "dispatcher.weight", "must lie within 0.001 and 1000")
        _require(
            bool(_ZONE.fullmatch(self.zone)), "dispatcher.zone", "must be at most 63 of a-z, A-Z, 0-9, '.', '_', '-'"
        )
        _require(self.handoff_lead_s >= 0, "dispatcher.handoff_lead_s", "must not be below 0")
        _require(self.handoff_drain_s > 0, "dispatcher.handoff_drain_s", "must be above 0")
        for name in ("tick_s", "heartbeat_interval_s", "adoption_margin_s", "term_check_s", "stand_after_s"):
            _require(getattr(self, name) > 0, f"dispatcher.{name}", "must be above 0")
        for name in ("pool_size", "scan_limit_per_shard", "waiting_limit"):
            _require(getattr(self, name) >= 1, f"dispatcher.{name}", "must be at least 1")
        _require(self.drain_limit_s >= 0, "dispatcher.drain_limit_s", "must not be below 0")
        _require(
            self.max_message_bytes >= 2 * 1024 * 1024,
            "dispatcher.max_message_bytes",
            "must be at least 2097152, so that a frame of assignments fits",
        )
        _require(
            self.term_check_s <= self.adoption_margin_s, "dispatcher.term_check_s", "must not exceed adoption_margin_s"
        )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The shell-exec worker that comes with the server."""

    slots: int = 10
    queues: tuple[str, ...] = ("default",)
    # Running shell commands is off unless it is switched on here.
    exec_enabled: bool = False
    # Only with this may a job ask for a shell instead of an argument list.
    exec_shell_enabled: bool = False
    # What of a command's output is kept as the result, from its end.
    exec_output_tail_bytes: int = 16_384
    drain_limit_s: float = 30.0


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Logs, traces and metrics."""

    log_level: str = "info"
    # "text" or "json".
    log_format: str = "text"
    # Empty: no trace leaves the process. The standard variable OTEL_EXPORTER_OTLP_ENDPOINT sets it too.
    otlp_endpoint: str = ""
    # Share of runs whose trace is kept.
    trace_sample_ratio: float = 1.0
    # Longest wait for the exporter at shutdown; leases are released before it.
    flush_limit_s: float = 3.0

    def __post_init__(self) -> None:
        _require(self.log_level in ("debug", "info", "warning", "error"), "telemetry.log_level", "is not a level")
        _require(self.log_format in ("text", "json"), "telemetry.log_format", "must be text or json")
        _require(0.0 <= self.trace_sample_ratio <= 1.0, "telemetry.trace_sample_ratio", "must lie within 0 and 1")


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The database; `url` begins with postgresql:// or cockroachdb://."""

    url: str = ""
    # Empty: SERIALIZABLE on CockroachDB, READ COMMITTED on PostgreSQL.
    isolation: str = ""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """etcd's client endpoints and how to prove who we are."""

    endpoints: tuple[str, ...] = ()
    # Of the one lease each process holds.
    lease_ttl_s: int = 5
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password_file: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a role may be told."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    controlplane: ControlPlaneSettings = field(default_factory=ControlPlaneSettings)
    dispatcher: DispatcherSettings = field(default_factory=DispatcherSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


def check_loopback(listen: str, key: str) -> str:
    """The listen address as it is. Until authentication exists, servers bind loopback only. Raises Invalid."""
    host, _, port = listen.rpartition(":")
    if host not in ("localhost", "[::1]") and not _LOOPBACK.fullmatch(host):
        rule = "is not a loopback address; until authentication exists, servers bind loopback only"
        raise Invalid(key, f"{listen!r} {rule}")
    if not port.isdigit() or int(port) > 65_535:
        raise Invalid(key, f"{listen!r} must end with a port")
    return listen
