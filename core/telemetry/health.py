"""Whether a process can do its work: signs of life of its loops, and checks that its role adds.

The loops write an instant, and whoever asks (the HTTP thread, the gRPC health service) compares it with now: a hung
loop shows by its silence, even when the event loop itself hangs. Being idle is healthy: a follower's and an empty
dispatcher's loops pass all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.clock import Clock

log = logging.getLogger(__name__)

# A loop that did not pass for so many of its periods does not work.
MISSED_PERIODS = 3


@dataclass(frozen=True, slots=True)
class Ailment:
    """Why a process is not ready: the check's name, and a sentence."""

    check: str
    reason: str


class Pulse:
    """The sign of life of one loop. `beat` is called by the loop after each pass that succeeded."""

    def __init__(self, name: str, period_s: float, clock: Clock) -> None:
        self.name = name
        self._period_s = period_s
        self._clock = clock
        self._last_s = clock.monotonic_s()
        self._has_passed = False
        self._resting = False

    def beat(self) -> None:
        self._last_s = self._clock.monotonic_s()
        self._has_passed = True
        self._resting = False

    def rest(self) -> None:
        """The loop is not meant to run now (only the leader's does, say); the next beat ends the rest."""
        self._resting = True

    @property
    def age_s(self) -> float:
        """Time since the last pass that succeeded, since the start before the first; 0 at rest."""
        return 0.0 if self._resting else max(0.0, self._clock.monotonic_s() - self._last_s)

    @property
    def reason(self) -> str:
        """Why the loop counts as hung; empty when it does not."""
        if self._resting:
            return ""
        if not self._has_passed:
            return "has not passed yet"
        age_s = self.age_s
        if age_s <= MISSED_PERIODS * self._period_s:
            return ""
        return f"last passed {age_s:.1f} s ago, its period is {self._period_s:g} s"


class Health(Collector):
    """All checks of one process, and the gauges made of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pulses: list[Pulse] = []
        self._checks: dict[str, Callable[[], str]] = {}

    def pulse(self, name: str, period_s: float) -> Pulse:
        """A new loop to watch; `name` is fixed in the code, since it is a label too."""
        made = Pulse(name, period_s, self._clock)
        self._pulses.append(made)
        return made

    def require(self, name: str, check: Callable[[], str]) -> None:
        """Ask `check` too: a reason, or an empty string while all is well. It is called from other threads: it only
        looks at what somebody wrote down, and never waits."""
        self._checks[name] = check

    def ailments(self) -> list[Ailment]:
        """Every reason why the process is not ready; empty when it is."""
        found = [Ailment(pulse.name, pulse.reason) for pulse in self._pulses]
        found += [Ailment(name, _asked(name, check)) for name, check in self._checks.items()]
        return [ailment for ailment in found if ailment.reason]

    @property
    def is_ready(self) -> bool:
        return not self.ailments()

    def collect(self) -> Iterator[Metric]:
        ages = GaugeMetricFamily(
            "tidewheel_last_pass_age_seconds",
            "Time since a loop last passed with success; 0 while it is not meant to run.",
            labels=["loop"],
        )
        for pulse in self._pulses:
            ages.add_metric([pulse.name], pulse.age_s)
        yield ages
        yield GaugeMetricFamily("tidewheel_ready", "1 while the process can do its work, else 0.", value=self.is_ready)


def _asked(name: str, check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception as error:
        log.exception("the health check %s failed", name)
        return f"the check itself failed: {type(error).__name__}"
