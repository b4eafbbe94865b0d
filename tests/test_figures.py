"""Figures: the numbers drawn are those that were found, and any name can be drawn.

Warnings are errors, so every figure drawn here is drawn without one.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.analysis.power import Precision, detectable
from elo_exp.analysis.standings import Standings
from elo_exp.figures import elo, ratings, style, sweep
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, Plot
from tests.standings import BRADLEY_TERRY, standings, tournament, with_lengths

HOSTILE = {
    "a": "a$b^{$",
    "b": "模型 \x00一",
    "c": "_" + "x" * 60,
    "d": "<b>&\n\U0001f600",
}


@pytest.fixture(scope="module")
def found() -> Standings:
    """Two dimensions; c and d are the better, the longer their responses are."""
    names = ("factuality", "calibration")
    battles = {name: tournament(seed=seed) for seed, name in enumerate(names)}
    lengths = {
        (f"q{q}", model): 300 + 40 * q * (model in "cd")
        for q in range(60)
        for model in "abcd"
    }
    return with_lengths(standings(battles), lengths)


@pytest.fixture(scope="module")
def drawn(found: Standings) -> dict[str, Plot]:
    return plots(found)


def plots(found: Standings) -> dict[str, Plot]:
    return {plot.name: plot for plot in [*ratings.plots(found), *elo.plots(found)]}


def battle(a: str, b: str, winner: str, q: int) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, question_id=f"q{q}")


def of_battles(battles: Sequence[Battle], **more: Any) -> Standings:
    return standings({"factuality": battles}, **more)


def words(plot: Plot | None) -> set[str]:
    assert plot is not None
    texts = ElementTree.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()).strip() for text in texts}


def of(plot: Plot, **values: object) -> list[Mapping[str, Any]]:
    """The rows of a figure with these values."""
    return [row for row in plot.rows if row.items() >= values.items()]


# Every figure


@given(
    st.lists(st.text(), unique=True, max_size=style.MAX_COLORED),
    st.randoms(use_true_random=False),
)
def test_law_names_have_the_same_colours_in_any_order_and_each_its_own(
    names: list[str], draw: random.Random
):
    found = style.colors(names)
    assert len(set(found.values())) == len(names)
    draw.shuffle(names)
    assert style.colors(names) == found


@given(st.sets(st.text("ab-/…", max_size=60)))
def test_law_no_two_names_have_one_label(names: set[str]):
    assert len(set(style.labels(names).values())) == len(names)


def test_names_and_dimensions_may_be_anything():
    battles = [
        dataclasses.replace(b, model_a=HOSTILE[b.model_a], model_b=HOSTILE[b.model_b])
        for b in tournament()
    ]
    hostile = plots(standings({"$_{<i>": battles}))
    assert all("$_{<i>" in words(plot) for plot in hostile.values())
    shown = {"a$b^{$", "模型  一", "<b>& \U0001f600", f"_{'x' * 14}…{'x' * 16}"}
    assert shown <= words(hostile["ratings"]) & words(hostile["k_sensitivity"])


def test_the_same_standings_give_the_same_bytes(
    found: Standings, drawn: dict[str, Plot]
):
    assert ratings.ratings(found) == drawn["ratings"]


def test_of_a_crowd_the_best_are_drawn_and_all_are_in_the_rows():
    draw = random.Random(3)
    models = [f"organisation/a-model-of-{n}-billion-parameters" for n in range(59)]
    winners = ["model_a", "model_b", "tie"]
    crowd = of_battles(
        [
            battle(*draw.sample(models, 2), draw.choice(winners), q % 9)
            for q in range(600)
        ],
        n_perms=2,
    )
    found, called = plots(crowd), style.labels(models)
    best = [called[model] for model in ratings.best_first(crowd)]
    sizes = {"ratings": ratings.MAX_ROWS, "k_sensitivity": style.MAX_COLORED}
    for name, n in sizes.items():
        assert words(found[name]) & set(best) == set(best[:n])
        assert f"Only the first {n} of 59 entrants" in found[name].caption
        assert {row["model"] for row in found[name].rows} == set(models)


def test_what_cannot_be_known_is_not_drawn():
    ties = [
        battle(*pair, "tie", q)
        for q in range(9)
        for pair in itertools.combinations("abc", 2)
    ]
    known = {"ratings", "pairwise_winrates", "predicted_and_observed"}
    assert set(plots(of_battles(ties))) == known
    one_pass = of_battles(tournament(), shuffle=False)
    assert [plot.name for plot in elo.plots(one_pass)] == ["k_sensitivity"]
    assert plots(of_battles([])) == {}


# Ratings and win rates


def test_the_ratings_drawn_are_those_of_every_method_and_their_intervals_are_named():
    methods = {
        "davidson": Davidson(initial_rating=1400.0, use="both"),
        "bradley_terry": BRADLEY_TERRY,
    }
    found = of_battles(tournament(), ratings=methods)
    plot = ratings.ratings(found)
    assert plot is not None
    boards = [by["factuality"] for by in found.companions.values()]
    for board in [*boards, found.elo["factuality"][16.0]]:
        rows = of(plot, method=board.label)
        assert {row["model"] for row in rows} == set("abcd")
        for row in rows:
            known = board.row(row["model"]).to_dict()
            assert known.items() >= {k: v for k, v in row.items() if k in known}.items()
    assert {"Bradley-Terry", "Davidson", "Elo"} <= words(plot)
    assert "Bradley-Terry: 95 %, prompt-clustered; Davidson: 95 %" in plot.caption
    assert "Elo: no interval" in plot.caption


def test_an_entrant_without_a_rating_has_the_reason_in_its_place():
    wins = [battle("best", b.model_a, "model_a", q) for q, b in enumerate(tournament())]
    plot = ratings.ratings(of_battles([*wins, *tournament()]))
    assert plot is not None
    (row,) = of(plot, model="best", method="Bradley-Terry")
    assert (row["rating"], row["flag"]) == (None, "unbeaten")
    assert "unbeaten" in words(plot)


def test_a_worked_example_of_a_win_rate():
    """ann beats bob on three prompts and ties on one: (3 + 1/2) / 4, standard error .25 / 2."""
    winners = ["model_a"] * 3 + ["tie"]
    battles = [battle("ann", "bob", winner, q) for q, winner in enumerate(winners)]
    plot = ratings.win_rates(of_battles(battles))
    assert plot is not None
    (row,) = plot.rows
    assert (row["entrant_a"], row["n_games"], row["share"]) == ("ann", 4, 0.875)
    assert row["std_error"] == pytest.approx(0.125)
    assert {"88%", "12%"} <= words(plot)


def test_a_win_rate_is_bold_where_the_ratings_differ_significantly(
    found: Standings, drawn: dict[str, Plot]
):
    pairs = [
        (d.dimension, *sorted((d.higher, d.lower)))
        for d in found.differences["bradley_terry"]
        if d.significant
    ]
    rows = of(drawn["pairwise_winrates"], significant=True)
    bold = [(row["dimension"], row["entrant_a"], row["entrant_b"]) for row in rows]
    assert sorted(bold) == sorted(pairs)
    assert 0 < len(bold) < 12


# Fit, power and length


def test_bradley_terry_predicts_as_many_wins_of_each_entrant_as_there_are(
    drawn: dict[str, Plot],
):
    """The likelihood equations, with a tie as half a win."""
    rows = of(drawn["predicted_and_observed"], dimension="factuality")
    assert all(row["expected"] >= 0.5 for row in rows)
    for model in "abcd":
        surplus = [
            (row["observed"] - row["expected"])
            * row["observed_n_games"]
            * (1 if row["favourite"] == model else -1)
            for row in rows
            if model in (row["favourite"], row["other"])
        ]
        assert len(surplus) == 3
        assert sum(surplus) == pytest.approx(0, abs=1e-6)


def test_decisive_verdicts_alone_are_further_from_one_half(drawn: dict[str, Plot]):
    """s = d p + (1 - d) / 2, where d of the verdicts are decisive and p of these are won."""
    for row in drawn["predicted_and_observed"].rows:
        share = row["observed_decisive_n_games"] / row["observed_n_games"]
        expected = share * row["observed_decisive"] + (1 - share) / 2
        assert row["observed"] == pytest.approx(expected)


@pytest.mark.parametrize("n_prompts", [(3,), (143, 93), (12, 5000)], ids=str)
def test_the_power_curve_passes_through_this_run(
    found: Standings, n_prompts: tuple[int, ...]
):
    known = [
        Precision(dimension=f"d{i}", n_prompts=n, n_tests=18, sigma=300.0)
        for i, n in enumerate(n_prompts)
    ]
    plot = ratings.power(dataclasses.replace(found, precision={"bradley_terry": known}))
    assert plot is not None
    for n, row in zip(n_prompts, of(plot, this_run=True), strict=True):
        expected = detectable(300.0, n), detectable(300.0, n, n_tests=18)
        assert row["n_prompts"] == n
        assert (row["detectable"], row["corrected"]) == expected


def test_lengths_are_drawn_as_they_were_found(found: Standings, drawn: dict[str, Plot]):
    for dimension in found.dimensions:
        length = found.diagnoses[dimension]["length"]
        rows = of(drawn["length_effect"], dimension=dimension)
        for row, tercile in zip(rows, length["terciles"], strict=True):
            assert row.items() >= tercile.items()
            assert row["effect"] == length["effect"]["effect"]
            assert (
                0 <= row["win_rate_ci_low"] < row["win_rate"] < row["win_rate_ci_high"]
            )


# The order experiment


def test_the_trace_ends_at_the_rating_with_its_monte_carlo_error(
    found: Standings, drawn: dict[str, Plot]
):
    ends = of(drawn["permutation_traces"], n_perms=20)
    assert len(ends) == 8
    for row in ends:
        rating = found.elo[row["dimension"]][16.0].row(row["model"])
        known = (rating.rating, rating.ordering_error)
        assert (row["running_mean"], row["ordering_error"]) == pytest.approx(known)


def test_the_histogram_counts_every_permutation_once(
    found: Standings, drawn: dict[str, Plot]
):
    for dimension, model in itertools.product(found.dimensions, "abcd"):
        bars = of(drawn["order_effect"], dimension=dimension, model=model)
        samples = found.elo[dimension][16.0].samples[:, "abcd".index(model)]  # type: ignore[index]
        assert sum(row["n_perms"] for row in bars) == len(samples) == 20
        assert bars[0]["low"] <= samples.min() <= samples.max() <= bars[-1]["high"]


def test_elo_has_a_limit_where_everybody_wins_and_loses():
    losses = [
        battle("worst", b.model_a, "model_b", q) for q, b in enumerate(tournament())
    ]
    assert "limit" in words(elo.k_sensitivity(of_battles(tournament())))
    endless = elo.k_sensitivity(of_battles(losses + tournament()))
    assert endless is not None
    assert "limit" not in words(endless)
    assert "No limit in factuality" in endless.caption
    assert {row["elo_limit"] for row in endless.rows} == {None}


# Sweeps and comparisons

KS, N_PERMS, DIMENSIONS = (8.0, 16.0), (100, 500), ("factuality", "calibration")


def row(model: str, **changes: Any) -> dict[str, Any]:
    """a is ahead of b by 20 points, and one point more for each of K above 8."""
    k = changes.get("k", 8.0)
    known: dict[str, Any] = {
        "job": "0", "setting": "", "mode": "demo", "judge": "lexical", "seed": 1,
        "dimension": "factuality", "k": k, "n_perms": 100, "model": model,
        "rating": 1400 + (12 + k) * (model == "a"), "ordering_error": 1.0,
        "converged": k > 8.0,
        "bradley_terry": 1450.0 if model == "a" else 1350.0,
        "bradley_terry_ci_low": 1300.0, "bradley_terry_ci_high": 1500.0,
    }  # fmt: skip
    return known | changes


def jobs(**swept: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of a sweep over the product of these settings."""
    chosen = [
        dict(zip(swept, values, strict=True))
        for values in itertools.product(*swept.values())
    ]
    return [
        row(model, job=str(n), **job) for n, job in enumerate(chosen) for model in "ab"
    ]


