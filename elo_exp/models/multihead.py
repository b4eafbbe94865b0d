"""A causal language model with several heads: the first layers are the trunk, the last the heads'.

A head differs from the model's last layers by a low-rank update of the three projections of each
MLP. So these layers exist once and run once for all heads, which are their batch, with each head's
product added at every projection. Decoding is bound by reading weights: many heads cost little more
than one.

Letters: H heads, T positions, d the hidden size, r the rank of an update, V the vocabulary.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from elo_exp.models.adapters import PROJECTIONS, Geometry, Update
from elo_exp.records import UserError

if TYPE_CHECKING:
    import torch

# Of some heads together, by layer and projection: down (H, r, size in), up (H, r, size out).
LowRank: TypeAlias = "dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]]"

_N_CHECKED = 8  # tokens on which a model and its parts are compared


class KeyValueCache:
    """Keys and values of a stack of layers, by position, in buffers of a fixed capacity.

    Lower `length` to forget the last positions.
    """

    def __init__(self, capacity: int) -> None:
        self.length = 0
        self._capacity = capacity
        self._buffers: dict[int, list[torch.Tensor]] = {}

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: Any
    ) -> tuple[torch.Tensor, ...]:
        """Append keys and values (batch, heads, T, size) of new positions, and return all."""
        end = self.length + key.shape[2]
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = [
                new.new_empty(*new.shape[:2], self._capacity, new.shape[3])
                for new in (key, value)
            ]
        buffers = self._buffers[layer_idx]
        for buffer, new in zip(buffers, (key, value), strict=True):
            buffer[:, :, self.length : end] = new
        return tuple(buffer[:, :, :end] for buffer in buffers)


class MultiHead:
    """The trunk and the heads of a model, whose weights they share.

    model    of transformers, in evaluation mode
    depth    how many of its last layers are the heads'
    updates  each head's
    merge    give each head a copy of its layers with its update added, for comparison
    Raises UserError for a model that cannot be split into trunk and heads.
    """

    def __init__(
        self, model: Any, *, depth: int, updates: Sequence[Update], merge: bool = False
    ) -> None:
        geometry(model, depth)
        self.decoder = model.get_decoder()
        self.lm_head = model.get_output_embeddings()
        self.merge = merge
        layers = list(self.decoder.layers)
        self.trunk_layers, self.head_layers = (
            layers[: len(layers) - depth],
            layers[len(layers) - depth :],
        )
        self.updates = _stacked(updates, like=self.decoder.embed_tokens.weight)
        self._check(model)

    def trunk(self, ids: Sequence[int], cache: KeyValueCache) -> torch.Tensor:
        """Return the hidden states (1, T, d) of tokens that follow those in the cache."""
        import torch

        states = self.decoder.embed_tokens(
            torch.tensor([ids], device=self.decoder.embed_tokens.weight.device)
        )
        states = self.run(self.trunk_layers, states, cache)
        cache.length += len(ids)
        return states

    def heads(self, indices: Sequence[int]) -> Heads:
        """Choose heads to be evaluated together."""
        import torch

        chosen = torch.tensor(indices, device=self.lm_head.weight.device)
        low_rank = {
            place: (down[chosen], up[chosen])
            for place, (down, up) in self.updates.items()
        }
        return Heads(self, len(indices), low_rank)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return float32 logits (..., V) of states (..., d), on a device that has float64."""
        logits: torch.Tensor = self.lm_head(self.decoder.norm(states)).float()
        return logits.cpu() if logits.device.type == "mps" else logits

    def run(
        self, layers: Sequence[Any], states: torch.Tensor, cache: KeyValueCache
    ) -> torch.Tensor:
        """Return hidden states (1 or H, T, d) after the layers, at positions after the cache's."""
        import torch

        positions = torch.arange(
            cache.length, cache.length + states.shape[1], device=states.device
        )[None]
        embeddings = self.decoder.rotary_emb(states, positions)
        mask = _causal_mask(cache.length, states) if states.shape[1] > 1 else None
        for layer in layers:
            states = layer(
                states,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=embeddings,
                past_key_values=cache,
                use_cache=True,
            )
        return states

    def _check(self, model: Any) -> None:
        """Raise UserError where trunk and head together do not compute what the model does."""
        import torch

        ids = list(range(_N_CHECKED))
        trunk = KeyValueCache(_N_CHECKED)
        with torch.inference_mode():
            whole = model(
                input_ids=torch.tensor([ids], device=self.lm_head.weight.device)
            ).logits.float()
            plain = Heads(self, 1, {})
            caches = plain.cache(_N_CHECKED)
            pieces = [
                plain(self.trunk(some, trunk), caches) for some in (ids[:-1], ids[-1:])
            ]
            difference = (self.logits(torch.cat(pieces, dim=1)) - whole).abs().max()
        if not difference <= 0.02 * whole.abs().max():
            raise _unsuitable(
                model, "it does more than run its layers one after the other"
            )


