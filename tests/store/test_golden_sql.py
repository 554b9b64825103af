"""One SQL: each statement is sent to CockroachDB and to PostgreSQL as the same text, with the same binds."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.url import make_url

from core.store.statement import Statement
from tools.sql_lint.lint import registered

NAMED = {statement.name: statement for statement in registered()}


def dialect(backend: str) -> Dialect:
    return make_url(f"{backend}+asyncpg://").get_dialect()()


def sent(statement: Statement, backend: str) -> tuple[str, tuple[str, ...]]:
    compiled = statement.clause.compile(dialect=dialect(backend))
    return str(compiled), tuple(compiled.positiontup or ())


@pytest.mark.parametrize("name", NAMED)
def test_both_dialects_send_the_same_text(name: str) -> None:
    assert sent(NAMED[name], "cockroachdb") == sent(NAMED[name], "postgresql")


@pytest.mark.parametrize("name", NAMED)
def test_no_bind_is_left_in_the_text(name: str) -> None:
    """`:a::BIGINT` would be passed over, and a word after a colon in a literal taken for a bind."""
    text, binds = sent(NAMED[name], "postgresql")
    written = {word.split(")")[0].split(" ")[0] for word in NAMED[name].sql.split("CAST(:")[1:]}
    assert set(binds) == written
    assert ":" not in text.replace("::", "")
