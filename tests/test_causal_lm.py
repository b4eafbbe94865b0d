"""Load causal language models: one at a time, adapters merged, prompts in a template, errors."""

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

from elo_exp import models
from elo_exp.errors import UserError
from elo_exp.files import read_json
from elo_exp.models.checkpoints import CausalLM, Checkpoint
from elo_exp.models.tiny import TEMPLATE, train_tokenizer
from tests.data import prompt, shipped
from tests.tiny_heads import Touch
from tests.tiny_models import VOCABULARY, tiny_adapter, tiny_model

UP = "model.layers.1.mlp.up_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def lora(base, tmp_path_factory) -> Path:
    return tiny_adapter(tmp_path_factory.mktemp("lora"), base)


@pytest.fixture(scope="module", autouse=True)
def _release() -> Iterator[None]:
    yield
    models.release_weights()


@pytest.fixture
def copied(base, tmp_path) -> Path:
    """The base model in a folder that the test may change."""
    return Path(shutil.copytree(base, tmp_path / "copied"))


def load(model: Path, *adapters: Path, **settings: Any) -> CausalLM:
    names = tuple((str(adapter), None) for adapter in adapters)
    settings = {"model": str(model), "adapters": names, "device": "cpu", **settings}
    lm = models.load_weights(Checkpoint(**settings))
    assert isinstance(lm, CausalLM)
    return lm


def edit(file: Path, **changes: Any) -> None:
    """Change settings of a JSON file."""
    file.write_text(json.dumps({**read_json(file), **changes}))


def test_one_model_is_loaded_at_a_time_and_an_equal_checkpoint_once(base, lora):
    assert load(base, lora) is load(base, lora)
    first = weakref.ref(load(base).model)
    second = weakref.ref(load(base, lora).model)
    gc.collect()
    assert first() is None
    models.release_weights()
    assert second() is None


def test_a_model_comes_ready_to_answer(copied):
    """Its padding and end tokens are those of tokenizer and model."""
    made = train_tokenizer(TEMPLATE, vocabulary=VOCABULARY)
    made.pad_token = None
    made.save_pretrained(copied)
    edit(copied / "generation_config.json", eos_token_id=[7, 9])
    lm = load(copied, dtype="bfloat16")
    assert (lm.model.dtype, lm.context_length) == (torch.bfloat16, 2048)
    assert not lm.model.training
    assert not any(weights.requires_grad for weights in lm.model.parameters())
    assert (lm.tokenizer.padding_side, lm.tokenizer.pad_token) == ("left", "<|end|>")
    assert lm.end_ids == [0, 7, 9]
    assert load(copied).model.dtype == torch.float32  # auto, on a CPU


def test_tied_embeddings_are_not_missing_weights(tmp_path):
    lm = load(tiny_model(tmp_path, kind="llama", tie_word_embeddings=True))
    assert lm.model.lm_head.weight is lm.model.model.embed_tokens.weight


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
    expected = plain + lora_update(lora) + lora_update(second)
    assert torch.allclose(merged.get_submodule(UP).weight, expected, atol=1e-5)
    assert torch.equal(load(base).model.get_submodule(UP).weight, plain)


# Prompts


def chat_ids(lm: CausalLM, system: str | None, template: str | None) -> list[int]:
    settings = {"model": "any", "chat_template": template}
    of = shipped("entrant", "huggingface", **settings)
    return list(of.chat_ids(lm, prompt().sent(system)))


@pytest.mark.parametrize(
    ("system", "template", "text"),
    [
        (None, None, "<|user|>\nWhy?\n<|assistant|>\n"),
        ("No.", None, "<|system|>\nNo.\n<|user|>\nWhy?\n<|assistant|>\n"),
        ("No.", "{% for m in messages %}[{{ m.content }}]{% endfor %}", "[No.][Why?]"),
        ("Be brief.", "none", "Be brief.\n\nWhy?"),
        (None, "none", "Why?"),
    ],
)
def test_a_prompt_is_rendered_in_its_template(base, system, template, text):
    lm = load(base)
    ids = chat_ids(lm, system, template)
    assert lm.tokenizer.decode(ids) == text
    user = lm.tokenizer.convert_tokens_to_ids("<|user|>")
    assert ids.count(user) == text.count("<|user|>")


