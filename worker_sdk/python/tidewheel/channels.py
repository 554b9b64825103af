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
# A stream may be silent for a long time, and a peer that vanished says nothing: pings end such a stream after 15 s.
# Only while a call is open, as servers permit it; a server that objects (too_many_pings) makes gRPC double the time.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
)
# A frame of assignments holds many payloads of up to 256 KiB each.
_LARGE_FRAMES = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


def call_channel(address: str) -> grpc.aio.Channel:
    """A channel for short calls. It connects at its first call."""
    return grpc.aio.insecure_channel(address, options=[*_BACKOFF, *_LARGE_FRAMES])


def stream_channel(address: str) -> grpc.aio.Channel:
    """A channel for a stream that stays open."""
    return grpc.aio.insecure_channel(address, options=[*_BACKOFF, *_KEEPALIVE, *_LARGE_FRAMES])
