"""The schema, as a list of migrations: one idempotent DDL each, run in autocommit, never edited once released.

CockroachDB- or PostgreSQL-only DDL names its dialect; no such SQL exists at run time. Instants are BIGINT microseconds
since the epoch (columns `*_us`; 0 stands for "never" where the column is NOT NULL). CHECKs mirror core/states.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. `dialect` is None (both), "postgresql" or "cockroachdb"."""

    number: int
    name: str
    ddl: str
    dialect: str | None = None


_TABLES: Final[tuple[tuple[str, str], ...]] = (
    (
        "cluster",
        """
        CREATE TABLE IF NOT EXISTS cluster (
          id SMALLINT NOT NULL PRIMARY KEY CHECK (id = 1),
          cluster_id UUID NOT NULL,
          shard_count BIGINT NOT NULL CHECK (shard_count BETWEEN 1 AND 65536),
          bucket_width_ms BIGINT NOT NULL CHECK (bucket_width_ms BETWEEN 100 AND 3600000),
          format_version BIGINT NOT NULL,
          created_us BIGINT NOT NULL
        )""",
    ),
    (
        "jobs",
        # One row a live or deleted job. deleted_us is part of the name's uniqueness: a deleted job frees its name.
        """
        CREATE TABLE IF NOT EXISTS jobs (
          job_id UUID NOT NULL PRIMARY KEY,
          namespace TEXT NOT NULL,
          name TEXT NOT NULL,
          hash BIGINT NOT NULL CHECK (hash BETWEEN 0 AND 65535),
          shard BIGINT NOT NULL,
          version BIGINT NOT NULL CHECK (version > 0),
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3)),
          cutover_us BIGINT NOT NULL,
          created_us BIGINT NOT NULL,
          updated_us BIGINT NOT NULL,
          deleted_us BIGINT NOT NULL DEFAULT 0 CHECK ((state = 3) = (deleted_us > 0)),
          error TEXT NOT NULL DEFAULT ''
        )""",
    ),
    # In this order it also serves the listing of live jobs (deleted_us = 0) by name, however many were deleted.
    ("jobs_by_name", "CREATE UNIQUE INDEX IF NOT EXISTS jobs_by_name ON jobs (namespace, deleted_us, name)"),
    (
        "job_versions",
        # Every edit, for ever. cutover_us is when the version took over: occurrences of the one before lie at or before
        # it. Its own lie strictly after from_us, which is cutover_us, or earlier: a version that catches up on a pause
        # begins where the pause began, and a paused version keeps the beginning of its pause.
        """
        CREATE TABLE IF NOT EXISTS job_versions (
          job_id UUID NOT NULL,
          version BIGINT NOT NULL,
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3)),
          spec JSONB NOT NULL,
          payload BYTEA NOT NULL,
          cutover_us BIGINT NOT NULL,
          from_us BIGINT NOT NULL CHECK (from_us <= cutover_us),
          author TEXT NOT NULL,
          request_id TEXT NOT NULL,
          note TEXT NOT NULL,
          trace TEXT NOT NULL DEFAULT '',
          PRIMARY KEY (job_id, version)
        )""",
    ),
    (
        "due",
        # Everything that must happen at a time. Its primary key is its only index, and every scan carries the shard and
        # both bucket bounds, from the watermark up, so that dead rows are never walked. A chain that catches up
        # backwards has the next missed occurrence to run in back_us, and the oldest one in back_to_us.
        """
        CREATE TABLE IF NOT EXISTS due (
          shard BIGINT NOT NULL,
          bucket BIGINT NOT NULL,
          due_at_us BIGINT NOT NULL,
          id UUID NOT NULL,
          kind SMALLINT NOT NULL CHECK (kind IN (1, 2)),
          job_id UUID NOT NULL,
          job_version BIGINT NOT NULL,
          scheduled_for_us BIGINT NOT NULL,
          back_us BIGINT,
          back_to_us BIGINT,
          CHECK ((back_us IS NULL) = (back_to_us IS NULL)),
          PRIMARY KEY (shard, bucket, due_at_us, id)
        )""",
    ),
    (
        "runs",
        """
        CREATE TABLE IF NOT EXISTS runs (
          run_id UUID NOT NULL PRIMARY KEY,
          job_id UUID NOT NULL,
          job_version BIGINT NOT NULL,
          shard BIGINT NOT NULL,
          cause SMALLINT NOT NULL CHECK (cause IN (1, 2, 3)),
          scheduled_for_us BIGINT NOT NULL,
          due_at_us BIGINT NOT NULL,
          created_us BIGINT NOT NULL,
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3, 4, 5, 6)),
          attempt BIGINT NOT NULL DEFAULT 0 CHECK (attempt >= 0),
          uncounted BIGINT NOT NULL DEFAULT 0 CHECK (uncounted BETWEEN 0 AND attempt),
          home_term BIGINT NOT NULL,
          worker TEXT NOT NULL DEFAULT '',
          token_hash BYTEA,
          lease_until_us BIGINT NOT NULL DEFAULT 0 CHECK ((state = 2) = (lease_until_us > 0)),
          not_before_us BIGINT NOT NULL DEFAULT 0 CHECK (not_before_us = 0 OR state <> 2),
          started_us BIGINT NOT NULL DEFAULT 0,
          ended_us BIGINT NOT NULL DEFAULT 0 CHECK ((state IN (3, 4, 5, 6)) = (ended_us > 0)),
          cancel_requested_us BIGINT NOT NULL DEFAULT 0,
          trace TEXT NOT NULL DEFAULT '',
          request_id TEXT NOT NULL DEFAULT '',
          operation_id UUID CHECK ((cause = 3) = (operation_id IS NOT NULL)),
          gated BOOLEAN NOT NULL DEFAULT FALSE,
          payload BYTEA,
          last_error TEXT NOT NULL DEFAULT '',
          result BYTEA,
          result_type TEXT NOT NULL DEFAULT '',
          progress BYTEA
        )""",
    ),
    ("runs_by_job", "CREATE INDEX IF NOT EXISTS runs_by_job ON runs (job_id, scheduled_for_us, run_id)"),
    (
        "open_runs",
        # Runs that an ordered walk from the shard's open-from mark would miss or would find too late: those that have
        # been open for long, and those whose scheduled_for lies before the mark. Written by the home owner alone.
        """
        CREATE TABLE IF NOT EXISTS open_runs (
          shard BIGINT NOT NULL,
          job_id UUID NOT NULL,
          run_id UUID NOT NULL,
          PRIMARY KEY (shard, job_id, run_id)
        )""",
    ),
    (
        "attempts",
        """
        CREATE TABLE IF NOT EXISTS attempts (
          run_id UUID NOT NULL,
          attempt BIGINT NOT NULL,
          worker TEXT NOT NULL,
          outcome SMALLINT NOT NULL CHECK (outcome IN (1, 2, 3, 4, 5)),
          started_us BIGINT NOT NULL,
          ended_us BIGINT NOT NULL,
          term BIGINT NOT NULL,
          error TEXT NOT NULL DEFAULT '',
          PRIMARY KEY (run_id, attempt)
        )""",
    ),
    (
        "skips",
        # One row a range of occurrences that have no run, both ends inclusive, with the reason.
        """
        CREATE TABLE IF NOT EXISTS skips (
          job_id UUID NOT NULL,
          from_us BIGINT NOT NULL,
          to_us BIGINT NOT NULL,
          reason SMALLINT NOT NULL CHECK (reason IN (1, 2, 3, 4, 5, 6)),
          job_version BIGINT NOT NULL,
          shard BIGINT NOT NULL,
          term BIGINT NOT NULL,
          recorded_us BIGINT NOT NULL,
          CHECK (from_us <= to_us),
          PRIMARY KEY (job_id, from_us)
        )""",
    ),
    (
        "shard_terms",
        # The fence. Written rarely; the rows of a shard that are not void tile time without gap or overlap.
        """
        CREATE TABLE IF NOT EXISTS shard_terms (
          shard BIGINT NOT NULL,
          term BIGINT NOT NULL CHECK (term > 0),
          from_bucket BIGINT NOT NULL,
          to_bucket BIGINT NOT NULL,
          owner TEXT NOT NULL,
          op_id UUID NOT NULL,
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3)),
          opened_us BIGINT NOT NULL,
          reason TEXT NOT NULL,
          CHECK (from_bucket < to_bucket),
          PRIMARY KEY (shard, term)
        )""",
    ),
    (
        "shard_term_events",
        """
        CREATE TABLE IF NOT EXISTS shard_term_events (
          shard BIGINT NOT NULL,
          term BIGINT NOT NULL,
          op_id UUID NOT NULL,
          event TEXT NOT NULL CHECK (event IN ('open', 'split', 'close', 'void')),
          from_bucket BIGINT NOT NULL,
          to_bucket BIGINT NOT NULL,
          owner TEXT NOT NULL,
          reason TEXT NOT NULL,
          at_us BIGINT NOT NULL,
          server_us BIGINT NOT NULL,
          PRIMARY KEY (shard, term, op_id, event)
        )""",
    ),
    (
        "shard_floors",
        """
        CREATE TABLE IF NOT EXISTS shard_floors (
          shard BIGINT NOT NULL PRIMARY KEY,
          floor BIGINT NOT NULL
        )""",
    ),
    (
        "shard_marks",
        """
        CREATE TABLE IF NOT EXISTS shard_marks (
          shard BIGINT NOT NULL PRIMARY KEY,
          watermark BIGINT NOT NULL,
          open_from_us BIGINT NOT NULL
        )""",
    ),
    (
        "requests",
        # Idempotency keys. Kept 7 days (controlplane/retention.py).
        """
        CREATE TABLE IF NOT EXISTS requests (
          namespace TEXT NOT NULL,
          request_id TEXT NOT NULL,
          method TEXT NOT NULL,
          body_hash BYTEA NOT NULL,
          answer BYTEA NOT NULL,
          created_us BIGINT NOT NULL,
          PRIMARY KEY (namespace, request_id)
        )""",
    ),
    (
        "audit",
        """
        CREATE TABLE IF NOT EXISTS audit (
          namespace TEXT NOT NULL,
          at_us BIGINT NOT NULL,
          audit_id UUID NOT NULL,
          actor TEXT NOT NULL,
          action TEXT NOT NULL,
          object TEXT NOT NULL,
          version BIGINT NOT NULL,
          request_id TEXT NOT NULL,
          note TEXT NOT NULL,
          server_us BIGINT NOT NULL,
          PRIMARY KEY (namespace, at_us, audit_id)
        )""",
    ),
    (
        "calendars",
        # deleted_us is part of the name's uniqueness, as in jobs.
        """
        CREATE TABLE IF NOT EXISTS calendars (
          calendar_id UUID NOT NULL PRIMARY KEY,
          namespace TEXT NOT NULL,
          name TEXT NOT NULL,
          version BIGINT NOT NULL CHECK (version > 0),
          created_us BIGINT NOT NULL,
          updated_us BIGINT NOT NULL,
          deleted_us BIGINT NOT NULL DEFAULT 0
        )""",
    ),
    (
        "calendars_by_name",
        "CREATE UNIQUE INDEX IF NOT EXISTS calendars_by_name ON calendars (namespace, deleted_us, name)",
    ),
    (
        "calendar_versions",
        # Immutable: a job's version names the calendar's version by which its occurrences are computed.
        """
        CREATE TABLE IF NOT EXISTS calendar_versions (
          calendar_id UUID NOT NULL,
          version BIGINT NOT NULL,
          content JSONB NOT NULL,
          description TEXT NOT NULL,
          created_us BIGINT NOT NULL,
          author TEXT NOT NULL,
          request_id TEXT NOT NULL,
          note TEXT NOT NULL,
          PRIMARY KEY (calendar_id, version)
        )""",
    ),
    (
        "calendar_jobs",
        # Which jobs that are not deleted refer to a calendar in their present version.
        """
        CREATE TABLE IF NOT EXISTS calendar_jobs (
          calendar_id UUID NOT NULL,
          job_id UUID NOT NULL,
          PRIMARY KEY (calendar_id, job_id)
        )""",
    ),
    (
        "operations",
        # Work over many jobs or occurrences. `progress` is where it stands, for whoever goes on with it.
        """
        CREATE TABLE IF NOT EXISTS operations (
          namespace TEXT NOT NULL,
          operation_id UUID NOT NULL,
          kind SMALLINT NOT NULL CHECK (kind IN (1, 2, 3, 4)),
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3, 4, 5)),
          subject TEXT NOT NULL,
          spec JSONB NOT NULL,
          progress TEXT NOT NULL,
          done BIGINT NOT NULL,
          total BIGINT NOT NULL,
          unchanged BIGINT NOT NULL,
          created_us BIGINT NOT NULL,
          updated_us BIGINT NOT NULL,
          ended_us BIGINT NOT NULL DEFAULT 0 CHECK ((state IN (2, 4, 5)) = (ended_us > 0)),
          author TEXT NOT NULL,
          note TEXT NOT NULL,
          error TEXT NOT NULL DEFAULT '',
          PRIMARY KEY (namespace, created_us, operation_id)
        )""",
    ),
    ("operations_by_id", "CREATE UNIQUE INDEX IF NOT EXISTS operations_by_id ON operations (operation_id)"),
    (
        "operations_open",
        "CREATE INDEX IF NOT EXISTS operations_open ON operations (created_us, operation_id) WHERE ended_us = 0",
    ),
    (
        "requests_by_age",
        # For retention; created_us never changes.
        "CREATE INDEX IF NOT EXISTS requests_by_age ON requests (created_us, namespace, request_id)",
    ),
    (
        "shard_moves",
        # Planned moves, their wish and their end; the terms say what happened in between. boundary and new_term are 0
        # until the split is seen.
        """
        CREATE TABLE IF NOT EXISTS shard_moves (
          move_id UUID NOT NULL PRIMARY KEY,
          shard BIGINT NOT NULL,
          from_owner TEXT NOT NULL,
          from_term BIGINT NOT NULL,
          to_dispatcher TEXT NOT NULL,
          cause SMALLINT NOT NULL CHECK (cause IN (1, 2, 3)),
          state SMALLINT NOT NULL CHECK (state IN (1, 2, 3, 4, 5)),
          boundary BIGINT NOT NULL DEFAULT 0,
          new_term BIGINT NOT NULL DEFAULT 0,
          author TEXT NOT NULL,
          reason TEXT NOT NULL,
          request_id TEXT NOT NULL,
          requested_us BIGINT NOT NULL,
          ordered_us BIGINT NOT NULL DEFAULT 0,
          split_us BIGINT NOT NULL DEFAULT 0,
          ended_us BIGINT NOT NULL DEFAULT 0 CHECK ((state IN (4, 5)) = (ended_us > 0)),
          error TEXT NOT NULL DEFAULT ''
        )""",
    ),
    (
        "shard_moves_open",
        # One open move a shard: of two that are requested at once, one wins.
        "CREATE UNIQUE INDEX IF NOT EXISTS shard_moves_open ON shard_moves (shard) WHERE ended_us = 0",
    ),
    ("shard_moves_by_time", "CREATE INDEX IF NOT EXISTS shard_moves_by_time ON shard_moves (requested_us, move_id)"),
    (
        "placement_rules",
        # What operators forbid the leader. subject: '' for all, a shard's number, or a dispatcher's id.
        """
        CREATE TABLE IF NOT EXISTS placement_rules (
          kind SMALLINT NOT NULL CHECK (kind IN (1, 2, 3)),
          subject TEXT NOT NULL,
          author TEXT NOT NULL,
          reason TEXT NOT NULL,
          created_us BIGINT NOT NULL,
          PRIMARY KEY (kind, subject)
        )""",
    ),
    (
        "shard_moves_by_shard",
        "CREATE INDEX IF NOT EXISTS shard_moves_by_shard ON shard_moves (shard, requested_us, move_id)",
    ),
    (
        "shard_terms_by_state",
        # The one or two open terms of a shard, however long its history is. A term changes its state once. (Partial, it
        # would be so small that the planner reads it whole for every fence.)
        "CREATE INDEX IF NOT EXISTS shard_terms_by_state ON shard_terms (shard, state, term)",
    ),
    (
        "due_told_version",
        # Who fires a chain must know of this version of its job, if any: a change of the job is under way, or was done.
        "ALTER TABLE due ADD COLUMN IF NOT EXISTS told_version BIGINT",
    ),
)

_TUNING: Final[tuple[tuple[str, str, str], ...]] = (
    # Completion changes no indexed column: half-filled pages keep it a HOT update.
    ("runs_fillfactor", "ALTER TABLE runs SET (fillfactor = 50)", "postgresql"),
    ("shard_terms_fillfactor", "ALTER TABLE shard_terms SET (fillfactor = 25)", "postgresql"),
    ("shard_floors_fillfactor", "ALTER TABLE shard_floors SET (fillfactor = 25)", "postgresql"),
    ("shard_marks_fillfactor", "ALTER TABLE shard_marks SET (fillfactor = 25)", "postgresql"),
    # Dead due rows stay readable to nobody for long: scans begin at the watermark anyway.
    ("due_gc", "ALTER TABLE due CONFIGURE ZONE USING gc.ttlseconds = 3600", "cockroachdb"),
)

MIGRATIONS: Final[tuple[Migration, ...]] = (
    *(Migration(n, name, ddl.strip()) for n, (name, ddl) in enumerate(_TABLES, start=1)),
    *(Migration(n, name, ddl, dialect) for n, (name, ddl, dialect) in enumerate(_TUNING, start=101)),
)

LEDGER_DDL: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  number BIGINT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL
)""".strip()
