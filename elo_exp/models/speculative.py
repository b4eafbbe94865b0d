"""Answers of several heads: drafts of one, verified by a jury, or samples of their product.

One head drafts tokens from its own distribution q. The others are the jury, whose target is the
product of experts

    P(x) ~ exp(beta * sum_h log softmax(logits_h / T)(x))  =  softmax(beta / T * sum_h logits_h)(x)

since the normaliser of each head is the same for every x. A drafted x is accepted with probability
min(1, P(x) / q(x)), and the first one rejected is replaced by a draw from max(P - q, 0),
normalised; what is emitted is then distributed as P, whatever q is (Leviathan et al. 2023, Chen et
al. 2023). A temperature of None is greedy: q and P have all their mass on their highest logit.

Letters: H heads, T positions, d the hidden size, V the vocabulary. Probabilities are float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from elo_exp.models.generation import token_at
from elo_exp.models.multihead import MultiHead

if TYPE_CHECKING:
    import torch

BY_TOKEN = ("entropy_nats", "margin", "stability_radius")
BY_REJECTION = ("rejected_at", "suppression_score", "validity_radius")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """beta         exponent of the product of experts
    temperature  None for greedy
    gamma        tokens that are drafted before the jury verifies them
    end_ids      tokens that end an answer, and are its last
    """

    beta: float
    temperature: float | None
    gamma: int
    max_new_tokens: int
    end_ids: Collection[int]

    def product(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the jury's target P (..., V) from its logits (H, ..., V)."""
        return softmax(self.beta * logits.double().sum(0), self.temperature)


