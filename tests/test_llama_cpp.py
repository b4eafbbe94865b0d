"""GGUF files through llama.cpp: answers that record their tokens, teacher-forced in one pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp import pipeline
from elo_exp.data import bank
from elo_exp.models import gguf
from elo_exp.records import Response, UserError
from elo_exp.store.store import Store
from tests.data import BANK, shipped

PROMPTS = bank.load(BANK)[:4]
BY_ID = {prompt.prompt_id: prompt for prompt in PROMPTS}
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}<s>assistant: "
DRIFT = 0.05  # nats: what llama.cpp makes of one pass and of a token at a time
HIDDEN, HEADS, LAYERS = 32, 4, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip(
        "llama_cpp",
        reason="llama.cpp takes a quarter of an hour to build: the extra llama_cpp",
    )
    pytest.importorskip("gguf", reason="a model is written with the package gguf")
    yield tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    gguf.release()


def tiny_gguf(path: Path, seed: int = 0) -> Path:
    """A random Llama whose tokens are bytes; its answers end often."""
    from gguf import GGUFWriter, TokenType

    rng = np.random.default_rng(seed)
    tokens = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(f"<0x{byte:02X}>".encode() for byte in range(256)),
    ]
    kinds = [
        TokenType.UNKNOWN,
        TokenType.CONTROL,
        TokenType.CONTROL,
        *([TokenType.BYTE] * 256),
    ]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(1024)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    square, wide, tall = (HIDDEN, HIDDEN), (2 * HIDDEN, HIDDEN), (HIDDEN, 2 * HIDDEN)
    shapes = dict.fromkeys(["attn_q", "attn_k", "attn_v", "attn_output"], square)
    shapes |= {"ffn_gate": wide, "ffn_up": wide, "ffn_down": tall}
    weights = {
        f"blk.{i}.{name}": shape
        for i in range(LAYERS)
        for name, shape in shapes.items()
    }
    weights |= dict.fromkeys(["token_embd", "output"], (len(tokens), HIDDEN))
    for name, shape in weights.items():
        writer.add_tensor(
            f"{name}.weight", rng.normal(0.0, 0.3, shape).astype(np.float32)
        )
    norms = [
        f"blk.{i}.{name}" for i in range(LAYERS) for name in ("attn_norm", "ffn_norm")
    ]
    for name in ("output_norm", *norms):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entrant(path: Path, **changes: Any) -> Any:
    settings = {
        "path": str(path),
        "max_new_tokens": 40,
        "n_ctx": 1024,
        "n_threads": 1,
        "cache_dir": "absent",
    }
    return shipped("entrant", "llama_cpp", **{**settings, **changes})


def answers(of: Any) -> dict[str, Response]:
    return {response.prompt_id: response for response in of.generate(PROMPTS)}


def forced(by: Any, responses: dict[str, Response]) -> dict[str, float | None]:
    return {
        each.prompt_id: each.total_logprob
        for each in by.teacher_force(BY_ID, list(responses.values()))
    }


def test_an_answer_records_what_was_drawn_and_ends_with_its_end_token_or_is_cut_off(
    model,
):
    made = answers(entrant(model))
    lm = gguf.load(entrant(model).weights)
    assert set(made) == set(BY_ID)
    for response in made.values():
        tokens = response.diagnostics["token_ids"]
        assert response.finish_reason == ("stop" if tokens[-1] == 2 else "length")
        assert len(tokens) == response.diagnostics["n_tokens_generated"] <= 40
        assert response.response_text == lm.text(tokens).strip()
        assert response.diagnostics["total_logprob"] < 0


def test_special_tokens_of_the_template_are_tokens_and_not_text(model):
    ids = gguf.load(entrant(model).weights).chat_ids(
        "Why?", system_prompt="Be brief.", template=None
    )
    assert ids.count(1) == 3  # before the system, the user and the assistant
    assert ids[0] == 1


def test_it_is_as_likely_forced_as_it_was_drawn_but_for_what_llama_cpp_makes_of_batches(
    model,
):
    of = entrant(model, system_prompt="Be brief.", temperature=0.8)
    made = answers(of)
    pipeline.generation_check(made, forced(of, made), allowed=DRIFT).check()


def test_the_temperature_is_applied_to_the_logits_that_are_scored(model):
    made = answers(entrant(model))
    warm, cool = (forced(entrant(model, temperature=t), made) for t in (1.0, 0.5))
    assert all(abs(warm[name] - cool[name]) > DRIFT for name in made)


def test_neither_order_nor_threads_nor_another_load_changes_a_bit(model):
    made = answers(entrant(model))
    expected = forced(entrant(model), made)
    assert forced(entrant(model), dict(reversed(made.items()))) == expected
    assert forced(entrant(model, n_threads=2), made) == expected


def test_clones_share_what_is_stored_and_their_difference_is_zero_to_the_last_bit(
    model, tmp_path
):
    policies = {
        "base": entrant(model),
        "clone": entrant(model),
        "other": entrant(model, system_prompt="No."),
    }
    made = answers(policies["base"])
    checked = pipeline.as_policies(policies, logging_policy="base")
    with Store(tmp_path / "store.sqlite") as store:
        found = pipeline.teacher_force(PROMPTS, made, checked, store)
        assert (store.usage.logprobs_forced, store.usage.logprobs_stored) == (8, 4)
    assert found["clone"] == found["base"] != found["other"]
    check = pipeline.clone_check(
        PROMPTS, made, checked, logging_policy="base", n_answers=2, seed=1
    )
    assert (check.n_checked, check.max_difference) == (2, 0.0)


def test_what_does_not_fit_the_context_has_no_log_probability(model):
    made = answers(entrant(model))
    name, response = next(iter(made.items()))
    long = dataclasses.replace(
        response, diagnostics={**response.diagnostics, "token_ids": [70] * 1000}
    )
    assert forced(entrant(model), {name: long}) == {name: None}


def test_a_prompt_that_is_too_long_stops_before_anything_is_generated(model):
    with pytest.raises(
        UserError,
        match="llama_cpp: .* has .* tokens and max_new_tokens is 1020, more than the 1024",
    ):
        answers(entrant(model, max_new_tokens=1020))


def test_a_file_that_is_no_model_is_named(model, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but not really")
    with pytest.raises(UserError, match="broken.gguf: cannot be loaded"):
        answers(entrant(tmp_path / "broken.gguf"))


# Without llama.cpp


def test_a_file_that_is_not_there_is_named_without_llama_cpp(tmp_path):
    with pytest.raises(
        UserError, match="absent.gguf: no such file. Expected a model as .gguf."
    ):
        entrant(tmp_path / "absent.gguf").cache_key(PROMPTS[0])
    assert entrant(tmp_path / "absent.gguf").weight_files == []


def test_an_answer_is_known_by_the_content_of_the_file_and_the_settings(tmp_path):
    for name, content in (("one", b"a"), ("two", b"a"), ("three", b"b")):
        (tmp_path / f"{name}.gguf").write_bytes(content)
    one, two, three = (
        entrant(tmp_path / f"{name}.gguf").cache_key(PROMPTS[0])
        for name in ("one", "two", "three")
    )
    assert one == two != three
    assert entrant(tmp_path / "one.gguf", temperature=0.5).cache_key(PROMPTS[0]) != one


def test_log_probabilities_are_those_of_the_logits_divided_by_the_temperature():
    """Logits 0 and log 3 are odds of 1 to 3; at half the temperature of 1 to 9."""
    logits = np.array([[0.0, math.log(3)]], dtype=np.float32)
    np.testing.assert_allclose(
        np.exp(gguf.log_softmax(logits, 1.0)), [[1 / 4, 3 / 4]], rtol=1e-6
    )
    np.testing.assert_allclose(
        np.exp(gguf.log_softmax(logits, 0.5)), [[1 / 10, 9 / 10]], rtol=1e-6
    )
