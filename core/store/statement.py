"""Named SQL statements, and the list of them all that the SQL linter reads.

A statement declares what kind it is; tools/sql_lint holds each kind to its rules (one SQL for two databases, every
dispatcher write fenced, every landing under the floor). Statements are made at import time and never change; making two
of one name is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sqlalchemy import TextClause, text


class Kind(Enum):
    """What a statement may do."""

    READ = "read"  # changes nothing
    ACT = "act"  # a dispatcher's write: every mutating branch is fenced by its own term row, FOR SHARE
    LAND = "land"  # inserts into `due` without a term: the floor row is read FOR SHARE in the same statement
    REPAIR = "repair"  # the reconciler's: moves or inserts one row, guarded by a comparison of its own, and audited
    TELL = "tell"  # a change of a job: names its next version in a due row, by the whole key, and moves nothing
    TERM = "term"  # opens and closes terms by compare-and-set
    WRITE = "write"  # any other write of the API or of set-up
    SCHEMA = "schema"  # DDL


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL text with named binds (`:name`), kept beside its compiled form."""

    name: str
    kind: Kind
    sql: str
    clause: TextClause


STATEMENTS: Final[dict[str, Statement]] = {}


def statement(name: str, kind: Kind, sql: str) -> Statement:
    """Make and register a statement."""
    if name in STATEMENTS:
        raise ValueError(f"statement {name!r} is defined twice")
    made = Statement(name, kind, sql.strip(), text(sql))
    STATEMENTS[name] = made
    return made
