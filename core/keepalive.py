"""Pings on gRPC connections: how a peer that froze or vanished without a word is noticed. Pure: no I/O.

A frozen process keeps its connections open, and TCP says nothing for minutes. Used by the servers of both kinds and by
the report stream; the SDK and the etcd client have settings of their own.
"""

from __future__ import annotations

Options = tuple[tuple[str, int], ...]

# Between our own processes, where a takeover waits for it.
URGENT_MS = 1_000
# Clients and workers may be far away, and nothing of ours depends on noticing them quickly.
PATIENT_MS = 10_000
PATIENT_ANSWER_MS = 5_000
# Half of the most frequent ping of ours: a ping that a busy machine delays comes close to the next one.
_ACCEPTED_EVERY_MS = 500


def pings(every_ms: int, answer_within_ms: int) -> Options:
    """Options of a channel or a server that pings its peer this often, and ends the connection without an answer."""
    return (
        ("grpc.keepalive_time_ms", every_ms),
        ("grpc.keepalive_timeout_ms", answer_within_ms),
        # The one that counts in current releases: without it an answer is waited for during a whole minute.
        ("grpc.http2.ping_timeout_ms", answer_within_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )


def accepts_pings() -> Options:
    """Options of a server whose clients may ping as often as any of ours does, also while they call nothing (B84).

    grpc's own default ends a connection after the third ping within five minutes.
    """
    return (
        ("grpc.http2.min_ping_interval_without_data_ms", _ACCEPTED_EVERY_MS),
        ("grpc.keepalive_permit_without_calls", 1),
    )
