"""Load causal language models: one at a time, adapters merged, prompts in a template, errors."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elo_exp.models import causal_lm
from elo_exp.models.causal_lm import CausalLM, Checkpoint, chat_ids
from elo_exp.models.tiny import TEMPLATE, tokenizer
from elo_exp.records import UserError
from tests.tiny_models import VOCABULARY, tiny_adapter, tiny_model

NO_GPU = not (torch.cuda.is_available() or torch.backends.mps.is_available())


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


def load(model: Path, *adapters: Path, **settings: str) -> CausalLM:
    return causal_lm.load(
        Checkpoint(
            model=str(model),
            adapters=tuple(map(str, adapters)),
            device="cpu",
            **settings,
        )  # type: ignore[arg-type]
    )


def logits(lm: CausalLM) -> torch.Tensor:
    with torch.inference_mode():
        return lm.model(torch.arange(3, 20)[None]).logits


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


def test_a_model_comes_ready_to_answer(base):
    lm = load(base)
    assert not lm.model.training
    assert not any(weights.requires_grad for weights in lm.model.parameters())
    assert (lm.tokenizer.padding_side, lm.tokenizer.pad_token) == ("left", "<|pad|>")
    assert lm.context_length == 2048


def test_a_tokenizer_without_a_pad_token_pads_with_its_end_token(copied):
    made = tokenizer(TEMPLATE, vocabulary=VOCABULARY)
    made.pad_token = None
    made.save_pretrained(copied)
    assert load(copied).tokenizer.pad_token == "<|end|>"


def test_the_end_tokens_of_tokenizer_and_generation_config_are_known(copied):
    settings = json.loads((copied / "generation_config.json").read_text())
    (copied / "generation_config.json").write_text(
        json.dumps({**settings, "eos_token_id": [7, 9]})
    )
    assert load(copied).end_ids == [0, 7, 9]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_weights_have_the_chosen_dtype(base, name):
    assert load(base, dtype=name).model.dtype == getattr(torch, name)


def test_tied_embeddings_are_not_missing_weights(tmp_path):
    lm = load(tiny_model(tmp_path, kind="llama", tie_word_embeddings=True))
    assert lm.model.lm_head.weight is lm.model.model.embed_tokens.weight


def test_auto_is_float32_on_a_cpu_and_bfloat16_on_an_accelerator():
    chosen = {
        device: causal_lm.choose_dtype("auto", device)
        for device in ("cpu", "cuda", "mps")
    }
    assert chosen == {
        "cpu": torch.float32,
        "cuda": torch.bfloat16,
        "mps": torch.bfloat16,
    }
    assert (causal_lm.choose_device("auto") == "cpu") == NO_GPU


@pytest.mark.skipif(not NO_GPU, reason="this machine has an accelerator")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_a_device_that_is_absent_is_refused(device):
    message = (
        f"device: found {device!r}, which this machine does not have. Expected cpu."
    )
    with pytest.raises(UserError, match=message):
        causal_lm.choose_device(device)


# Adapters


def lora_update(adapter: Path, name: str) -> torch.Tensor:
    """The update of rank 4 and alpha 8: 8 / 4 * B @ A. Hu et al. (2021)."""
    tensors = load_file(adapter / "adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
    return 2 * b @ a


def test_adapters_are_added_to_the_weights_one_after_the_other(base, lora, tmp_path):
    second = tiny_adapter(tmp_path / "second", base, seed=5)
    name = "model.layers.1.mlp.up_proj"
    plain = load(base).model.get_submodule(name).weight.clone()
    merged = load(base, lora, second).model.get_submodule(name).weight
    expected = plain + lora_update(lora, name) + lora_update(second, name)
    assert torch.allclose(merged, expected, atol=1e-5)
    assert not torch.allclose(merged, plain, atol=0.1)


def test_a_merged_model_computes_what_the_adapted_one_does(base, lora):
    from peft import PeftModel

    before = logits(load(base))
    with causal_lm.ignore_peft_deprecation():
        wrapped = PeftModel.from_pretrained(load(base).model, lora)
        expected = wrapped(torch.arange(3, 20)[None]).logits
    causal_lm.release()
    merged = load(base, lora)
    assert type(merged.model).__name__ == "Olmo2ForCausalLM"
    assert torch.allclose(logits(merged), expected, atol=1e-4)
    assert torch.equal(logits(load(base)), before)


# Prompts


def test_a_prompt_is_rendered_in_the_models_own_template(base):
    lm = load(base)
    ids = chat_ids(lm, "Why?", system_prompt=None, chat_template=None)
    assert lm.tokenizer.decode(ids) == "<|user|>\nWhy?\n<|assistant|>\n"
    messages = [{"role": "user", "content": "Why?"}]
    library = lm.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )
    assert ids == library["input_ids"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (None, "<|system|>\nBe brief.\n<|user|>\nWhy?\n<|assistant|>\n"),
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[Be brief.][Why?]"),
        ("none", "Be brief.\n\nWhy?"),
    ],
)
def test_a_system_prompt_comes_first_in_every_template(base, template, text):
    lm = load(base)
    ids = chat_ids(lm, "Why?", system_prompt="Be brief.", chat_template=template)
    assert lm.tokenizer.decode(ids) == text


def test_a_tokenizer_without_a_template_needs_one(tmp_path):
    lm = load(tiny_model(tmp_path, chat_template=None))
    with pytest.raises(
        UserError, match="its tokenizer has no chat template. Give one with"
    ):
        chat_ids(lm, "Why?", system_prompt=None, chat_template=None)
    bare = chat_ids(lm, "Why?", system_prompt=None, chat_template="none")
    assert lm.tokenizer.decode(bare) == "Why?"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ raise_exception('No system role') }}",
            "cannot be used with a system prompt (No system role). Give another with "
            "chat_template=FILE.jinja, or leave system_prompt out.",
        ),
        ("{% if %}", "the chat template cannot be used"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_one_line(base, template, message):
    with pytest.raises(UserError) as error:
        chat_ids(load(base), "Why?", system_prompt="Be brief.", chat_template=template)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# What cannot be loaded


def refused(model: Path, *adapters: Path) -> str:
    with pytest.raises(UserError) as error:
        load(model, *adapters)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_missing_weights_are_not_made_up(copied):
    tensors = load_file(copied / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    name = "(model.layers.1.mlp.up_proj.weight)"
    message = f"{copied}: 1 weights are missing or of another shape {name}, and would be random."
    assert refused(copied).startswith(message)


def test_files_that_do_not_belong_together_are_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    assert str(copied) in refused(copied)
    (copied / "config.json").write_text(json.dumps(config))
    weights = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(weights[:-1000])
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")
    (copied / "model.safetensors").unlink()
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")


def test_an_adapter_that_does_not_fit_is_refused(base, lora, tmp_path):
    other = tiny_adapter(
        tmp_path / "other", tiny_model(tmp_path / "model", hidden_size=48)
    )
    assert refused(base, other).startswith(f"{other}: cannot be loaded (")
    partial = Path(shutil.copytree(lora, tmp_path / "partial"))
    tensors = load_file(partial / "adapter_model.safetensors")
    rest = dict(list(tensors.items())[1:])
    save_file(rest, partial / "adapter_model.safetensors", metadata={"format": "pt"})
    message = f"{partial}: cannot be loaded (Found missing adapter keys"
    assert refused(base, partial).startswith(message)


def test_code_that_comes_with_a_model_runs_only_with_trust_remote_code(
    copied, tmp_path, monkeypatch
):
    modules = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
    monkeypatch.setattr(modules, str(tmp_path / "modules"))
    config = json.loads((copied / "config.json").read_text())
    classes = {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Model"}
    custom = {"model_type": "mine", "auto_map": classes}
    (copied / "config.json").write_text(json.dumps({**config, **custom}))
    (copied / "mine.py").write_text('raise SystemExit("remote code has run")\n')
    assert refused(copied).startswith(
        f"{copied}: brings code of its own. Read it, and set"
    )
    with pytest.raises(SystemExit, match="remote code has run"):
        causal_lm.load(Checkpoint(model=str(copied), trust_remote_code=True))


def test_a_package_that_is_not_installed_is_named(base, monkeypatch):
    causal_lm.release()
    monkeypatch.setitem(sys.modules, "peft", None)
    assert (
        refused(base)
        == f"{base}: needs peft, not installed: pip install 'elo-exp[hf]'."
    )


def test_running_out_of_memory_is_told_from_other_errors():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**55, dtype=torch.uint8)  # more than any machine has
    assert causal_lm.is_out_of_memory(error.value)
    with pytest.raises(RuntimeError) as error:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not causal_lm.is_out_of_memory(error.value)
    assert causal_lm.is_out_of_memory(
        torch.cuda.OutOfMemoryError("CUDA out of memory.")
    )
