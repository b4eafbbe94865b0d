"""LoRA updates of a tiny model's heads: in a folder (docs/poe.md), and merged into models."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from elo_exp.files import write_json
from elo_exp.models.multihead import PROJECTIONS, Geometry, Update

Tensors = dict[str, torch.Tensor]


def tensors(
    geometry: Geometry,
    *,
    seed: int,
    rank: int = 2,
    spread: float = 0.3,
    name: str = "blocks.{layer}.feed_forward.{w}",
) -> Tensors:
    """One head's file: random updates of every projection of every head layer."""
    source = torch.Generator().manual_seed(seed)
    made = {}
    for layer in range(geometry.depth):
        for w, projection in PROJECTIONS.items():
            size_in, size_out = geometry.sizes[projection]
            place = name.format(
                layer=layer,
                w=w,
                absolute=geometry.n_layers - geometry.depth + layer,
                full=projection,
            )
            made[f"{place}.lora_A.weight"] = (
                torch.randn(rank, size_in, generator=source) * spread
            )
            made[f"{place}.lora_B.weight"] = (
                torch.randn(size_out, rank, generator=source) * spread
            )
    return made


def save(path: Path, state: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def manifest(folder: Path, **config: Any) -> Path:
    return write_json(folder / "manifest.json", {"config": config})


def tiny_heads(
    folder: Path, geometry: Geometry, *, n_heads: int, seed: int = 0, **settings: Any
) -> Path:
    """A folder of adapters: a manifest, and a file for each head."""
    manifest(folder, num_shards=n_heads, heads_depth=geometry.depth)
    for head in range(n_heads):
        save(
            folder / f"shard_{head}_lora.safetensors",
            tensors(geometry, seed=1000 * seed + head, **settings),
        )
    return folder


def model_geometry(model: Path, depth: int) -> Geometry:
    """The sizes of a saved model's heads, read from its configuration."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    d, inner = config["hidden_size"], config["intermediate_size"]
    sizes = {"gate_proj": (d, inner), "up_proj": (d, inner), "down_proj": (inner, d)}
    return Geometry(n_layers=config["num_hidden_layers"], depth=depth, sizes=sizes)


def merged(model: Any, update: Update, depth: int) -> Any:
    """A whole model with one head's update added to its last layers: a second opinion."""
    whole = copy.deepcopy(model)
    layers = whole.model.layers[-depth:]
    with torch.no_grad():
        for (layer, projection), (down, up) in update.items():
            getattr(layers[layer].mlp, projection).weight += up.T @ down
    return whole


def jury_logits(heads: Sequence[Any], ids: Sequence[int]) -> torch.Tensor:
    """(H, T, V), one whole model after the other, without a cache."""
    with torch.inference_mode():
        return torch.cat([head(input_ids=torch.tensor([ids])).logits for head in heads])
