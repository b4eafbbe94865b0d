"""The figures of a sweep: which are drawn, and that what they say is what the jobs found."""

import itertools
import math
from typing import Any
from xml.etree import ElementTree

import pytest

from elo_exp.figures import sweep_agreement, sweep_plots
from elo_exp.results import Plot

KS, N_PERMS, DIMENSIONS = (8.0, 16.0), (100, 500), ("factuality", "calibration")


def written(plot: Plot) -> list[str]:
    """The words of a figure."""
    texts = ElementTree.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]


def row(model: str, **changes: Any) -> dict[str, Any]:
    """a is ahead of b by 20 points, and one point more for each of K above 8."""
    k = changes.get("k", 8.0)
    known: dict[str, Any] = {
        "job": "0", "setting": "", "mode": "demo", "judge": "lexical", "seed": 1, "dimension": "factuality", "k": k,
        "n_perms": 100, "model": model, "rating": 1400 + (12 + k) * (model == "a"), "ordering_error": 1.0,
        "convergence": 0.9 if k == 8.0 else 0.99, "bradley_terry": 1450.0 if model == "a" else 1350.0,
        "bradley_terry_ci_low": 1300.0, "bradley_terry_ci_high": 1500.0,
    }  # fmt: skip
    return known | changes


def grid(*settings: str) -> list[dict[str, Any]]:
    return [
        row(model, job=f"{k}/{n}/{setting}", k=k, n_perms=n, setting=setting, dimension=dimension)
        for k, n, setting, dimension, model in itertools.product(
            KS, N_PERMS, settings, DIMENSIONS, "ab"
        )
    ]


def test_k_is_drawn_for_each_number_of_match_orders_and_each_setting():
    plot = sweep_plots.k_lines(grid("", "elo.ties=half"))
    assert len(plot.rows) == 2 * 2 * 2 * 2 * 2
    assert written(plot).count("factuality") == 4
    assert {"100 match orders elo.ties=half", "500 match orders"} <= set(written(plot))
    assert {r["line"] for r in plot.rows} == {
        f"{model} {n} {setting}".strip()
        for model in "ab"
        for n in N_PERMS
        for setting in ("", "elo.ties=half")
    }


def test_of_many_numbers_of_match_orders_five_have_panels_and_all_have_rows():
    rows = [row(model, k=k, n_perms=n) for k in KS for n in range(1, 21) for model in "ab"]
    plot = sweep_plots.k_lines(rows)
    assert written(plot).count("factuality") == 5
    assert "5 of 20 such lines are shown." in plot.caption
    assert len(plot.rows) == len(rows)


def test_of_many_models_the_others_are_grey():
    modes = {"pilot": 8.0, "headline": 16.0}
    crowd = [
        row(model, job=mode, k=k, mode=mode) for mode, k in modes.items() for model in "abcdefghi"
    ]
    for plot in (sweep_plots.k_lines(crowd), sweep_agreement.modes_apart(crowd, list(modes))):
        assert plot.caption.endswith(" The best 7 of 9 entrants are in colour, the others grey.")


def test_a_cell_says_the_difference_who_leads_and_whether_elo_has_converged():
    plot = sweep_plots.pair_grid(grid(""), "b", "a")
    assert {(cell["k"], cell["difference"], cell["leader"]) for cell in plot.rows} == {
        (8, -20, "a"),
        (16, -28, "a"),
    }
    words = written(plot)
    assert [words.count(word) for word in ("−20*", "−28", "a")] == [4, 4, 8]


def test_a_cell_tells_long_names_apart():
    long = {model: f"organisation/the-model-called-{model}-with-a-long-name" for model in "ab"}
    words = written(
        sweep_plots.pair_grid(
            [r | {"model": long[r["model"]]} for r in grid("")], long["a"], long["b"]
        )
    )
    assert words.count("…-called-a-with-a-long-name") == 8
    assert "…-called-b-with-a-long-name leads" in words


@pytest.mark.parametrize(
    ("swept", "names"),
    [
        ({"k": KS}, ["k_by_n_perms"]),
        ({"k": KS, "n_perms": N_PERMS}, ["k_by_n_perms", "pair_by_k_and_n_perms"]),
        ({"n_perms": N_PERMS}, []),
        ({"seed": (1, 2)}, ["seeds"]),
        ({"mode": ("pilot", "headline")}, ["rating_slopes"]),
    ],
    ids=str,
)
def test_what_is_drawn_is_what_was_swept(swept: dict[str, tuple[Any, ...]], names: list[str]):
    jobs = [dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())]
    rows = [row(model, job=str(n), **job) for n, job in enumerate(jobs) for model in "ab"]
    assert [plot.name for plot in sweep_plots.all_plots(rows, [], None)] == names


def test_nothing_is_drawn_of_jobs_without_elo():
    rows = [row(model, k=k, rating=None, ordering_error=None) for k in KS for model in "ab"]
    assert sweep_plots.all_plots(rows, [], None) == []


def test_the_spread_over_seeds_stands_beside_the_ordering_error():
    """Ratings of 1398, 1400 and 1402 have a standard deviation of 2; each job says that its error is 1."""
    rows = [
        row("b", seed=seed, setting=f"elo.seed={seed}", rating=1398.0 + 2 * seed)
        for seed in range(3)
    ]
    plot = sweep_agreement.seeds_apart(
        [*rows, row("b", seed=9, setting="elo.seed=9 elo.ties=half")]
    )
    assert [r["deviation"] for r in plot.rows] == [-2, 0, 2]
    assert "2.00 / 1.00" in written(plot)
    assert math.isclose(sum(r["deviation"] for r in plot.rows), 0)


def test_kappa_stands_above_the_diagonal_and_the_rank_correlation_below():
    agreement = {
        "dimension": "factuality",
        "n_comparisons": 40,
        "n_prompts": 4,
        "kappa": 0.5,
        "std_error": 0.1,
    }
    agreement |= {"rho": -1.0}
    plot = sweep_agreement.judges_grid([agreement | {"first": "opus", "second": "haiku"}])
    assert {"0.50 ±.32", "n=40", "−1.00"} <= set(written(plot))


def test_judges_of_which_nothing_is_known_have_empty_cells():
    nothing = {"dimension": "d", "n_comparisons": 0, "kappa": None, "std_error": None, "rho": None}
    words = written(sweep_agreement.judges_grid([nothing | {"first": "opus", "second": "haiku"}]))
    assert not [word for word in words if word.startswith("n=")]
