"""Every command that a page shows runs to its end, as it is shown, on the machine of readers_machine.py, and plans.

test_docs.py compares the output of those whose output a tutorial shows. Models, adapters and heads
are random and have some thousand weights, under the names that the pages use.
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
from tests.documented import PAGES, Command, commands
from tests.readers_machine import Machine, ended_well, is_run, machine

pytestmark = pytest.mark.system

SHOWN = [command for page in PAGES for command in commands(page)]
RUN = [command for command in SHOWN if is_run(command)]
FREE = re.compile("plan=true|experiment=(store|rate|compare)")
SLURM = "docs/slurm.md"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("reader")) as made:
        yield made


@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_shown_ends_well(command: Command, reader: Machine):
    done = reader.page(command.page)[command.line]
    ended_well(done)
    assert done.n_billed == 0 or not FREE.search(command.line)


# What acts in place of running, what stops for want of a judge, and what a tutorial has made by then
NOT_PLANNED = re.compile(
    r".*(plan=true|status=true|--help|--cfg|experiment=(store|coin|dashboard)|outputs/arena/)"
    r"|python -m elo_exp (examples/)?old.csv (examples/)?new.jsonl$"
)
OF_A_FIRST_DAY = (
    *("README.md", "docs/entrants.md", "docs/judges.md"),
    *("docs/answer_files.md", "docs/battle_files.md"),
)
PLANNED = [
    pytest.param(
        command, marks=() if command.page in OF_A_FIRST_DAY else pytest.mark.slow
    )
    for command in SHOWN
    if command.line.startswith("python -m elo_exp ")
    and not NOT_PLANNED.match(command.line)
]


@pytest.mark.parametrize("command", PLANNED, ids=str)
def test_what_runs_also_plans(command: Command, reader: Machine):
    """Without a key, and nothing is asked; what costs nothing says so."""
    reader.page(command.page)
    before = reader.n_billed()
    line = f"{reader.here(command.line)} plan=true"
    ran = reader.shell(line, ANTHROPIC_API_KEY="", OPENAI_API_KEY="")
    assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
    assert re.search(r"(?m)^plan: |nothing is charged\.$", ran.out)
    assert reader.n_billed() == before


@pytest.mark.parametrize("page", ["docs/apis.md", "docs/judges.md"])
def test_the_pages_on_apis_have_asked_them(page: str, reader: Machine):
    assert sum(done.n_billed for done in reader.page(page).values()) > 0


# Clusters


def printed(reader: Machine, words: str) -> str:
    """The output of the command of the page on Slurm that has these words."""
    (done,) = (done for line, done in reader.page(SLURM).items() if words in line)
    return done.ran.out


def test_shares_of_an_array_are_made_once_and_merged(reader: Machine):
    """Two shares of 16 prompts for two entrants: sbatch finds what the launcher's jobs have made."""
    assert (
        printed(reader, "cache_dir=shares/$SLURM").count(": 0 generated, 16 from cache")
        == 2
    )
    logs = (reader.folder / "outputs").glob("multirun_*/.submitit/*/*_log.out")
    shares = re.findall(
        r"shard .*", "".join(log.read_text(encoding="utf-8") for log in logs)
    )
    end = "To judge them, use experiment=tournament."
    assert sorted(shares) == [f"shard {n}/2: 16 generated. {end}" for n in range(2)]
    assert (
        printed(reader, "store.file=$(ls").count("found 16 answers in the other cache")
        == 2
    )
    last = printed(reader, "mine experiment=answer 'entrant=").splitlines()[0]
    assert last == f"answers: 0 generated, 32 from cache. {end}"


# Servers


@contextmanager
def begun(line: str, reader: Machine) -> Iterator[subprocess.Popen[str]]:
    """A command of a page that goes on until it is interrupted."""
    assert line in {command.line for command in SHOWN}
    program, *words = shlex.split(line)
    path = sys.executable if program == "python" else str(SCRIPTS / program)
    variables = environment(reader.folder) | reader.variables
    with subprocess.Popen(
        [path, *words],
        cwd=reader.folder,
        env=variables | {"PYTHONUNBUFFERED": "1", "BROWSER": "true"},
        stdout=subprocess.PIPE,
        text=True,
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
            "{} questions, 0 paid twice",
        ),
    ],
)
def test_a_server_prints_a_command_that_it_answers_and_its_bill_at_the_end(
    line: str, besides: str, bill: str, reader: Machine
):
    with begun(line, reader) as server:
        assert server.stdout is not None
        _, command = server.stdout.readline(), server.stdout.readline()
        ran = reader.shell(f"{command.strip()} {besides}")
        assert ran.code == 0, ran.err
        (asked,) = re.findall(r"verdicts: ([1-9]\d*) new", ran.err)
        server.send_signal(signal.SIGINT)
        assert bill.format(asked) in server.stdout.read()


def test_the_dashboard_without_an_account_shows_the_sweep(reader: Machine):
    reader.page("docs/wandb.md")
    with begun("trackio show --project elo_exp", reader) as server:
        assert server.stdout is not None
        found = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in server.stdout)
        with urlopen(next(match[0] for match in found if match), timeout=60) as page:
            assert "trackio" in page.read().decode().lower()
