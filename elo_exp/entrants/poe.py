"""Several heads on the trunk of one causal language model, which answer as a product of experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, Literal

import numpy as np

from elo_exp.files import utc_now
from elo_exp.models import adapters, causal_lm, checkpoints, decoding
from elo_exp.models.causal_lm import CausalLM, Checkpoint
from elo_exp.models.decoding import Decoded, Sampling
from elo_exp.models.generation import Speed, check_lengths, made_on, prompt_seed
from elo_exp.models.multihead import MultiHead, geometry
from elo_exp.records import Prompt, Response, UserError
from elo_exp.types import Count, Device, DType, Integer, Positive

VERSION = (
    1  # part of every stored answer's key: raise it when what is done with the settings changes
)
# Word for word, with nothing before "Answer", what the uncertainty head was trained on.
_IS_IT_CORRECT = "{prompt}Answer: {answer}\nTask: Reply A (correct) or B (wrong): "
_DIGITS = 6  # of the numbers for each token


@dataclass(kw_only=True)
class ProductOfExpertsEntrant:
    """conf/entrant/poe.yaml says what each setting is, and the values it has unless you say otherwise.

    For each prompt one head is drawn, by the prompt's own seed, to draft. With `bypass_jury` the answer is that head's
    own; else the other heads are its jury, and the answer is a sample of their product: verified draft by draft, or
    with `decode=direct` drawn from it. Prompts are answered one at a time, the heads being the batch.

    An answer's key holds the weights, the files of the adapters, and all settings that change what is drawn; not the
    device nor `merge`, which change rounding.
    """

    entrant_id: str
    model: str
    revision: str | None
    security_dir: str | None
    robustness_dir: str | None
    rob_checkpoint: Integer | None
    uncertainty_path: str | None
    bypass_jury: bool
    decode: Literal["speculative", "direct"]
    gamma: Count
    beta: Positive
    temperature: Positive | None
    needs_uncertainty: bool
    max_new_tokens: Count
    merge: bool
    dtype: DType
    device: Device
    trust_remote_code: bool
    chat_template: str | None
    system_prompt: str | None
    cache_dir: str
    loader: Literal["custom_poe"]

    @property
    def input_files(self) -> Mapping[str, Path]:
        return checkpoints.template_files(self.chat_template)

    @property
    def weight_files(self) -> Sequence[Path]:
        return [*checkpoints.weight_files(self.model), *self._files.paths]

    @cached_property
    def _template(self) -> str | None:
        return checkpoints.read_template(self.chat_template)

    def check(self) -> None:
        """Raise UserError for adapters that are missing."""
        _ = self._files

    @cached_property
    def _files(self) -> adapters.HeadFiles:
        if self.security_dir is None:
            raise UserError(
                "security_dir: found nothing. Expected the folder of the heads' adapters; the "
                "environment variable ELO_EXP_SECURITY_DIR sets it for all entrants, docs/poe.md "
                "says what must be in it. Responses that are there already come by "
                "recorded_dir=DIR."
            )
        if self.needs_uncertainty and self.uncertainty_path is None:
            raise UserError(
                "uncertainty_path: found nothing, and needs_uncertainty=true. Expected the head's "
                "file."
            )
        files = adapters.find(
            security_dir=self.security_dir,
            robustness_dir=self.robustness_dir,
            rob_checkpoint=self.rob_checkpoint,
            uncertainty_path=self.uncertainty_path if self.needs_uncertainty else None,
        )
        if len(files.heads) == 1 and not self.bypass_jury:
            raise UserError(
                "security_dir: found one head. Expected two or more, or bypass_jury=true: nobody "
                "is left."
            )
        return files

    @cached_property
    def weights(self) -> Checkpoint:
        wanted = Checkpoint(
            model=self.model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
        )
        return checkpoints.pinned(wanted)

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        how: dict[str, Any] = {"temperature": self.temperature}
        if not self.bypass_jury:
            how |= {"decode": self.decode, "beta": self.beta}
            how |= {"gamma": self.gamma} if self.decode == "speculative" else {}
        return {
            "loader": self.loader,
            "version": VERSION,
            "weights": checkpoints.identity(self.weights, Path(self.cache_dir)),
            "heads": self._files.digest(),
            "dtype": self.dtype,
            "chat_template": self._template,
            "system_prompt": self.system_prompt,
            "sampling": how,
            "needs_uncertainty": self.needs_uncertainty,
            "max_new_tokens": self.max_new_tokens,
        }

    def cache_key(self, prompt: Prompt) -> Mapping[str, Any]:
        return {**self._settings, "text": prompt.text}

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Response]:
        if not prompts:
            return
        lm = causal_lm.load(self.weights)
        model = self._multihead(lm)
        rows = {prompt.prompt_id: self._chat_ids(lm, prompt.text) for prompt in prompts}
        check_lengths(
            lm.context_length, rows, max_new_tokens=self.max_new_tokens, label=self.entrant_id
        )
        speed = Speed(self.entrant_id)
        for prompt in prompts:
            began = monotonic()
            response = self._answer(lm, model, prompt, rows[prompt.prompt_id])
            speed.add(response.diagnostics["n_tokens_generated"], monotonic() - began)
            yield response
        speed.conclude()

    @property
    def max_answer_tokens(self) -> int:
        return self.max_new_tokens

    def release(self) -> None:
        causal_lm.release()

    def _multihead(self, lm: CausalLM) -> MultiHead:
        """The model with its language heads and, if it is wanted, the uncertainty head after them."""
        sizes = geometry(lm.model, self._files.depth)
        last = [(self._files.uncertainty,)] if self._files.uncertainty else []
        updates = [adapters.read(files, sizes) for files in (*self._files.heads, *last)]
        return MultiHead(lm.model, depth=self._files.depth, updates=updates, merge=self.merge)

    def _chat_ids(self, lm: CausalLM, text: str) -> list[int]:
        return causal_lm.chat_ids(
            lm, text, system_prompt=self.system_prompt, chat_template=self._template
        )

    def _answer(
        self, lm: CausalLM, model: MultiHead, prompt: Prompt, ids: Sequence[int]
    ) -> Response:
        import torch

        seed = prompt_seed(prompt.prompt_id)
        try:
            with torch.inference_mode():
                drafter, decoded = self._decode(lm, model, ids, np.random.default_rng(seed))
                text = lm.tokenizer.decode(decoded.tokens, skip_special_tokens=True)
                p_correct = (
                    self._p_correct(lm, model, prompt, text, decoded)
                    if self.needs_uncertainty
                    else None
                )
        except RuntimeError as error:
            if not causal_lm.is_out_of_memory(error):
                raise
            raise UserError(
                f"{self.entrant_id}: memory does not suffice for {prompt.prompt_id}. Lower max_new_tokens, or take "
                "dtype=bfloat16 or device=cpu."
            ) from None
        return Response(
            entrant_id=self.entrant_id,
            prompt_id=prompt.prompt_id,
            response_text=text.strip(),
            p_correct=p_correct,
            finish_reason="stop" if decoded.ended else "length",
            diagnostics={
                "draft_head_idx": drafter,
                "seed": seed,
                "bypass_jury": self.bypass_jury,
                "n_resampled": len(decoded.rejections),
                "n_tokens_prompt": len(ids),
                "n_tokens_generated": len(decoded.tokens),
                **({} if self.bypass_jury else _trust(decoded)),
                **made_on(lm),
            },
            timestamp=utc_now(),
        )

    def _decode(
        self, lm: CausalLM, model: MultiHead, ids: Sequence[int], rng: np.random.Generator
    ) -> tuple[int, Decoded]:
        n_heads = len(self._files.heads)
        drafter = int(rng.integers(n_heads))
        jury = [head for head in range(n_heads) if head != drafter]
        sampling = Sampling(
            beta=1.0 if self.bypass_jury else self.beta,
            temperature=self.temperature,
            gamma=self.gamma,
            max_new_tokens=self.max_new_tokens,
            end_ids=lm.end_ids,
        )
        if self.bypass_jury or self.decode == "direct":
            heads = [drafter] if self.bypass_jury else jury
            return drafter, decoding.sampled(model, ids, heads=heads, sampling=sampling, rng=rng)
        return drafter, decoding.verified(
            model, ids, drafter=drafter, jury=jury, sampling=sampling, rng=rng
        )

    def _p_correct(
        self, lm: CausalLM, model: MultiHead, prompt: Prompt, answer: str, decoded: Decoded
    ) -> float:
        assert decoded.witness is not None
        yes, no = (lm.tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "AB")
        ids = self._chat_ids(lm, _IS_IT_CORRECT.format(prompt=prompt.text, answer=answer))
        return decoding.p_correct(
            model, ids, head=len(self._files.heads), witness=decoded.witness, yes=yes, no=no
        )


def _trust(decoded: Decoded) -> dict[str, Any]:
    """What the jury thought: the fields of Trust by token and of Rejection by rejection, and their means, which are
    None where there is none."""
    found: dict[str, Any] = {}
    if decoded.n_rounds:
        n_ruled_on = decoded.n_accepted + len(decoded.rejections)
        found = {"n_rounds": decoded.n_rounds, "acceptance_rate": decoded.n_accepted / n_ruled_on}
    found["rejected_at"] = [rejection.position for rejection in decoded.rejections]
    by_token = ("entropy_nats", "margin", "stability_radius")
    columns = {name: [getattr(each, name) for each in decoded.trust] for name in by_token}
    by_rejection = ("suppression_score", "validity_radius")
    columns |= {name: [getattr(each, name) for each in decoded.rejections] for name in by_rejection}
    for name, values in columns.items():
        found[f"mean_{name}"] = fmean(values) if values else None
        found[name] = [round(value, _DIGITS) for value in values]
    return found
