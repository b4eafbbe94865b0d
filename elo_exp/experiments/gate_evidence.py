"""What stands for and against the claims of a gate: checks of the judge, of the answers and of their length."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from elo_exp.analysis import families
from elo_exp.analysis.checks import NOT_DONE, PASSED, Check
from elo_exp.analysis.checks.control_check import control_check
from elo_exp.analysis.checks.same_verdict_check import same_verdict_check
from elo_exp.analysis.gate_checks import (
    answers_check,
    audit_check,
    family_check,
    length_check,
    order_checks,
)
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import PromptPoints
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.data.pairing import Responses
from elo_exp.experiments.gate_baseline import BASELINE_NAME, GateSettings
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.records import Comparison
from elo_exp.report.viewer import Comparisons, Judgments


@dataclass(frozen=True, kw_only=True)
class GateEvidence:
    """The evidence of a gate.

    controls           comparisons of degraded copies of the baseline's answers, by dimension
    control_judgments  of these
    quality            of the judgments of each dimension
    """

    responses: Responses
    comparisons: Comparisons
    judgments: Judgments
    controls: Comparisons
    control_judgments: Judgments
    quality: Sequence[JudgeQuality]


@dataclass(frozen=True, kw_only=True)
class GateChecks:
    """The checks of a gate whose evidence is complete."""

    settings: GateSettings
    candidate: str
    judge_run: JudgeRun
    evidence: GateEvidence

    def check_pass_claim(
        self,
        quality: JudgeQuality,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        audit: Mapping[str, Any],
        *,
        alpha: float,
    ) -> list[Check]:
        """Check what stands for and against the claim that the candidate is not worse, on one dimension."""
        name, candidate = quality.dimension, self.candidate
        controls = self.evidence.controls[name]
        control = control_check(controls, self.evidence.control_judgments.get(name, ()))
        if control.state == NOT_DONE:
            reason = "not stored" if controls else "too few"
            reason = reason if self.settings.control else "left out"
            control = dataclasses.replace(
                control, about={**(control.about or {}), "why": reason}
            )
        return [
            same_verdict_check(
                self.evidence.judgments[name], sees_control=control.state == PASSED
            ),
            control,
            *order_checks(quality),
            self._check_length(
                points, clusters, self.evidence.comparisons[name], alpha=alpha
            ),
            answers_check(
                *(
                    check_responses(entrant, self.evidence.responses[entrant])
                    for entrant in (candidate, BASELINE_NAME)
                )
            ),
            self._check_family(audit),
            audit_check(audit),
        ]

    def check_fail_claim(
        self,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        audit: Mapping[str, Any],
        *,
        dimension: str,
        alpha: float,
    ) -> list[Check]:
        """Check what stands for and against the claim that the candidate is worse, on one dimension."""
        comparisons, answers = (
            self.evidence.comparisons[dimension],
            self.evidence.responses,
        )
        return [
            self._check_length(
                points,
                clusters,
                comparisons,
                alpha=alpha / len(self.evidence.comparisons),
                is_of_fail=True,
            ),
            answers_check(
                *(
                    check_responses(name, answers[name])
                    for name in (BASELINE_NAME, self.candidate)
                )
            ),
            self._check_family(audit, is_of_fail=True),
            audit_check(audit),
        ]

    def _check_length(
        self,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        comparisons: Sequence[Comparison],
        *,
        alpha: float,
        is_of_fail: bool = False,
    ) -> Check:
        differences_by_prompt: dict[str, list[int]] = {}
        lengths = [len(comparison.response_b) for comparison in comparisons]
        for comparison in comparisons:
            difference = len(comparison.response_a) - len(comparison.response_b)
            differences_by_prompt.setdefault(comparison.prompt_id, []).append(
                difference
            )
        cluster_by_prompt = dict(zip(points, clusters, strict=True))
        valid = [
            q
            for q, outcome in points.items()
            if outcome.lowest == outcome.highest and q in differences_by_prompt
        ]
        return length_check(
            np.array([points[q].lowest for q in valid]),
            np.array([fmean(differences_by_prompt[q]) for q in valid]),
            np.array([cluster_by_prompt[q] for q in valid], dtype=object),
            margin=self.settings.margin,
            alpha=alpha,
            mean_length=fmean(lengths) if lengths else 0.0,
            is_of_fail=is_of_fail,
        )

    def _check_family(
        self, audit: Mapping[str, Any], *, is_of_fail: bool = False
    ) -> Check:
        """Check the candidate's family; for a fail, which favours the baseline, check the baseline's family."""
        kin, candidate = self.judge_run.kin, self.candidate
        names = families.list_family_hints(self.judge_run.entrants[candidate])
        is_known = (
            families.find_family(self.judge_run.options.families, *names) is not None
        )
        self_verdicts = [
            row["verdict"]
            for row in audit.get("results", ())
            if row["probe"].partition(":")[0] == "self"
        ]
        favoured, rival = candidate, BASELINE_NAME
        if is_of_fail:
            favoured, rival, is_known = (
                BASELINE_NAME,
                candidate,
                BASELINE_NAME in kin.models,
            )
        return family_check(
            kin,
            candidate=favoured,
            baseline=rival,
            is_known=is_known and kin.family is not None,
            is_unbiased=self.judge_run.allows_kin or set(self_verdicts) == {"ok"},
        )
