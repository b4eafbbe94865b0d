"""Speculative verification emits samples of the product of experts; its diagnostics by hand."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from itertools import product as tuples
from typing import Any

import pytest
import torch
from scipy import stats

from elo_exp.models.multihead import (
    Decoded,
    Sampling,
    Step,
    lead,
    residual,
    softmax,
    step,
    validity_radius,
)


def sampling(
    beta: float, temperature: float | None, decode: Any = "speculative"
) -> Sampling:
    return Sampling(
        decode=decode, beta=beta, temperature=temperature, max_new_tokens=9, end_ids=()
    )


def random_logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 1.5


def chosen(logits: torch.Tensor, drafters: Any, how: Sampling, seed: int = 0) -> Step:
    source = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(len(drafters), 3, generator=source, dtype=torch.float64)
    return step(logits, torch.as_tensor(drafters), uniforms, how)


@pytest.mark.parametrize(("beta", "temperature"), [(1.0, 1.0), (0.125, 0.98), (2, 0.5)])
def test_the_target_multiplies_the_probabilities_of_all_heads_but_the_drafter(
    beta, temperature
):
    logits, drafters = random_logits(4, 3, 7), [2, 0, 3]
    found = chosen(logits, drafters, sampling(beta, temperature)).target
    for i, drafter in enumerate(drafters):
        jury = logits[[head for head in range(4) if head != drafter], i]
        weights = (jury.double() / temperature).softmax(-1).prod(0) ** beta
        assert torch.allclose(found[i], weights / weights.sum(), atol=1e-12)
    cold = chosen(logits, drafters, sampling(beta, 1e-3, "direct"))
    assert torch.equal(
        chosen(logits, drafters, sampling(beta, None, "direct")).token, cold.token
    )


@pytest.mark.parametrize("seed", range(5))
def test_accepted_drafts_and_replacements_add_up_to_the_target(seed):
    """A token is an accepted draft, min(P, q), or replaces a rejected one: together exactly P."""
    q, p = softmax(random_logits(2, 9, seed=seed), 1.0)
    accepted = torch.minimum(p, q)
    left = residual(p, q)
    emitted = accepted + (1 - accepted.sum()) * left / left.sum()
    assert torch.allclose(emitted, p, atol=1e-12)
    assert torch.equal(residual(p, p), p)  # where rounding leaves nothing


def test_a_greedy_draft_is_accepted_if_it_is_the_targets_own_choice():
    drafts, choices = [1, 2, 2], [1, 0, 2]
    logits = torch.stack([torch.eye(3)[drafts], torch.eye(3)[choices]])
    found = chosen(logits, [0, 0, 0], sampling(1.0, None))
    assert found.accepted.tolist() == [True, False, True]
    assert found.token.tolist() == choices


def test_rounds_are_those_of_drafting_four_tokens_ahead():
    """A round ends with its first rejected draft, or after four accepted ones."""

    def n_rounds(accepted: str) -> int:
        return Decoded(accepted=[each == "a" for each in accepted]).n_rounds

    found = {
        each: n_rounds(each) for each in ("", "a", "aaaa", "aaaaa", "rrr", "aarar")
    }
    assert found == {"": 0, "a": 1, "aaaa": 1, "aaaaa": 2, "rrr": 3, "aarar": 2}


# Diagnostics


@pytest.mark.parametrize("temperature", [1.0, None])
def test_the_diagnostics_of_a_token_by_hand(temperature):
    """A jury of three over four tokens: for one prompt all prefer token 2, for another no two agree.

    The other's draft is token 3, which is rejected. Greedy answers are diagnosed at temperature 1.
    """
    sure = torch.tensor([0.0, 0.0, math.log(5), 0.0]).expand(3, -1)
    torn = torch.eye(4)[:3] * math.log(2)
    drafts = torch.eye(4)[[2, 3]] * 99
    logits = torch.cat([drafts[None], torch.stack([sure, torn], dim=1)])
    uniforms = torch.tensor([[0.5, 0.1, 0.5], [0.5, 0.99, 0.5]], dtype=torch.float64)
    found = step(logits, torch.tensor([0, 0]), uniforms, sampling(1 / 3, temperature))
    first, second = Decoded(tokens=[7]), Decoded(tokens=[7, 7, 7])
    found.diagnose([first, second])
    assert (first.accepted, second.accepted) == ([True], [False])
    assert first.diagnostics["margin"] == pytest.approx([5 / 8 - 1 / 8])
    assert second.diagnostics["margin"] == pytest.approx([0])
    entropies = [stats.entropy([5, 1, 1, 1]), stats.entropy([2 ** (1 / 3)] * 3 + [1])]
    each = [one.diagnostics["entropy_nats"][0] for one in (first, second)]
    assert each == pytest.approx(entropies)
    # Of 3 votes to 0, with one gone it leads.
    assert first.diagnostics["stability_radius"] == [1]
    assert second.diagnostics["stability_radius"] == [0]
    assert first.diagnostics["plurality_lead"] == [1]
    scores = second.diagnostics["suppression_score"]
    assert scores == pytest.approx([1 / (1 + 3 * 2 ** (1 / 3))])
    assert second.diagnostics["rejected_at"] == [3]
    assert second.diagnostics["validity_radius"] == [2]
    assert first.diagnostics["rejected_at"] == []


@pytest.mark.parametrize(
    ("votes", "of_a", "of_b"),
    [
        *(("aaaaaaaa", 4, 0), ("aaaaaaab", 3, 0), ("aaaabbbb", 0, 0)),
        *(("aaaabbcc", 1, 0), ("a", 0, 0), ("bbbc", 0, 1)),
    ],
)
def test_the_lead_is_half_the_votes_ahead_of_any_other_token(votes, of_a, of_b):
    cast = [ord(vote) for vote in votes]
    assert (lead(cast, ord("a")), lead(cast, ord("b"))) == (of_a, of_b)


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
