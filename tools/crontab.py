"""Reads crontabs: each line becomes a job or a problem, and says what could not be kept. Pure: text in, values out.

Follows crontab(5): environment lines hold for the lines after them, the first unescaped `%` ends the command and begins
its standard input, `CRON_TZ` sets the zone that times are read in, `TZ` only the command's own, `RANDOM_DELAY` becomes
jitter: one delay a job, the same for every run. System crontabs have a user column after the time. Two spellings are
ours: the line `# tidewheel: seconds` makes every later line have six time fields, seconds first; and any line may begin
with `@every 2s`. Called by `tidewheel import crontab`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from core.clock import US_PER_S
from core.cron import parse_line, uses_slots
from core.errors import Invalid
from core.schedule import Schedule
from core.zones import zone
from tools.crontab_names import JobNames

DEFAULT_SHELL = "/bin/sh"
MAX_DELAY_MIN = 1440

_ENVIRONMENT = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*)""", re.DOTALL)
_DIRECTIVE = re.compile(r"#\s*tidewheel:\s*(.*)", re.IGNORECASE)
_PERCENT = re.compile(r"\\.|%|[^\\%]+|\\\Z", re.DOTALL)
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?(?:[:/][A-Za-z0-9_.:/-]+)?")
# A command free of these is the same with and without a shell.
_NEEDS_SHELL = re.compile(r"[|&;<>()$`*?\[\]{}~#!\n]|^\s*[A-Za-z_][A-Za-z0-9_]*=")
_BUILTINS = frozenset({".", ":", "cd", "exec", "eval", "export", "source", "ulimit", "umask", "unset", "set", "exit"})
# Settings of cron itself that say what happens around a command.
_NOT_KEPT = {
    "START_HOURS_RANGE": "the range of starting hours is not kept",
    "MAILFROM": "no mail is sent",
    "CONTENT_TYPE": "no mail is sent",
    "CONTENT_TRANSFER_ENCODING": "no mail is sent",
}


@dataclass(frozen=True)
class ImportedJob:
    """One line that can be kept. Either `argv` or `shell_command` is given; the latter is run as `shell` -c."""

    name: str
    schedule: Schedule
    argv: tuple[str, ...]
    shell_command: str
    shell: str
    stdin: str | None
    env: Mapping[str, str]
    user: str | None
    description: str
    line_no: int
    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """One line that cannot be kept, and why; nothing is made of it."""

    line_no: int
    text: str
    reason: str


def parse_crontab(text: str, *, system: bool, anchor_us: int, default_zone: str = "UTC") -> list[ImportedJob | Problem]:
    """Read a crontab, in the order of its lines; comments, blank and environment lines have no result of their own.

    `system` says whether lines have a user column, as in /etc/crontab and /etc/cron.d. `anchor_us` is where `@every`
    lines count from. Times are read in `default_zone` until a CRON_TZ line says otherwise.
    """
    reader = _Reader(system=system, anchor_us=anchor_us, zone=default_zone)
    for line_no, line in enumerate(text.split("\n"), start=1):
        reader.read(line_no, line.rstrip("\r"))
    return reader.results


