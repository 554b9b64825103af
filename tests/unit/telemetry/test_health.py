"""Readiness: loops that fall silent show, loops that idle do not (case B131)."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from core.telemetry.health import Ailment, Health
from tests.support.clock import ManualClock


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock)


async def test_b131_a_loop_that_hangs_is_found_after_three_of_its_periods(health: Health, clock: ManualClock) -> None:
    due = health.pulse("due", period_s=0.25)
    due.beat()
    await clock.advance(0.75)
    assert health.is_ready
    await clock.advance(0.01)
    assert health.ailments() == [Ailment("due", "last passed 0.8 s ago, its period is 0.25 s")]
    due.beat()
    assert health.is_ready


async def test_b131_the_age_of_the_last_pass_grows_while_the_loop_hangs(health: Health, clock: ManualClock) -> None:
    registry = CollectorRegistry()
    registry.register(health)
    health.pulse("due", period_s=0.25).beat()
    await clock.advance(90)
    assert registry.get_sample_value("tidewheel_last_pass_age_seconds", {"loop": "due"}) == 90
    assert registry.get_sample_value("tidewheel_ready") == 0


async def test_a_jump_of_the_wall_clock_ails_nothing(health: Health, clock: ManualClock) -> None:
    health.pulse("due", period_s=0.25).beat()
    clock.set_wall(clock.now_us() + 3_600_000_000)
    assert health.is_ready


def test_a_process_is_not_ready_before_each_loop_has_passed_once(health: Health) -> None:
    due, terms = health.pulse("due", 0.25), health.pulse("terms", 1.0)
    due.beat()
    assert health.ailments() == [Ailment("terms", "has not passed yet")]
    terms.beat()
    assert health.is_ready


async def test_b131_a_follower_is_healthy_though_only_the_leader_s_loop_runs(
    health: Health, clock: ManualClock
) -> None:
    lead = health.pulse("lead", period_s=1.0)
    lead.rest()
    await clock.advance(1_000)
    assert health.is_ready
    assert lead.age_s == 0
    lead.beat()
    await clock.advance(3.1)
    assert not health.is_ready, "elected, then hung"


def test_a_role_adds_checks_of_its_own(health: Health) -> None:
    reasons = iter(["no answer since 3 s", ""])
    health.require("database", lambda: next(reasons))
    assert health.ailments() == [Ailment("database", "no answer since 3 s")]
    assert health.is_ready


def test_a_check_that_breaks_is_an_ailment_not_a_failure_of_the_page(health: Health) -> None:
    health.require("etcd", lambda: str(1 // 0))
    assert health.ailments() == [Ailment("etcd", "the check itself failed: ZeroDivisionError")]


def test_a_process_without_loops_and_checks_is_ready(health: Health) -> None:
    assert health.is_ready
