"""What a run collects of its policies: answers, log-probabilities, scores and labels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elo_exp.files import utc_now, write_json, write_jsonl
from elo_exp.oracle.data import Dataset, FreshDraw, LoggedSample, build_dataset
from elo_exp.oracle.weights import EXTREME
from elo_exp.pipeline import LogprobCheck
from elo_exp.records import Prompt, Record, Response, Score, UserError
from elo_exp.report.console import text_table

_LEGEND = (
    "null, zero: unknown log-probabilities of logged answers, and 0 of answers that are not empty.\n"
    "w: importance weights, exactly 1, and outside 1/5 .. 5. unread: unreadable scores and labels."
)
_STEPS = ("answers", "log-probabilities", "scores", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers(Record):
    """Scores or labels of the answers of one policy."""

    n: int
    n_unreadable: int  # judge replies without a readable score
    mean: float | None
    std: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary(Record):
    """Counts of one policy's answers, and of its log-probabilities of the logged ones."""

    policy: str
    n_responses: int
    n_empty: int
    n_cut_off: int  # at the limit of their length
    n_logprobs: int  # logged answers with a log-probability under this policy
    n_null: int  # those without
    n_zero: int  # exactly 0, of an answer that is not empty
    n_exactly_one: int  # importance weights
    n_extreme: int  # importance weights outside [1/5, 5]
    max_abs_log_ratio: float | None  # nats
    scores: Numbers
    labels: Numbers


