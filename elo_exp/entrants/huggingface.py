"""A causal language model from a folder or the Hugging Face hub, any LoRA adapters merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from elo_exp.files import utc_now
from elo_exp.models import causal_lm, teacher_forcing
from elo_exp.models.causal_lm import CausalLM
from elo_exp.models.checkpoints import ModelSettings
from elo_exp.models.generation import (
    Continuation,
    Decoding,
    check_lengths,
    continuations,
    environment,
    prompt_seed,
)
from elo_exp.models.teacher_forcing import tokenizer_fingerprint
from elo_exp.records import ForcedLogprob, Prompt, Response, UserError
from elo_exp.types import Count, Positive, TopP

VERSION = 1  # part of every cache key: raise it when answers change


@dataclass(kw_only=True)
class HuggingFaceEntrant(ModelSettings):
    """The settings are described in conf/entrant/huggingface.yaml.

    The cache key holds the weights (a hub name at its commit, or the contents of a folder), the
    adapters in order, dtype as configured, template, system prompt, sampling, max_new_tokens and
    prompt. It omits device, batch size and library versions, which change only rounding: a machine
    without the GPU still finds the answers, and an upgrade does not pay for them again. An
    answer's diagnostics name them.
    """

    entrant_id: str
    adapters: list[str]
    system_prompt: str | None
    temperature: Positive | None
    top_p: TopP
    max_new_tokens: Count
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
        self._decoding = Decoding(
            temperature=self.temperature,
            top_p=self.top_p,
            max_new_tokens=self.max_new_tokens,
        )

    def _adapters(self) -> Sequence[str]:
        return self.adapters

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

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = causal_lm.load(self.weights)
        ids = {
            p.prompt_id: self.chat_ids(lm, p.text, self.system_prompt) for p in prompts
        }
        check_lengths(
            lm.context_length,
            ids,
            max_new_tokens=self.max_new_tokens,
            label=self.entrant_id,
        )
        tokenizer = _tokenizer(lm) if self.logprobs else None
        made = continuations(
            lm,
            ids,
            decoding=self._decoding,
            batch_size=self.batch_size,
            label=self.entrant_id,
        )
        for prompt_id, continuation in made:
            yield self._response(
                lm, prompt_id, len(ids[prompt_id]), continuation, tokenizer
            )

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> Iterator[ForcedLogprob]:
        if not responses:
            return
        assert self.temperature is not None
        lm, temperature = causal_lm.load(self.weights), self.temperature

        def score(prompt: Prompt, tokens: Sequence[int]) -> float | None:
            ids = self.chat_ids(lm, prompt.text, self.system_prompt)
            return teacher_forcing.total_logprob(
                lm, ids, tokens, temperature=temperature
            )

        yield from teacher_forcing.force(
            prompts,
            responses,
            score,
            policy=self.entrant_id,
            tokenizer=_tokenizer(lm),
        )

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    def release(self) -> None:
        causal_lm.release()

    def _response(
        self,
        lm: CausalLM,
        prompt_id: str,
        n_tokens_prompt: int,
        made: Continuation,
        tokenizer: str | None,
    ) -> Response:
        diagnostics: dict[str, Any] = {
            "seed": prompt_seed(prompt_id),
            "n_tokens_prompt": n_tokens_prompt,
            "n_tokens_generated": len(made.token_ids),
            "batch_size": made.batch_size,
            **environment(lm),
        }
        if self.logprobs:
            diagnostics |= {
                "token_ids": made.token_ids,
                "total_logprob": made.total_logprob,
                "tokenizer": tokenizer,
            }
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt_id,
            response_text=lm.tokenizer.decode(
                made.token_ids, skip_special_tokens=True
            ).strip(),
            finish_reason=made.finish_reason,
            diagnostics=diagnostics,
            timestamp=utc_now(),
        )


def _tokenizer(lm: CausalLM) -> str:
    return tokenizer_fingerprint(lm.tokenizer.get_vocab(), lm.end_ids)
