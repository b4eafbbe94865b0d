"""docs/own.md, done as it says: from two files in examples/, which tests/own_example.py makes, to a sentence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from elo_exp.paths import HOME
from tests import judged_pages, own_example
from tests.anthropic_server import AnthropicServer
from tests.commands import Ran
from tests.documented import OWN, Block, blocks, in_block, read
from tests.judged_pages import given, lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    own_example.write_files(folder)
    shutil.copytree(HOME / "examples", folder / "examples")
    return folder


def test_the_examples_that_ship_are_those_of_the_page(folder: Path):
    for name in ("old.csv", "new.jsonl", "questions.jsonl"):
        assert (HOME / "examples" / name).read_bytes() == (folder / name).read_bytes()


@pytest.fixture(scope="module")
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer(
        verdicts=own_example.judge, polls_to_end=1, seconds_to_end=0.05
    ) as server:
        yield server


@pytest.fixture(scope="module")
def printed(folder: Path, server: AnthropicServer) -> dict[Block, Ran]:
    return judged_pages.printed(OWN, folder, server)


@pytest.mark.system
def test_every_command_prints_what_the_page_shows(printed: dict[Block, Ran]):
    assert len(printed) == 6
    for block, ran in printed.items():
        assert lines(block.text) <= lines(ran.out + ran.err)
        assert ran.code == (2 if "\nelo_exp: " in block.text else 0)


def test_the_files_hold_what_the_page_shows_of_them(folder: Path):
    shown = [b for b in blocks(OWN) if b.file and b.file.startswith("examples/")]
    shown = [block for block in shown if block.kind in ("csv", "json")]
    assert [block.file for block in shown] == [
        f"examples/{name}" for name in ("old.csv", "new.jsonl", "questions.jsonl")
    ]
    for block in shown:
        assert block.file is not None
        assert lines(block.text) <= lines((folder / block.file).read_text())


@pytest.mark.system
def test_the_sentence_has_the_numbers_of_the_run(
    printed: dict[Block, Ran], folder: Path
):
    *_, ran = printed.values()
    (found,) = ran.read("ratings.json")["conclusions"].values()
    (shown,) = (b for b in blocks(OWN) if b.kind == "json" and '"state"' in b.text)
    assert json.loads(shown.text).items() <= found.items()
    quoted = " ".join(re.findall(r"(?m)^> (.*)$", read(OWN)))
    said = ran.out + ran.err
    for number in re.findall(r"(?<![\w-])[\d.]*\d(?![\w-])", quoted):
        assert re.search(rf"(?<![\d.]){re.escape(number.lstrip('0'))}(?!\d)", said)


def test_the_page_of_answer_files_shows_what_is_read_of_the_same_answers(
    folder: Path, server: AnthropicServer
):
    (command, shown) = (
        b for b in blocks("docs/answer_files.md") if "old.jsonl" in b.text
    )
    ran = given(*in_block(command.text), folder, server)
    assert (ran.code, lines(shown.text) <= lines(ran.err)) == (0, True)


def test_the_readme_quotes_the_sentence_of_this_page():
    (quoted,) = re.findall(r"(?m)^> (new leads .+)$", read("README.md"))
    assert quoted in read(OWN)
