"""The page of a run: whole, harmless whatever the names are, and with the numbers of ratings.json."""

from __future__ import annotations

import dataclasses
import io
import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from elo_exp.analysis.comparisons import differences
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings, rate
from elo_exp.figures import elo, ratings
from elo_exp.ratings.bradley_terry import BradleyTerry
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, Plot
from elo_exp.report import artifacts, html
from elo_exp.report.findings import verdict
from elo_exp.store.usage import Usage
from tests.data import DIMENSIONS, PROBES, by_dimension, shipped
from tests.pages import Reader
from tests.simulation import Tournament

NASTY = '<b>&"x'
METHODS = {
    "bradley_terry": BradleyTerry(
        initial_rating=1400, use="both", interval="sandwich", n_bootstraps=2, seed=0
    ),
    "davidson": Davidson(initial_rating=1400, use="both"),
}
QUALITY = JudgeQuality(
    dimension="factuality", n_judgments=105, n_invalid=5, n_two_order=100, n_flips=21, n_decisive_verdicts=180,
    n_first_shown_wins=108, n_ties=10, n_refused=3, n_cut_off=1,
)  # fmt: skip
MANIFEST: dict[str, Any] = {
    "experiment": "tournament",
    "mode": "demo",
    "n_perms": 20,
    "shuffle_seed": 11,
    "pilot_seed": 12,
    "started_at": "2026-11-21T14:51:22Z",
    "overrides": ["judge.position_effect=0.2", "rubric=[<i>]"],
    "git_commit": "0123abcd+changes",
    "versions": {"elo_exp": "0.1.0"},
    "judge_model": "lexical",
    "rubric_versions": {"factuality": "v1"},
    "bank_size": 143,
    "selected_prompt_count": 50,
    "input_hashes": {"bank": "89a2860203a6dba65a20c61b"},
    "config": {
        "elo": {"k": 16, "k_sweep": [1, 16]},
        "judging": {"use": "both", "repeats": 1},
    },
    "usage": dataclasses.asdict(
        Usage(
            verdicts_wanted=1300,
            judge_calls=1200,
            output_tokens=3456,
            dollars=12.345,
            dollars_by_dimension={"factuality": 12.345},
        )
    ),
}


def simulated(
    models: Sequence[str],
    dimensions: Sequence[str] = DIMENSIONS,
    *,
    gap: float = 1.0,
    n_prompts: int = 60,
) -> dict[str, list[Battle]]:
    """Every pair on every prompt; each model beats the next by the odds 1 + gap to 1; one battle in five is a tie."""
    draw = random.Random(5)

    def winner(apart: int) -> str:
        wins = draw.random() < 1 / (1 + (1 + gap) ** -apart)
        return "tie" if draw.random() < 0.2 else "model_a" if wins else "model_b"

    return {
        dimension: [
            Battle(
                model_a=a,
                model_b=b,
                winner=winner(models.index(b) - models.index(a)),
                question_id=f"q{q}",
                judge_model="j",
                dimension=dimension,
            )
            for q in range(n_prompts)
            for a, b in itertools.combinations(models, 2)
        ]
        for dimension in dimensions
    }


def rated(
    battles: Mapping[str, Sequence[Battle]], models: Sequence[str], *methods: str
) -> Standings:
    elo = shipped("elo", "default", n_perms=20)
    chosen = {name: METHODS[name] for name in methods}
    return rate(by_dimension(battles), elo=elo, ratings=chosen, models=models)


@pytest.fixture(scope="module")
def standings() -> Standings:
    return rated(simulated(PROBES), PROBES, "bradley_terry")


@pytest.fixture(scope="module")
def figures(standings: Standings) -> list[Plot]:
    return [*ratings.plots(standings), *elo.plots(standings)]


@pytest.fixture(scope="module")
def page(standings: Standings, figures: list[Plot]) -> str:
    return html.page(
        standings, figures, title="run", manifest=MANIFEST, quality=[QUALITY]
    )


def read(standings: Standings, **changes: Any) -> Reader:
    return Reader(html.page(standings, [], title="run", manifest=MANIFEST | changes))


# What a page is