@dataclass(frozen=True, kw_only=True)
class LoggedData:
    """Everything collected; the mappings are from policy to prompt id."""

    prompts: Sequence[Prompt]
    logging_policy: str
    responses: Mapping[str, Mapping[str, Response]]
    logprobs: Mapping[
        str, Mapping[str, float | None]
    ]  # nats, of the logging policy's answers
    scores: Mapping[str, Mapping[str, Score]]
    labels: Mapping[str, Mapping[str, Score]]
    checks: Sequence[LogprobCheck]
    judge_model: str
    oracle_model: str
    rubric_versions: Mapping[str, str]

    @property
    def targets(self) -> list[str]:
        return [policy for policy in self.responses if policy != self.logging_policy]

    def logged(self) -> list[LoggedSample]:
        """The logging policy's answers that have a score."""

        def logprob(policy: str, prompt_id: str) -> float | None:
            value = self.logprobs[policy].get(prompt_id)
            return (
                None if value is None else min(value, 0.0)
            )  # rounding may exceed certainty

        return [
            LoggedSample(
                total_logprob=logprob(self.logging_policy, columns["prompt_id"]),
                target_logps={
                    name: logprob(name, columns["prompt_id"]) for name in self.targets
                },
                **columns,
            )
            for columns in self._scored(self.logging_policy)
        ]

    def fresh(self, policy: str) -> list[FreshDraw]:
        """A target's answers that have a score, without labels: those belong to the probe."""
        return [
            FreshDraw(**{**row, "oracle_label": None}) for row in self._scored(policy)
        ]

    def probe(self, policy: str) -> list[FreshDraw]:
        """A target's answers that have a score and a label."""
        rows = self._scored(policy)
        return [FreshDraw(**row) for row in rows if row["oracle_label"] is not None]

    def _scored(self, policy: str) -> Iterator[dict[str, Any]]:
        for prompt in self.prompts:
            score = self.scores[policy].get(prompt.prompt_id)
            label = self.labels[policy].get(prompt.prompt_id)
            if score is not None and score.judge_score is not None:
                response = self.responses[policy][prompt.prompt_id]
                yield {
                    "prompt_id": prompt.prompt_id,
                    "policy": policy,
                    "judge_score": score.judge_score,
                    "judge_score_variance": score.judge_score_variance,
                    "oracle_label": None if label is None else label.judge_score,
                    "response_chars": len(response.response_text),
                }

    @cached_property
    def files(self) -> dict[str, list[dict[str, Any]]]:
        """Rows with texts by file name, as oracle.logged, fresh_dir and probe_dir read them."""
        rows: dict[str, Sequence[FreshDraw]] = {"logged.jsonl": self.logged()}
        rows |= {f"fresh/{policy}.jsonl": self.fresh(policy) for policy in self.targets}
        rows |= {f"probe/{policy}.jsonl": self.probe(policy) for policy in self.targets}
        text = {prompt.prompt_id: prompt.text for prompt in self.prompts}
        return {
            name: [
                {
                    "prompt_id": row.prompt_id,
                    "prompt": text[row.prompt_id],
                    "response": self.responses[row.policy][row.prompt_id].response_text,
                    **row.to_dict(),
                }
                for row in samples
            ]
            for name, samples in rows.items()
            if samples
        }

    def dataset(self, *, n_folds: int, seed: int) -> Dataset:
        """Arrange the answers as columns. Raises UserError for too few scores or labels."""
        logged = self.logged()
        if not logged:
            raise UserError(
                f"judge: no answer of {self.logging_policy} has a readable score. See the store's "
                "replies."
            )
        fresh = {policy: self.fresh(policy) for policy in self.targets}
        probe = {policy: self.probe(policy) for policy in self.targets}
        return build_dataset(
            logged,
            fresh={policy: draws for policy, draws in fresh.items() if draws},
            probe={policy: draws for policy, draws in probe.items() if draws},
            policies=self.targets,
            n_folds=n_folds,
            seed=seed,
        )

    @cached_property
    def info(self) -> dict[str, Any]:
        """Counts and checks, for dataset_info.json and the manifest."""
        return {
            "logging_policy": self.logging_policy,
            "n_prompts": len(self.prompts),
            "judge_model": self.judge_model,
            "oracle_model": self.oracle_model,
            "rubric_versions": dict(self.rubric_versions),
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

    def table(self) -> str:
        """The counts as a table for the console, with the checks."""
        checks = [
            f"{check.differences}: {check.n_checked:,} compared, at most "
            f"{check.max_difference:.2g} nats apart"
            for check in self.checks
        ]
        return "\n".join([summary_table(self.summaries), *checks, ""])

    @cached_property
    def summaries(self) -> list[PolicySummary]:
        """Counts of every policy, the logging one first."""
        return [
            self._summary(policy) for policy in (self.logging_policy, *self.targets)
        ]

    def _summary(self, policy: str) -> PolicySummary:
        responses = self.responses[policy].values()
        logged, base = (
            self.responses[self.logging_policy],
            self.logprobs[self.logging_policy],
        )
        known = {
            p: value for p, value in self.logprobs[policy].items() if value is not None
        }
        ratios = [
            value - other
            for p, value in known.items()
            if (other := base[p]) is not None
        ]
        zeros = [
            p for p, value in known.items() if value == 0.0 and logged[p].response_text
        ]
        return PolicySummary(
            policy=policy,
            n_responses=len(responses),
            n_empty=sum(not response.response_text for response in responses),
            n_cut_off=sum(response.finish_reason == "length" for response in responses),
            n_logprobs=len(known),
            n_null=len(logged) - len(known),
            n_zero=len(zeros),
            n_exactly_one=ratios.count(0.0),
            n_extreme=sum(abs(ratio) > math.log(EXTREME) for ratio in ratios),
            max_abs_log_ratio=max(map(abs, ratios), default=None),
            scores=_numbers(self.scores[policy].values()),
            labels=_numbers(self.labels[policy].values()),
        )


def _numbers(scores: Collection[Score]) -> Numbers:
    values = [score.judge_score for score in scores if score.judge_score is not None]
    return Numbers(
        n=len(values),
        n_unreadable=len(scores) - len(values),
        mean=statistics.fmean(values) if values else None,
        std=statistics.stdev(values) if len(values) > 1 else None,
    )


def summary_table(summaries: Sequence[PolicySummary]) -> str:
    """The counts as a table for the console, with a legend."""
    head = [
        "policy",
        "answers",
        "cut off",
        "null",
        "zero",
        "w = 1",
        "w > 5",
        "scores",
        "mean",
        "labels",
        "mean",
        "unread",
    ]
    rows = []
    for s in summaries:
        n_unread = s.scores.n_unreadable + s.labels.n_unreadable
        ratios = [s.n_null, s.n_zero, s.n_exactly_one, s.n_extreme]
        rated = [s.scores.n, s.scores.mean, s.labels.n, s.labels.mean]
        counts = [s.n_responses, s.n_cut_off, *ratios, *rated, n_unread]
        rows.append([s.policy, *(_cell(count) for count in counts)])
    return f"{text_table(head, rows)}\n{_LEGEND}"


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def status_table(done: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    """What is done and wanted, by policy, of answers, log-probabilities, scores and labels."""
    rows = [
        [policy, *(f"{n:,} of {wanted:,}" for n, wanted in steps)]
        for policy, steps in done.items()
    ]
    lacking = [
        sum(wanted - n for n, wanted in step)
        for step in zip(*done.values(), strict=True)
    ]
    missing = [f"{n:,} {step}" for step, n in zip(_STEPS, lacking, strict=True) if n]
    conclusion = "complete"
    if missing:
        conclusion = (
            f"missing: {', '.join(missing)}. Run without status=true to continue."
        )
    return f"{text_table(['policy', *_STEPS], rows)}\n{conclusion}"
