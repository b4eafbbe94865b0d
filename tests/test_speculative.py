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


def random_logits(*shape: int, seed: int = 0, scale: float = 1.5) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


# The target


@pytest.mark.parametrize(
    ("beta", "temperature"), [(1.0, 1.0), (0.125, 0.98), (2.0, 0.5)]
)
def test_the_product_multiplies_the_heads_probabilities(beta, temperature):
    logits = random_logits(4, 3, 7)
    logs = (logits.double() / temperature).log_softmax(-1)
    weights = (beta * logs.sum(0)).exp()
    expected = weights / weights.sum(-1, keepdim=True)
    assert torch.allclose(
        product(logits, beta=beta, temperature=temperature), expected, atol=1e-12
    )


def test_two_experts_by_hand():
    """(1/2, 1/4, 1/4) and (1/4, 1/4, 1/2) multiply to (2, 1, 2) sixteenths: (0.4, 0.2, 0.4)."""
    logits = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]).log()[:, None]
    assert product(logits, beta=1.0, temperature=1.0)[0].tolist() == pytest.approx(
        [0.4, 0.2, 0.4]
    )


def test_equal_heads_make_it_their_own_distribution_sharpened():
    one = random_logits(3, 7)
    logits = one.expand(8, -1, -1)
    for beta in (1.0, 0.5):
        sharpened = distribution(one * (8 * beta), 0.98)
        assert torch.allclose(
            product(logits, beta=beta, temperature=0.98), sharpened, atol=1e-12
        )
    own = distribution(one, 0.98)
    assert torch.allclose(
        product(logits, beta=1 / 8, temperature=0.98), own, atol=1e-12
    )


def test_greedy_is_what_the_product_tends_to_as_the_temperature_falls():
    logits = random_logits(4, 3, 7)
    cold = product(logits, beta=1.0, temperature=1e-3)
    assert torch.allclose(product(logits, beta=1.0, temperature=None), cold, atol=1e-9)
    assert distribution(torch.tensor([0.0, 2.0, 1.0]), None).tolist() == [0, 1, 0]


# Drawing


def test_a_draw_is_the_token_at_a_share_of_the_total():
    weights = torch.tensor([0.0, 0.5, 0.0, 1.5], dtype=torch.float64)
    drawn = {u: draw(weights, u) for u in (0.0, 0.1, 0.2499, 0.25, 0.9, 1 - 2**-53)}
    assert list(drawn.values()) == [1, 1, 1, 3, 3, 3]


# Verification


@pytest.mark.parametrize("seed", range(5))
def test_accepted_drafts_and_replacements_add_up_to_the_target(seed):
    """A token is an accepted draft, min(P, q), or replaces a rejected one: together exactly P."""
    q, p = distribution(random_logits(2, 9, seed=seed), 1.0)
    accepted = torch.minimum(p, q)
    left = residual(p, q)
    emitted = accepted + (1 - accepted.sum()) * left / left.sum()
    assert torch.allclose(emitted, p, atol=1e-12)


N_ROUNDS = 4000


def rounds(q: torch.Tensor, p: torch.Tensor) -> list[list[int]]:
    """Tokens of many rounds of two drafts; the second's distributions depend on the first."""
    rng = np.random.default_rng(2)
    emitted = []
    for _ in range(N_ROUNDS):
        first = draw(q[0, 0], rng.random())
        drafts = [first, draw(q[1, first], rng.random())]
        verification = verify(
            drafts,
            torch.stack([q[0, 0], q[1, first]]),
            torch.stack([p[0, 0], p[1, first]]),
            rng,
        )
        replaced = (
            [] if verification.replacement is None else [verification.replacement]
        )
        emitted.append(drafts[: verification.n_accepted] + replaced)
    return emitted


def test_what_is_emitted_is_distributed_as_the_target():
    """Chi-square of the first token and of the second after each; drafts alone fail it."""
    q, p = distribution(random_logits(2, 2, 4, 4, seed=3), 1.0)
    emitted = rounds(q, p)
    first = np.bincount([tokens[0] for tokens in emitted], minlength=4)
    assert stats.chisquare(first, N_ROUNDS * p[0, 0].numpy()).pvalue > 1e-3
    assert stats.chisquare(first, N_ROUNDS * q[0, 0].numpy()).pvalue < 1e-6
    for token in range(4):
        second = np.bincount(
            [t[1] for t in emitted if t[0] == token and len(t) == 2], minlength=4
        )
        assert stats.chisquare(second, second.sum() * p[1, token].numpy()).pvalue > 1e-3


