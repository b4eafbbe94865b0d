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
from elo_exp.models.generation import check_lengths, prompt_seed
from elo_exp.models.gguf import GgufFile, GgufModel, log_softmax
from elo_exp.models.teacher_forcing import recorded_ids
from elo_exp.records import ForcedLogprob, Prompt, Response, UserError
from elo_exp.types import Count, Integer, Positive

VERSION = (
    1  # part of every stored answer's key: raise it when what is done with the settings changes
)


@dataclass(kw_only=True)
class LlamaCppEntrant:
    """conf/entrant/llama_cpp.yaml says what each setting is.

    An answer is drawn token by token, each token's log-probability being recorded; it is teacher-forced in one pass.
    Its key holds the file's content, template, system prompt, temperature, max_new_tokens and the prompt.
    """

    entrant_id: str
    path: str
    chat_template: str | None
    system_prompt: str | None
    temperature: Positive
    max_new_tokens: Count
    n_ctx: Count
    n_threads: Count | None
    n_gpu_layers: Integer
    cache_dir: str

    @cached_property
    def _template(self) -> str | None:
        return checkpoints.read_template(self.chat_template)

    @property
    def input_files(self) -> Mapping[str, Path]:
        return checkpoints.template_files(self.chat_template)

    @property
    def weight_files(self) -> Sequence[Path]:
        return [self.weights.path] if self.weights.path.is_file() else []

    @property
    def logprobs(self) -> bool:
        return True

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    @property
    def weights(self) -> GgufFile:
        path = Path(self.path).expanduser().resolve()
        return GgufFile(
            path=path, n_ctx=self.n_ctx, n_threads=self.n_threads, n_gpu_layers=self.n_gpu_layers
        )

    def release(self) -> None:
        gguf.release()

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        path = self.weights.path
        if not path.is_file():
            raise UserError(f"{self.path}: no such file. Expected a model as .gguf.")
        return {
            "loader": "llama_cpp",
            "weights": checkpoints.file_identity(path, Path(self.cache_dir)),
            "chat_template": self._template,
            "system_prompt": self.system_prompt,
            "temperature": self.temperature,
        }

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        limit = {"version": VERSION, "max_new_tokens": self.max_new_tokens}
        return {**self._settings, **limit, "text": prompt.text}

    def logprob_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {**self._settings, "version": teacher_forcing.VERSION, "text": prompt.text}

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = gguf.load(self.weights)
        rows = {prompt.prompt_id: self._chat_ids(lm, prompt) for prompt in prompts}
        check_lengths(self.n_ctx, rows, max_new_tokens=self.max_new_tokens, label=self.entrant_id)
        for prompt in prompts:
            yield self._answer(lm, prompt, rows[prompt.prompt_id])

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> Iterator[ForcedLogprob]:
        if not responses:
            return
        lm = gguf.load(self.weights)
        for response in responses:
            tokens = recorded_ids(response, policy=self.entrant_id, tokenizer=lm.tokenizer)
            yield ForcedLogprob(
                entrant_id=self.entrant_id,
                prompt_id=response.prompt_id,
                total_logprob=self._total(lm, prompts[response.prompt_id], tokens),
                n_tokens=len(tokens),
                timestamp=utc_now(),
            )

    def _chat_ids(self, lm: GgufModel, prompt: Prompt) -> list[int]:
        """What the model is to continue, both where it answers and where it is teacher-forced."""
        return lm.chat_ids(prompt.text, system_prompt=self.system_prompt, template=self._template)

    def _answer(self, lm: GgufModel, prompt: Prompt, ids: Sequence[int]) -> Response:
        seed = prompt_seed(prompt.prompt_id)
        tokens: list[int] = []
        logprobs: list[float] = []
        read: Sequence[int] = ids
        for uniform in np.random.default_rng(seed).random(self.max_new_tokens):
            chances = log_softmax(lm.logits(read, start=not tokens)[-1:], self.temperature)[0]
            cumulative = np.exp(chances).cumsum()
            token = min(
                int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")),
                len(chances) - 1,
            )
            tokens.append(token)
            logprobs.append(float(chances[token]))
            if token in lm.end_ids:
                break
            read = [token]
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt.prompt_id,
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

    def _total(self, lm: GgufModel, prompt: Prompt, tokens: Sequence[int]) -> float | None:
        ids = self._chat_ids(lm, prompt)
        if len(ids) + len(tokens) > self.n_ctx:
            return None
        chances = log_softmax(
            lm.logits([*ids, *tokens], start=True)[len(ids) - 1 : -1], self.temperature
        )
        found = chances[np.arange(len(tokens)), tokens].tolist()
        return teacher_forcing.checked(math.fsum(found), f"{self.entrant_id}, {prompt.prompt_id}")
