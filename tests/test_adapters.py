"""The heads' adapters: which files are read, what an update is, and what is said of a file that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp.models import adapters
from elo_exp.models.adapters import AdapterFile, Geometry, HeadFiles
from elo_exp.records import UserError
from tests.tiny_heads import Tensors, manifest, save, tensors, tiny_heads

SMALL = Geometry(
    n_layers=5, depth=2, sizes={"gate_proj": (3, 4), "up_proj": (3, 4), "down_proj": (4, 3)}
)
GATE = "blocks.0.feed_forward.w1"


def pair(name: str = GATE, rank: int = 1, size_in: int = 3, size_out: int = 4) -> Tensors:
    """One update, of ones."""
    return {
        f"{name}.lora_A.weight": torch.ones(rank, size_in),
        f"{name}.lora_B.weight": torch.ones(size_out, rank),
    }


def read(path: Path, state: Any, **described: Any) -> adapters.Update:
    return adapters.read([AdapterFile(path=save(path, state), **described)], SMALL)


def matrix(update: adapters.Update, layer: int = 0, projection: str = "gate_proj") -> torch.Tensor:
    """What is added to the projection's weights."""
    down, up = update[layer, projection]
    return up.T @ down


def find(folder: Path, **changes: Any) -> HeadFiles:
    settings = {"robustness_dir": None, "rob_checkpoint": None, "uncertainty_path": None}
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


@pytest.mark.parametrize(
    ("rank", "alpha", "factor"), [(1, None, 2), (3, None, 2), (3, 6, 2), (3, 3, 1), (1, 4, 4)]
)
def test_alpha_is_twice_the_rank_unless_a_manifest_says_otherwise(tmp_path, rank, alpha, factor):
    """Of ones, B A is the rank everywhere."""
    update = read(tmp_path / "a.pt", pair(rank=rank), alpha=alpha)
    assert torch.equal(matrix(update), torch.full((4, 3), 1.0 * rank * factor))


def test_later_updates_are_added_to_earlier_ones(tmp_path):
    files = [
        AdapterFile(path=save(tmp_path / f"{rank}.pt", tensors(SMALL, seed=rank, rank=rank)))
        for rank in (1, 2, 4)
    ]
    together = adapters.read(files, SMALL)
    apart = [adapters.read([file], SMALL) for file in files]
    assert together[1, "down_proj"][0].shape == (1 + 2 + 4, 4)
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
def test_formats_and_names_that_mean_the_same(tmp_path, file, name):
    """`blocks` are counted from the first layer of the head, `layers` from the first of the model."""
    plain = read(tmp_path / "plain.pt", tensors(SMALL, seed=7))
    update = read(tmp_path / file, tensors(SMALL, seed=7, name=name))
    assert update.keys() == plain.keys()
    assert all(torch.equal(matrix(update, *place), matrix(plain, *place)) for place in plain)


def test_a_whole_training_checkpoint_is_read_for_its_update(tmp_path):
    head = {name.replace(".weight", ".default.weight"): tensor for name, tensor in pair().items()}
    head["blocks.0.feed_forward.w1.base_layer.weight"] = torch.ones(4, 3)
    update = read(tmp_path / "a.pt", {"head_state_dict": head, "optimizer_state_dict": {"step": 3}})
    assert torch.equal(matrix(update), torch.full((4, 3), 2.0))


# Which files


def test_every_head_has_its_security_file(tmp_path):
    files = find(tiny_heads(tmp_path, SMALL, n_heads=3))
    assert files.depth == 2
    assert [[file.path.name for file in some] for some in files.heads] == [
        [f"shard_{i}_lora.pt"] for i in range(3)
    ]
    assert files.uncertainty is None


def test_the_manifest_says_rank_and_alpha_and_the_depth_is_three_by_default(tmp_path):
    tiny_heads(tmp_path, SMALL, n_heads=1)
    manifest(tmp_path, num_shards=1, lora_r=2, lora_alpha=5, target_modules=["w1", "w2", "w3"])
    files = find(tmp_path)
    assert files.depth == 3
    assert files.heads == ((AdapterFile(path=tmp_path / "shard_0_lora.pt", rank=2, alpha=5),),)


def test_a_safetensors_file_goes_before_a_torch_file(tmp_path):
    save(tiny_heads(tmp_path, SMALL, n_heads=1) / "shard_0_lora.safetensors", pair())
    assert find(tmp_path).heads[0][0].path.name == "shard_0_lora.safetensors"


@pytest.fixture
def trained(tmp_path) -> dict[str, str]:
    """Two heads with their final robustness files, and those of steps 50 and 200 of their training."""
    for name in ("security", "robustness"):
        tiny_heads(tmp_path / name, SMALL, n_heads=2)
    for head in range(2):
        for step in ("50", "200_slim"):
            run = tmp_path / "robustness" / f"shard_{head}" / "20260101_120000" / "checkpoints"
            save(run / f"checkpoint_step_{step}.pt", pair())
    return {"folder": str(tmp_path / "security"), "robustness_dir": str(tmp_path / "robustness")}


@pytest.mark.parametrize(
    ("step", "second"),
    [
        (None, None),
        (-1, "shard_1_lora.pt"),
        (50, "checkpoint_step_50.pt"),
        (200, "checkpoint_step_200_slim.pt"),
    ],
)
def test_a_checkpoint_of_the_robustness_training_follows_the_security_file(trained, step, second):
    files = find(
        Path(trained["folder"]), robustness_dir=trained["robustness_dir"], rob_checkpoint=step
    )
    names = [file.path.name for file in files.heads[1]]
    assert names == ["shard_1_lora.pt", *([second] if second else [])]


