"""A causal language model through vLLM, in this process, in whose environment it has to run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from elo_exp.entrants import CheckpointEntrant, TokenIdsByPrompt, check_unit_temperature
from elo_exp.errors import UserError
from elo_exp.models import TokenRows
from elo_exp.models.checkpoints import CausalLM, Checkpoint, convert_library_errors
from elo_exp.models.generation import GeneratedAnswer, prompt_seed
from elo_exp.records import Prompt

# vLLM batches the prompts of a call as it likes
_MAX_PROMPTS_PER_CALL = 256


@dataclass(frozen=True, kw_only=True)
class VllmCheckpoint(Checkpoint):
    """A checkpoint with one adapter or none; its options are arguments of vllm.LLM."""

    def load(self) -> VllmModel:
        """Raises UserError where vLLM is not installed, or cannot load the model."""
        try:
            from vllm import LLM
            from vllm.lora.request import LoRARequest
        except ImportError:
            raise UserError(
                f"{self.model} needs the Python package vllm, which is not installed. Install it in an environment of "
                "its own (docs/policies.md):",
                "  pip install vllm",
            ).mark_as_need("pip install vllm") from None
        from huggingface_hub import snapshot_download

        lora = None
        with convert_library_errors(self.model):
            for adapter, revision in self.adapters:
                folder = (
                    snapshot_download(adapter, revision=revision)
                    if revision
                    else adapter
                )
                lora = LoRARequest("adapter", 1, folder)
            engine = LLM(
                self.model,
                revision=self.revision,
                dtype=self.dtype,
                trust_remote_code=self.trust_remote_code,
                enable_lora=lora is not None,
                **json.loads(self.options),
            )
        return VllmModel(
            model=engine,
            tokenizer=engine.get_tokenizer(),
            device=None,  # type: ignore[arg-type]  # the engine's business
            name=self.model,
            lora=lora,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class VllmModel(CausalLM):
    """vLLM's engine as `model`, and its LoRARequest or None."""

    lora: Any

    @property
    def context_length(self) -> int:
        return int(self.model.llm_engine.model_config.max_model_len) - 1

    @property
    def end_ids(self) -> list[int]:
        return [self.tokenizer.eos_token_id]

    @property
    def environment(self) -> dict[str, str]:
        import vllm

        dtype = str(self.model.llm_engine.model_config.dtype).removeprefix("torch.")
        return {"dtype": dtype, "vllm": vllm.__version__}

    def outputs(self, rows: Sequence[Any], sampling: Sequence[Any]) -> Iterator[Any]:
        """Yield vLLM's output for each row of token ids and its SamplingParams."""
        prompts = [{"prompt_token_ids": ids} for ids in rows]
        for i in range(0, len(rows), _MAX_PROMPTS_PER_CALL):
            block = slice(i, i + _MAX_PROMPTS_PER_CALL)
            yield from self.model.generate(
                prompts[block], sampling[block], lora_request=self.lora, use_tqdm=False
            )

    def total_logprobs(self, rows: TokenRows, *, temperature: float) -> Iterator[float]:
        """As CausalLM's; vLLM knows them at temperature 1 alone."""
        from vllm import SamplingParams

        sampling = [SamplingParams(max_tokens=1, prompt_logprobs=0)] * len(rows)
        outputs = self.outputs([[*start, *ids] for start, ids in rows], sampling)
        for (start, ids), output in zip(rows, outputs, strict=True):
            token_logprobs = output.prompt_logprobs[len(start) :]
            yield math.fsum(
                token_logprobs[i][token].logprob for i, token in enumerate(ids)
            )


@dataclass(kw_only=True)
class VllmEntrant(CheckpointEntrant):
    """The settings are described in conf/entrant/vllm.yaml. Each prompt is drawn by its own seed."""

    loader: Literal["vllm"]
    adapters: Annotated[list[str], Field(max_length=1)]
    load_kwargs: dict[str, Any]

    def __post_init__(self) -> None:
        if self.logprobs:
            check_unit_temperature(self.temperature, self.top_p)

    @cached_property
    def weights(self) -> VllmCheckpoint:
        return VllmCheckpoint(**vars(super().weights))

    @property
    def dtype_key(self) -> str:
        return self.dtype  # auto is the model's own

    def _generate_answers(
        self, lm: VllmModel, ids: TokenIdsByPrompt
    ) -> Iterator[tuple[Prompt, GeneratedAnswer]]:
        from vllm import SamplingParams

        sampling = [
            SamplingParams(
                temperature=self.temperature or 0.0,
                top_p=self.top_p,
                max_tokens=self.max_new_tokens,
                seed=prompt_seed(prompt),
                logprobs=0,
            )
            for prompt in ids
        ]
        outputs = lm.outputs(list(ids.values()), sampling)
        for prompt, output in zip(ids, outputs, strict=True):
            completion = output.outputs[0]
            yield (
                prompt,
                GeneratedAnswer(
                    token_ids=list(completion.token_ids),
                    has_ended=completion.finish_reason == "stop",
                    total_logprob=completion.cumulative_logprob,
                ),
            )
