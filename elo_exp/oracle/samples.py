"""From answers, log-probabilities, scores and labels to the rows that an analysis reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.oracle.data import FreshDraw, LoggedSample
from elo_exp.records import Prompt, Response, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """All that is known of every answer; the mappings go from policy to prompt."""

    prompts: Sequence[Prompt]
    logging_policy: str
    responses: Mapping[str, Mapping[str, Response]]
    logprobs: Mapping[str, Mapping[str, float | None]]  # nats, of the logging policy's answers
    scores: Mapping[str, Mapping[str, Score]]
    labels: Mapping[str, Mapping[str, Score]]

    @property
    def targets(self) -> list[str]:
        return [policy for policy in self.responses if policy != self.logging_policy]

    def logged(self) -> list[LoggedSample]:
        """The logging policy's answers that have a score."""
        forced = self.logprobs
        return [
            LoggedSample(
                total_logprob=_at_most_zero(forced[self.logging_policy].get(prompt_id)),
                target_logps={
                    policy: _at_most_zero(forced[policy].get(prompt_id)) for policy in self.targets
                },
                **found,
            )
            for prompt_id, found in self._scored(self.logging_policy)
        ]

    def fresh(self, policy: str) -> list[FreshDraw]:
        """A target's answers that have a score; no labels, which are the probe's."""
        return [FreshDraw(**{**found, "oracle_label": None}) for _, found in self._scored(policy)]

    def probe(self, policy: str) -> list[FreshDraw]:
        """Those of them that have a label."""
        return [
            FreshDraw(**found)
            for _, found in self._scored(policy)
            if found["oracle_label"] is not None
        ]

    def _scored(self, policy: str) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for prompt in self.prompts:
            score = self.scores[policy].get(prompt.prompt_id)
            if score is None or score.judge_score is None:
                continue
            label = self.labels[policy].get(prompt.prompt_id)
            of_answer = {
                "prompt_id": prompt.prompt_id,
                "policy": policy,
                "judge_score": score.judge_score,
                "judge_score_variance": score.judge_score_variance,
                "oracle_label": label.judge_score if label is not None else None,
                "response_chars": len(self.responses[policy][prompt.prompt_id].response_text),
            }
            found.append((prompt.prompt_id, of_answer))
        return found

    def with_texts(self, rows: Sequence[LoggedSample | FreshDraw]) -> list[dict[str, Any]]:
        """The rows as they are written: with what was asked and answered."""
        asked = {prompt.prompt_id: prompt.text for prompt in self.prompts}
        return [
            {
                "prompt_id": row.prompt_id,
                "prompt": asked[row.prompt_id],
                "response": self.responses[row.policy][row.prompt_id].response_text,
                **row.to_dict(),
            }
            for row in rows
        ]


def _at_most_zero(logprob: float | None) -> float | None:
    """Rounding may leave certainty a little above zero."""
    return None if logprob is None else min(logprob, 0.0)