def test_the_uncertainty_file_has_the_manifest_beside_it(tmp_path):
    tiny_heads(tmp_path / "security", SMALL, n_heads=1)
    path = save(tmp_path / "uncertainty" / "checkpoint_final.pt", pair())
    manifest(path.parent, lora_r=1, lora_alpha=7)
    files = find(tmp_path / "security", uncertainty_path=str(path))
    assert files.uncertainty == AdapterFile(path=path, rank=1, alpha=7)


def test_the_digest_names_the_contents_and_the_scale_and_not_the_place(tmp_path):
    first, second = (tiny_heads(tmp_path / name, SMALL, n_heads=2) for name in ("one", "two"))
    before = find(first).digest()
    assert find(second).digest() == before
    manifest(second, num_shards=2, heads_depth=2, lora_alpha=1)
    assert find(second).digest() != before
    save(first / "shard_1_lora.pt", pair())
    assert find(first).digest() != before


# What does not fit


def without_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def without_a_file(folder: Path) -> None:
    (folder / "shard_1_lora.pt").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            without_manifest,
            "security_dir: found no manifest.json in {}. Expected one that counts the heads.",
        ),
        (
            without_a_file,
            "security_dir: found no shard_1_lora{{.safetensors,.pt,.pth,.bin}} in {}. Check the path.",
        ),
        (manifest, "{}/manifest.json: found num_shards = None. Expected a whole number from 1."),
        (lambda f: manifest(f, num_shards=0), "{}/manifest.json: found num_shards = 0."),
        (
            lambda f: manifest(f, num_shards=2, heads_depth=0),
            "{}/manifest.json: found heads_depth = 0.",
        ),
        (
            lambda f: manifest(f, num_shards=2, lora_alpha="x"),
            "{}/manifest.json: found lora_alpha = 'x'.",
        ),
        (
            lambda f: manifest(f, num_shards=2, target_modules=["q"]),
            "{}/manifest.json: target_modules has 'q'.",
        ),
        (
            lambda f: (f / "manifest.json").write_text("[]"),
            "{}/manifest.json: found no settings. Expected",
        ),
    ],
    ids=[
        "no manifest",
        "no file",
        "no count",
        "no heads",
        "no depth",
        "alpha",
        "targets",
        "no object",
    ],
)
def test_a_folder_that_lacks_something_is_refused(tmp_path, spoil, words):
    spoil(tiny_heads(tmp_path, SMALL, n_heads=2))
    with pytest.raises(UserError) as refusal:
        find(tmp_path)
    assert str(refusal.value).startswith(words.format(tmp_path))


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(trained):
    folder = Path(trained["folder"])
    words = "rob_checkpoint: found 60; .*shard_0 has steps 50, 200. Expected one of them, or -1."
    with pytest.raises(UserError, match=words):
        find(folder, robustness_dir=trained["robustness_dir"], rob_checkpoint=60)
    with pytest.raises(
        UserError, match="rob_checkpoint: found 50; .*shard_0 has no checkpoint_step_N file"
    ):
        find(folder, robustness_dir=trained["folder"], rob_checkpoint=50)
    with pytest.raises(UserError, match="robustness_dir: found nothing, and rob_checkpoint=-1."):
        find(folder, rob_checkpoint=-1)


def test_a_step_that_two_runs_have_is_refused(trained):
    again = Path(trained["robustness_dir"]) / "shard_0" / "20260202_120000" / "checkpoints"
    save(again / "checkpoint_step_50.pt", pair())
    with pytest.raises(
        UserError, match="rob_checkpoint: step 50 is both .* and .*. Keep one of them there."
    ):
        find(Path(trained["folder"]), robustness_dir=trained["robustness_dir"], rob_checkpoint=50)


def test_an_uncertainty_file_that_is_not_there_is_refused(tmp_path):
    tiny_heads(tmp_path, SMALL, n_heads=1)
    with pytest.raises(
        UserError, match=r"uncertainty_path: found no file .*none\.pt. Expected one that ends in"
    ):
        find(tmp_path, uncertainty_path=str(tmp_path / "none.pt"))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            pair(size_in=5),
            "head layer 0, gate_proj: found lora_A 1 x 5, lora_B 4 x 1. Expected rank x 3 and 4 x rank,",
        ),
        (
            pair("blocks.2.feed_forward.w1"),
            "found an update of blocks.2. Expected blocks 0 to 1: the last 2 of 5",
        ),
        (
            pair("model.layers.0.mlp.up_proj"),
            "found an update of layers.0. Expected layers 3 to 4:",
        ),
        (
            pair("blocks.0.attention.w_q"),
            "found an update 'blocks.0.attention.w_q.lora_A.weight'. Expected updates of",
        ),
        (
            pair(rank=2),
            "head layer 0, gate_proj: found rank 2. Expected 1, as lora_r of manifest.json says.",
        ),
        (
            dict(list(pair().items())[:1]),
            "head layer 0, gate_proj: found only lora_A. Expected lora_A and lora_B.",
        ),
        ({"blocks.0.weight": torch.ones(1)}, "holds no tensor named ...lora_A.weight."),
        ({"step": 3}, "found no state dict. Expected tensors by name."),
        ([torch.ones(1)], "found no state dict. Expected tensors by name."),
    ],
    ids=[
        "shape",
        "block",
        "layer",
        "attention",
        "rank",
        "half",
        "no update",
        "no tensor",
        "no names",
    ],
)
def test_an_update_that_does_not_fit_the_model_is_refused(tmp_path, state, words):
    path = tmp_path / "a.pt"
    with pytest.raises(UserError) as refusal:
        read(path, state, rank=1)
    assert str(refusal.value).startswith(f"{path}: {words}")


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, name):
    path = save(tmp_path / name, pair())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        UserError, match=rf"{name}: cannot be read \(.*\). Expected a state dict of tensors."
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