@pytest.mark.parametrize("template", [None, "{{ raise_exception('No.') }}", "{% if %}"])
def test_a_template_that_cannot_be_rendered_is_refused(tmp_path, template):
    without = load(tiny_model(tmp_path, chat_template=None))
    message = r"The chat template of .* cannot take these messages \(.*\)\. Use another template"
    with pytest.raises(UserError, match=message):
        chat_ids(without, "Be brief.", template)


# What cannot be loaded


def refused(model: Path, *adapters: Path, **settings: Any) -> str:
    with pytest.raises(UserError) as error:
        load(model, *adapters, **settings)
    assert "\n" not in error.value.line
    return str(error.value)


def test_weights_that_do_not_fit_are_not_made_up(copied, capfd):
    edit(copied / "config.json", intermediate_size=48)
    shapes = "model.layers.0.mlp.down_proj.weight: [32, 64] instead of [32, 48]"
    message = f"{copied} has 12 weights that do not fit config.json ({shapes})."
    assert refused(copied).startswith(message)
    edit(copied / "config.json", intermediate_size=64)
    weights = copied / "model.safetensors"
    tensors = load_file(weights)
    del tensors[f"{UP}.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    message = f"{copied} lacks 1 weights, such as {UP}.weight. Check"
    assert refused(copied).startswith(message)
    assert capfd.readouterr().err == ""  # no report of the library's own
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert refused(copied).startswith(f"{copied} cannot be loaded (")
    (copied / "config.json").write_text('{"model_type": 7}')
    assert refused(copied).startswith(f"{copied} cannot be loaded (")


def test_an_adapter_that_does_not_fit_is_refused(base, lora, tmp_path):
    model = tiny_model(tmp_path / "model", hidden_size=48)
    other = tiny_adapter(tmp_path / "other", model)
    assert refused(base, other).startswith(f"{other} cannot be loaded (")
    partial = Path(shutil.copytree(lora, tmp_path / "partial"))
    tensors = load_file(partial / "adapter_model.safetensors")
    del tensors[sorted(tensors)[0]]
    save_file(tensors, partial / "adapter_model.safetensors", metadata={"format": "pt"})
    message = f"{partial} cannot be loaded (Found missing adapter keys"
    assert refused(base, partial).startswith(message)


def test_weights_that_would_run_code_are_refused_and_run_none(copied, tmp_path):
    (copied / "model.safetensors").unlink()
    torch.save({"a": Touch(tmp_path / "ran")}, copied / "pytorch_model.bin")
    assert refused(copied).startswith(f"{copied} cannot be loaded (")
    assert not (tmp_path / "ran").exists()


def test_code_that_comes_with_a_model_runs_only_with_trust_remote_code(
    copied, tmp_path, monkeypatch
):
    cache = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
    monkeypatch.setattr(cache, str(tmp_path / "modules"))
    classes = {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Model"}
    edit(copied / "config.json", model_type="mine", auto_map=classes)
    (copied / "mine.py").write_text('raise SystemExit("remote code has run")\n')
    message = f"{copied} has code of its own. Read it, and set"
    assert refused(copied).startswith(message)
    with pytest.raises(SystemExit, match="remote code has run"):
        load(copied, trust_remote_code=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is present")
def test_an_absent_device_or_package_is_named(base, monkeypatch):
    assert refused(base, device="cuda:1").startswith(f"{base} cannot be loaded (")
    models.release_weights()
    monkeypatch.setitem(sys.modules, "peft", None)
    line = (
        f"{base} needs Python packages that are not installed: peft. To install them:"
    )
    message = f"{line}\n  pip install 'elo-exp[hf]'"
    assert refused(base) == message
