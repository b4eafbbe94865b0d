"""Load models from GGUF files through llama.cpp, one at a time, with logits of all positions."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elo_exp.models.causal_lm import (
    NO_TEMPLATE,
    bare_text,
    messages,
    template_errors,
)
from elo_exp.models.teacher_forcing import tokenizer_fingerprint
from elo_exp.records import UserError


@dataclass(frozen=True, kw_only=True)
class GgufFile:
    """What to load. Equal ones share one load. The numbers are those of llama_cpp.yaml."""

    path: Path
    n_ctx: int
    n_threads: int | None
    n_gpu_layers: int


class GgufModel:
    """A loaded model and its tokenizer."""

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
                f"{file.path}: cannot be loaded ({error}). Check that it is a complete .gguf file."
            ) from None
        self._path = file.path
        vocabulary = llama_cpp.llama_model_get_vocab(self._lm.model)
        texts = [
            llama_cpp.llama_vocab_get_text(vocabulary, i).decode("latin-1")
            for i in range(self._lm.n_vocab())
        ]
        self.end_ids = [
            i for i in range(len(texts)) if llama_cpp.llama_vocab_is_eog(vocabulary, i)
        ]
        ids = {text: i for i, text in enumerate(texts)}
        self.tokenizer = tokenizer_fingerprint(ids, self.end_ids)
        self._eos, self._bos = texts[self._lm.token_eos()], texts[self._lm.token_bos()]

    def chat_ids(
        self, text: str, *, system_prompt: str | None, chat_template: str | None
    ) -> list[int]:
        """Tokenise a prompt in the given template, else in the file's own."""
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        if chat_template == NO_TEMPLATE:
            bare = bare_text(text, system_prompt).encode()
            return list(self._lm.tokenize(bare, add_bos=True, special=False))
        template = chat_template or self._lm.metadata.get("tokenizer.chat_template")
        with template_errors(str(self._path), template):
            formatter = Jinja2ChatFormatter(
                template=template, eos_token=self._eos, bos_token=self._bos
            )
            prompt = formatter(messages=messages(text, system_prompt)).prompt
        return list(self._lm.tokenize(prompt.encode(), add_bos=False, special=True))

    def logits(self, ids: Sequence[int], *, reset: bool) -> np.ndarray:
        """Read tokens and return the logits (position, vocabulary) after each of them.

        reset  start a new text; else the tokens follow those read before
        """
        if reset:
            self._lm.reset()
        first = self._lm.n_tokens
        self._lm.eval(ids)
        logits: np.ndarray = self._lm.scores[first : self._lm.n_tokens]
        return logits

    def text(self, ids: Sequence[int]) -> str:
        return str(self._lm.detokenize(list(ids)).decode(errors="ignore"))


_loaded: dict[GgufFile, GgufModel] = {}  # none or one


def load(file: GgufFile) -> GgufModel:
    """Load a model, in place of the one that is loaded. Raises UserError where it cannot be."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise UserError(
            f"{file.path}: needs llama-cpp-python, not installed: pip install "
            "'elo-exp[llama_cpp]', which takes a compiler and a quarter of an hour."
        )
    if file not in _loaded:
        release()
        _loaded[file] = GgufModel(file)
    return _loaded[file]


def release() -> None:
    """Drop the loaded model."""
    _loaded.clear()


def log_softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return float64 log-probabilities (position, token) of logits divided by the temperature."""
    scaled = logits.astype(np.float64) / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True)))
