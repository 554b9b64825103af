"""What handlers return, raise and are given, over a real stream."""

from __future__ import annotations

from tidewheel import RunContext, Worker

from tests.link.scripted_dispatcher import assignment, dispatchers, running
from tests.support.polling import eventually


async def outcome(worker: Worker, dispatcher, made):
    """The result of one assignment."""
    async with running(worker):
        stream = await dispatcher.stream()
        stream.assign(made)
        return await eventually(lambda: stream.result_of(made))


async def test_an_async_handler_returns_json() -> None:
    async with dispatchers() as (dispatcher,):
        worker = Worker(dispatchers=[dispatcher.address])

        @worker.handler("work")
        async def work(ctx: RunContext) -> dict[str, object]:
            return {"run": ctx.run_id, "attempt": ctx.attempt, "payload": ctx.json()}

        made = assignment(payload=b'{"a":1}', attempt=3)
        result = await outcome(worker, dispatcher, made)

    assert result.success.result_type == "application/json"
    assert result.success.result.decode() == f'{{"run":"{made.ref.run_id}","attempt":3,"payload":{{"a":1}}}}'
    assert result.HasField("started_at")
    assert result.HasField("took")
