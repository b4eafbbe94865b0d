"""The heads' adapter files: which are found, what an update is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp.models import adapters
from elo_exp.models.adapters import AdapterFile, Geometry, HeadFiles
from elo_exp.records import UserError
from tests.tiny_heads import Tensors, manifest, save, tensors, tiny_heads

SMALL = Geometry(
    n_layers=5,
    depth=2,
    sizes={"gate_proj": (3, 4), "up_proj": (3, 4), "down_proj": (4, 3)},
)
GATE = "blocks.0.feed_forward.w1"


def pair(
    name: str = GATE, rank: int = 1, size_in: int = 3, size_out: int = 4
) -> Tensors:
    """An update of ones."""
    return {
        f"{name}.lora_A.weight": torch.ones(rank, size_in),
        f"{name}.lora_B.weight": torch.ones(size_out, rank),
    }


def read(path: Path, state: Any, **described: Any) -> adapters.Update:
    return adapters.read([AdapterFile(path=save(path, state), **described)], SMALL)


def matrix(
    update: adapters.Update, layer: int = 0, projection: str = "gate_proj"
) -> torch.Tensor:
    """What is added to the projection's weights."""
    down, up = update[layer, projection]
    return up.T @ down


def find(folder: Path, **changes: Any) -> HeadFiles:
    settings = {
        "robustness_dir": None,
        "rob_checkpoint": None,
        "uncertainty_path": None,
    }
    return adapters.find(**{"security_dir": str(folder), **settings, **changes})


# What an update is


def test_an_update_is_b_times_a_times_alpha_over_the_rank(tmp_path):
    """A = (1 2 0), B = (1 0 3 0)', alpha 1: the update is B A."""
    state = {
        f"{GATE}.lora_A.weight": torch.tensor([[1.0, 2.0, 0.0]]),
        f"{GATE}.lora_B.weight": torch.tensor([[1.0], [0.0], [3.0], [0.0]]),
    }
    update = read(tmp_path / "a.pt", state, alpha=1)
    assert matrix(update).tolist() == [[1, 2, 0], [0, 0, 0], [3, 6, 0], [0, 0, 0]]
    assert list(update) == [(0, "gate_proj")]


@pytest.mark.parametrize(("alpha", "factor"), [(None, 2), (6, 2), (3, 1)])
def test_alpha_is_twice_the_rank_unless_a_manifest_has_it(tmp_path, alpha, factor):
    """Of ones, B A is the rank, 3, everywhere."""
    update = read(tmp_path / "a.pt", pair(rank=3), alpha=alpha)
    assert torch.equal(matrix(update), torch.full((4, 3), 3.0 * factor))


def test_later_updates_are_added_to_earlier_ones(tmp_path):
    files = [
        AdapterFile(
            path=save(tmp_path / f"{rank}.pt", tensors(SMALL, seed=rank, rank=rank))
        )
        for rank in (1, 2, 4)
    ]
    together = adapters.read(files, SMALL)
    apart = [adapters.read([file], SMALL) for file in files]
    for place in together:
        total = sum((matrix(update, *place) for update in apart), torch.zeros(()))
        assert torch.allclose(matrix(together, *place), total, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.pt", "base_model.model.blocks.{layer}.feed_forward.{w}"),
        ("a.bin", "blocks.{layer}.feed_forward.{w}"),
        ("a.safetensors", "base_model.model.model.layers.{absolute}.mlp.{full}"),
        ("a.pth", "heads.0.layers.{absolute}.{full}"),
    ],
)
def test_all_formats_and_names_of_the_tensors_are_read(tmp_path, file, name):
    """`blocks` are counted from the head's first layer, `layers` from the model's."""
    plain = read(tmp_path / "plain.pt", tensors(SMALL, seed=7))
    update = read(tmp_path / file, tensors(SMALL, seed=7, name=name))
    assert update.keys() == plain.keys()
    assert all(
        torch.equal(matrix(update, *place), matrix(plain, *place)) for place in plain
    )


