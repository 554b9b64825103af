"""What a server says on its metrics port, read as an operator's tools read it.

page = await scrape(address)
page.total("tidewheel_fires_total")
(await readiness(address)).reasons
"""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the page, without its value."""

    name: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """One scrape."""

    values: Mapping[Series, float]

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of that name that have those labels; there must be one."""
        found = [
            value
            for series, value in self.values.items()
            if series.name == name and labels.items() <= dict(series.labels).items()
        ]
        assert found, f"the page has no {name} with {labels}"
        return sum(found)

    @property
    def label_values(self) -> set[str]:
        return {value for series in self.values for _, value in series.labels}


@dataclass(frozen=True, slots=True)
class Readiness:
    """What /readyz says: `reasons` by the check that fails."""

    status: int
    reasons: Mapping[str, str]

    @property
    def ready(self) -> bool:
        return self.status == 200


async def scrape(address: str) -> MetricsPage:
    """Read /metrics of the server at `address` (host:port)."""
    _, text = await asyncio.to_thread(_read, f"http://{address}/metrics")
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[Series(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
    return MetricsPage(values)


async def readiness(address: str) -> Readiness:
    """Read /readyz of the server at `address` (host:port)."""
    status, text = await asyncio.to_thread(_read, f"http://{address}/readyz")
    said = json.loads(text)
    assert said["ready"] is (status == 200)
    return Readiness(status, {one["check"]: one["reason"] for one in said["reasons"]})


def _read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:  # noqa: S310 - a loopback page of ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
    except http.client.HTTPException as broken:  # no OSError, but the same: it died while it answered
        raise ConnectionError(str(broken)) from broken
