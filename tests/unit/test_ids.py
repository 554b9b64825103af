"""Derived ids: the same occurrence mints the same id everywhere, and ids are ordered by shard, job hash and time."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ids import (
    chain_id,
    hashes_range,
    job_hash,
    occurrence_run_id,
    run_id_ranges,
    run_shard,
    shard_hashes,
    shard_of,
    token_hash,
    trigger_run_id,
)

JOB, OTHER_JOB = UUID(int=1), UUID(int=2)
SHARD_COUNTS = [1, 2, 64, 1024, 65_536]
hashes = st.integers(0, 65_535)
instants = st.integers(0, 7_258_118_400_000_000)  # up to the year 2200
job_ids = st.uuids()


@given(job_ids, hashes, instants)
def test_an_id_depends_on_the_job_and_its_instant_to_the_microsecond(job: UUID, hash16: int, at_us: int) -> None:
    run = occurrence_run_id(job, hash16, at_us)
    assert run == occurrence_run_id(job, hash16, at_us)
    assert run != occurrence_run_id(job, hash16, at_us + 1), "also within one millisecond"
    assert run != occurrence_run_id(UUID(int=(job.int + 1) % 2**128), hash16, at_us)


def test_an_id_has_been_the_same_since_it_was_first_minted() -> None:
    """Stored runs are found by it: a change here would fire everything once more."""
    assert job_hash(JOB) == 0x571A
    assert str(occurrence_run_id(JOB, 0x571A, 1_767_225_600_000_000)) == "571a019b-76da-a800-f32b-331c96754188"
    assert str(trigger_run_id("default", "r1", 0x571A, 1_767_225_600_000_000)) == "571a019b-76da-a800-4751-2e2352e5ff6b"
    assert str(chain_id(JOB, 1)) == "785b53cf-4d5b-6691-8b8d-7c5724459df4"


@given(job_ids, hashes, instants, instants)
def test_ids_of_a_job_are_ordered_by_time(job: UUID, hash16: int, one_us: int, other_us: int) -> None:
    early, late = sorted((one_us, other_us))
    if late // 1000 > early // 1000:
        assert occurrence_run_id(job, hash16, early) < occurrence_run_id(job, hash16, late)


@given(hashes, instants, st.sampled_from(SHARD_COUNTS))
def test_the_shard_of_a_run_is_read_off_its_id(hash16: int, at_us: int, shard_count: int) -> None:
    shard = shard_of(hash16, shard_count)
    assert 0 <= shard < shard_count
    assert run_shard(occurrence_run_id(JOB, hash16, at_us), shard_count) == shard
    assert run_shard(trigger_run_id("default", "r", hash16, at_us), shard_count) == shard


@pytest.mark.parametrize("shard_count", SHARD_COUNTS)
def test_shards_are_equal_slices_of_the_hashes(shard_count: int) -> None:
    counts = [0] * shard_count
    for hash16 in range(65_536):
        counts[shard_of(hash16, shard_count)] += 1
    assert set(counts) == {65_536 // shard_count}


@given(hashes, instants, instants, st.sampled_from([64, 1024, 65_536]))
def test_the_ranges_of_a_shard_hold_its_runs_since_the_mark_and_no_others(
    hash16: int, mark_us: int, at_us: int, shard_count: int
) -> None:
    run = occurrence_run_id(JOB, hash16, at_us)
    shard = shard_of(hash16, shard_count)
    inside = any(low <= run < high for low, high in run_id_ranges(shard_hashes(shard, shard_count), mark_us))
    assert inside == (at_us // 1000 >= mark_us // 1000)
    other = (shard + 1) % shard_count
    assert not any(low <= run < high for low, high in run_id_ranges(shard_hashes(other, shard_count), 0))
    low, high = hashes_range(shard_hashes(shard, shard_count))
    assert low <= run < high


def test_a_mark_before_the_epoch_means_everything() -> None:
    assert run_id_ranges([3], -5) == run_id_ranges([3], 0)


def test_a_trigger_is_known_by_its_request_within_its_namespace() -> None:
    first = trigger_run_id("default", "request-1", 5, 1_000_000)
    assert first == trigger_run_id("default", "request-1", 5, 1_000_000)
    assert first != trigger_run_id("default", "request-2", 5, 1_000_000)
    assert first != trigger_run_id("other", "request-1", 5, 1_000_000)
    assert first != occurrence_run_id(JOB, 5, 1_000_000)


def test_each_version_of_a_job_has_a_chain_of_its_own() -> None:
    assert len({chain_id(JOB, 1), chain_id(JOB, 2), chain_id(OTHER_JOB, 1)}) == 3


def test_what_is_stored_of_a_secret_does_not_show_it() -> None:
    secret = b"s" * 32
    assert token_hash(secret) == token_hash(secret)
    assert token_hash(secret) != token_hash(b"t" * 32)
    assert secret not in token_hash(secret)
    assert len(token_hash(secret)) == 32
