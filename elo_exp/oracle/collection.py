"""What a run collects of its policies: answers, log-probabilities, scores and labels."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.data.pairing import Responses
from elo_exp.files import utc_now, write_json, write_jsonl
from elo_exp.oracle.weights import EXTREME
from elo_exp.pipeline import LogprobCheck
from elo_exp.records import Prompt, Record, Score

logger = logging.getLogger(__name__)

Logprobs = Mapping[str, Mapping[str, float | None]]
Scores = Mapping[str, Mapping[str, Score]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers(Record):
    """Scores or labels of the answers of one policy."""

    n: int
    n_unreadable: int  # judge replies without a readable score
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary(Record):
    """Counts of one policy's answers, and of its log-probabilities of the logged ones."""

    policy: str
    n_responses: int
    n_cut_off: int  # at the limit of their length
    n_logprobs: int  # logged answers with a log-probability under this policy
    n_null: int  # those without
    n_zero: int  # exactly 0, of an answer that is not empty
    n_exactly_one: int  # importance weights
    n_extreme: int  # importance weights outside [1/5, 5]
    scores: Numbers
    labels: Numbers


@dataclass(frozen=True, kw_only=True)
class LoggedData:
    """Everything collected; the mappings are from policy, the logging one first, to prompt id.

    logging_policy  None where no log-probabilities are compared
    logprobs  nats, of the logging policy's answers
    models    names of judge and oracle and versions of their rubrics
    """

    prompts: Sequence[Prompt]
    logging_policy: str | None
    responses: Responses
    logprobs: Logprobs
    scores: Scores
    labels: Scores
    checks: Sequence[LogprobCheck]
    models: Mapping[str, Any]

    @property
    def targets(self) -> list[str]:
        return [name for name in self.responses if name != self.logging_policy]

    @cached_property
    def files(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by file name, as oracle.logged, fresh_dir and probe_dir read them.

        They have the answers with a score; those of the targets that have a label are the probe,
        or, without a logging policy, keep it.
        """
        if self.logging_policy is None:
            every = {p: list(self._scored(p)) for p in self.targets}
            return {f"fresh/{p}.jsonl": rows for p, rows in every.items() if rows}
        logged = list(self._scored(self.logging_policy))
        for row in logged:
            known = {
                policy: logprobs[row["prompt_id"]]
                for policy, logprobs in self.logprobs.items()
            }
            # Rounding may leave a certain answer slightly above zero.
            values = {p: None if v is None else min(v, 0.0) for p, v in known.items()}
            row["total_logprob"] = values.pop(self.logging_policy)
            row["target_logps"] = values
        found = {"logged.jsonl": logged}
        for policy in self.targets:
            draws = list(self._scored(policy))
            labelled = [row for row in draws if row["oracle_label"] is not None]
            unlabelled = [{**row, "oracle_label": None} for row in draws]
            found[f"fresh/{policy}.jsonl"] = unlabelled
            found[f"probe/{policy}.jsonl"] = labelled
        return {name: rows for name, rows in found.items() if rows}

    def _scored(self, policy: str) -> Iterator[dict[str, Any]]:
        prompts = {prompt.prompt_id: prompt.text for prompt in self.prompts}
        for prompt_id, score in self.scores[policy].items():
            if score.judge_score is not None:
                label = self.labels[policy].get(prompt_id)
                response = self.responses[policy][prompt_id].response_text
                yield {
                    "prompt_id": prompt_id,
                    "prompt": prompts[prompt_id],
                    "response": response,
                    "policy": policy,
                    "judge_score": score.judge_score,
                    "draw_idx": 0,
                    "judge_score_variance": score.judge_score_variance,
                    "oracle_label": None if label is None else label.judge_score,
                    "response_chars": len(response),
                }

    @cached_property
    def info(self) -> dict[str, Any]:
        """Counts and checks, for dataset_info.json and the manifest."""
        return {
            "logging_policy": self.logging_policy,
            "n_prompts": len(self.prompts),
            **self.models,
            "checks": [check.to_dict() for check in self.checks],
            "policies": [summary.to_dict() for summary in self.summaries],
            "n_rows": {name: len(rows) for name, rows in self.files.items()},
        }

    def write(self, run_dir: Path) -> list[Path]:
        info = {"created_at": utc_now(), **self.info}
        return [
            write_json(run_dir / "dataset_info.json", info),
            *(write_jsonl(run_dir / name, rows) for name, rows in self.files.items()),
        ]

    def sources(self, run_dir: Path) -> dict[str, Any]:
        """Arguments of `read_dataset` for what `write` wrote; omits targets without a score."""
        drawn = [p for p in self.targets if f"fresh/{p}.jsonl" in self.files]
        for policy in set(self.targets).difference(drawn):
            logger.warning("warning: %s is left out: it has no readable score", policy)
        places = {"logged": "logged.jsonl", "fresh_dir": "fresh", "probe_dir": "probe"}
        found = {name: run_dir / place for name, place in places.items()}
        return {
            "policies": drawn,
            **{name: path for name, path in found.items() if path.exists()},
        }

    @cached_property
    def summaries(self) -> list[PolicySummary]:
        """Counts of every policy, the logging one first."""
        return [self._summary(policy) for policy in self.responses]

    def _summary(self, policy: str) -> PolicySummary:
        responses = self.responses[policy].values()
        logged = self.responses.get(self.logging_policy or "", {})
        base = self.logprobs.get(self.logging_policy or "", {})
        forced = self.logprobs.get(policy, {})
        known = {name: value for name, value in forced.items() if value is not None}
        ratios = [
            value - other
            for name, value in known.items()
            if (other := base[name]) is not None
        ]
        return PolicySummary(
            policy=policy,
            n_responses=len(responses),
            n_cut_off=sum(response.finish_reason == "length" for response in responses),
            n_logprobs=len(known),
            n_null=len(forced) - len(known),
            n_zero=sum(
                v == 0 and logged[n].response_text != "" for n, v in known.items()
            ),
            n_exactly_one=ratios.count(0.0),
            n_extreme=sum(abs(ratio) > math.log(EXTREME) for ratio in ratios),
            scores=_numbers(self.scores[policy].values()),
            labels=_numbers(self.labels[policy].values()),
        )


def _numbers(scores: Collection[Score]) -> Numbers:
    values = [score.judge_score for score in scores if score.judge_score is not None]
    return Numbers(
        n=len(values),
        n_unreadable=len(scores) - len(values),
        mean=statistics.fmean(values) if values else None,
    )
