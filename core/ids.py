"""Identities that are derived, so that two writers who mean the same thing mint the same id. Pure.

A run id is a UUID of 16 bits of job hash, 48 bits of scheduled_for in milliseconds and 64 bits of digest. Its order is
therefore (shard, job hash, time): the top bits of the hash are the shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from uuid import UUID

HASH_BITS = 16
_MASK_48 = (1 << 48) - 1


def job_hash(job_id: UUID) -> int:
    """The 16-bit hash of a job, fixed at its creation; it never changes its shard."""
    return int.from_bytes(blake2b(job_id.bytes, digest_size=2, person=b"tw-job-hash").digest(), "big")


def shard_of(hash16: int, shard_count: int) -> int:
    """The shard of a job hash: its top bits. `shard_count` is a power of two up to 65,536."""
    return hash16 * shard_count >> HASH_BITS


def occurrence_run_id(job_id: UUID, hash16: int, scheduled_for_us: int) -> UUID:
    """Run id of the occurrence of a job at `scheduled_for_us`."""
    digest = _digest64(b"tw-occurrence", job_id.bytes, scheduled_for_us.to_bytes(8, "big", signed=True))
    return _run_id(hash16, scheduled_for_us, digest)


def trigger_run_id(namespace: str, request_id: str, hash16: int, accepted_us: int) -> UUID:
    """Run id of a manual trigger, by its request id; `accepted_us` only places it in time."""
    digest = _digest64(b"tw-trigger", namespace.encode(), b"\0", request_id.encode())
    return _run_id(hash16, accepted_us, digest)


def backfill_run_id(operation_id: UUID, hash16: int, scheduled_for_us: int, made_us: int) -> UUID:
    """Run id of the occurrence at `scheduled_for_us` in a backfill; `made_us` only places it in time."""
    digest = _digest64(b"tw-backfill", operation_id.bytes, scheduled_for_us.to_bytes(8, "big", signed=True))
    return _run_id(hash16, made_us, digest)


def operation_audit_id(operation_id: UUID, job_id: UUID) -> UUID:
    """Id of the audit row of what an operation did to a job."""
    return UUID(bytes=blake2b(operation_id.bytes + job_id.bytes, digest_size=16, person=b"tw-op-audit").digest())


def chain_id(job_id: UUID, job_version: int) -> UUID:
    """Id of the due row that carries the occurrences of one version of a job."""
    named = job_id.bytes + job_version.to_bytes(8, "big")
    return UUID(bytes=blake2b(named, digest_size=16, person=b"tw-chain").digest())


def run_shard(run_id: UUID, shard_count: int) -> int:
    """The shard of a run, read off its id."""
    return shard_of(run_id.int >> (128 - HASH_BITS), shard_count)


def shard_hashes(shard: int, shard_count: int) -> range:
    """The job hashes of a shard: an equal slice of them all."""
    per_shard = (1 << HASH_BITS) // shard_count
    return range(shard * per_shard, (shard + 1) * per_shard)


def hashes_range(hashes: range) -> tuple[UUID, UUID]:
    """The range [low, high) of the ids of every run whose job hash lies in `hashes` (consecutive ones)."""
    return _first_of(hashes.start), _first_of(hashes.stop)


def run_id_ranges(hashes: Iterable[int], from_us: int) -> list[tuple[UUID, UUID]]:
    """The ranges [low, high) of the ids of every run of these job hashes with scheduled_for >= `from_us`.

    One range a job hash, since the id is ordered by time only within a hash.
    """
    low_ms = (max(0, from_us) // 1000) & _MASK_48
    return [(UUID(int=(h << 112) | (low_ms << 64)), _first_of(h + 1)) for h in hashes]


def token_hash(token: bytes) -> bytes:
    """What is stored of an attempt token: the secret itself never is."""
    return blake2b(token, digest_size=32, person=b"tw-token").digest()


def _run_id(hash16: int, instant_us: int, digest64: int) -> UUID:
    instant_ms = (instant_us // 1000) & _MASK_48
    return UUID(int=(hash16 << 112) | (instant_ms << 64) | digest64)


def _digest64(person: bytes, *parts: bytes) -> int:
    return int.from_bytes(blake2b(b"".join(parts), digest_size=8, person=person).digest(), "big")


def _first_of(hash16: int) -> UUID:
    # Past the last hash the greatest UUID bounds the range: no instant before the year 10889 mints it.
    return UUID(int=min(hash16 << 112, (1 << 128) - 1))