@dataclass
class _Reader:
    """What holds for the lines that follow."""

    system: bool
    anchor_us: int
    zone: str
    results: list[ImportedJob | Problem] = field(default_factory=list)
    _names: JobNames = field(default_factory=JobNames)
    _env: dict[str, str] = field(default_factory=dict)
    _mail_to: str = ""
    _cron_notes: dict[str, str] = field(default_factory=dict)
    _bad_zone_line: int | None = None
    _seconds: bool = False
    _jitter_us: int = 0
    _comments: list[str] = field(default_factory=list)

    def read(self, line_no: int, line: str) -> None:
        stripped = line.strip()
        try:
            if not stripped:
                self._comments.clear()
            elif stripped.startswith("#"):
                self._read_comment(stripped)
            elif match := _ENVIRONMENT.fullmatch(stripped):
                self._read_environment(line_no, match)
            else:
                self._read_job(line_no, stripped)
        except Invalid as refusal:
            self.results.append(Problem(line_no, line, _reason(refusal)))
            self._comments.clear()

    def _read_comment(self, line: str) -> None:
        if match := _DIRECTIVE.fullmatch(line):
            if match[1].strip().lower() != "seconds":
                raise Invalid("directive", "the one directive is `# tidewheel: seconds`")
            self._seconds = True
            return
        comment = line.lstrip("#").strip()
        if comment and not _is_decoration(comment):
            self._comments.append(comment)

    def _read_environment(self, line_no: int, match: re.Match[str]) -> None:
        name = match[1] or match[2] or match[3] or ""
        value = _unquoted(match[4].strip())
        self._comments.clear()
        if name == "CRON_TZ":
            self._bad_zone_line = line_no  # until it has proved right
            self.zone = zone(value, field="CRON_TZ").key
            self._bad_zone_line = None
        elif name == "MAILTO":
            self._mail_to = value
        elif name == "RANDOM_DELAY":
            self._jitter_us = _minutes_us(value)
        elif name in _NOT_KEPT:
            self._cron_notes[name] = f"{name} (line {line_no}): {_NOT_KEPT[name]}"
        elif not name or "\0" in name + value:
            raise Invalid("environment", "a variable needs a name, and no NUL characters")
        else:
            self._env[name] = value

    def _read_job(self, line_no: int, line: str) -> None:
        notes = list(self._cron_notes.values())
        times, user, rest = self._split(line, notes)
        if self._bad_zone_line is not None:
            raise Invalid(
                "zone", f"CRON_TZ of line {self._bad_zone_line} names no time zone, so the times mean nothing"
            )
        if times.lower() == "@reboot":
            raise Invalid("schedule", "@reboot cannot be kept: nothing here starts with a machine")
        parse_line(times, "schedule", hash_key="checked before a name is taken")
        command, stdin = split_percent(rest)
        if not command.strip():
            raise Invalid("command", "is missing")
        self._note_what_is_lost(user, notes)
        name = self._names.name(command)
        uses_shell = needs_shell(command)
        self.results.append(
            ImportedJob(
                name=name,
                schedule=Schedule(
                    cron=(times,),
                    zone=self.zone,
                    anchor_us=self._anchor(times),
                    hash_key=name if uses_slots(times) else "",
                    jitter_us=self._jitter_us,
                ),
                argv=() if uses_shell else tuple(shlex.split(command)),
                shell_command=command if uses_shell else "",
                shell=self._env.get("SHELL", DEFAULT_SHELL),
                stdin=stdin,
                env=dict(self._env),
                user=user,
                description="\n".join(self._comments),
                line_no=line_no,
                text=line,
                notes=tuple(notes),
            )
        )
        self._comments.clear()

    def _split(self, line: str, notes: list[str]) -> tuple[str, str | None, str]:
        """(time fields, user, the rest)."""
        if line.startswith("-") and not line.startswith("--"):
            line = line[1:]
            notes.append("the leading '-' (no syslog entry) means nothing here")
        count = 6 if self._seconds else 5
        if line.startswith("@"):
            count = 2 if line.lower().startswith("@every") else 1
        parts = line.split(None, count + self.system)
        if len(parts) <= count + self.system:
            fields = f"{count} time fields{', a user' if self.system else ''} and a command"
            raise Invalid("line", f"needs {fields}" if count > 2 else "has no command")
        user = parts[count] if self.system else None
        if user is not None and not _USER.fullmatch(user):
            raise Invalid("user", f"{user[:40]!r} is no user name; is this a user's crontab, without a user column?")
        return " ".join(parts[:count]), user, parts[-1]

    def _note_what_is_lost(self, user: str | None, notes: list[str]) -> None:
        if user is not None:
            notes.append(f"runs as the worker's own user, not as {user}")
        if self._mail_to:
            notes.append(f"output is not mailed to {self._mail_to}: its tail is kept with the run")
        if "TZ" in self._env:
            notes.append(f"TZ is the command's own zone; the times are read in {self.zone} (CRON_TZ would set that)")

    def _anchor(self, times: str) -> int | None:
        return self.anchor_us if times.lower().startswith("@every") else None


def split_percent(text: str) -> tuple[str, str | None]:
    """A command and its standard input: the first unescaped `%` ends the command, later ones are line ends."""
    parts = [""]
    for piece in _PERCENT.findall(text):
        if piece == "%":
            parts.append("")
        else:
            parts[-1] += "%" if piece == "\\%" else piece
    command, *lines = parts
    if not lines:
        return command.rstrip(), None
    stdin = "\n".join(lines)
    return command.rstrip(), stdin + "\n" if stdin and not stdin.endswith("\n") else stdin


def needs_shell(command: str) -> bool:
    """Whether the command means something else, or nothing, without a shell."""
    if _NEEDS_SHELL.search(command):
        return True
    try:
        words = shlex.split(command)
    except ValueError:
        return True  # an open quote: the shell shall say so
    return not words or words[0] in _BUILTINS


def _minutes_us(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", value) or int(value) > MAX_DELAY_MIN:
        raise Invalid("RANDOM_DELAY", f"must be a number of minutes from 0 to {MAX_DELAY_MIN}")
    return int(value) * 60 * US_PER_S


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _is_decoration(comment: str) -> bool:
    """Whether a comment is the usual drawing of the fields, a ruler, or a line that was switched off."""
    if comment[0] in "|.+-=*_~" or not any(c.isalpha() for c in comment):
        return True
    words = comment.split()
    try:
        parse_line(" ".join(words[:5] if not comment.startswith("@") else words[:1]), hash_key="any")
    except Invalid:
        return False
    return True


def _reason(refusal: Invalid) -> str:
    return f"{refusal.field.removeprefix('schedule.').removeprefix('cron[0].')}: {refusal.rule}"
