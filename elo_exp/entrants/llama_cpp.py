"""A model in a GGUF file, through llama.cpp."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.special import log_softmax

from elo_exp.entrants import Tokenised, WeightsEntrant
from elo_exp.models import checkpoints
from elo_exp.models.generation import Answer, prompt_seed
from elo_exp.models.gguf import GgufFile, GgufModel
from elo_exp.records import Prompt, UserError
from elo_exp.types import CacheKey, Count, Integer, Positive


@dataclass(kw_only=True)
class LlamaCppEntrant(WeightsEntrant):
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
        return GgufFile(
            path=Path(self.path).expanduser().resolve(),
            n_ctx=self.n_ctx,
            n_threads=self.n_threads,
            n_gpu_layers=self.n_gpu_layers,
        )

    @property
    def weight_files(self) -> list[Path]:
        return [path for path in [self.weights.path] if path.is_file()]

    @cached_property
    def model_key(self) -> CacheKey:
        if not self.weight_files:
            raise UserError(f"{self.path}: no such file. Expected a model as .gguf.")
        digests = checkpoints.hashes(self.weight_files, Path(self.cache_dir))
        return {
            "loader": "llama_cpp",
            "weights": digests[str(self.weights.path)],
            "temperature": self.temperature,
            **super().model_key,
        }

    def _answers(
        self, lm: GgufModel, ids: Tokenised
    ) -> Iterator[tuple[Prompt, Answer]]:
        for prompt, start in ids.items():
            tokens: list[int] = []
            total, ended = 0.0, False
            source = np.random.default_rng(prompt_seed(prompt))
            for uniform in source.random(self.max_new_tokens):
                logits = lm.logits(tokens[-1:] or start, reset=not tokens)
                row = log_softmax(logits[-1].astype(float) / self.temperature)
                below = np.exp(row).cumsum()
                place = np.searchsorted(below, uniform * below[-1], side="right")
                tokens.append(min(int(place), len(row) - 1))
                total += float(row[tokens[-1]])
                ended = tokens[-1] in lm.end_ids
                if ended:
                    break
            yield prompt, Answer(token_ids=tokens, ended=ended, total_logprob=total)
