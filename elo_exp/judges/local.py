"""A causal language model on this machine as judge: the verdict is the likeliest of A, B and TIE; a score the mean over
the whole numbers of its scale, with the middle 95 % of them as its interval.

Nothing is generated. After the prompt and a fixed lead, each label has a log-probability, the sum over its tokens; the
labels are normalised among themselves. What a judge that writes its evidence first would conclude may differ.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from elo_exp.files import utc_now
from elo_exp.models import causal_lm, checkpoints
from elo_exp.models.causal_lm import CausalLM, Checkpoint
from elo_exp.models.generation import in_batches, left_padded
from elo_exp.records import JudgeReply, JudgeRequest, UserError, canonical_json
from elo_exp.store.single_flight import get_or_create
from elo_exp.store.store import Store
from elo_exp.types import Count, Device, DType

VERSION = 1  # part of every key: raise it when the way of asking changes
LABELS = ("A", "B", "TIE")
SCORE_LEAD = "SCORE:"  # what the model is made to have said before a score is read off
_MOST_NUMBERS = 101


@dataclass(kw_only=True)
class LocalJudge:
    """conf/judge/local.yaml says what each setting is. As with the entrants, the key of a reply holds the weights and
    all that is said to them, not the device, the batch size or the versions of the libraries."""

    model: str
    revision: str | None
    adapters: list[str]
    dtype: DType
    device: Device
    trust_remote_code: bool
    chat_template: str | None
    lead: str
    batch_size: Count
    cache_dir: str

    key_fields = ()

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
    def _checkpoint(self) -> Checkpoint:
        wanted = Checkpoint(
            model=self.model,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            adapters=tuple(self.adapters),
            trust_remote_code=self.trust_remote_code,
        )
        return checkpoints.pinned(wanted)

    def cache_key(self) -> Mapping[str, Any]:
        return {
            "judge": "local",
            "version": VERSION,
            "weights": checkpoints.identity(self._checkpoint, Path(self.cache_dir)),
            "dtype": self.dtype,
            "chat_template": self._template,
            "lead": self.lead,
        }

    def answer(self, requests: Sequence[JudgeRequest], store: Store) -> Iterator[JudgeReply]:
        wanted = {request.key: request for request in requests}
        return get_or_create(
            wanted,
            store,
            record=JudgeReply,
            key=lambda reply: reply.key,
            make=self._replies,
            what="verdicts",
        )

    def _replies(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        if not requests:
            return
        try:
            lm = causal_lm.load(self._checkpoint)
            for scale in dict.fromkeys(request.scale for request in requests):
                lead, names = (SCORE_LEAD, _numbers(scale)) if scale else (self.lead, LABELS)
                labels = Labels.of(lm, lead, names)
                yield from self._answered(
                    lm, [request for request in requests if request.scale == scale], labels
                )
        finally:
            causal_lm.release()

    def _answered(
        self, lm: CausalLM, requests: Sequence[JudgeRequest], labels: Labels
    ) -> Iterator[JudgeReply]:
        rows = {request.key: self._row(lm, request, labels) for request in requests}
        room = (lm.context_length or math.inf) - labels.width
        fitting = sorted(
            (r for r in requests if len(rows[r.key]) <= room), key=lambda r: -len(rows[r.key])
        )
        yield from (
            self._too_long(r, len(rows[r.key])) for r in requests if len(rows[r.key]) > room
        )
        for batch, found in in_batches(
            fitting,
            lambda some: labels.log_probabilities(lm, [rows[request.key] for request in some]),
            batch_size=self.batch_size,
            label=f"judging: {self.model}",
            mend="Take dtype=bfloat16, a smaller judge or another device.",
        ):
            yield from (
                self._reply(r, logs, labels.probabilities(logs))
                for r, logs in zip(batch, found, strict=True)
            )

    def _row(self, lm: CausalLM, request: JudgeRequest, labels: Labels) -> list[int]:
        ids = causal_lm.chat_ids(
            lm, request.user, system_prompt=request.system, chat_template=self._template
        )
        return [*ids, *labels.lead]

    def _reply(
        self,
        request: JudgeRequest,
        log_probabilities: Mapping[str, float],
        probabilities: Mapping[str, float],
    ) -> JudgeReply:
        answer = _score(probabilities) if request.scale else _verdict(probabilities)
        return JudgeReply(
            key=request.key,
            text=json.dumps(answer),
            timestamp=utc_now(),
            judge_model=self.model,
            message=canonical_json(
                {"log_probabilities": log_probabilities, "probabilities": probabilities}
            ),
            **request.names,
        )

    def _too_long(self, request: JudgeRequest, n_tokens: int) -> JudgeReply:
        return JudgeReply(
            key=request.key,
            text=f"{n_tokens} tokens are more than the judge takes",
            stop_reason="model_context_window_exceeded",
            timestamp=utc_now(),
            judge_model=self.model,
            **request.names,
        )


def _numbers(scale: tuple[float, float]) -> tuple[str, ...]:
    """The whole numbers of a scale. Raises UserError where they are too few or too many to choose among."""
    low, high = scale
    numbers = range(math.ceil(low), math.floor(high) + 1)
    if not 2 <= len(numbers) <= _MOST_NUMBERS:
        raise UserError(
            f"scoring: found a scale from {low:g} to {high:g}, with {len(numbers)} whole numbers. Expected 2 to "
            f"{_MOST_NUMBERS}: a local judge chooses among them."
        )
    return tuple(map(str, numbers))


def _verdict(probabilities: Mapping[str, float]) -> dict[str, str]:
    evidence = {
        f"evidence_{label.lower()}": f"probability {probabilities[label]:.3f}"
        for label in ("A", "B")
    }
    return {**evidence, "verdict": max(LABELS, key=probabilities.__getitem__)}


def _score(probabilities: Mapping[str, float]) -> dict[str, str | float]:
    """The mean, and between which numbers the middle 95 % of the probability lie."""
    numbers = [float(label) for label in probabilities]
    below = list(accumulate(probabilities.values()))
    low, high = (
        next(n for n, p in zip(numbers, below, strict=True) if p >= share)
        for share in (0.025, 0.975)
    )
    mean = sum(n * p for n, p in zip(numbers, probabilities.values(), strict=True))
    likeliest = max(probabilities, key=probabilities.__getitem__)
    return {
        "evidence": f"{likeliest} has probability {probabilities[likeliest]:.3f}",
        "score": min(
            max(mean, numbers[0]), numbers[-1]
        ),  # rounding may have carried it past an end
        "low": low,
        "high": high,
    }


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The tokens of each label after the lead, and what a model has to read to know the chances of all of them.

    lead   the tokens that all labels begin with, those of the lead among them
    rest   label -> its other tokens, one or more
    stems  the shortest list of sequences such that every label's tokens but the last begin one of them
    """

    lead: list[int]
    rest: Mapping[str, list[int]]
    stems: list[list[int]]

    @classmethod
    def of(cls, lm: CausalLM, lead: str, names: Sequence[str]) -> Labels:
        whole = {
            label: lm.tokenizer(f"{lead} {label}", add_special_tokens=False)["input_ids"]
            for label in names
        }
        n_shared = next(
            i for i, tokens in enumerate(zip(*whole.values(), strict=False)) if len(set(tokens)) > 1
        )
        rest = {label: ids[n_shared:] for label, ids in whole.items()}
        stems: list[list[int]] = []
        for stem in sorted((ids[:-1] for ids in rest.values()), key=len, reverse=True):
            if not any(other[: len(stem)] == stem for other in stems):
                stems.append(stem)
        return cls(lead=whole[names[0]][:n_shared], rest=rest, stems=stems)

    @property
    def width(self) -> int:
        """How many tokens a stem has at most."""
        return max(map(len, self.stems))

    def log_probabilities(
        self, lm: CausalLM, rows: Sequence[Sequence[int]]
    ) -> list[dict[str, float]]:
        """Of each row the log-probability of every label after it, in nats."""
        import torch

        ids, mask = left_padded(lm, [[*row, *stem] for row in rows for stem in self.stems])
        n_kept = self.width + 1
        wishes = {
            "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
            "logits_to_keep": n_kept,
            "use_cache": False,
        }
        known = inspect.signature(lm.model.forward).parameters
        with torch.inference_mode():
            logits = lm.model(
                input_ids=ids,
                attention_mask=mask,
                **{name: wish for name, wish in wishes.items() if name in known},
            ).logits[:, -n_kept:]
            chances = (
                logits.float().log_softmax(dim=-1).view(len(rows), len(self.stems), n_kept, -1)
            )
        return [
            {label: self._sum(of_row, tokens) for label, tokens in self.rest.items()}
            for of_row in chances
        ]

    def probabilities(self, log_probabilities: Mapping[str, float]) -> dict[str, float]:
        """Of each label and no more, among the labels: what begins 10 is not 1."""
        likeliest = max(log_probabilities.values())  # taken out, so that not all become 0
        found: dict[str, float] = {}
        for label in sorted(self.rest, key=lambda label: -len(self.rest[label])):
            tokens = self.rest[label]
            longer = sum(
                p for other, p in found.items() if self.rest[other][: len(tokens)] == tokens
            )
            found[label] = max(math.exp(log_probabilities[label] - likeliest) - longer, 0.0)
        total = sum(found.values())
        return {label: found[label] / total for label in self.rest}

    def _sum(self, chances: Any, tokens: Sequence[int]) -> float:
        """A label's log-probability, from those (stem, position, token) after one row."""
        s = next(
            s for s, stem in enumerate(self.stems) if stem[: len(tokens) - 1] == list(tokens[:-1])
        )
        first = self.width - len(
            self.stems[s]
        )  # the position that tells of the first token after the row
        return sum(float(chances[s, first + j, token]) for j, token in enumerate(tokens))
