"""The evidence of a gate: answers, verdicts and facts about the judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis import families
from elo_exp.analysis.gate_checks import CandidateEvidence
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.noninferiority import PromptPoints
from elo_exp.data.pairing import Responses
from elo_exp.experiments.gate_baseline import BASELINE_NAME, GateSettings
from elo_exp.experiments.judge_run import JudgeRun
from elo_exp.report.viewer import Comparisons, Judgments


@dataclass(frozen=True, kw_only=True)
class GateEvidence:
    """The evidence of a gate.

    controls           comparisons of degraded copies of the baseline's answers, by dimension
    control_judgments  judgments of the controls
    quality            quality of the judgments of each dimension
    """

    responses: Responses
    comparisons: Comparisons
    judgments: Judgments
    controls: Comparisons
    control_judgments: Judgments
    quality: Sequence[JudgeQuality]

    def select(
        self,
        quality: JudgeQuality,
        points: Mapping[str, PromptPoints],
        clusters: Sequence[str],
        audit: Mapping[str, Any],
        *,
        candidate: str,
        settings: GateSettings,
        judge_run: JudgeRun,
        levels: Mapping[str, float],
    ) -> CandidateEvidence:
        """Return the evidence on one dimension.

        quality  quality of its judgments
        levels   alpha of the claims pass and fail
        """
        name = quality.dimension
        hints = families.list_family_hints(judge_run.entrants[candidate])
        family = families.find_family(judge_run.options.families, *hints)
        return CandidateEvidence(
            candidate=candidate,
            baseline=BASELINE_NAME,
            comparisons=self.comparisons[name],
            judgments=self.judgments[name],
            quality=quality,
            controls=self.controls[name],
            control_judgments=self.control_judgments.get(name, ()),
            wants_control=settings.control,
            responses=self.responses,
            points=points,
            clusters=clusters,
            margin=settings.margin,
            pass_alpha=levels["pass"],
            fail_alpha=levels["fail"] / len(self.comparisons),
            kin=judge_run.kin,
            is_family_known=family is not None,
            allows_kin=judge_run.allows_kin,
            audit=audit,
        )
