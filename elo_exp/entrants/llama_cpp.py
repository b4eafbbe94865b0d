"""A model in a GGUF file, through llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.files import utc_now
from elo_exp.models import checkpoints, gguf, teacher_forcing
from elo_exp.models.checkpoints import TemplateSettings
from elo_exp.models.generation import check_lengths, prompt_seed
from elo_exp.models.gguf import GgufFile, GgufModel, log_softmax
from elo_exp.records import ForcedLogprob, Prompt, Response, UserError
from elo_exp.types import Count, Integer, Positive

VERSION = 1  # part of every cache key: raise it when answers change


@dataclass(kw_only=True)
class LlamaCppEntrant(TemplateSettings):
    """The settings are described in conf/entrant/llama_cpp.yaml.

    An answer is drawn token by token, each with its log-probability, and teacher-forced in one
    pass. The cache key holds the file's contents, template, system prompt, temperature,
    max_new_tokens and prompt.
    """

    entrant_id: str
    path: str
    system_prompt: str | None
    temperature: Positive
    max_new_tokens: Count
    n_ctx: Count
    n_threads: Count | None
    n_gpu_layers: Integer

    @property
    def weight_files(self) -> Sequence[Path]:
        return [self.weights.path] if self.weights.path.is_file() else []

    def check(self) -> None:
        """Raise UserError for a model or a template's file that is absent."""
        _ = self._model_key

    @property
    def logprobs(self) -> bool:
        return True

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    @property
    def weights(self) -> GgufFile:
        return GgufFile(
            path=Path(self.path).expanduser().resolve(),
            n_ctx=self.n_ctx,
            n_threads=self.n_threads,
            n_gpu_layers=self.n_gpu_layers,
        )

    def release(self) -> None:
        gguf.release()

    @cached_property
    def _model_key(self) -> Mapping[str, Any]:
        path = self.weights.path
        if not path.is_file():
            raise UserError(f"{self.path}: no such file. Expected a model as .gguf.")
        (digest,) = checkpoints.hashes([path], Path(self.cache_dir)).values()
        return {
            "loader": "llama_cpp",
            "weights": digest,
            "chat_template": self.template,
            "system_prompt": self.system_prompt,
            "temperature": self.temperature,
        }

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        limit = {"version": VERSION, "max_new_tokens": self.max_new_tokens}
        return {**self._model_key, **limit, "text": prompt.text}

    def logprob_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {
            **self._model_key,
            "version": teacher_forcing.VERSION,
            "text": prompt.text,
        }

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = gguf.load(self.weights)
        rows = {prompt.prompt_id: self._chat_ids(lm, prompt) for prompt in prompts}
        check_lengths(
            self.n_ctx, rows, max_new_tokens=self.max_new_tokens, label=self.entrant_id
        )
        for prompt_id, ids in rows.items():
            yield self._generate_one(lm, prompt_id, ids)

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> Iterator[ForcedLogprob]:
        if not responses:
            return
        lm = gguf.load(self.weights)

        def score(prompt: Prompt, tokens: Sequence[int]) -> float | None:
            ids = self._chat_ids(lm, prompt)
            if len(ids) + len(tokens) > self.n_ctx:
                return None
            logits = lm.logits([*ids, *tokens], reset=True)[len(ids) - 1 : -1]
            logprobs = log_softmax(logits, self.temperature)
            return math.fsum(logprobs[np.arange(len(tokens)), tokens].tolist())

        yield from teacher_forcing.force(
            prompts,
            responses,
            score,
            policy=self.entrant_id,
            tokenizer=lm.tokenizer,
        )

    def _chat_ids(self, lm: GgufModel, prompt: Prompt) -> list[int]:
        return lm.chat_ids(
            prompt.text, system_prompt=self.system_prompt, chat_template=self.template
        )

    def _generate_one(
        self, lm: GgufModel, prompt_id: str, ids: Sequence[int]
    ) -> Response:
        seed = prompt_seed(prompt_id)
        tokens: list[int] = []
        logprobs: list[float] = []
        unread: Sequence[int] = ids
        for uniform in np.random.default_rng(seed).random(self.max_new_tokens):
            row = log_softmax(
                lm.logits(unread, reset=not tokens)[-1:], self.temperature
            )[0]
            cumulative = np.exp(row).cumsum()
            place = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
            token = min(int(place), len(row) - 1)
            tokens.append(token)
            logprobs.append(float(row[token]))
            if token in lm.end_ids:
                break
            unread = [token]
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt_id,
            response_text=lm.text(tokens).strip(),
            finish_reason="stop" if tokens[-1] in lm.end_ids else "length",
            diagnostics={
                "seed": seed,
                "n_tokens_prompt": len(ids),
                "n_tokens_generated": len(tokens),
                "token_ids": tokens,
                "total_logprob": math.fsum(logprobs),
                "tokenizer": lm.tokenizer,
            },
            timestamp=utc_now(),
        )
