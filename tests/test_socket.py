"""An experiment of your own: one class and one yaml outside this repository, and no edit inside it."""

from pathlib import Path

import pytest

from tests.commands import Ran, attempt

CLASS = """\
from dataclasses import dataclass

from elo_exp.experiments import Context, Experiment, Report
from elo_exp.judges import Judge
from elo_exp.types import Count


@dataclass(kw_only=True)
class Coin(Experiment):
    judge: Judge
    flips: Count

    def dry_run(self, context: Context) -> str | None:
        return "nothing to flip" if self.flips == 7 else None

    def run(self, context: Context) -> Report:
        text = f"{self.flips} flips by {self.judge.model}"
        return Report(headline=float(self.flips), text=text, facts={"n_flips": self.flips})
"""
YAML = """\
# @package _global_
# Flips a coin.
defaults:
  - /judge: lexical
  - _self_
_target_: coins.Coin
name: coin
flips: 3               # how often
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "coins.py").write_text(CLASS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conf/experiment").mkdir(parents=True)
    (tmp_path / "conf/experiment/coin.yaml").write_text(YAML, encoding="utf-8")
    return tmp_path


def coin(folder: Path, *words: str) -> Ran:
    given = ("--config-dir=conf", "experiment=coin", "tracker=local", *words)
    return attempt(*given, folder=folder)


def test_it_runs_and_leaves_what_every_run_leaves(folder: Path):
    ran = coin(folder, "flips=5")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "5 flips by lexical"), ran.err
    manifest = ran.read("manifest.json")
    assert (manifest["experiment"], manifest["n_flips"], manifest["headline"]) == (
        "coin",
        5,
        5.0,
    )
    assert ran.run_dir.name.startswith("coin_")


@pytest.mark.system
def test_it_is_swept_and_all_of_its_jobs_are_checked_before_the_first(folder: Path):
    swept = coin(folder, "-m", "flips=1,2")
    assert "sweep: 2 of 2 jobs finished" in swept.out
    refused = coin(folder, "-m", "flips=1,0", "hydra.sweep.dir=refused")
    assert "flips must be a whole number of 1 or more; got 0." in refused.err
    assert not (folder / "refused").exists()


def test_what_it_prints_in_place_of_a_run_leaves_no_folder(folder: Path):
    assert coin(folder, "flips=7").out == "nothing to flip\n"
    assert not list(folder.glob("outputs/coin_*"))


@pytest.mark.system
@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("flip=3", "Unknown setting: flip. Did you mean flips?"),
        ("+xyz=1", "Unknown setting: xyz. Choose from flips, judge."),
        (
            "judging.repeats=2",
            "judging.repeats is not a setting of experiment=coin, but of tournament, answer, arena, ",
        ),
    ],
)
def test_its_settings_are_its_fields_and_no_others(folder: Path, word: str, line: str):
    ran = coin(folder, word)
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert ran.err.startswith(f"elo_exp: {line}")


def test_a_class_that_is_no_experiment_is_refused_in_a_line(folder: Path):
    source = CLASS.replace("Coin(Experiment)", "Coin")
    (folder / "plain_coins.py").write_text(source, encoding="utf-8")
    settings = YAML.replace("coins.Coin", "plain_coins.Coin")
    (folder / "conf/experiment/coin.yaml").write_text(settings, encoding="utf-8")
    ran = coin(folder)
    assert (ran.code, ran.err) == (
        2,
        "elo_exp: _target_ must be a subclass of elo_exp.experiments.Experiment, and plain_coins.Coin is not one.\n",
    )


def test_it_is_listed_with_the_others(folder: Path):
    ran = attempt("--config-dir=conf", "--options", folder=folder, anew=True)
    experiments = ran.out.partition("\njudge: ")[0]
    assert "\n  coin " in experiments


FIRST_WINS = """\
from dataclasses import dataclass

from elo_exp.extending import Comparisons, Context, PairwiseExperiment, Report, Responses


@dataclass(kw_only=True)
class FirstWins(PairwiseExperiment):
    def conclude(self, context: Context, responses: Responses, comparisons: Comparisons) -> Report:
        (run,) = self.judge_runs.values()
        judgments = run.judge_pairs(comparisons, context.store)["factuality"]
        wins = sum(judgment.winner == judgment.entrant_a for judgment in judgments)
        return Report(headline=wins / len(judgments), text=f"{wins} of {len(judgments)}")
"""
FIRST_WINS_YAML = """\
# @package _global_
# How often the entrant that is named first wins.
defaults:
  - /judged
  - /entrant: [probe_reference, probe_swapped]
  - /judge: lexical
  - /rubric: [factuality]
  - /study: medical
  - /mode: demo
  - _self_
_target_: first_wins.FirstWins
name: first_wins
rubric: {}
"""


@pytest.mark.system
def test_one_that_judges_writes_only_what_it_concludes(folder: Path):
    """Prompts, answers, plans, budgets and the store are those of the base class."""
    (folder / "first_wins.py").write_text(FIRST_WINS, encoding="utf-8")
    path = folder / "conf/experiment/first_wins.yaml"
    path.write_text(FIRST_WINS_YAML, encoding="utf-8")
    words = ("--config-dir=conf", "experiment=first_wins", "tracker=local")
    small = ("judging.limit_pairs=30", "rubric=[factuality]")
    planned = attempt(*words, *small, "plan=true", folder=folder)
    assert "factuality" in planned.out and planned.code == 0, planned.err
    ran = attempt(*words, *small, folder=folder)
    assert ran.code == 0, ran.err
    wins, n = map(int, ran.out.splitlines()[0].split(" of "))
    assert (n, wins > n / 2) == (30, True)
    assert ran.read("manifest.json")["headline"] == wins / n
