"""The page and the console of a tournament, of rated battles and of scored items, as they were last agreed on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from elo_exp.analysis import standings as standing
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_bias import PositionEffect
from elo_exp.analysis.judge_quality import InvalidShare, JudgeQuality
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.standings import Standings, add_diagnoses
from elo_exp.data.scores import Score
from elo_exp.records import Battle, Plot, Response
from elo_exp.report import tournament_console, tournament_page
from elo_exp.report.page import render_document
from elo_exp.report.standings_view import build_view
from tests import golden
from tests.commands import QUICK, run
from tests.data import DIMENSIONS, PROBES, by_dimension, write_table
from tests.standings import with_lengths
from tests.test_judges_on_file import with_people
from tests.test_tournament_page import (
    AUDIT,
    MANIFEST,
    METHODS,
    QUALITY,
    rated,
    simulated,
)
from tests.test_viewer import PAIRS

FIGURES = [
    Plot(name=name, png=b"", svg="<svg></svg>", caption=f"What {name} shows.", rows=[])
    for name in ("power", "k_sensitivity", "order_effect", "length_effect", "ratings", "another")
]  # fmt: skip
RATE_FILE = ("experiment=rate", "battles=battles.jsonl", "tracker=local")
RATE = {"experiment": "rate", "battles_files": [], "overrides": []}


def same(
    name: str,
    found: Standings,
    quality: Sequence[Mapping[str, Any]] = (),
    *texts: Any,
    manifest: Mapping[str, Any] = MANIFEST,
    plots: Sequence[Plot] = (),
) -> None:
    """Compare the page and the console with their golden files."""
    scope = Scope(kind="scores") if found.is_scored else Scope(judge="opus")
    rows = [JudgeQuality.from_dict(row) for row in quality]
    found = add_conclusions(found, scope, quality=rows)
    view = build_view(found, *texts)
    golden.same(f"tournament_{name}.txt", tournament_console.format_console(view))
    document = tournament_page.build_document(view, manifest)
    golden.same(f"tournament_{name}.html", render_document("run", document, plots))


def battle(a: str, b: str, winner: str, question: str, dimension: str = "d") -> Battle:
    """`winner`: a, b or tie."""
    named = {"a": "model_a", "b": "model_b"}.get(winner, "tie")
    return Battle(
        model_a=a, model_b=b, winner=named, question_id=question, dimension=dimension
    )


def on_prompts(
    n: int, *results: tuple[str, str, str], dimension: str = "d"
) -> list[Battle]:
    return [battle(*result, f"q{q}", dimension) for q in range(n) for result in results]


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("demo", ("rubric=[factuality,calibration]",)),
        ("looks", ("judging.limit_pairs=null", "judging.looks=3", "rubric=[calibration]")),
        ("one_order", ("judging.orders=one",)),
    ],
)  # fmt: skip
def test_a_run(name: str, settings: Sequence[str], tmp_path: Path):
    ran = run(*QUICK, "elo.n_perms=10", *settings, folder=tmp_path)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    golden.same(f"tournament_{name}.html", page)
    golden.same(f"tournament_{name}.txt", ran.out.partition("\nfiles ")[0])


@pytest.mark.system
def test_several_judges_and_people_on_file(tmp_path: Path):
    write_table(tmp_path / "battles.jsonl", with_people())
    ran = run(*RATE_FILE, "elo.n_perms=2", folder=tmp_path)
    page = (ran.run_dir / "report.html").read_text(encoding="utf-8")
    golden.same("judges_on_file.html", page)
    golden.same("judges_on_file.txt", ran.out.partition("\nfiles ")[0])


def test_all_methods_with_figures():
    found = rated(simulated(PROBES, DIMENSIONS), PROBES, "bradley_terry", "davidson")
    same("methods", found, [QUALITY], plots=FIGURES)


@pytest.mark.system
def test_many_entrants_without_a_clear_winner():
    models = [f"model_{i:02}_of_a_family_with_a_long_name" for i in range(23)]
    same("many", rated(simulated(models, n_prompts=12, gap=0.2), models, "bradley_terry"), manifest=RATE)  # fmt: skip


def test_entrants_that_took_every_point_or_none():
    battles = simulated("abc", n_prompts=40)["d"]
    battles += on_prompts(40, *[("u", name, "a") for name in "abc"], ("c", "w", "a"))
    same("unbeaten", rated({"d": battles}, "abcuw", "bradley_terry"), manifest=RATE)


def test_entrants_without_a_rating():
    """One unbeaten, one winless, a group apart, one that met nobody else, one on a single prompt."""
    battles = simulated("ab", gap=3.0)["d"]
    battles += on_prompts(9, ("u", "a", "a"), ("u", "b", "a"), ("a", "w", "a"))
    battles += on_prompts(12, ("x", "y", "a"), ("y", "z", "a"), ("z", "x", "a"))
    battles += on_prompts(1, ("a", "s", "tie"))
    models = "abuwxyzs"
    same("unrated", rated({"d": battles}, models, "bradley_terry"), manifest=RATE)


def test_nothing_to_rate():
    """Dimensions without a battle, with one winner of all, with ties alone, and with one that Elo has not rated."""
    tied = on_prompts(30, ("a", "b", "tie"), dimension="tied")
    unbeaten = on_prompts(30, ("a", "b", "a"), dimension="unbeaten")
    usual = simulated("ab", ["usual"])["usual"]
    usual += on_prompts(30, ("a", "c", "tie"), ("b", "c", "tie"), dimension="usual")
    battles = {"usual": usual, "tied": tied, "unbeaten": unbeaten}
    same("undecided", rated(battles, "abc", *METHODS), manifest=RATE)
    same("empty", rated({"d": []}, (), "bradley_terry"), manifest=RATE)


def test_elo_alone():
    read = {"file": "b.csv", "format": "evalica", "assumed": "that"}
    read["rows"] = {"used": 60, "tied": 0, "dropped": 2}
    manifest = {**RATE, "battles_files": [read], "n_seen": 1240}
    same("elo", rated(simulated("ab", ["overall"]), "ab"), manifest=manifest)


def scores(dimension: str, **values: Sequence[float | None]) -> list[Score]:
    return [
        Score(dimension=dimension, entrant=name, item=str(i), value=value, cluster=str(i // 2))
        for name, some in values.items()
        for i, value in enumerate(some)
    ]  # fmt: skip


def test_scored_items():
    right = [1, 1, 1, 0, 1, 1] * 8
    rows = scores("accuracy", ann=right, bob=[1, 0, 1, 0, 0, 1] * 8)
    rows += scores("grade", ann=[0.5, 0.7] * 20, bob=[0.4, 0.7] * 20, cid=[0.1, 0.3] * 19 + [None, 0.1])  # fmt: skip
    rows += scores("few", ann=[1.0, 0.5, 0.8], bob=[0.0, 0.25, 0.8])
    same("scores", standing.rate_scores(rows, allow_missing=True), manifest=RATE)


def test_pass_rates_stand_beside_mean_scores():
    rows = [
        Score(dimension="tau", entrant=name, item=str(i), value=float((i * n + j) % 4 < n), draw=str(j))
        for n, name in enumerate(("ann", "bob", "cid"), start=1)
        for i in range(24)
        for j in range(3)
    ]  # fmt: skip
    found = standing.rate_scores(rows, allow_missing=False, at=[2], hat=[2, 3])
    same("passes", found, manifest=RATE)


def test_several_draws_say_what_the_variance_is_made_of():
    """Of a dimension judged in one order draws and judge are one."""
    rows = [
        battle("ann", "bob", "ab"[(q * 7 + draw * (q % 3)) % 5 < 2], f"q{q}", dimension)
        for dimension in ("both", "one")
        for q in range(30)
        for draw in range(2)
    ]
    drawn = [
        dataclasses.replace(row, draw_a=i % 2, draw_b=i % 2, verdict_ab=row.winner, verdict_ba=ba)
        for i, row in enumerate(rows)
        for ba in [("tie" if i % 11 == 0 else row.winner) if row.dimension == "both" else None]
    ]  # fmt: skip
    by = {name: [b for b in drawn if b.dimension == name] for name in ("both", "one")}
    same("draws", rated(by, "ab", "bradley_terry"), manifest=RATE)


def test_a_judge_that_fails_its_checks():
    """Flips, odd answers, invalid verdicts, strata that reverse, repeats, a second judge, a known order, texts."""
    models = ("ann", "bob", "cid")
    battles = simulated(models, ("d", "e"), gap=2.0)
    turned = [
        dataclasses.replace(b, winner={"model_a": "model_b", "model_b": "model_a"}.get(b.winner, "tie"))
        if int(str(b.question_id)[1:]) >= 45
        else b
        for b in battles["d"]
    ]  # fmt: skip
    battles["d"] = turned
    found = rated(battles, models, *METHODS)
    lengths = {
        (f"q{q}", model): 300 + 40 * (q % 7) + 90 * (len(models) - i) * (q % 3)
        for q in range(60)
        for i, model in enumerate(models)
    }
    found = with_lengths(found, lengths)
    biased = {
        "probe": "injection: plea",
        "kind": "bias",
        "verdict": "biased",
        "estimate": 0.2,
    }
    unsure = {
        "probe": "twin",
        "kind": "error",
        "verdict": "cannot tell",
        "estimate": 0.01,
    }
    invalid = InvalidShare(
        dimension="d", model="ann", n_invalid=9, n_judgments=60, share=0.15,
        p_holm=0.01, differs=True, bound_low=1410.0, bound_high=1720.0,
    )  # fmt: skip
    repeats = {
        "dimension": "d", "n_comparisons": 40, "agreement": 0.9, "kappa": 0.8,
        "ci_low": 0.7, "ci_high": 0.9,
    }  # fmt: skip
    rate = METHODS["bradley_terry"].rate
    strata = {f"q{q}": "medqa" if q < 30 else "curated" for q in range(60)}
    boilerplate = {
        f"p{i}": Response(entrant_id="m", prompt_id=f"p{i}", response_text="Yes.")
        for i in range(9)
    }
    found = add_diagnoses(
        found,
        {
            "d": {
                "audit": {**AUDIT, "results": [biased, unsure, {**biased, "verdict": "ok"}]},
                "invalid": [invalid],
                "repeats": repeats,
                "position": PositionEffect(dimension="d", p_first=0.6, ci_low=0.56, ci_high=0.64, n_decisive=900),
            },
            "e": {
                "audit": {},
                "position": PositionEffect(dimension="e", p_first=0.5, ci_low=0.46, ci_high=0.54, n_decisive=900),
            },
        },
        standing.rate_strata(found.fits, strata, rate),
        standing.count_recovered_pairs(
            found.differences["bradley_terry"], {"d": {"ann": 1, "bob": 2, "cid": 3}}
        ),
        responses=[check_responses("ann", boilerplate), check_responses("bob", {})],
    )  # fmt: skip
    second = by_dimension({"d": battles["e"], "e": battles["e"]})
    found = standing.add_judge_agreement(found, "opus", {"haiku": second}, rate)
    comparisons, judgments = zip(*PAIRS, strict=True)
    quality = [
        {**QUALITY, "dimension": "d"},
        {
            **QUALITY,
            "dimension": "e",
            "n_flips": 5,
            "n_invalid": 1,
            "invalid_rate": 0.01,
        },
    ]
    same("failing", found, quality, {"d": comparisons}, {"d": judgments}, plots=FIGURES)
