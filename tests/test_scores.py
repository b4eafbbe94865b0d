"""Paired scores of items: by hand, as laws, against statsmodels and scipy, and by their coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from elo_exp.analysis.comparisons import Difference, differences
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament import with_conclusions
from elo_exp.analysis.mean_scores import mean_scores
from elo_exp.analysis.standings import Standings, of_scores
from elo_exp.data.scores import Score
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import UserError
from elo_exp.report import tournament_console, tournament_page
from elo_exp.report.artifacts import ratings_json
from tests.test_tournament_page import console

NAN = math.nan


def rows(clusters: list[str] | None = None, **scores: list[float]) -> list[Score]:
    """Scores by entrant, of items 0, 1, ...; NaN is missing."""
    return [
        Score(
            dimension="accuracy",
            entrant=name,
            item=str(i),
            value=None if math.isnan(value) else value,
            cluster=clusters[i] if clusters else "",
        )
        for name, values in scores.items()
        for i, value in enumerate(values)
    ]


def board(some: list[Score], *, allow_missing: bool = False) -> Leaderboard:
    return mean_scores("accuracy", some, allow_missing)


def difference(some: list[Score]) -> Difference:
    (found,) = differences({"accuracy": board(some)})
    return found


def standings(some: list[Score]) -> Standings:
    return of_scores(some, allow_missing=False)


def test_by_hand():
    """Differences 1, 1, 0, 0: their mean is .5, their variance 1/3, over four items 1/12."""
    found = board(rows(ann=[1, 1, 1, 0], bob=[0, 0, 1, 0]))
    assert found.models == ("ann", "bob")
    assert found.rating.tolist() == [0.75, 0.25]
    assert found.std_error == pytest.approx([0.25, 0.25])  # sqrt(3/4 1/4 / 3)
    assert (found.ci_low.tolist(), found.ci_high.tolist()) == (
        [0, 0],
        [1, 1],
    )  # no farther
    pair = differences({"accuracy": found})[0]
    assert (pair.higher, pair.difference) == ("ann", 0.5)
    assert pair.std_error == pytest.approx(math.sqrt(1 / 12))
    # Two items tell them apart, and ann has both: (2 x 1/4) / 2
    assert found.parameters["mcnemar_mid_p"] == pytest.approx(0.25)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3))
def test_mcnemar_is_the_exact_test_less_half_of_the_observed_split(pairs):
    values = np.array(pairs, dtype=float)
    a, b = values.T
    table = [[np.sum((a == x) & (b == y)) for y in (1, 0)] for x in (1, 0)]
    few, n = min(table[0][1], table[1][0]), table[0][1] + table[1][0]
    exact = mcnemar(table, exact=True).pvalue
    expected = exact - stats.binom.pmf(few, n, 0.5) if 2 * few < n else 1.0
    found = board(rows(a=a.tolist(), b=b.tolist())).parameters
    assert found["mcnemar_mid_p"] == pytest.approx(expected, rel=1e-9)


def test_an_unclustered_difference_is_the_paired_t_test():
    a, b = np.random.default_rng(1).normal(0.5, 0.2, (2, 40))
    pair, other = difference(rows(a=a.tolist(), b=b.tolist())), stats.ttest_rel(a, b)
    assert pair.p_value == pytest.approx(other.pvalue, rel=1e-9)
    assert "mcnemar_mid_p" not in board(rows(a=a.tolist(), b=b.tolist())).parameters


def test_a_clustered_difference_is_that_of_statsmodels():
    rng = np.random.default_rng(2)
    cluster = rng.integers(0, 25, 120)
    a, b = rng.normal(0.5, 0.2, (2, 120)) + rng.normal(0, 0.3, (2, 25))[:, cluster]
    found = board(rows([f"c{c}" for c in cluster], a=a.tolist(), b=b.tolist()))
    (pair,) = differences({"accuracy": found})
    fit = sm.OLS(a - b, np.ones(120)).fit(
        cov_type="cluster", cov_kwds={"groups": cluster}, use_t=True
    )
    assert pair.std_error == pytest.approx(fit.bse[0], rel=1e-9)
    assert pair.p_value == pytest.approx(fit.pvalues[0], rel=1e-9)
    assert found.n_clusters == 25


def test_draws_of_an_item_are_averaged_before_anything_else():
    """As inspect_ai does: ten draws of one item are still one item."""
    once = rows(ann=[1, 0.5, 0, 1], bob=[0, 0, 1, 0.25])
    twice = [
        replace(row, value=row.value + step, draw=str(step))
        for row in once
        for step in (-0.25, 0.25)
    ]
    found, expected = board(twice), board(once)
    assert found.rating.tolist() == expected.rating.tolist()
    np.testing.assert_allclose(found.covariance, expected.covariance)
    assert found.n_clusters == 4


def test_a_missing_score_is_not_zero_and_leaves_its_item_out():
    found = board(rows(ann=[1, 1, 0, 1], bob=[0, 1, 0, NAN]))
    assert found.rating == pytest.approx([2 / 3, 1 / 3])
    assert found.n_battles.tolist() == [4, 3]
    assert found.parameters["n_common"] == 3
    assert found.parameters["n_missing"] == 1


def test_few_items_in_common_are_refused_unless_allowed():
    some = rows(ann=[1, 0, NAN, NAN, NAN], bob=[0, 0, 1, 1, 1])
    with pytest.raises(
        UserError, match=r"found 2 of 5 items .* at least half. allow_mi"
    ):
        board(some)
    assert board(some, allow_missing=True).rating.tolist() == [0.5, 0.0]


@pytest.mark.parametrize("values", [[1.0] * 30, [0.1] * 30])
def test_scores_that_do_not_vary_have_no_error(values):
    other = [value / 3 for value in values]
    pair = difference(rows(a=values, b=other))
    assert (pair.std_error, pair.p_value) == (None, None)


def test_console_and_file_say_what_was_compared():
    rng = np.random.default_rng(3)
    right = rng.random((3, 80)) < [[0.9], [0.5], [0.2]]
    three = rows(**dict(zip("abc", right.astype(float).tolist(), strict=True)))
    found = with_conclusions(standings(three), Scope(kind="scores", source="a.json"))
    text = tournament_console.text(tournament_page.context(found))
    assert "accuracy, 80 items: a leads by 0." in text
    assert "Scores are those in a.json." in text
    assert "80 of 80 items in common." in text
    assert "Elo and other ratings of battles are not computed" in text
    written = ratings_json(found)["dimensions"]["accuracy"]["mean_score"]
    assert written["unit"] == "score"
    assert [row["rank"] for row in written["ratings"]] == [1, 2, 3]
    two = console(standings([r for r in three if r.entrant != "b"]))
    assert "McNemar’s mid-p test: p < .001." in " ".join(two.split())


@pytest.mark.slow
def test_intervals_cover_and_mcnemar_keeps_its_level():
    """Correlated 0/1 scores in clusters of four; the null for McNemar, without clusters."""
    rng, n_worlds, covered, rejected = np.random.default_rng(4), 1500, 0, 0
    for _ in range(n_worlds):
        shared = np.repeat(rng.normal(size=40), 4)
        a, b = (shared + rng.normal(size=(2, 160)) > [[0.0], [0.5]]).astype(float)
        truth = 0.5 - stats.norm.sf(0.5 / math.sqrt(2))
        clusters = [str(i // 4) for i in range(160)]
        pair = difference(rows(clusters, a=a.tolist(), b=b.tolist()))
        sign = 1 if pair.higher == "a" else -1
        covered += pair.ci_low <= sign * truth <= pair.ci_high
        a, b = (rng.normal(size=60) + rng.normal(size=(2, 60)) > 0).astype(float)
        null = board(rows(a=a.tolist(), b=b.tolist()))
        rejected += null.parameters["mcnemar_mid_p"] <= 0.05
    assert 0.935 <= covered / n_worlds <= 0.965
    assert 0.03 <= rejected / n_worlds <= 0.062