class Heads:
    """Some heads of a model, as a batch."""

    def __init__(self, model: MultiHead, n_heads: int, low_rank: LowRank) -> None:
        self.model = model
        self.n_heads = n_heads
        if model.merge:
            self._stacks = [
                _merged(model.head_layers, low_rank, head) for head in range(n_heads)
            ]
        else:
            self._stacks = [_batched(model.head_layers, low_rank)]

    def cache(self, capacity: int) -> list[KeyValueCache]:
        return [KeyValueCache(capacity) for _ in self._stacks]

    def __call__(
        self, states: torch.Tensor, caches: list[KeyValueCache]
    ) -> torch.Tensor:
        """Return the heads' states (H, T, d), before the final norm, from the trunk's (1, T, d)."""
        import torch

        given = [
            self.model.run(stack, states, cache)
            for stack, cache in zip(self._stacks, caches, strict=True)
        ]
        for cache in caches:
            cache.length += states.shape[1]
        return torch.cat(given).expand(self.n_heads, -1, -1)


def geometry(model: Any, depth: int) -> Geometry:
    """Return the sizes of the updates of a model's heads."""
    decoder = model.get_decoder()
    if not all(
        hasattr(decoder, part)
        for part in ("embed_tokens", "layers", "norm", "rotary_emb")
    ):
        raise _unsuitable(model, "its decoder has other parts")
    config = model.config.get_text_config()
    windowed = (
        "sliding_attention"
        if getattr(config, "sliding_window", None)
        else "full_attention"
    )
    kinds = set(getattr(config, "layer_types", None) or [windowed]) - {"full_attention"}
    if kinds:
        raise _unsuitable(
            model, f"some of its layers are of the kind {', '.join(sorted(kinds))}"
        )
    layers = decoder.layers
    if not depth < len(layers):
        raise UserError(
            f"manifest.json: found heads_depth = {depth}; the model has {len(layers)} layers. "
            "Expected fewer, which leaves some to the trunk."
        )
    mlp = layers[-1].mlp
    if not all(hasattr(mlp, projection) for projection in PROJECTIONS.values()):
        raise _unsuitable(model, f"its MLP has no {', '.join(PROJECTIONS.values())}")
    sizes = {
        name: (getattr(mlp, name).in_features, getattr(mlp, name).out_features)
        for name in PROJECTIONS.values()
    }
    return Geometry(n_layers=len(layers), depth=depth, sizes=sizes)


def _unsuitable(model: Any, why: str) -> UserError:
    return UserError(
        f"model: a {type(model).__name__} cannot be given several heads ({why}). Expected a model "
        "built like Olmo2 or Llama."
    )


def _stacked(updates: Sequence[Update], *, like: torch.Tensor) -> LowRank:
    """Stack factors: down (H, r, size in), up (H, r, size out); lower ranks end in zeros."""
    import torch

    stacked = {}
    for place in sorted({place for update in updates for place in update}):
        rank = max(len(update[place][0]) for update in updates if place in update)
        sizes = next(
            [factor.shape[1] for factor in update[place]]
            for update in updates
            if place in update
        )
        down, up = (
            torch.zeros(len(updates), rank, size, dtype=like.dtype, device=like.device)
            for size in sizes
        )
        for head, update in enumerate(updates):
            if place in update:
                for whole, factor in zip((down, up), update[place], strict=True):
                    whole[head, : len(factor)] = factor
        stacked[place] = (down, up)
    return stacked


def _batched(layers: Sequence[Any], low_rank: LowRank) -> list[Any]:
    """The layers for all heads at once. The first layer turns one state into one per head."""
    stack = [_twin(layer, index) for index, layer in enumerate(layers)]
    for (index, projection), (down, up) in low_rank.items():
        add = functools.partial(_add_low_rank, down=down.transpose(1, 2), up=up)
        getattr(stack[index].mlp, projection).register_forward_hook(add)
    return stack


def _twin(layer: Any, index: int) -> Any:
    """The layer with its own index in a cache, sharing the weights."""
    shared: dict[int, Any] = {
        id(part): part for part in chain(layer.parameters(), layer.buffers())
    }
    shared[id(layer.self_attn.config)] = layer.self_attn.config
    twin = copy.deepcopy(layer, shared)
    twin.self_attn.layer_idx = index
    return twin


def _add_low_rank(
    module: Any,
    args: tuple[torch.Tensor, ...],
    output: torch.Tensor,
    *,
    down: torch.Tensor,
    up: torch.Tensor,
) -> torch.Tensor:
    """After a projection of (1 or H, T, size in): down (H, size in, r), up (H, r, size out)."""
    return output + args[0] @ down @ up


def _merged(layers: Sequence[Any], low_rank: LowRank, head: int) -> list[Any]:
    """One head's layers, its updates added to copies of the weights."""
    import torch

    stack = [copy.deepcopy(layer) for layer in layers]
    for index, layer in enumerate(stack):
        layer.self_attn.layer_idx = index
    with torch.no_grad():
        for (index, projection), (down, up) in low_rank.items():
            getattr(stack[index].mlp, projection).weight += up[head].T @ down[head]
    return stack


def _causal_mask(n_before: int, states: torch.Tensor) -> torch.Tensor:
    """Return the additive attention mask (1, 1, T, n_before + T) of new states (H, T, d)."""
    import torch

    columns = torch.arange(n_before + states.shape[1], device=states.device)
    later = columns[None] > columns[n_before:, None]
    mask = torch.zeros(later.shape, dtype=states.dtype, device=states.device)
    return mask.masked_fill(later, torch.finfo(states.dtype).min)[None, None]
