"""Decode with several heads: drafts verified by a jury, or samples of the heads' product.

The caches of the trunk and of all participating heads have the same length, up to the last token
but one. All randomness comes from one generator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from elo_exp.models.multihead import Heads, KeyValueCache, MultiHead
from elo_exp.models.speculative import (
    Rejection,
    TokenDiagnostics,
    distribution,
    draw,
    product,
    rejection,
    token_diagnostics,
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
    """An answer's tokens and their diagnostics, which are empty where one head was alone.

    witness  the state (d,) at the prompt's last position, before the final norm, of the head behind
             the first token: its drafter, or the head of the jury that finds it likeliest
    """

    tokens: list[int] = field(default_factory=list)
    ended: bool = False  # by one of the end tokens, not by its length
    n_rounds: int = 0
    n_accepted: int = 0
    diagnostics: list[TokenDiagnostics] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    witness: torch.Tensor | None = None

    def room(self, sampling: Sampling) -> int:
        """Tokens left until the limit."""
        return 0 if self.ended else sampling.max_new_tokens - len(self.tokens)

    def add(self, tokens: Sequence[int], sampling: Sampling) -> None:
        self.tokens += tokens
        self.ended = self.tokens[-1] in sampling.end_ids


class _Text:
    """The last token, and the caches of trunk and heads of the tokens before it."""

    def __init__(
        self,
        model: MultiHead,
        ids: Sequence[int],
        parties: Sequence[Heads],
        capacity: int,
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
        """Return the trunk's states (1, 1, d) at one more token."""
        return self._model.trunk([token], self._trunk)

    def ask(self, heads: Heads, states: torch.Tensor) -> torch.Tensor:
        """Return the heads' states (H, T, d) from the trunk's next states (1, T, d)."""
        return heads(states, self._heads[id(heads)])

    def append(self, tokens: Sequence[int], *, length: int) -> None:
        """Continue from tokens after the first `length` and the last one; forget all others."""
        self.last = tokens[-1]
        for cache in (
            self._trunk,
            *(cache for caches in self._heads.values() for cache in caches),
        ):
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
    """Answer the prompt `ids` by one head's drafts, which the others verify: samples of P.

    The trunk is run once per draft. Where all drafts are accepted no further token is drawn: it
    would need a pass of the trunk, which the next draft makes anyway.
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
        verification = verify(drafts, q, p, rng)
        n_accepted = verification.n_accepted
        tokens = drafts[:n_accepted] + (
            [] if verification.replacement is None else [verification.replacement]
        )
        if verification.replacement is not None:
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
            decoded.witness = (
                first if n_accepted else _advocate(given, logits, tokens[0])
            )
        decoded.diagnostics += token_diagnostics(
            logits[:, : len(tokens)],
            beta=sampling.beta,
            temperature=sampling.temperature,
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
    """Draft at most n tokens, up to one that ends the answer.

    Returns tokens (T), their distributions (T, V), the trunk's states before each (1, T, d), and
    the drafting head's state before the first (d,).
    """
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
    """Answer the prompt `ids` by samples of the product of the heads, token by token."""
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
            decoded.diagnostics += token_diagnostics(
                logits, beta=sampling.beta, temperature=sampling.temperature
            )
        decoded.add([token], sampling)
        text.append([token], length=length)
    return decoded


def _advocate(given: torch.Tensor, logits: torch.Tensor, token: int) -> torch.Tensor:
    """State (d,) at the first position of the head that finds the first token likeliest."""
    return given[int(logits[:, 0].log_softmax(-1)[:, token].argmax()), 0]


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
    heads = model.heads([head])
    states = model.trunk(ids, KeyValueCache(len(ids))).clone()
    states[:, -1] += witness
    logits = model.logits(heads(states, heads.cache(len(ids)))[0, -1])
    return float((logits[yes] - logits[no]).double().sigmoid())
