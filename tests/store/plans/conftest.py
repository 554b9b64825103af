"""Tests of plans look into PostgreSQL, whose plans are the same at every isolation level."""

from __future__ import annotations

import pytest


@pytest.fixture
def isolation() -> str:
    return "READ COMMITTED"


@pytest.fixture(autouse=True)
def _on_postgresql(on_postgresql: None) -> None:
    """Every test here asks for it."""
