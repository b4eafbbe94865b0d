"""Exponential races: the noise is a generator's that others have, the law is exact, and near distributions draw alike."""

import numpy as np
import pytest
import torch
from scipy import stats

from elo_exp.models import races

# 20,000 prompts that draw one token each
MANY = range(20_000)


def law(seed: int, n: int = 512) -> torch.Tensor:
    logits = torch.randn(n, generator=torch.Generator().manual_seed(seed)) * 2
    return logits.double().softmax(-1)


def drawn(chances: torch.Tensor, draw: int = races.DRAFT, step: int = 0) -> np.ndarray:
    """A token of each seed."""
    n = len(chances)
    noise = races.exponentials(MANY, n, draw=draw, step=step, device="cpu")
    return races.race_winners(noise, chances.expand(len(MANY), n)).numpy()


# The noise


@pytest.mark.parametrize("n", [1, 4, 513])
def test_the_integer_arithmetic_of_a_device_is_numpys_generator_bit_for_bit(n):
    seeds = [0, 1, 935_607_308, 2**32 - 1]
    for draw, step in ((races.DRAFT, 0), (races.REPLACEMENT, 1), (7, 2**31)):
        device = races.philox(seeds, n, draw=draw, step=step, device="cpu")
        for seed, row in zip(seeds, device.numpy().view(np.uint64), strict=True):
            source = np.random.Philox(key=[seed, draw], counter=[0, step, 0, 0])
            np.testing.assert_array_equal(row, source.random_raw(n))


def test_numbers_are_those_of_seed_draw_step_and_token_whatever_is_drawn_beside_them():
    """Frozen: a change would change every stored sampled answer."""
    settings = {"draw": races.VERDICT, "step": 3, "device": "cpu"}
    both = races.uniforms([4, 9], 6, **settings)
    assert both.dtype == torch.float64
    (alone,) = races.uniforms([9], 2, **settings)
    assert torch.equal(both[1, :2], alone)
    assert alone.tolist() == [0.28737706929830803, 0.821006267861091]
    others = [{**settings, "draw": 0}, {**settings, "step": 4}]
    assert not any(torch.equal(races.uniforms([9], 2, **o)[0], alone) for o in others)


def test_no_number_is_zero_and_none_lets_an_impossible_token_win():
    """The extremes of 53 bits: u of 2**-54 and 1 are noise of 5.6e-17 and infinity."""
    noise = -torch.log1p(-torch.tensor([[2.0**-54, 1.0, 0.5]], dtype=torch.float64))
    assert noise[0, :2].tolist() == [pytest.approx(2.0**-54), float("inf")]
    assert races.race_winners(noise, torch.tensor([[0.0, 0.9, 0.1]])).tolist() == [2]
    assert races.race_winners(noise, torch.tensor([[1e-12, 0.9, 0.1]])).tolist() == [0]


# The law


@pytest.mark.parametrize(
    ("noise", "top_p", "token"),
    [
        ([1.0, 0.5, 2.0], 1.0, 1),  # 5, 1 and 6.7 seconds
        ([0.1, 0.5, 2.0], 1.0, 0),  # .5
        ([0.1, 0.5, 2.0], 0.7, 1),  # the nucleus: .5 of token 1, then .3 of token 2
        ([0.1, 5.0, 2.0], 0.7, 2),
        ([0.1, 5.0, 2.0], 0.5, 1),  # token 1 alone reaches a half
    ],
)
def test_the_token_with_the_least_noise_over_probability_wins(noise, top_p, token):
    """Probabilities .2, .5 and .3."""
    chances = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    found = races.race_winners(
        torch.tensor([noise], dtype=torch.float64), chances, top_p
    )
    assert found.tolist() == [token]


def p_value(tokens: np.ndarray, chances: torch.Tensor) -> float:
    """Chi-square, the tokens that are expected less than five times pooled."""
    expected = len(tokens) * chances.numpy()
    counts = np.bincount(tokens, minlength=len(expected))
    often = expected >= 5
    observed = [*counts[often], counts[~often].sum()]
    return stats.chisquare(observed, [*expected[often], expected[~often].sum()]).pvalue


@pytest.mark.system
@pytest.mark.parametrize(("draw", "step"), [(races.DRAFT, 0), (races.REPLACEMENT, 9)])
def test_tokens_are_drawn_with_their_probabilities(draw, step):
    """20,000 of 512."""
    chances = law(0)
    assert p_value(drawn(chances, draw, step), chances) > 1e-3


@pytest.mark.system
def test_draws_and_steps_of_a_prompt_are_independent():
    """The pairs of two tokens of each prompt, by their ranks in four classes of a quarter."""
    chances = torch.full((4,), 0.25, dtype=torch.float64)
    first = drawn(chances)
    for other in (drawn(chances, races.REPLACEMENT), drawn(chances, step=1)):
        table = np.histogram2d(first, other, bins=4)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3


# Common random numbers


def by_inversion(chances: torch.Tensor) -> np.ndarray:
    """What was done before: the place of a uniform number among the sums of probabilities."""
    u = races.uniforms(MANY, 1, draw=races.VERDICT, step=0, device="cpu")
    return np.searchsorted(chances.cumsum(-1).numpy(), u[:, 0].numpy())


@pytest.mark.system
def test_two_distributions_draw_another_token_as_often_as_they_must_or_less_than_twice():
    """Between the total variation d, below which no coupling comes, and 2 d / (1 + d)."""
    one, other = law(1), (law(1) * (1 + 0.2 * law(2).argsort() / 512)).double()
    other /= other.sum()
    d = float((one - other).abs().sum() / 2)
    share = np.mean(drawn(one) != drawn(other))
    error = 4 * (d / len(MANY)) ** 0.5
    assert d - error < share < 2 * d / (1 + d) + error


@pytest.mark.system
def test_a_change_of_the_first_token_leaves_the_others_where_they_were():
    """Half a percent of probability goes from token 0 to token 511: all between moved before."""
    one = torch.full((512,), 1 / 514, dtype=torch.float64)
    one[0] = 3 / 514
    other = one.clone()
    other[[0, 511]] = one[[511, 0]]  # d = 2 / 514, .0039
    races_differ = np.mean(drawn(one) != drawn(other))
    assert 0.0039 / 2 < races_differ < 2 * 0.0039
    assert np.mean(by_inversion(one) != by_inversion(other)) > 0.9
