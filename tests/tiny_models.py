"""Causal language models of some hundred thousand random parameters, made in a moment and without a network.

torch is imported by whoever builds the first one, and takes two seconds.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from elo_exp.models.causal_lm import as_peft_is
from tests.data import BANK

VOCABULARY = 512
CONTEXT = 2048
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_SPECIAL = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"]


def tiny_model(
    folder: Path,
    *,
    kind: str = "olmo2",
    seed: int = 0,
    n_layers: int = 4,
    hidden_size: int = 32,
    n_heads: int = 4,
    chat_template: str | None = TEMPLATE,
    spread: float = 0.2,
    **config: Any,
) -> Path:
    """A model with its tokenizer, saved in the folder.

    kind    olmo2 or llama
    seed    of its weights: other seeds give other models
    spread  standard deviation of the weights; with 0.02, as models are initialised, greedy answers repeat one token
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Olmo2Config
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)  # the matrices are small, and other tests want the cores
    torch.manual_seed(seed)
    classes = {"olmo2": Olmo2Config, "llama": LlamaConfig}
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_heads,
        "max_position_embeddings": CONTEXT,
        "initializer_range": spread,
        "eos_token_id": 0,
        "bos_token_id": None,
        "pad_token_id": 1,
        "tie_word_embeddings": False,
    }
    model = AutoModelForCausalLM.from_config(classes[kind](**{**settings, **config}))
    model.save_pretrained(folder)
    tokenizer(chat_template).save_pretrained(folder)
    return folder


def tiny_adapter(
    folder: Path,
    base: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    targets: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
    spread: float = 0.2,
    **config: Any,
) -> Path:
    """A LoRA adapter of the base model with random weights, saved in the folder. lora_alpha is twice the rank."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(targets), task_type="CAUSAL_LM", **config)
    with as_peft_is():
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.normal_(0.0, spread)
    model.save_pretrained(folder)
    return folder


def tokenizer(chat_template: str | None = TEMPLATE) -> Any:
    """A byte-level BPE tokenizer trained on the questions of the bank."""
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=_trained(), eos_token="<|end|>", pad_token="<|pad|>", padding_side="left"
    )
    made.chat_template = chat_template
    return made


@functools.cache
def _trained() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = [json.loads(line)["text"] for line in BANK.read_text(encoding="utf-8").splitlines()]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made
