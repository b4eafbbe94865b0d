"""Generate text: independent of the batch, sampled correctly, in batches that memory allows."""

from __future__ import annotations

import hashlib
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
    check_lengths,
    continuations,
    prompt_seed,
    token_at,
)
from elo_exp.records import UserError
from tests.data import BANK
from tests.tiny_models import tiny_model

GREEDY = Decoding(temperature=None, top_p=1.0, max_new_tokens=12)
SAMPLED = Decoding(temperature=0.9, top_p=0.95, max_new_tokens=12)


@pytest.fixture(scope="module", params=["olmo2", "llama"])
def lm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CausalLM]:
    yield causal_lm.load(
        local(
            tiny_model(tmp_path_factory.mktemp("model"), kind=request.param, n_layers=2)
        )
    )
    causal_lm.release()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CausalLM]:
    yield causal_lm.load(
        local(tiny_model(tmp_path_factory.mktemp("llama"), kind="llama", n_layers=2))
    )
    causal_lm.release()


def local(folder: Path) -> Checkpoint:
    return Checkpoint(model=str(folder), device="cpu", dtype="float32")


def prompts(lm: CausalLM, n: int = 5) -> dict[str, list[int]]:
    """Token ids by name, of different lengths."""
    every = bank.load(BANK)[:n]
    return {
        p.prompt_id: chat_ids(lm, p.text, system_prompt=None, chat_template=None)
        for p in every
    }


def made(
    lm: CausalLM,
    some: dict[str, list[int]],
    decoding: Decoding = GREEDY,
    batch_size: int = 4,
) -> dict[str, Continuation]:
    return dict(
        continuations(lm, some, decoding=decoding, batch_size=batch_size, label="ann")
    )


def tokens(
    lm: CausalLM, some: dict[str, list[int]], decoding: Decoding, batch_size: int = 4
) -> dict[str, list[int]]:
    return {
        name: each.token_ids
        for name, each in made(lm, some, decoding, batch_size).items()
    }


def test_a_prompts_seed_is_a_hash_of_its_name():
    """The last 32 bits of the SHA-256, fixed here: a change would change every stored answer."""
    digest = hashlib.sha256(b"medqa-017").hexdigest()
    assert prompt_seed("medqa-017") == int(digest[-8:], 16) == 935607308


# Greedy


def test_a_greedy_answer_is_that_of_the_library(lm):
    some = prompts(lm)
    library = {
        name: lm.model.generate(
            torch.tensor([ids]), max_new_tokens=12, do_sample=False
        )[0]
        for name, ids in some.items()
    }
    expected = {
        name: answer[len(some[name]) :].tolist() for name, answer in library.items()
    }
    assert tokens(lm, some, GREEDY) == expected


def test_the_longest_prompts_come_first(lm):
    some = prompts(lm)
    order = [
        name
        for name, _ in continuations(
            lm, some, decoding=GREEDY, batch_size=3, label="ann"
        )
    ]
    assert order == sorted(some, key=lambda name: -len(some[name]))
    assert [each.batch_size for each in made(lm, some, batch_size=3).values()] == [
        3,
        3,
        3,
        2,
        2,
    ]


def test_the_sampling_that_the_authors_recommend_changes_nothing(llama, tmp_path):
    expected = tokens(llama, prompts(llama), GREEDY)
    folder = tiny_model(tmp_path, kind="llama", n_layers=2)
    recommended = {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 50,
        "repetition_penalty": 5.0,
    }
    config = json.dumps({**recommended, "eos_token_id": 0})
    (folder / "generation_config.json").write_text(config)
    other = causal_lm.load(local(folder))
    assert tokens(other, prompts(other), GREEDY) == expected


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_ends_with_its_end_token_or_is_cut_off(lm, decoding, monkeypatch):
    """A token that the model often generates is declared an end token."""
    some = prompts(lm)
    full = tokens(lm, some, decoding)
    end = Counter(token for ids in full.values() for token in set(ids[2:])).most_common(
        1
    )[0][0]
    monkeypatch.setattr(lm.model.generation_config, "eos_token_id", [0, end])
    answers = made(lm, some, decoding)
    for name, ids in full.items():
        cut = ids[: ids.index(end) + 1] if end in ids else ids
        finish_reason = "stop" if cut[-1] in (0, end) else "length"
        assert (answers[name].token_ids, answers[name].finish_reason) == (
            cut,
            finish_reason,
        )
    assert "stop" in {each.finish_reason for each in answers.values()}


