"""Random models built on the spot: the same on every machine."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from elo_exp.errors import UserError
from elo_exp.models import tiny


def built(cache: Path, seed: object = 0) -> Path:
    return Path(tiny.build_tiny_model(f"tiny-random/{seed}", cache))


def test_a_seed_gives_the_same_files_in_any_process_and_another_seed_other_weights(
    tmp_path,
):
    """Uniform numbers in the order of the weights' names, of width .15 sqrt(12)."""
    two, three = built(tmp_path / "two"), built(tmp_path / "two", 1)
    torch.manual_seed(17)
    with ThreadPoolExecutor(4) as pool:
        one, *others = pool.map(lambda _: built(tmp_path / "one"), range(4))
    assert set(others) == {one}
    assert list((tmp_path / "one" / "tiny_random").iterdir()) == [one]
    for path in one.iterdir():
        assert (two / path.name).read_bytes() == path.read_bytes()
        same = (three / path.name).read_bytes() == path.read_bytes()
        assert same == (path.name != "model.safetensors")
    weights = load_file(one / "model.safetensors")
    first, *_ = sorted(name for name, values in weights.items() if values.ndim > 1)
    uniform = np.random.default_rng(0).random(weights[first].shape) - 0.5
    expected = (uniform * (0.15 * np.sqrt(12))).astype(np.float32)
    np.testing.assert_array_equal(weights[first], expected)


def test_a_name_is_a_seed_or_left_alone(tmp_path):
    assert tiny.build_tiny_model("allenai/OLMo-2-7B", tmp_path) == "allenai/OLMo-2-7B"
    for seed in ("", "-1", "one"):
        message = f'model must be tiny-random/ and a whole number, its seed; got "tiny-random/{seed}"'
        with pytest.raises(UserError, match=message):
            built(tmp_path, seed)
