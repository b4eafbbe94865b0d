"""Decode with several heads: drafts verified by a jury, or samples of the heads' product.

The caches of the trunk and of all participating heads have the same length, up to the last token
but one. All randomness comes from one generator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from elo_exp.models.multihead import MultiHead
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
    decoded = Decoded()
    how: dict[str, Any] = {"beta": sampling.beta, "temperature": sampling.temperature}
    while room := decoded.room(sampling):
        drafts: list[int] = []
        drawn_from, trunk, drafting = [], [], []
        while len(drafts) < min(sampling.gamma, room):
            trunk.append(text.read(drafts[-1] if drafts else text.last))
            states, logits = text.ask(0, trunk[-1])
            drafting.append(states[0])
            drawn_from.append(distribution(logits[0, 0], sampling.temperature))
            drafts.append(draw(drawn_from[-1], rng.random()))
            if drafts[-1] in sampling.end_ids:
                break
        states, logits = text.ask(1, torch.cat(trunk, dim=1))
        p = product(logits, **how)
        verification = verify(drafts, torch.stack(drawn_from), p, rng)
        n_accepted = verification.n_accepted
        tokens = drafts[:n_accepted]
        if verification.replacement is not None:
            tokens.append(verification.replacement)
            position = len(decoded.tokens) + n_accepted
            judged, draft = logits[:, n_accepted], drafts[n_accepted]
            decoded.rejections.append(rejection(judged, draft, position, **how))
        if decoded.witness is None:
            advocate = _advocate(states, logits, tokens[0])
            decoded.witness = drafting[0][0] if n_accepted else advocate
        decoded.diagnostics += token_diagnostics(logits[:, : len(tokens)], **how)
        decoded.n_rounds += 1
        decoded.n_accepted += n_accepted
        decoded.add(tokens, sampling)
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
    decoded = Decoded()
    how: dict[str, Any] = {"beta": sampling.beta, "temperature": sampling.temperature}
    while decoded.room(sampling):
        states, logits = text.ask(0, text.read(text.last))
        token = draw(product(logits, **how)[0], rng.random())
        if decoded.witness is None:
            decoded.witness = _advocate(states, logits, token)
        if len(heads) > 1:
            decoded.diagnostics += token_diagnostics(logits, **how)
        decoded.add([token], sampling)
        text.append([token])
    return decoded


def _advocate(states: torch.Tensor, logits: torch.Tensor, token: int) -> torch.Tensor:
    """State (d,) at the first position of the head that finds the first token likeliest."""
    return states[int(logits[:, 0].log_softmax(-1)[:, token].argmax()), 0]


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
