"""The mechanism that runs our documents: what it understands, and that it notices what is not as documented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import BadDocument, NotAsDocumented, Reader, read_blocks, reading

ADDRESS = "127.0.0.1:45678"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with reading(tmp_path, os.environ, ADDRESS) as one:
        yield one


def follow(reader: Reader, text: str) -> list[str]:
    return [reader.follow(block) for block in read_blocks(text, "GUIDE.md")]


def sh(body: str, run: str = "try it", shows: str = "", text: str = "") -> str:
    shown = f"\n<!-- shows: {shows} -->\n```text\n{text or shows}\n```\n" if shows else ""
    return f"<!-- run: {run} -->\n```sh\n{body}\n```\n{shown}"


def test_what_is_not_marked_is_not_run_and_code_of_other_kinds_needs_no_mark() -> None:
    hour_long = "<!-- not run: takes an hour -->\n```sh\nmake everything\n```\n"
    assert read_blocks(f"# Title\n\n{hour_long}\n```\nls\n```\n```toml\nkey = 1\n```\n", "GUIDE.md") == []


def test_a_marker_may_stand_a_blank_line_before_its_block_and_errors_name_the_place() -> None:
    (block,) = read_blocks("Words.\n\n<!-- run: first, exit 2 -->\n\n```sh\nfalse\n```\n", "GUIDE.md")
    assert (block.where, block.name, block.exit_code, block.text) == ("GUIDE.md:5", "first", 2, "false\n")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```sh\nls\n```\n", "GUIDE.md:1: a ```sh block needs a marker"),
        ("```python\nprint()\n```\n", "GUIDE.md:1: a ```python block needs a marker"),
        ("<!-- run: it -->\nWords.\n", "GUIDE.md:2: a marker stands before this line"),
        ("<!-- run: it -->\n```toml\na = 1\n```\n", "only ```sh and ```python blocks are run"),
        ("<!-- run: it, twice -->\n```sh\nls\n```\n", "unknown option 'twice'"),
        ("<!-- run: it -->\n```python\nprint()\n```\n", "'it' is no name for a Python program"),
        ("<!-- run: it -->\n```sh\nls\n", "the block does not end"),
        ("<!-- shows: a -->\n```text\na\n```\n", "`shows` belongs before a ```text block"),
        (sh("echo a", shows="^b$", text="a"), "the text itself does not show '^b$'"),
    ],
)
def test_a_marker_that_cannot_be_understood_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadDocument) as refused:
        read_blocks(text, "GUIDE.md")
    assert complaint in str(refused.value)


def test_blocks_share_the_directory_and_the_variables(reader: Reader) -> None:
    first = sh("mkdir here\ncd here\nname='a b'\nexport OTHER=c")
    assert follow(reader, first + sh('echo "$(basename "$PWD")" "$name" "$OTHER"')) == ["", "here a b c\n"]


def test_a_block_finds_a_checkout_with_its_environment(reader: Reader) -> None:
    python = ".venv/bin/python -c 'import typer'"
    (output,) = follow(reader, sh(f"ls deploy/samples/crontab\n{python}\n.venv/bin/tidewheel --help"))
    assert output.startswith("deploy/samples/crontab\n")
    assert "Usage: tidewheel" in output


def test_the_address_of_the_documents_is_replaced_by_the_real_one(reader: Reader) -> None:
    program = '<!-- run: say.py -->\n```python\nprint("127.0.0.1:7233")\n```\n'
    assert follow(reader, sh("echo 127.0.0.1:7233") + program) == [f"{ADDRESS}\n", f"{ADDRESS}\n"]


def test_any_command_that_fails_fails_the_block(reader: Reader) -> None:
    with pytest.raises(
        NotAsDocumented, match=r"GUIDE\.md:2: try it ended with exit code 1, not 0; it printed:\nbefore\n$"
    ):
        follow(reader, sh("echo before\nfalse\necho after"))


def test_an_exit_code_can_be_asked_for(reader: Reader) -> None:
    assert follow(reader, sh("sh -c 'exit 3'", run="fails, exit 3")) == [""]
    with pytest.raises(NotAsDocumented, match="ended with exit code 0, not 3"):
        follow(reader, sh("true", run="fails, exit 3"))


def test_what_a_block_shows_is_searched_in_its_output_line_by_line(reader: Reader) -> None:
    follow(reader, sh("echo one; echo two 2 >&2", shows="^two [0-9]$", text="two 7"))
    with pytest.raises(NotAsDocumented, match=r"try it does not show '\^two \[0-9\]\$'"):
        follow(reader, sh("echo one", shows="^two [0-9]$", text="two 7"))


def test_a_block_can_be_repeated_until_it_shows_something(reader: Reader) -> None:
    text = sh("echo x >> tries\nwc -l < tries", run="count, until it shows", shows="^2$", text="2")
    assert follow(reader, text) == ["2\n"]


def test_a_program_in_the_background_ends_when_it_is_told_to(tmp_path: Path) -> None:
    body = "import time\nprint('up', flush=True)\ntime.sleep(60)"
    text = f"<!-- run: serve.py, in the background -->\n```python\n{body}\n```\n<!-- shows: up -->\n```text\nup\n```\n"
    with reading(tmp_path, os.environ, ADDRESS) as one:
        assert follow(one, text + sh("echo beside it")) == ["up\n", "beside it\n"]


def test_a_program_in_the_background_that_dies_is_noticed(tmp_path: Path) -> None:
    # It holds the pipe open until it ends, which is what the block after it waits for.
    text = sh("mkfifo held") + sh("exec 9>held\necho broken\nexit 5", run="serve, in the background")
    with (
        pytest.raises(NotAsDocumented, match="serve ended with exit code 5; it printed:\nbroken"),
        reading(tmp_path, os.environ, ADDRESS) as one,
    ):
        follow(one, text + sh("cat held"))
