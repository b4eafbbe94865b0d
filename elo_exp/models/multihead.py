"""Several heads on the trunk of a causal language model: what they compute, and their answers.

The first layers are the trunk, the last the heads'. A head differs from the model's last layers by a
low-rank update of the three projections of each MLP. So these layers exist once and run once for all
heads, which are their batch, with each head's product added at every projection. Decoding is bound by
reading weights: many heads cost little more than one. Trunk and heads run by the library's own
forward, with its masks and softcaps.

One head drafts tokens from its own distribution q. The others are the jury, whose target is the
product of experts

    P(x) ~ exp(beta * sum_h log softmax(logits_h / T)(x))  =  softmax(beta / T * sum_h logits_h)(x)

since the normaliser of each head is the same for every x. A drafted x is accepted with probability
min(1, P(x) / q(x)), and a rejected one is replaced by a draw from max(P - q, 0), normalised; what
is emitted is then distributed as P, whatever q is (Leviathan et al. 2023, Chen et al. 2023). A
temperature of None is greedy: q and P have all their mass on their highest logit.

Drafting ahead pays where the drafter is cheap. Here it runs the same trunk as its jury, so a token's
q and P come from one pass of the trunk and one of all heads, for many prompts at once.

Letters: H heads, P prompts, T positions, d the hidden size, r the rank of an update, V the
vocabulary. Probabilities are float64. Importing this module imports torch.
"""

import copy
import inspect
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.models import races
from elo_exp.models.checkpoints import mask_positions

# OLMo's names of the projections, and those of transformers.
PROJECTIONS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_ATTENTION_KINDS = {"full_attention", "sliding_attention"}
# A buffer grows by so many
_ROOM_TOKENS = 64
# As in the rounds of the original program, which `n_rounds` counts
DRAFTS_PER_ROUND = 4
DIAGNOSTICS = (
    "entropy_nats", "margin", "stability_radius", "plurality_lead",  # by token
    "rejected_at", "suppression_score", "validity_radius",  # by rejected draft
)  # fmt: skip


class Geometry(NamedTuple):
    """Sizes of a model: its layers, the heads' depth, and (size in, size out) by projection."""

    n_layers: int
    depth: int
    sizes: Mapping[str, tuple[int, int]]


# Of one head, by head layer (0 is the head's first) and projection: (down, up), whose product is added
Update = Mapping[tuple[int, str], tuple[Tensor, Tensor]]


class KeyValueBuffer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The keys and values (batch, heads, room for tokens, size) of one layer.

    The cache of transformers copies all of them at every token, which takes as long as reading the
    weights where heads times prompts are the batch. These grow by some dozens at a time.
    """

    keys: Any
    values: Any
    n_tokens = 0

    def get_seq_length(self) -> int:
        return self.n_tokens

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add those of the next tokens. Returns all so far."""
        n = key_states.shape[2]
        start, end = self.n_tokens, self.n_tokens + n
        self.n_tokens = end
        if not start:
            self.is_initialized = True
            self.keys, self.values = key_states, value_states
        else:
            if end > self.keys.shape[2]:
                room = (0, 0, 0, n + _ROOM_TOKENS)
                self.keys, self.values = pad(self.keys, room), pad(self.values, room)
            self.keys[:, :, start:end] = key_states
            self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]


def new_caches() -> list[Cache]:
    """Return empty caches of the trunk and of the heads."""
    return [Cache(layer_class_to_replicate=KeyValueBuffer) for _ in range(2)]


def cache_argument(model: Any) -> str:
    """Return what a model calls its cache: transformers renames the argument, one family at a time."""
    arguments = inspect.signature(model.forward).parameters
    return "cache" if "cache" in arguments else "past_key_values"


