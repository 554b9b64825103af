"""Generates the Python modules of our .proto files, or says whether the committed ones are fresh.

`python -m tools.generate_stubs [--check]`. The compiler is grpcio-tools 1.71.2 in an environment of its own
(build/stubs-venv, from requirements/stubs.lock), because what it writes runs on every protobuf from 5.29 to 7 while the
compiler itself cannot share an environment with 7. The types of the services come from mypy-protobuf, which runs in
ours. Called by people who edit a .proto, and by `make check`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOCK = REPOSITORY / "requirements" / "stubs.lock"
ENVIRONMENT = REPOSITORY / "build" / "stubs-venv"
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
SERVICE = re.compile(r"^service\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Room:
    """Where .proto files are, and the package that their modules form below an import root."""

    protos: Path
    import_root: Path
    package: Path
    with_services: bool = True

    @property
    def modules(self) -> Path:
        return self.import_root / self.package


ROOMS = (
    Room(Path("proto/tidewheel/v1"), Path("worker_sdk/python"), Path("tidewheel/v1")),
    Room(Path("proto/tidewheel/internal/v1"), Path(), Path("core/wire")),
    # etcd's own service names cannot stand in a package of ours: core/coord names the calls by hand.
    Room(Path("proto/tidewheel/internal/etcd"), Path(), Path("core/coord"), with_services=False),
)


class GenerationFailed(Exception):
    """The compiler or its environment failed; the text says how."""


def main() -> int:
    """Generate, or with `--check` compare; 0 when all is well, 1 when stale or failed, 2 for wrong usage."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.generate_stubs [--check]", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="tidewheel-stubs-") as scratch:
            fresh = generate(Path(scratch))
    except GenerationFailed as failure:
        print(f"generate_stubs: {failure}", file=sys.stderr)
        return 1
    return report_stale(fresh) if arguments else write(fresh)


def generate(scratch: Path) -> dict[Path, bytes]:
    """Every generated file, by its path in the repository."""
    compiler = ensure_compiler()
    fresh: dict[Path, bytes] = {}
    for number, room in enumerate(ROOMS):
        output = scratch / str(number)
        output.mkdir()
        compile_room(compiler, room, output)
        for module in sorted(output.rglob("*_pb2*")):
            fresh[room.import_root / module.relative_to(output)] = module.read_bytes()
    return fresh


def compile_room(compiler: Path, room: Room, output: Path) -> None:
    """Run the compiler over one room: messages of every file, services of those that have some."""
    sources = sorted((REPOSITORY / room.protos).glob("*.proto"))
    if not sources:
        return
    # The mapping makes the modules' import paths independent of where the .proto files lie.
    paths = [f"-I{room.package}={REPOSITORY / room.protos}", f"-I{REPOSITORY / 'proto'}"]
    names = [str(room.package / source.name) for source in sources]
    protoc(compiler, *paths, f"--python_out={output}", f"--pyi_out={output}", *names)
    serving = [str(room.package / source.name) for source in sources if SERVICE.search(source.read_text())]
    if serving and room.with_services:
        plugin = Path(sys.prefix) / "bin" / "protoc-gen-mypy_grpc"
        types = [f"--plugin=protoc-gen-mypy_grpc={plugin}", f"--mypy_grpc_out=quiet:{output}"]
        protoc(compiler, *paths, f"--grpc_python_out={output}", *types, *serving)


def protoc(compiler: Path, *arguments: str) -> None:
    """One run of the compiler."""
    done = subprocess.run(
        [compiler, "-m", "grpc_tools.protoc", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise GenerationFailed(done.stderr.strip())


def ensure_compiler() -> Path:
    """The interpreter of the compiler's environment, which is made anew when its lock has changed."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "lock.sha256"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"preparing {ENVIRONMENT.relative_to(REPOSITORY)} from {LOCK.relative_to(REPOSITORY)}")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    run([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(LOCK)])
    stamp.write_text(wanted)
    return python


def run(command: list[str]) -> None:
    """Run a step of the preparation."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GenerationFailed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


def committed() -> set[Path]:
    """Every generated file that the repository holds now."""
    return {
        path.relative_to(REPOSITORY)
        for room in ROOMS
        for path in (REPOSITORY / room.modules).glob("*")
        if GENERATED.search(path.name)
    }


def stale(fresh: dict[Path, bytes]) -> list[str]:
    """What differs between the committed files and the fresh ones, one line a file."""
    there = committed()
    differing = [path for path in there & fresh.keys() if (REPOSITORY / path).read_bytes() != fresh[path]]
    lines = [f"{path}: differs from its .proto" for path in differing]
    lines += [f"{path}: missing" for path in fresh.keys() - there]
    lines += [f"{path}: no .proto makes it" for path in there - fresh.keys()]
    return sorted(lines)


def report_stale(fresh: dict[Path, bytes]) -> int:
    """Print what is stale; the exit code."""
    lines = stale(fresh)
    for line in lines:
        print(line, file=sys.stderr)
    if lines:
        print("run `.venv/bin/python -m tools.generate_stubs` and commit what it writes", file=sys.stderr)
        return 1
    print(f"generated code is fresh: {len(fresh)} files")
    return 0


def write(fresh: dict[Path, bytes]) -> int:
    """Put the fresh files in place of the committed ones; the exit code."""
    for path in committed() - fresh.keys():
        (REPOSITORY / path).unlink()
    for path, content in fresh.items():
        target = REPOSITORY / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    print(f"wrote {len(fresh)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
