"""A causal language model of the Hugging Face kind: a folder or a name on the hub, with any LoRA adapters merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.files import utc_now
from elo_exp.models import causal_lm, checkpoints
from elo_exp.models.causal_lm import CausalLM, Checkpoint
from elo_exp.models.generation import Continuation, Decoding, check_lengths, continuations, made_on, prompt_seed
from elo_exp.records import Prompt, Response, UserError
from elo_exp.settings import one_of

VERSION = 1  # part of every stored answer's key: raise it when what is done with the settings changes


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
    dtype: str
    device: str
    trust_remote_code: bool
    chat_template: str | None
    system_prompt: str | None
    temperature: float | None
    top_p: float
    max_new_tokens: int
    batch_size: int
    cache_dir: str
    loader: str
    rob_checkpoint: int | None
    bypass_jury: bool
    needs_uncertainty: bool

    def __post_init__(self) -> None:
        one_of("loader", self.loader, ("vanilla_hf",))
        if self.rob_checkpoint is not None or not self.bypass_jury or self.needs_uncertainty:
            raise UserError(
                "loader: vanilla_hf has neither a robustness checkpoint nor a jury nor an uncertainty head. Expected "
                "rob_checkpoint=null, bypass_jury=true and needs_uncertainty=false, or an entrant with custom_poe."
            )
        if self.batch_size < 1:
            raise UserError(f"batch_size: found {self.batch_size}. Expected 1 or more prompts.")
        self._decoding = Decoding(temperature=self.temperature, top_p=self.top_p, max_new_tokens=self.max_new_tokens)
        self._template = causal_lm.read_template(self.chat_template)
        self._wanted = Checkpoint(
            model=self.model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(self.adapters),
            trust_remote_code=self.trust_remote_code,
        )

    @cached_property
    def weights(self) -> Checkpoint:
        return checkpoints.pinned(self._wanted)

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        return {
            "loader": self.loader,
            "version": VERSION,
            "weights": checkpoints.identity(self.weights, Path(self.cache_dir)),
            "dtype": self.dtype,
            "chat_template": self._template,
            "system_prompt": self.system_prompt,
            "sampling": None if self.temperature is None else {"temperature": self.temperature, "top_p": self.top_p},
            "max_new_tokens": self.max_new_tokens,
        }

    def inputs(self, prompt: Prompt) -> Mapping[str, Any]:
        return {**self._settings, "text": prompt.text}

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = causal_lm.load(self.weights)
        by_id = {prompt.prompt_id: prompt for prompt in prompts}
        ids = {
            name: causal_lm.chat_ids(lm, p.text, system_prompt=self.system_prompt, chat_template=self._template)
            for name, p in by_id.items()
        }
        check_lengths(lm, ids, max_new_tokens=self.max_new_tokens, label=self.entrant_id)
        for name, made in continuations(
            lm, ids, decoding=self._decoding, batch_size=self.batch_size, label=self.entrant_id
        ):
            yield self._response(lm, by_id[name], len(ids[name]), made)

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    def release(self) -> None:
        causal_lm.release()

    def _response(self, lm: CausalLM, prompt: Prompt, n_prompt_tokens: int, made: Continuation) -> Response:
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
            },
            timestamp=utc_now(),
        )
