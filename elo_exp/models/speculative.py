"""Answers of several heads: drafts of one, verified by a jury, or samples of their product.

One head drafts tokens from its own distribution q. The others are the jury, whose target is the
product of experts

    P(x) ~ exp(beta * sum_h log softmax(logits_h / T)(x))  =  softmax(beta / T * sum_h logits_h)(x)

since the normaliser of each head is the same for every x. A drafted x is accepted with probability
min(1, P(x) / q(x)), and a rejected one is replaced by a draw from max(P - q, 0), normalised; what
is emitted is then distributed as P, whatever q is (Leviathan et al. 2023, Chen et al. 2023). A
temperature of None is greedy: q and P have all their mass on their highest logit.

Drafting ahead pays where the drafter is cheap. Here it runs the same trunk as its jury, so a token's
q and P come from one pass of the trunk and one of all heads, for many prompts at once.

Letters: H heads, P prompts, d the hidden size, V the vocabulary. Probabilities are float64.
Importing this module imports torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.nn.functional import one_hot

from elo_exp.models.generation import token_at
from elo_exp.models.multihead import MultiHead, new_caches

GAMMA = 4  # drafts of the original's rounds, which `n_rounds` counts
DIAGNOSTICS = (
    "entropy_nats", "margin", "stability_radius", "plurality_lead",  # by token
    "rejected_at", "suppression_score", "validity_radius",  # by rejected draft
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """decode       speculative: verified drafts; direct: samples of P; draft: samples of q
    beta         exponent of the product of experts
    temperature  None for greedy
    end_ids      tokens that end an answer, and are its last
    """

    decode: Literal["speculative", "direct", "draft"]
    beta: float
    temperature: float | None
    max_new_tokens: int
    end_ids: Collection[int]


@dataclass(kw_only=True)
class Decoded:
    """An answer's tokens, and the jury's diagnostics of them.

    ended        by one of the end tokens, not by its length
    accepted     by token of a speculative answer: whether it is the draft
    diagnostics  lists by name, empty where one head was alone:
                 entropy_nats       by token: of P
                 margin             by token: P's highest probability minus the next
                 stability_radius   by token: half its lead in votes, see lead()
                 plurality_lead     by token: the same of the token with the most votes
                 rejected_at        by rejected draft: its position, counted from 0
                 suppression_score  by rejected draft: P(draft)
                 validity_radius    by rejected draft, see validity_radius()
    witness      the state (d,) at the prompt's last position, before the final norm, of the head
                 behind the first token: its drafter, or the jury's head that finds it likeliest
    """

    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    accepted: list[bool] = field(default_factory=list)
    diagnostics: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in DIAGNOSTICS}
    )
    witness: torch.Tensor = field(init=False)

    @property
    def n_rounds(self) -> int:
        """Rounds it would take to draft GAMMA tokens at a time, up to the first rejected one."""
        n_rounds = n_left = 0
        for accepted in self.accepted:
            if not n_left:
                n_rounds, n_left = n_rounds + 1, GAMMA
            n_left = n_left - 1 if accepted else 0
        return n_rounds


@dataclass(frozen=True, kw_only=True)
class Step:
    """The next token (P,) of each prompt, and how it came about.

    logits    (H, P, V) of all heads, or (1, P, V) of the drafters alone
    drafters  (P,) head of each prompt; the others are its jury
    draft     (P,) what the jury was shown, None where it draws by itself
    accepted  (P,) whether the draft is the token
    target    (P, V) the product P, at temperature 1 where sampling is greedy
    """

    token: torch.Tensor
    logits: torch.Tensor
    drafters: torch.Tensor
    draft: torch.Tensor | None
    accepted: torch.Tensor
    target: torch.Tensor

    def diagnose(self, answers: Sequence[Decoded]) -> None:
        """Add the jury's diagnostics of the next tokens, before these are added."""
        entropy = torch.special.entr(self.target).sum(-1).tolist()
        top = self.target.topk(2, dim=-1).values
        margin = (top[:, 0] - top[:, 1]).tolist()
        votes = self.logits.argmax(-1).T.tolist()
        tokens, drafters = self.token.tolist(), self.drafters.tolist()
        for i, answer in enumerate(answers):
            del votes[i][drafters[i]]
            found: dict[str, float] = {
                "entropy_nats": entropy[i],
                "margin": margin[i],
                "stability_radius": lead(votes[i], tokens[i]),
                "plurality_lead": lead(votes[i], max(votes[i], key=votes[i].count)),
            }
            if self.draft is not None:
                answer.accepted.append(bool(self.accepted[i]))
                if not self.accepted[i]:
                    draft = int(self.draft[i])
                    found["rejected_at"] = len(answer.tokens)
                    found["suppression_score"] = float(self.target[i, draft])
                    found["validity_radius"] = validity_radius(votes[i], draft)
            for name, value in found.items():
                answer.diagnostics[name].append(value)

    def heads_behind(self) -> torch.Tensor:
        """Return (P,) the drafter of an accepted draft, or the jury's head that finds the token
        likeliest.
        """
        rows = torch.arange(len(self.token))
        logprobs = self.logits.log_softmax(-1)[:, rows, self.token]
        logprobs[self.drafters, rows] = -math.inf
        likeliest = logprobs.argmax(0)
        if self.draft is None:
            return likeliest
        return torch.where(self.accepted, self.drafters, likeliest)