@pytest.mark.parametrize(
    ("swept", "names"),
    [
        ({"k": KS}, ["k_by_n_perms"]),
        ({"k": KS, "n_perms": N_PERMS}, ["k_by_n_perms", "pair_by_k_and_n_perms"]),
        ({"n_perms": N_PERMS}, []),
        ({"seed": (1, 2)}, ["seeds"]),
        ({"mode": ("pilot", "headline")}, ["ratings_by_mode"]),
        ({"k": KS, "rating": (None,)}, []),
    ],
    ids=str,
)
def test_what_is_drawn_is_what_was_swept(swept: dict[str, Any], names: list[str]):
    assert [plot.name for plot in sweep.plots(jobs(**swept), [], None)] == names


def test_elo_by_k_has_a_line_for_each_setting_that_was_swept():
    settings = ("", "elo.ties=half")
    plot = sweep.k_by_n_perms(
        jobs(k=KS, n_perms=N_PERMS, setting=settings, dimension=DIMENSIONS)
    )
    assert {"100 permutations elo.ties=half", "500 permutations"} <= words(plot)
    assert len({row["line"] for row in plot.rows}) == 2 * 2 * 2
    many = sweep.k_by_n_perms(jobs(k=KS, n_perms=range(1, 21)))
    assert many.caption.endswith("Only the first 5 of 20 settings are shown.")


