"""Models in GGUF files, in memory: one at a time, through llama.cpp, which gives the logits of every position."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elo_exp.models.causal_lm import NO_TEMPLATE
from elo_exp.models.teacher_forcing import tokenizer_fingerprint
from elo_exp.records import UserError


@dataclass(frozen=True, kw_only=True)
class GgufFile:
    """What is loaded; equal ones share one load. conf/entrant/llama_cpp.yaml says what the numbers are."""

    path: Path
    n_ctx: int
    n_threads: int | None
    n_gpu_layers: int


class GgufModel:
    """A loaded model and its tokenizer, and what of llama_cpp is needed of them."""

    def __init__(self, file: GgufFile) -> None:
        import llama_cpp

        try:
            self._lm = llama_cpp.Llama(
                str(file.path),
                n_ctx=file.n_ctx,
                n_threads=file.n_threads,
                n_gpu_layers=file.n_gpu_layers,
                logits_all=True,
                verbose=False,
            )
        except ValueError as error:
            raise UserError(
                f"{file.path}: cannot be loaded ({error}). Check that it is a whole .gguf file."
            ) from None
        self._path = file.path
        vocabulary = llama_cpp.llama_model_get_vocab(self._lm.model)
        texts = [
            llama_cpp.llama_vocab_get_text(vocabulary, i).decode("latin-1")
            for i in range(self._lm.n_vocab())
        ]
        self.end_ids = [i for i in range(len(texts)) if llama_cpp.llama_vocab_is_eog(vocabulary, i)]
        self.tokenizer = tokenizer_fingerprint(
            {text: i for i, text in enumerate(texts)}, self.end_ids
        )
        self._ends = texts[self._lm.token_eos()], texts[self._lm.token_bos()]

    def chat_ids(self, text: str, *, system_prompt: str | None, template: str | None) -> list[int]:
        """The prompt in the template given, else in the file's own, whose special tokens are tokens."""
        from jinja2 import TemplateError
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        if template == NO_TEMPLATE:
            bare = "\n\n".join(filter(None, [system_prompt, text]))
            return list(self._lm.tokenize(bare.encode(), add_bos=True, special=False))
        template = template or self._lm.metadata.get("tokenizer.chat_template")
        if template is None:
            raise UserError(
                f"{self._path}: has no chat template. Give one with chat_template=FILE.jinja, or none."
            )
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        eos, bos = self._ends
        messages = [*system, {"role": "user", "content": text}]
        try:
            rendered = Jinja2ChatFormatter(template=template, eos_token=eos, bos_token=bos)(
                messages=messages
            )
        except (TemplateError, ValueError) as error:
            raise UserError(
                f"{self._path}: the chat template cannot be used ({error}). Give another with chat_template=FILE.jinja"
                + (", or leave system_prompt out." if system else ".")
            ) from None
        return list(self._lm.tokenize(rendered.prompt.encode(), add_bos=False, special=True))

    def logits(self, ids: Sequence[int], *, start: bool) -> np.ndarray:
        """Of the token after each of these (position, vocabulary); from the `start`, or after what was read last."""
        if start:
            self._lm.reset()
        first = self._lm.n_tokens
        self._lm.eval(ids)
        found: np.ndarray = self._lm.scores[first : self._lm.n_tokens]
        return found

    def text(self, ids: Sequence[int]) -> str:
        return str(self._lm.detokenize(list(ids)).decode(errors="ignore"))


_loaded: dict[GgufFile, GgufModel] = {}  # the slot: none or one


def load(file: GgufFile) -> GgufModel:
    """The model. It stays loaded until another one is wanted. Raises UserError where it cannot be."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise UserError(
            f"{file.path}: needs llama-cpp-python, not installed: pip install 'elo-exp[llama_cpp]', which takes a "
            "compiler and a quarter of an hour."
        )
    if file not in _loaded:
        release()
        _loaded[file] = GgufModel(file)
    return _loaded[file]


def release() -> None:
    """Let go of the model that is loaded."""
    _loaded.clear()


def log_softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Log-probabilities (position, token) in float64, of logits divided by the temperature."""
    scaled = logits.astype(np.float64) / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True)))
