"""What is said of runs side by side: one state by dimension, from shifts, their tests and what the verdicts share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis.conclusions import sweep_conclusion
from elo_exp.analysis.conclusions.compare_conclusion import (
    STATES,
    CompareConclusion,
    conclude,
)
from elo_exp.analysis.conclusions.sweep_conclusion import JobLead
from elo_exp.files import write_whole
from elo_exp.report.sentences import compare_sentences as words
from tests.commands import Ran, attempt, run
from tests.data import write_table

NUMBERS = {"pilot": 1, "whole": 2, "again": 3}


def shifted(
    model: str, by: float | None, p_holm: float | None = None, run: str = "whole"
) -> dict[str, Any]:
    low, high = (by - 10, by + 10) if p_holm and by else (None, None)
    return {
        "model": model,
        "run": run,
        "shift": by,
        "shift_ci_low": low,
        "shift_ci_high": high,
        "shift_p_holm": p_holm,
    }


BEFORE = [shifted("ann", None, run="pilot"), shifted("bob", None, run="pilot")]
CASES = {
    "none": ([], ["other"], "no entrant is rated in two runs"),
    "untested": (
        [shifted("ann", 30.0), shifted("bob", -30.0)],
        ["same", "other"],
        "the ratings are listed, but no change can be tested",
    ),
    "nested": (
        [shifted("ann", 30.0), shifted("bob", -30.0)],
        ["same", "nested"],
        "one run contains the verdicts of another, so no change is tested",
    ),
    "refitted": (
        [shifted("ann", 30.0), shifted("bob", -30.0)],
        ["same"],
        "the verdicts are the same and only the fit differs, so no change is tested",
    ),
    "same": (
        [shifted("ann", 0.001), shifted("bob", -0.001)],
        ["same"],
        "the verdicts are the same, and no rating changed",
    ),
    "unmoved": (
        [shifted("ann", 4.0, 0.051), shifted("bob", -4.0, 0.4)],
        ["other"],
        "no rating changed significantly",
    ),
    "moved": (
        [shifted("ann", 4.0, 0.4), shifted("bob", -32.0, 0.0004), shifted("cat", 36.0, 0.04, "again")],
        ["other", "other"],
        "cat changed by +36 [26, 46], p = .040, in run 3. bob changed by −32 [−42, −22], p < .001, in run 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "rows", "relations", "sentence"),
    [(state, *case) for state, case in CASES.items()],
    ids=list(CASES),
)
def test_each_state_has_its_sentence(
    state: str, rows: list[Any], relations: list[str], sentence: str
):
    found = conclude([*BEFORE, *rows], relations, dimension="tone", unit="points")
    assert (found.state, words.sentence(found, NUMBERS)) == (state, sentence)
    if state != "moved":
        assert words.headline([found]).lower() == sentence


def test_every_state_is_tried():
    assert tuple(CASES) == STATES


def of(state: str, dimension: str) -> CompareConclusion:
    rows, relations, _ = CASES[state]
    return conclude([*BEFORE, *rows], relations, dimension=dimension, unit="points")


@pytest.mark.parametrize(
    ("controls", "start"),
    [
        ([(), ()], ""),
        ([("length",), ("length",)], "at equal length, "),
        ([(), ("length",)], "at equal length in some runs, "),
    ],
)
def test_shifts_at_equal_style_say_so(controls: list[tuple[str, ...]], start: str):
    firsts = sweep_conclusion.conclude(
        [
            JobLead(job=f"{n}", models=("ann",), rating=1500.0, gap=100.0, adjusted_for=c)
            for n, c in enumerate(controls)
        ],
        dimension="tone",
    )  # fmt: skip
    for state, (rows, relations, sentence) in CASES.items():
        found = conclude([*BEFORE, *rows], relations, dimension="tone", unit="points", firsts=firsts)  # fmt: skip
        parts = sentence.split(". ") if state == "moved" else []
        said = ". ".join(f"{start}{part}" for part in parts) or sentence
        assert words.sentence(found, NUMBERS) == said
        headline = words.headline([found])
        assert headline.lower().startswith(start)
        assert not start or headline.startswith("At equal length")


def test_the_headline_names_who_moved_and_where_or_the_doubt_that_is_left():
    moved, unmoved = of("moved", "tone"), of("unmoved", "facts")
    assert (
        words.headline([moved, unmoved]) == "cat and bob changed significantly on tone"
    )
    assert words.headline([moved]) == "cat and bob changed significantly"
    both = words.headline([moved, of("moved", "facts")])
    assert both == "Ratings changed significantly on tone and facts"
    headline = words.headline([of("same", "tone"), of("untested", "facts")])
    assert headline == "The ratings are listed, but no change can be tested"


def test_estimates_differ_in_the_unit_of_their_labels():
    rows = [
        {"policy": "x", "run": run, "difference": by, "difference_ci_low": by and by - 0.02,
         "difference_ci_high": by and by + 0.02, "difference_p_holm": p}
        for run, by, p in (("pilot", None, None), ("whole", -0.08, 0.0001), ("again", 0.01, 0.3))
    ]  # fmt: skip
    found = conclude(rows)
    assert (found.state, found.subject, found.n_tested) == ("moved", "x", 2)
    said = "x differs by −0.080 [−0.100, −0.060], p < .001, in run 2"
    assert words.sentence(found, NUMBERS) == said
    assert words.headline([found]) == "x differs significantly between runs"
    assert (
        words.headline([conclude(rows[2:])])
        == "No estimate differs significantly between runs"
    )
    assert (
        words.headline([conclude(rows[:1])])
        == "No difference between runs can be tested"
    )


# Runs that have ended

RATE = ("experiment=rate", "figures=false", "tracker=local", "elo.n_perms=5")
COMPARE = ("experiment=compare", "figures=false", "tracker=local")


def battle(q: int, a: str, b: str, winner: str, **more: Any) -> dict[str, Any]:
    return {
        "model_a": a,
        "model_b": b,
        "winner": winner,
        "question_id": f"q{q}",
        **more,
    }


def rated(folder: Path, name: str, battles: list[dict[str, Any]], *words: str) -> None:
    write_table(folder / f"{name}.jsonl", battles)
    run(*RATE, f"battles={name}.jsonl", *words, f"hydra.run.dir={name}", folder=folder)


def compared(folder: Path, *names: str) -> Ran:
    return run(
        *COMPARE, f"runs=[{','.join(names)}]", "hydra.run.dir=both", folder=folder
    )


@pytest.mark.system
def test_verdicts_with_other_shares_are_other_verdicts(tmp_path: Path):
    """The winner of every battle is the same, its share of the point is not."""
    for name, share in (("weak", 0.6), ("strong", 0.95)):
        battles = [
            battle(q, a, b, "model_b" if q % 4 == 0 else "model_a",
                   score=1 - share if q % 4 == 0 else share)
            for q in range(40)
            for a, b in (("ann", "bob"), ("bob", "cat"))
        ]  # fmt: skip
        rated(tmp_path, name, battles, "battles_columns.score=score")
    ran = compared(tmp_path, "weak", "strong")
    found = ran.read("compare.json")
    assert found["overlaps"][0]["verdicts"] == "other"
    assert found["conclusions"]["overall"]["state"] == "moved"
    assert "has the same verdicts" not in " ".join(ran.out.split())


@pytest.mark.system
def test_an_entrant_without_a_decisive_battle_stands_in_every_table(tmp_path: Path):
    """Its ties rate it by Bradley-Terry in one run; Elo, which plays decisive battles, does not."""
    decisive = [
        battle(q, a, b, "model_a" if q % n < 3 else "model_b")
        for q in range(30)
        for a, b, n in (("ann", "bob", 5), ("bob", "cat", 7))
    ]
    ties = [battle(q, "ann" if q < 13 else "cat", "dan", "tie") for q in range(30)]
    rated(tmp_path, "without", decisive)
    rated(tmp_path, "with", decisive + ties)
    ran = compared(tmp_path, "without", "with")
    (dan,) = (line for line in ran.page.cells if line[:2] == ["dan", "2"])
    assert dan[2].isdigit()
    assert dan[-1] == "–"
    assert [
        line.split()[-1]
        for line in ran.out.splitlines()
        if line.split()[:2] == ["dan", "2"]
    ] == ["–"]
    rows = ran.read("compare.json")["conclusions"]
    said = f"overall: {rows['overall']['sentence']}"
    assert said in ran.out
    assert f"{rows['overall']['sentence'].capitalize()}." in ran.page.said
    logged = {row["kind"]: row["value"] for row in ran.rows("tracker/log.jsonl")}
    assert (
        logged["summary"]["conclusion/overall/sentence"] == rows["overall"]["sentence"]
    )


@pytest.mark.system
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("score", 7, "score"),
        ("winner", None, "winner"),
        ("winner", "ann?", "ann?"),
        ("model_a", ["x"], "model_a"),
        ("model_a", None, "model_a"),
    ],
)  # fmt: skip
def test_battles_of_a_run_are_checked_as_any_file_is(
    tmp_path: Path, field: str, value: Any, said: str
):
    battles = [battle(q, "ann", "bob", f"model_{'aab'[q % 3]}") for q in range(30)]
    rated(tmp_path, "one", battles)
    rated(tmp_path, "other", battles)
    path = tmp_path / "other/battles.jsonl"
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    damaged = json.dumps(json.loads(first) | {field: value})
    write_whole(path, "\n".join([damaged, *rest, ""]))
    refused = attempt(*COMPARE, "runs=[one,other]", folder=tmp_path)
    assert refused.code == 2
    assert "other/battles.jsonl" in refused.err
    assert said in refused.err
    assert "Traceback" not in refused.err