def test_a_training_checkpoint_is_read_for_its_update(tmp_path):
    head = {
        name.replace(".weight", ".default.weight"): tensor
        for name, tensor in pair().items()
    }
    head["blocks.0.feed_forward.w1.base_layer.weight"] = torch.ones(4, 3)
    update = read(
        tmp_path / "a.pt",
        {"head_state_dict": head, "optimizer_state_dict": {"step": 3}},
    )
    assert torch.equal(matrix(update), torch.full((4, 3), 2.0))


# Which files


def test_each_head_has_its_file_with_the_rank_and_alpha_of_the_manifest(tmp_path):
    tiny_heads(tmp_path, SMALL, n_heads=2)
    save(tmp_path / "shard_1_lora.safetensors", pair())  # preferred
    modules = ["w1", "w2", "w3"]
    manifest(
        tmp_path, num_shards=2, lora_r=2, lora_alpha=5, target_modules=modules, other=1
    )
    files = find(tmp_path)
    names = ["shard_0_lora.pt", "shard_1_lora.safetensors"]
    assert files.depth == 3  # unless the manifest has another
    assert files.heads == tuple(
        (AdapterFile(path=tmp_path / name, rank=2, alpha=5),) for name in names
    )


@pytest.fixture
def trained(tmp_path) -> dict[str, str]:
    """Two heads with robustness files: the final ones, and those of steps 50 and 200."""
    for name in ("security", "robustness"):
        tiny_heads(tmp_path / name, SMALL, n_heads=2)
    for head in range(2):
        for step in ("50", "200_slim"):
            run = (
                tmp_path
                / "robustness"
                / f"shard_{head}"
                / "20260101_120000"
                / "checkpoints"
            )
            save(run / f"checkpoint_step_{step}.pt", pair())
    return {
        "security_dir": str(tmp_path / "security"),
        "robustness_dir": str(tmp_path / "robustness"),
    }


@pytest.mark.parametrize(
    ("step", "second"),
    [
        (None, []),
        (-1, ["shard_1_lora.pt"]),
        (50, ["checkpoint_step_50.pt"]),
        (200, ["checkpoint_step_200_slim.pt"]),
    ],
)
def test_a_robustness_checkpoint_follows_the_security_file(
    trained, tmp_path, step, second
):
    files = find(tmp_path, **trained, rob_checkpoint=step)
    assert [file.path.name for file in files.heads[1]] == ["shard_1_lora.pt", *second]


def test_the_uncertainty_file_has_its_own_manifest(tmp_path):
    tiny_heads(tmp_path / "security", SMALL, n_heads=1)
    path = save(tmp_path / "uncertainty" / "checkpoint_final.pt", pair())
    manifest(path.parent, lora_r=1, lora_alpha=7)
    files = find(tmp_path / "security", uncertainty_path=str(path))
    assert files.uncertainty == AdapterFile(path=path, rank=1, alpha=7)


def test_the_digest_depends_on_contents_and_scale_and_not_on_the_place(tmp_path):
    first, second = (
        tiny_heads(tmp_path / name, SMALL, n_heads=2) for name in ("one", "two")
    )
    before = find(first).digest()
    assert find(second).digest() == before
    manifest(second, num_shards=2, heads_depth=2, lora_alpha=1)
    scaled = find(second)
    assert scaled.digest() != before
    assert (
        json.dumps(scaled.heads[0][0].alpha) == "1"
    )  # no 1.0, which has another digest
    save(first / "shard_1_lora.pt", pair())
    assert find(first).digest() != before


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "{}/manifest.json: has no num_shards. Expected 1 or more."),
        (
            {"num_shards": 0},
            "{}/manifest.json: num_shards: found 0. Input should be greater",
        ),
        (
            {"num_shards": 2, "lora_alpha": "x"},
            "{}/manifest.json: lora_alpha: found 'x'.",
        ),
        (
            {"num_shards": 2, "target_modules": ["q"]},
            "{}/manifest.json: target_modules: found",
        ),
        ({"num_shards": 3}, "security_dir: found no shard_2_lora{{.safetensors,"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, settings, message):
    tiny_heads(tmp_path, SMALL, n_heads=2)
    manifest(tmp_path, **settings)
    with pytest.raises(UserError) as refusal:
        find(tmp_path)
    assert str(refusal.value).startswith(message.format(tmp_path))
    assert "\n" not in str(refusal.value)


