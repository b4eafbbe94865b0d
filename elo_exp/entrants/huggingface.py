"""A causal language model from a folder or the Hugging Face hub, any LoRA adapters merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from elo_exp.entrants import WeightsEntrant
from elo_exp.models import generation, teacher_forcing
from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.checkpoints import ModelSettings
from elo_exp.models.generation import Answer, Decoding
from elo_exp.records import Prompt, UserError
from elo_exp.types import Count, TopP

VERSION = 1  # part of every cache key: raise it when answers change


@dataclass(kw_only=True)
class HuggingFaceEntrant(ModelSettings, WeightsEntrant):
    """The settings are described in conf/entrant/huggingface.yaml.

    The cache key holds the weights (a hub name at its commit, or the contents of a folder), the
    adapters in order, dtype as configured, template, system prompt, sampling, max_new_tokens and
    prompt. It omits device, batch size and library versions, which change only rounding: a machine
    without the GPU still finds the answers, and an upgrade does not pay for them again. An
    answer's diagnostics name them.
    """

    adapters: list[str]
    top_p: TopP
    batch_size: Count
    logprobs: bool
    loader: Literal["vanilla_hf"]
    rob_checkpoint: None
    bypass_jury: Literal[True]
    needs_uncertainty: Literal[False]

    def __post_init__(self) -> None:
        if self.logprobs and (self.temperature is None or self.top_p != 1):
            raise UserError(
                f"logprobs: found true with temperature={self.temperature} and top_p={self.top_p}. "
                "Expected a temperature and top_p=1.0: other answers are not drawn with the "
                "model's own probabilities."
            )

    @cached_property
    def _model_key(self) -> dict[str, Any]:
        return {
            "loader": self.loader,
            "weights": self.weights_key,
            "dtype": self.dtype,
            "chat_template": self.template,
            "system_prompt": self.system_prompt,
        }

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        sampling = {"temperature": self.temperature, "top_p": self.top_p}
        key = {
            **self._model_key,
            "version": VERSION,
            "sampling": None if self.temperature is None else sampling,
            "max_new_tokens": self.max_new_tokens,
            "text": prompt.text,
        }
        return {**key, "logprobs": True} if self.logprobs else key

    def logprob_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {
            **self._model_key,
            "version": teacher_forcing.VERSION,
            "temperature": self.temperature,
            "text": prompt.text,
        }

    def _answers(
        self, lm: CausalLM, prompts: Sequence[Prompt], ids: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[str, Answer]]:
        decoding = Decoding(
            temperature=self.temperature,
            top_p=self.top_p,
            max_new_tokens=self.max_new_tokens,
        )
        return generation.generate(
            lm,
            ids,
            decoding=decoding,
            batch_size=self.batch_size,
            label=self.entrant_id,
        )
