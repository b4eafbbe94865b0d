"""A causal language model on this machine as judge.

Nothing is generated. After the prompt and a fixed lead, each label has a log-probability, the sum
over its tokens, and the labels are normalised among themselves. The verdict is the likeliest of A,
B and TIE; a score is the mean over the whole numbers of its scale, with the middle 95% of them as
its interval. A judge that first writes its evidence may conclude otherwise.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from elo_exp import models
from elo_exp.errors import SettingError
from elo_exp.files import utc_now
from elo_exp.judges import LABELS, Judge, make_likeliest_verdict
from elo_exp.models.checkpoints import CausalLM, ModelSettings, refuse_quantised_merge
from elo_exp.models.generation import run_in_batches
from elo_exp.records import JudgeReply, JudgeRequest, canonical_json
from elo_exp.types import CacheKey, Count, JudgeKind, VerdictForm

# Part of every cache key: raise it when replies change
REPLIES_VERSION = 1
SCORE_PREFIX = "SCORE:"
_MAX_SCORE_LABELS = 101


@dataclass(kw_only=True)
class LocalJudge(ModelSettings, Judge):
    """The settings are described in conf/judge/local.yaml.

    As with the entrants, the cache key omits device, batch size and library versions.
    """

    kind: JudgeKind
    system_prompt: str | None = None  # in place of the headers of rubrics
    verdict: VerdictForm  # a way of reading: replies, and their keys, are the same
    adapters: list[str]
    load_kwargs: dict[str, Any]
    lead: str
    batch_size: Count

    answers_criteria = False

    def __post_init__(self) -> None:
        refuse_quantised_merge(self.adapters, self.load_kwargs)

    @property
    def header(self) -> str | None:
        return self.system_prompt

    def cache_key(self) -> CacheKey:
        return {
            "judge": "local",
            "version": REPLIES_VERSION,
            "lead": self.lead,
            **self.model_key,
        }

    def probabilities(self, message: str) -> dict[str, float] | None:
        """Return those of the labels, by the message of a reply."""
        chances = json.loads(message)["probabilities"]
        return chances if chances.keys() >= {*LABELS} else None  # else of a score

    @property
    def reads_shares(self) -> bool:
        return self.verdict == "probabilities"

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[JudgeReply]:
        """Reply to the requests on each scale, the longest first."""
        by_key = {request.key: request for request in requests}
        try:
            lm: CausalLM = models.load_weights(self.weights)
            for scale in dict.fromkeys(request.scale for request in requests):
                lead = SCORE_PREFIX if scale else self.lead
                labels = Labels(
                    lm, lead, _list_scale_numbers(scale) if scale else LABELS
                )
                rows = {
                    r.key: [*self.chat_ids(lm, r.messages), *labels.lead]
                    for r in requests
                    if r.scale == scale
                }
                max_tokens = lm.context_length - labels.width
                for key in [key for key, row in rows.items() if len(row) > max_tokens]:
                    text = f"{len(rows.pop(key))} tokens exceed the judge's context"
                    reason = "model_context_window_exceeded"
                    yield self._make_reply(by_key[key], text=text, stop_reason=reason)
                for key, logprobs in run_in_batches(
                    rows,
                    partial(labels.log_probabilities, lm),
                    batch_size=self.batch_size,
                    label=f"judging: {self.model}",
                ):
                    chances = labels.probabilities(logprobs)
                    answer = (
                        _summarize_score(chances)
                        if scale
                        else make_likeliest_verdict(chances)
                    )
                    message = {"log_probabilities": logprobs, "probabilities": chances}
                    yield self._make_reply(
                        by_key[key],
                        text=json.dumps(answer),
                        message=canonical_json(message),
                    )
        finally:
            models.release_weights()

    def _make_reply(self, request: JudgeRequest, **reply: Any) -> JudgeReply:
        return JudgeReply(
            key=request.key,
            timestamp=utc_now(),
            judge_model=self.model,
            **reply,
            **request.names,
        )


def _list_scale_numbers(scale: tuple[float, float]) -> tuple[str, ...]:
    """Return the whole numbers of a scale. Raises SettingError if they are too few or too many."""
    low, high = scale
    numbers = range(math.ceil(low), math.floor(high) + 1)
    if not 2 <= len(numbers) <= _MAX_SCORE_LABELS:
        raise SettingError(
            f"scoring must have 2 to {_MAX_SCORE_LABELS} whole numbers for a local judge, which chooses among them; "
            f"{low:g} to {high:g} has {len(numbers)}."
        )
    return tuple(map(str, numbers))


def _summarize_score(chances: Mapping[str, float]) -> dict[str, str | float]:
    """Return the mean, and the interval with the middle 95% of the probability."""
    numbers = np.array([float(label) for label in chances])
    p = np.array([*chances.values()])
    low, high = numbers[np.searchsorted(p.cumsum(), [0.025, 0.975])]
    likeliest = max(chances, key=chances.__getitem__)
    return {
        "evidence": f"{likeliest} has probability {chances[likeliest]:.3f}",
        # rounding may pass the ends
        "score": float(np.clip(numbers @ p, numbers[0], numbers[-1])),
        "low": float(low),
        "high": float(high),
    }


class Labels:
    """The tokens of each label, and the sequences to read for the probabilities of all labels.

    lead   tokens shared by all labels, the lead's among them
    rest   each label's other tokens, one or more
    stems  fewest sequences such that each label's tokens but the last are a prefix of one
    width  tokens of the longest stem
    """

    def __init__(self, lm: CausalLM, lead: str, names: Sequence[str]) -> None:
        texts = [f"{lead} {name}" for name in names]
        token_ids = lm.tokenizer(texts, add_special_tokens=False)["input_ids"]
        columns = zip(*token_ids, strict=False)
        n = next(i for i, tokens in enumerate(columns) if len(set(tokens)) > 1)
        self.lead: list[int] = token_ids[0][:n]
        self.rest = {name: ids[n:] for name, ids in zip(names, token_ids, strict=True)}
        self.stems: list[list[int]] = []
        # The labels with most tokens come first
        self._stem_by_label: dict[str, int] = {}
        for name, ids in sorted(self.rest.items(), key=lambda item: -len(item[1])):
            n = len(ids) - 1
            matching_stems = (
                i for i, stem in enumerate(self.stems) if stem[:n] == ids[:n]
            )
            self._stem_by_label[name] = next(matching_stems, len(self.stems))
            if self._stem_by_label[name] == len(self.stems):
                self.stems.append(ids[:-1])
        self.width = len(self.stems[0])

    def log_probabilities(
        self, lm: CausalLM, rows: Mapping[str, Sequence[int]]
    ) -> list[dict[str, float]]:
        """Return each label's log-probability after each row, in nats."""
        import torch

        n = self.width + 1
        with torch.inference_mode():
            sequences = [[*row, *stem] for row in rows.values() for stem in self.stems]
            logprobs = lm.last_logits(sequences, n).float().log_softmax(dim=-1)
        logprobs_by_row: list[dict[str, float]] = [{} for _ in rows]
        for label, tokens in self.rest.items():
            i = self._stem_by_label[label]
            first_position = self.width - len(self.stems[i])  # predicts the first token
            positions = list(range(first_position, first_position + len(tokens)))
            label_logprobs = (
                logprobs[i :: len(self.stems), positions, tokens].double().sum(-1)
            )
            for row_logprobs, logprob in zip(
                logprobs_by_row, label_logprobs.tolist(), strict=True
            ):
                row_logprobs[label] = logprob
        return logprobs_by_row

    def probabilities(self, log_probabilities: Mapping[str, float]) -> dict[str, float]:
        """Normalise among the labels; the probability of 1 excludes that of 10, which starts so."""
        highest = max(log_probabilities.values())  # subtracted: not all underflow
        weights: dict[str, float] = {}
        for label in self._stem_by_label:
            tokens = self.rest[label]
            longer_weight = sum(
                weight
                for longer_label, weight in weights.items()
                if self.rest[longer_label][: len(tokens)] == tokens
            )
            label_weight = math.exp(log_probabilities[label] - highest) - longer_weight
            weights[label] = max(label_weight, 0.0)
        total = sum(weights.values())
        return {label: weights[label] / total for label in self.rest}
