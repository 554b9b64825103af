"""Job names for imported commands: what a person would call the line, as a slug that is unique in its file."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath

MAX_LENGTH = 60

_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")", "{", "}"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Programs that only prepare the one that matters; the part of the line up to the next separator is passed over.
_PREPARES = frozenset({"cd", "test", "[", "[[", "sleep", ":", "true", "export", "umask", ".", "source", "set"})
# Programs that run the one that matters; they and their options are passed over.
_WRAPS = frozenset({"env", "nice", "ionice", "sudo", "timeout", "flock", "exec", "nohup", "time", "chronic", "setsid"})
_INTERPRETS = frozenset({"python", "python2", "python3", "perl", "ruby", "php", "node", "bash", "sh", "zsh", "dash"})
_SCRIPT_ENDINGS = frozenset({".sh", ".bash", ".py", ".pl", ".rb", ".php", ".js"})


class JobNames:
    """Gives each command a name that no other of the same file has: `backup`, `backup-2`, `backup-3`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, command: str) -> str:
        """A name of lower-case letters, digits and dashes for `command`; it is taken from now on."""
        slug = _slug(_telling_words(command))
        name, number = slug, 1
        while name in self._taken:
            number += 1
            name = f"{slug}-{number}"
        self._taken.add(name)
        return name


def _slug(words: list[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    return slug[:MAX_LENGTH].strip("-") or "job"


def _telling_words(command: str) -> list[str]:
    """The program without its path and ending, and the word after it when that is a plain one (`certbot renew`)."""
    words = _words(command)
    while words:
        part, words = _split_first_part(words)
        part = _without_wrappers(part)
        if part and part[0] not in _PREPARES:
            return _program_words(part)
    return []


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # an open quote: cron would run it all the same
        return command.split()


def _split_first_part(words: list[str]) -> tuple[list[str], list[str]]:
    for position, word in enumerate(words):
        if word in _SEPARATORS:
            return words[:position], words[position + 1 :]
    return words, []


def _without_wrappers(words: list[str]) -> list[str]:
    wrapped = False
    while words:
        word = PurePosixPath(words[0]).name
        if word in _WRAPS:
            wrapped = True
        elif not (_ASSIGNMENT.match(words[0]) or (wrapped and _is_option(words, word))):
            return words
        words = words[1:]
    return words


def _is_option(words: list[str], word: str) -> bool:
    """Whether a wrapper's word is its own: an option, a number such as `10` or `5m`, or flock's lock file."""
    return word.startswith("-") or word[:1].isdigit() or (len(words) > 1 and word.endswith((".lock", ".lck", ".pid")))


def _program_words(words: list[str]) -> list[str]:
    program = PurePosixPath(words[0])
    rest = [word for word in words[1:] if not word.startswith("-")]
    if program.name in _INTERPRETS and rest:
        return [_stem(rest[0])]
    telling = [_stem(words[0])]
    if rest and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", rest[0]) and words[1] == rest[0]:
        telling.append(rest[0])
    return telling


def _stem(path: str) -> str:
    program = PurePosixPath(path)
    return program.stem if program.suffix in _SCRIPT_ENDINGS else program.name
