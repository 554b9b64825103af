"""The statements of terms.py: how the rows of `shard_terms` are read, opened, split and closed.

Each change is a compare-and-set on the very row that its caller saw, and notes what it did in `shard_term_events`. No
statement looks a term up by a bucket; the few open rows of a shard are found by their own index.
"""

from __future__ import annotations

from core.store.statement import Kind, statement


def _recorded(changed: str, event: str, reason: str = "CAST(:reason AS TEXT)") -> str:
    """The CTE that notes the event of each row that came out of the CTE `changed`, and why it came to it."""
    return f"""recorded AS (
      INSERT INTO shard_term_events
        (shard, term, op_id, event, from_bucket, to_bucket, owner, reason, at_us, server_us)
      SELECT c.shard, c.term, CAST(:op_id AS UUID), {event}, c.from_bucket, c.to_bucket, c.owner,
             {reason}, CAST(:now_us AS BIGINT),
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)
      FROM {changed} c
      ON CONFLICT (shard, term, op_id, event) DO NOTHING
    )"""


LIST_NEWEST = statement(
    "list_newest_terms",
    Kind.READ,
    # A handful of newest rows a shard, and the open ones wherever they are: one range of a split may change hands again
    # and again while the other stands open. History below them is not walked.
    """
    SELECT t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state, t.opened_us, t.reason
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    CROSS JOIN LATERAL (
      (SELECT n.shard, n.term, n.from_bucket, n.to_bucket, n.owner, n.state, n.opened_us, n.reason
       FROM shard_terms n WHERE n.shard = s.shard ORDER BY n.term DESC LIMIT 4)
      UNION
      SELECT o.shard, o.term, o.from_bucket, o.to_bucket, o.owner, o.state, o.opened_us, o.reason
      FROM shard_terms o WHERE o.shard = s.shard AND o.state = 1
    ) AS t
    ORDER BY t.shard, t.term
    """,
)
LIST_HISTORY = statement(
    "list_term_history",
    Kind.READ,
    """
    SELECT shard, term, from_bucket, to_bucket, owner, state, opened_us, reason
    FROM shard_terms WHERE shard = CAST(:shard AS BIGINT) ORDER BY term
    """,
)
LIST_BY_OP = statement(
    "list_terms_by_op",
    Kind.READ,
    """
    SELECT t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state, t.opened_us, t.reason
    FROM unnest(CAST(:shards AS BIGINT[])) AS s(shard)
    JOIN shard_terms t ON t.shard = s.shard AND t.state = 1
    WHERE t.op_id = CAST(:op_id AS UUID)
    ORDER BY t.shard
    """,
)
CLOSE = statement(
    "close_replaced_terms",
    Kind.TERM,
    # Waits for every fenced write in flight (they hold the row FOR SHARE). The new term begins where the watermark of
    # this statement's snapshot stands; a later watermark would be safe too. A term whose range had not begun to empty
    # is replaced whole; one whose range is empty is closed, and nothing is left to open.
    f"""
    WITH closed AS (
      UPDATE shard_terms AS t
      SET state = CASE WHEN m.watermark > t.from_bucket THEN 2 ELSE 3 END,
          to_bucket = CASE WHEN m.watermark > t.from_bucket THEN LEAST(m.watermark, t.to_bucket) ELSE t.to_bucket END
      FROM unnest(
             CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:owners AS TEXT[]),
             CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[])
           ) AS i(shard, term, owner, from_bucket, to_bucket)
      JOIN shard_marks m ON m.shard = i.shard
      WHERE t.shard = i.shard AND t.term = i.term AND t.owner = i.owner AND t.state = 1
        AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket
      RETURNING t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, t.state,
                GREATEST(t.from_bucket, m.watermark) AS next_from, i.to_bucket AS next_to
    ), {_recorded("closed", "CASE WHEN c.state = 2 THEN 'close' ELSE 'void' END")}
    SELECT c.shard, c.next_from, c.next_to FROM closed c ORDER BY c.shard
    """,
)
OPEN = statement(
    "open_terms",
    Kind.TERM,
    f"""
    WITH opened AS (
      INSERT INTO shard_terms (shard, term, from_bucket, to_bucket, owner, op_id, state, opened_us, reason)
      SELECT i.shard, COALESCE((SELECT max(t.term) FROM shard_terms t WHERE t.shard = i.shard), 0) + 1,
             i.from_bucket, i.to_bucket, CAST(:owner AS TEXT), CAST(:op_id AS UUID), 1,
             CAST(:now_us AS BIGINT), i.reason
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[]),
                  CAST(:reasons AS TEXT[]))
           AS i(shard, from_bucket, to_bucket, reason)
      WHERE NOT CAST(:only_unclaimed AS BOOLEAN)
         OR NOT EXISTS (SELECT 1 FROM shard_terms e WHERE e.shard = i.shard)
      ON CONFLICT (shard, term) DO NOTHING
      RETURNING shard, term, from_bucket, to_bucket, owner, state, opened_us, reason
    ), {_recorded("opened", "'open'", "c.reason")}
    SELECT o.shard, o.term, o.from_bucket, o.to_bucket, o.owner, o.state, o.opened_us, o.reason
    FROM opened o ORDER BY o.shard
    """,
)
SPLIT = statement(
    "split_terms",
    Kind.TERM,
    # Ends a term at a boundary ahead; the next one begins exactly there. It waits for every fenced write in flight, so
    # that none that saw the longer range commits afterwards. Marks that pass the boundary meanwhile do no harm: what is
    # finished is finished. A shard in which another range is open, too, is not split (rule 17); no such range can come
    # up beside this row, since every way to one changes this row.
    f"""
    WITH cut AS (
      UPDATE shard_terms AS t
      SET to_bucket = i.boundary
      FROM unnest(
             CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:owners AS TEXT[]),
             CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[]), CAST(:boundaries AS BIGINT[]),
             CAST(:opened_until_us AS BIGINT[])
           ) AS i(shard, term, owner, from_bucket, to_bucket, boundary, opened_until_us)
      JOIN shard_marks m ON m.shard = i.shard
      JOIN shard_floors l ON l.shard = i.shard
      WHERE t.shard = i.shard AND t.term = i.term AND t.owner = i.owner AND t.state = 1
        AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket
        AND t.opened_us <= i.opened_until_us
        AND i.boundary > i.from_bucket AND i.boundary < i.to_bucket
        AND i.boundary > m.watermark AND i.boundary > l.floor
        AND (SELECT count(*) FROM shard_terms o WHERE o.shard = i.shard AND o.state = 1 AND o.term <> i.term) = 0
      RETURNING t.shard, t.term, t.from_bucket, t.to_bucket, t.owner, i.to_bucket AS next_to
    ), {_recorded("cut", "'split'")}
    SELECT c.shard, c.to_bucket AS next_from, c.next_to FROM cut c ORDER BY c.shard
    """,
)
CLOSE_DRAINED = statement(
    "close_drained_terms",
    Kind.TERM,
    # By the owner of the range that goes on where this one ends, whose own row stands open meanwhile. The watermark
    # only grows, so that an older snapshot of it is safe; below it nothing can land, so that no run is made any more
    # under the term. That its open runs have gone home elsewhere is for the caller to know.
    f"""
    WITH own AS (
      SELECT n.shard, n.term, n.from_bucket
      FROM unnest(CAST(:shards AS BIGINT[]), CAST(:next_terms AS BIGINT[])) AS w(shard, term)
      JOIN shard_terms n ON n.shard = w.shard AND n.term = w.term
      WHERE n.owner = CAST(:owner AS TEXT) AND n.state = 1
      FOR SHARE OF n
    ), closed AS (
      UPDATE shard_terms AS t
      SET state = 2
      FROM unnest(
             CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[]), CAST(:owners AS TEXT[]),
             CAST(:from_buckets AS BIGINT[]), CAST(:to_buckets AS BIGINT[])
           ) AS i(shard, term, owner, from_bucket, to_bucket)
      JOIN own ON own.shard = i.shard AND own.from_bucket = i.to_bucket
      JOIN shard_marks m ON m.shard = i.shard AND m.watermark >= i.to_bucket
      WHERE t.shard = i.shard AND t.term = i.term AND t.owner = i.owner AND t.state = 1
        AND t.from_bucket = i.from_bucket AND t.to_bucket = i.to_bucket
      RETURNING t.shard, t.term, t.from_bucket, t.to_bucket, t.owner
    ), {_recorded("closed", "'close'")}
    SELECT c.shard, c.term FROM closed c ORDER BY c.shard, c.term
    """,
)
LIST_CLOSED_BY_OP = statement(
    "list_terms_closed_by_op",
    Kind.READ,
    """
    SELECT e.shard, e.term
    FROM unnest(CAST(:shards AS BIGINT[]), CAST(:terms AS BIGINT[])) AS i(shard, term)
    JOIN shard_term_events e ON e.shard = i.shard AND e.term = i.term
    WHERE e.op_id = CAST(:op_id AS UUID) AND e.event = 'close'
    ORDER BY e.shard, e.term
    """,
)