def test_a_manifest_is_needed_and_has_a_config(tmp_path):
    with pytest.raises(UserError, match="security_dir: found no manifest.json in"):
        find(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="manifest.json: found no settings. Expected"):
        find(tmp_path)


def test_a_checkpoint_that_is_absent_or_there_twice_is_refused(trained, tmp_path):
    message = (
        "rob_checkpoint: found 60; .*shard_0 has steps 50, 200. Expected one of them"
    )
    with pytest.raises(UserError, match=message):
        find(tmp_path, **trained, rob_checkpoint=60)
    again = (
        Path(trained["robustness_dir"]) / "shard_0" / "20260202_120000" / "checkpoints"
    )
    save(again / "checkpoint_step_50.pt", pair())
    with pytest.raises(
        UserError, match="rob_checkpoint: step 50 is both .* and .*. Keep one"
    ):
        find(tmp_path, **trained, rob_checkpoint=50)
    nowhere = {**trained, "robustness_dir": trained["security_dir"]}
    with pytest.raises(UserError, match="found 50; .*shard_0 has no checkpoint_step_N"):
        find(tmp_path, **nowhere, rob_checkpoint=50)
    with pytest.raises(
        UserError, match="robustness_dir: has no value with rob_checkpoint=-1."
    ):
        find(tmp_path, rob_checkpoint=-1)
    with pytest.raises(
        UserError, match=r"uncertainty_path: found no file .*none\.pt. Expected"
    ):
        find(Path(trained["security_dir"]), uncertainty_path=str(tmp_path / "none.pt"))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            pair(size_in=5),
            "head layer 0, gate_proj: found lora_A 1 x 5, lora_B 4 x 1. Expected",
        ),
        (
            pair("blocks.2.feed_forward.w1"),
            "found an update of blocks.2. Expected blocks 0 to 1:",
        ),
        (
            pair("model.layers.0.mlp.up_proj"),
            "found an update of layers.0. Expected layers 3 to",
        ),
        (
            pair("blocks.0.attention.w_q"),
            "found an update 'blocks.0.attention.w_q.lora_A.weight'.",
        ),
        (
            pair(rank=2),
            "head layer 0, gate_proj: found rank 2. Expected 1, the lora_r of",
        ),
        (
            dict(list(pair().items())[:1]),
            "head layer 0, gate_proj: found only lora_A. Expected",
        ),
        ({"blocks.0.weight": torch.ones(1)}, "holds no tensor named ...lora_A.weight."),
        ({"step": 3}, "found no state dict. Expected tensors by name."),
        ([torch.ones(1)], "found no state dict. Expected tensors by name."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_update_that_does_not_fit_the_model_is_refused(tmp_path, state, message):
    path = tmp_path / "a.pt"
    with pytest.raises(UserError) as refusal:
        read(path, state, rank=1)
    assert str(refusal.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_truncated_file_is_refused(tmp_path, name):
    path = save(tmp_path / name, pair())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        UserError, match=rf"{name}: cannot be read \(.*\). Expected a state dict"
    ):
        adapters.read([AdapterFile(path=path)], SMALL)


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path):
    mark = tmp_path / "ran"
    path = save(tmp_path / "a.pt", {**pair(), "extra": Touch(mark)})
    with pytest.raises(UserError, match="refused, because it holds more than tensors"):
        adapters.read([AdapterFile(path=path)], SMALL)
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()