def test_it_is_one_well_formed_file_that_fetches_nothing(page: str):
    reader = Reader(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|@import|url\(|<script|<link|javascript:", page)
    assert reader.given("src")
    assert all(
        source.startswith("data:image/png;base64,") for source in reader.given("src")
    )
    assert reader.given("href") + reader.given("srcset") == []


def test_it_holds_every_figure_with_words_for_those_who_cannot_see_it(
    page: str, figures: list[Plot]
):
    images = [given for tag, given in Reader(page).tags if tag == "img"]
    assert len(images) == len(figures) > 3
    assert all(given["alt"] for given in images)
    assert len(page.encode()) < 3_000_000


def test_it_answers_in_the_order_in_which_a_reader_asks(page: str):
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Who is better", "Leaderboard", "Differences", "Figures", "Can the judge be trusted",
        "What this run could have found", "What it cost", "How it was made",
    ]  # fmt: skip


def test_names_are_text_whatever_they_hold():
    models = (NASTY, "$title {x} %s", "c's & co", "</table><script>alert(1)</script>")
    dimension = "<i>&'\"dim"
    some = rated(simulated(models, [dimension], n_prompts=20), models, "bradley_terry")
    text = html.page(
        some,
        [Plot(name='"><u>', png=b"x", svg="", rows=[], caption="")],
        title="<s>$body",
        manifest=MANIFEST | {"judge_model": "<q>"},
        quality=[dataclasses.replace(QUALITY, dimension=dimension)],
    )
    reader = Reader(text)
    assert not {tag for tag, _ in reader.tags} & {"s", "u", "q", "script"}
    assert all(
        str(given["style"]).startswith("left:")
        for tag, given in reader.tags
        if tag == "i"
    )
    for name in (*models, dimension, "<s>$body", "<q>", "rubric=[<i>]", '"><u>'):
        assert name in reader.said


# What it says


def test_its_numbers_are_those_of_ratings_json(standings: Standings, page: str):
    rows = Reader(page).cells
    found = artifacts.ratings_json(standings)
    for methods in found["dimensions"].values():
        elo = {r["model"]: r for r in methods["elo"]["ratings"]}
        for r in methods["bradley_terry"]["ratings"]:
            ranks = sorted({r["rank_low"], r["rank_high"]})
            row = [
                str(r["rank"]),
                r["model"],
                f"{r['rating']:.0f}",
                f"{r['ci_low']:.0f} to {r['ci_high']:.0f}",
                "",
            ]
            row += [
                " to ".join(map(str, ranks)),
                _chance(r["p_best"]),
                str(r["n_battles"]),
            ]
            of_elo = elo[r["model"]]
            row += [
                f"{of_elo['rating']:.0f}",
                f"{of_elo['ci_low']:.0f} to {of_elo['ci_high']:.0f}",
            ]
            row += [f"{of_elo['ordering_error']:.2f}"]
            assert row in rows
    for d in found["differences"]["bradley_terry"]:
        row = [d["higher"], d["lower"], f"{d['difference']:.0f}"]
        row += [f"{d['ci_low']:.0f} to {d['ci_high']:.0f}".replace("-", "−")]
        (shown,) = [r for r in rows if r[:4] == row]
        assert shown[5] == ("holds" if d["significant"] else "open")


def _chance(share: float) -> str:
    return (
        "< 1 %"
        if share < 0.005
        else "> 99 %"
        if share >= 0.995
        else f"{100 * share:.0f} %"
    )


def test_the_ordering_error_is_called_that_and_has_no_interval(page: str):
    reader = Reader(page)
    heads = [row for row in reader.cells if "Elo" in row]
    assert len(heads) == len(DIMENSIONS)
    assert {row[-1] for row in heads} == {"ordering error (Monte Carlo)"}
    assert not [
        cell for row in reader.cells for cell in row if "±" in cell or "SEM" in cell
    ]


@pytest.mark.parametrize(("convergence", "is_flagged"), [(0.9499, True), (0.95, False)])
def test_elo_that_has_gone_less_than_95_percent_of_its_way_is_flagged(
    standings: Standings, convergence: float, is_flagged: bool
):
    elo = {
        dimension: {
            k: dataclasses.replace(board, parameters={"convergence": convergence})
            for k, board in by_k.items()
        }
        for dimension, by_k in standings.elo.items()
    }
    changed = dataclasses.replace(standings, elo=elo)
    said = read(changed).said
    assert ("Elo has gone only 94 % of its way" in said) == is_flagged
    assert f"Elo at K = 16, {94 if is_flagged else 95} % converged" in artifacts.table(
        changed
    )


def test_the_best_is_named_when_it_is_better_than_everybody(
    standings: Standings, page: str
):
    first = standings.differences["bradley_terry"][0]
    said = f"{first.higher} is the best: {first.difference:.0f} points ahead of {first.lower} (95 %: {first.ci_low:.0f}"
    assert f"{said} to {first.ci_high:.0f}; p " in Reader(page).said
    pairs = [
        d
        for d in standings.differences["bradley_terry"]
        if d.dimension == first.dimension
    ]
    assert all(d.significant for d in pairs if d.higher == first.higher)


def test_nobody_is_called_best_when_the_prompts_do_not_tell():
    some = rated(simulated("abc", ["d"], gap=0.0, n_prompts=20), "abc", "bradley_terry")
    said = read(some).said
    assert "The prompts do not tell who is the best." in said
    assert "may be no better than" in said
    assert "is the best:" not in said


def with_best(some: Standings, *ratings: float) -> Standings:
    """With these ratings for the models, in the order in which they stand."""
    board = some.companions["bradley_terry"]["d"]
    column = np.empty(len(ratings))
    column[[board.models.index(r.model) for r in board.ratings]] = ratings
    boards = {"d": dataclasses.replace(board, rating=column)}
    companions, pairs = (
        {"bradley_terry": boards},
        {"bradley_terry": differences(boards)},
    )
    return dataclasses.replace(some, companions=companions, differences=pairs)


@pytest.mark.parametrize(
    ("ratings", "words"),
    [
        ((1459.7611364812767, 1459.7611364812765, 1100.0), r"^{0} and {1} are level \(95 %: -\d+ to \d+; p = 1.00 aft"),
        ((1459.0, 1459.0, 1458.0), r"^{0} and {1} are level \(.*\)\. {0} may be no better than {2}\.$"),
        ((1459.0, 1459.0, 1459.0), r"^{0}, {1}, {2} are level\.$"),
        ((1459.0, 1458.8, 1100.0), r"{0} is less than a point ahead of {1} \("),
    ],
)  # fmt: skip
def test_nobody_is_a_difference_of_nothing_ahead(
    ratings: tuple[float, ...], words: str
):
    some = with_best(
        rated(simulated("abc", ["d"], gap=0.0, n_prompts=20), "abc", "bradley_terry"),
        *ratings,
    )
    board, pairs = (
        some.companions["bradley_terry"]["d"],
        some.differences["bradley_terry"],
    )
    sure, sentences = verdict(board, pairs)
    assert not sure
    said = (
        re.sub("<[^>]*>", "", "".join(sentences))
        .replace("\N{NO-BREAK SPACE}", " ")
        .replace("−", "-")
    )
    assert re.search(words.format(*(r.model for r in board.ratings)), said), said
    assert "0 points ahead" not in said


def test_an_unbeaten_entrant_may_be_better_than_the_best():
    battles = simulated("ab", ["d"], gap=9.0)["d"]
    battles += [
        Battle(model_a="u", model_b=m, winner="model_a", question_id=f"q{q}")
        for m in "ab"
        for q in range(9)
    ]
    said = read(rated({"d": battles}, "abu", "bradley_terry")).said
    assert "a is the best of those that can be rated:" in said
    assert (
        "Not rated: u (unbeaten: no finite rating, and perhaps better than all that have one)."
        in said
    )


def test_nor_is_anybody_the_best_while_a_group_stands_apart():
    """u and v, who met nobody else, may be better than all."""
    battles = simulated("abc", ["d"], gap=9.0)["d"]
    battles += [
        Battle(model_a="u", model_b="v", winner=f"model_{w}", question_id=f"q{q}")
        for q in range(9)
        for w in "ab"
    ]
    said = read(rated({"d": battles}, "abcuv", "bradley_terry")).said
    assert "a is the best of those that can be rated:" in said
    assert (
        "Not rated: u, v (disconnected: no chain of wins leads to the others and back)."
        in said
    )


def test_a_long_name_stands_in_one_piece_on_the_console():
    names = ["organisation/a-model-of-seven-billion-parameters-instruct-v1", "b"]
    battles = [
        dataclasses.replace(
            b,
            model_a=names["ab".index(b.model_a)],
            model_b=names["ab".index(b.model_b)],
        )
        for b in simulated("ab", ["d"], gap=1.0)["d"]
    ]
    table = artifacts.table(rated({"d": battles}, names, "bradley_terry"))
    assert re.search(rf"^ +\d   {names[0]} +\d+\.\d .* \d+$", table, re.MULTILINE)
    assert max(map(len, table.split("± SEM: ")[1].splitlines())) <= 120


def test_it_says_how_the_judge_behaved(page: str):
    row = [
        "factuality",
        "105",
        "21 % (21 of 100)",
        "60 % (108 of 180)",
        "10 %",
        "5 (3 refused, 1 cut off)",
    ]
    assert row in Reader(page).cells


def test_it_says_what_the_run_cost_and_how_it_was_made(page: str):
    said = Reader(page).said
    for words in (
        "$12.35", "factuality $12.35", "3,456 output", "50 of the 143 in the bank", "judge.position_effect=0.2",
        "K = 16, 20 match orders", "match orders 11, prompts 12", "0123abcd+changes", "2026-11-21 14:51 UTC",
    ):  # fmt: skip
        assert words in said


def test_of_many_entrants_the_best_is_compared_with_the_others():
    models = [f"m{i:02}" for i in range(12)]
    some = rated(simulated(models, ["d"], n_prompts=8), models, "bradley_terry")
    reader = read(some)
    best = some.companions["bradley_terry"]["d"].ratings[0].model
    assert (
        f"Shown are those between {best} and the others; all are in ratings.json."
        in reader.said
    )
    shown = [row for row in reader.cells if row[-1] in ("holds", "open")]
    assert {row[0] for row in shown} == {best}
    assert {row[1] for row in shown} == set(models) - {best}


def test_the_judge_is_described_by_the_numbers_of_ratings_json():
    """trust.py; here that the page of a run has it, from verdicts of a judge that likes the first shown."""
    some = {"d": Tournament(first_shown=0.7).battles(100, np.random.default_rng(1))}
    standings = rated(some, "abcd", "bradley_terry")
    found = artifacts.ratings_json(standings)["judge"]["d"]
    rows = Reader(html.page(standings, [], title="run", manifest=MANIFEST)).cells
    (place,) = (row for row in rows if row[-1] == "prefers the first shown")
    assert place[2] == f"{100 * found['position']['p_first']:.1f} %"
    (order,) = (row for row in rows if row[-1] == "no pair stands apart")
    assert order[2] == f"{found['transitivity']['chi_square']:.1f}"
    assert order[5].endswith(f"({found['cycles']['n_cyclic_prompts']} of 100)")


def test_elo_has_its_interval_over_prompts_where_it_is_known(
    standings: Standings, page: str
):
    """The bootstrap of Elo gives one; without it there is no column for it."""
    heads = [row for row in Reader(page).cells if "Elo" in row]
    assert {tuple(row[-3:]) for row in heads} == {
        ("Elo", "95 % prompt bootstrap", "ordering error (Monte Carlo)")
    }
    one_prompt = {
        "d": [
            dataclasses.replace(b, question_id="q") for b in simulated("ab", ["d"])["d"]
        ]
    }
    (heads,) = (
        row
        for row in read(rated(one_prompt, "ab", "bradley_terry")).cells
        if "Elo" in row
    )
    assert heads[-3:] == ["battles", "Elo", "ordering error (Monte Carlo)"]


def test_a_figure_is_as_wide_as_it_was_drawn(page: str, figures: list[Plot]):
    """By the pixels of its file, 144 of them to an inch, where CSS has 96."""
    widths = [
        int(given["width"] or 0) for tag, given in Reader(page).tags if tag == "img"
    ]
    pixels = [image.imread(io.BytesIO(plot.png)).shape[1] for plot in figures]
    assert widths == [round(n / 1.5) for n in pixels]


# What is missing is left out, and said


def test_without_a_match_nobody_can_be_rated():
    reader = read(rated({"d": []}, (), "bradley_terry"), usage=None)
    assert "Nobody can be rated." in reader.said


def test_a_dimension_without_ratings_stands_beside_one_with_them():
    battles = simulated("ab", ["rated"]) | {
        "unbeaten": [
            Battle(model_a="a", model_b="b", winner="model_a", question_id="q1")
        ],
        "tied": [Battle(model_a="a", model_b="b", winner="tie", question_id="q1")],
    }
    reader = read(rated(battles, "ab", "bradley_terry", "davidson"))
    assert "Nobody can be rated. Not rated: a (unbeaten" in reader.said
    assert "how sure that is, the prompts do not say" in reader.said
    assert not [cell for row in reader.cells for cell in row if "nan" in cell.lower()]


def test_without_prompts_no_certainty_is_claimed():
    """All battles on one prompt: nothing says how they would differ on another."""
    one = [
        dataclasses.replace(b, question_id="q") for b in simulated("abc", ["d"])["d"]
    ]
    reader = read(rated({"d": one}, "abc", "bradley_terry"))
    assert "how sure that is, the prompts do not say" in reader.said
    assert {row[5] for row in reader.cells if len(row) == 6 and row[0] in "abc"} == {
        "not known"
    }
    assert "What this run could have found" not in reader.said


def test_without_another_method_elo_stands_alone():
    reader = read(rated(simulated("abc", ["d"]), "abc"))
    (heads,) = [row for row in reader.cells if "Elo" in row]
    assert heads[:4] == ["rank", "entrant", "battles", "Elo"]
    assert "how sure that is, the prompts do not say" in reader.said


def test_ratings_of_a_battles_file_need_no_judge():
    some = rated(simulated("ab", ["overall"]), "ab", "bradley_terry")
    bare = {
        "experiment": "rate",
        "mode": "demo",
        "n_battles": 60,
        "n_dropped": 2,
        "overrides": [],
        "config": {},
    }
    said = Reader(html.page(some, [], title="run", manifest=bare)).said
    assert "60 read, 2 dropped" in said
    assert "all settings as they ship" in said
    assert "What it cost" not in said
    assert not {"mode", "judged"} & set(said.split())
