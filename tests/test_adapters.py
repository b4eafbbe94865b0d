"""The heads' adapter files: which are read, what an update is, and what is refused."""

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


def pair(
    name: str = "blocks.0.feed_forward.w1",
    *,
    down: Any = ((1, 1, 1),),
    up: Any = ((1,), (1,), (1,), (1,)),
) -> Tensors:
    """An update, of ones."""
    return {
        f"{name}.lora_A.weight": torch.tensor(down, dtype=torch.float32),
        f"{name}.lora_B.weight": torch.tensor(up, dtype=torch.float32),
    }


def read(path: Path, state: Any, **described: Any) -> dict[Any, torch.Tensor]:
    """What the update adds to the weights, by head layer and projection."""
    file = AdapterFile(path=save(path, state), **described)
    return matrices([file])


def matrices(files: list[AdapterFile]) -> dict[Any, torch.Tensor]:
    update = adapters.read(files, SMALL)
    return {place: up.T @ down for place, (down, up) in update.items()}


def find(folder: Path, **changes: Any) -> HeadFiles:
    names = ("robustness_dir", "rob_checkpoint", "uncertainty_path")
    settings = {"security_dir": str(folder), **dict.fromkeys(names), **changes}
    return adapters.find(**settings)


# What an update is


@pytest.mark.parametrize(("alpha", "factor"), [(1, 1), (3, 3), (None, 2)])
def test_an_update_is_b_times_a_times_alpha_over_the_rank(tmp_path, alpha, factor):
    """A = (1 2 0), B = (1 0 3 0)': B A. Where no manifest has it, alpha is twice the rank."""
    state = pair(down=[[1, 2, 0]], up=[[1], [0], [3], [0]])
    (place, found), *others = read(tmp_path / "a.pt", state, alpha=alpha).items()
    expected = torch.tensor([[1, 2, 0], [0, 0, 0], [3, 6, 0], [0, 0, 0]])
    assert (place, others) == ((0, "gate_proj"), [])
    assert torch.equal(found, expected * factor)


def test_later_updates_are_added_to_earlier_ones(tmp_path):
    paths = [tmp_path / f"{rank}.pt" for rank in (1, 2, 4)]
    for rank, path in enumerate(paths, 1):
        save(path, tensors(SMALL, seed=rank, rank=rank))
    files = [AdapterFile(path=path) for path in paths]
    apart = [matrices([file]) for file in files]
    for place, found in matrices(files).items():
        total = torch.stack([update[place] for update in apart]).sum(0)
        assert torch.allclose(found, total, atol=1e-6)


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
    found = read(tmp_path / file, tensors(SMALL, seed=7, name=name))
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[place], plain[place]) for place in plain)


def test_a_training_checkpoint_is_read_for_its_update(tmp_path):
    head = {n.replace(".weight", ".default.weight"): t for n, t in pair().items()}
    head["blocks.0.feed_forward.w1.base_layer.weight"] = torch.ones(4, 3)
    state = {"head_state_dict": head, "optimizer_state_dict": {"step": 3}}
    (found,) = read(tmp_path / "a.pt", state).values()
    assert torch.equal(found, torch.full((4, 3), 2.0))


# Which files


def test_each_head_has_its_file_with_the_rank_and_alpha_of_the_manifest(tmp_path):
    tiny_heads(tmp_path, SMALL, n_heads=2)
    save(tmp_path / "shard_1_lora.safetensors", pair())  # preferred
    settings = {"lora_r": 2, "lora_alpha": 5, "target_modules": ["w1", "w3"]}
    manifest(tmp_path, num_shards=2, **settings, other=1)
    files = find(tmp_path)
    assert files.depth == 3  # unless the manifest has another
    assert files.heads == tuple(
        (AdapterFile(path=tmp_path / name, rank=2, alpha=5),)
        for name in ("shard_0_lora.pt", "shard_1_lora.safetensors")
    )


@pytest.fixture
def trained(tmp_path) -> dict[str, str]:
    """Two heads with robustness files: the final ones, and those of steps 50 and 200."""
    folders = {name: tmp_path / name for name in ("security", "robustness")}
    for folder in folders.values():
        tiny_heads(folder, SMALL, n_heads=2)
    for head in range(2):
        run = folders["robustness"] / f"shard_{head}" / "20260101" / "checkpoints"
        for step in ("50", "200_slim"):
            save(run / f"checkpoint_step_{step}.pt", pair())
    return {f"{name}_dir": str(folder) for name, folder in folders.items()}


@pytest.mark.parametrize(
    ("step", "second"),
    [
        (None, []),
        (-1, ["shard_1_lora.pt"]),
        (50, ["checkpoint_step_50.pt"]),
        (200, ["checkpoint_step_200_slim.pt"]),
    ],
)
def test_a_robustness_checkpoint_follows_the_security_file(trained, step, second):
    files = find(**trained, folder=Path(), rob_checkpoint=step)
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
    alpha = scaled.heads[0][0].alpha
    assert json.dumps(alpha) == "1"  # no 1.0, which has another digest
    save(first / "shard_1_lora.pt", pair())
    assert find(first).digest() != before


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "security_dir: found no manifest.json with num_shards in"),
        ({"num_shards": 0}, "{}/manifest.json: num_shards: found 0. Input should be"),
        ({"target_modules": ["q"]}, "{}/manifest.json: target_modules: found"),
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


def test_files_that_are_absent_or_there_twice_are_refused(trained, tmp_path):
    security = Path(trained["security_dir"])
    again = Path(trained["robustness_dir"]) / "shard_0" / "20260202"
    save(again / "checkpoint_step_50.pt", pair())
    nowhere = {**trained, "robustness_dir": str(security)}
    for settings, message in (
        ({**trained, "rob_checkpoint": 60}, "found 60; .*shard_0 has steps 50, 200. E"),
        ({**trained, "rob_checkpoint": 50}, "step 50 is both .* and .*. Keep one"),
        ({**nowhere, "rob_checkpoint": 50}, "found 50; .* has no checkpoint_step_N"),
        (
            {"rob_checkpoint": -1},
            "robustness_dir: has no value with rob_checkpoint=-1.",
        ),
        (
            {"uncertainty_path": str(tmp_path / "none.pt")},
            r"uncertainty_path: found no file .*none\.pt. Expected",
        ),
    ):
        with pytest.raises(UserError, match=message):
            find(security, **settings)
    (security / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="manifest.json: found no settings. Expected"):
        find(security)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (pair(down=[[1] * 5]), "head layer 0, gate_proj: found lora_A (1, 5), lora_B"),
        (
            pair("blocks.2.feed_forward.w1"),
            "found an update of blocks.2. Expected bloc",
        ),
        (
            pair("layers.0.mlp.up_proj"),
            "found an update of layers.0. Expected layers 3",
        ),
        (pair("blocks.0.attention.w_q"), "found an update 'blocks.0.attention.w_q.lor"),
        (
            pair(down=[[1] * 3] * 2, up=[[1] * 2] * 4),
            "head layer 0, gate_proj: found rank 2. Expected 1, the lora_r of",
        ),
        (dict(list(pair().items())[:1]), "head layer 0, gate_proj: found only lora_A."),
        ({"blocks.0.weight": torch.ones(1)}, "holds no tensor named ...lora_A.weight."),
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
    message = rf"{name}: cannot be read \(.*\). Expected a state dict"
    with pytest.raises(UserError, match=message):
        matrices([AdapterFile(path=path)])


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
        matrices([AdapterFile(path=path)])
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()