class MultiHead:
    """The trunk and the heads of a model, whose weights they share.

    model     of transformers, in evaluation mode
    geometry  of its heads, see geometry()
    updates   each head's; those of lower ranks are padded with zeros
    Raises UserError for a model that cannot be split into trunk and heads.
    """

    def __init__(
        self, model: Any, geometry: Geometry, updates: Sequence[Update]
    ) -> None:
        n_trunk = geometry.n_layers - geometry.depth
        weight = model.get_input_embeddings().weight
        self._device = weight.device
        # one that has float64
        self.logits_device = "cpu" if weight.device.type == "mps" else weight.device
        self._trunk = _take_layers(model, slice(n_trunk)).get_decoder()
        self._trunk.norm = torch.nn.Identity()
        self._top = _take_layers(model, slice(n_trunk, None))
        heads = self._top.get_decoder()
        heads.norm.register_forward_pre_hook(self._keep_states)
        self._check_split(model)
        for key in {key for update in updates for key in update}:
            layer, projection = key
            zero_update = [torch.zeros(0, size) for size in geometry.sizes[projection]]
            pairs = [update.get(key, zero_update) for update in updates]
            down, up = (  # (H, r, size in), (H, r, size out)
                pad_sequence(list(matrices), batch_first=True).to(weight)
                for matrices in zip(*pairs, strict=True)
            )
            add = partial(self._add_updates, down.transpose(1, 2), up)
            getattr(heads.layers[layer].mlp, projection).register_forward_hook(add)

    def read_tokens(
        self,
        ids: Tensor,
        mask: Tensor,
        heads: Tensor,
        caches: Sequence[Cache],
        *,
        state_offset: Tensor | float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Read the next tokens of prompts: one pass of the trunk, one of all heads.

        ids     (P, T)
        mask    (P, tokens so far, these included) with zeros for padding, on the left
        heads   (H, 1) to evaluate for every prompt, or (1, P), the only one of each
        caches  of the tokens before, to which these are added
        state_offset  (P, d) added to the trunk's states at the last position
        Returns, at the last position, the heads' states before the final norm (H, P, d) and their
        float32 logits (H, P, V) on logits_device.
        """
        positions = mask_positions(mask)[:, -ids.shape[1] :]
        states = self._trunk(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            **{cache_argument(self._trunk): caches[0]},
        ).last_hidden_state.clone()
        states[:, -1] += state_offset
        n, self._heads = len(heads), heads.flatten().to(self._device)
        logits = self._top(
            inputs_embeds=states.repeat(n, 1, 1),
            attention_mask=mask.repeat(n, 1),
            position_ids=positions.repeat(n, 1),
            logits_to_keep=1,
            **{cache_argument(self._top): caches[1]},
        ).logits[:, -1]
        return (
            self._states[:, -1].unflatten(0, (n, -1)),
            logits.unflatten(0, (n, -1)).float().to(self.logits_device),
        )

    def _keep_states(self, _: Any, args: tuple[Any]) -> None:
        self._states = args[0]  # (H * P, T, d) before the final norm

    def _add_updates(
        self,
        down: Tensor,
        up: Tensor,
        _: Any,
        args: tuple[Tensor],
        output: Tensor,
    ) -> Tensor:
        """Add the updates of the heads that are read to a projection's output (rows, T, size out).

        The rows are in equal groups, one a head.
        """
        groups = args[0].reshape(len(self._heads), -1, args[0].shape[-1])
        update = groups @ down[self._heads] @ up[self._heads]
        return output + update.view_as(output)

    @torch.inference_mode()
    def _check_split(self, model: Any) -> None:
        """Raise SettingError where trunk and head, in two pieces, do not compute what the model does.

        The tokens are more than the attention's window; one of the two prompts is padded.
        """
        window = getattr(model.config.get_text_config(), "sliding_window", None) or 0
        n = min(window, 64) + 8  # no longer windows
        ids = torch.arange(n, device=self._device).repeat(2, 1)
        mask = torch.ones_like(ids)
        mask[1, :4] = 0
        positions = mask_positions(mask)
        output = model(input_ids=ids, attention_mask=mask, position_ids=positions)
        expected = output.logits[:, -1].float().to(self.logits_device)
        head, caches = torch.tensor([[0]]), new_caches()
        self.read_tokens(ids[:, :-1], mask[:, :-1], head, caches)
        _, logits = self.read_tokens(ids[:, -1:], mask, head, caches)
        if not (logits - expected).abs().max() <= 0.02 * expected.abs().max():
            raise _build_unsuitable_error(model)


def measure_geometry(model: Any, depth: int) -> Geometry:
    """Return the sizes of the updates of a model's heads. Raises FileError or SettingError if it has none."""
    layers = getattr(model.get_decoder(), "layers", [None])
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or []
    mlp = getattr(layers[-1], "mlp", None)
    sizes = {
        name: (module.in_features, module.out_features)
        for name in PROJECTIONS.values()
        if isinstance(module := getattr(mlp, name, None), torch.nn.Linear)
    }
    if len(sizes) < len(PROJECTIONS) or not set(kinds) <= _ATTENTION_KINDS:
        raise _build_unsuitable_error(model)
    if not depth < len(layers):
        raise FileError(
            f"heads_depth in manifest.json must be below {len(layers)}, the number of the model's layers; got {depth}."
        )
    return Geometry(len(layers), depth, sizes)


def _build_unsuitable_error(model: Any) -> UserError:
    return SettingError(
        "model must be built like Llama or Olmo2, so that it can have several heads; got a "
        f"{type(model).__name__}. Each layer needs:",
        f"  attention and an MLP of {', '.join(PROJECTIONS.values())}, with nothing between the layers",
    )


def _take_layers(model: Any, layers: slice) -> Any:
    """Return a model that runs some of the layers, and shares their weights."""
    shared = {
        id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())
    }
    submodel = copy.deepcopy(model, shared)
    decoder, config = submodel.get_decoder(), submodel.config.get_text_config()
    decoder.layers = decoder.layers[layers]
    config.num_hidden_layers = len(decoder.layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[layers]
    for index, layer in enumerate(decoder.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # its place in a cache
    return submodel


# Answers


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
class DecodedAnswer:
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
    has_ended: bool = False
    accepted: list[bool] = field(default_factory=list)
    diagnostics: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in DIAGNOSTICS}
    )
    witness: Tensor = field(init=False)

    @property
    def n_rounds(self) -> int:
        """Rounds it would take to draft GAMMA tokens at a time, up to the first rejected one."""
        n_rounds = n_left = 0
        for accepted in self.accepted:
            if not n_left:
                n_rounds, n_left = n_rounds + 1, DRAFTS_PER_ROUND
            n_left = n_left - 1 if accepted else 0
        return n_rounds


