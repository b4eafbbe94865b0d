"""Speculative verification by a product of experts: what is accepted, what is drawn instead, and how sure that was.

One head drafts tokens from its own distribution q. The others are the jury, whose target is the product of experts

    P(x) ~ exp(beta * sum_h log softmax(logits_h / T)(x))  =  softmax(beta / T * sum_h logits_h)(x)

since the normaliser of each head is the same for every x. A drafted x is accepted with probability min(1, P(x) / q(x)),
and the first one that is not is replaced by a draw from max(P - q, 0), normalised; then what is emitted is distributed
as P, whatever q is (Leviathan et al. 2023, Chen et al. 2023). A temperature of None is greedy: q and P have all their
mass on their highest logit, so that a draft is accepted if it is what P would say.

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
class Ruling:
    """On the drafts of one round: how many from the first on were accepted, and the token drawn in place of the next
    one; None where all were accepted."""

    n_accepted: int
    replacement: int | None


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How sure the jury was at one position.

    entropy_nats      of P
    margin            of P, the probability of its likeliest token over that of the next
    stability_radius  votes that may change sides without another token getting more than the one with the most; each
                      head of the jury votes for its likeliest token
    """

    entropy_nats: float
    margin: float
    stability_radius: int


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """One draft that the jury refused.

    position           of the token emitted in its place, counted from 0
    suppression_score  P(draft): how likely the jury thought it
    validity_radius    votes that would have to change sides for it to have more than any other token
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


def product(logits: torch.Tensor, *, beta: float, temperature: float | None) -> torch.Tensor:
    """The jury's target P (..., V), of its logits (H, ..., V)."""
    import torch

    return distribution(beta * logits.sum(0, dtype=torch.float64), temperature)


def draw(probabilities: torch.Tensor, u: float) -> int:
    """The token at the share u, in [0, 1), of the total (V,): a sample, where u is uniform."""
    import torch

    total = probabilities.cumsum(0)
    return min(int(torch.searchsorted(total, u * total[-1], right=True)), len(total) - 1)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """What a rejected draft of q is replaced from: max(P - q, 0), not normalised. P itself where rounding leaves
    nothing of that."""
    left = (p - q).clamp(min=0)
    return left if left.any() else p


def verify(
    drafts: Sequence[int], q: torch.Tensor, p: torch.Tensor, rng: np.random.Generator
) -> Ruling:
    """The jury's ruling on drafts drawn from q (T, V), with the target P (T, V)."""
    for i, token in enumerate(drafts):
        if rng.random() * float(q[i, token]) >= float(p[i, token]):
            return Ruling(n_accepted=i, replacement=draw(residual(p[i], q[i]), rng.random()))
    return Ruling(n_accepted=len(drafts), replacement=None)


def trust(logits: torch.Tensor, *, beta: float, temperature: float | None) -> list[Trust]:
    """For each position of the jury's logits (H, T, V). Greedy ones are looked at with temperature 1."""
    import torch

    p = product(logits, beta=beta, temperature=temperature or 1.0)
    entropy = torch.special.entr(p).sum(-1).tolist()
    top = p.topk(2, dim=-1).values
    margin = (top[:, 0] - top[:, 1]).tolist()
    votes = logits.argmax(-1).T.tolist()
    return [
        Trust(entropy_nats=e, margin=m, stability_radius=stability_radius(v))
        for e, m, v in zip(entropy, margin, votes, strict=True)
    ]


def rejection(
    logits: torch.Tensor, draft: int, position: int, *, beta: float, temperature: float | None
) -> Rejection:
    """Of a draft, by the jury's logits (H, V) for its place. Greedy ones are looked at with temperature 1."""
    p = product(logits, beta=beta, temperature=temperature or 1.0)
    votes = logits.argmax(-1).tolist()
    return Rejection(
        position=position,
        suppression_score=float(p[draft]),
        validity_radius=validity_radius(votes, draft),
    )


def stability_radius(votes: Sequence[int]) -> int:
    """Half the lead of the token with the most votes over the next, rounded down."""
    counts = [n for _, n in Counter(votes).most_common(2)]
    return (counts[0] - sum(counts[1:])) // 2


def validity_radius(votes: Sequence[int], token: int) -> int:
    """The fewest votes that have to go over to a token for it to have more than any other: one at a time, from the
    one that then has the most."""
    others = Counter(votes)
    mine, flipped = others.pop(token, 0), 0
    while others and mine <= max(others.values()):
        others[max(others, key=others.__getitem__)] -= 1
        mine, flipped = mine + 1, flipped + 1
    return flipped
