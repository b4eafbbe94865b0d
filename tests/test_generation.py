"""Generate text: independent of the batch, sampled correctly, in batches that memory allows."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LlamaForCausalLM

from elo_exp.data import bank
from elo_exp.models import causal_lm
from elo_exp.models.causal_lm import CausalLM, Checkpoint, chat_ids
from elo_exp.models.generation import (
    Continuation,
    Decoding,
    continuations,
    prompt_seed,
    token_at,
)
from elo_exp.records import UserError
from tests.data import BANK
from tests.tiny_models import tiny_model

GREEDY = Decoding(temperature=None, top_p=1.0, max_new_tokens=12)
SAMPLED = Decoding(temperature=0.9, top_p=0.95, max_new_tokens=12)
Prompts = dict[str, list[int]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), kind="llama", n_layers=2)


@pytest.fixture
def lm(model: Path) -> Iterator[CausalLM]:
    yield causal_lm.load(Checkpoint(model=str(model), device="cpu", dtype="float32"))
    causal_lm.release()


@pytest.fixture
def prompts(lm: CausalLM) -> Prompts:
    """Token ids by name, of different lengths."""
    how: dict[str, Any] = {"system_prompt": None, "chat_template": None}
    return {p.prompt_id: chat_ids(lm, p.text, **how) for p in bank.load(BANK)[:5]}


def made(
    lm: CausalLM, prompts: Prompts, decoding: Decoding = GREEDY, batch_size: int = 4
) -> dict[str, Continuation]:
    settings: dict[str, Any] = {"decoding": decoding, "batch_size": batch_size}
    return dict(continuations(lm, prompts, label="ann", **settings))


def tokens(*given: Any) -> dict[str, list[int]]:
    return {name: each.token_ids for name, each in made(*given).items()}


def test_a_prompts_seed_is_a_hash_of_its_name():
    """The last 32 bits of the SHA-256: a change would change every stored answer."""
    assert prompt_seed("medqa-017") == 935607308


def test_a_greedy_answer_is_that_of_the_library(lm, prompts):
    expected = {}
    for name, ids in prompts.items():
        row = torch.tensor([ids])
        answer = lm.model.generate(row, max_new_tokens=12, do_sample=False)
        expected[name] = answer[0, len(ids) :].tolist()
    assert tokens(lm, prompts) == expected


def test_the_sampling_that_the_authors_recommend_changes_nothing(lm, prompts, tmp_path):
    expected = tokens(lm, prompts)
    folder = tiny_model(tmp_path, kind="llama", n_layers=2)
    recommended = {"do_sample": True, "temperature": 0.6, "repetition_penalty": 5.0}
    config = json.dumps({**recommended, "eos_token_id": 0})
    (folder / "generation_config.json").write_text(config)
    checkpoint = Checkpoint(model=str(folder), device="cpu", dtype="float32")
    assert tokens(causal_lm.load(checkpoint), prompts) == expected


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_ends_with_its_end_token_or_is_cut_off_in_any_batch(
    lm, prompts, decoding
):
    """A token that the model often generates is declared an end token."""
    full = tokens(lm, prompts, decoding, 1)
    drawn = Counter(token for ids in full.values() for token in set(ids[2:]))
    end = drawn.most_common(1)[0][0]
    lm.model.generation_config.eos_token_id = [0, end]
    expected = {
        name: ids[: ids.index(end) + 1] if end in ids else ids
        for name, ids in full.items()
    }
    for batch_size in (1, 2, 5):
        answers = made(lm, dict(reversed(prompts.items())), decoding, batch_size)
        assert {n: each.token_ids for n, each in answers.items()} == expected
    ended = {each.token_ids[-1] in (0, end): each for each in answers.values()}
    assert (ended[True].finish_reason, ended[False].finish_reason) == ("stop", "length")


def test_a_sample_depends_on_the_prompts_name(lm, prompts):
    ids = next(iter(prompts.values()))
    drawn = tokens(lm, {"one": ids, "two": ids}, SAMPLED)
    assert drawn["one"] == tokens(lm, {"one": ids}, SAMPLED)["one"] != drawn["two"]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6)])
def test_tokens_are_sampled_with_the_models_probabilities(lm, temperature, top_p):
    """Chi-square of 3,000 first tokens, those expected less than five times pooled."""
    n, ids = 3000, [3, 4, 5]
    decoding = Decoding(temperature=temperature, top_p=top_p, max_new_tokens=1)
    drawn = tokens(lm, {str(i): ids for i in range(n)}, decoding, n)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
    expected = n * nucleus(torch.softmax(logits / temperature, dim=-1), top_p).numpy()
    first = [token for (token,) in drawn.values()]
    counts = np.bincount(first, minlength=len(expected))
    assert not counts[expected == 0].any()
    often = expected >= 5
    assert often.sum() > 20
    observed = np.array([*counts[often], counts[~often].sum()])
    pooled = np.array([*expected[often], expected[~often].sum()])
    kept = pooled > 1e-6
    assert stats.chisquare(observed[kept], pooled[kept]).pvalue > 1e-3


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest likeliest tokens that reach top_p, by a plain loop."""
    kept, total = torch.zeros_like(probabilities), 0.0
    for token in probabilities.argsort(descending=True, stable=True).tolist():
        if total >= top_p:
            break
        kept[token] = probabilities[token]
        total += float(probabilities[token])
    return kept / kept.sum()


