"""Text from a model: the same in every batch, drawn as often as the model says, in batches that memory allows."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
        local(tiny_model(tmp_path_factory.mktemp("model"), kind=request.param, n_layers=2))
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
    """Of the bank's first prompts, the tokens by name; no two are equally long."""
    every = bank.load(BANK)[:n]
    return {
        p.prompt_id: chat_ids(lm, p.text, system_prompt=None, chat_template=None) for p in every
    }


def made(
    lm: CausalLM, some: dict[str, list[int]], decoding: Decoding = GREEDY, batch_size: int = 4
) -> dict[str, Continuation]:
    return dict(continuations(lm, some, decoding=decoding, batch_size=batch_size, label="ann"))


def tokens(
    lm: CausalLM, some: dict[str, list[int]], decoding: Decoding, batch_size: int = 4
) -> dict[str, list[int]]:
    return {name: each.token_ids for name, each in made(lm, some, decoding, batch_size).items()}


# Seeds


def test_a_prompts_seed_is_its_name_hashed_and_nothing_else():
    """The last 32 bits of the SHA-256, fixed here, so that the answers of other years can be drawn again."""
    assert (
        prompt_seed("medqa-017")
        == int(hashlib.sha256(b"medqa-017").hexdigest()[-8:], 16)
        == 935607308
    )


# Greedy


def test_a_greedy_answer_is_token_for_token_that_of_the_library(lm):
    some = prompts(lm)
    theirs = {
        name: lm.model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[
            0, len(ids) :
        ].tolist()
        for name, ids in some.items()
    }
    assert tokens(lm, some, GREEDY) == theirs


def test_the_longest_prompts_come_first_and_each_batch_as_it_is_made(lm):
    some = prompts(lm)
    order = [
        name for name, _ in continuations(lm, some, decoding=GREEDY, batch_size=3, label="ann")
    ]
    assert order == sorted(some, key=lambda name: -len(some[name]))
    assert [each.batch_size for each in made(lm, some, batch_size=3).values()] == [3, 3, 3, 2, 2]


def test_how_the_authors_would_have_a_model_sampled_changes_nothing(llama, tmp_path):
    expected = tokens(llama, prompts(llama), GREEDY)
    folder = tiny_model(tmp_path, kind="llama", n_layers=2)
    theirs = {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 50,
        "repetition_penalty": 5.0,
        "eos_token_id": 0,
    }
    (folder / "generation_config.json").write_text(json.dumps(theirs))
    other = causal_lm.load(local(folder))
    assert tokens(other, prompts(other), GREEDY) == expected


# Ends


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_answer_ends_with_its_end_token_or_is_cut_off(lm, decoding, monkeypatch):
    """One token of what the model says is declared its end: an answer stops where it first says it."""
    some = prompts(lm)
    full = tokens(lm, some, decoding)
    end = Counter(token for ids in full.values() for token in set(ids[2:])).most_common(1)[0][0]
    monkeypatch.setattr(lm.model.generation_config, "eos_token_id", [0, end])
    answers = made(lm, some, decoding)
    for name, ids in full.items():
        cut = ids[: ids.index(end) + 1] if end in ids else ids
        finish_reason = "stop" if cut[-1] in (0, end) else "length"
        assert (answers[name].token_ids, answers[name].finish_reason) == (cut, finish_reason)
    assert "stop" in {each.finish_reason for each in answers.values()}


# Sampled


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_what_is_drawn_for_a_prompt_does_not_depend_on_its_batch(lm, batch_size):
    some = prompts(lm)
    expected = tokens(lm, some, SAMPLED)
    backwards = dict(reversed(some.items()))
    assert tokens(lm, backwards, SAMPLED, batch_size) == expected


def test_a_prompt_of_another_name_is_answered_with_another_draw(llama):
    ids = next(iter(prompts(llama).values()))
    one, two, again = (tokens(llama, {name: ids}, SAMPLED)[name] for name in ("one", "two", "one"))
    assert one == again != two


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6)])
def test_tokens_are_drawn_as_often_as_the_model_says(llama, temperature, top_p):
    """3,000 first tokens against the probabilities, those expected less than five times taken together."""
    n = 3000
    ids = chat_ids(llama, "Why?", system_prompt=None, chat_template=None)
    decoding = Decoding(temperature=temperature, top_p=top_p, max_new_tokens=1)
    drawn = tokens(llama, {str(i): ids for i in range(n)}, decoding, batch_size=n)
    counts = Counter(token for (token,) in drawn.values())
    expected = n * nucleus(likelihood(llama, ids, temperature), top_p)
    assert all(expected[token] > 0 for token in counts)
    often = [token for token, times in enumerate(expected) if times >= 5]
    observed = [*(counts[token] for token in often), n - sum(counts[token] for token in often)]
    wanted = [*(expected[token] for token in often), n - sum(expected[token] for token in often)]
    if wanted[-1] < 1e-6:
        observed, wanted = observed[:-1], wanted[:-1]
    assert len(often) > 20
    assert stats.chisquare(observed, wanted).pvalue > 1e-3


