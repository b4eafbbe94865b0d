"""An answer from a model with several heads: draft by draft with a jury's verdict, or drawn from its heads' product.

Both keep the caches of the trunk and of all heads that take part at the same length, which ends before the last token.
Everything random comes from one generator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from elo_exp.models.multihead import Heads, KeyValueCache, MultiHead
from elo_exp.models.speculative import (
    Rejection,
    Trust,
    distribution,
    draw,
    product,
    rejection,
    trust,
    verify,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """beta         exponent of the product of experts
    temperature  None for greedy
    gamma        tokens that are drafted before the jury is asked
    end_ids      tokens that end an answer, and are its last
    """

    beta: float
    temperature: float | None
    gamma: int
    max_new_tokens: int
    end_ids: Collection[int]


@dataclass(kw_only=True)
class Decoded:
    """An answer's tokens, and what the jury thought of them: `trust` is empty where a head was alone.

    witness  the state (d,) at the last position of the prompt, before the final norm, of the head behind the first
             token: who drafted it, or of the jury the one that finds it likeliest
    """

    tokens: list[int] = field(default_factory=list)
    ended: bool = False  # by one of the end tokens, not by its length
    n_rounds: int = 0
    n_accepted: int = 0
    trust: list[Trust] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    witness: torch.Tensor | None = None

    def room(self, sampling: Sampling) -> int:
        """How many tokens there may still be."""
        return 0 if self.ended else sampling.max_new_tokens - len(self.tokens)

    def add(self, tokens: Sequence[int], sampling: Sampling) -> None:
        self.tokens += tokens
        self.ended = self.tokens[-1] in sampling.end_ids


class _Text:
    """The tokens so far: the last one, and of those before it the caches of the trunk and of all who take part."""

    def __init__(
        self, model: MultiHead, ids: Sequence[int], parties: Sequence[Heads], capacity: int
    ) -> None:
        self._model = model
        self._trunk = KeyValueCache(capacity)
        self._heads = {id(party): party.cache(capacity) for party in parties}
        self.last = ids[-1]
        if len(ids) > 1:
            states = model.trunk(ids[:-1], self._trunk)
            for party in parties:
                self.ask(party, states)

    def read(self, token: int) -> torch.Tensor:
        """The trunk's states (1, 1, d) at one more token."""
        return self._model.trunk([token], self._trunk)

    def ask(self, heads: Heads, states: torch.Tensor) -> torch.Tensor:
        """What the heads make (H, T, d) of the next of the trunk's states (1, T, d)."""
        return heads(states, self._heads[id(heads)])

    def append(self, tokens: Sequence[int], *, length: int) -> None:
        """Go on from these, which follow the first `length` tokens and the last one, and forget all others."""
        self.last = tokens[-1]
        for cache in (self._trunk, *(cache for caches in self._heads.values() for cache in caches)):
            cache.length = length + len(tokens)

    @property
    def length(self) -> int:
        """Tokens before the last."""
        return self._trunk.length