class Step(NamedTuple):
    """The next token (P,) of each prompt, and how it came about.

    logits    (H, P, V) of all heads, or (1, P, V) of the drafters alone
    drafters  (P,) head of each prompt; the others are its jury
    draft     (P,) the token as first drawn
    accepted  (P,) whether it is the token; None where the jury was not shown it
    target    (P, V) the product P, at temperature 1 where sampling is greedy
    """

    token: Tensor
    logits: Tensor
    drafters: Tensor
    draft: Tensor
    accepted: Tensor | None
    target: Tensor

    def diagnose(self, answers: Sequence[DecodedAnswer]) -> None:
        """Add the jury's diagnostics of the next tokens, before these are added."""
        entropy = torch.special.entr(self.target).sum(-1).tolist()
        top = self.target.topk(2, dim=-1).values
        margin = (top[:, 0] - top[:, 1]).tolist()
        votes = self.logits.argmax(-1).T.tolist()
        tokens, drafters = self.token.tolist(), self.drafters.tolist()
        for i, answer in enumerate(answers):
            del votes[i][drafters[i]]
            token_diagnostics: dict[str, float] = {
                "entropy_nats": entropy[i],
                "margin": margin[i],
                "stability_radius": vote_stability(votes[i], tokens[i]),
                "plurality_lead": vote_stability(
                    votes[i], max(votes[i], key=votes[i].count)
                ),
            }
            if self.accepted is not None:
                answer.accepted.append(bool(self.accepted[i]))
                if not self.accepted[i]:
                    draft = int(self.draft[i])
                    token_diagnostics["rejected_at"] = len(answer.tokens)
                    token_diagnostics["suppression_score"] = float(
                        self.target[i, draft]
                    )
                    token_diagnostics["validity_radius"] = validity_radius(
                        votes[i], draft
                    )
            for name, value in token_diagnostics.items():
                answer.diagnostics[name].append(value)


def step(
    logits: Tensor,
    drafters: Tensor,
    seeds: Sequence[int],
    position: int,
    sampling: Sampling,
) -> Step:
    """Choose the next token of each prompt.

    logits    (H, P, V) of all heads; (1, P, V) of the drafters where decode is draft
    drafters  (P,) head of each prompt
    seeds     (P,) of the noise of the draft or sample, the verdict and the replacement
    position  of the token in the answer, from 0
    """
    rows = torch.arange(len(drafters))
    drafter_logits = logits[0 if sampling.decode == "draft" else drafters, rows]
    jury_logits = sampling.beta * (logits.sum(0, dtype=torch.float64) - drafter_logits)
    q = softmax(drafter_logits, sampling.temperature)
    p = softmax(jury_logits, sampling.temperature)
    numbers: dict[str, Any] = {"step": position, "device": logits.device}

    def draw_tokens(weights: Tensor, row_seeds: Sequence[int], draw: int) -> Tensor:
        """Draw one token a row, with chances in proportion to the weights."""
        if sampling.temperature is None:
            return weights.argmax(-1)
        n = weights.shape[-1]
        return races.race_winners(
            races.exponentials(row_seeds, n, draw=draw, **numbers), weights
        )

    direct = sampling.decode == "direct"
    token = draft = draw_tokens(p if direct else q, seeds, races.DRAFT)
    accepted = None
    if sampling.decode == "speculative":
        verdict = races.uniforms(seeds, 1, draw=races.VERDICT, **numbers)[:, 0]
        accepted = verdict * q[rows, draft] <= p[rows, draft]
        if rejected_rows := [
            i for i, is_so in enumerate(accepted.tolist()) if not is_so
        ]:
            residuals = residual(p[rejected_rows], q[rejected_rows])
            rejected_seeds = [seeds[i] for i in rejected_rows]
            token = draft.clone()
            token[rejected_rows] = draw_tokens(
                residuals, rejected_seeds, races.REPLACEMENT
            )
    return Step(
        token=token,
        logits=logits,
        drafters=drafters,
        draft=draft,
        accepted=accepted,
        target=softmax(jury_logits, 1.0) if sampling.temperature is None else p,
    )


