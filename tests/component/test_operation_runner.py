"""Who goes on with an operation, when a step that failed is tried again, and when it is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from controlplane.operations.runner import OperationRunner
from core.errors import Conflict, Unavailable
from core.states import OperationState
from core.store.database import DatabaseConfig
from core.store.operation_records import OperationRecord, Stepped
from tests.support.operation_store import OperationStore
from tests.support.store_world import close_world, open_world


@pytest.fixture
def isolation() -> str:
    """What is decided here does not hang on it."""
    return "READ COMMITTED"


@dataclass
class Heard:
    """Hints as they were left."""

    shards: list[int] = field(default_factory=list)
    runs: list[UUID] = field(default_factory=list)

    def landed(self, shard: int) -> None:
        self.shards.append(shard)

    def canceled(self, shard: int, run_id: UUID) -> None:
        self.runs.append(run_id)


@dataclass
class Room:
    """A runner on a clock that stands still, whose steps fail as they are told to."""

    store: OperationStore
    leads: bool = False
    failing: Exception | None = None
    rest_s: float = 0.0
    stepped: int = 0
    hints: Heard = field(default_factory=Heard)

    def __post_init__(self) -> None:
        self.runner = OperationRunner(
            self.store.operations, self.step, self.store.clock, self.hints, lambda: self.leads
        )

    async def step(self, operation: OperationRecord) -> Stepped:
        self.stepped += 1
        if self.failing is not None:
            raise self.failing
        if self.rest_s:
            return Stepped(operation, rest_s=self.rest_s)
        return await self.store.step(operation)

    async def tries_within(self, seconds: float) -> int:
        """How often it is stepped while time passes in tenths of a second."""
        before = self.stepped
        for _ in range(round(seconds * 10)):
            await self.runner.go_on()
            await self.store.clock.advance(0.1)
        return self.stepped - before


@pytest.fixture
async def room(store_config: DatabaseConfig) -> AsyncIterator[Room]:
    world = await open_world(store_config)
    yield Room(OperationStore(world))
    await close_world(world)


async def state_of(room: Room, operation: OperationRecord) -> OperationState:
    return (await room.store.again(operation)).state


class TestWhoGoesOn:
    async def test_is_the_leader_with_what_nobody_is_at(self, room: Room) -> None:
        operation = await room.store.begin_pause()
        await room.store.clock.advance(10)
        assert not await room.runner.go_on()
        assert room.stepped == 0
        room.leads = True
        assert await room.runner.go_on()
        assert await state_of(room, operation) is OperationState.SUCCEEDED

    async def test_is_not_the_leader_where_it_has_just_moved(self, room: Room) -> None:
        await room.store.begin_pause()
        room.leads = True
        assert await room.tries_within(2.9) == 0
        assert await room.tries_within(0.3) == 1

    async def test_is_whoever_was_asked_for_it(self, room: Room) -> None:
        for number in range(150):
            await room.store.create(f"job-{number:03}")
        operation = await room.store.begin_pause(150)
        first = await room.runner.begin("default", operation.operation_id)
        assert (first.state, first.done) == (OperationState.RUNNING, 100)
        assert await room.runner.go_on()
        assert await state_of(room, operation) is OperationState.SUCCEEDED
        assert not await room.runner.go_on()

    async def test_looks_again_after_the_rest_that_a_step_asked_for(self, room: Room) -> None:
        operation = await room.store.begin_pause()
        room.rest_s = 1.0
        await room.runner.begin("default", operation.operation_id)
        assert await room.tries_within(0.9) == 0
        assert await room.tries_within(0.3) == 1


class TestAStepThatFails:
    async def test_is_tried_again_later_each_time_however_long_the_database_is_away(self, room: Room) -> None:
        operation = await room.store.begin_pause()
        room.failing = Unavailable("away")
        begun = await room.runner.begin("default", operation.operation_id)
        assert begun.state is OperationState.RUNNING
        assert await room.tries_within(7.6) == 4  # after 0.5, 1, 2 and 4 s
        assert await room.tries_within(300) <= 15
        assert await state_of(room, operation) is OperationState.RUNNING
        room.failing = None
        await room.tries_within(31)
        assert await state_of(room, operation) is OperationState.SUCCEEDED

    async def test_with_a_reason_ends_the_operation_with_it(self, room: Room) -> None:
        operation = await room.store.begin_pause()
        room.failing = Conflict("the job was deleted")
        ended = await room.runner.begin("default", operation.operation_id)
        assert (ended.state, ended.error) == (OperationState.FAILED, "the job was deleted")
        assert ended.ended_us > 0

    async def test_by_a_defect_is_given_up_after_five(self, room: Room, caplog: pytest.LogCaptureFixture) -> None:
        operation = await room.store.begin_pause()
        room.failing = KeyError("labels")
        await room.runner.begin("default", operation.operation_id)
        assert await room.tries_within(60) == 4
        ended = await room.store.again(operation)
        assert (ended.state, ended.error) == (
            OperationState.FAILED,
            "a step failed 5 times; the server's log says more",
        )
        assert "KeyError" in caplog.text

    async def test_of_an_operation_that_is_being_canceled_is_tried_for_ever(self, room: Room) -> None:
        """What was made has to be taken back: there is no state in which it may be left."""
        operation = await room.store.begin_pause()
        await room.store.cancel_operation(operation)
        room.failing = KeyError("labels")
        await room.runner.begin("default", operation.operation_id)
        await room.tries_within(120)
        assert await state_of(room, operation) is OperationState.CANCELING
        room.failing = None
        await room.tries_within(31)
        assert await state_of(room, operation) is OperationState.CANCELED


async def test_whoever_owns_the_shards_is_told(room: Room) -> None:
    await room.store.create()
    operation = await room.store.begin_backfill(hours=1)
    await room.runner.begin("default", operation.operation_id)
    (job,) = await room.store.world.rows("jobs")
    assert room.hints.shards == [job["shard"]]
    await room.store.cancel_operation(operation)
    await room.runner.go_on()
    runs = await room.store.world.rows("runs")
    assert sorted(room.hints.runs) == sorted(row["run_id"] for row in runs)
