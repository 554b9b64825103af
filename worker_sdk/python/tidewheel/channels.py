"""How the SDK's gRPC channels are set up. Called by the client, the dispatcher watch and the links."""

from __future__ import annotations

import grpc.aio

_BACKOFF = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Two clients in one process must not share a connection: closing or cutting one would end the other's calls.
    ("grpc.use_local_subchannel_pool", 1),
)
# A frame of assignments holds many payloads of up to 256 KiB each.
_LARGE_FRAMES = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


def call_channel(address: str) -> grpc.aio.Channel:
    """A channel for short calls. It connects at its first call."""
    return grpc.aio.insecure_channel(address, options=[*_BACKOFF, *_LARGE_FRAMES])


def stream_channel(address: str, *, ping_every_s: float = 10.0, answer_within_s: float = 5.0) -> grpc.aio.Channel:
    """A channel for a stream that stays open. Such a stream may be silent for long; one to a peer that froze or
    vanished without a word ends when a ping is not answered in time."""
    return grpc.aio.insecure_channel(
        address, options=[*_BACKOFF, *_pings(ping_every_s, answer_within_s), *_LARGE_FRAMES]
    )


def _pings(every_s: float, answer_within_s: float) -> tuple[tuple[str, int], ...]:
    """Only while a call is open, as servers permit it; one that objects makes gRPC double the time."""
    return (
        ("grpc.keepalive_time_ms", round(every_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(answer_within_s * 1000)),
        # The one that counts in current releases: without it an answer is waited for during a whole minute.
        ("grpc.http2.ping_timeout_ms", round(answer_within_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
    )
