"""`python -m tools.sql_lint`: prints each finding as `where: rule N: text`, and exits 1 when there is one."""

from __future__ import annotations

import sys

from core.store.schema import MIGRATIONS
from tools.sql_lint.lint import lint_everything, registered


def main() -> int:
    """The exit code."""
    findings = lint_everything()
    for finding in findings:
        print(finding)
    if not findings:
        print(f"{len(registered())} statements and {len(MIGRATIONS)} migrations follow the rules")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
