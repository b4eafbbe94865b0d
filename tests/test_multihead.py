"""Heads as a batch compute what whole models do, each with one head's update merged in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp.models import adapters
from elo_exp.models.adapters import AdapterFile, Update
from elo_exp.models.multihead import KeyValueCache, MultiHead, geometry
from elo_exp.records import UserError
from tests.tiny_heads import jury_logits, merged, save, tensors
from tests.tiny_models import tiny_model

DEPTH = 2
IDS = list(range(20, 33))
KINDS: dict[str, dict[str, Any]] = {
    "olmo2": {"kind": "olmo2"},
    "llama": {"kind": "llama"},
    "llama with grouped queries": {"kind": "llama", "num_key_value_heads": 2},
    "olmo2 with tied embeddings": {"kind": "olmo2", "tie_word_embeddings": True},
}


def load(folder: Path, **config: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model(folder, **config)).eval()


def updates(
    model: Any, folder: Path, *, ranks: Sequence[int] = (2, 2, 4)
) -> list[Update]:
    """One update for each head, in files and read from them; the ranks may differ."""
    sizes = geometry(model, DEPTH)
    made = (
        save(folder / f"{i}.pt", tensors(sizes, seed=i, rank=rank))
        for i, rank in enumerate(ranks)
    )
    return [adapters.read([AdapterFile(path=path)], sizes) for path in made]


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def model(request, tmp_path_factory) -> Any:
    return load(tmp_path_factory.mktemp("model"), **request.param)


@pytest.fixture(scope="module")
def given(model, tmp_path_factory) -> list[Update]:
    return updates(model, tmp_path_factory.mktemp("heads"))


def logits(
    heads: MultiHead, indices: Sequence[int], *pieces: Sequence[int]
) -> torch.Tensor:
    """(H, T, V) of the tokens, given in one piece or several."""
    batch, n = heads.heads(indices), sum(map(len, pieces))
    trunk, cache = KeyValueCache(n), batch.cache(n)
    with torch.inference_mode():
        return torch.cat(
            [heads.logits(batch(heads.trunk(ids, trunk), cache)) for ids in pieces],
            dim=1,
        )


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """But for the rounding of float32, which differs from processor to processor."""
    return bool((found - expected).abs().max() < 1e-5 * expected.abs().max())


def test_the_heads_of_a_batch_are_the_whole_models_with_their_updates_merged_in(
    model, given
):
    together = logits(MultiHead(model, depth=DEPTH, updates=given), [0, 1, 2], IDS)
    apart = jury_logits([merged(model, update, DEPTH) for update in given], IDS)
    assert same(together, apart)
    assert (
        (apart[0] - apart[1]).abs().max() > 0.1 * apart.abs().max()
    )  # the heads differ, or this would show nothing


def test_merged_copies_of_the_layers_give_the_same(model, given):
    batch = logits(MultiHead(model, depth=DEPTH, updates=given), [2, 0], IDS)
    copies = logits(
        MultiHead(model, depth=DEPTH, updates=given, merge=True), [2, 0], IDS
    )
    assert same(batch, copies)


def test_heads_without_updates_are_the_model(model):
    heads = MultiHead(model, depth=DEPTH, updates=[{}, {}])
    whole = jury_logits([model, model], IDS)
    assert same(logits(heads, [0, 1], IDS), whole)


@pytest.mark.parametrize("merge", [False, True], ids=["batch", "merged"])
def test_pieces_are_as_good_as_the_whole(model, given, merge):
    heads = MultiHead(model, depth=DEPTH, updates=given, merge=merge)
    whole = logits(heads, [0, 1, 2], IDS)
    assert same(logits(heads, [0, 1, 2], IDS[:5], IDS[5:6], IDS[6:]), whole)


def test_the_model_is_not_changed(model, given):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    heads = MultiHead(model, depth=DEPTH, updates=given)
    logits(heads, [0, 1, 2], IDS)
    logits(MultiHead(model, depth=DEPTH, updates=given, merge=True), [0, 1, 2], IDS)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()
    )
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == list(range(4))


def test_a_head_may_have_updates_in_some_places_only(model, given):
    sparse: list[Update] = [
        {(1, "up_proj"): given[0][1, "up_proj"]},
        {(0, "down_proj"): given[1][0, "down_proj"]},
        {},
    ]
    together = logits(MultiHead(model, depth=DEPTH, updates=sparse), [0, 1, 2], IDS)
    apart = jury_logits([merged(model, update, DEPTH) for update in sparse], IDS)
    assert same(together, apart)


# Models that cannot be taken apart


def other(name: str, **config: Any) -> Any:
    import transformers

    small = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 4,
    }
    heads = {
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "pad_token_id": 0,
    }
    made = getattr(transformers, f"{name}Config")(**{**small, **heads, **config})
    return transformers.AutoModelForCausalLM.from_config(made).eval()


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        (
            "GPT2",
            {"n_embd": 16, "n_head": 2},
            "GPT2LMHeadModel .* (its decoder has other parts)",
        ),
        ("Olmo3", {}, "Olmo3ForCausalLM cannot be given several heads"),
        (
            "Mistral",
            {"sliding_window": 64},
            "MistralForCausalLM .* (some of its layers are of the kind sliding_attention)",
        ),
        (
            "Phi3",
            {},
            "Phi3ForCausalLM .* (its MLP has no gate_proj, down_proj, up_proj)",
        ),
        (
            "Granite",
            {"embedding_multiplier": 9.0},
            "GraniteForCausalLM .* (it does more than run its layers one after the other)",
        ),
    ],
)
def test_a_model_of_another_build_is_refused(name, config, words):
    """Granite has the same parts, and scales its embeddings between them."""
    with pytest.raises(UserError, match=words.replace("(", r"\(").replace(")", r"\)")):
        MultiHead(other(name, **config), depth=DEPTH, updates=[{}])


def test_other_models_of_the_same_build_are_welcome():
    for name in ("Qwen2", "Mistral", "Gemma"):
        model = other(name, sliding_window=None)
        assert same(
            logits(MultiHead(model, depth=DEPTH, updates=[{}]), [0], IDS),
            jury_logits([model], IDS),
        )


def test_heads_as_deep_as_the_model_are_refused(tmp_path):
    with pytest.raises(
        UserError,
        match=r"manifest.json: found heads_depth = 4; the model has 4 layers\.",
    ):
        geometry(load(tmp_path), 4)
