"""`headline=NAME`: the number by which a sweeper compares jobs, under the name that trackers have for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from elo_exp.errors import UserError
from elo_exp.experiments import Report
from elo_exp.files import read_json
from elo_exp.launching.sweep_objective import choose_objective
from tests.commands import Ran, attempt
from tests.data import write_table

RESULTS = {
    "headline/gap": 146.5, "order_mean/distance": 24.1, "result_mean/gap_se": 30.2,
    "order/tone/gap": 250.0, "order/facts/convergence": 0.9, "headline/first": "ann",
}  # fmt: skip
OWN = Report(headline=146.5, headline_is="headline/gap", text="")


def chosen(
    wanted: str | None = None, *swept: str, results: Any = RESULTS
) -> tuple[str, float]:
    return choose_objective(OWN, results, wanted=wanted, swept=swept)


@pytest.mark.parametrize(
    ("swept", "name"),
    [
        ((), "headline/gap"),  # a single run
        (("judge",), "headline/gap"),
        (("elo.k",), "order_mean/distance"),
        (("elo.k", "elo.n_perms"), "order_mean/distance"),
        (("elo", "elo.n_perms"), "order_mean/distance"),  # the group itself
        (("elo.k", "judge"), "headline/gap"),  # whose gap moves
        (("elon",), "headline/gap"),
    ],
)
def test_it_is_the_experiments_own_or_that_of_elo_where_elo_alone_is_swept(
    swept: tuple[str, ...], name: str
):
    assert chosen(None, *swept) == (name, RESULTS[name])


def test_without_a_limit_there_is_none_and_without_elo_it_is_the_own():
    name, value = chosen(None, "elo.k", results={"order_mean/gap": 10.0})
    assert (name, math.isnan(value)) == ("order_mean/distance", True)
    assert chosen(None, "elo.k", results={}) == ("headline/gap", 146.5)


def test_any_number_of_the_run_may_be_taken():
    assert chosen("order/tone/gap") == ("order/tone/gap", 250.0)
    name, value = chosen("order/facts/distance")  # defined of tone's kind alone
    assert (name, math.isnan(value)) == ("order/facts/distance", True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("order/tones/gap", "Did you mean order/tone/gap?"),
        ("headline/first", "Did you mean headline/gap?"),  # which is no number
        (
            "zzz",
            "Examples: headline/gap, result_mean/gap_se, order_mean/distance",
        ),
    ],
)
def test_an_unknown_name_is_told(name: str, hint: str):
    with pytest.raises(
        UserError, match=f"headline names a number that this run does not have: {name}"
    ):
        chosen(name)
    with pytest.raises(UserError) as error:
        chosen(name)
    assert hint in str(error.value)


# As a user gives it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Battles of three that each have won and lost."""
    found = tmp_path_factory.mktemp("headlines")
    battles = [
        {"model_a": a, "model_b": b, "winner": "model_a" if q % 5 < 3 else "model_b", "question_id": f"q{q}"}
        for q in range(40)
        for a, b in (("ann", "bob"), ("bob", "cat"), ("ann", "cat"))
    ]  # fmt: skip
    write_table(found / "battles.csv", battles)
    return found


def rate(folder: Path, *words: str) -> Ran:
    given = ("experiment=rate", "battles=battles.csv", "figures=false", "tracker=local")
    return attempt(*given, "elo.n_perms=20", *words, folder=folder)


@pytest.mark.system
def test_the_manifest_names_the_number_that_the_job_hands_on(folder: Path):
    ran = rate(folder, "headline=order_mean/mc_error")
    manifest = ran.read("manifest.json")
    assert manifest["headline_is"] == "order_mean/mc_error"
    (order,) = (
        by["elo"]["order"] for by in ran.read("ratings.json")["dimensions"].values()
    )
    assert manifest["headline"] == order["mc_error"] > 0
    own = rate(folder).read("manifest.json")
    assert own["headline_is"] == "headline/gap"


@pytest.mark.system
def test_a_sweep_of_k_hands_on_what_moves(folder: Path):
    ran = rate(folder, "-m", "elo.k=4,32")
    found = [read_json(ran.run_dir / job / "manifest.json") for job in "01"]
    assert {one["headline_is"] for one in found} == {"order_mean/distance"}
    assert found[0]["headline"] > found[1]["headline"]  # the larger K is nearer


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("order_mean/distnce", "order_mean/distance"),
        ("order/tone/gaps", "order/tone/gap"),
        ("headlin/gap", "headline/gap"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_done(
    folder: Path, tmp_path: Path, name: str, meant: str
):
    """Of a sweep, too, before the first job."""
    for words in ([], ["-m", "elo.k=4,8"]):
        given = (f"headline={name}", f"hydra.run.dir={tmp_path / 'run'}")
        ran = rate(folder, *words, *given, f"hydra.sweep.dir={tmp_path / 'sweep'}")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        line = f"headline names a number that this run does not have: {name}. Did you mean {meant}?"
        assert ran.err.rstrip().endswith(line)
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("experiment", "name", "hint"),
    [
        ("audit", "audit/biassed", "Did you mean audit/biased?"),
        ("gate", "gate/tone/shares", "Did you mean gate/tone/share?"),
        ("arena", "newcomer/ratings", "Did you mean newcomer/rating?"),
        ("arena", "zzz", "Examples: arena_mean/error."),
        ("oracle", "oracle_mean/errors", "Did you mean oracle_mean/error?"),
    ],
)
def test_an_unknown_name_is_refused_by_experiments_of_every_kind(
    tmp_path: Path, experiment: str, name: str, hint: str
):
    given = [f"experiment={experiment}", f"headline={name}", "judge=lexical"]
    if experiment == "gate":
        answers = [{"question": "Why?", "answer": "So."}]
        old = write_table(tmp_path / "old.csv", answers)
        given += [f"gate.baseline={old}"]
    here = tmp_path / "here"
    ran = attempt(*given, "tracker=local", folder=here)
    assert (ran.code, [*here.iterdir()]) == (2, [])
    assert (
        ran.err
        == f"elo_exp: headline names a number that this run does not have: {name}. {hint}\n"
    )


def test_a_name_of_another_dimension_is_known_when_the_run_is_done(folder: Path):
    ran = rate(folder, "headline=elo/tone/ann", "hydra.run.dir=refused")
    assert (ran.code, ran.err.count("Traceback")) == (2, 0)
    assert "that this run does not have: elo/tone/ann. Did you mean elo/" in ran.err
