"""Build causal language models of 150,000 random weights, to try the machinery offline.

The weights are uniform numbers, so that they are the same on every machine.
"""

import logging
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.errors import FileError, SettingError
from elo_exp.files import may_write, read_jsonl, sha256
from elo_exp.models import require_packages
from elo_exp.paths import HOME
from elo_exp.records import make_fingerprint

# Part of the folder's name: raise it when what is built changes
BUILD_VERSION = 2
TINY_PREFIX = "tiny-random/"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_BANK_PATH = HOME / "prompts" / "bank.jsonl"
_SPECIAL_TOKENS = ["<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>"]

logger = logging.getLogger(__name__)


def build_tiny_model(name: str, cache_dir: Path) -> str:
    """Build the model tiny-random/SEED in a folder of `cache_dir`, once; return any other name as
    it is.

    Raises SettingError for a seed that is no number, and UserError if torch is not installed.
    """
    if not name.startswith(TINY_PREFIX):
        return name
    seed = name.removeprefix(TINY_PREFIX)
    if not seed.isdecimal():
        raise SettingError.bad_value(
            "model", name, f"be {TINY_PREFIX} and a whole number, its seed"
        )
    key = make_fingerprint([BUILD_VERSION, sha256(_BANK_PATH), int(seed)])
    folder = cache_dir / "tiny_random" / key[:12]
    if folder.is_dir():
        return str(folder)
    require_packages(name, "torch", "transformers", extra="hf")
    if not may_write():  # a run needs nothing to build it
        raise FileError(f"{name} is not built yet.").mark_as_need("")
    logger.info("building %s in %s", name, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        built_folder = save_random_model(
            Path(temporary) / "made",
            "llama",
            seed=int(seed),
            spread=0.15,  # a system prompt then changes a log-probability by about 2 nats
            chat_template=TEMPLATE,
            vocabulary=2048,
            hidden_size=32,
            num_hidden_layers=2,
        )
        try:
            built_folder.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    return str(folder)


def save_random_model(
    folder: Path,
    kind: str,
    *,
    seed: int,
    spread: float,
    chat_template: str | None,
    vocabulary: int,
    hidden_size: int,
    **settings: Any,
) -> Path:
    """Save a model with random float32 weights, and its tokenizer, in the folder.

    kind      the model_type of a configuration of transformers, such as llama
    spread    standard deviation of the weights; with the usual 0.02 all tokens are about as likely
    settings  others of the configuration
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    rng = np.random.default_rng(seed)
    config = AutoConfig.for_model(
        kind,
        **{
            "vocab_size": vocabulary,
            "hidden_size": hidden_size,
            "intermediate_size": 2 * hidden_size,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "eos_token_id": 0,
            "bos_token_id": None,
            "pad_token_id": 1,
            **settings,
        },
    )
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    width = spread * math.sqrt(12)
    with torch.no_grad():
        for _, weights in sorted(model.named_parameters()):
            if weights.dim() > 1:  # not those of norms, which are 1
                values = (rng.random(tuple(weights.shape)) - 0.5) * width
                weights.copy_(torch.from_numpy(values))
    model.save_pretrained(folder)
    train_tokenizer(chat_template, vocabulary=vocabulary).save_pretrained(folder)
    return folder


def train_tokenizer(chat_template: str | None, *, vocabulary: int) -> Any:
    """Return a byte-level BPE tokenizer, trained on the questions of the bank."""
    from tokenizers import ByteLevelBPETokenizer, Tokenizer
    from transformers import PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        [row["text"] for _, row in read_jsonl(_BANK_PATH)],
        vocab_size=vocabulary,
        min_frequency=0,
        special_tokens=_SPECIAL_TOKENS,
        show_progress=False,
    )
    fast_tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(bpe.to_str()),
        eos_token="<|end|>",
        pad_token="<|pad|>",
        padding_side="left",
    )
    fast_tokenizer.chat_template = chat_template
    return fast_tokenizer
