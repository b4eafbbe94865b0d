"""docs/tutorials/agents.md, done as it says: from the logs of two agents, which tests/agents_example.py makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elo_exp.data import answers
from elo_exp.files import write_whole
from tests import agents_example, judged_pages
from tests.anthropic_server import AnthropicServer
from tests.commands import Ran
from tests.documented import AGENTS, Block, blocks, in_block, read
from tests.judged_pages import given, lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    agents_example.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[AnthropicServer]:
    with AnthropicServer(
        verdicts=agents_example.judge, polls_to_end=1, seconds_to_end=0.05
    ) as server:
        yield server


@pytest.fixture(scope="module")
def printed(folder: Path, server: AnthropicServer) -> dict[Block, Ran]:
    return judged_pages.printed(AGENTS, folder, server)


@pytest.mark.system
def test_every_command_prints_what_the_page_shows(printed: dict[Block, Ran]):
    assert len(printed) == 4
    for block, ran in printed.items():
        assert ran.code == 0, ran.err
        assert lines(block.text) <= lines(ran.out + ran.err)


@pytest.mark.system
def test_the_judge_was_shown_what_the_page_shows(printed: dict[Block, Ran]):
    (shown,) = (b.text.strip() for b in blocks(AGENTS) if b.text.startswith("<turn"))
    *_, ran, _ = printed.values()
    rows = ran.rows("matches/matches.jsonl")
    assert shown in [row["response_a"] for row in rows]


@pytest.mark.system
def test_the_table_of_the_page_is_that_of_the_run(printed: dict[Block, Ran]):
    *_, ran, _ = printed.values()
    table = re.findall(r"(?m)^\| (.*) \|$", read(AGENTS))
    rows = [line.split(" | ") for line in table]
    at = ran.page.cells.index(rows[0])
    assert rows == ran.page.cells[at : at + len(rows)]


def test_the_row_of_messages_is_read(tmp_path: Path):
    (block,) = (b for b in blocks(AGENTS) if b.kind == "json")
    text = " ".join(block.text.split())
    (row,) = answers.read_answers(write_whole(tmp_path / "trajectory.jsonl", text))[1]
    assert (row.id, row.text) == ("notes1.txt", "notes1.txt has 12 lines, by wc.")
    assert len(row.messages) == 3


@pytest.mark.system
def test_the_agents_as_entrants_are_judged_from_the_store(
    printed: dict[Block, Ran], folder: Path, server: AnthropicServer
):
    """Under other names, and with the log as bank: the texts are the same."""
    assert printed
    for block in blocks(AGENTS):
        if block.kind == "yaml":
            write_whole(folder / str(block.file), block.text)
    *_, (line,) = (in_block(b.text) for b in blocks(AGENTS) if "--config-dir" in b.text)
    ran = given(line, folder, server)
    assert ran.code == 0, ran.err
    assert re.search(
        r"verdicts: 0 new from claude-sonnet-5-5, 73 from cache \(80 judge calls",
        ran.err,
    )
