"""A model in a GGUF file, through llama.cpp, with logits of all positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from elo_exp.entrants import Policy, TokenIdsByPrompt, WeightsEntrant
from elo_exp.errors import FileError
from elo_exp.models import (
    TokenRows,
    check_template_variables,
    checkpoints,
    require_packages,
)
from elo_exp.models.generation import GeneratedAnswer, prompt_seed
from elo_exp.records import Prompt
from elo_exp.types import CacheKey, Count, Integer, Positive


class GgufFile(NamedTuple):
    """What to load. The numbers are those of llama_cpp.yaml."""

    path: Path
    n_ctx: int
    n_threads: int | None
    n_gpu_layers: int

    def load(self) -> GgufModel:
        """Raises UserError where llama.cpp is not installed, or the file is no model."""
        require_packages(str(self.path), "llama_cpp", extra="llama_cpp")
        return GgufModel(self)


class GgufModel:
    """A loaded model and its tokenizer, with what CausalLM has."""

    environment: Mapping[str, str] = {}

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
            raise FileError.bad_file(
                file.path,
                f"cannot be loaded ({error})",
                "Check that it is a complete .gguf file.",
            ) from None
        self.name, self.context_length = str(file.path), file.n_ctx
        vocab = llama_cpp.llama_model_get_vocab(self._lm.model)
        ids = range(self._lm.n_vocab())
        texts = [
            llama_cpp.llama_vocab_get_text(vocab, i).decode("latin-1") for i in ids
        ]
        self.vocabulary = dict(zip(texts, ids, strict=True))
        self.end_ids = [i for i in ids if llama_cpp.llama_vocab_is_eog(vocab, i)]
        self._eos, self._bos = texts[self._lm.token_eos()], texts[self._lm.token_bos()]

    def bare_ids(self, text: str) -> list[int]:
        return list(self._lm.tokenize(text.encode(), add_bos=True, special=False))

    def chat_ids(
        self,
        messages: Sequence[Any],
        template: str | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        template = template or self._lm.metadata.get("tokenizer.chat_template")
        if not template:
            raise ValueError("the file has none")
        check_template_variables(template, variables)
        formatter = Jinja2ChatFormatter(
            template=template, eos_token=self._eos, bos_token=self._bos
        )
        prompt = formatter(messages=list(messages), **variables).prompt
        return list(self._lm.tokenize(prompt.encode(), add_bos=False, special=True))

    def text(self, ids: Sequence[int], *, special: bool = False) -> str:
        return str(self._lm.detokenize(list(ids), special=special), errors="ignore")

    def logits(self, ids: Sequence[int], *, reset: bool) -> np.ndarray:
        """Read tokens and return the logits (position, vocabulary) after each of them.

        reset  start a new text; else the tokens follow those read before
        """
        if reset:
            self._lm.reset()
        self._lm.eval(ids)
        end = self._lm.n_tokens
        return np.asarray(self._lm.scores[end - len(ids) : end])

    def total_logprobs(self, rows: TokenRows, *, temperature: float) -> Iterator[float]:
        for prompt_ids, ids in rows:
            logits = self.logits([*prompt_ids, *ids], reset=True)
            scaled_logits = logits[len(prompt_ids) - 1 : -1].astype(float) / temperature
            logprobs = scipy.special.log_softmax(scaled_logits, axis=-1)
            yield math.fsum(logprobs[np.arange(len(ids)), ids].tolist())


@dataclass(kw_only=True)
class LlamaCppEntrant(WeightsEntrant, Policy):
    """The settings are described in conf/entrant/llama_cpp.yaml.

    An answer is drawn token by token, each with its log-probability, and teacher-forced in one
    pass. The cache key holds the file's contents, template, system prompt, temperature,
    max_new_tokens and prompt.
    """

    path: str
    temperature: Positive
    n_ctx: Count
    n_threads: Count | None
    n_gpu_layers: Integer

    logprobs = True

    def check(self) -> None:
        """Raise UserError for a model or a template's file that is absent."""
        _ = self.model_key

    @property
    def weights(self) -> GgufFile:
        path = Path(self.path).expanduser().resolve()
        return GgufFile(path, self.n_ctx, self.n_threads, self.n_gpu_layers)

    @property
    def weight_files(self) -> list[Path]:
        return [path for path in [self.weights.path] if path.is_file()]

    @cached_property
    def model_key(self) -> CacheKey:
        if not self.weight_files:
            error = FileError.not_found(
                self.path, f"the .gguf file of {self.entrant_id}"
            )
            raise error.mark_as_need(f"the model {self.path}")
        digests = checkpoints.hash_files(self.weight_files, Path(self.cache_dir))
        return {
            "loader": "llama_cpp",
            "weights": digests[str(self.weights.path)],
            "temperature": self.temperature,
            **super().model_key,
        }

    def _generate_answers(
        self, lm: GgufModel, ids: TokenIdsByPrompt
    ) -> Iterator[tuple[Prompt, GeneratedAnswer]]:
        for prompt, start in ids.items():
            tokens: list[int] = []
            total, has_ended = 0.0, False
            rng = np.random.default_rng(prompt_seed(prompt))
            for uniform in rng.random(self.max_new_tokens):
                logits = lm.logits(tokens[-1:] or start, reset=not tokens)
                row = scipy.special.log_softmax(
                    logits[-1].astype(float) / self.temperature
                )
                cumulative = np.exp(row).cumsum()
                token_index = np.searchsorted(
                    cumulative, uniform * cumulative[-1], side="right"
                )
                tokens.append(min(int(token_index), len(row) - 1))
                total += float(row[tokens[-1]])
                has_ended = tokens[-1] in lm.end_ids
                if has_ended:
                    break
            yield (
                prompt,
                GeneratedAnswer(
                    token_ids=tokens, has_ended=has_ended, total_logprob=total
                ),
            )
