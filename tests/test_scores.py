"""Paired scores of items: by hand, as laws, against statsmodels and scipy, and by their coverage."""

import itertools
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
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.mean_scores import mean_scores, pass_rates
from elo_exp.analysis.standings import Standings, rate_scores
from elo_exp.data.scores import Score
from elo_exp.errors import UserError
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.report import tournament_console
from elo_exp.report.artifacts import ratings_json
from elo_exp.report.standings_view import build_view
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
    return rate_scores(some, allow_missing=False)


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


def test_a_difference_of_equal_clusters_is_that_of_statsmodels():
    rng = np.random.default_rng(2)
    cluster = rng.permutation(np.arange(120) % 24)
    a, b = rng.normal(0.5, 0.2, (2, 120)) + rng.normal(0, 0.3, (2, 24))[:, cluster]
    found = board(rows([f"c{c}" for c in cluster], a=a.tolist(), b=b.tolist()))
    (pair,) = differences({"accuracy": found})
    fit = sm.OLS(a - b, np.ones(120)).fit(
        cov_type="cluster", cov_kwds={"groups": cluster}, use_t=True
    )
    assert pair.std_error == pytest.approx(fit.bse[0], rel=1e-9)
    assert pair.p_value == pytest.approx(fit.pvalues[0], rel=1e-9)
    assert found.n_clusters == 24


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


def test_who_is_always_right_has_the_exact_interval_of_n_in_n():
    """Of 20 items: .025^(1/20), as scipy has it, and not [1, 1]."""
    exact = stats.binomtest(20, 20).proportion_ci(method="exact")
    found = board(rows(all=[1.0] * 20, none=[0.0] * 20, some=[1.0, 0.0] * 10))
    assert found.ci_low[:2] == pytest.approx([exact.low, 0.0])
    assert found.ci_high[:2] == pytest.approx([1.0, 1 - exact.low])
    clusters = [f"c{i % 5}" for i in range(20)]
    assert board(rows(clusters, all=[1.0] * 20)).ci_low == pytest.approx([0.025**0.2])


def test_few_items_in_common_are_refused_unless_allowed():
    some = rows(ann=[1, 0, NAN, NAN, NAN], bob=[0, 0, 1, 1, 1])
    with pytest.raises(
        UserError,
        match=r"(?s)only 2 of 5 items .* fewer than half\..*add allow_missing=true",
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
    found = add_conclusions(standings(three), Scope(kind="scores", source="a.json"))
    text = tournament_console.format_console(build_view(found))
    assert "accuracy (80 items)\na leads b by 0." in text
    assert "The scores are those in a.json." in text
    assert "80 of 80 items in common." in text
    assert "Elo and other ratings of comparisons are not computed" in text
    written = ratings_json(found)["dimensions"]["accuracy"]["mean_score"]
    assert written["unit"] == "score"
    assert [row["rank"] for row in written["ratings"]] == [1, 2, 3]
    two = console(standings([r for r in three if r.entrant != "b"]))
    assert "McNemar’s mid-p test: p < .001" in " ".join(two.split())


# pass@k and pass^k, of several draws of each item


def draws(clusters: list[str] | None = None, **draws: list[list[float]]) -> list[Score]:
    """Scores by entrant, of items 0, 1, ... with their draws."""
    return [
        replace(row, draw=str(j), value=value)
        for name, items in draws.items()
        for i, some in enumerate(items)
        for row in rows(clusters, **{name: [NAN] * len(items)})[i : i + 1]
        for j, value in enumerate(some)
    ]


def passes(some: list[Score], **sizes: list[int]) -> dict[str, Leaderboard]:
    return pass_rates("accuracy", some, False, **sizes)


def test_pass_rates_by_hand():
    """Of two of four: five of the six pairs have a right one, one pair has two. Of one of four: three, none."""
    found = passes(
        draws(ann=[[1, 1, 0, 0], [0, 0, 0, 1]], bob=[[1] * 4, [0] * 4]), at=[2], hat=[2]
    )
    assert found["pass@2"].models == ("ann", "bob")
    assert found["pass@2"].rating == pytest.approx([(5 / 6 + 3 / 6) / 2, 0.5])
    assert found["pass^2"].rating == pytest.approx([1 / 6 / 2, 0.5])
    assert found["pass^2"].label == "pass^2"


@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=6), min_size=2, max_size=4),
    st.integers(1, 3),
)
def test_a_pass_rate_is_that_of_every_choice_of_k_draws(items, k):
    some = draws(a=[[float(right) for right in item] for item in items])
    found = passes(some, at=[k], hat=[k])
    for name, of in (("pass@", any), ("pass^", all)):
        by_item = [
            np.mean([of(chosen) for chosen in itertools.combinations(item, k)])
            for item in items
        ]
        assert found[f"{name}{k}"].rating[0] == pytest.approx(np.mean(by_item))


