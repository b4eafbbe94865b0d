"""docs/costs.md shows the plans that its commands print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import judged_pages, own_example
from tests.anthropic_server import AnthropicServer
from tests.commands import Ran
from tests.documented import Block
from tests.judged_pages import lines

COSTS = "docs/costs.md"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Block, Ran]]:
    folder: Path = tmp_path_factory.mktemp("costs")
    own_example.write_files(folder)
    with AnthropicServer(verdicts=own_example.judge) as server:
        yield judged_pages.printed(COSTS, folder, server)
        assert server.meter.billed_bodies.total() == 0


@pytest.mark.system
def test_a_plan_prints_what_the_page_shows(printed: dict[Block, Ran]):
    plans = {
        block: ran for block, ran in printed.items() if "spent in" not in block.text
    }
    assert len(plans) == 4
    for block, ran in plans.items():
        assert lines(block.text) - {"..."} <= lines(ran.out + ran.err)