def verified(
    model: MultiHead,
    ids: Sequence[int],
    *,
    drafter: int,
    jury: Sequence[int],
    sampling: Sampling,
    rng: np.random.Generator,
) -> Decoded:
    """An answer to the prompt `ids`: one head drafts, the others accept or replace. Its tokens are samples of P.

    The trunk is run once for each draft. No further token is drawn where all drafts are accepted, as it would be where
    drafts come from a smaller model: it would need a pass of the trunk of its own, which the next draft makes anyway.
    """
    drafting, judging = model.heads([drafter]), model.heads(jury)
    text = _Text(model, ids, [drafting, judging], len(ids) + sampling.max_new_tokens)
    decoded = Decoded()
    while room := decoded.room(sampling):
        length = text.length
        drafts, q, trunk, first = _draft(
            model, text, drafting, min(sampling.gamma, room), sampling, rng
        )
        given = text.ask(judging, trunk)
        logits = model.logits(given)
        p = product(logits, beta=sampling.beta, temperature=sampling.temperature)
        ruling = verify(drafts, q, p, rng)
        n_accepted = ruling.n_accepted
        tokens = drafts[:n_accepted] + ([] if ruling.replacement is None else [ruling.replacement])
        if ruling.replacement is not None:
            position = len(decoded.tokens) + n_accepted
            refused = rejection(
                logits[:, n_accepted],
                drafts[n_accepted],
                position,
                beta=sampling.beta,
                temperature=sampling.temperature,
            )
            decoded.rejections.append(refused)
        if decoded.witness is None:
            decoded.witness = first if n_accepted else _advocate(given, logits, tokens[0])
        decoded.trust += trust(
            logits[:, : len(tokens)], beta=sampling.beta, temperature=sampling.temperature
        )
        decoded.n_rounds += 1
        decoded.n_accepted += n_accepted
        decoded.add(tokens, sampling)
        text.append(tokens, length=length)
    return decoded


def _draft(
    model: MultiHead,
    text: _Text,
    drafting: Heads,
    n: int,
    sampling: Sampling,
    rng: np.random.Generator,
) -> tuple[list[int], torch.Tensor, torch.Tensor, torch.Tensor]:
    """At most n tokens T, up to one that ends the answer; what they were drawn from (T, V); the trunk's states before
    each (1, T, d); the drafting head's before the first (d,)."""
    import torch

    tokens: list[int] = []
    drawn_from, states, given = [], [], []
    while len(tokens) < n and not (tokens and tokens[-1] in sampling.end_ids):
        states.append(text.read(tokens[-1] if tokens else text.last))
        given.append(text.ask(drafting, states[-1])[0, 0])
        drawn_from.append(distribution(model.logits(given[-1]), sampling.temperature))
        tokens.append(draw(drawn_from[-1], rng.random()))
    return tokens, torch.stack(drawn_from), torch.cat(states, dim=1), given[0]


def sampled(
    model: MultiHead,
    ids: Sequence[int],
    *,
    heads: Sequence[int],
    sampling: Sampling,
    rng: np.random.Generator,
) -> Decoded:
    """An answer to the prompt `ids`, drawn token by token from the product of the heads; one head's own, from one."""
    together = model.heads(heads)
    text = _Text(model, ids, [together], len(ids) + sampling.max_new_tokens)
    decoded = Decoded()
    while decoded.room(sampling):
        length = text.length
        given = text.ask(together, text.read(text.last))
        logits = model.logits(given)
        p = product(logits, beta=sampling.beta, temperature=sampling.temperature)
        token = draw(p[0], rng.random())
        if decoded.witness is None:
            decoded.witness = _advocate(given, logits, token)
        if len(heads) > 1:
            decoded.trust += trust(logits, beta=sampling.beta, temperature=sampling.temperature)
        decoded.add([token], sampling)
        text.append([token], length=length)
    return decoded


def _advocate(given: torch.Tensor, logits: torch.Tensor, token: int) -> torch.Tensor:
    """The first state of the head (H, T, d) that finds the first token likeliest, by their logits (H, T, V)."""
    return given[int(logits[:, 0].log_softmax(-1)[:, token].argmax()), 0]


def p_correct(
    model: MultiHead, ids: Sequence[int], *, head: int, witness: torch.Tensor, yes: int, no: int
) -> float:
    """The chance that the uncertainty head gives an answer: sigmoid(logit of `yes` - logit of `no`), in (0, 1).

    ids  the question whether the answer is right. The witness is added to what the trunk gives at its last position.
    """
    heads = model.heads([head])
    states = model.trunk(ids, KeyValueCache(len(ids))).clone()
    states[:, -1] += witness
    logits = model.logits(heads(states, heads.cache(len(ids)))[0, -1])
    return float((logits[yes] - logits[no]).double().sigmoid())
