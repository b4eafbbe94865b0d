"""Speculative verification emits samples of the product of experts; its diagnostics by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from itertools import product as tuples

import numpy as np
import pytest
import torch
from scipy import stats

from elo_exp.models.speculative import (
    distribution,
    draw,
    product,
    rejection,
    residual,
    stability_radius,
    token_diagnostics,
    validity_radius,
    verify,
)


def random_logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 1.5


@pytest.mark.parametrize(("beta", "temperature"), [(1.0, 1.0), (0.125, 0.98), (2, 0.5)])
def test_the_product_multiplies_the_heads_probabilities(beta, temperature):
    logits = random_logits(4, 3, 7)
    weights = (logits.double() / temperature).softmax(-1).prod(0) ** beta
    expected = weights / weights.sum(-1, keepdim=True)
    found = product(logits, beta=beta, temperature=temperature)
    assert torch.allclose(found, expected, atol=1e-12)


def test_two_experts_by_hand():
    """(1/2, 1/4, 1/4) and (1/4, 1/4, 1/2) multiply to (2, 1, 2) sixteenths: .4, .2, .4."""
    logits = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]).log()[:, None]
    found = product(logits, beta=1.0, temperature=1.0)
    assert found[0].tolist() == pytest.approx([0.4, 0.2, 0.4])


def test_greedy_is_the_limit_of_a_falling_temperature():
    logits = random_logits(4, 3, 7)
    cold = product(logits, beta=1.0, temperature=1e-3)
    assert torch.allclose(product(logits, beta=1.0, temperature=None), cold, atol=1e-9)


def test_a_draw_is_the_token_at_a_share_of_the_total():
    weights = torch.tensor([0.0, 0.5, 0.0, 1.5], dtype=torch.float64)
    drawn = [draw(weights, u) for u in (0.0, 0.1, 0.2499, 0.25, 0.9, 1 - 2**-53)]
    assert drawn == [1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize("seed", range(5))
def test_accepted_drafts_and_replacements_add_up_to_the_target(seed):
    """A token is an accepted draft, min(P, q), or replaces a rejected one: together exactly P."""
    q, p = distribution(random_logits(2, 9, seed=seed), 1.0)
    accepted = torch.minimum(p, q)
    left = residual(p, q)
    emitted = accepted + (1 - accepted.sum()) * left / left.sum()
    assert torch.allclose(emitted, p, atol=1e-12)
    assert torch.equal(residual(p, p), p)  # where rounding leaves nothing


N_ROUNDS = 4000


def rounds(q: torch.Tensor, p: torch.Tensor) -> list[list[int]]:
    """Tokens of many rounds of two drafts; the second's distributions depend on the first."""
    rng = np.random.default_rng(2)
    emitted = []
    for _ in range(N_ROUNDS):
        first = draw(q[0, 0], rng.random())
        drafts = [first, draw(q[1, first], rng.random())]
        drawn_from, target = (torch.stack([x[0, 0], x[1, first]]) for x in (q, p))
        verification = verify(drafts, drawn_from, target, rng)
        tokens = drafts[: verification.n_accepted]
        if verification.replacement is not None:
            tokens.append(verification.replacement)
        emitted.append(tokens)
    return emitted


def test_what_is_emitted_is_distributed_as_the_target():
    """Chi-square of the first token and of the second after each; drafts alone fail it."""
    q, p = distribution(random_logits(2, 2, 4, 4, seed=3), 1.0)
    emitted = rounds(q, p)
    first = np.bincount([tokens[0] for tokens in emitted], minlength=4)
    assert stats.chisquare(first, N_ROUNDS * p[0, 0].numpy()).pvalue > 1e-3
    assert stats.chisquare(first, N_ROUNDS * q[0, 0].numpy()).pvalue < 1e-6
    for token in range(4):
        pairs = [t[1] for t in emitted if t[0] == token and len(t) == 2]
        second = np.bincount(pairs, minlength=4)
        assert stats.chisquare(second, second.sum() * p[1, token].numpy()).pvalue > 1e-3


def test_a_greedy_draft_is_accepted_if_it_is_the_targets_own_choice():
    rng = np.random.default_rng(0)
    p, q = (torch.eye(3, dtype=torch.float64)[rows] for rows in ([1, 0, 2], [1, 2, 2]))
    verification = verify([1, 2, 2], q, p, rng)
    assert (verification.n_accepted, verification.replacement) == (1, 0)
    assert verify([1, 0, 2], p, p, rng).replacement is None


# Diagnostics


def test_token_diagnostics_by_hand():
    """Three heads over four tokens: at the first position all prefer 2, at the second none agree."""
    sure = torch.tensor([0.0, 0.0, math.log(5), 0.0]).expand(3, -1)
    torn = torch.eye(4)[:3] * math.log(2)
    logits = torch.stack([sure, torn], dim=1)
    certain, doubtful = token_diagnostics(logits, beta=1 / 3, temperature=1.0)
    assert certain.margin == pytest.approx(5 / 8 - 1 / 8)
    entropy = stats.entropy([5, 1, 1, 1])
    assert certain.entropy_nats == pytest.approx(entropy)
    assert certain.stability_radius == 1  # 3 votes to 0: with one gone it still leads
    assert doubtful.margin == pytest.approx(0)
    entropy = stats.entropy([2 ** (1 / 3)] * 3 + [1])
    assert doubtful.entropy_nats == pytest.approx(entropy)
    assert doubtful.stability_radius == 0
    # Greedy answers are diagnosed at temperature 1.
    greedy = token_diagnostics(logits, beta=1 / 3, temperature=None)
    assert greedy == [certain, doubtful]


@pytest.mark.parametrize(
    ("votes", "radius"),
    [("aaaaaaaa", 4), ("aaaaaaab", 3), ("aaaabbbb", 0), ("aaaabbcc", 1), ("a", 0)],
)
def test_the_stability_radius_is_half_the_lead_in_votes(votes, radius):
    assert stability_radius([ord(vote) for vote in votes]) == radius


def fewest_flips(votes: tuple[int, ...], token: int) -> int:
    """By trying all: the smallest set of votes whose change gives the token the most."""
    for n in range(len(votes) + 1):
        for some in combinations(range(len(votes)), n):
            changed = [token if i in some else vote for i, vote in enumerate(votes)]
            counts = Counter(changed)
            mine = counts.pop(token, 0)
            if all(mine > count for count in counts.values()):
                return n
    raise AssertionError


def test_the_validity_radius_is_the_fewest_votes_to_change():
    assert validity_radius([1, 1, 1, 2, 2, 3], 3) == 2  # 1 loses two: 1 2 2 3 3 3
    for votes in tuples(range(3), repeat=5):
        assert validity_radius(votes, 0) == fewest_flips(votes, 0)


def test_a_rejection_has_the_jurys_probability_of_the_draft():
    logits = torch.tensor([[0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    for temperature in (1.0, None):
        found = rejection(logits, 0, 5, beta=0.5, temperature=temperature)
        expected = 1 / (1 + math.exp(2) + math.exp(1))
        assert found.suppression_score == pytest.approx(expected)
        assert (found.position, found.validity_radius) == (5, 2)
