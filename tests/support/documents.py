"""Runs the commands and programs of our documents, in order, as a reader would.

What is run is said by comments, which no reader sees. Each stands on a line of its own before a fenced block:

    <!-- run: NAME -->                     ```sh is run by bash (any command that fails ends it); ```python is saved as
                                           NAME, which ends in .py, and run. It must end with exit code 0.
    <!-- run: NAME, exit 2 -->             It must end with that code.
    <!-- run: NAME, in the background -->  It goes on running until the end of the document.
    <!-- run: NAME, until it shows -->     It is run again and again until it shows what it should.
    <!-- shows: REGEX -->                  Before a ```text block: what the block above prints. REGEX is searched in
                                           the text and in the real output, ^ and $ stand for ends of lines. Several
                                           such blocks may follow.
    <!-- not run: REASON -->               The other ```sh and ```python blocks: each says why it is not run.

Blocks share a directory that looks like a checkout with `.venv` in it, and what a shell keeps: the working directory
and the variables. `tidewheel dev --workers 1` runs beside them; where a block says 127.0.0.1:7233, its real address is
put in.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTED_ADDRESS = "127.0.0.1:7233"
BLOCK_WITHIN_S = 120.0
SHOWN_WITHIN_S = 60.0
ENDS_WITHIN_S = 30.0
AGAIN_AFTER_S = 0.5
SHOWN_CHARACTERS = 2_000
LANGUAGES = ("sh", "python")

_MARKER = re.compile(r"<!-- (run|shows|not run): (.+) -->")
_FENCE = re.compile(r"```(\w*)")
_OPTION = re.compile(r"in the background|until it shows|exit (\d+)")
# Runs a block in the state that the block before left behind, and leaves its own unless it goes on beside the others.
_SHELL = """
set -a -e -o pipefail
. "$1/state"
cd "$(cat "$1/directory")"
if [ "$3" = keep ]; then
    trap 'code=$?; pwd >"$1/directory"; export -p >"$1/state"; exit $code' EXIT
fi
. "$2"
"""


class BadDocument(Exception):
    """The document's markers cannot be understood; the text names the place."""


class NotAsDocumented(AssertionError):
    """What happened is not what the document says."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block that is run. `where` is file:line; `shows` are the patterns that its output must match."""

    where: str
    name: str
    language: str
    text: str
    in_background: bool = False
    until_shown: bool = False
    exit_code: int = 0
    shows: tuple[str, ...] = ()


def read_blocks(text: str, document: str) -> list[Block]:
    """The blocks of a document that are run. Raises BadDocument, also for a block without a marker."""
    blocks: list[Block] = []
    marker: tuple[str, str] | None = None
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        where = f"{document}:{number}"
        if found := _MARKER.fullmatch(line.strip()):
            marker = (found[1], found[2])
        elif fence := _FENCE.fullmatch(line):
            _take(blocks, marker, fence[1], _body(lines, where), where)
            marker = None
        elif line.strip() and marker is not None:
            raise BadDocument(f"{where}: a marker stands before this line, which begins no block")
    return blocks


def _body(lines: Iterator[tuple[int, str]], where: str) -> str:
    body: list[str] = []
    for _, line in lines:
        if line == "```":
            return "".join(f"{one}\n" for one in body)
        body.append(line)
    raise BadDocument(f"{where}: the block does not end")


def _take(blocks: list[Block], marker: tuple[str, str] | None, language: str, text: str, where: str) -> None:
    kind, said = marker or ("", "")
    if kind == "run":
        blocks.append(_block(said, language, text, where))
    elif kind == "shows":
        if not blocks or language != "text":
            raise BadDocument(f"{where}: `shows` belongs before a ```text block that follows one that is run")
        if not re.search(said, text, re.MULTILINE):
            raise BadDocument(f"{where}: the text itself does not show {said!r}")
        blocks[-1] = replace(blocks[-1], shows=(*blocks[-1].shows, said))
    elif kind == "" and language in LANGUAGES:
        raise BadDocument(f"{where}: a ```{language} block needs a marker: run, or not run with the reason")


def _block(said: str, language: str, text: str, where: str) -> Block:
    name, *options = (part.strip() for part in said.split(","))
    if language not in LANGUAGES:
        raise BadDocument(f"{where}: only ```sh and ```python blocks are run")
    if language == "python" and not re.fullmatch(r"\w+\.py", name):
        raise BadDocument(f"{where}: {name!r} is no name for a Python program, such as worker.py")
    codes = []
    for option in options:
        match = _OPTION.fullmatch(option)
        if match is None:
            raise BadDocument(f"{where}: unknown option {option!r}")
        codes += [int(match[1])] if match[1] else []
    return Block(
        where,
        name,
        language,
        text,
        in_background="in the background" in options,
        until_shown="until it shows" in options,
        exit_code=codes[0] if codes else 0,
    )


