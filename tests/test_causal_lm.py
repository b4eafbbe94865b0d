"""Load causal language models: one at a time, adapters merged, prompts in a template, errors."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from elo_exp.models import causal_lm
from elo_exp.models.causal_lm import CausalLM, Checkpoint, chat_ids
from elo_exp.models.tiny import TEMPLATE, tokenizer
from elo_exp.records import UserError
from tests.tiny_models import VOCABULARY, tiny_adapter, tiny_model

NO_GPU = not (torch.cuda.is_available() or torch.backends.mps.is_available())
UP = "model.layers.1.mlp.up_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_adapter(tmp_path_factory.mktemp("lora"), base)


@pytest.fixture(scope="module", autouse=True)
def _release() -> Iterator[None]:
    yield
    causal_lm.release()


@pytest.fixture
def copied(base: Path, tmp_path: Path) -> Path:
    """The base model in a folder that the test may change."""
    return Path(shutil.copytree(base, tmp_path / "copied"))


def load(model: Path, *adapters: Path, **settings: Any) -> CausalLM:
    names = tuple(map(str, adapters))
    checkpoint = Checkpoint(model=str(model), adapters=names, device="cpu", **settings)
    return causal_lm.load(checkpoint)


def edit(file: Path, **changes: Any) -> None:
    """Change settings of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


# Loading


def test_one_model_is_loaded_at_a_time_and_an_equal_checkpoint_once(base, lora):
    assert load(base, lora) is load(base, lora)
    first = weakref.ref(load(base).model)
    second = weakref.ref(load(base, lora).model)
    gc.collect()
    assert first() is None
    causal_lm.release()
    assert second() is None
    causal_lm.release()  # with nothing loaded


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_model_comes_ready_to_answer(base, name):
    lm = load(base, dtype=name)
    assert lm.model.dtype == getattr(torch, name)
    assert not lm.model.training
    assert not any(weights.requires_grad for weights in lm.model.parameters())
    assert (lm.tokenizer.padding_side, lm.tokenizer.pad_token) == ("left", "<|pad|>")
    assert lm.context_length == 2048


def test_the_tokens_that_pad_and_end_answers_are_those_of_tokenizer_and_model(copied):
    made = tokenizer(TEMPLATE, vocabulary=VOCABULARY)
    made.pad_token = None
    made.save_pretrained(copied)
    edit(copied / "generation_config.json", eos_token_id=[7, 9])
    lm = load(copied)
    assert (lm.tokenizer.pad_token, lm.end_ids) == ("<|end|>", [0, 7, 9])


def test_tied_embeddings_are_not_missing_weights(tmp_path):
    lm = load(tiny_model(tmp_path, kind="llama", tie_word_embeddings=True))
    assert lm.model.lm_head.weight is lm.model.model.embed_tokens.weight


def test_auto_is_float32_on_a_cpu_and_bfloat16_on_an_accelerator():
    chosen = [causal_lm.choose_dtype("auto", name) for name in ("cpu", "cuda", "mps")]
    assert chosen == [torch.float32, torch.bfloat16, torch.bfloat16]
    assert (causal_lm.choose_device("auto") == "cpu") == NO_GPU
    if NO_GPU:
        for device in ("cuda", "cuda:1", "mps"):
            message = f"device: found '{device}', which this machine does not have. Exp"
            with pytest.raises(UserError, match=message):
                causal_lm.choose_device(device)


def lora_update(adapter: Path) -> torch.Tensor:
    """The update of rank 4 and alpha 8: 8 / 4 * B @ A. Hu et al. (2021)."""
    tensors = load_file(adapter / "adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.{UP}.lora_{side}.weight"] for side in "AB")
    return 2 * b @ a


def test_adapters_are_added_to_the_weights_one_after_the_other(base, lora, tmp_path):
    second = tiny_adapter(tmp_path / "second", base, seed=5)
    plain = load(base).model.get_submodule(UP).weight.clone()
    merged = load(base, lora, second).model
    assert type(merged).__name__ == "Olmo2ForCausalLM"
    found = merged.get_submodule(UP).weight
    expected = plain + lora_update(lora) + lora_update(second)
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found, plain, atol=0.1)
    assert torch.equal(load(base).model.get_submodule(UP).weight, plain)


