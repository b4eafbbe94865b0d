"""The figures: which there are, that the numbers drawn are those that were found, and that every word can be read.

Warnings are errors, so each figure that is drawn here is drawn without one.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import random
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from elo_exp.analysis.standings import Standings
from elo_exp.analysis.win_rates import clustered_interval
from elo_exp.figures import fit_plots, judge_plots, order_plots, plots, shown
from elo_exp.figures.canvas import PALETTE
from elo_exp.figures.lettering import fitted, length
from elo_exp.figures.names import labels
from elo_exp.ratings.davidson import Davidson
from elo_exp.records import Battle
from elo_exp.results import Plot
from elo_exp.statistics.student import half_width
from tests.figure_words import overlaps, written
from tests.standings import standings, tournament, with_lengths

OF_ELO = ["ratings", "k_sensitivity", "permutation_traces", "order_effect"]
OF_TWO_ORDERS = ["position_effect"]
OF_BRADLEY_TERRY = ["differences", "rank_chances", "detectable_differences"]
OF_MANY = ["calibration", "pair_residuals"]
NASTY = {"a": "a$b^{$", "b": "模型 一", "c": "x" * 60, "d": "<b>&\n\U0001f600"}


@pytest.fixture(scope="module")
def found() -> Standings:
    """Two dimensions; c and d are the better, the longer their responses are."""
    battles = {
        name: tournament(seed=seed, judge_model="j")
        for seed, name in enumerate(("factuality", "calibration"))
    }
    lengths = {
        (f"q{q}", model): 300 + 40 * q * (model in "cd") for q in range(60) for model in "abcd"
    }
    return with_lengths(standings(battles), lengths)


@pytest.fixture(scope="module")
def crowd() -> Standings:
    """59 models with long names, of whose pairs few met."""
    draw = random.Random(3)
    models = [f"organisation/a-model-of-{n}-billion-parameters" for n in range(59)]
    battles = [
        battle(*draw.sample(models, 2), draw.choice(["model_a", "model_b", "tie"]), q % 9)
        for q in range(600)
    ]
    return standings({"factuality": battles}, n_perms=2)


@pytest.fixture(scope="module")
def drawn(found: Standings) -> dict[str, Plot]:
    return {plot.name: plot for plot in plots.all_plots(found)}


def names(battles: Sequence[Battle]) -> set[str]:
    return {plot.name for plot in plots.all_plots(standings({"factuality": battles}))}


def one(plot: Plot | None) -> Plot:
    assert plot is not None
    return plot


def battle(
    a: str, b: str, winner: str, q: int, ab: str | None = None, ba: str | None = None
) -> Battle:
    return Battle(
        model_a=a, model_b=b, winner=winner, question_id=f"q{q}", verdict_ab=ab, verdict_ba=ba
    )


def pixels(plot: Plot) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(plot.png)).convert("RGB"))


# Which figures there are


def test_a_tournament_has_every_figure(drawn: dict[str, Plot]):
    of_text = ["length_effect", "length_ratings"]
    whole = [
        "pairwise_winrates",
        *OF_ELO,
        *OF_BRADLEY_TERRY,
        *OF_TWO_ORDERS,
        *of_text,
        *OF_MANY,
        "circles",
    ]
    assert sorted(drawn) == sorted(whole)


def test_two_entrants_have_nothing_that_takes_three():
    assert names(tournament(n_models=2)) == {
        "pairwise_winrates",
        *OF_ELO,
        *OF_BRADLEY_TERRY,
        *OF_TWO_ORDERS,
    }


def test_without_a_decisive_match_there_are_win_rates_and_what_ratings_of_equals_predict():
    ties = [battle(a, b, "tie", q) for q in range(9) for a, b in itertools.combinations("abc", 2)]
    assert names(ties) == {"pairwise_winrates", "calibration"}


def test_one_pass_in_file_order_has_no_order_to_speak_of():
    one_pass = order_plots.order_plots(standings({"factuality": tournament()}, shuffle=False))
    assert [plot.name for plot in one_pass if plot] == ["k_sensitivity"]


def test_an_unbeaten_entrant_has_an_elo_and_the_reason_why_it_has_no_other_rating():
    battles = [
        battle("best", b.model_a, "model_a", n) for n, b in enumerate(tournament())
    ] + tournament()
    plot = one(plots.ratings(standings({"factuality": battles})))
    (row,) = (row for row in plot.rows if row["model"] == "best")
    assert row["elo"] > 1400
    assert (row["bradley_terry"], row["flag"]) == (None, "unbeaten")


def test_what_is_chosen_in_place_of_bradley_terry_is_drawn_and_named():
    davidson = {"davidson": Davidson(initial_rating=1400.0, use="both")}
    found = standings({"factuality": tournament()}, ratings=davidson)
    drawn = {plot.name: plot for plot in plots.all_plots(found)}
    assert drawn.keys() >= {*OF_BRADLEY_TERRY, "ratings"}
    board = found.companions["davidson"]["factuality"]
    ends = {
        row["model"]: (row["davidson"], row["davidson_ci_low"]) for row in drawn["ratings"].rows
    }
    assert ends == {r.model: (r.rating, r.ci_low) for r in board.ratings}
    assert "difference, Davidson points" in written(drawn["differences"])
    assert not [
        text
        for name in (*OF_BRADLEY_TERRY, "ratings")
        for text in written(drawn[name])
        if "Bradley" in text
    ]


def test_where_somebody_only_loses_no_line_has_an_end():
    battles = [
        battle("worst", b.model_a, "model_b", n) for n, b in enumerate(tournament())
    ] + tournament()
    ended, endless = (
        one(order_plots.k_sensitivity(standings({"d": some}))) for some in (tournament(), battles)
    )
    assert "Bradley-Terry of the same matches" in written(ended)
    assert "Bradley-Terry of the same matches" not in written(endless)
    assert "No end in d: not everybody has both won and lost" in endless.caption
    assert "No end" not in ended.caption
    assert {row["elo_limit"] for row in endless.rows} == {None}


# How they are drawn


@pytest.mark.parametrize("n_models", [2, 4, 59])
def test_no_word_is_cut_off(n_models: int, crowd: Standings):
    shown = crowd if n_models == 59 else standings({"factuality": tournament(n_models=n_models)})
    assert len(shown.models) == n_models
    for plot in plots.all_plots(shown):
        edge = pixels(plot).copy()
        edge[4:-4, 4:-4] = 255
        assert (edge == 255).all(), plot.name


@pytest.mark.parametrize(("n_models", "n_dimensions"), [(2, 3), (3, 1), (10, 3), (25, 2)])
def test_no_word_stands_on_another(n_models: int, n_dimensions: int):
    """With long names of entrants, judge and dimensions."""
    called = {
        chr(ord("a") + n): f"organisation-{n % 5}/some-model-{n:02d}-70b-instruct-v{n % 2}"
        for n in range(25)
    }
    plain = tournament(
        n_models=n_models, n_prompts=4, judge_model="a-judge-of-which-the-name-is-long-too"
    )
    battles = [
        dataclasses.replace(b, model_a=called[b.model_a], model_b=called[b.model_b]) for b in plain
    ]
    dimensions = ["a dimension with a name that does not end soon", "factuality", "calibration"][
        :n_dimensions
    ]
    found = standings(dict.fromkeys(dimensions, battles), n_perms=2)
    lengths = {
        (f"q{q}", model): 300 + 40 * q + n for q in range(4) for n, model in enumerate(found.models)
    }
    for plot in plots.all_plots(with_lengths(found, lengths)):
        assert overlaps(plot) == [], plot.name


def test_of_a_crowd_the_best_are_shown_and_all_are_in_the_rows(crowd: Standings):
    plot = one(plots.ratings(crowd))
    assert len(plot.rows) == 59
    assert plot.caption.endswith("Only the best 40 of 59 entrants are shown.")


def test_of_a_crowd_each_has_the_same_label_of_its_own_in_every_figure(crowd: Standings):
    called = labels(crowd.models)
    assert len(set(called.values())) == 59
    best = shown.best_first(crowd)
    words = {plot.name: set(written(plot)) for plot in plots.all_plots(crowd)}
    for name, n in (
        ("ratings", 40),
        ("pairwise_winrates", 40),
        ("k_sensitivity", 7),
        ("permutation_traces", 7),
    ):
        assert {called[model] for model in best[:n]} <= words[name]
        assert not {called[model] for model in best[n:]} & words[name]
    over = {
        f"{called[d.higher]} over {called[d.lower]}" for d in crowd.differences["bradley_terry"]
    }
    assert len(over & words["differences"]) == 28


def test_of_a_crowd_a_caption_speaks_of_what_is_drawn(crowd: Standings, drawn: dict[str, Plot]):
    """Cells without numbers, points without bars, and grey lines behind the coloured ones."""
    of_crowd = {plot.name: plot.caption for plot in plots.all_plots(crowd)}
    assert of_crowd["k_sensitivity"].endswith(
        " The best 7 of 59 entrants are in colour, the others grey."
    )
    assert "where each line in colour would end" in of_crowd["k_sensitivity"]
    assert of_crowd["permutation_traces"].endswith(" Only the best 7 of 59 entrants are shown.")
    assert "in colour" not in drawn["k_sensitivity"].caption
    for clause in ("of n battles", "± 95 %", "Bold"):
        assert clause in drawn["pairwise_winrates"].caption
        assert clause not in of_crowd["pairwise_winrates"]
    assert "bar: 95 %" in drawn["calibration"].caption
    assert "bar" not in of_crowd["calibration"]


def test_bars_are_spoken_of_where_one_dimension_has_few_pairs_enough(crowd: Standings):
    both = standings(
        {"calibration": tournament(), "factuality": crowd.battles["factuality"]}, n_perms=2
    )
    plot = one(fit_plots.calibration(both))
    assert "bar (where there are 60 pairs at most): 95 %" in plot.caption


def test_a_key_has_no_bar_where_no_pair_has_one(crowd: Standings, drawn: dict[str, Plot]):
    bar = f'stroke="{PALETTE[0].lower()}"'
    assert bar in drawn["calibration"].svg
    assert bar not in one(fit_plots.calibration(crowd)).svg


def test_without_a_test_of_the_ratings_no_number_is_bold(found: Standings):
    untested = plots.win_rates(dataclasses.replace(found, differences={}))
    assert "Bold" not in untested.caption
    assert not [word for word in written(untested) if word.startswith("bold")]


def test_names_and_dimensions_may_be_anything():
    battles = [
        dataclasses.replace(b, model_a=NASTY[b.model_a], model_b=NASTY[b.model_b])
        for b in tournament()
    ]
    words = {plot.name: written(plot) for plot in plots.all_plots(standings({"$_{<i>": battles}))}
    assert all("$_{<i>" in of_figure for of_figure in words.values())
    assert {"a$b^{$", "模型 一", "xxxxxxxxxxxxx…xxxxxxxxxxxxx", "<b>& \U0001f600"} <= set(
        words["ratings"]
    )


def test_the_vector_figure_has_the_same_words_as_text_and_the_same_size(drawn: dict[str, Plot]):
    for plot in drawn.values():
        root = ElementTree.fromstring(plot.svg)
        wide, high = (float(str(root.get(side)).removesuffix("pt")) for side in ("width", "height"))
        assert pixels(plot).shape[:2] == pytest.approx(
            (2 * high, 2 * wide), abs=2
        )  # 144 pixels an inch
        assert {"factuality", "calibration"} <= {
            word.removesuffix(" (j)") for word in written(plot)
        }


def test_the_same_standings_give_the_same_bytes(found: Standings, drawn: dict[str, Plot]):
    again = one(plots.ratings(found))
    assert (again.png, again.svg) == (drawn["ratings"].png, drawn["ratings"].svg)


def test_an_interval_says_of_what_kind_it_is_and_what_it_rests_on(drawn: dict[str, Plot]):
    for name in ("ratings", "differences", "rank_chances"):
        assert "95 %, prompt-clustered" in drawn[name].caption
        assert "factuality 60 prompts" in drawn[name].caption
        assert "360 battles decisive" in drawn[name].caption


def test_without_an_interval_none_is_spoken_of(drawn: dict[str, Plot]):
    """Elo is rated here without a bootstrap of the prompts."""
    assert "Elo: no interval; Bradley-Terry: 95 %, prompt-clustered." in drawn["ratings"].caption


def test_a_heading_is_cut_where_the_next_begins():
    said = "a dimension with a name that does not end soon"
    assert fitted(said, 9, 10.0) == said
    assert fitted(said, 9, 1.0).endswith("…")
    assert length(fitted(said, 9, 1.0), 9) <= 1.0 < length(said, 9)


# Ratings and win rates


def test_the_ratings_drawn_are_those_of_the_leaderboards(found: Standings, drawn: dict[str, Plot]):
    for row in drawn["ratings"].rows:
        elo = found.elo[row["dimension"]][16.0].rating(row["model"])
        fitted_ = found.companions["bradley_terry"][row["dimension"]].rating(row["model"])
        assert (row["elo"], row["ordering_error"]) == (elo.rating, elo.ordering_error)
        assert [row[f"bradley_terry{end}"] for end in ("", "_ci_low", "_ci_high")] == [
            fitted_.rating,
            fitted_.ci_low,
            fitted_.ci_high,
        ]


def test_elo_is_drawn_with_its_own_interval_over_prompts():
    plot = one(
        plots.ratings(
            standings({"factuality": tournament()}, n_bootstraps=20, perms_per_bootstrap=2)
        )
    )
    assert all(row["elo_ci_low"] < row["elo"] < row["elo_ci_high"] for row in plot.rows)
    assert all(row["ordering_error"] < (row["elo_ci_high"] - row["elo"]) / 2 for row in plot.rows)


def test_a_worked_example_of_a_win_rate():
    """ann beats bob on three prompts, ties on one: (3 + 1/2) / 4. The standard error is that of a mean of four
    independent numbers, 1, 1, 1 and 1/2: their standard deviation .25 over the root of 4."""
    battles = [
        battle("ann", "bob", winner, q) for q, winner in enumerate(["model_a"] * 3 + ["tie"])
    ]
    (row,) = plots.win_rates(standings({"factuality": battles})).rows
    assert (row["entrant_a"], row["n"], row["win_share_a"]) == ("ann", 4, 0.875)
    assert row["std_error"] == pytest.approx(0.125)


def test_a_win_rate_is_bold_where_the_difference_of_the_ratings_holds(
    found: Standings, drawn: dict[str, Plot]
):
    holds = {
        (d.dimension, frozenset((d.higher, d.lower)))
        for d in found.differences["bradley_terry"]
        if d.significant
    }
    assert holds
    rows = drawn["pairwise_winrates"].rows
    assert {
        (r["dimension"], frozenset((r["entrant_a"], r["entrant_b"])))
        for r in rows
        if r["significant"]
    } == holds


# The order of matches


def test_the_trace_ends_at_the_rating_with_its_ordering_error(
    found: Standings, drawn: dict[str, Plot]
):
    ends = [row for row in drawn["permutation_traces"].rows if row["n_perms"] == 20]
    assert len(ends) == 8
    for row in ends:
        rating = found.elo[row["dimension"]][16.0].rating(row["model"])
        assert (row["running_mean"], row["ordering_error"]) == pytest.approx(
            (rating.rating, rating.ordering_error)
        )


def outlines(plot: Plot) -> dict[tuple[str, str, float], tuple[np.ndarray, np.ndarray]]:
    """Rating and density of each violin."""

    def violin(row: Any) -> tuple[str, str, float]:
        return row["dimension"], row["model"], row["k"]

    by_violin = itertools.groupby(sorted(plot.rows, key=violin), key=violin)
    return {
        name: np.array([(row["rating"], row["density"]) for row in rows]).T
        for name, rows in by_violin
    }  # type: ignore[misc]


def test_a_violin_is_a_density_whose_mean_is_the_rating():
    found = standings({"factuality": tournament()}, n_perms=200)
    violins = outlines(one(order_plots.order_effect(found)))
    assert len(violins) == 4 * 5
    for (dimension, model, k), (rating, density) in violins.items():
        samples = found.elo[dimension][k].samples[:, "abcd".index(model)]  # type: ignore[index]
        assert density.sum() * (rating[1] - rating[0]) == pytest.approx(1, abs=0.02)
        assert np.average(rating, weights=density) == pytest.approx(
            samples.mean(), abs=0.1 * samples.std()
        )


def test_a_larger_k_lets_the_order_say_more(drawn: dict[str, Plot]):
    wide = {name: np.ptp(rating) for name, (rating, _) in outlines(drawn["order_effect"]).items()}
    for dimension, model in itertools.product(("factuality", "calibration"), "abcd"):
        widths = [wide[dimension, model, k] for k in (1.0, 4.0, 8.0, 16.0, 32.0)]
        assert widths == sorted(widths)


def test_lines_say_what_runs_from_left_to_right(drawn: dict[str, Plot]):
    lines = {plot.name: (plot.x, plot.y) for plot in drawn.values() if plot.x is not None}
    assert lines["k_sensitivity"] == ("k", ("rating",))
    assert all({x, *y} <= set(drawn[name].rows[0]) for name, (x, y) in lines.items())


# The judge


def test_flips_are_counted_where_both_orders_were_asked():
    """Of four battles that were asked in both orders one flips; a fifth was asked once."""
    battles = [
        *[battle("a", "b", "model_a", q, "model_a", "model_a") for q in range(2)],
        *[battle("a", "b", "tie", 2, "model_a", "model_b"), battle("a", "b", "model_b", 3)],
        *[battle("a", "b", "model_b", 4, "model_b", "model_b")],
    ]
    (row,) = one(judge_plots.position_effect(standings({"factuality": battles}))).rows
    assert (row["n_flips"], row["n_two_order"], row["n_decisive"]) == (1, 4, 8)
    assert row["p_first"] > 0.5  # the one that flips names whoever is shown first


def test_the_place_that_is_drawn_is_the_one_that_was_diagnosed(
    found: Standings, drawn: dict[str, Plot]
):
    for row in drawn["position_effect"].rows:
        effect = found.diagnoses[row["dimension"]]["position"]
        assert {name: row[name] for name in ("p_first", "ci_low", "ci_high")} == {
            name: effect[name] for name in ("p_first", "ci_low", "ci_high")
        }
        assert row["judge"] == "j"


def test_lengths_are_drawn_as_they_were_found(found: Standings, drawn: dict[str, Plot]):
    for dimension in found.dimensions:
        control = found.diagnoses[dimension]["length"]
        terciles = [row for row in drawn["length_effect"].rows if row["dimension"] == dimension]
        assert [row["win_rate"] for row in terciles] == [
            tercile["win_rate"] for tercile in control["terciles"]
        ]
        assert {row["effect"] for row in terciles} == {control["effect"]["effect"]}
        for row in terciles:
            ends = clustered_interval(row["win_rate"], row["std_error"], row["n_prompts"])
            assert (row["win_rate_ci_low"], row["win_rate_ci_high"]) == ends
        ratings = [row for row in drawn["length_ratings"].rows if row["dimension"] == dimension]
        assert ratings == list(control["ratings"])


def test_no_interval_of_a_share_leaves_the_figure():
    """The longer response is the favourite, and wins on four of five prompts: Student's t of four degrees of freedom
    reaches beyond 1."""
    battles = [
        battle(a, b, "model_a" if q < 4 else "tie", q)
        for q in range(5)
        for a, b in itertools.combinations("abcd", 2)
    ]
    lengths = {
        (f"q{q}", model): 400 - 40 * "abcd".index(model) - 3 * q
        for q in range(5)
        for model in "abcd"
    }
    found = with_lengths(standings({"factuality": battles}), lengths)
    for plot, share in (
        (one(judge_plots.length_effect(found)), "win_rate"),
        (one(fit_plots.calibration(found)), "observed"),
    ):
        known = [row for row in plot.rows if row["std_error"] is not None]
        assert max(row[share] + half_width(5) * row["std_error"] for row in known) > 1
        for row in known:
            assert 0 <= row[f"{share}_ci_low"] < row[share] < row[f"{share}_ci_high"] <= 1
        assert "Wilson" in plot.caption
        assert not [w for w in written(plot) if w.endswith("%") and not 0 <= float(w[:-1]) <= 100]


# Whether one rating is enough


def test_bradley_terry_predicts_as_many_wins_of_each_entrant_as_there_are(drawn: dict[str, Plot]):
    """The likelihood equations, with a tie as half a win."""
    rows = [row for row in drawn["calibration"].rows if row["dimension"] == "factuality"]
    assert all(row["expected"] >= 0.5 for row in rows)
    for model in "abcd":
        surplus = [
            (row["observed"] - row["expected"])
            * row["n_games"]
            * (1 if row["favourite"] == model else -1)
            for row in rows
            if model in (row["favourite"], row["other"])
        ]
        assert len(surplus) == 3
        assert sum(surplus) == pytest.approx(0, abs=1e-6)


def test_decisive_games_alone_are_further_from_one_half(drawn: dict[str, Plot]):
    """s = d p + (1 - d) / 2, where d of the games are decisive and p of these are won."""
    for row in drawn["calibration"].rows:
        share = row["n_decisive"] / row["n_games"]
        assert 0.5 < share < 1
        assert row["observed"] == pytest.approx(share * row["observed_decisive"] + (1 - share) / 2)


def test_the_pairs_that_stand_apart_are_drawn_of_many():
    many = standings({"factuality": tournament(n_models=12, n_prompts=20)})
    plot = one(fit_plots.pair_residuals(many))
    assert len(plot.rows) == 66
    assert plot.caption.endswith(
        "Only the 30 pairs of a dimension that stand furthest apart are shown."
    )


def test_three_that_beat_one_another_in_a_circle_do_so_on_every_prompt():
    """And d, whom nobody beats, is in no circle."""
    circle = [battle(a, b, "model_a", q) for q in range(5) for a, b in ("ab", "bc", "ca")]
    best = [battle("d", other, "model_a", q) for q in range(5) for other in "abc"]
    rows = one(fit_plots.circles(standings({"factuality": [*circle, *best]}))).rows
    shares = {(row["model_a"], row["model_b"], row["model_c"]): row["share"] for row in rows}
    assert shares == {
        ("a", "b", "c"): 1.0,
        ("a", "b", "d"): 0.0,
        ("a", "c", "d"): 0.0,
        ("b", "c", "d"): 0.0,
    }


def test_without_a_circle_there_is_none_to_draw():
    order = [
        battle(a, b, "model_a", q) for q in range(5) for a, b in itertools.combinations("abcd", 2)
    ]
    assert fit_plots.circles(standings({"factuality": order})) is None
