"""Several heads on the trunk of one causal language model, which answer as a product of experts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from elo_exp.data.thoughts import split_thought
from elo_exp.entrants import Tokenised, WeightsEntrant
from elo_exp.models import adapters
from elo_exp.models.checkpoints import CausalLM, ModelSettings
from elo_exp.models.generation import Answer, in_batches, prompt_seed
from elo_exp.records import Prompt, UserError
from elo_exp.types import CacheKey, Count, Integer, Positive

if TYPE_CHECKING:
    from elo_exp.models.multihead import Decoded, MultiHead

# What the uncertainty head was trained on, word for word, with nothing before "Answer".
_IS_IT_CORRECT = "{prompt}Answer: {answer}\nTask: Reply A (correct) or B (wrong): "
_DIGITS = 6  # of the diagnostics by token


@dataclass(kw_only=True)
class ProductOfExpertsEntrant(ModelSettings, WeightsEntrant):
    """The settings are described in conf/entrant/poe.yaml.

    For each prompt one head is drawn, by the prompt's own seed, to draft. With `bypass_jury` its
    draft is the answer; else the other heads are its jury, and the answer is a sample of their
    product: verified draft by draft, or with `decode=direct` drawn from it. A batch is that of
    prompts and heads together.

    The cache key holds the weights, the adapter files and all settings that change what is drawn;
    it omits the device, which changes only rounding.
    """

    security_dir: str | None
    robustness_dir: str | None
    rob_checkpoint: Integer | None
    uncertainty_path: str | None
    bypass_jury: bool
    decode: Literal["speculative", "direct"]
    beta: Positive
    batch_size: Count
    needs_uncertainty: bool
    loader: Literal["custom_poe"]

    version = 2

    @property
    def weight_files(self) -> list[Path]:
        heads = [file.path for files in self._files.groups for file in files]
        return super().weight_files + heads

    def check(self) -> None:
        """Raise UserError for adapters or a template's file that are absent."""
        super().check()
        _ = self._files

    @cached_property
    def _files(self) -> adapters.HeadFiles:
        if self.security_dir is None:
            raise UserError(
                "security_dir: has no value. Expected the folder of the heads' adapters: train "
                "them as docs/poe.md says, and set ELO_EXP_SECURITY_DIR. Without adapters: "
                "recorded_dir=DIR takes recorded answers, 'entrant=[...]' your own entrants."
            )
        if self.needs_uncertainty and self.uncertainty_path is None:
            raise UserError(
                "uncertainty_path: has no value with needs_uncertainty=true. Expected the "
                "uncertainty head's file."
            )
        files = adapters.find(
            security_dir=self.security_dir,
            robustness_dir=self.robustness_dir,
            rob_checkpoint=self.rob_checkpoint,
            uncertainty_path=self.uncertainty_path if self.needs_uncertainty else None,
        )
        if files.n_heads == 1 and not self.bypass_jury:
            raise UserError(
                "security_dir: found one head, which leaves no jury. Expected two or more "
                "heads, or bypass_jury=true."
            )
        return files

    @cached_property
    def _drawing_key(self) -> CacheKey:
        sampling: dict[str, Any] = {"temperature": self.temperature}
        if not self.bypass_jury:
            sampling |= {"decode": self.decode, "beta": self.beta}
        return {
            "loader": self.loader,
            "heads": self._files.digest(),
            "sampling": sampling,
            "needs_uncertainty": self.needs_uncertainty,
        }

    def _answers(self, lm: CausalLM, ids: Tokenised) -> Iterator[tuple[Prompt, Answer]]:
        from elo_exp.models.multihead import MultiHead, geometry

        sizes = geometry(lm.model, self._files.depth)
        updates = [adapters.read(files, sizes) for files in self._files.groups]
        model = MultiHead(lm.model, sizes, updates)
        return in_batches(
            ids,
            lambda some: self._batch(
                lm, model, {prompt: ids[prompt] for prompt in some}
            ),
            batch_size=self.batch_size,
            label=self.entrant_id,
        )

    def _batch(self, lm: CausalLM, model: MultiHead, ids: Tokenised) -> list[Answer]:
        import torch

        from elo_exp.models.multihead import Sampling, decode

        sources = [np.random.default_rng(prompt_seed(prompt)) for prompt in ids]
        drafters = [int(source.integers(self._files.n_heads)) for source in sources]
        numbers = np.stack([s.random((self.max_new_tokens, 3)) for s in sources])
        with torch.inference_mode():
            answers = decode(
                model,
                *lm.padded(list(ids.values())),
                n_heads=self._files.n_heads,
                drafters=drafters,
                uniforms=torch.from_numpy(numbers),
                sampling=Sampling(
                    decode="draft" if self.bypass_jury else self.decode,
                    beta=self.beta,
                    temperature=self.temperature,
                    max_new_tokens=self.max_new_tokens,
                    end_ids=lm.end_ids,
                ),
            )
            p_correct: Sequence[float | None] = [None] * len(answers)
            if self.needs_uncertainty:
                p_correct = self._p_correct(lm, model, ids, answers)
        return [
            Answer(
                token_ids=answer.tokens,
                ended=answer.ended,
                p_correct=p,
                diagnostics={
                    "draft_head_idx": drafter,
                    "bypass_jury": self.bypass_jury,
                    "n_resampled": len(answer.diagnostics["rejected_at"]),
                    "batch_size": len(ids),
                    **({} if self.bypass_jury else _diagnostics(answer)),
                },
            )
            for answer, drafter, p in zip(answers, drafters, p_correct, strict=True)
        ]

    def _p_correct(
        self,
        lm: CausalLM,
        model: MultiHead,
        prompts: Iterable[Prompt],
        answers: Sequence[Decoded],
    ) -> list[float]:
        import torch

        from elo_exp.models.multihead import p_correct

        questions = [
            _IS_IT_CORRECT.format(
                prompt=prompt.text, answer=split_thought(lm.text(answer.tokens))[0]
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
        yes, no = lm.tokenizer(["A", "B"], add_special_tokens=False)["input_ids"]
        return p_correct(
            model,
            *lm.padded([self.chat_ids(lm, q, self.system_prompt) for q in questions]),
            head=self._files.n_heads,
            witnesses=torch.stack([answer.witness for answer in answers]),
            yes=yes[0],
            no=no[0],
        )


def _diagnostics(decoded: Decoded) -> dict[str, Any]:
    """The lists of Decoded.diagnostics and their means, which are None of empty lists."""
    found: dict[str, Any] = {}
    if decoded.accepted:
        found["n_rounds"] = decoded.n_rounds
        found["acceptance_rate"] = fmean(decoded.accepted)
    for name, values in decoded.diagnostics.items():
        found[name] = [round(value, _DIGITS) for value in values]
        if name != "rejected_at":
            found[f"mean_{name}"] = fmean(values) if values else None
    return found
