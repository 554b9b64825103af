"""What a dispatcher finds wrong with itself: named only after a while, with its age, and gone when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from core.ailments import AilmentKind
from core.config import DispatcherSettings
from dispatcher.ailments import Ailments, Signs, Workers
from dispatcher.routes import Routes, queue_mark, route_of
from tests.support.clock import ManualClock
from tests.support.dispatcher_parts import PlainTaker, job_version, waiting_run


class _Metrics:
    ages_s: dict[AilmentKind, float]

    def set_ailments(self, ages_s: dict[AilmentKind, float]) -> None:
        self.ages_s = ages_s


@dataclass
class _Surroundings:
    clock: ManualClock = field(default_factory=ManualClock)
    settings: DispatcherSettings = field(default_factory=DispatcherSettings)
    metrics: _Metrics = field(default_factory=_Metrics)


@dataclass
class _Remembered:
    routes: Routes = field(default_factory=lambda: Routes(100))


class Patient:
    """A dispatcher whose loops and workers are what the test says."""

    def __init__(self) -> None:
        self.around = _Surroundings()
        self.clock = self.around.clock
        self.memory = _Remembered()
        self.stuck: set[AilmentKind] = set()
        self.last_s = dict.fromkeys(AilmentKind, self.clock.monotonic_s())
        signs = Signs(lambda: self._last(AilmentKind.DATABASE), lambda: self._last(AilmentKind.DUE_LOOP))
        around: Any = self.around
        memory: Any = self.memory
        self.ailments = Ailments(around, memory, signs)
        self.taker = PlainTaker({route_of(job_version())})
        self.memory.routes.join(self.taker)

    def _last(self, kind: AilmentKind) -> float:
        if kind not in self.stuck:
            self.last_s[kind] = self.clock.monotonic_s()
        return self.last_s[kind]

    def found(self) -> dict[AilmentKind, float]:
        ailments, _ = self.ailments.look()
        assert self.around.metrics.ages_s == {each.kind: each.age_s for each in ailments}
        return {each.kind: each.age_s for each in ailments}

    def workers(self) -> Workers:
        return self.ailments.look()[1]


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.mark.parametrize(("kind", "patience_s"), [(AilmentKind.DATABASE, 1.25), (AilmentKind.DUE_LOOP, 2.0)])
async def test_what_stands_still_is_named_with_its_age(patient: Patient, kind: AilmentKind, patience_s: float) -> None:
    assert patient.found() == {}
    patient.stuck.add(kind)
    await patient.clock.advance(patience_s - 0.1)
    assert patient.found() == {}
    await patient.clock.advance(2.1)
    assert patient.found() == {kind: pytest.approx(patience_s + 2.0)}
    patient.stuck.clear()
    assert patient.found() == {}


async def test_a_timer_that_comes_late_again_and_again_is_a_blocked_event_loop(patient: Patient) -> None:
    for _ in range(4):
        await patient.clock.advance(1.0)
        patient.ailments.ticked(patient.clock.monotonic_s(), 0.8)
    assert patient.found() == {AilmentKind.EVENT_LOOP: pytest.approx(3.8)}
    for _ in range(60):
        await patient.clock.advance(0.1)
        patient.ailments.ticked(patient.clock.monotonic_s(), 0.01)
    assert patient.found() == {}


async def test_one_long_block_is_known_on_waking(patient: Patient) -> None:
    await patient.clock.advance(6.0)
    patient.ailments.ticked(patient.clock.monotonic_s(), 5.9)
    assert patient.found() == {AilmentKind.EVENT_LOOP: pytest.approx(5.9)}


async def test_being_a_little_late_is_the_lot_of_a_busy_machine(patient: Patient) -> None:
    for _ in range(100):
        await patient.clock.advance(0.25)
        patient.ailments.ticked(patient.clock.monotonic_s(), 0.12)
    assert patient.found() == {}


async def test_without_workers_it_says_so_from_then_on(patient: Patient) -> None:
    patient.memory.routes.leave(patient.taker)
    assert patient.found() == {AilmentKind.WORKERS: 0.0}
    await patient.clock.advance(4.0)
    assert patient.found() == {AilmentKind.WORKERS: 4.0}
    assert patient.workers() == Workers(0, (), ())
    patient.memory.routes.join(patient.taker)
    assert patient.found() == {}


async def test_queues_are_told_by_their_marks(patient: Patient) -> None:
    job = job_version(namespace="other")
    patient.memory.routes.wait(waiting_run())
    patient.memory.routes.wait(waiting_run(job))
    served, unserved = queue_mark(("default", "default")), queue_mark(("other", "default"))
    assert patient.workers() == Workers(1, (served,), (unserved,))
    assert AilmentKind.WORKERS in patient.found()
