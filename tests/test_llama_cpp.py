"""GGUF files through llama.cpp: answers that record their tokens, teacher-forced in one pass."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elo_exp import models, pipeline
from elo_exp.data import bank
from elo_exp.entrants.llama_cpp import GgufModel
from elo_exp.errors import UserError
from tests.data import BANK, prompt, shipped
from tests.tiny_models import answers, forced

PROMPTS = bank.load_bank(BANK)[:4]
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}<s>assistant: "
DRIFT = 0.05  # nats: what llama.cpp makes of one pass and of a token at a time
HIDDEN, HEADS, LAYERS = 32, 4, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Iterator[Path]:
    reason = "llama.cpp takes a quarter of an hour to build: the extra llama_cpp"
    pytest.importorskip("llama_cpp", reason=reason)
    pytest.importorskip("gguf", reason="a model is written with the package gguf")
    yield tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    models.release_weights()


def tiny_gguf(path: Path) -> Path:
    """A random Llama whose tokens are bytes; its answers end often."""
    from gguf import GGUFWriter, TokenType

    rng = np.random.default_rng(0)
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    special = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
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
    writer.add_token_types([*special, *([TokenType.BYTE] * 256)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    table, inner = (len(tokens), HIDDEN), (2 * HIDDEN, HIDDEN)
    shapes = {"token_embd": table, "output": table, "output_norm": (HIDDEN,)}
    for i in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{i}.{name}"] = (HIDDEN, HIDDEN)
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{i}.{name}"] = (HIDDEN,)
        shapes |= dict.fromkeys((f"blk.{i}.ffn_gate", f"blk.{i}.ffn_up"), inner)
        shapes[f"blk.{i}.ffn_down"] = inner[::-1]
    for name, shape in shapes.items():
        is_norm = len(shape) == 1
        weights = np.ones(shape) if is_norm else rng.normal(0.0, 0.3, shape)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entrant(path: Path, **changes: Any) -> Any:
    small = {"max_new_tokens": 40, "n_ctx": 1024, "n_threads": 1, "cache_dir": "absent"}
    return shipped("entrant", "llama_cpp", **{"path": str(path), **small, **changes})


def test_an_answer_records_what_was_drawn_and_is_as_likely_forced(model):
    of = entrant(model, system_prompt="Be brief.", temperature=0.8)
    made = answers(of, PROMPTS)
    lm = models.load_weights(of.weights)
    assert set(made) == {prompt.prompt_id for prompt in PROMPTS}
    for response in made.values():
        tokens = response.diagnostics["token_ids"]
        assert response.finish_reason == ("stop" if tokens[-1] == 2 else "length")
        assert len(tokens) == response.diagnostics["n_tokens_generated"] <= 40
        assert response.response_text == lm.decode(tokens).strip()
    pipeline.compare_logprobs(made, forced(of, made), allowed=None)
    warm = forced(entrant(model, system_prompt="Be brief.", temperature=1.0), made)
    assert all(abs(warm[n] - p) > DRIFT for n, p in forced(of, made).items())


def test_special_tokens_of_the_template_are_tokens_and_not_text(model):
    lm = models.load_weights(entrant(model).weights)
    for template, n_starts in ((None, 3), ("none", 1)):
        of = entrant(model, chat_template=template)
        ids = of.chat_ids(lm, prompt().sent("Be brief."))
        assert (ids[0], ids.count(1)) == (1, n_starts)
    with pytest.raises(
        UserError, match="The chat template of .* cannot take these messages"
    ):
        entrant(model, chat_template="{% if %}").chat_ids(lm, prompt().sent(None))


def test_neither_order_nor_threads_nor_another_load_changes_a_bit(model):
    made = answers(entrant(model), PROMPTS)
    expected = forced(entrant(model), made)
    assert forced(entrant(model), dict(reversed(made.items()))) == expected
    assert forced(entrant(model, n_threads=2), made) == expected


def test_what_does_not_fit_is_refused_or_has_no_log_probability(model, tmp_path):
    name, response = next(iter(answers(entrant(model), PROMPTS).items()))
    diagnostics = {**response.diagnostics, "token_ids": [70] * 1000}
    long = dataclasses.replace(response, diagnostics=diagnostics)
    assert forced(entrant(model), {name: long}) == {name: None}
    message = "max_new_tokens=1020 are more than "
    with pytest.raises(UserError, match=message):
        answers(entrant(model, max_new_tokens=1020), PROMPTS)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but not really")
    with pytest.raises(UserError, match="broken.gguf cannot be loaded"):
        answers(entrant(tmp_path / "broken.gguf"), PROMPTS)


# Without llama.cpp


def test_a_file_that_is_absent_is_refused(tmp_path):
    absent = entrant(tmp_path / "absent.gguf")
    assert absent.weight_files == []
    with pytest.raises(
        UserError, match="File not found: .*absent.gguf .the .gguf file of"
    ):
        absent.cache_key(PROMPTS[0])


class Biased(GgufModel):
    """Logits 0 and log 3 after every token: odds of 1 to 3; at half the temperature of 1 to 9."""

    def __init__(self) -> None:
        """Without a file, which llama.cpp would have to read."""

    def logits(self, ids: Sequence[int], *, reset: bool) -> np.ndarray:
        return np.log(np.array([[1, 3]] * len(ids), dtype=np.float32))


def test_probabilities_are_those_of_the_logits_divided_by_the_temperature():
    for temperature, odds in ((1.0, [1 / 4, 3 / 4]), (0.5, [1 / 10, 9 / 10])):
        rows = [([7], [0]), ([7, 8], [1, 0])]
        found = list(Biased().total_logprobs(rows, temperature=temperature))
        np.testing.assert_allclose(np.exp(found), [odds[0], np.prod(odds)], rtol=1e-6)