@pytest.mark.parametrize(
    ("uniform", "top_p", "token"),
    [
        (0.0, 1.0, 0),
        (0.19, 1.0, 0),
        (0.21, 1.0, 1),
        (0.71, 1.0, 2),
        (0.62, 0.7, 1),  # the nucleus: .5 of token 1, then .3 of token 2, out of .8
        (0.63, 0.7, 2),
        (0.999, 0.5, 1),  # token 1 alone reaches a half
    ],
)
def test_a_uniform_number_chooses_a_token(uniform, top_p, token):
    """Probabilities .2, .5 and .3; in this order, or with a nucleus the likeliest first."""
    probabilities = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    uniforms = torch.tensor([[uniform]], dtype=torch.float64)
    assert token_at(uniforms, probabilities, top_p).tolist() == [[token]]


# Memory


class Cramped(LlamaForCausalLM):
    """Asks torch for more than any machine has when a batch has more than `room` rows."""

    room = 0

    def forward(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        if len(input_ids) > self.room:
            torch.empty(2**55, dtype=torch.uint8)
        return super().forward(input_ids=input_ids, **settings)


def test_where_memory_runs_out_batches_are_halved_and_answers_stay(
    lm, prompts, monkeypatch, caplog
):
    expected = tokens(lm, prompts)
    monkeypatch.setattr(lm.model, "__class__", Cramped)
    monkeypatch.setattr(Cramped, "room", 2)
    with caplog.at_level(logging.INFO):
        answers = made(lm, prompts, GREEDY, 5)
    assert {name: each.token_ids for name, each in answers.items()} == expected
    assert [each.batch_size for each in answers.values()] == [2] * 4 + [1]
    longest_first = sorted(prompts, key=lambda name: -len(prompts[name]))
    assert list(answers) == longest_first
    n_tokens = sum(map(len, expected.values()))
    smaller, throughput = caplog.messages[-2:]
    assert smaller.endswith("out of memory with 5 prompts a batch, continuing with 2")
    assert throughput.startswith(f"ann: {n_tokens} tokens, ")

    monkeypatch.setattr(Cramped, "room", 0)
    message = "ann: out of memory with a single prompt. Lower max_new"
    with pytest.raises(UserError, match=message):
        made(lm, prompts)


def test_another_error_of_torch_is_not_out_of_memory(lm):
    with pytest.raises(IndexError):
        made(lm, {"beyond the vocabulary": [10_000]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_full_gpu_halves_the_batches(model):
    lm = causal_lm.load(Checkpoint(model=str(model), device="cuda", dtype="float32"))
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**30 / total)
    try:
        answers = made(lm, {str(i): [3] * 500 for i in range(4096)}, GREEDY, 4096)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        causal_lm.release()
    assert len(answers) == 4096
    assert max(each.batch_size for each in answers.values()) < 4096
