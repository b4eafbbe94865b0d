"""Pages whose judge is asked, done as they say: their commands, given to a program in Claude's place."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

from tests.anthropic_server import AnthropicServer
from tests.commands import Ran, attempt
from tests.documented import Block, in_block, tutorial

QUICK = ("judge.poll_initial_seconds=0.02", "judge.poll_max_seconds=0.1")


def printed(page: str, folder: Path, server: AnthropicServer) -> dict[Block, Ran]:
    """What the command before each output of the page has ended with."""
    return {
        output: given(*in_block(block.text), folder, server)
        for block, output in pairwise(tutorial(page))
        if not block.kind and output.kind == "text"
    }


def given(line: str, folder: Path, server: AnthropicServer) -> Ran:
    """A plan needs no key; Claude is the program."""
    program, _, _, *words = shlex.split(line)
    assert program == "python"
    quiet = () if "plan=true" in words else ("tracker=local",)
    if "judge=sonnet" in words and "plan=true" not in words:
        words += [f"judge.base_url={server.url}", *QUICK]
        quiet += ("figures=false",)
        key = {"ANTHROPIC_API_KEY": server.key, "NO_PROXY": "127.0.0.1"}
        return attempt(*words, *quiet, folder=folder, **key)
    return attempt(*words, *quiet, folder=folder)


def lines(text: str) -> set[str]:
    return set(re.sub(r"\d{4}-\d\d-\d\d", "DATE", text).splitlines())