def step(
    logits: torch.Tensor,
    drafters: torch.Tensor,
    uniforms: torch.Tensor,
    sampling: Sampling,
) -> Step:
    """Choose the next token of each prompt.

    logits    (H, P, V) of all heads; (1, P, V) of the drafters where decode is draft
    drafters  (P,) head of each prompt
    uniforms  (P, 3) in [0, 1): for the draft or sample, the verdict and the replacement
    """
    rows = torch.arange(len(drafters))
    own = logits[0 if sampling.decode == "draft" else drafters, rows]
    together = sampling.beta * (logits.sum(0, dtype=torch.float64) - own)
    q = softmax(own, sampling.temperature)
    p = softmax(together, sampling.temperature)
    drawn = _draw(p if sampling.decode == "direct" else q, uniforms[:, 0])
    accepted = uniforms[:, 1] * q[rows, drawn] < p[rows, drawn]
    is_shown = sampling.decode == "speculative"
    replaced = torch.where(accepted, drawn, _draw(residual(p, q), uniforms[:, 2]))
    return Step(
        token=replaced if is_shown else drawn,
        logits=logits,
        drafters=drafters,
        draft=drawn if is_shown else None,
        accepted=accepted,
        target=softmax(together, 1.0) if sampling.temperature is None else p,
    )


def softmax(logits: torch.Tensor, temperature: float | None) -> torch.Tensor:
    """Return probabilities (..., V) of logits (..., V) divided by the temperature."""
    if temperature is None:
        return one_hot(logits.argmax(-1), logits.shape[-1]).double()
    return torch.softmax(logits.double() / temperature, dim=-1)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return max(P - q, 0) (P, V), not normalised; P itself where rounding leaves nothing."""
    left = (p - q).clamp(min=0)
    return left.where(left.any(dim=-1, keepdim=True), p)


def _draw(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    return token_at(uniforms[:, None], probabilities, top_p=1.0)[:, 0]


def lead(votes: Sequence[int], token: int) -> int:
    """Return how many votes may change without another token overtaking this one.

    That is half its lead, rounded down. Each head of the jury votes for its likeliest token.
    """
    counts = Counter(votes)
    mine = counts.pop(token, 0)
    return max(0, (mine - max(counts.values(), default=0)) // 2)


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


def decode(
    model: MultiHead,
    ids: torch.Tensor,
    mask: torch.Tensor,
    *,
    n_heads: int,
    drafters: Sequence[int],
    uniforms: torch.Tensor,
    sampling: Sampling,
) -> list[Decoded]:
    """Answer prompts together. An answer depends on its prompt, drafter and uniforms alone.

    ids, mask  (P, T) prompts, padded on the left
    n_heads    that draft and judge: the model's first
    drafters   head of each prompt
    uniforms   (P, max_new_tokens, 3) float64 in [0, 1)
    """
    answers = [Decoded() for _ in drafters]
    left = list(answers)  # without those that have ended
    alone = sampling.decode == "draft"
    drafter = torch.tensor(drafters, device=model.logits_device)
    uniforms = uniforms.to(model.logits_device)
    caches = new_caches()
    for position in range(sampling.max_new_tokens):
        heads = drafter[None] if alone else torch.arange(n_heads)[:, None]
        states, logits = model.read(ids, mask, heads, caches)
        chosen = step(logits, drafter, uniforms[:, position], sampling)
        if not alone:
            chosen.diagnose(left)
        if not position:
            behind = torch.zeros_like(drafter) if alone else chosen.heads_behind()
            for i, answer in enumerate(answers):
                answer.witness = states[behind[i], i]
        for answer, token in zip(left, chosen.token.tolist(), strict=True):
            answer.tokens.append(token)
            answer.ended = token in sampling.end_ids
        rows = [i for i, answer in enumerate(left) if not answer.ended]
        if not rows:
            break
        ids = chosen.token[:, None].to(mask.device)
        if len(rows) < len(left):
            for cache, n in zip(caches, (1, len(states)), strict=True):
                by_head = torch.arange(n * len(left)).view(n, -1)
                cache.batch_select_indices(by_head[:, rows].flatten())
            left = [left[i] for i in rows]
            drafter, uniforms = drafter[rows], uniforms[rows]
            ids, mask = ids[rows], mask[rows]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
    return answers


def p_correct(
    model: MultiHead,
    ids: torch.Tensor,
    mask: torch.Tensor,
    *,
    head: int,
    witnesses: torch.Tensor,
    yes: int,
    no: int,
) -> list[float]:
    """Return sigmoid(logit of `yes` - logit of `no`) of the uncertainty head, in (0, 1), by prompt.

    ids, mask  (P, T) questions whether the answer is correct, padded on the left
    witnesses  (P, d), added to the trunk's states at the last position
    """
    heads = torch.tensor([[head]])
    _, logits = model.read(ids, mask, heads, new_caches(), added=witnesses)
    last = logits[0].double()
    return (last[:, yes] - last[:, no]).sigmoid().tolist()
