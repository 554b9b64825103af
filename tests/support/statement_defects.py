"""Defects of statements: a condition is gone, or a boundary is off by one. planted.py plants them by name."""

from __future__ import annotations

from tests.support.planter import Planter, by_name


def no_term_check(planter: Planter) -> None:
    """The fence takes any term row, whatever its owner and its state."""
    planter.every_sql("WHERE t.owner = CAST(:owner AS TEXT) AND t.state = 1", "WHERE CAST(:owner AS TEXT) <> ''")


def no_range_check(planter: Planter) -> None:
    """The fence takes every term for one without an end, wherever a takeover or a split has cut it."""
    from core.buckets import NO_END

    columns, source = "SELECT t.shard, t.term, t.from_bucket,", "\n      FROM unnest(CAST(:fence_shards"
    endless = f"{columns} CAST({NO_END} AS BIGINT) AS to_bucket{source}"
    planter.every_sql(f"{columns} t.to_bucket{source}", endless)


def landing_unlocked(planter: Planter) -> None:
    """The watermark passes an insert that is in flight: who lands does not hold the floor."""
    planter.every_sql("FOR SHARE OF l", "")


def claim_names_nothing(planter: Planter) -> None:
    """A claim that names no term to replace opens one all the same where a term stands."""
    nobody = "NOT EXISTS (SELECT 1 FROM shard_terms e WHERE e.shard = i.shard)"
    planter.sql("open_terms", nobody, "i.shard >= 0")


def claim_names_no_range(planter: Planter) -> None:
    """A claim replaces the term it names, whatever range that has by now."""
    named = "AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket"
    planter.sql("close_replaced_terms", named, "")


def boundary_one_too_far(planter: Planter) -> None:
    """A split leaves the bucket before the boundary to both."""
    planter.sql("split_terms", "c.to_bucket AS next_from", "c.to_bucket - 1 AS next_from")


def split_twice(planter: Planter) -> None:
    """A shard that is being handed off is split once more."""
    others = "(SELECT count(*) FROM shard_terms o WHERE o.shard = i.shard AND o.state = 1 AND o.term <> i.term) = 0"
    planter.sql("split_terms", others, "i.boundary > 0")


def closed_undrained(planter: Planter) -> None:
    """The old owner's term is closed while buckets of it are left."""
    planter.sql("close_drained_terms", "m.watermark >= i.to_bucket", "m.watermark >= 0")


def reaped_by_anyone(planter: Planter) -> None:
    """Whoever remembers an attempt ends it, whether or not the run is at home there."""
    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "AND r.home_term = i.term", "")
        planter.sql(name, "(i.token_hash IS NULL AND r.lease_until_us = i.lease_until_us)", "i.token_hash IS NULL")


def retry_lands_twice(planter: Planter) -> None:
    """A retry gets two due rows."""
    where = "end_attempts_and_land_retries"
    planter.sql(where, "i.retry_at_us, i.run_id, 2", "i.retry_at_us + g.n, i.run_id, 2")
    planter.sql(
        where, "lands\n      WHERE i.state = 1", "lands CROSS JOIN generate_series(0, 1) AS g(n)\n WHERE i.state = 1"
    )


def retry_lands_anywhere(planter: Planter) -> None:
    """A retry lands in the bucket of its time, wherever the floor stands."""
    planter.sql("end_attempts_and_land_retries", "GREATEST(i.retry_bucket, lands.floor)", "i.retry_bucket")


def finished_before_its_turn(planter: Planter) -> None:
    """The new owner finishes buckets of the one before, who has not closed yet."""
    for name in ("raise_floors", "raise_watermarks"):
        planter.sql(name, "i.old >= fence.from_bucket AND", "")
        planter.sql(name, "AND p.to_bucket = fence.from_bucket) = 0", ") >= 0")


def edit_overlooked(planter: Planter) -> None:
    """Firing does not look whether the job was changed."""
    for name in ("fire_and_move_chains", "fire_and_end_chains"):
        planter.sql(name, "AND j.version = i.expect_version", "")
        planter.sql(name, "AND (d.told_version IS NULL OR d.told_version <= i.expect_version)", "")


def ended_runs_end_again(planter: Planter) -> None:
    """A second word about an attempt overwrites the first."""
    for name in ("end_attempts", "end_attempts_and_land_retries"):
        planter.sql(name, "r.state = 2 AND", "")


def leased_over(planter: Planter) -> None:
    """A run that is leased is leased anew."""
    planter.sql(
        "lease_waiting_runs",
        "r.state = 2 AND r.attempt = i.attempt AND r.token_hash = i.token_hash",
        "r.state = 2",
    )


DEFECTS = by_name(
    no_term_check,
    no_range_check,
    landing_unlocked,
    claim_names_nothing,
    claim_names_no_range,
    boundary_one_too_far,
    split_twice,
    closed_undrained,
    reaped_by_anyone,
    retry_lands_twice,
    retry_lands_anywhere,
    finished_before_its_turn,
    edit_overlooked,
    ended_runs_end_again,
    leased_over,
)
