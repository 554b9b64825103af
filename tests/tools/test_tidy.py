"""tools/tidy: each rule finds what it is for and lets its neighbour pass."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tools.tidy import CHECKS, LONGEST_FILE_LINES, LONGEST_FUNCTION_LINES, Finding, Source, judge

DOCUMENTED = '"""Owns this."""\n'
TO_DO = "TO" + "DO"
SOMEBODYS_HOME = "/ho" + "me/somebody"


def breaches(text: str, path: str = "core/fence.py") -> list[str]:
    source = Source(PurePosixPath(path), text)
    return sorted({finding.rule for check in CHECKS for finding in check(source)})


def function_of(lines: int) -> str:
    return DOCUMENTED + "def fire():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("rule", "broken", "sound"),
    [
        ("file length", DOCUMENTED + "x = 1\n" * LONGEST_FILE_LINES, DOCUMENTED + "x = 1\n" * (LONGEST_FILE_LINES - 1)),
        ("function length", function_of(LONGEST_FUNCTION_LINES + 1), function_of(LONGEST_FUNCTION_LINES)),
        ("leftover", f"{DOCUMENTED}# {TO_DO}: later\n", f"{DOCUMENTED}{TO_DO}NT = 1\n"),
        ("machine path", f"{DOCUMENTED}HOME = '{SOMEBODYS_HOME}'\n", f"{DOCUMENTED}DATA = 'docs{SOMEBODYS_HOME}'\n"),
        ("silent skip", DOCUMENTED + "pytest.skip()\n", DOCUMENTED + "pytest.skip('no CockroachDB at hand')\n"),
        (
            "silent skip",
            DOCUMENTED + "@pytest.mark.xfail\ndef test_x(): ...\n",
            DOCUMENTED + "@pytest.mark.xfail(reason='case B05')\ndef test_x(): ...\n",
        ),
        (
            "swallowed error",
            DOCUMENTED + "try:\n    f()\nexcept Exception:\n    pass\n",
            DOCUMENTED + "try:\n    f()\nexcept KeyError:\n    pass\n",
        ),
        ("stand-in", DOCUMENTED + "raise NotImplementedError\n", DOCUMENTED + "raise InvariantBroken('x')\n"),
        ("docstring", "x = 1\n", DOCUMENTED),
        ("twin", DOCUMENTED + "def get(): ...\nasync def get_async(): ...\n", DOCUMENTED + "def get(): ...\n"),
        (
            "twin",
            DOCUMENTED + "class C:\n def get(self): ...\n async def aget(self): ...\n",
            DOCUMENTED + "def add(): ...\n",
        ),
        ("module state", DOCUMENTED + "seen = {}\n", DOCUMENTED + "SEEN = {}\n"),
        ("module state", DOCUMENTED + "seen: list[int] = list()\n", DOCUMENTED + "seen: tuple[int, ...] = ()\n"),
        ("module state", DOCUMENTED + "def f():\n    global x\n", DOCUMENTED + "def f():\n    seen = []\n"),
    ],
)
def test_a_rule_finds_its_breach_and_nothing_else(rule: str, broken: str, sound: str) -> None:
    assert breaches(broken) == [rule]
    assert breaches(sound) == []


@pytest.mark.parametrize("path", ["core/utils.py", "core/common/fence.py", "tools/misc.py"])
def test_a_module_is_named_by_its_duty(path: str) -> None:
    assert breaches(DOCUMENTED, path) == ["name"]


@pytest.mark.parametrize("path", ["tests/test_fence.py", "core/test_fence.py", "tests/elsewhere/test_fence.py"])
def test_a_test_mirrors_a_room(path: str) -> None:
    assert breaches(DOCUMENTED, path) == ["stray test"]


def test_a_test_in_its_room_is_tidy() -> None:
    assert breaches(DOCUMENTED, "tests/store/test_fence.py") == []


def test_an_exception_silences_its_finding_and_is_itself_found_when_nothing_needs_it() -> None:
    finding = Finding("leftover", PurePosixPath("a.py"), 3, "word left behind")
    exceptions = {("leftover", "a.py"): "says the word", ("twin", "b.py"): "was needed once"}
    assert judge([finding], exceptions, {"a.py", "b.py"}) == [
        "b.py:1: the exception for rule 'twin' is not needed any more (exceptions)"
    ]
    assert judge([finding], {}, {"a.py"}) == ["a.py:3: word left behind (leftover)"]
