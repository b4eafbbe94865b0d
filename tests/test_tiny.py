"""Random models built on the spot: the same everywhere, whole or not there, and known by their seed."""

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
    return Path(
        tiny.built(
            Checkpoint(model=f"tiny-random/{seed}", dtype="float32", device="cpu"), cache
        ).model
    )


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
    """In the order of their names, with a standard deviation of 0.15: a width of 0.15 times the root of twelve."""
    weights = load_file(built(cache) / "model.safetensors")
    first, *_ = sorted(name for name, values in weights.items() if values.ndim > 1)
    drawn = (np.random.default_rng(0).random(weights[first].shape) - 0.5) * (0.15 * np.sqrt(12))
    np.testing.assert_array_equal(weights[first], drawn.astype(np.float32))


def test_another_seed_is_another_model_with_the_same_tokenizer(cache):
    one, two = built(cache), built(cache, 1)
    assert one != two
    assert (one / "tokenizer.json").read_bytes() == (two / "tokenizer.json").read_bytes()
    assert (one / "model.safetensors").read_bytes() != (two / "model.safetensors").read_bytes()


def test_a_model_is_built_once_and_by_several_at_a_time_without_harm(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: built(tmp_path), range(4)))
    assert len(folders) == 1
    assert [path.name for path in (tmp_path / "tiny_random").iterdir()] == [folders.pop().name]


def test_other_models_are_left_as_they_are(tmp_path):
    checkpoint = Checkpoint(model="allenai/OLMo-2-1124-7B-Instruct")
    assert tiny.built(checkpoint, tmp_path) is checkpoint


@pytest.mark.parametrize("seed", ["", "-1", "1.5", "one"])
def test_a_seed_is_a_whole_number(tmp_path, seed):
    with pytest.raises(
        UserError,
        match=f"model: found 'tiny-random/{seed}'. Expected tiny-random/ and a whole number",
    ):
        built(tmp_path, seed)


@pytest.mark.parametrize("name", ["clone", "unhelpful", "premium", "parallel_universe_prompt"])
def test_the_tiny_entrants_differ_from_the_first_by_what_their_names_say(name):
    base, other = (
        OmegaConf.to_container(described("entrant", f"tiny_{each}")) for each in ("base", name)
    )
    differs = {
        "clone": {"entrant_id"},
        "unhelpful": {"entrant_id", "system_prompt"},
        "parallel_universe_prompt": {"entrant_id", "system_prompt"},
        "premium": {"entrant_id", "model"},
    }
    assert {key for key in base if base[key] != other[key]} == differs[name]


def test_without_torch_what_is_missing_is_one_line(tmp_path):
    block = """
import runpy, sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "peft")))  # as where they are not installed
runpy.run_module("elo_exp", run_name="__main__")
"""
    chosen = ["entrant=[tiny_base,probe_reference]", "tracker=local"]
    ran = attempt_program(sys.executable, "-W", "error", "-c", block, *chosen, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == (
        "elo_exp: tiny-random/0: needs torch, transformers, peft, not installed: pip install 'elo-exp[hf]'."
    )
