"""What a test session says about itself: the servers it uses, its skips by reason, its passes by isolation level."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable

import pytest

from tools.servers.etcd import find_etcd
from tools.servers.postgres_binaries import find_bin_dir, version_of
from tools.servers.process import ServerFailed

ISOLATION_PROPERTY = "isolation"


def header_lines() -> list[str]:
    """Paths and versions of the interpreter and of both servers, and where they keep their files."""
    python = f"Python {platform.python_version()} ({sys.executable})"
    return [python, _postgres_line(), _etcd_line(), f"temporary files: {tempfile.gettempdir()}"]


def _postgres_line() -> str:
    try:
        bin_dir = find_bin_dir(None)
        return f"PostgreSQL {version_of(bin_dir)} ({bin_dir / 'postgres'})"
    except ServerFailed as missing:
        return str(missing)


def _etcd_line() -> str:
    try:
        return find_etcd().description
    except ServerFailed as missing:
        return str(missing)


def passes_by_isolation(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """How many tests passed at each isolation level."""
    return Counter(
        str(value)
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == ISOLATION_PROPERTY
    )


def skips_by_reason(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """How many tests were skipped for each reason."""
    return Counter(_reason(report) for report in reports)


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def write_summary(reporter: pytest.TerminalReporter) -> None:
    """The last lines before pytest's own count."""
    reporter.section("isolation levels and skips")
    passed = passes_by_isolation(reporter.stats.get("passed", []))
    for level in sorted(passed):
        reporter.line(f"{passed[level]} passed at {level}")
    skipped = skips_by_reason(reporter.stats.get("skipped", []))
    for reason, count in skipped.most_common():
        reporter.line(f"{count} skipped: {reason}")
    if not skipped:
        reporter.line("nothing was skipped")
