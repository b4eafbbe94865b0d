"""Random models built on the spot: the same on every machine."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from safetensors.numpy import load_file

from elo_exp.models import tiny
from elo_exp.models.causal_lm import Checkpoint
from elo_exp.records import UserError
from tests.commands import attempt_program
from tests.data import described


def built(cache: Path, seed: object = 0) -> Path:
    checkpoint = Checkpoint(model=f"tiny-random/{seed}", dtype="float32", device="cpu")
    return Path(tiny.build(checkpoint, cache).model)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_the_same_seed_gives_the_same_files_whatever_was_drawn_before(cache, tmp_path):
    torch.manual_seed(17)
    one, two = built(cache), built(tmp_path)
    names = sorted(path.name for path in one.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def test_the_weights_are_uniform_numbers_of_the_seed(cache):
    """In the order of their names; a standard deviation of .15 is a width of .15 sqrt(12)."""
    weights = load_file(built(cache) / "model.safetensors")
    first, *_ = sorted(name for name, values in weights.items() if values.ndim > 1)
    drawn = (np.random.default_rng(0).random(weights[first].shape) - 0.5) * (
        0.15 * np.sqrt(12)
    )
    np.testing.assert_array_equal(weights[first], drawn.astype(np.float32))


def test_another_seed_is_another_model_with_the_same_tokenizer(cache):
    one, two = built(cache), built(cache, 1)
    assert (one / "tokenizer.json").read_bytes() == (
        two / "tokenizer.json"
    ).read_bytes()
    assert (one / "model.safetensors").read_bytes() != (
        two / "model.safetensors"
    ).read_bytes()


def test_a_model_is_built_once_by_several_processes(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: built(tmp_path), range(4)))
    assert len(folders) == 1
    assert [path.name for path in (tmp_path / "tiny_random").iterdir()] == [
        folders.pop().name
    ]


def test_other_models_are_returned_as_they_are(tmp_path):
    checkpoint = Checkpoint(model="allenai/OLMo-2-1124-7B-Instruct")
    assert tiny.build(checkpoint, tmp_path) is checkpoint


@pytest.mark.parametrize("seed", ["", "-1", "one"])
def test_a_seed_is_a_whole_number(tmp_path, seed):
    with pytest.raises(
        UserError, match=f"model: found 'tiny-random/{seed}'. Expected tiny-random"
    ):
        built(tmp_path, seed)


@pytest.mark.parametrize(
    ("name", "differences"),
    [
        ("clone", set()),
        ("unhelpful", {"system_prompt"}),
        ("parallel_universe_prompt", {"system_prompt"}),
        ("premium", {"model"}),
    ],
)
def test_the_tiny_entrants_differ_as_their_names_say(name, differences):
    base, other = (
        OmegaConf.to_container(described("entrant", f"tiny_{each}"))
        for each in ("base", name)
    )
    assert {key for key in base if base[key] != other[key]} == {
        "entrant_id",
        *differences,
    }


def test_without_torch_one_line_names_what_is_missing(tmp_path):
    block = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "peft")))  # as if not installed
runpy.run_module("elo_exp", run_name="__main__")
"""
    chosen = ["entrant=[tiny_base,probe_reference]", "tracker=local"]
    ran = attempt_program(
        sys.executable, "-W", "error", "-c", block, *chosen, folder=tmp_path
    )
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == (
        "elo_exp: tiny-random/0: needs torch, transformers, peft, not installed: "
        "pip install 'elo-exp[hf]'."
    )
