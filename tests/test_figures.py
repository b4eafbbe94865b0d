"""Figures: what is drawn is what stands in their rows, and any names and numbers can be drawn.

Warnings are errors, so every figure drawn here is drawn without one.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elo_exp.analysis.power import Precision, detectable_difference
from elo_exp.analysis.standings import Standings
from elo_exp.figures import figure_kinds, ratings, style, sweep_figures
from elo_exp.ratings.ties import Davidson
from elo_exp.records import Battle, Plot
from tests.standings import BRADLEY_TERRY, standings, tournament, with_lengths

HOSTILE = {
    "a": "a$b^{$",
    "b": "模型 \x00一",
    "c": "_" + "x" * 70,
    "d": "<b>&\n\U0001f600",
}
OF_BATTLES = [
    "ratings", "pairwise_winrates", "power", "predicted_and_observed",
    "k_sensitivity", "permutation_traces", "order_effect",
]  # fmt: skip


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


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def plots(found: Standings) -> dict[str, Plot]:
    return {plot.name: plot for plot in ratings.plots(found)}


def battle(a: str, b: str, winner: str, q: int) -> Battle:
    return Battle(model_a=a, model_b=b, winner=winner, question_id=f"q{q}")


def of_battles(battles: Sequence[Battle], **more: Any) -> Standings:
    return standings({"factuality": battles}, **more)


def words(plot: Plot) -> set[str]:
    texts = ElementTree.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()).strip() for text in texts}


def of(plot: Plot, **values: object) -> list[Mapping[str, Any]]:
    """The rows of a figure with these values."""
    return [row for row in plot.rows if row.items() >= values.items()]


# Any names and numbers


@pytest.mark.system
def test_names_and_dimensions_may_be_anything():
    battles = [
        dataclasses.replace(b, model_a=HOSTILE[b.model_a], model_b=HOSTILE[b.model_b])
        for b in tournament()
    ]
    hostile = plots(standings({"$_{<i>": battles}))
    assert all("$_{<i>" in words(plot) for plot in hostile.values())
    shown = {"a$b^{$", "模型  一", "<b>& \U0001f600", f"_{'x' * 28}…{'x' * 29}"}
    assert shown <= words(hostile["ratings"]) & words(hostile["k_sensitivity"])


@pytest.mark.parametrize("n_models", [2, 12, pytest.param(40, marks=pytest.mark.slow)])
def test_a_crowd_is_drawn_as_two_are_and_all_are_in_the_rows(n_models: int):
    """Of a crowd the best are drawn."""
    draw = random.Random(3)
    models = [
        f"organisation/a-model-of-{n}-billion-parameters" for n in range(n_models)
    ]
    winners = ["model_a", "model_b", "tie"]
    battles = [
        battle(*draw.sample(models, 2), draw.choice(winners), q % 9)
        for q in range(10 * n_models)
    ]
    crowd = of_battles(battles, n_perms=2)
    found, best = plots(crowd), ratings.rank_models(crowd)
    fits = ["predicted_and_observed"] * (n_models > 2)  # two are as they are rated
    assert [*found] == [
        name for name in OF_BATTLES if name not in OF_BATTLES[3] or fits
    ]
    sizes = {
        "ratings": ratings.MAX_DRAWN_ENTRANTS,
        "k_sensitivity": style.MAX_COLORED_NAMES,
    }
    for name, size in sizes.items():
        plot, n = found[name], min(size, n_models)
        assert words(plot) & set(best) == set(best[:n])
        is_said = f"Only the first {n} of {n_models} entrants" in plot.caption
        assert is_said == (n < n_models)
        assert {row["model"] for row in plot.rows} == set(models)
    assert max(len(plot.svg) for plot in found.values()) < 200_000


@pytest.mark.system
def test_what_cannot_be_known_is_not_drawn(drawn: dict[str, Plot]):
    assert list(drawn) == [*OF_BATTLES[:4], "length_effect", *OF_BATTLES[4:]]
    ties = [
        battle(*pair, "tie", q)
        for q in range(9)
        for pair in itertools.combinations("abc", 2)
    ]
    known = {"ratings", "pairwise_winrates", "predicted_and_observed"}
    assert set(plots(of_battles(ties))) == known
    one_pass = plots(of_battles(tournament(), shuffle=False))
    assert {"permutation_traces", "order_effect"} == {*OF_BATTLES} - {*one_pass}
    assert plots(of_battles([])) == {}


@given(st.lists(st.text(), unique=True, max_size=style.MAX_COLORED_NAMES), st.randoms())
def test_law_names_have_the_same_colours_in_any_order_and_each_its_own(
    names: list[str], draw: random.Random
):
    found = style.assign_colors(names)
    assert len(set(found.values())) == len(names)
    draw.shuffle(names)
    assert style.assign_colors(names) == found


# What a panel draws are the numbers of its rows

NUMBER = st.none() | st.floats(-1e3, 1e3)


def lines(ax: Axes) -> Iterator[tuple[list[float], list[float]]]:
    for line in ax.lines:
        yield (
            np.asarray(line.get_xdata()).tolist(),
            np.asarray(line.get_ydata()).tolist(),
        )


@settings(max_examples=25)
@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=5))
def test_law_intervals_are_those_of_the_rows(numbers: list[tuple[Any, Any, Any]]):
    ax = Figure().subplots()
    columns = ("model", "method", "flag", "rating", "ci_low", "ci_high")
    rows = [
        dict(zip(columns, (str(i), "Elo", "unbeaten", *some), strict=True))
        for i, some in enumerate(numbers)
    ]
    names = {row["model"]: f"model {row['model']}" for row in rows}
    figure_kinds.draw_intervals(ax, rows, names, "method", ["Elo"])
    (x, y), *arrows = lines(ax)
    assert [None if np.isnan(at) else at for at in x] == [row["rating"] for row in rows]
    assert y == list(range(len(rows)))
    segments = list(ax.collections[0].get_segments())
    ends = [row for row in rows if None not in (row["ci_low"], row["ci_high"])]
    for segment, row in zip(segments, rows, strict=True):
        if row in ends:
            assert segment[:, 0].tolist() == [row["ci_low"], row["ci_high"]]
    open_ends = [
        (row["ci_high"] if row["ci_low"] is None else row["ci_low"], i)
        for i, row in enumerate(rows)
        if row["rating"] is None and (row["ci_low"], row["ci_high"]) != (None, None)
    ]
    assert [(*x, *y) for x, y in arrows] == open_ends
    flags = [text.get_text() for text in ax.texts]
    n_unknown = sum(row["rating"] is None for row in rows) - len(open_ends)
    assert flags == ["unbeaten"] * n_unknown
    assert [label.get_text() for label in ax.get_yticklabels()] == list(names.values())


def test_a_matrix_has_each_value_in_its_cell(ax: Axes):
    cells = {("a", "b"): 0.875, ("b", "a"): 0.125}
    figure_kinds.draw_matrix(
        ax, cells, {"a": "a  1", "b": "b  2"}, {"a": "1", "b": "2"}, (0, 1), "{:.0%}"
    )
    (image,) = ax.images
    values = np.ma.filled(image.get_array(), np.nan)
    assert np.array_equal(values, [[np.nan, 0.875], [0.125, np.nan]], equal_nan=True)
    texts = {text.get_text(): text.get_position() for text in ax.texts}
    assert texts == {"88%": (1, 0), "12%": (0, 1)}


def test_elo_by_k_is_drawn_with_its_error_and_its_limit(ax: Axes):
    rows = [
        {
            "model": m,
            "k": k,
            "rating": 1400.0 + k,
            "ordering_error": 2.0,
            "elo_limit": 1450.0,
        }
        for k in (8.0, 16.0)
        for m in "ab"
    ]
    figure_kinds.draw_elo_by_k(ax, rows, {"a": style.BLUE})
    (line, limit) = list(lines(ax))
    assert line == ([8.0, 16.0], [1408.0, 1416.0])
    assert set(limit[1]) == {1450.0}
    bars = [bar[:, 1].tolist() for bar in ax.collections[0].get_segments()]
    assert bars == [pytest.approx([y - 3.92, y + 3.92]) for y in (1408.0, 1416.0)]


# The rows are what was found


@pytest.mark.system
def test_the_ratings_drawn_are_those_of_every_method_and_their_intervals_are_named():
    methods = {
        "davidson": Davidson(initial_rating=1400.0, orders="both"),
        "bradley_terry": BRADLEY_TERRY,
    }
    found = of_battles(tournament(), ratings=methods)
    plot = plots(found)["ratings"]
    elo = found.boards["elo"]["factuality"]
    assert elo is found.elo_by_k["factuality"][16.0]
    for board in [by["factuality"] for by in found.boards.values()]:
        rows = of(plot, method=board.label)
        assert [row["model"] for row in rows] == [r.model for r in board.ratings]
        for row, rating in zip(rows, board.ratings, strict=True):
            assert row.items() >= rating.to_dict().items()
    assert {"Bradley-Terry", "Davidson", "Elo"} <= words(plot)
    kinds_of_intervals = "Bradley-Terry: prompt-clustered; Davidson: prompt-clustered"
    assert f"{kinds_of_intervals}; Elo: none" in plot.caption


@pytest.mark.system
def test_a_worked_example_of_a_win_rate():
    """ann beats bob on three prompts and ties on one: (3 + 1/2) / 4."""
    winners = ["model_a"] * 3 + ["tie"]
    battles = [battle("ann", "bob", winner, q) for q, winner in enumerate(winners)]
    plot = plots(of_battles(battles))["pairwise_winrates"]
    (row,) = plot.rows
    assert (row["entrant_a"], row["a_wins"], row["share"]) == ("ann", 3, 0.875)
    assert {"88%", "12%"} <= words(plot)


@pytest.mark.system
def test_the_power_curve_passes_through_this_run(found: Standings):
    n_prompts = (3, 5000)
    known = [
        Precision(dimension=f"d{i}", n_prompts=n, n_tests=18, sigma=300.0)
        for i, n in enumerate(n_prompts)
    ]
    run = dataclasses.replace(found, precision={"bradley_terry": known})
    (plot,) = (plot for plot in ratings.plots(run) if plot.name == "power")
    for n, row in zip(n_prompts, of(plot, this_run=True), strict=True):
        expected = (
            detectable_difference(300.0, n),
            detectable_difference(300.0, n, alpha=0.05 / 18),
        )
        assert row["n_prompts"] == n
        assert (row["detectable"], row["corrected"]) == expected


@pytest.mark.system
def test_the_trace_ends_at_the_rating_with_its_monte_carlo_error(
    found: Standings, drawn: dict[str, Plot]
):
    ends = of(drawn["permutation_traces"], n_perms=20)
    assert len(ends) == 8
    for row in ends:
        rating = found.elo_by_k[row["dimension"]][16.0].row(row["model"])
        known = (rating.rating, rating.ordering_error)
        assert (row["running_mean"], row["ordering_error"]) == pytest.approx(known)


def test_the_histogram_counts_every_permutation_once(
    found: Standings, drawn: dict[str, Plot]
):
    for dimension, model in itertools.product(found.dimensions, "abcd"):
        bars = of(drawn["order_effect"], dimension=dimension, model=model)
        samples = found.elo_by_k[dimension][16.0].samples[:, "abcd".index(model)]  # type: ignore[index]
        assert sum(row["n_perms"] for row in bars) == len(samples) == 20
        assert bars[0]["low"] <= samples.min() <= samples.max() <= bars[-1]["high"]


# Sweeps and comparisons

KS, N_PERMS, DIMENSIONS = (8.0, 16.0), (100, 500), ("factuality", "calibration")


def jobs(**swept: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of a sweep over the product of these settings.

    a is ahead of b by 20 points, and one point more for each of K above 8.
    """
    rows: list[dict[str, Any]] = []
    for n, values in enumerate(itertools.product(*swept.values())):
        job = {"dimension": "factuality", "setting": "", "k": 8.0, "n_perms": 100}
        job |= {"job": str(n), **dict(zip(swept, values, strict=True))}
        for model, points in ("a", 1412 + job["k"]), ("b", 1400):
            rating = {"model": model, "rating": points, "ordering_error": 1.0}
            rows.append(rating | job)
    return rows


