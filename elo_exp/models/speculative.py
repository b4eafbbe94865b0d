"""Speculative verification by a product of experts, and its diagnostics.

One head drafts tokens from its own distribution q. The others are the jury, whose target is the
product of experts

    P(x) ~ exp(beta * sum_h log softmax(logits_h / T)(x))  =  softmax(beta / T * sum_h logits_h)(x)

since the normaliser of each head is the same for every x. A drafted x is accepted with probability
min(1, P(x) / q(x)), and the first one rejected is replaced by a draw from max(P - q, 0),
normalised; what is emitted is then distributed as P, whatever q is (Leviathan et al. 2023, Chen et
al. 2023). A temperature of None is greedy: q and P have all their mass on their highest logit.

Letters: H heads of the jury, T positions, V the vocabulary. Probabilities are float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Accepted drafts of one round, and the replacement of the next; None if all are accepted."""

    n_accepted: int
    replacement: int | None


@dataclass(frozen=True, kw_only=True)
class TokenDiagnostics:
    """The jury's certainty at one position.

    entropy_nats      of P
    margin            probability of P's likeliest token minus that of the next
    stability_radius  votes that may change without another token overtaking the first; each head of
                      the jury votes for its likeliest token
    """

    entropy_nats: float
    margin: float
    stability_radius: int


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A rejected draft.

    position           of the token emitted in its place, counted from 0
    suppression_score  P(draft)
    validity_radius    votes that would have to change for the draft to have the most
    """

    position: int
    suppression_score: float
    validity_radius: int


def distribution(logits: torch.Tensor, temperature: float | None) -> torch.Tensor:
    """Probabilities (..., V) of logits (..., V)."""
    import torch

    if temperature is None:
        greedy = torch.zeros_like(logits, dtype=torch.float64)
        return greedy.scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.softmax(logits.double() / temperature, dim=-1)


def product(
    logits: torch.Tensor, *, beta: float, temperature: float | None
) -> torch.Tensor:
    """Return the jury's target P (..., V) from its logits (H, ..., V)."""
    import torch

    return distribution(beta * logits.sum(0, dtype=torch.float64), temperature)


def draw(probabilities: torch.Tensor, u: float) -> int:
    """Sample from (V,) by inverse cumulative probability at u in [0, 1)."""
    import torch

    total = probabilities.cumsum(0)
    return min(
        int(torch.searchsorted(total, u * total[-1], right=True)), len(total) - 1
    )


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return max(P - q, 0), not normalised; P itself where rounding leaves nothing."""
    left = (p - q).clamp(min=0)
    return left if left.any() else p


def verify(
    drafts: Sequence[int], q: torch.Tensor, p: torch.Tensor, rng: np.random.Generator
) -> Verification:
    """Verify drafts (T) drawn from q (T, V) against the target P (T, V)."""
    for i, token in enumerate(drafts):
        if rng.random() * float(q[i, token]) >= float(p[i, token]):
            return Verification(
                n_accepted=i, replacement=draw(residual(p[i], q[i]), rng.random())
            )
    return Verification(n_accepted=len(drafts), replacement=None)


def token_diagnostics(
    logits: torch.Tensor, *, beta: float, temperature: float | None
) -> list[TokenDiagnostics]:
    """Diagnose each position of the jury's logits (H, T, V); greedy ones at temperature 1."""
    import torch

    p = product(logits, beta=beta, temperature=temperature or 1.0)
    entropy = torch.special.entr(p).sum(-1).tolist()
    top = p.topk(2, dim=-1).values
    margin = (top[:, 0] - top[:, 1]).tolist()
    votes = logits.argmax(-1).T.tolist()
    return [
        TokenDiagnostics(entropy_nats=e, margin=m, stability_radius=stability_radius(v))
        for e, m, v in zip(entropy, margin, votes, strict=True)
    ]


def rejection(
    logits: torch.Tensor,
    draft: int,
    position: int,
    *,
    beta: float,
    temperature: float | None,
) -> Rejection:
    """Diagnose a rejected draft by the jury's logits (H, V); greedy ones at temperature 1."""
    p = product(logits, beta=beta, temperature=temperature or 1.0)
    votes = logits.argmax(-1).tolist()
    return Rejection(
        position=position,
        suppression_score=float(p[draft]),
        validity_radius=validity_radius(votes, draft),
    )


def stability_radius(votes: Sequence[int]) -> int:
    """Return half the lead of the token with the most votes, rounded down."""
    counts = [n for _, n in Counter(votes).most_common(2)]
    return (counts[0] - sum(counts[1:])) // 2


def validity_radius(votes: Sequence[int], token: int) -> int:
    """Return the fewest votes that must change for a token to have the most.

    They change one at a time, from the token that then has the most.
    """
    others = Counter(votes)
    mine, flipped = others.pop(token, 0), 0
    while others and mine <= max(others.values()):
        others[max(others, key=others.__getitem__)] -= 1
        mine, flipped = mine + 1, flipped + 1
    return flipped