def test_a_cell_is_the_gap_between_the_pair():
    plot = sweep.pair_by_k_and_n_perms(jobs(k=KS, n_perms=N_PERMS), "b", "a")
    gaps = {(cell["k"], cell["difference"], cell["leader"]) for cell in plot.rows}
    assert gaps == {(8, -20, "a"), (16, -28, "a")}
    assert {"−20", "−28"} <= words(plot)


def test_seeds_are_drawn_around_their_mean_with_the_error_of_each_job():
    """Ratings of 1398, 1400 and 1402; another setting is another experiment."""
    rows = [
        row("b", seed=seed, setting=f"elo.seed={seed}", rating=1398.0 + 2 * seed)
        for seed in range(3)
    ]
    plot = sweep.seeds([*rows, row("b", seed=9, setting="elo.seed=9 elo.ties=half")])
    assert [r["deviation"] for r in plot.rows] == [-2, 0, 2]
    assert all(r["ci_high"] - r["deviation"] == pytest.approx(1.96) for r in plot.rows)


def test_kappa_stands_above_the_diagonal_and_the_rank_correlation_below():
    pair = {"dimension": "factuality", "first": "opus", "second": "haiku"}
    known = words(sweep.judges_agreement([pair | {"kappa": 0.5, "rho": -1.0}]))
    unknown = words(sweep.judges_agreement([pair | {"kappa": None, "rho": None}]))
    assert known - unknown == {"0.50", "−1.00"}


def test_shifts_are_drawn_from_the_first_run_with_their_intervals():
    known = {
        "dimension": "d", "method": "bradley_terry", "shift_ci_low": 1.0,
        "shift_ci_high": 9.0, "shift_p_holm": 0.02,
    }  # fmt: skip
    unknown = dict.fromkeys(name for name in known if name.startswith("shift"))
    rows = [
        known | {"run": "one", "model": "a", "shift": None} | unknown,
        known | {"run": "two", "model": "a", "shift": 5.0},
        known | {"run": "two", "model": "b", "shift": -5.0} | unknown,
    ]
    (plot,) = sweep.compare_plots(rows, ["one", "two"], "bradley_terry")
    found = [(r["model"], r["shift"], r["shift_ci_high"]) for r in plot.rows]
    assert found == [("a", 5.0, 9.0), ("b", -5.0, None)]
    assert "1 of 2 shifts are significant" in plot.caption
    assert sweep.compare_plots(rows[:1], ["one"], "bradley_terry") == []
