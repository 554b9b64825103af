"""tools/generate_stubs: what counts as stale. That the committed stubs are fresh is `make check`'s to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import generate_stubs


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose internal stubs are in order."""
    monkeypatch.setattr(generate_stubs, "REPOSITORY", tmp_path)
    (tmp_path / "core" / "wire").mkdir(parents=True)
    (tmp_path / "core" / "wire" / "internal_pb2.py").write_bytes(b"old")
    (tmp_path / "core" / "wire" / "__init__.py").write_bytes(b"")
    return tmp_path


MODULE = Path("core/wire/internal_pb2.py")


def test_equal_files_are_fresh(repository: Path) -> None:
    assert generate_stubs.stale({MODULE: b"old"}) == []


def test_each_kind_of_staleness_is_named(repository: Path) -> None:
    assert generate_stubs.stale({MODULE: b"new", Path("core/wire/more_pb2.pyi"): b""}) == [
        "core/wire/internal_pb2.py: differs from its .proto",
        "core/wire/more_pb2.pyi: missing",
    ]
    assert generate_stubs.stale({}) == ["core/wire/internal_pb2.py: no .proto makes it"]


def test_writing_replaces_adds_and_removes(repository: Path) -> None:
    assert generate_stubs.write({Path("core/wire/more_pb2.py"): b"more"}) == 0
    names = sorted(path.name for path in (repository / "core" / "wire").iterdir())
    assert names == ["__init__.py", "more_pb2.py"]
