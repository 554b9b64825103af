"""What the SQL texts alone cannot show: that no text escapes the registry, and that no caller counts on rowcount."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.sql_lint.findings import Finding

# statement.py makes statements out of texts; database.py runs DDL, which the migrations hold.
MAY_MAKE_TEXT = frozenset({"statement.py", "database.py"})
SQL_MAKERS = frozenset({"text", "exec_driver_sql", "select", "insert", "update", "delete"})
COUNTS = frozenset({"rowcount", "supports_sane_rowcount"})
STREAMS = frozenset({"stream", "stream_scalars", "yield_per", "cursor", "copy_records_to_table"})


def lint_sources(files: Iterable[Path]) -> Iterator[Finding]:
    """Findings in the Python files of the room that holds the SQL."""
    for path in files:
        tree = ast.parse(path.read_text(), str(path))
        for node in ast.walk(tree):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Attribute) and node.attr in COUNTS:
                yield Finding(where, "12", f"{node.attr}: use RETURNING")
            elif isinstance(node, ast.Attribute) and node.attr in STREAMS:
                yield Finding(where, "12", f"{node.attr}: no server-side streaming")
            elif isinstance(node, ast.Call) and path.name not in MAY_MAKE_TEXT and _makes_sql(node.func):
                yield Finding(where, "registry", "SQL that is no registered statement: the linter would not see it")


def _makes_sql(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in SQL_MAKERS
    return isinstance(function, ast.Attribute) and function.attr == "exec_driver_sql"
