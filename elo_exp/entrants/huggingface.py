"""A causal language model of the Hugging Face kind: a folder or a name on the hub, with any LoRA adapters merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from elo_exp.files import utc_now
from elo_exp.models import causal_lm, checkpoints, teacher_forcing, tiny
from elo_exp.models.causal_lm import CausalLM, Checkpoint
from elo_exp.models.generation import (
    Continuation,
    Decoding,
    check_lengths,
    continuations,
    made_on,
    prompt_seed,
)
from elo_exp.models.teacher_forcing import Forced, recorded_ids, tokenizer_fingerprint, totals
from elo_exp.records import ForcedLogprob, Prompt, Response, UserError
from elo_exp.types import Count, Device, DType, Positive, TopP

VERSION = (
    1  # part of every stored answer's key: raise it when what is done with the settings changes
)


@dataclass(kw_only=True)
class HuggingFaceEntrant:
    """conf/entrant/huggingface.yaml says what each setting is, and the values it has unless you say otherwise.

    An answer's key holds the weights (a hub name at its commit, or the content of a folder's files), the adapters in
    order, dtype as it is configured, template, system prompt, sampling, max_new_tokens and the prompt. It does not hold
    the device, the batch size or the versions of the libraries: what these change is rounding, a draw of the same model
    as good as the other. With them a machine without the GPU could not find what was made on it, and every upgrade
    would pay for it again. Each answer's diagnostics say on what it was made.
    """

    entrant_id: str
    model: str
    revision: str | None
    adapters: list[str]
    dtype: DType
    device: Device
    trust_remote_code: bool
    chat_template: str | None
    system_prompt: str | None
    temperature: Positive | None
    top_p: TopP
    max_new_tokens: Count
    batch_size: Count
    logprobs: bool
    cache_dir: str
    loader: Literal["vanilla_hf"]
    rob_checkpoint: None
    bypass_jury: Literal[True]
    needs_uncertainty: Literal[False]

    def __post_init__(self) -> None:
        if self.logprobs and (self.temperature is None or self.top_p != 1):
            raise UserError(
                f"logprobs: found true with temperature={self.temperature} and top_p={self.top_p}. Expected a "
                "temperature and top_p=1.0: other answers are not drawn with the probabilities that the model gives."
            )
        self._decoding = Decoding(
            temperature=self.temperature, top_p=self.top_p, max_new_tokens=self.max_new_tokens
        )

    @cached_property
    def _template(self) -> str | None:
        return checkpoints.read_template(self.chat_template)

    @property
    def input_files(self) -> Mapping[str, Path]:
        return checkpoints.template_files(self.chat_template)

    @property
    def weight_files(self) -> Sequence[Path]:
        return checkpoints.weight_files(self.model, self.adapters)

    @cached_property
    def weights(self) -> Checkpoint:
        wanted = Checkpoint(
            model=self.model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(self.adapters),
            trust_remote_code=self.trust_remote_code,
        )
        return checkpoints.pinned(tiny.built(wanted, Path(self.cache_dir)))

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        return {
            "loader": self.loader,
            "version": VERSION,
            "weights": checkpoints.identity(self.weights, Path(self.cache_dir)),
            "dtype": self.dtype,
            "chat_template": self._template,
            "system_prompt": self.system_prompt,
            "sampling": None
            if self.temperature is None
            else {"temperature": self.temperature, "top_p": self.top_p},
            "max_new_tokens": self.max_new_tokens,
            **({"logprobs": True} if self.logprobs else {}),
        }

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {**self._settings, "text": prompt.text}

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = causal_lm.load(self.weights)
        by_id = {prompt.prompt_id: prompt for prompt in prompts}
        ids = {name: self._chat_ids(lm, prompt) for name, prompt in by_id.items()}
        tokenizer = (
            tokenizer_fingerprint(lm.tokenizer.get_vocab(), lm.end_ids) if self.logprobs else None
        )
        check_lengths(
            lm.context_length, ids, max_new_tokens=self.max_new_tokens, label=self.entrant_id
        )
        for name, made in continuations(
            lm, ids, decoding=self._decoding, batch_size=self.batch_size, label=self.entrant_id
        ):
            yield self._response(lm, by_id[name], len(ids[name]), made, tokenizer)

    def logprob_key(self, prompt: Prompt) -> Mapping[str, Any]:
        names = ("loader", "weights", "dtype", "chat_template", "system_prompt")
        settings = {name: self._settings[name] for name in names}
        return {
            "version": teacher_forcing.VERSION,
            **settings,
            "temperature": self.temperature,
            "text": prompt.text,
        }

    def teacher_force(
        self, prompts: Mapping[str, Prompt], responses: Sequence[Response]
    ) -> Iterator[ForcedLogprob]:
        if not responses:
            return
        assert self.temperature is not None
        lm = causal_lm.load(self.weights)
        tokenizer = tokenizer_fingerprint(lm.tokenizer.get_vocab(), lm.end_ids)
        items = {
            response.prompt_id: Forced(
                prompt_ids=self._chat_ids(lm, prompts[response.prompt_id]),
                token_ids=recorded_ids(response, policy=self.entrant_id, tokenizer=tokenizer),
            )
            for response in responses
        }
        for name, total in totals(lm, items, temperature=self.temperature, label=self.entrant_id):
            yield ForcedLogprob(
                entrant_id=self.entrant_id,
                prompt_id=name,
                total_logprob=total,
                n_tokens=len(items[name].token_ids),
                timestamp=utc_now(),
            )

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    def release(self) -> None:
        causal_lm.release()

    def _chat_ids(self, lm: CausalLM, prompt: Prompt) -> list[int]:
        """What the model is to continue, both where it answers and where it is teacher-forced."""
        return causal_lm.chat_ids(
            lm, prompt.text, system_prompt=self.system_prompt, chat_template=self._template
        )

    def _response(
        self,
        lm: CausalLM,
        prompt: Prompt,
        n_prompt_tokens: int,
        made: Continuation,
        tokenizer: str | None,
    ) -> Response:
        recorded = {
            "token_ids": made.token_ids,
            "total_logprob": made.total_logprob,
            "tokenizer": tokenizer,
        }
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt.prompt_id,
            response_text=lm.tokenizer.decode(made.token_ids, skip_special_tokens=True).strip(),
            finish_reason=made.finish_reason,
            diagnostics={
                "seed": prompt_seed(prompt.prompt_id),
                "n_tokens_prompt": n_prompt_tokens,
                "n_tokens_generated": len(made.token_ids),
                "batch_size": made.batch_size,
                **made_on(lm),
                **(recorded if self.logprobs else {}),
            },
            timestamp=utc_now(),
        )