def test_a_greedy_draft_is_accepted_if_it_is_the_targets_own_choice():
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    p = distribution(logits, None)
    q = distribution(
        torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), None
    )
    verification = verify([1, 2, 2], q, p, np.random.default_rng(0))
    assert (verification.n_accepted, verification.replacement) == (1, 0)
    assert verify([1, 0, 2], p, p, np.random.default_rng(0)).replacement is None


def test_where_rounding_leaves_no_residual_the_replacement_is_drawn_from_the_target():
    p = torch.tensor([0.25, 0.75], dtype=torch.float64)
    assert torch.equal(residual(p, p), p)


# TokenDiagnostics


def test_token_diagnostics_by_hand():
    """Three heads over four tokens: at the first position all prefer 2, at the second none agree."""
    sure = torch.tensor([0.0, 0.0, math.log(5), 0.0]).expand(3, -1)
    torn = torch.eye(4)[:3] * math.log(2)
    certain, doubtful = token_diagnostics(
        torch.stack([sure, torn], dim=1), beta=1 / 3, temperature=1.0
    )

    assert certain.margin == pytest.approx(5 / 8 - 1 / 8)
    assert certain.entropy_nats == pytest.approx(
        -(5 / 8) * math.log(5 / 8) - 3 * (1 / 8) * math.log(1 / 8)
    )
    assert certain.stability_radius == 1  # 3 votes to 0: with one gone it still leads
    total = 3 * 2 ** (1 / 3) + 1
    assert doubtful.margin == pytest.approx(0)
    assert doubtful.entropy_nats == pytest.approx(
        math.log(total) - 2 ** (1 / 3) * math.log(2) / total
    )
    assert doubtful.stability_radius == 0


def test_greedy_answers_are_looked_at_with_temperature_one():
    logits = random_logits(3, 2, 7)
    assert token_diagnostics(logits, beta=1.0, temperature=None) == token_diagnostics(
        logits, beta=1.0, temperature=1.0
    )
    assert rejection(
        logits[:, 0], 3, 0, beta=1.0, temperature=None
    ).suppression_score == pytest.approx(
        float(product(logits, beta=1.0, temperature=1.0)[0, 3])
    )


@pytest.mark.parametrize(
    ("votes", "radius"),
    [
        ("aaaaaaaa", 4),
        ("aaaaaaab", 3),
        ("aaaaabbb", 1),
        ("aaaabbbb", 0),
        ("aaabbccd", 0),
        ("aaaabbcc", 1),
        ("a", 0),
    ],
)
def test_the_stability_radius_is_half_the_lead_in_votes(votes, radius):
    assert stability_radius([ord(vote) for vote in votes]) == radius


def fewest_flips(votes: tuple[int, ...], token: int) -> int:
    """By trying all: the smallest set of votes whose change gives the token the most."""
    for n in range(len(votes) + 1):
        for some in combinations(range(len(votes)), n):
            counts = Counter(
                token if i in some else vote for i, vote in enumerate(votes)
            )
            if all(
                counts[token] > count
                for other, count in counts.items()
                if other != token
            ):
                return n
    raise AssertionError


def test_the_validity_radius_is_the_fewest_votes_to_change():
    assert validity_radius([1, 1, 1, 2, 2, 3], 3) == 2  # 1 loses two: 1 2 2 3 3 3
    for votes in tuples(range(3), repeat=5):
        assert validity_radius(votes, 0) == fewest_flips(votes, 0)


def test_a_rejection_says_how_likely_the_jury_thought_the_draft():
    logits = torch.tensor([[0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    found = rejection(logits, 0, 5, beta=0.5, temperature=1.0)
    assert found.position == 5
    assert found.suppression_score == pytest.approx(1 / (1 + math.exp(2) + math.exp(1)))
    assert found.validity_radius == 2