@pytest.mark.parametrize(
    ("swept", "names"),
    [
        ({"k": KS}, ["k_by_n_perms"]),
        ({"k": KS, "n_perms": N_PERMS}, ["k_by_n_perms", "pair_by_k_and_n_perms"]),
        ({"n_perms": N_PERMS}, []),
    ],
    ids=str,
)
def test_what_is_drawn_is_what_was_swept(swept: dict[str, Any], names: list[str]):
    assert [plot.name for plot in sweep_figures.plots(jobs(**swept), None)] == names


@pytest.mark.system
def test_elo_by_k_has_a_line_for_each_setting_that_was_swept():
    settings = ("", "elo.ties=half")
    swept = {"k": KS, "setting": settings, "dimension": DIMENSIONS}
    (plot,) = sweep_figures.plots(jobs(**swept), None)
    assert {"100 match orders elo.ties=half", "100 match orders"} <= words(plot)
    assert len({row["line"] for row in plot.rows}) == 2 * 2


def test_a_cell_is_the_gap_between_the_pair():
    _, plot = sweep_figures.plots(jobs(k=KS, n_perms=N_PERMS), ["b", "a"])
    gaps = {(row["k"], row["n_perms"], row["difference"]) for row in plot.rows}
    assert gaps == {(k, n, -12 - k) for k in KS for n in N_PERMS}
    assert {"-20", "-28"} <= words(plot)


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
    (plot,) = sweep_figures.compare_plots(rows, ["one", "two"], "bradley_terry")
    assert plot.rows == rows[1:]
    assert "1 of 2 shifts are significant" in plot.caption
    assert sweep_figures.compare_plots(rows[:1], ["one"], "bradley_terry") == []
