"""The commands of the pages on models of this machine run to their end: entrants, judges, the oracle, Slurm.

The models, adapters and heads are random and have some thousand weights, under the names that the pages use.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.documented import Command, commands
from tests.readers_files import write_models
from tests.readers_machine import PAGES_WITH_MODELS, Machine, ended_well, is_given, machine

CLUSTERS = "docs/clusters.md"
COMMANDS = [
    command for page in PAGES_WITH_MODELS for command in commands(page) if is_given(command)
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("reader"), also=write_models) as made:
        yield made


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_shown_ends_well(command: Command, reader: Machine):
    ended_well(reader.page(command.page)[command.line])


def cluster(reader: Machine, words: str) -> str:
    """What the command of the page on clusters that has these words has said."""
    (done,) = (done for line, done in reader.page(CLUSTERS).items() if words in line)
    return done.ran.out


def test_the_answers_of_an_array_are_there_for_the_next(reader: Machine):
    """Two shares of 16 prompts for two entrants: sbatch finds what the launcher's jobs have made."""
    assert cluster(reader, "sbatch --array").count(": 0 responses made, 16 were there") == 2


def test_what_a_job_has_printed_is_in_the_folder_that_the_page_names(reader: Machine):
    cluster(reader, "submitit_slurm")
    logs = (reader.folder / "outputs").glob("multirun_*/.submitit/*/*_log.out")
    assert sorted(
        line
        for log in logs
        for line in log.read_text(encoding="utf-8").splitlines()
        if "shard" in line
    ) == [f"shard {n}/2: 16 responses made; run without shard= to judge" for n in range(2)]


def test_after_the_merge_no_answer_is_missing(reader: Machine):
    assert cluster(reader, "store.file=$(ls").count("16 answers there") == 2
    assert (
        cluster(reader, "shard=0/1")
        == "shard 0/1: 0 responses made, 32 were there; run without shard= to judge\n"
    )


def test_a_plan_of_models_pays_nothing(reader: Machine):
    plans = [done for line, done in reader.page(CLUSTERS).items() if "plan=true" in line]
    assert [done.n_billed for done in plans] == [0, 0]
