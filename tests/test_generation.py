"""Generate text: independent of the batch, sampled correctly, in batches that memory allows."""

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

from elo_exp import models
from elo_exp.errors import UserError
from elo_exp.models.checkpoints import CausalLM, Checkpoint
from elo_exp.models.generation import (
    GeneratedAnswer,
    generate_answers,
    prompt_seed,
    run_in_batches,
)
from elo_exp.records import Prompt
from tests.data import prompt
from tests.tiny_models import tiny_model

GREEDY = {"temperature": None, "top_p": 1.0, "max_new_tokens": 12}
SAMPLED = {**GREEDY, "temperature": 0.9, "top_p": 0.95}


def named(name: str) -> Prompt:
    return prompt(prompt_id=name)


PROMPTS = {f"p{n}": [*range(20, 20 + 7 * n)] for n in range(1, 6)}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), kind="llama", n_layers=2)


@pytest.fixture
def lm(model) -> Iterator[CausalLM]:
    yield models.load_weights(
        Checkpoint(model=str(model), device="cpu", dtype="float32")
    )
    models.release_weights()


def answers(
    lm: CausalLM,
    prompts: dict[str, list[int]] = PROMPTS,
    decoding: Any = GREEDY,
    batch_size: int = 4,
) -> dict[str, GeneratedAnswer]:
    def work(some: Any) -> list[GeneratedAnswer]:
        return generate_answers(
            lm, {named(name): ids for name, ids in some.items()}, **decoding
        )

    return dict(run_in_batches(prompts, work, batch_size=batch_size, label="ann"))


def tokens(*given: Any) -> dict[str, list[int]]:
    return {name: each.token_ids for name, each in answers(*given).items()}


def test_a_prompts_seed_is_a_hash_of_its_name():
    """The last 32 bits of the SHA-256: a change would change every stored answer."""
    assert prompt_seed(named("medqa-017")) == 935607308


def test_a_greedy_answer_is_the_librarys_whatever_sampling_the_authors_recommend(
    lm, tmp_path
):
    expected = {}
    for name, ids in PROMPTS.items():
        row = torch.tensor([ids])
        answer = lm.model.generate(row, max_new_tokens=12, do_sample=False)
        expected[name] = answer[0, len(ids) :].tolist()
    assert tokens(lm) == expected
    folder = tiny_model(tmp_path, kind="llama", n_layers=2)
    recommended = {"do_sample": True, "temperature": 0.6, "repetition_penalty": 5.0}
    config = json.dumps({**recommended, "eos_token_id": 0})
    (folder / "generation_config.json").write_text(config)
    checkpoint = Checkpoint(model=str(folder), device="cpu", dtype="float32")
    assert tokens(models.load_weights(checkpoint)) == expected


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_ends_with_its_end_token_or_is_cut_off_in_any_batch(lm, decoding):
    """A token that the model often generates is declared an end token."""
    full = tokens(lm, PROMPTS, decoding, 1)
    drawn = Counter(token for ids in full.values() for token in set(ids))
    end = next(token for token, n in drawn.most_common() if n < len(full))
    lm.model.generation_config.eos_token_id = [0, end]
    expected = {
        name: ids[: ids.index(end) + 1] if end in ids else ids
        for name, ids in full.items()
    }
    for batch_size in (1, 2, 5):
        made = answers(lm, dict(reversed(PROMPTS.items())), decoding, batch_size)
        assert {n: each.token_ids for n, each in made.items()} == expected
    assert {each.has_ended for each in made.values()} == {True, False}
    last = {name: each.token_ids[-1] in (0, end) for name, each in made.items()}
    assert last == {name: each.has_ended for name, each in made.items()}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_sampled_with_the_models_probabilities(lm, temperature):
    """Chi-square of 3,000 first tokens, those expected less than five times pooled."""
    n, ids = 3000, [3, 4, 5]
    decoding = {"temperature": temperature, "top_p": 1.0, "max_new_tokens": 1}
    drawn = tokens(lm, {str(i): ids for i in range(n)}, decoding, n)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
    expected = n * torch.softmax(logits / temperature, dim=-1).numpy()
    counts = np.bincount(np.concatenate([*drawn.values()]), minlength=len(expected))
    often = expected >= 5
    assert often.sum() > 20
    observed = [*counts[often], counts[~often].sum()]
    pooled = [*expected[often], expected[~often].sum()]
    assert stats.chisquare(observed, pooled).pvalue > 1e-3


# Memory


class Cramped(LlamaForCausalLM):
    """Asks torch for more than any machine has when a batch has more than `room` rows."""

    room = 0

    def forward(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        if len(input_ids) > self.room:
            torch.empty(2**55, dtype=torch.uint8)
        return super().forward(input_ids=input_ids, **settings)


class Crowded(Cramped):
    """Fails as cuBLAS does where no memory is left for a handle of its own."""

    def forward(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        if len(input_ids) > self.room:
            raise RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            )
        return super().forward(input_ids=input_ids, **settings)


def test_memory_that_cublas_lacks_halves_batches_too(lm, monkeypatch):
    expected = tokens(lm)
    monkeypatch.setattr(lm.model, "__class__", Crowded)
    monkeypatch.setattr(Crowded, "room", 2)
    made = answers(lm, PROMPTS, GREEDY, 5)
    assert {name: each.token_ids for name, each in made.items()} == expected
    assert [each.diagnostics["batch_size"] for each in made.values()] == [2] * 4 + [1]


def test_where_memory_runs_out_batches_are_halved_and_answers_stay(
    lm, monkeypatch, caplog
):
    expected = tokens(lm)
    monkeypatch.setattr(lm.model, "__class__", Cramped)
    monkeypatch.setattr(Cramped, "room", 2)
    with caplog.at_level(logging.INFO):
        made = answers(lm, PROMPTS, GREEDY, 5)
    assert {name: each.token_ids for name, each in made.items()} == expected
    sizes = [each.diagnostics["batch_size"] for each in made.values()]
    assert sizes == [2] * 4 + [1]
    assert list(made) == list(PROMPTS)[::-1]  # the longest first
    smaller = "ann: out of memory with 5 prompts a batch, continuing with 2"
    assert caplog.messages[-1] == smaller
    monkeypatch.setattr(Cramped, "room", 0)
    message = "ann ran out of memory with a single prompt. Use dtype=bfloat16"
    with pytest.raises(UserError, match=message):
        answers(lm)
    with pytest.raises(IndexError):
        monkeypatch.setattr(Cramped, "room", 9)
        answers(lm, {"beyond the vocabulary": [10_000]})
