"""Heads as a batch compute what whole models do, each with one head's update merged in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import DynamicLayer

from elo_exp.models.multihead import Buffer, MultiHead, geometry, new_caches
from elo_exp.records import UserError
from tests.tiny_heads import jury_logits, merged

DEPTH = 2
IDS = list(range(20, 44))
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "olmo2": {"tie_word_embeddings": True},
    "olmo3": {"sliding_window": 8},
    "mistral": {"sliding_window": 8},
    "qwen3": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 8},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8},
    "granite": {},
}


def built(kind: str, **config: Any) -> Any:
    """A random model of one of the library's families."""
    described = AutoConfig.for_model(kind, **{**SIZES, **config})
    model = AutoModelForCausalLM.from_config(described).eval()
    source = torch.Generator().manual_seed(0)
    for weights in model.requires_grad_(requires_grad=False).parameters():
        if weights.dim() > 1:
            weights.normal_(0, 0.25, generator=source)
    return model


def random_update(model: Any, *, rank: int) -> Any:
    source = torch.Generator().manual_seed(rank)
    return {
        (layer, name): tuple(torch.randn(rank, n, generator=source) / 5 for n in sizes)
        for layer in range(DEPTH)
        for name, sizes in geometry(model, DEPTH).sizes.items()
    }


@torch.inference_mode()
def logits(model: MultiHead, heads: list[list[int]], ends: list[int]) -> Any:
    """By end, the logits (H, 2, V) of IDS read in pieces that end there.

    The second of the two prompts is the first without five tokens: padded on the left.
    """
    ids, mask = torch.tensor([IDS, [0] * 5 + IDS[5:]]), torch.ones(2, len(IDS))
    mask[1, :5] = 0
    caches, found = new_caches(), []
    for start, end in zip([0, *ends], [*ends, len(IDS)], strict=True):
        row, seen = ids[:, start:end], mask[:, :end].long()
        _, some = model.read(row, seen, torch.tensor(heads), caches)
        found.append(some)
    return found


def test_a_buffer_returns_what_the_librarys_layer_does():
    """Over its room and back to one row."""
    ours, theirs = Buffer(), DynamicLayer()
    for i, n in enumerate((5, 1, 70, 1, 66, 2)):
        keys, values = torch.randn(2, 2 - i // 4, 3, n, 4)
        for layer in (ours, theirs):
            if i == 4:
                layer.batch_select_indices(torch.tensor([1]))
        expected = theirs.update(keys, values)
        found = ours.update(keys.clone(), values.clone())
        assert all(map(torch.equal, found, expected))
        assert ours.get_seq_length() == theirs.get_seq_length()


@pytest.mark.parametrize("kind", FAMILIES)
def test_heads_in_pieces_are_whole_models_with_their_updates_merged_in(kind):
    """Of different ranks, one of them without an update in some places, one without any."""
    model = built(kind, **FAMILIES[kind])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    full, other = random_update(model, rank=2), random_update(model, rank=3)
    updates = [full, other, {(1, "up_proj"): other[1, "up_proj"]}, {}]
    wholes = [merged(model, each, DEPTH) for each in updates]
    long, short = (jury_logits(wholes, row) for row in (IDS, IDS[5:]))  # (H, T, V)
    scale = long.abs().max()
    assert (long[0] - long[1]).abs().max() > 0.1 * scale
    heads = MultiHead(model, geometry(model, DEPTH), updates)
    for ends in ([], [6, 7, 15, 16]):
        found = logits(heads, [[0], [1], [2], [3]], ends)
        for end, some in zip([*ends, len(IDS)], found, strict=True):
            expected = torch.stack([long[:, end - 1], short[:, end - 6]], dim=1)
            assert (some - expected).abs().max() < 1e-4 * scale
    (own,) = logits(heads, [[2, 1]], [])
    expected = torch.stack([long[2, -1], short[1, -1]])
    assert (own[0] - expected).abs().max() < 1e-4 * scale
    assert all(torch.equal(now, before[n]) for n, now in model.state_dict().items())
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("gpt2", {"n_embd": 32, "n_head": 2}),
        ("phi3", {}),
        ("qwen3_next", {"head_dim": 16}),
        ("granite", {"embedding_multiplier": 9.0}),  # it scales what the heads read
    ],
)
def test_a_model_of_another_build_is_refused(kind, config):
    with pytest.raises(UserError, match="cannot be given several heads. Expected a"):
        model = built(kind, **config)
        MultiHead(model, geometry(model, DEPTH), [{}])


def test_heads_as_deep_as_the_model_are_refused():
    with pytest.raises(UserError, match="found heads_depth = 4; the model has 4"):
        geometry(built("llama"), 4)
