"""Causal language models in memory: one at a time, adapters merged, prompts in the model's form, errors as lines."""

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
def _nothing_stays_loaded() -> Iterator[None]:
    yield
    causal_lm.release()


@pytest.fixture
def copied(base: Path, tmp_path: Path) -> Path:
    """The base model in a folder that the test may spoil."""
    return Path(shutil.copytree(base, tmp_path / "copied"))


def load(model: Path, *adapters: Path, **settings: str) -> CausalLM:
    return causal_lm.load(
        Checkpoint(model=str(model), adapters=tuple(map(str, adapters)), device="cpu", **settings)  # type: ignore[arg-type]
    )


def logits(lm: CausalLM) -> torch.Tensor:
    with torch.inference_mode():
        return lm.model(torch.arange(3, 20)[None]).logits


# Loading


def test_the_same_checkpoint_is_loaded_once(base, lora):
    assert load(base, lora) is load(base, lora)


def test_another_checkpoint_takes_the_place_of_the_first(base, lora):
    first = weakref.ref(load(base).model)
    load(base, lora)
    gc.collect()
    assert first() is None


def test_releasing_lets_go_of_the_model(base):
    model = weakref.ref(load(base).model)
    causal_lm.release()
    assert model() is None
    causal_lm.release()  # with nothing loaded


def test_a_model_comes_ready_to_answer(base):
    lm = load(base)
    assert not lm.model.training
    assert not any(weights.requires_grad for weights in lm.model.parameters())
    assert (lm.tokenizer.padding_side, lm.tokenizer.pad_token) == ("left", "<|pad|>")
    assert lm.context_length == 2048


def test_a_tokenizer_without_a_pad_token_pads_with_its_end(copied):
    made = tokenizer(TEMPLATE, vocabulary=VOCABULARY)
    made.pad_token = None
    made.save_pretrained(copied)
    lm = load(copied)
    assert lm.tokenizer.pad_token == "<|end|>"
    assert lm.tokenizer(["Why?", "Why, why, why?"], padding=True)["attention_mask"][0][0] == 0


def test_every_token_that_ends_an_answer_is_known(copied):
    """Chat models end a turn with one token and a text with another; some say so in one of two places only."""
    settings = json.loads((copied / "generation_config.json").read_text())
    (copied / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [7, 9]}))
    assert load(copied).end_ids == [0, 7, 9]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("auto", torch.float32),
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
    ],
)
def test_the_weights_have_the_type_that_is_asked_for(base, name, dtype):
    assert load(base, dtype=name).model.dtype == dtype


def test_tied_embeddings_are_not_taken_for_missing_ones(tmp_path):
    lm = load(tiny_model(tmp_path, kind="llama", tie_word_embeddings=True))
    assert lm.model.lm_head.weight is lm.model.model.embed_tokens.weight


# Devices


def test_auto_takes_an_accelerator_where_there_is_one():
    best = (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    assert causal_lm.choose_device("auto") == best


def test_auto_is_float32_on_a_processor_and_bfloat16_on_an_accelerator():
    chosen = {device: causal_lm.choose_dtype("auto", device) for device in ("cpu", "cuda", "mps")}
    assert chosen == {"cpu": torch.float32, "cuda": torch.bfloat16, "mps": torch.bfloat16}


@pytest.mark.skipif(not NO_GPU, reason="this machine has an accelerator")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(UserError) as error:
        causal_lm.choose_device(device)
    assert (
        str(error.value)
        == f"device: found {device!r}, which this machine does not have. Expected cpu."
    )


# Adapters


def lora_update(adapter: Path, name: str) -> torch.Tensor:
    """What an adapter of rank 4 and alpha 8 adds to the weights of that name: 8 / 4 * B @ A. Hu et al. (2021)."""
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


def test_a_merged_model_is_a_plain_one_and_says_what_the_adapted_one_says(base, lora):
    from peft import PeftModel

    adapted = load(base)
    with causal_lm.as_peft_is():
        wrapped = PeftModel.from_pretrained(adapted.model, lora)
        expected = wrapped(torch.arange(3, 20)[None]).logits
    causal_lm.release()
    merged = load(base, lora)
    assert type(merged.model).__name__ == "Olmo2ForCausalLM"
    assert torch.allclose(logits(merged), expected, atol=1e-4)


def test_the_base_model_is_untouched_by_what_was_merged_into_it(base, lora):
    before = logits(load(base))
    load(base, lora)
    assert torch.equal(logits(load(base)), before)


# What the model is told


def test_a_prompt_takes_the_form_of_the_models_own_template(base):
    lm = load(base)
    ids = chat_ids(lm, "Why?", system_prompt=None, chat_template=None)
    assert lm.tokenizer.decode(ids) == "<|user|>\nWhy?\n<|assistant|>\n"
    messages = [{"role": "user", "content": "Why?"}]
    theirs = lm.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )
    assert ids == theirs["input_ids"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (None, "<|system|>\nBe brief.\n<|user|>\nWhy?\n<|assistant|>\n"),
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[Be brief.][Why?]"),
        ("none", "Be brief.\n\nWhy?"),
    ],
)
def test_a_system_prompt_comes_first_in_every_form(base, template, text):
    lm = load(base)
    assert (
        lm.tokenizer.decode(chat_ids(lm, "Why?", system_prompt="Be brief.", chat_template=template))
        == text
    )


