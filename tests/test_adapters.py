"""The heads' adapter files: which are read, what an update is, and what is refused."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from elo_exp.entrants import poe
from elo_exp.errors import UserError
from elo_exp.models import to_safetensors
from elo_exp.models.multihead import Geometry
from elo_exp.models.to_safetensors import convert_file
from tests.data import prompt, shipped
from tests.tiny_heads import Tensors, Touch, manifest, save, tensors, tiny_heads

SIZES = {"gate_proj": (3, 4), "up_proj": (3, 4), "down_proj": (4, 3)}
SMALL = Geometry(n_layers=5, depth=2, sizes=SIZES)


def pair(name: str = "blocks.0.feed_forward.w1", rank: int = 1) -> Tensors:
    """An update, of ones."""
    down, up = torch.ones(rank, 3), torch.ones(4, rank)
    return {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}


def read(*paths: Path, **config: Any) -> dict[Any, torch.Tensor]:
    """What the files add to the weights, by head layer and projection. Those of torch are converted first."""
    safe = [p if p.suffix == ".safetensors" else convert_file(p) for p in paths]
    files = [poe.AdapterFile(path, poe.AdapterManifest(**config)) for path in safe]
    update = poe.read_updates(files, SMALL)
    return {place: up.T @ down for place, (down, up) in update.items()}


def entrant(folder: Path, **changes: Any) -> Any:
    plain = {"rob_checkpoint": None, "needs_uncertainty": "uncertainty_path" in changes}
    settings = {"security_dir": str(folder), **plain, "cache_dir": "absent", **changes}
    return shipped("entrant", "full_poe", **settings)


def find(folder: Path, **changes: Any) -> poe.HeadFiles:
    found = entrant(folder, **changes).head_files
    assert isinstance(found, poe.HeadFiles)
    return found


def digest(folder: Path) -> str:
    """What identifies the heads in the key of an answer."""
    (folder / "config.json").write_text("{}")
    return str(entrant(folder, model=str(folder)).cache_key(prompt())["heads"])


# What an update is


@pytest.mark.parametrize(("alpha", "factor"), [(1, 1), (3, 3), (None, 2)])
def test_an_update_is_b_times_a_times_alpha_over_the_rank(tmp_path, alpha, factor):
    """A = (1 2 0), B = (1 0 3 0)': B A. Where no manifest has it, alpha is twice the rank.

    A training checkpoint names the adapter, and holds the frozen weights and its optimizer.
    """
    name = "blocks.0.feed_forward.w1"
    head = {
        f"{name}.lora_A.default.weight": torch.tensor([[1.0, 2.0, 0.0]]),
        f"{name}.lora_B.default.weight": torch.tensor([[1.0], [0.0], [3.0], [0.0]]),
        f"{name}.base_layer.weight": torch.ones(4, 3),
    }
    state = {"head_state_dict": head, "optimizer_state_dict": {"step": 3}}
    found = read(save(tmp_path / "a.pt", state), lora_alpha=alpha)
    expected = torch.tensor([[1, 2, 0], [0, 0, 0], [3, 6, 0], [0, 0, 0]])
    assert list(found) == [(0, "gate_proj")]
    assert torch.equal(found[0, "gate_proj"], expected * factor)


def test_later_updates_are_added_to_earlier_ones(tmp_path):
    paths = [
        save(tmp_path / f"{rank}.pt", tensors(SMALL, seed=rank, rank=rank))
        for rank in (1, 2, 4)
    ]
    apart = [read(path) for path in paths]
    for place, found in read(*paths).items():
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
    plain = read(save(tmp_path / "plain.pt", tensors(SMALL, seed=7)))
    found = read(save(tmp_path / file, tensors(SMALL, seed=7, name=name)))
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[place], plain[place]) for place in plain)


# Which files


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
        (-1, ["shard_1_lora.safetensors"]),
        (50, ["checkpoint_step_50.pt"]),
        (200, ["checkpoint_step_200_slim.pt"]),
    ],
)
def test_a_robustness_checkpoint_follows_the_security_file(trained, step, second):
    files = find(Path(), **trained, rob_checkpoint=step)
    assert (files.depth, files.n_heads, files.groups[-1]) == (2, 2, [])
    assert [file.path.name for file in files.groups[1]] == [
        "shard_1_lora.safetensors",
        *second,
    ]


def test_without_a_final_file_the_training_runs_own_is_the_last_and_its_slim_one_first(
    trained,
):
    run = Path(trained["robustness_dir"])
    for head in range(2):
        (run / f"shard_{head}_lora.safetensors").unlink()
        for name in ("checkpoint_final_slim", "checkpoint_final"):
            save(run / f"shard_{head}" / "20260101" / f"{name}.pt", pair())
    files = find(Path(), **trained, rob_checkpoint=-1)
    assert files.groups[1][1].path.name == "checkpoint_final_slim.pt"
    save(run / "shard_1" / "20260202" / "checkpoint_final.pt", pair())
    with pytest.raises(UserError, match=r"head 1 .*20260101/.*20260202/"):
        find(Path(), **trained, rob_checkpoint=-1)


def test_a_git_lfs_pointer_is_refused_with_what_to_run(trained):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    Path(trained["security_dir"], "shard_1_lora.safetensors").write_text(pointer)
    with pytest.raises(
        UserError,
        match=r"shard_1_lora.safetensors is a pointer of Git LFS, not the file. Run",
    ):
        digest(Path(trained["security_dir"]))


def test_a_folder_has_its_manifest_and_of_two_formats_safetensors(trained, tmp_path):
    path = save(tmp_path / "uncertainty" / "checkpoint_final.pt", pair())
    manifest(path.parent, lora_r=1, lora_alpha=7, other=1)
    security = Path(trained["security_dir"])
    save(security / "shard_1_lora.pt", pair())
    files = find(security, uncertainty_path=str(path))
    expected = poe.AdapterFile(path, poe.AdapterManifest(lora_r=1, lora_alpha=7))
    assert files.groups[-1] == [expected]
    assert files.groups[1][0].path.suffix == ".safetensors"


def test_the_digest_depends_on_contents_and_scale_and_not_on_the_place(tmp_path):
    folders = [tiny_heads(tmp_path / name, SMALL, n_heads=2) for name in "ab"]
    before = digest(folders[0])
    assert digest(folders[1]) == before
    manifest(folders[1], num_shards=2, heads_depth=2, lora_alpha=1)
    assert digest(folders[1]) != before
    alpha = find(folders[1]).groups[0][0].manifest.lora_alpha
    assert json.dumps(alpha) == "1"  # no 1.0, which has another digest
    save(folders[0] / "shard_1_lora.safetensors", pair())
    assert digest(folders[0]) != before


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "{}/manifest.json: the content must be a mapping, such as"),
        (
            '{"config": {}}',
            "security_dir must hold a manifest.json with num_shards, the number of heads; {} does",
        ),
        (
            '{"config": {"num_shards": 0}}',
            "{}/manifest.json: config.num_shards must be a whole number of 1 or more, or null; got 0.",
        ),
        (
            '{"config": {"num_shards": 3}}',
            "security_dir must hold one file for head 2 (shard_2_lora{{.safetensors,.pt,.pth,.bin}} or checkpoint_final in "
            "one training run); {}/shard_2 has 0 (none).",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, text, message):
    tiny_heads(tmp_path, SMALL, n_heads=2)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError) as refusal:
        find(tmp_path)
    assert str(refusal.value).startswith(message.format(tmp_path))
    assert "\n" not in str(refusal.value)


def test_files_that_are_absent_or_there_twice_are_refused(trained, tmp_path):
    security = Path(trained["security_dir"])
    again = Path(trained["robustness_dir"]) / "shard_0" / "20260202"
    save(again / "checkpoint_step_50.pt", pair())
    absent = str(tmp_path / "none.pt")
    for settings, message in (
        (
            {**trained, "rob_checkpoint": 60},
            "one file for head 0 .*step_60 in .* has 0",
        ),
        ({**trained, "rob_checkpoint": 50}, "has 2 .*20260101.*_50.*20260202.*_50"),
        (
            {"rob_checkpoint": -1},
            "robustness_dir is not set, and rob_checkpoint=-1 needs it",
        ),
        (
            {"uncertainty_path": absent},
            "uncertainty_path must be the file of .*none.pt is no file",
        ),
    ):
        with pytest.raises(UserError, match=message):
            find(security, **settings)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            pair("blocks.0.w2"),
            "does not fit the model: layer 0, down_proj has LoRA shapes {'A': (1, 3)",
        ),
        (
            dict([*pair().items()][:1]),
            "does not fit the model: layer 0, gate_proj has LoRA shapes {'A': (1",
        ),
        (
            pair("blocks.2.w1"),
            "holds the update blocks.2.w1.lora_A.weight, which belongs to no head. ",
        ),
        (
            pair("layers.0.up_proj"),
            "holds the update layers.0.up_proj.lora_A.weight, which belongs to no head.",
        ),
        (
            pair("blocks.0.w_q"),
            "holds the update blocks.0.w_q.lora_A.weight, which belongs to no head.",
        ),
        ({"blocks.0.weight": torch.ones(1)}, "holds no tensor named ...lora_A.weight."),
        (
            [torch.ones(1)],
            "cannot be read ('list' object has no attribute 'get'). It must hold",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_update_that_does_not_fit_the_model_is_refused(tmp_path, state, message):
    name = "a.safetensors" if isinstance(state, dict) else "a.pt"
    path = save(tmp_path / name, state)
    with pytest.raises(UserError) as refusal:
        read(path, lora_r=1)
    assert str(refusal.value).startswith(f"{path} {message}")


@pytest.mark.parametrize("name", ["a.pt", "a.bin", "a.safetensors"])
def test_a_truncated_file_is_refused(tmp_path, name):
    path = save(tmp_path / name, pair())
    path.write_bytes(path.read_bytes()[:-200])
    message = rf"{name} cannot be read \(.*\). It must hold a state dict"
    with pytest.raises(UserError, match=message):
        read(path)


def test_a_file_of_torch_is_converted_by_the_command_that_the_refusal_names(tmp_path):
    folder = tmp_path / "two heads"
    path, state = folder / "shard_0" / "a.pt", tensors(SMALL, seed=7)
    save(path, {"head_state_dict": state})
    with pytest.raises(UserError) as refusal:
        poe.read_updates([poe.AdapterFile(path, poe.AdapterManifest())], SMALL)
    command = str(refusal.value).rpartition("python -m elo_exp.models.")[2]
    assert command == f"to_safetensors '{path.parent}'"
    assert to_safetensors.main(shlex.split(command)[1:]) == 0
    expected = read(save(tmp_path / "same.safetensors", state))
    found = read(path.with_suffix(".safetensors"))
    assert all(torch.equal(found[place], expected[place]) for place in expected)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path):
    mark = tmp_path / "ran"
    path = save(tmp_path / "a.pt", {**pair(), "extra": Touch(mark)})
    with pytest.raises(UserError, match="was not read: it holds more than tensors"):
        read(path)
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()
