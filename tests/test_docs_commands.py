"""Every command that a page shows runs to its end, as it is shown, on the machine of readers_machine.py.

The pages that want models on this machine are in test_docs_models.py; the walk through the tutorials, whose output is
compared, is in test_docs.py.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from tests.commands import SCRIPTS, environment
from tests.documented import PAGES, Command, blocks, commands, relative
from tests.readers_machine import (
    NOT_GIVEN,
    PAGES_WITH_MODELS,
    SAYS,
    STANDS_FOR,
    WRITES,
    Machine,
    ended_well,
    is_given,
    machine,
)

COMMANDS = [
    command
    for page in map(relative, PAGES)
    if page not in PAGES_WITH_MODELS
    for command in commands(page)
    if is_given(command)
]
FREE = (
    "plan=true",
    "experiment=store",
    "experiment=rate",
    "experiment=compare",
    "experiment=dashboard",
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("reader")) as made:
        yield made


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_shown_ends_well(command: Command, reader: Machine):
    ended_well(reader.page(command.page)[command.line])


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if any(words in c.line for words in FREE)], ids=str
)
def test_a_command_that_asks_nobody_is_billed_for_nothing(command: Command, reader: Machine):
    assert reader.page(command.page)[command.line].n_billed == 0


@pytest.mark.parametrize("page", ["docs/apis.md", "docs/judging.md"])
def test_the_pages_on_apis_have_asked_them(page: str, reader: Machine):
    assert sum(done.n_billed for done in reader.page(page).values()) > 0


def test_the_tables_of_the_machine_hold_nothing_that_no_page_has():
    shown = "\n".join(command.line for page in PAGES for command in commands(relative(page)))
    yaml = "".join(
        block.text for page in PAGES for block in blocks(relative(page)) if block.kind == "yaml"
    )
    assert [
        words for words in (*NOT_GIVEN, *SAYS, *WRITES) if not re.search(words, shown, re.MULTILINE)
    ] == []
    assert [words for words in STANDS_FOR if not re.search(words, shown + yaml)] == []


@contextmanager
def begun(line: str, reader: Machine) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on until it is interrupted, as a page shows it."""
    assert line in {command.line for page in PAGES for command in commands(relative(page))}
    program, *words = shlex.split(line)
    path = sys.executable if program == "python" else str(SCRIPTS / program)
    variables = {
        **environment(reader.folder),
        **reader.variables,
        "PYTHONUNBUFFERED": "1",
        "BROWSER": "true",
    }
    with subprocess.Popen(
        [path, *words], cwd=reader.folder, env=variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server
        finally:
            server.send_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("line", "besides", "bill"),
    [
        ("python -m tests.openai_server", "", "{} completions"),
        (
            "python -m tests.anthropic_server --verdicts noisy",
            "recorded_dir=responses judge.transport=messages",  # a batch takes five seconds
            '"bodies": {},',
        ),
    ],
)
def test_a_server_prints_a_command_that_it_answers_and_its_bill_at_the_end(
    line: str, besides: str, bill: str, reader: Machine
):
    with begun(line, reader) as server:
        assert server.stdout is not None
        _, printed = server.stdout.readline(), server.stdout.readline()
        ran = reader.shell(f"{printed.strip()} {besides}")
        assert ran.code == 0, ran.err
        (asked,) = re.findall(r"distinct; ([1-9]\d*) asked of", ran.err)
        server.send_signal(signal.SIGINT)
        assert bill.format(asked) in server.stdout.read()


def test_the_dashboard_without_an_account_shows_the_sweep(reader: Machine):
    reader.page("docs/compare.md")
    with begun("trackio show --project elo_exp", reader) as server:
        assert server.stdout is not None
        url = next(
            found[0]
            for line in server.stdout
            if (found := re.search(r"http://127\.0\.0\.1:\d+/", line))
        )
        with urlopen(url, timeout=20) as page:
            assert "trackio" in page.read().decode().lower()