def test_without_a_template_a_prompt_can_be_sent_as_it_is(tmp_path):
    lm = load(tiny_model(tmp_path, chat_template=None))
    with pytest.raises(UserError) as error:
        chat_ids(lm, "Why?", system_prompt=None, chat_template=None)
    assert str(error.value) == (
        f"{tmp_path}: its tokenizer has no chat template. Give one with chat_template=FILE.jinja, or "
        "chat_template=none to send the prompt as it is."
    )
    assert (
        lm.tokenizer.decode(chat_ids(lm, "Why?", system_prompt=None, chat_template="none"))
        == "Why?"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{{ raise_exception('No system role') }}",
            "cannot be used with a system prompt (No system role). Give another with chat_template=FILE.jinja, or "
            "leave system_prompt out.",
        ),
        ("{% if %}", "the chat template cannot be used"),
    ],
)
def test_a_template_that_refuses_the_messages_is_a_line(base, template, words):
    with pytest.raises(UserError) as error:
        chat_ids(load(base), "Why?", system_prompt="Be brief.", chat_template=template)
    assert words in str(error.value)
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
    assert refused(copied).startswith(
        f"{copied}: 1 weights are missing or of another shape (model.layers.1.mlp.up_proj.weight), and would be random."
    )


def test_weights_of_another_model_are_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    assert str(copied) in refused(copied)


def test_a_file_that_was_cut_off_is_refused(copied):
    weights = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(weights[:-1000])
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")


def test_a_folder_without_weights_is_refused(copied):
    (copied / "model.safetensors").unlink()
    assert refused(copied).startswith(f"{copied}: cannot be loaded (")


def test_an_adapter_of_another_model_is_refused(base, tmp_path):
    other = tiny_model(tmp_path / "other", hidden_size=48)
    adapter = tiny_adapter(tmp_path / "adapter", other)
    assert refused(base, adapter).startswith(f"{adapter}: cannot be loaded (")


def test_an_adapter_that_lacks_a_part_is_refused(base, lora, tmp_path):
    adapter = Path(shutil.copytree(lora, tmp_path / "adapter"))
    tensors = load_file(adapter / "adapter_model.safetensors")
    save_file(
        dict(list(tensors.items())[1:]),
        adapter / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    assert refused(base, adapter).startswith(
        f"{adapter}: cannot be loaded (Found missing adapter keys"
    )


REMOTE = """\
raise SystemExit("remote code has run")
"""


def test_code_that_comes_with_a_model_does_not_run_unless_the_user_says_so(
    copied, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    config = json.loads((copied / "config.json").read_text())
    custom = {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Model"},
    }
    (copied / "config.json").write_text(json.dumps({**config, **custom}))
    (copied / "mine.py").write_text(REMOTE)
    assert refused(copied) == (
        f"{copied}: brings code of its own. Read it, and set trust_remote_code=true if it may run on this machine."
    )
    with pytest.raises(SystemExit, match="remote code has run"):
        causal_lm.load(Checkpoint(model=str(copied), trust_remote_code=True))


def test_without_the_extra_one_line_says_what_to_install(base, monkeypatch):
    causal_lm.release()
    monkeypatch.setitem(sys.modules, "peft", None)  # as where it is not installed
    assert refused(base) == f"{base}: needs peft, not installed: pip install 'elo-exp[hf]'."


# Memory


def test_running_out_of_memory_is_told_from_other_errors():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**55, dtype=torch.uint8)  # more than any machine has
    assert causal_lm.is_out_of_memory(error.value)
    with pytest.raises(RuntimeError) as error:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not causal_lm.is_out_of_memory(error.value)
    assert causal_lm.is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory."))
