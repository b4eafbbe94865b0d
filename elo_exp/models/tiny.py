"""Build causal language models of 150,000 random weights, to try the machinery offline.

The weights are uniform numbers, so that they are the same on every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import HOME
from elo_exp.files import sha256
from elo_exp.models.causal_lm import Checkpoint, require_packages
from elo_exp.records import UserError, fingerprint

VERSION = 1  # part of the folder's name: raise it when what is built changes
PREFIX = "tiny-random/"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CONTEXT = 2048  # tokens
_VOCABULARY = 2048  # tokens
_SPREAD = (
    0.15  # of weights: a system prompt then changes a log-probability by about 2 nats
)
_BANK = HOME / "prompts" / "bank.jsonl"
_SPECIAL = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"]

logger = logging.getLogger(__name__)


def build(checkpoint: Checkpoint, cache_dir: Path) -> Checkpoint:
    """Build the model tiny-random/SEED in `cache_dir`, once; return any other checkpoint as it is.

    Raises UserError for a seed that is no number, and where torch is not installed.
    """
    if not checkpoint.model.startswith(PREFIX):
        return checkpoint
    seed = checkpoint.model.removeprefix(PREFIX)
    if not re.fullmatch("[0-9]+", seed):
        raise UserError(
            f"model: found {checkpoint.model!r}. Expected {PREFIX} and a whole number, its seed."
        )
    key = fingerprint([VERSION, sha256(_BANK), int(seed)])
    folder = cache_dir / "tiny_random" / key[:12]
    if not folder.is_dir():
        _build(folder, int(seed))
    return dataclasses.replace(checkpoint, model=str(folder))


def _build(folder: Path, seed: int) -> None:
    """Build beside the folder and rename; another process may have been first."""
    require_packages(f"{PREFIX}{seed}")
    from transformers import LlamaConfig

    logger.info("building %s%d in %s", PREFIX, seed, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = LlamaConfig(
        **sizes(vocabulary=_VOCABULARY, n_layers=2, hidden_size=32, n_heads=4)
    )
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = save(
            Path(temporary) / "made",
            config,
            seed=seed,
            spread=_SPREAD,
            chat_template=TEMPLATE,
        )
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def sizes(
    *, vocabulary: int, n_layers: int, hidden_size: int, n_heads: int
) -> dict[str, Any]:
    """Return settings of a transformers configuration that goes with `tokenizer`."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_heads,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
        "bos_token_id": None,
        "pad_token_id": 1,
    }


def save(
    folder: Path, config: Any, *, seed: int, spread: float, chat_template: str | None
) -> Path:
    """Save a model with random float32 weights, and its tokenizer, in the folder.

    config  a configuration of transformers
    spread  standard deviation of the weights; with the usual 0.02 all tokens are about as likely
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    rng = np.random.default_rng(seed)
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for _, weights in sorted(model.named_parameters()):
            if weights.dim() > 1:  # not those of norms, which are 1
                drawn = (rng.random(tuple(weights.shape)) - 0.5) * (
                    spread * math.sqrt(12)
                )
                weights.copy_(torch.from_numpy(drawn))
    model.save_pretrained(folder)
    tokenizer(chat_template, vocabulary=config.vocab_size).save_pretrained(folder)
    return folder


def tokenizer(chat_template: str | None, *, vocabulary: int) -> Any:
    """Return a byte-level BPE tokenizer, trained on the questions of the bank."""
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=_train(vocabulary),
        eos_token="<|end|>",
        pad_token="<|pad|>",
        padding_side="left",
    )
    made.chat_template = chat_template
    return made


@functools.cache
def _train(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = [
        json.loads(line)["text"]
        for line in _BANK.read_text(encoding="utf-8").splitlines()
    ]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=_SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made
