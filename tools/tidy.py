"""The tidy check: rules about our sources that no other tool holds. Part of `make check`, so it runs before the tests.

`python -m tools.tidy` reads every file that git knows or would take, prints one line a finding and exits 1 if there is
any. A rule may be broken on purpose where EXCEPTIONS says so, with the reason; an exception that nothing needs any more
is a finding too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parent.parent

LONG_FILE_LINES = 300
LONGEST_FILE_LINES = 500
LONGEST_FUNCTION_LINES = 70

GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
TEXT_SUFFIXES = {".py", ".proto", ".sql", ".toml", ".md", ".yml", ".yaml", ".sh", ".in", ""}
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.$}~>-])/(work|root|home|Users)/\w")
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
TWINS = re.compile(r"^(async_|sync_|a(?=[a-z]))|(_async|_sync)$")
TEST_ROOMS = {"unit", "store", "link", "coord", "component", "cluster", "chaos", "models", "tools", "support"}

# (rule, path) -> why the rule does not hold there.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("leftover", "tools/tidy.py"): "names the words it looks for",
    ("leftover", "CONTRIBUTING.md"): "names the words that the check refuses",
    ("module state", "tools/servers/free_port.py"): "what a process was given is its own while it lives",
    ("machine path", "deploy/samples/crontab"): "a sample of other people's crontabs, with their paths",
}


@dataclass(frozen=True)
class Source:
    """One file of the repository."""

    path: PurePosixPath
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def is_test(self) -> bool:
        return self.path.parts[0] == "tests"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text if self.is_python else "")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of its syntax tree; none where it is not Python."""
        return list(ast.walk(self.tree))


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule."""

    rule: str
    path: PurePosixPath
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} ({self.rule})"


Check = Callable[[Source], Iterator[Finding]]


def long_file(source: Source) -> Iterator[Finding]:
    """A module has one reason to exist; past this length it has several."""
    lines = source.text.count("\n")
    if source.is_python and lines > LONGEST_FILE_LINES:
        yield Finding("file length", source.path, 1, f"{lines} lines, at most {LONGEST_FILE_LINES}")


def long_function(source: Source) -> Iterator[Finding]:
    """A function fits a screen."""
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > LONGEST_FUNCTION_LINES:
            what = f"{node.name} has {lines} lines, at most {LONGEST_FUNCTION_LINES}"
            yield Finding("function length", source.path, node.lineno, what)


def leftover(source: Source) -> Iterator[Finding]:
    """What is to be done is done, or stands in the tracker."""
    for number, line in enumerate(source.text.splitlines(), 1):
        for word in LEFTOVERS.findall(line):
            yield Finding("leftover", source.path, number, f"{word} left behind")


def machine_path(source: Source) -> Iterator[Finding]:
    """Nothing depends on one machine's directories."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if MACHINE_PATHS.search(line):
            yield Finding("machine path", source.path, number, "an absolute path of one machine")


def silent_skip(source: Source) -> Iterator[Finding]:
    """A skipped or expected failure says why."""
    explained = {
        node.func
        for node in source.nodes
        if isinstance(node, ast.Call) and (node.args or any(keyword.arg == "reason" for keyword in node.keywords))
    }
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node not in explained:
            name = ast.unparse(node)
            if name in ("pytest.skip", "pytest.mark.skip", "pytest.mark.xfail"):
                yield Finding("silent skip", source.path, node.lineno, f"{name} without a reason")


def swallowed_error(source: Source) -> Iterator[Finding]:
    """No error is dropped without a look at what it is."""
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        catches_all = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
        if catches_all and all(isinstance(step, ast.Pass | ast.Continue) for step in node.body):
            yield Finding("swallowed error", source.path, node.lineno, "every error is caught and dropped")


def stand_in(source: Source) -> Iterator[Finding]:
    """Code that is there works."""
    for node in source.nodes:
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc):
            yield Finding("stand-in", source.path, node.lineno, "raises NotImplementedError")


