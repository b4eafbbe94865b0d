"""docs/ratings.md names every field of ratings.json, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elo_exp import HOME
from elo_exp.files import write_jsonl
from tests.commands import LOCAL, Ran, run

RUN = (*LOCAL, "figures=false", "rubric=[factuality,calibration]")
EVERYTHING = (
    *("rating=[bradley_terry,davidson,rao_kupper]", "judging.repeats=2"),
    *("rating.bradley_terry.interval=bootstrap", "rating.bradley_terry.n_bootstraps=20"),
)
CONDITIONAL = {  # what a plain run of one judge does not have
    **dict.fromkeys(("davidson", "nu", "nu_std_error"), "rating=[davidson]"),
    **dict.fromkeys(("rao_kupper", "eta", "eta_std_error"), "rating=[rao_kupper]"),
    "p_tie_equal": "one of these",
    **dict.fromkeys(("n_bootstraps", "n_dropped"), "interval=bootstrap or percentile"),
    "rho": "another judge in the store",
}
OF_TEXTS = {"length", "repeats"}  # of the judge, where there are texts: not in experiment=rate
NAMES = {
    "factuality",
    "calibration",
    "overall",
    "20",
    "40",
    "60",
}  # dimensions, and differences in points
VALUES = {"unbeaten", "winless", "disconnected", "separated", "null"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran, Ran]:
    """A plain run; one of another judge with all that may be in the file; the battles of that by themselves."""
    folder = tmp_path_factory.mktemp("runs")
    first = run(*RUN, folder=folder)
    rows = first.rows("battles.jsonl")
    turned = [row | {"winner": "tie"} if i % 10 == 0 else row for i, row in enumerate(rows)]
    asked = {"verdict_ab", "verdict_ba"}
    heard = [{name: value for name, value in row.items() if name not in asked} for row in turned]
    replayed = write_jsonl(folder / "other.jsonl", heard)
    plain = run(
        *RUN, "judge=replay", f"judge.path={replayed}", "cache_dir=elsewhere", folder=folder
    )
    run(*RUN, "judge=replay", f"judge.path={replayed}", folder=folder)
    everything = run(*RUN, *EVERYTHING, folder=folder)
    battles = run(
        *(
            "experiment=rate",
            f"battles={everything.run_dir}/battles.jsonl",
            "battles_columns.dimension=dimension",
        ),
        *("tracker=local", "figures=false", "elo.n_perms=20"),
        folder=folder,
    )
    return plain, everything, battles


def keys(value: Any) -> Iterator[str]:
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from keys(inner)
    yield from value if isinstance(value, dict) else ()


def fields(ran: Ran) -> set[str]:
    return set(keys(ran.read("ratings.json"))) - NAMES


def documented() -> set[str]:
    """The names within backticks, also as `.name` and `name[]`; settings have an = or a dot within."""
    text = (
        (HOME / "docs/ratings.md").read_text(encoding="utf-8").partition("## What real data say")[0]
    )
    quoted = re.findall(
        r"`([^`]+)`",
        text.replace("`dimensions.<", "`dimensions` `<").replace("`judge.<", "`judge` `<"),
    )
    names = {re.sub(r"^\.|\[\]$|\.<\w+>(\[\])?$", "", name) for name in quoted}
    return {name for name in names if re.fullmatch(r"\w+", name)} - VALUES


def test_every_field_is_documented_and_no_other(runs: tuple[Ran, Ran, Ran]):
    _, everything, _ = runs
    assert everything.read("ratings.json")["agreement_between_judges"]
    assert documented() == fields(everything)


def test_what_a_plain_run_does_not_have_has_its_condition(runs: tuple[Ran, Ran, Ran]):
    plain, everything, _ = runs
    assert fields(everything) - fields(plain) == set(CONDITIONAL)


def test_battles_without_texts_have_all_but_what_texts_tell(runs: tuple[Ran, Ran, Ran]):
    _, everything, battles = runs
    (there, here) = (
        ran.read("ratings.json")["judge"]["factuality"] for ran in (everything, battles)
    )
    assert set(there) - set(here) == OF_TEXTS
    lines = Path(HOME / "docs/ratings.md").read_text(encoding="utf-8").splitlines()
    of_texts = [line for line in lines if "of `experiment=tournament`" in line]
    assert {line.split("`")[1] for line in of_texts} == OF_TEXTS
    ratings = battles.read("ratings.json")["dimensions"]["factuality"]["elo"]["ratings"]
    decisive = [
        row
        for row in battles.rows("battles.jsonl")
        if row["dimension"] == "factuality" and row["winner"] != "tie"
    ]
    sides = [row[side] for row in decisive for side in ("model_a", "model_b")]
    assert {r["model"]: r["n_battles"] for r in ratings} == {
        r["model"]: sides.count(r["model"]) for r in ratings
    }
