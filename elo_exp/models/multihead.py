"""A causal language model with several heads: the first layers are the trunk, the last the heads'.

A head differs from the model's last layers by a low-rank update of the three projections of each
MLP. So these layers exist once and run once for all heads, which are their batch, with each head's
product added at every projection. Decoding is bound by reading weights: many heads cost little more
than one. Trunk and heads run by the library's own forward, with its masks and softcaps.

Letters: H heads, P prompts, T positions, d the hidden size, r the rank of an update, V the
vocabulary. Importing this module imports torch.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from elo_exp.models.adapters import PROJECTIONS, Geometry, Update
from elo_exp.models.causal_lm import positions_of
from elo_exp.records import UserError

_ATTENTION = {"full_attention", "sliding_attention"}
_ROOM = 64  # tokens by which a buffer grows


class Buffer(DynamicLayer):  # type: ignore[no-untyped-call]
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
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add those of the next tokens. Returns all so far."""
        n = key_states.shape[2]
        start, end = self.n_tokens, self.n_tokens + n
        self.n_tokens = end
        if not start:
            self.is_initialized = True
            self.keys, self.values = key_states, value_states
        else:
            if end > self.keys.shape[2]:
                room = (0, 0, 0, n + _ROOM)
                self.keys, self.values = pad(self.keys, room), pad(self.values, room)
            self.keys[:, :, start:end] = key_states
            self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]


def new_caches() -> list[Cache]:
    """Return empty caches of the trunk and of the heads."""
    return [Cache(layer_class_to_replicate=Buffer) for _ in range(2)]


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
        self._trunk = _part(model, slice(n_trunk)).get_decoder()
        self._trunk.norm = torch.nn.Identity()
        self._top = _part(model, slice(n_trunk, None))
        heads = self._top.get_decoder()
        heads.norm.register_forward_pre_hook(self._keep_states)
        self._check(model)
        for place in {place for update in updates for place in update}:
            layer, projection = place
            absent = [torch.zeros(0, size) for size in geometry.sizes[projection]]
            pairs = [update.get(place, absent) for update in updates]
            down, up = (  # (H, r, size in), (H, r, size out)
                pad_sequence(list(each), batch_first=True).to(weight)
                for each in zip(*pairs, strict=True)
            )
            add = partial(self._add, down.transpose(1, 2), up)
            getattr(heads.layers[layer].mlp, projection).register_forward_hook(add)

    def read(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        heads: torch.Tensor,
        caches: Sequence[Cache],
        *,
        added: torch.Tensor | float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the next tokens of prompts: one pass of the trunk, one of all heads.

        ids     (P, T)
        mask    (P, tokens so far, these included) with zeros for padding, on the left
        heads   (H, 1) to evaluate for every prompt, or (1, P), the only one of each
        caches  of the tokens before, to which these are added
        added   (P, d) to the trunk's states at the last position
        Returns, at the last position, the heads' states before the final norm (H, P, d) and their
        float32 logits (H, P, V) on logits_device.
        """
        positions = positions_of(mask)[:, -ids.shape[1] :]
        states = self._trunk(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=caches[0],
        ).last_hidden_state.clone()
        states[:, -1] += added
        n, self._heads = len(heads), heads.flatten().to(self._device)
        logits = self._top(
            inputs_embeds=states.repeat(n, 1, 1),
            attention_mask=mask.repeat(n, 1),
            position_ids=positions.repeat(n, 1),
            past_key_values=caches[1],
            logits_to_keep=1,
        ).logits[:, -1]
        return (
            self._states[:, -1].unflatten(0, (n, -1)),
            logits.unflatten(0, (n, -1)).float().to(self.logits_device),
        )

    def _keep_states(self, _: Any, args: tuple[Any]) -> None:
        self._states = args[0]  # (H * P, T, d) before the final norm

    def _add(
        self,
        down: torch.Tensor,
        up: torch.Tensor,
        _: Any,
        args: tuple[torch.Tensor],
        output: torch.Tensor,
    ) -> torch.Tensor:
        """Add the updates of the heads that are read to a projection's output (rows, T, size out).

        The rows are in equal groups, one a head.
        """
        groups = args[0].reshape(len(self._heads), -1, args[0].shape[-1])
        update = groups @ down[self._heads] @ up[self._heads]
        return output + update.view_as(output)

    @torch.inference_mode()
    def _check(self, model: Any) -> None:
        """Raise UserError where trunk and head, in two pieces, do not compute what the model does.

        The tokens are more than the attention's window; one of the two prompts is padded.
        """
        window = getattr(model.config.get_text_config(), "sliding_window", None) or 0
        n = min(window, 64) + 8  # no longer windows
        ids = torch.arange(n, device=self._device).repeat(2, 1)
        mask = torch.ones_like(ids)
        mask[1, :4] = 0
        positions = positions_of(mask)
        whole = model(input_ids=ids, attention_mask=mask, position_ids=positions)
        expected = whole.logits[:, -1].float().to(self.logits_device)
        head, caches = torch.tensor([[0]]), new_caches()
        self.read(ids[:, :-1], mask[:, :-1], head, caches)
        _, found = self.read(ids[:, -1:], mask, head, caches)
        if not (found - expected).abs().max() <= 0.02 * expected.abs().max():
            raise _unsuitable(model)


def geometry(model: Any, depth: int) -> Geometry:
    """Return the sizes of the updates of a model's heads. Raises UserError where it has none."""
    layers = getattr(model.get_decoder(), "layers", [None])
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or []
    mlp = getattr(layers[-1], "mlp", None)
    sizes = {
        name: (module.in_features, module.out_features)
        for name in PROJECTIONS.values()
        if isinstance(module := getattr(mlp, name, None), torch.nn.Linear)
    }
    if len(sizes) < len(PROJECTIONS) or not set(kinds) <= _ATTENTION:
        raise _unsuitable(model)
    if not depth < len(layers):
        raise UserError(
            f"manifest.json: found heads_depth = {depth}; the model has {len(layers)} layers. "
            "Expected fewer, which leaves some to the trunk."
        )
    return Geometry(n_layers=len(layers), depth=depth, sizes=sizes)


def _unsuitable(model: Any) -> UserError:
    return UserError(
        f"model: a {type(model).__name__} cannot be given several heads. Expected a model built "
        f"like Llama or Olmo2: attention and an MLP of {', '.join(PROJECTIONS.values())} in every "
        "layer, and nothing between the layers."
    )


def _part(model: Any, layers: slice) -> Any:
    """Return a model that runs some of the layers, and shares their weights."""
    shared = {id(each): each for each in chain(model.parameters(), model.buffers())}
    part = copy.deepcopy(model, shared)
    decoder, config = part.get_decoder(), part.config.get_text_config()
    decoder.layers = decoder.layers[layers]
    config.num_hidden_layers = len(decoder.layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[layers]
    for index, layer in enumerate(decoder.layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # its place in a cache
    return part