def softmax(logits: Tensor, temperature: float | None) -> Tensor:
    """Return probabilities (..., V) of logits (..., V) divided by the temperature."""
    if temperature is None:
        return one_hot(logits.argmax(-1), logits.shape[-1]).double()
    return torch.softmax(logits.double() / temperature, dim=-1)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Return max(P - q, 0) (P, V), not normalised; P itself where rounding leaves nothing."""
    excess = (p - q).clamp(min=0)
    return excess.where(excess.any(dim=-1, keepdim=True), p)


def vote_stability(votes: Sequence[int], token: int) -> int:
    """Return how many votes may change without another token overtaking this one.

    That is half its lead, rounded down. Each head of the jury votes for its likeliest token.
    """
    counts = Counter(votes)
    n_votes = counts.pop(token, 0)
    return max(0, (n_votes - max(counts.values(), default=0)) // 2)


def validity_radius(votes: Sequence[int], token: int) -> int:
    """Return the fewest votes that must change for a token to have the most.

    They change one at a time, from the token that then has the most.
    """
    other_votes = Counter(votes)
    n_votes, n_changed = other_votes.pop(token, 0), 0
    while other_votes and n_votes <= max(other_votes.values()):
        other_votes[max(other_votes, key=other_votes.__getitem__)] -= 1
        n_votes, n_changed = n_votes + 1, n_changed + 1
    return n_changed


def decode(
    model: MultiHead,
    ids: Tensor,
    mask: Tensor,
    *,
    n_heads: int,
    drafters: Sequence[int],
    seeds: Sequence[int],
    sampling: Sampling,
) -> list[DecodedAnswer]:
    """Answer prompts together. An answer depends on its prompt, drafter and seed alone.

    ids, mask  (P, T) prompts, padded on the left
    n_heads    that draft and judge: the model's first
    drafters   head of each prompt
    seeds      of the noise of each prompt
    """
    answers = [DecodedAnswer() for _ in drafters]
    unfinished_answers = list(answers)  # without those that have ended
    is_draft_only = sampling.decode == "draft"
    drafter = torch.tensor(drafters, device=model.logits_device)
    all_rows = torch.arange(len(drafters))
    caches = new_caches()
    for position in range(sampling.max_new_tokens):
        heads = drafter[None] if is_draft_only else torch.arange(n_heads)[:, None]
        states, logits = model.read_tokens(ids, mask, heads, caches)
        next_step = step(logits, drafter, seeds, position, sampling)
        if not is_draft_only:
            next_step.diagnose(unfinished_answers)
        if not position:
            witness_heads = torch.zeros_like(drafter)
            if not is_draft_only:
                jury = logits.log_softmax(-1)[:, all_rows, next_step.token]
                jury[drafter, all_rows] = -math.inf
                witness_heads = jury.argmax(0)
                if next_step.accepted is not None:
                    witness_heads = drafter.where(next_step.accepted, witness_heads)
            for i, answer in enumerate(answers):
                answer.witness = states[witness_heads[i], i]
        for answer, token in zip(
            unfinished_answers, next_step.token.tolist(), strict=True
        ):
            answer.tokens.append(token)
            answer.has_ended = token in sampling.end_ids
        rows = [
            i for i, answer in enumerate(unfinished_answers) if not answer.has_ended
        ]
        if not rows:
            break
        ids = next_step.token[:, None].to(mask.device)
        if len(rows) < len(unfinished_answers):
            for cache, n in zip(caches, (1, len(states)), strict=True):
                by_head = torch.arange(n * len(unfinished_answers)).view(n, -1)
                cache.batch_select_indices(by_head[:, rows].flatten())
            unfinished_answers = [unfinished_answers[i] for i in rows]
            drafter, seeds = drafter[rows], [seeds[i] for i in rows]
            ids, mask = ids[rows], mask[rows]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
    return answers


def p_correct(
    model: MultiHead,
    ids: Tensor,
    mask: Tensor,
    *,
    head: int,
    witnesses: Tensor,
    yes: int,
    no: int,
) -> list[float]:
    """Return sigmoid(logit of `yes` - logit of `no`) of the uncertainty head, in (0, 1), by prompt.

    ids, mask  (P, T) questions whether the answer is correct, padded on the left
    witnesses  (P, d), added to the trunk's states at the last position
    """
    heads = torch.tensor([[head]])
    _, logits = model.read_tokens(
        ids, mask, heads, new_caches(), state_offset=witnesses
    )
    last = logits[0].double()
    return (last[:, yes] - last[:, no]).sigmoid().tolist()