# Prompts


@pytest.mark.parametrize(
    ("system", "template", "text"),
    [
        (None, None, "<|user|>\nWhy?\n<|assistant|>\n"),
        ("Be brief.", None, "<|system|>\nBe brief.\n<|user|>\nWhy?\n<|assistant|>\n"),
        (
            "Be brief.",
            "{% for m in messages %}[{{ m.content }}]{% endfor %}",
            "[Be brief.][Why?]",
        ),
        ("Be brief.", "none", "Be brief.\n\nWhy?"),
        (None, "none", "Why?"),
    ],
)
def test_a_prompt_is_rendered_in_its_template(base, system, template, text):
    lm = load(base)
    ids = chat_ids(lm, "Why?", system_prompt=system, chat_template=template)
    assert lm.tokenizer.decode(ids) == text
    assert ids.count(lm.tokenizer.convert_tokens_to_ids("<|user|>")) == text.count(
        "<|user|>"
    )


def test_a_template_that_cannot_be_rendered_is_refused(base, tmp_path):
    without = load(tiny_model(tmp_path, chat_template=None))
    with pytest.raises(UserError, match="has no chat template. Give one with chat_t"):
        chat_ids(without, "Why?", system_prompt=None, chat_template=None)
    lm = load(base)
    for template in ("{{ raise_exception('No system role') }}", "{% if %}"):
        message = r"its chat template cannot take these messages \("
        with pytest.raises(UserError, match=message):
            chat_ids(lm, "Why?", system_prompt="Be brief.", chat_template=template)


# What cannot be loaded


def refused(model: Path, *adapters: Path) -> str:
    with pytest.raises(UserError) as error:
        load(model, *adapters)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_missing_weights_are_not_made_up(copied):
    tensors = load_file(copied / "model.safetensors")
    del tensors[f"{UP}.weight"]
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    message = f"{copied}: 1 weights are missing or of another shape ({UP}.weight), and"
    assert refused(copied).startswith(message)


def test_files_that_do_not_belong_together_are_refused(copied):
    edit(copied / "config.json", intermediate_size=48)
    assert str(copied) in refused(copied)
    edit(copied / "config.json", intermediate_size=64)
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")
    weights.unlink()
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")


def test_an_adapter_that_does_not_fit_is_refused(base, lora, tmp_path):
    model = tiny_model(tmp_path / "model", hidden_size=48)
    other = tiny_adapter(tmp_path / "other", model)
    assert refused(base, other).startswith(f"{other}: cannot be loaded (")
    partial = Path(shutil.copytree(lora, tmp_path / "partial"))
    tensors = load_file(partial / "adapter_model.safetensors")
    del tensors[sorted(tensors)[0]]
    save_file(tensors, partial / "adapter_model.safetensors", metadata={"format": "pt"})
    message = f"{partial}: cannot be loaded (Found missing adapter keys"
    assert refused(base, partial).startswith(message)


def test_code_that_comes_with_a_model_runs_only_with_trust_remote_code(
    copied, tmp_path, monkeypatch
):
    modules = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
    monkeypatch.setattr(modules, str(tmp_path / "modules"))
    classes = {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Model"}
    edit(copied / "config.json", model_type="mine", auto_map=classes)
    (copied / "mine.py").write_text('raise SystemExit("remote code has run")\n')
    message = f"{copied}: brings code of its own. Read it, and set"
    assert refused(copied).startswith(message)
    with pytest.raises(SystemExit, match="remote code has run"):
        load(copied, trust_remote_code=True)


def test_a_package_that_is_not_installed_is_named(base, monkeypatch):
    causal_lm.release()
    monkeypatch.setitem(sys.modules, "peft", None)
    message = f"{base}: needs peft, not installed: pip install 'elo-exp[hf]'."
    assert refused(base) == message


def test_running_out_of_memory_is_told_from_other_errors():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**55, dtype=torch.uint8)  # more than any machine has
    assert causal_lm.is_out_of_memory(error.value)
    assert causal_lm.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(RuntimeError) as error:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not causal_lm.is_out_of_memory(error.value)