class Reader:
    """Follows documents in one directory. Use `reading` to make one."""

    def __init__(self, home: Path, environ: Mapping[str, str], address: str) -> None:
        self._directory = home / "checkout"
        self._state = home / "state"
        self._environ = dict(environ)
        self._address = address
        self._blocks = 0
        self._background: list[tuple[Block, subprocess.Popen[bytes], Path]] = []
        self._lay_out()

    def _lay_out(self) -> None:
        """What a reader has after `make install`: the checkout, with this interpreter's environment in it."""
        self._directory.mkdir()
        _link_entries(REPOSITORY, self._directory, without=(".git", ".venv"))
        programs = self._directory / ".venv" / "bin"
        programs.mkdir(parents=True)
        _link_entries(Path(sys.prefix), programs.parent)
        _link_entries(Path(sys.prefix) / "bin", programs)
        if not (programs / "tidewheel").exists():  # the dependencies are installed here, the project itself is not
            (programs / "tidewheel").write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.cli.main "$@"\n')
            (programs / "tidewheel").chmod(0o755)
        self._state.mkdir()
        (self._state / "state").touch()
        (self._state / "directory").write_text(f"{self._directory}\n")

    def follow(self, block: Block) -> str:
        """Do what the block says; returns what it printed. Raises NotAsDocumented."""
        command = self._command(block)
        if block.in_background:
            return self._begin(block, command)
        until_s = time.monotonic() + (SHOWN_WITHIN_S if block.until_shown else 0.0)
        while True:
            output = self._run(block, command)
            missing = _missing(block, output)
            if not missing:
                return output
            if time.monotonic() > until_s:
                raise _complaint(block, f"does not show {missing[0]!r}", output)
            time.sleep(AGAIN_AFTER_S)

    def end(self) -> None:
        """End what runs in the background. Raises NotAsDocumented if something there ended by itself, and badly."""
        flaws = []
        for block, process, log in self._background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                code = process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            if code not in (block.exit_code, -signal.SIGTERM):
                flaws.append(_complaint(block, f"ended with exit code {code}", log.read_text()))
        self._background.clear()
        if flaws:
            raise flaws[0]

    def _command(self, block: Block) -> list[str]:
        text = block.text.replace(DOCUMENTED_ADDRESS, self._address)
        if block.language == "python":
            (self._directory / block.name).write_text(text)
            return [sys.executable, block.name]
        self._blocks += 1
        file = self._state / f"block-{self._blocks}"
        file.write_text(text)
        return ["bash", "-c", _SHELL, "bash", str(self._state), str(file), "leave" if block.in_background else "keep"]

    def _run(self, block: Block, command: list[str]) -> str:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environ,
                timeout=BLOCK_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
            raise _complaint(block, f"did not end within {BLOCK_WITHIN_S:g} s", output) from None
        output = done.stdout.decode(errors="replace")
        if done.returncode != block.exit_code:
            raise _complaint(block, f"ended with exit code {done.returncode}, not {block.exit_code}", output)
        return output

    def _begin(self, block: Block, command: list[str]) -> str:
        log = self._state / f"background-{len(self._background)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environ,
                start_new_session=True,
            )
        self._background.append((block, process, log))
        until_s = time.monotonic() + SHOWN_WITHIN_S
        while True:
            over = process.poll() is not None or time.monotonic() > until_s  # before the look: it may show it and end
            missing = _missing(block, log.read_text())
            if not missing:
                break
            if over:
                raise _complaint(block, f"does not show {missing[0]!r}", log.read_text())
            time.sleep(AGAIN_AFTER_S)
        return log.read_text()


@contextmanager
def reading(home: Path, environ: Mapping[str, str], address: str) -> Iterator[Reader]:
    """A reader that works below `home`, an empty directory, with the system at `address`."""
    reader = Reader(home, environ, address)
    try:
        yield reader
    except BaseException:
        try:
            reader.end()
        except NotAsDocumented as flaw:
            print(flaw)  # most often why the block after it failed
        raise
    reader.end()


def _link_entries(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """Links in `target` to what lies in `source`, but for what `target` has itself."""
    for entry in source.iterdir():
        link = target / entry.name
        if entry.name not in without and not link.exists():
            link.symlink_to(entry)


def _missing(block: Block, output: str) -> list[str]:
    return [pattern for pattern in block.shows if not re.search(pattern, output, re.MULTILINE)]


def _complaint(block: Block, what: str, output: str) -> NotAsDocumented:
    return NotAsDocumented(f"{block.where}: {block.name} {what}; it printed:\n{output[-SHOWN_CHARACTERS:]}")
