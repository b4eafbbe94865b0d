"""The figures of how sure one may be: what is drawn is what was found, and nothing is drawn of what is not known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from elo_exp.analysis.comparisons import Precision
from elo_exp.analysis.power import detectable
from elo_exp.analysis.standings import Standings
from elo_exp.figures import certainty
from elo_exp.records import Battle
from elo_exp.results import Plot
from tests.figure_words import overlaps, panels, words, written
from tests.standings import standings, tournament


@pytest.fixture(scope="module")
def found() -> Standings:
    return standings({"factuality": tournament(n_prompts=143)})


def drawn(plot: Plot | None) -> Plot:
    assert plot is not None
    return plot


def test_the_differences_drawn_are_those_that_were_found(found: Standings):
    plot = drawn(certainty.differences(found))
    assert list(plot.rows) == [d.to_dict() for d in found.differences["bradley_terry"]]


def test_the_chances_of_every_entrant_and_of_every_rank_add_up(found: Standings):
    plot = drawn(certainty.rank_chances(found))
    for by in ("model", "rank"):
        for value in {row[by] for row in plot.rows}:
            assert sum(row["chance"] for row in plot.rows if row[by] == value) == pytest.approx(1)


def test_the_first_column_is_the_chance_of_being_best(found: Standings):
    plot = drawn(certainty.rank_chances(found))
    board = found.companions["bradley_terry"]["factuality"]
    first = {row["model"]: row["chance"] for row in plot.rows if row["rank"] == 1}
    assert first == {r.model: r.p_best for r in board.ratings}


def test_who_has_no_rating_is_named_with_the_reason():
    """An unbeaten entrant in one dimension, which does not play in the other."""
    plain = tournament(n_prompts=20)
    first = [
        Battle(model_a="best", model_b=b.model_a, winner="model_a", question_id=b.question_id)
        for b in plain
    ]
    some = standings({"factuality": [*plain, *first], "calibration": plain})
    for plot in (certainty.rank_chances(some), certainty.differences(some)):
        said = (
            " Left out, without a rating: factuality best (unbeaten); calibration best (no battle)."
        )
        assert drawn(plot).caption.endswith(said)
    lone = [dataclasses.replace(b, model_a=f"lone{n}") for n, b in enumerate(first[:5])]
    crowded = certainty.rank_chances(standings({"factuality": [*plain, *lone]}))
    assert drawn(crowded).caption.endswith(
        "lone0 (unbeaten), lone1 (unbeaten), lone2 (unbeaten), 2 more."
    )


def test_where_all_are_rated_nobody_is_left_out(found: Standings):
    assert "Left out" not in drawn(certainty.rank_chances(found)).caption


def test_the_curve_passes_through_this_run(found: Standings):
    plot, (precision,) = (
        drawn(certainty.detectable_differences(found)),
        found.precision["bradley_terry"],
    )
    (here,) = [row for row in plot.rows if row["this_run"]]
    assert (here["n_prompts"], here["detectable"]) == (143, pytest.approx(precision.detectable))
    assert precision.sigma is not None
    assert here["corrected"] == pytest.approx(detectable(precision.sigma, 143, n_tests=6))


def test_the_curve_says_what_a_pilot_and_the_whole_bank_would_find(found: Standings):
    plot, (precision,) = (
        drawn(certainty.detectable_differences(found)),
        found.precision["bradley_terry"],
    )
    assert precision.sigma is not None
    at = {row["n_prompts"]: row["detectable"] for row in plot.rows}
    assert [at[50], at[143]] == [detectable(precision.sigma, n) for n in (50, 143)]
    assert (plot.x, plot.y) == ("n_prompts", ("detectable", "corrected"))


def power(
    found: Standings, n_prompts: Sequence[int], *, n_tests: int = 18, sigma: float = 300.0
) -> Plot:
    """Of a dimension for each number of prompts."""
    known = [
        Precision(dimension=f"d{i}", n_prompts=n, n_tests=n_tests, sigma=sigma)
        for i, n in enumerate(n_prompts)
    ]
    return drawn(
        certainty.detectable_differences(
            dataclasses.replace(found, precision={"bradley_terry": known})
        )
    )


@pytest.mark.parametrize("n_tests", [1, 2, 18, 600])
@pytest.mark.parametrize(
    "n_prompts",
    [
        *((n,) for n in (3, 5, 12, 47, 50, 100, 129, 143, 500, 1000, 5000)),
        (12, 12),
        (143, 93, 50),
        (3, 1000, 46, 60),
    ],
    ids=str,
)
def test_every_number_beside_a_curve_stands_in_its_panel_and_clear_of_all_words(
    found: Standings, n_prompts: tuple[int, ...], n_tests: int
):
    plot = power(found, n_prompts, n_tests=n_tests)
    inside = [word.text for word in words(plot) if any(panel.holds(word) for panel in panels(plot))]
    for row in plot.rows:
        if row["this_run"]:
            of_lines = [row["detectable"], row["corrected"]][: 1 if n_tests == 1 else 2]
            assert {f"{points:,.0f}" for points in of_lines} <= set(inside)
    assert overlaps(plot) == []


def test_the_sizes_of_the_shipped_bank_are_marked_in_a_run_of_it(found: Standings):
    """In a pilot, also where a prompt has no battle, and in none of one's own prompts."""
    for n_prompts, said in (
        ((143, 93), "50 and 143 prompts"),
        ((143,), "50 prompts"),
        ((49,), "143 prompts"),
    ):
        plot = power(found, n_prompts)
        assert said in written(plot)
        assert {50, 143} <= {row["n_prompts"] for row in plot.rows}
    for n_prompts in ((12, 9), (500,), (1000,)):
        assert not [
            word for word in written(power(found, n_prompts)) if word.startswith(("50 ", "143 "))
        ]


def test_of_many_entrants_the_pairs_of_the_best_are_drawn_and_all_are_in_the_rows():
    many = standings({"factuality": tournament(n_models=10, n_prompts=30)})
    plot = drawn(certainty.differences(many))
    assert len(plot.rows) == 45
    assert plot.caption.endswith("Only the best 8 of 10 entrants of each dimension are shown.")


def test_a_pair_of_which_the_prompts_say_nothing_is_not_drawn(found: Standings):
    unknown = dataclasses.replace(
        found.differences["bradley_terry"][0], ci_low=None, ci_high=None, std_error=None
    )
    rest = found.differences["bradley_terry"][1:]
    plot = certainty.differences(
        dataclasses.replace(found, differences={"bradley_terry": [unknown, *rest]})
    )
    assert list(drawn(plot).rows) == [d.to_dict() for d in rest]


def test_nothing_is_drawn_of_a_single_prompt():
    one = [
        Battle(model_a="a", model_b="b", winner=w, question_id="q")
        for w in ("model_a", "model_b", "model_a")
    ]
    assert certainty.certainty_plots(standings({"factuality": one})) == [None, None, None]
