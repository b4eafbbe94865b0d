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
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from elo_exp.models.generation import token_at
from elo_exp.models.multihead import MultiHead

if TYPE_CHECKING:
    import torch

GAMMA = 4  # drafts of the original's rounds, which `n_rounds` counts
BY_TOKEN = ("entropy_nats", "margin", "stability_radius", "plurality_lead")
BY_REJECTION = ("rejected_at", "suppression_score", "validity_radius")


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
        default_factory=lambda: {name: [] for name in (*BY_TOKEN, *BY_REJECTION)}
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
    jury      (H, P) which heads are each prompt's jury: none of drafters alone
    draft     (P,) what the jury was shown, None where it draws by itself
    accepted  (P,) whether the draft is the token
    target    (P, V) the product P, at temperature 1 where sampling is greedy
    """

    token: torch.Tensor
    logits: torch.Tensor
    jury: torch.Tensor
    draft: torch.Tensor | None
    accepted: torch.Tensor
    target: torch.Tensor

    def diagnose(self, answers: Sequence[Decoded]) -> None:
        """Add the jury's diagnostics of the next tokens, before these are added."""
        import torch

        entropy = torch.special.entr(self.target).sum(-1).tolist()
        top = self.target.topk(2, dim=-1).values
        margin = (top[:, 0] - top[:, 1]).tolist()
        every_vote, tokens = self.logits.argmax(-1), self.token.tolist()
        for i, answer in enumerate(answers):
            votes = every_vote[self.jury[:, i], i].tolist()
            found: dict[str, float] = {
                "entropy_nats": entropy[i],
                "margin": margin[i],
                "stability_radius": lead(votes, tokens[i]),
                "plurality_lead": lead(votes, max(votes, key=votes.count)),
            }
            if self.draft is not None:
                answer.accepted.append(bool(self.accepted[i]))
                if not self.accepted[i]:
                    draft = int(self.draft[i])
                    found["rejected_at"] = len(answer.tokens)
                    found["suppression_score"] = float(self.target[i, draft])
                    found["validity_radius"] = validity_radius(votes, draft)
            for name, value in found.items():
                answer.diagnostics[name].append(value)

    def heads_behind(self, drafters: Sequence[int]) -> list[int]:
        """Return by prompt the drafter of an accepted draft, or the jury's head that finds the
        token likeliest.
        """
        logprobs = self.logits.log_softmax(-1)
        heads = []
        for i, drafter in enumerate(drafters):
            of_token = logprobs[:, i, self.token[i]].masked_fill(
                ~self.jury[:, i], -math.inf
            )
            drafted = self.draft is not None and bool(self.accepted[i])
            heads.append(drafter if drafted else int(of_token.argmax()))
        return heads


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
    import torch

    alone = sampling.decode == "draft"
    rows = torch.arange(len(drafters), device=logits.device)
    jury = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
    jury[0 if alone else drafters, rows] = False
    q = softmax(logits[0 if alone else drafters, rows], sampling.temperature)
    together = sampling.beta * (logits.double() * jury[..., None]).sum(0)
    p = softmax(together, sampling.temperature)
    drawn = _draw(p if sampling.decode == "direct" else q, uniforms[:, 0])
    accepted = uniforms[:, 1] * q[rows, drawn] < p[rows, drawn]
    is_shown = sampling.decode == "speculative"
    replaced = torch.where(accepted, drawn, _draw(residual(p, q), uniforms[:, 2]))
    return Step(
        token=replaced if is_shown else drawn,
        logits=logits,
        jury=jury,
        draft=drawn if is_shown else None,
        accepted=accepted,
        target=softmax(together, 1.0) if sampling.temperature is None else p,
    )


def softmax(logits: torch.Tensor, temperature: float | None) -> torch.Tensor:
    """Return probabilities (..., V) of logits (..., V) divided by the temperature."""
    import torch

    if temperature is None:
        greedy = torch.zeros_like(logits, dtype=torch.float64)
        return greedy.scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
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
    """Answer prompts together; a token depends on its prompt, drafter and uniforms alone.

    ids, mask  (P, T) prompts, padded on the left
    n_heads    that draft and judge: the model's first
    drafters   head of each prompt
    uniforms   (P, max_new_tokens, 3) float64 in [0, 1)
    """
    import torch

    answers = [Decoded() for _ in drafters]
    left = list(answers)  # without those that have ended
    alone = sampling.decode == "draft"
    drafter, caches = torch.tensor(drafters), None
    for position in range(sampling.max_new_tokens):
        heads = drafter if alone else torch.arange(n_heads)
        states, logits, caches = model.read(ids, mask, heads, caches, one_each=alone)
        chosen = step(
            logits,
            drafter.to(logits.device),
            uniforms[:, position].to(logits.device),
            sampling,
        )
        if not alone:
            chosen.diagnose(left)
        if not position:
            behind = [0] * len(left) if alone else chosen.heads_behind(drafters)
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
            left, keep = [left[i] for i in rows], torch.tensor(rows)
            drafter, uniforms = drafter[keep], uniforms[keep]
            shape = states.shape[:2]
            by_head = torch.arange(shape.numel()).view(shape)[:, keep].flatten()
            keep, by_head = keep.to(mask.device), by_head.to(mask.device)
            ids, mask = ids[keep], mask[keep]
            for cache, indices in zip(caches, (keep, by_head), strict=True):
                cache.batch_select_indices(indices)
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
    import torch

    heads = torch.tensor([head])
    _, logits, _ = model.read(ids, mask, heads, added=witnesses)
    last = logits[0].double()
    return (last[:, yes] - last[:, no]).sigmoid().tolist()
