"""Runs every rule over statements, migrations and source files. The caller decides which; the tests plant bad ones."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import core.store
from core.store.schema import LEDGER_DDL, MIGRATIONS, Migration
from core.store.statement import STATEMENTS, Statement
from tools.sql_lint import ddl, fence, kinds, landing, portable, repair
from tools.sql_lint.catalog import Catalog, catalog_of
from tools.sql_lint.findings import Finding
from tools.sql_lint.parts import read
from tools.sql_lint.source import lint_sources
from tools.sql_lint.tree import Unreadable, parse

LEDGER = Migration(0, "schema_migrations", LEDGER_DDL)
# What is asked of each statement.
RULES = (*portable.RULES, *landing.RULES, *fence.RULES, *kinds.RULES, *repair.RULES)


def registered() -> list[Statement]:
    """Every statement of the product: importing a module of core.store registers its statements."""
    for module in pkgutil.iter_modules(core.store.__path__):
        importlib.import_module(f"{core.store.__name__}.{module.name}")
    return list(STATEMENTS.values())


def lint_everything() -> list[Finding]:
    """Findings in the product itself."""
    migrations = [LEDGER, *MIGRATIONS]
    files = sorted(path for folder in core.store.__path__ for path in Path(folder).glob("*.py"))
    findings = list(lint_migrations(migrations))
    catalog = catalog_for(migrations)
    for statement in registered():
        findings += lint_statement(statement, catalog)
    return [*findings, *lint_sources(files)]


def catalog_for(migrations: Iterable[Migration]) -> Catalog:
    """What the migrations make; those that cannot be read are left out."""
    found = []
    for migration in migrations:
        if migration.dialect != "cockroachdb":
            try:
                found += parse(migration.ddl)
            except Unreadable:
                continue
    return catalog_of(found)


def lint_statement(statement: Statement, catalog: Catalog) -> Iterator[Finding]:
    """Findings in one statement, against the schema in `catalog`."""
    try:
        parsed = read(statement, catalog)
    except Unreadable as error:
        yield Finding(statement.name, _rule_of(error), f"is not in the grammar that both databases share: {error}")
        return
    for rule, check in RULES:
        for text in dict.fromkeys(check(parsed)):
            yield Finding(statement.name, rule, text)


def lint_migrations(migrations: Sequence[Migration]) -> Iterator[Finding]:
    """Findings in the schema."""
    catalog = catalog_for(migrations)
    steps = []
    for migration in migrations:
        where = f"migration {migration.number} ({migration.name})"
        try:
            step = ddl.read_step(migration, catalog)
        except Unreadable as error:
            yield Finding(where, "11", f"is not in the grammar that both databases share: {error}")
            continue
        steps.append(step)
        for rule, check in ddl.RULES:
            for text in dict.fromkeys(check(step)):
                yield Finding(where, rule, text)
    yield from ddl.names_are_unique(steps)


def _rule_of(error: Unreadable) -> str:
    """UPDATE or DELETE with ORDER BY or LIMIT is CockroachDB's own, like all else that PostgreSQL cannot read."""
    return "5" if any(word in str(error) for word in ('"LIMIT"', '"ORDER"', '"limit"', '"order"')) else "11"
