"""Statements that stand in no registry, for tests of the SQL linter."""

from __future__ import annotations

from functools import cache

from sqlalchemy import text

from core.store.schema import MIGRATIONS
from core.store.statement import Kind, Statement
from tools.sql_lint.catalog import Catalog
from tools.sql_lint.findings import Finding
from tools.sql_lint.lint import catalog_for, lint_statement

BY_KEY = "WHERE r.run_id = CAST(:id AS UUID)"


@cache
def _catalog() -> Catalog:
    return catalog_for(MIGRATIONS)


def findings(sql: str, kind: Kind) -> list[Finding]:
    """What the linter finds in the statement, against the product's own schema."""
    return list(lint_statement(Statement("planted", kind, sql.strip(), text(sql)), _catalog()))


def rules_broken(sql: str, kind: Kind) -> set[str]:
    return {finding.rule for finding in findings(sql, kind)}