@dataclass(kw_only=True)
class Decoded:
    """An answer's tokens, and the jury's diagnostics of them.

    ended        by one of the end tokens, not by its length
    diagnostics  lists by name, empty where one head was alone:
                 entropy_nats       by token: of P
                 margin             by token: P's highest probability minus the next
                 stability_radius   by token, see stability_radius()
                 rejected_at        by rejected draft: its position, counted from 0
                 suppression_score  by rejected draft: P(draft)
                 validity_radius    by rejected draft, see validity_radius()
    witness      the state (d,) at the prompt's last position, before the final norm, of the head
                 behind the first token: its drafter, or the jury's head that finds it likeliest
    """

    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    n_rounds: int = 0
    n_accepted: int = 0
    diagnostics: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in (*BY_TOKEN, *BY_REJECTION)}
    )
    witness: torch.Tensor | None = None

    @property
    def n_left(self) -> int:
        """Tokens left until the limit."""
        return 0 if self.ended else self.sampling.max_new_tokens - len(self.tokens)

    def add(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.ended = self.tokens[-1] in self.sampling.end_ids

    def diagnose(self, logits: torch.Tensor, n: int, rejected: int | None) -> None:
        """Diagnose the next n tokens by the jury's logits (H, T, V), before they are added.

        rejected  the draft that the last of them replaces
        """
        import torch

        p = softmax(
            self.sampling.beta * logits[:, :n].double().sum(0),
            self.sampling.temperature or 1.0,
        )
        votes = logits[:, :n].argmax(-1).T.tolist()
        top = p.topk(2, dim=-1).values
        found = {
            "entropy_nats": torch.special.entr(p).sum(-1).tolist(),
            "margin": (top[:, 0] - top[:, 1]).tolist(),
            "stability_radius": [stability_radius(some) for some in votes],
        }
        if rejected is not None:
            found |= {
                "rejected_at": [len(self.tokens) + n - 1],
                "suppression_score": [float(p[-1, rejected])],
                "validity_radius": [validity_radius(votes[-1], rejected)],
            }
        for name, values in found.items():
            self.diagnostics[name] += values


def softmax(logits: torch.Tensor, temperature: float | None) -> torch.Tensor:
    """Return probabilities (..., V) of logits (..., V) divided by the temperature."""
    import torch

    if temperature is None:
        greedy = torch.zeros_like(logits, dtype=torch.float64)
        return greedy.scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.softmax(logits.double() / temperature, dim=-1)


def draw(probabilities: torch.Tensor, u: float) -> int:
    """Sample from (V,) by inverse cumulative probability at u in [0, 1)."""
    import torch

    uniform = torch.full_like(probabilities[:1], u)
    return int(token_at(uniform[None], probabilities[None], top_p=1.0))


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return max(P - q, 0), not normalised; P itself where rounding leaves nothing."""
    left = (p - q).clamp(min=0)
    return left if left.any() else p


def verify(
    drafts: Sequence[int], q: torch.Tensor, p: torch.Tensor, rng: np.random.Generator
) -> tuple[int, int | None]:
    """Verify drafts (T) drawn from q (T, V) against the target P (T, V).

    Returns how many are accepted, and the replacement of the next; None if all are accepted.
    """
    for i, token in enumerate(drafts):
        if rng.random() * float(q[i, token]) >= float(p[i, token]):
            return i, draw(residual(p[i], q[i]), rng.random())
    return len(drafts), None


def stability_radius(votes: Sequence[int]) -> int:
    """Return how many votes may change without another token overtaking the first.

    That is half its lead, rounded down. Each head of the jury votes for its likeliest token.
    """
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


def verified(
    model: MultiHead,
    ids: Sequence[int],
    *,
    drafter: int,
    jury: Sequence[int],
    sampling: Sampling,
    rng: np.random.Generator,
) -> Decoded:
    """Answer the prompt `ids` by one head's drafts, which the others verify: samples of P.

    The trunk is run once per draft. Where all drafts are accepted no further token is drawn: it
    would need a pass of the trunk, which the next draft makes anyway.
    """
    import torch

    text = _Text(model, ids, [drafter], jury)
    decoded = Decoded(sampling=sampling)
    while n_left := decoded.n_left:
        drafts: list[int] = []
        q, trunk, drafting = [], [], []
        while len(drafts) < min(sampling.gamma, n_left):
            trunk.append(text.read(drafts[-1] if drafts else text.last))
            states, logits = text.ask(0, trunk[-1])
            drafting.append(states[0, 0])
            q.append(softmax(logits[0, 0], sampling.temperature))
            drafts.append(draw(q[-1], rng.random()))
            if drafts[-1] in sampling.end_ids:
                break
        states, logits = text.ask(1, torch.cat(trunk, dim=1))
        p = sampling.product(logits)
        n_accepted, replacement = verify(drafts, torch.stack(q), p, rng)
        tokens, rejected = drafts[:n_accepted], None
        if replacement is not None:
            tokens.append(replacement)
            rejected = drafts[n_accepted]
        decoded.diagnose(logits, len(tokens), rejected)
        if decoded.witness is None:
            advocate = _advocate(states, logits, tokens[0])
            decoded.witness = drafting[0] if n_accepted else advocate
        decoded.n_rounds += 1
        decoded.n_accepted += n_accepted
        decoded.add(tokens)
        text.append(tokens)
    return decoded


def sampled(
    model: MultiHead,
    ids: Sequence[int],
    *,
    heads: Sequence[int],
    sampling: Sampling,
    rng: np.random.Generator,
) -> Decoded:
    """Answer the prompt `ids` by samples of the product of the heads, token by token."""
    text = _Text(model, ids, heads)
    decoded = Decoded(sampling=sampling)
    while decoded.n_left:
        states, logits = text.ask(0, text.read(text.last))
        token = draw(sampling.product(logits)[0], rng.random())
        if decoded.witness is None:
            decoded.witness = _advocate(states, logits, token)
        if len(heads) > 1:
            decoded.diagnose(logits, 1, None)
        decoded.add([token])
        text.append([token])
    return decoded


def p_correct(
    model: MultiHead,
    ids: Sequence[int],
    *,
    head: int,
    witness: torch.Tensor,
    yes: int,
    no: int,
) -> float:
    """Return sigmoid(logit of `yes` - logit of `no`) of the uncertainty head, in (0, 1).

    ids  the question whether the answer is correct; the witness is added to the trunk's state at
         its last position
    """
    from transformers import DynamicCache

    states = model.trunk(ids, DynamicCache()).clone()
    states[:, -1] += witness
    _, logits = model.heads([head], states, DynamicCache())
    last = logits[0, -1].double()
    return float((last[yes] - last[no]).sigmoid())


def _advocate(states: torch.Tensor, logits: torch.Tensor, token: int) -> torch.Tensor:
    """State (d,) at the first position of the head that finds the first token likeliest."""
    return states[int(logits[:, 0].log_softmax(-1)[:, token].argmax()), 0]


class _Text:
    """The last token, and the caches of the trunk and of groups of heads of those before it."""

    def __init__(
        self, model: MultiHead, ids: Sequence[int], *groups: Sequence[int]
    ) -> None:
        from transformers import DynamicCache

        self._model, self._groups = model, groups
        # Without a configuration also a sliding window's layers keep all, and can be rolled back.
        self._trunk, *self._heads = [DynamicCache() for _ in (None, *groups)]
        self.last, self._length = ids[-1], len(ids) - 1
        if self._length:
            states = self.read(*ids[:-1])
            for group in range(len(groups)):
                self.ask(group, states)

    def read(self, *tokens: int) -> torch.Tensor:
        """Return the trunk's states (1, T, d) at more tokens."""
        return self._model.trunk(tokens, self._trunk)

    def ask(
        self, group: int, states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a group's states (H, T, d) and logits (H, T, V) from the trunk's next states."""
        return self._model.heads(self._groups[group], states, self._heads[group])

    def append(self, tokens: Sequence[int]) -> None:
        """Continue from these tokens in place of those read since the last call."""
        self.last = tokens[-1]
        self._length += len(tokens)
        for cache in (self._trunk, *self._heads):
            if rejected := cache.get_seq_length() - self._length:
                cache.crop(-rejected)
