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
    Decoded,
    Sampling,
    draw,
    residual,
    softmax,
    stability_radius,
    validity_radius,
    verify,
)


def sampling(beta: float, temperature: float | None) -> Sampling:
    return Sampling(
        beta=beta, temperature=temperature, gamma=4, max_new_tokens=9, end_ids=()
    )


def random_logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 1.5


@pytest.mark.parametrize(("beta", "temperature"), [(1.0, 1.0), (0.125, 0.98), (2, 0.5)])
def test_the_product_multiplies_the_heads_probabilities(beta, temperature):
    logits = random_logits(4, 3, 7)
    weights = (logits.double() / temperature).softmax(-1).prod(0) ** beta
    expected = weights / weights.sum(-1, keepdim=True)
    found = sampling(beta, temperature).product(logits)
    assert torch.allclose(found, expected, atol=1e-12)
    cold = sampling(beta, 1e-3).product(logits)
    assert torch.allclose(sampling(beta, None).product(logits), cold, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_accepted_drafts_and_replacements_add_up_to_the_target(seed):
    """A token is an accepted draft, min(P, q), or replaces a rejected one: together exactly P."""
    q, p = softmax(random_logits(2, 9, seed=seed), 1.0)
    accepted = torch.minimum(p, q)
    left = residual(p, q)
    emitted = accepted + (1 - accepted.sum()) * left / left.sum()
    assert torch.allclose(emitted, p, atol=1e-12)
    assert torch.equal(residual(p, p), p)  # where rounding leaves nothing


N_ROUNDS = 4000


def test_what_is_emitted_is_distributed_as_the_target():
    """Chi-square of the first of two drafts' tokens and of the second after each.

    The second draft's distributions depend on the first draft. Drafts alone fail the test.
    """
    q, p = softmax(random_logits(2, 2, 4, 4, seed=3), 1.0)
    rng = np.random.default_rng(2)
    emitted = []
    for _ in range(N_ROUNDS):
        first = draw(q[0, 0], rng.random())
        drafts = [first, draw(q[1, first], rng.random())]
        drawn_from, target = (torch.stack([x[0, 0], x[1, first]]) for x in (q, p))
        n_accepted, replacement = verify(drafts, drawn_from, target, rng)
        replaced = [] if replacement is None else [replacement]
        emitted.append(drafts[:n_accepted] + replaced)
    counts = np.bincount([tokens[0] for tokens in emitted], minlength=4)
    assert stats.chisquare(counts, N_ROUNDS * p[0, 0].numpy()).pvalue > 1e-3
    assert stats.chisquare(counts, N_ROUNDS * q[0, 0].numpy()).pvalue < 1e-6
    for token in range(4):
        pairs = [t[1] for t in emitted if t[0] == token and len(t) == 2]
        second = np.bincount(pairs, minlength=4)
        assert stats.chisquare(second, second.sum() * p[1, token].numpy()).pvalue > 1e-3


def test_a_greedy_draft_is_accepted_if_it_is_the_targets_own_choice():
    rng = np.random.default_rng(0)
    p, q = (torch.eye(3, dtype=torch.float64)[rows] for rows in ([1, 0, 2], [1, 2, 2]))
    assert verify([1, 2, 2], q, p, rng) == (1, 0)
    assert verify([1, 0, 2], p, p, rng) == (3, None)


# Diagnostics


@pytest.mark.parametrize("temperature", [1.0, None])
def test_the_diagnostics_of_tokens_by_hand(temperature):
    """Three heads over four tokens: first all prefer token 2, then no two agree.

    The second replaces a draft, token 3. Greedy answers are diagnosed at temperature 1.
    """
    sure = torch.tensor([0.0, 0.0, math.log(5), 0.0]).expand(3, -1)
    torn = torch.eye(4)[:3] * math.log(2)
    decoded = Decoded(sampling=sampling(1 / 3, temperature), tokens=[7, 7, 7])
    decoded.diagnose(torch.stack([sure, torn], dim=1), 2, rejected=3)
    found = decoded.diagnostics
    assert found["margin"] == pytest.approx([5 / 8 - 1 / 8, 0])
    entropies = [stats.entropy([5, 1, 1, 1]), stats.entropy([2 ** (1 / 3)] * 3 + [1])]
    assert found["entropy_nats"] == pytest.approx(entropies)
    assert found["stability_radius"] == [
        1,
        0,
    ]  # of 3 votes to 0, with one gone it leads
    assert found["suppression_score"] == pytest.approx([1 / (1 + 3 * 2 ** (1 / 3))])
    assert (found["rejected_at"], found["validity_radius"]) == ([4], [2])


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
