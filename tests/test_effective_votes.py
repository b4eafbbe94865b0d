"""Judges that err on the same comparisons are worth fewer votes than they are: by how much, where answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from elo_exp.analysis.effective_votes import EffectiveVotes, effective_votes
from elo_exp.arrays import Array
from elo_exp.report.sentences.vote_sentences import votes


def found(errors: Array, per: int = 1) -> EffectiveVotes:
    """Of errors (n, J), so many comparisons a prompt."""
    n, n_judges = errors.shape
    by_judge = {f"j{j}": errors[:, j] for j in range(n_judges)}
    return effective_votes(by_judge, [f"p{i // per}" for i in range(n)])


def shared(n: int, n_judges: int, *, p: float, rho: float, seed: int = 0) -> Array:
    """Each takes a common error or one of its own, so that any two correlate by rho."""
    rng = np.random.default_rng(seed)
    common, own = rng.random((n, 1)) < p, rng.random((n, n_judges)) < p
    takes = rng.random((n, n_judges)) < np.sqrt(rho)
    return np.where(takes, common, own).astype(float)


def hard(n: int, n_judges: int, *, p: float, rho: float, per: int = 1, seed: int = 0) -> Array:  # fmt: skip
    """Prompts are easy or hard for all: p(wrong) is drawn from a Beta distribution for each."""
    rng = np.random.default_rng(seed)
    s = 1.0 / rho - 1.0
    difficulty = np.repeat(rng.beta(p * s, (1.0 - p) * s, size=n // per), per)
    return (rng.random((n, n_judges)) < difficulty[:, None]).astype(float)


def test_two_judges_by_hand():
    """Twenty wrong each of forty, ten of them both: chance, so that two are two. Fifteen both: rho .5, 4/3 votes."""
    table = np.zeros((40, 2))
    table[:20, 0] = table[10:30, 1] = 1.0
    assert found(table).rho == pytest.approx(0.0)
    assert found(table).votes == pytest.approx(2.0)
    table[:, 1] = 0.0
    table[5:25, 1] = 1.0
    one = found(table)
    assert (one.rho, one.votes) == (pytest.approx(0.5), pytest.approx(2.0 / 1.5))
    assert one.rho == pytest.approx(np.corrcoef(table.T)[0, 1])
    assert one.low < one.votes < one.high <= 2.0


def test_the_mean_of_every_two_and_errors_of_one_order_count_half():
    rng = np.random.default_rng(3)
    table = rng.choice([0.0, 0.5, 1.0], size=(200, 1)) + rng.normal(size=(200, 4))
    correlations = np.corrcoef(table.T)[np.triu_indices(4, k=1)]
    assert found(table).rho == pytest.approx(correlations.mean())


@pytest.mark.parametrize("world", [shared, hard])
@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
def test_a_known_rho_is_recovered(world, rho: float):
    one = found(world(4000, 3, p=0.3, rho=rho))
    assert one.rho == pytest.approx(rho, abs=0.04)
    assert one.rho_low < rho < one.rho_high
    assert one.votes == pytest.approx(3.0 / (1.0 + 2.0 * rho), abs=0.1)
    assert one.refusal is None


def test_comparisons_of_a_prompt_are_one_observation():
    """Each error four times over: the same estimate, and an interval that is as wide as before."""
    once = shared(100, 3, p=0.4, rho=0.5)
    four = found(np.repeat(once, 4, axis=0), per=4)
    one = found(once)
    assert (four.n, four.n_prompts) == (400, 100)
    assert four.rho == pytest.approx(one.rho)
    width = one.rho_high - one.rho_low
    assert four.rho_high - four.rho_low == pytest.approx(width, rel=0.1)


def test_what_a_judge_has_not_judged_counts_for_none():
    table = shared(100, 2, p=0.4, rho=0.5)
    with_more = np.vstack([table, [[np.nan, 1.0]] * 50])
    assert found(with_more).rho == found(table).rho and found(with_more).n == 100


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (shared(20, 2, p=0.4, rho=0.5), "20 comparisons on 20 prompts have a known answer"),
        (shared(100, 2, p=0.03, rho=0.0), "is wrong on "),
        (shared(100, 2, p=0.4, rho=1.0), "their errors differ on only 0 prompts"),
        (shared(40, 2, p=0.4, rho=0.3), "too few answers are known to tell whether 2 judges make the same errors (rho"),
    ],
)  # fmt: skip
def test_little_is_no_claim(table: Array, said: str):
    one = found(table)
    assert one.refusal is not None and said in votes(one)
    assert one.to_dict()["no_claim"] == one.refusal.name


def test_what_is_said():
    one = found(shared(1000, 3, p=0.3, rho=0.5))
    assert votes(one) == (
        f"3 judges tend to make the same errors (rho {one.rho:.2f} [{one.rho_low:.2f}, {one.rho_high:.2f}]): they are worth "
        f"{one.votes:.1f} [{one.low:.1f}, {one.high:.1f}] independent votes, on 1000 comparisons"
    )
    apart = found(shared(1000, 3, p=0.3, rho=0.0))
    assert votes(apart).startswith("it is not shown that 3 judges make the same errors (rho ")  # fmt: skip
    assert (
        apart.high == 3.0
    )  # of errors that go apart nobody makes more votes than judges


@pytest.mark.slow
@pytest.mark.parametrize("world", [shared, hard])
@pytest.mark.parametrize("n_judges", [2, 3, 6])
def test_intervals_of_95_percent_cover(world, n_judges: int):
    """Each with errors of 15 and 35%, 60 to 400 comparisons, rho .05 to .9: where an interval is given at all."""
    n_covered = n_given = 0
    for p in (0.15, 0.35):
        for rho in (0.05, 0.3, 0.6, 0.9):
            here = there = 0
            for n in (60, 100, 400):
                for seed in range(150):
                    one = found(world(n, n_judges, p=p, rho=rho, seed=seed))
                    if np.isfinite(one.rho):
                        there += 1
                        here += one.rho_low <= rho <= one.rho_high
            # least where rho is .9 and of few errors enough differ for an interval: of two judges .89
            assert here / there > 0.88
            n_covered, n_given = n_covered + here, n_given + there
    assert 0.93 <= n_covered / n_given <= 0.98


@pytest.mark.slow
def test_intervals_cover_where_prompts_have_four_comparisons():
    covered = [
        one.rho_low <= 0.4 <= one.rho_high
        for seed in range(300)
        for one in [found(hard(400, 3, p=0.3, rho=0.4, per=4, seed=seed), per=4)]
    ]
    assert 0.92 <= np.mean(covered) <= 0.98
