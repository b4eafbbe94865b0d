"""A causal language model from a folder or the Hugging Face hub, any LoRA adapters merged."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from elo_exp.entrants import CheckpointEntrant, TokenIdsByPrompt
from elo_exp.models.checkpoints import CausalLM, refuse_quantised_merge
from elo_exp.models.generation import GeneratedAnswer, generate_answers, run_in_batches
from elo_exp.records import Prompt
from elo_exp.types import Count


@dataclass(kw_only=True)
class HuggingFaceEntrant(CheckpointEntrant):
    """The settings are described in conf/entrant/huggingface.yaml."""

    load_kwargs: dict[str, Any]
    batch_size: Count | None
    loader: Literal["vanilla_hf"]
    rob_checkpoint: None
    bypass_jury: Literal[True]
    needs_uncertainty: Literal[False]

    @property
    def version(self) -> int:
        return 1 if self.temperature is None else 2

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_quantised_merge(self.adapters, self.load_kwargs)

    def _generate_answers(
        self, lm: CausalLM, ids: TokenIdsByPrompt
    ) -> Iterator[tuple[Prompt, GeneratedAnswer]]:
        return run_in_batches(
            ids,
            partial(
                generate_answers,
                lm,
                temperature=self.temperature,
                top_p=self.top_p,
                max_new_tokens=self.max_new_tokens,
            ),
            batch_size=self.batch_size or (16 if lm.device.type == "cpu" else 64),
            label=self.entrant_id,
        )