def test_of_one_draw_they_are_the_mean_score_with_its_errors():
    rng = np.random.default_rng(5)
    right = (rng.random((2, 40, 3)) < rng.random((1, 40, 1))).astype(float).tolist()
    some = draws([f"c{i // 3}" for i in range(40)], a=right[0], b=right[1])
    found, expected = passes(some, at=[1], hat=[1]), board(some)
    for one in found.values():
        assert one.rating == pytest.approx(expected.rating)
        assert one.covariance == pytest.approx(expected.covariance)
        assert one.n_clusters == expected.n_clusters == 14
        assert one.ci_low == pytest.approx(expected.ci_low)
        assert one.ci_high == pytest.approx(expected.ci_high)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("hat", [[1, 0], [1, 0, 1, 1]], "pass.hat must be at most 2, as item 0 of b has 2 draws; got 4."),
        ("at", [[1], [1, 0, 1, 1]], "pass.at must be at most 1, as item 0 of b has 1 draw; got 4."),
        ("hat", [[1, 0.5, 1, 1]] * 2, "pass.hat needs scores of 0 and 1, and "),
    ],
)  # fmt: skip
def test_pass_rates_need_k_draws_of_zeros_and_ones(kind, values, words):
    some = draws(a=[[1, 0, 1, 1]] * 2, b=values)
    with pytest.raises(UserError) as refused:
        passes(some, **{kind: [1, 4]})
    assert str(refused.value).startswith(words)


def test_a_draw_that_is_missing_is_no_draw():
    """Neither right nor wrong: two of the two that are known."""
    some = draws(a=[[1, 1, NAN], [1, 1, 0]])
    some = [replace(r, value=None if math.isnan(r.value) else r.value) for r in some]
    assert passes(some, hat=[2])["pass^2"].rating == pytest.approx([(1 + 1 / 3) / 2])
    with pytest.raises(UserError, match="item 0 of a has 2 draws"):
        passes(some, hat=[3])


@pytest.mark.slow
@pytest.mark.parametrize("n_items", [20, 60])
@pytest.mark.parametrize("a_cluster", [1, 4])
def test_intervals_of_pass_rates_cover(n_items, a_cluster):
    """Items of all difficulties, four draws; those of a cluster share theirs, but for a step. Of 12 to 20 clusters the
    interval of one entrant, near an end of the scale, covers a little less; that of a difference does not."""
    rng, n_worlds, k = np.random.default_rng(6), 700, 2
    n_clusters = max(n_items // a_cluster, 12)
    clusters = [str(i // a_cluster) for i in range(n_clusters * a_cluster)]

    def chances(n: int) -> np.ndarray:
        """(n clusters, items of one, 2 entrants)"""
        shared = rng.normal(0, 1.5, (n, 1, 1))
        own = rng.normal(0, 0.5, (n, a_cluster, 2))
        return 1 / (1 + np.exp(-shared - own - [0.3, 0.0]))

    many = chances(400_000 // a_cluster)
    truth = {"pass@2": 1 - (1 - many) ** k, "pass^2": many**k}
    expected = {name: x.mean(axis=(0, 1)) for name, x in truth.items()}
    single, paired = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for _ in range(n_worlds):
        p = chances(n_clusters).reshape(-1, 2)
        right = (
            (rng.random((4, *p.shape)) < p).astype(float).transpose(2, 1, 0).tolist()
        )
        found = passes(draws(clusters, a=right[0], b=right[1]), at=[k], hat=[k])
        for name, one in found.items():
            low, high = one.ci_low[0], one.ci_high[0]
            single[name] += low <= expected[name][0] <= high
            pair = differences({"accuracy": one})[0]
            lead = expected[name][0] - expected[name][1]
            sign = 1 if pair.higher == "a" else -1
            paired[name] += pair.ci_low <= sign * lead <= pair.ci_high
    least = 0.93 if n_items == 60 and a_cluster == 1 else 0.91
    assert all(least <= n / n_worlds <= 0.967 for n in single.values()), single
    assert all(0.93 <= n / n_worlds <= 0.967 for n in paired.values()), paired


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