def test_a_drawn_token_says_how_likely_it_was_and_a_greedy_one_does_not(llama):
    ids = chat_ids(llama, "Why?", system_prompt=None, chat_template=None)
    drawn = made(
        llama, {"one": ids, "two": ids}, Decoding(temperature=0.7, top_p=1.0, max_new_tokens=1)
    )
    expected = likelihood(llama, ids, 0.7)
    for each in drawn.values():
        assert each.total_logprob == pytest.approx(math.log(expected[each.token_ids[0]]), abs=1e-5)
    assert made(llama, {"one": ids})["one"].total_logprob is None


def likelihood(lm: CausalLM, ids: Sequence[int], temperature: float) -> list[float]:
    with torch.inference_mode():
        logits = lm.model(torch.tensor([ids])).logits[0, -1].double()
    return (logits / temperature).softmax(dim=-1).tolist()


def nucleus(probabilities: list[float], top_p: float) -> Any:
    """The probabilities renormalised over the smallest set of likeliest tokens that together reach top_p."""
    kept, mass = {}, 0.0
    for token in sorted(range(len(probabilities)), key=lambda i: -probabilities[i]):
        if mass >= top_p:
            break
        kept[token] = probabilities[token]
        mass += probabilities[token]
    return (
        torch.tensor([kept.get(token, 0.0) / mass for token in range(len(probabilities))])
        .double()
        .numpy()
    )


@pytest.mark.parametrize(
    ("uniform", "top_p", "token"),
    [
        (0.00, 1.0, 0),
        (0.19, 1.0, 0),
        (0.21, 1.0, 1),
        (0.69, 1.0, 1),
        (0.71, 1.0, 2),
        (0.999, 1.0, 2),
        (0.62, 0.7, 1),  # the nucleus: 0.5 of token 1, then 0.3 of token 2, out of 0.8
        (0.63, 0.7, 2),
        (0.999, 0.5, 1),  # token 1 alone reaches a half
    ],
)
def test_a_uniform_number_is_turned_into_a_token(uniform, top_p, token):
    """Probabilities 0.2, 0.5 and 0.3: in this order without a nucleus, the likeliest first with one."""
    chances = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    assert token_at(torch.tensor([[uniform]], dtype=torch.float64), chances, top_p).tolist() == [
        [token]
    ]


def test_a_prompt_that_leaves_no_room_for_its_answer_is_named_with_its_length(llama):
    check_lengths(llama.context_length, {"fits": [3] * 2028}, max_new_tokens=20, label="ann")
    with pytest.raises(UserError) as error:
        check_lengths(
            llama.context_length, {"fits": [3], "long": [3] * 2029}, max_new_tokens=20, label="ann"
        )
    assert str(error.value) == (
        "ann: long has 2029 tokens and max_new_tokens is 20, more than the 2048 that the model takes. Lower "
        "max_new_tokens, or leave the prompt out of the bank."
    )


# Memory


class Cramped(LlamaForCausalLM):
    """Asks torch for more than any machine has as soon as more than `room` rows are read at a time."""

    room = 0

    def forward(self, input_ids: torch.Tensor, **settings: Any) -> Any:
        if len(input_ids) > self.room:
            torch.empty(2**55, dtype=torch.uint8)
        return super().forward(input_ids=input_ids, **settings)


@pytest.fixture
def cramped(llama: CausalLM) -> Iterator[Callable[[int], None]]:
    """The model with room for so many rows."""

    def hold(room: int) -> None:
        llama.model.__class__ = Cramped
        llama.model.room = room

    yield hold
    llama.model.__class__ = LlamaForCausalLM


def test_where_memory_runs_out_the_batches_become_smaller_and_the_answers_stay(
    llama, cramped, caplog
):
    some = prompts(llama)
    expected = tokens(llama, some, GREEDY)
    cramped(2)
    with caplog.at_level(logging.INFO):
        answers = made(llama, some, GREEDY, batch_size=5)
    assert {name: each.token_ids for name, each in answers.items()} == expected
    assert [each.batch_size for each in answers.values()] == [2] * 4 + [1]
    assert [r.message for r in caplog.records if "memory" in r.message] == [
        "ann: out of memory with 5 prompts at a time, going on with 2",
    ]


def test_where_one_prompt_alone_is_too_much_one_line_says_what_to_lower(llama, cramped):
    cramped(0)
    with pytest.raises(UserError) as error:
        made(llama, prompts(llama))
    assert str(error.value) == (
        "ann: memory does not suffice for one prompt alone. Lower max_new_tokens, or take dtype=bfloat16 or another "
        "device."
    )


def test_another_error_of_torch_is_not_taken_for_that(llama):
    with pytest.raises(IndexError):
        made(llama, {"beyond the vocabulary": [10_000]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_full_gpu_makes_the_batches_smaller(tmp_path):
    lm = causal_lm.load(Checkpoint(model=str(tiny_model(tmp_path)), device="cuda", dtype="float32"))
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


# Speed


def test_the_speed_is_told_at_the_end(llama, caplog):
    with caplog.at_level(logging.INFO):
        answers = made(llama, prompts(llama))
    n_tokens = sum(len(each.token_ids) for each in answers.values())
    (line,) = [
        r.message
        for r in caplog.records
        if r.message.endswith("tokens/s") and "tokens in" in r.message
    ]
    assert line.startswith(f"ann: {n_tokens} tokens in ")