def missing_docstring(source: Source) -> Iterator[Finding]:
    """The first lines of a module say what it owns. An empty file may mark a folder of tests as a package."""
    is_marker = source.is_test and not source.text.strip()
    if source.is_python and not is_marker and ast.get_docstring(source.tree) is None:
        yield Finding("docstring", source.path, 1, "no docstring says what this module owns")


def empty_name(source: Source) -> Iterator[Finding]:
    """A module is named by its duty."""
    for part in source.path.parts:
        if PurePosixPath(part).stem in EMPTY_NAMES:
            yield Finding("name", source.path, 1, f"{part} names no duty")


def twin(source: Source) -> Iterator[Finding]:
    """Nothing exists in a sync and in an async edition."""
    for owner in source.nodes:
        if not isinstance(owner, ast.Module | ast.ClassDef):
            continue
        functions = [node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        names = {node.name for node in functions}
        for node in functions:
            plain = TWINS.sub("", node.name)
            if plain != node.name and plain in names:
                yield Finding("twin", source.path, node.lineno, f"{node.name} is a twin of {plain}")


def module_state(source: Source) -> Iterator[Finding]:
    """State belongs to objects that somebody builds and passes on."""
    for node in source.nodes:
        if isinstance(node, ast.Global):
            yield Finding("module state", source.path, node.lineno, f"global {', '.join(node.names)}")
    for step in source.tree.body:
        if not isinstance(step, ast.Assign | ast.AnnAssign) or not _is_mutable(step.value):
            continue
        for target in step.targets if isinstance(step, ast.Assign) else [step.target]:
            name = ast.unparse(target)
            if not name.isupper() and name != "__all__":
                yield Finding("module state", source.path, step.lineno, f"{name} is mutable and lives in the module")


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in ("list", "dict", "set", "defaultdict", "deque", "Counter")
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def stray_test(source: Source) -> Iterator[Finding]:
    """Tests mirror the rooms."""
    if source.path.name.startswith("test_") and source.is_python:
        room = source.path.parts[1] if source.is_test and len(source.path.parts) > 2 else ""
        if room not in TEST_ROOMS:
            yield Finding(
                "stray test", source.path, 1, f"tests live in tests/ under one of {', '.join(sorted(TEST_ROOMS))}"
            )


CHECKS: tuple[Check, ...] = (
    long_file,
    long_function,
    leftover,
    machine_path,
    silent_skip,
    swallowed_error,
    stand_in,
    missing_docstring,
    empty_name,
    twin,
    module_state,
    stray_test,
)


def sources() -> Iterator[Source]:
    """Every text file of ours that git tracks, or would on the next add."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(set(listed.stdout.split("\0")) - {""}):
        path = PurePosixPath(name)
        wanted = path.suffix in TEXT_SUFFIXES and not GENERATED.search(name)
        if wanted and (REPOSITORY / path).is_file():
            yield Source(path, (REPOSITORY / path).read_text(encoding="utf-8"))


def judge(found: list[Finding], exceptions: dict[tuple[str, str], str], present: set[str]) -> list[str]:
    """The lines to complain with: findings without an exception, and exceptions of present files without a finding."""
    hit = {(finding.rule, str(finding.path)) for finding in found}
    lines = [str(finding) for finding in found if (finding.rule, str(finding.path)) not in exceptions]
    lines += [
        f"{path}:1: the exception for rule {rule!r} is not needed any more (exceptions)"
        for rule, path in exceptions
        if path in present and (rule, path) not in hit
    ]
    return lines


def main() -> int:
    """Check everything; 0 when tidy, else 1."""
    present = list(sources())
    for source in present:
        lines = source.text.count("\n")
        if source.is_python and LONG_FILE_LINES < lines <= LONGEST_FILE_LINES:
            print(f"{source.path}: {lines} lines: look for a second reason to exist")
    found = [finding for source in present for check in CHECKS for finding in check(source)]
    paths = {str(source.path) for source in present}
    complaints = judge(found, EXCEPTIONS, paths)
    for line in complaints:
        print(line, file=sys.stderr)
    if not complaints:
        print(f"tidy: {len(present)} files, {len(CHECKS)} rules")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
