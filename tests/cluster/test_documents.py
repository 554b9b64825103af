"""Our documents do what they say: every command and program in them is run, or says why it is not."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.documents import REPOSITORY, read_blocks, reading
from tools.servers.homes import temporary_home
from tools.servers.process import start_child

DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "worker_sdk/python/README.md",
    *sorted(f"docs/{page.name}" for page in (REPOSITORY / "docs").glob("*.md")),
)
READY_WITHIN_S = 90.0


@contextmanager
def system_beside(home: Path) -> Iterator[str]:
    """What the documents tell the reader to leave running in another terminal; the address of its control plane."""
    log = home / "dev.log"
    command = [sys.executable, "-m", "tools.cli.main", "dev", "--workers", "1", "--port", "0"]
    child = start_child("dev", command, log=log, env=environment())
    try:
        child.wait_until(lambda: "ready: " in log.read_text(), within_s=READY_WITHIN_S)
        found = re.search(r"control plane at (\S+);", log.read_text())
        assert found
        yield found[1]
    finally:
        child.stop(within_s=30.0)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_tells_its_reader_to_do_works(document: str) -> None:
    blocks = read_blocks((REPOSITORY / document).read_text(encoding="utf-8"), document)
    if not blocks:  # it has nothing to run, and each block in it said so
        return
    with (
        temporary_home() as home,
        system_beside(home) as address,
        reading(home, environment({"TIDEWHEEL_ADDRESS": address}), address) as reader,
    ):
        for block in blocks:
            print(f"{block.where}: {block.name}\n{reader.follow(block)}")


def test_something_is_run() -> None:
    """A change of the fences must not make the tests above pass by running nothing."""
    assert len(read_blocks((REPOSITORY / "README.md").read_text(encoding="utf-8"), "README.md")) >= 3
