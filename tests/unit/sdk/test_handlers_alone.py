"""Handlers without a server: what tidewheel.testing says they would have reported."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
from tidewheel import Cancelled, NotRetryable, RunContext, Worker
from tidewheel.outcomes import MOST_MESSAGE_CHARACTERS, MOST_RESULT_BYTES
from tidewheel.testing import run_handler


async def test_a_handler_sees_its_attempt() -> None:
    seen: list[RunContext] = []

    async def handler(ctx: RunContext) -> None:
        seen.append(ctx)

    when = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    outcome = await run_handler(
        handler, payload={"a": 1}, attempt=2, fencing_token=7, last_progress="half", scheduled_for=when, timeout_s=60
    )

    ctx = seen[0]
    assert outcome.succeeded
    assert (outcome.result, outcome.result_type) == (b"", "")
    assert (ctx.attempt, ctx.max_attempts, ctx.fencing_token, ctx.job) == (2, 4, 7, "a-job")
    assert (ctx.json(), ctx.payload_type, ctx.text()) == ({"a": 1}, "application/json", '{"a":1}')
    assert (ctx.scheduled_for, ctx.due_at, ctx.last_progress) == (when, when, b"half")
    assert 0 < ctx.remaining_s <= 60
    assert abs((ctx.deadline - datetime.now(UTC)).total_seconds() - ctx.remaining_s) < 10


@pytest.mark.parametrize(
    ("value", "data", "kind"),
    [
        (b"raw", b"raw", "application/octet-stream"),
        ("text", b"text", "text/plain; charset=utf-8"),
        ([1, 2], b"[1,2]", "application/json"),
        (None, b"", ""),
    ],
)
async def test_async_and_plain_functions_return_the_same(value: object, data: bytes, kind: str) -> None:
    async def later(_: RunContext) -> object:
        return value

    def now(_: RunContext) -> object:
        return value

    for handler in (later, now):
        outcome = await run_handler(handler)
        assert (outcome.succeeded, outcome.result, outcome.result_type) == (True, data, kind)


async def test_an_exception_is_a_failure_with_its_type_text_and_place() -> None:
    async def handler(_: RunContext) -> None:
        raise ValueError("the sky fell")

    outcome = await run_handler(handler)
    assert not outcome.succeeded
    assert not outcome.not_retryable
    assert outcome.error.startswith("ValueError: the sky fell [")
    assert "test_handlers_alone.py" in outcome.error


async def test_not_retryable_says_so() -> None:
    def handler(_: RunContext) -> None:
        raise NotRetryable("no such customer")

    outcome = await run_handler(handler)
    assert outcome.not_retryable
    assert "no such customer" in outcome.error


async def test_a_handler_that_calls_exit_fails_alone() -> None:
    async def handler(_: RunContext) -> None:
        raise SystemExit(3)

    assert "SystemExit: 3" in (await run_handler(handler)).error


async def test_hostile_messages_are_made_sendable() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    async def surrogates(_: RunContext) -> None:
        raise ValueError("a\ud800b\x00c" + "x" * 10_000)

    async def unprintable(_: RunContext) -> None:
        raise Unprintable

    error = (await run_handler(surrogates)).error
    assert error.startswith("ValueError: a?b\N{REPLACEMENT CHARACTER}c")
    assert len(error) <= MOST_MESSAGE_CHARACTERS
    assert "Unprintable" in (await run_handler(unprintable)).error


@pytest.mark.parametrize(("size", "succeeds"), [(MOST_RESULT_BYTES, True), (MOST_RESULT_BYTES + 1, False)])
async def test_b94_a_result_beyond_the_limit_is_a_failure_that_is_not_retried(size: int, succeeds: bool) -> None:
    async def handler(_: RunContext) -> bytes:
        return bytes(size)

    outcome = await run_handler(handler)
    assert outcome.succeeded is succeeds
    if not succeeds:
        assert outcome.not_retryable
        assert "262,145 bytes; at most 262,144" in outcome.error


async def test_a_result_without_a_json_form_is_a_failure_that_is_not_retried() -> None:
    async def handler(_: RunContext) -> object:
        return {1, 2}

    outcome = await run_handler(handler)
    assert outcome.not_retryable
    assert "no JSON form" in outcome.error


async def test_progress_is_kept_and_bounded() -> None:
    async def handler(ctx: RunContext) -> None:
        ctx.heartbeat("one")
        ctx.heartbeat({"rows": 2})
        ctx.heartbeat()
        ctx.heartbeat(bytes(16_384))
        with pytest.raises(ValueError, match="16,385 bytes"):
            ctx.heartbeat(bytes(16_385))
        ctx.heartbeat("last")

    outcome = await run_handler(handler)
    assert outcome.succeeded
    assert outcome.progress == b"last"


async def test_an_async_handler_is_cancelled_and_may_clean_up() -> None:
    cleaned: list[str] = []

    async def handler(ctx: RunContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(ctx.cancel_reason)

    assert (await run_handler(handler, cancel_after_s=0.05)).canceled
    assert cleaned == ["cancel requested"]


async def test_a_success_may_outrun_a_cancel() -> None:
    async def handler(_: RunContext) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "finished all the same"
        return ""

    outcome = await run_handler(handler, cancel_after_s=0.05)
    assert outcome.result == b"finished all the same"


async def test_a_plain_handler_sees_the_cancel_and_raises() -> None:
    def handler(ctx: RunContext) -> None:
        while not ctx.wait_cancelled(60.0):
            pass
        ctx.raise_if_cancelled()

    began_s = time.monotonic()
    assert (await run_handler(handler, cancel_after_s=0.05)).canceled
    assert time.monotonic() - began_s < 30


async def test_a_handler_over_its_time_has_timed_out_whatever_it_returns() -> None:
    async def obeys(_: RunContext) -> None:
        await asyncio.sleep(60)

    def returns(ctx: RunContext) -> str:
        ctx.wait_cancelled(60)
        return "late"

    for handler in (obeys, returns):
        outcome = await run_handler(handler, timeout_s=0.05)
        assert (outcome.timed_out, outcome.canceled, outcome.succeeded) == (True, False, False)


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    async def async_one(_: RunContext) -> None:
        raise asyncio.CancelledError

    def plain_one(_: RunContext) -> None:
        raise Cancelled("of its own")

    for handler in (async_one, plain_one):
        outcome = await run_handler(handler)
        assert not outcome.canceled
        assert outcome.error == "the handler cancelled itself"


def test_what_a_worker_refuses_at_once() -> None:
    worker = Worker("127.0.0.1:1")
    worker.handler("a")(print)
    with pytest.raises(ValueError, match="already"):
        worker.handler("a")(print)
    with pytest.raises(ValueError, match="1 to 128 characters"):
        worker.handler("no spaces")(print)
    with pytest.raises(TypeError, match="a handler must be a function"):
        worker.handler("b")(3)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="slots"):
        Worker("127.0.0.1:1", slots=0)
    with pytest.raises(ValueError, match="queues"):
        Worker("127.0.0.1:1", queues="default")
    with pytest.raises(ValueError, match="no control plane"):
        Worker([])
    with pytest.raises(RuntimeError, match="does not run"):
        worker.drain()


async def test_a_worker_without_handlers_does_not_run() -> None:
    with pytest.raises(RuntimeError, match="at least one handler"):
        await Worker("127.0.0.1:1").run()