# Sampled


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_a_sample_does_not_depend_on_its_batch(lm, batch_size):
    some = prompts(lm)
    expected = tokens(lm, some, SAMPLED)
    backwards = dict(reversed(some.items()))
    assert tokens(lm, backwards, SAMPLED, batch_size) == expected


def test_a_sample_depends_on_the_prompts_name(llama):
    ids = next(iter(prompts(llama).values()))
    one, two, again = (
        tokens(llama, {name: ids}, SAMPLED)[name] for name in ("one", "two", "one")
    )
    assert one == again != two


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6)])
def test_tokens_are_sampled_with_the_models_probabilities(llama, temperature, top_p):
    """Chi-square of 3,000 first tokens, those expected less than five times pooled."""
    n = 3000
    ids = chat_ids(llama, "Why?", system_prompt=None, chat_template=None)
    decoding = Decoding(temperature=temperature, top_p=top_p, max_new_tokens=1)
    drawn = tokens(llama, {str(i): ids for i in range(n)}, decoding, batch_size=n)
    with torch.inference_mode():
        logits = llama.model(torch.tensor([ids])).logits[0, -1].double()
    expected = n * nucleus(torch.softmax(logits / temperature, dim=-1), top_p).numpy()
    counts = np.bincount(
        [token for (token,) in drawn.values()], minlength=len(expected)
    )
    assert not counts[expected == 0].any()
    often = expected >= 5
    observed = [*counts[often], counts[~often].sum()]
    pooled = [*expected[often], expected[~often].sum()]
    kept = slice(None) if pooled[-1] > 1e-6 else slice(-1)
    assert often.sum() > 20
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


def test_a_prompt_that_leaves_no_room_for_its_answer_is_refused(llama):
    context = llama.context_length
    check_lengths(context, {"fits": [3] * 2028}, max_new_tokens=20, label="ann")
    message = "ann: long has 2029 tokens and max_new_tokens is 20, more than the model's context"
    with pytest.raises(UserError, match=message):
        check_lengths(context, {"long": [3] * 2029}, max_new_tokens=20, label="ann")


# Memory


class Cramped(LlamaForCausalLM):
    """Asks torch for more than any machine has when a batch has more than `room` rows."""

    room = 0

    def forward(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        if len(input_ids) > self.room:
            torch.empty(2**55, dtype=torch.uint8)
        return super().forward(input_ids=input_ids, **settings)


@pytest.fixture
def cramped(llama: CausalLM, monkeypatch: pytest.MonkeyPatch) -> type[Cramped]:
    monkeypatch.setattr(llama.model, "__class__", Cramped)
    return Cramped


def test_where_memory_runs_out_batches_are_halved_and_answers_stay(
    llama, cramped, monkeypatch, caplog
):
    some = prompts(llama)
    monkeypatch.setattr(cramped, "room", 100)
    expected = tokens(llama, some, GREEDY)
    monkeypatch.setattr(cramped, "room", 2)
    with caplog.at_level(logging.INFO):
        answers = made(llama, some, GREEDY, batch_size=5)
    assert {name: each.token_ids for name, each in answers.items()} == expected
    assert [each.batch_size for each in answers.values()] == [2] * 4 + [1]
    assert (
        "ann: out of memory with 5 prompts a batch, continuing with 2"
        in caplog.messages
    )


def test_one_prompt_that_does_not_fit_into_memory_is_refused(llama, cramped):
    with pytest.raises(
        UserError, match="ann: out of memory with a single prompt. Lower max_new"
    ):
        made(llama, prompts(llama))


def test_another_error_of_torch_is_not_out_of_memory(llama):
    with pytest.raises(IndexError):
        made(llama, {"beyond the vocabulary": [10_000]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_full_gpu_halves_the_batches(tmp_path):
    lm = causal_lm.load(
        Checkpoint(model=str(tiny_model(tmp_path)), device="cuda", dtype="float32")
    )
    some = {str(i): [3] * 500 for i in range(4096)}
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**30 / total)
    try:
        answers = made(lm, some, GREEDY, batch_size=4096)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        causal_lm.release()
    assert len(answers) == 4096
    assert max(each.batch_size for each in answers.values()) < 4096


def test_the_throughput_is_logged(llama, caplog):
    with caplog.at_level(logging.INFO):
        answers = made(llama, prompts(llama))
    n_tokens = sum(len(each.token_ids) for each in answers.values())
    assert caplog.messages[-1].startswith(f"ann: {n_tokens} tokens in ")
