"""How many verdicts are ties: a share without a limit."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.formatting import format_count, format_percent


class _Ties(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        quality = evidence.quality
        if quality is not None and quality.n_judgments:
            yield _count_ties(quality)

    def describe_counts(self, check: Check) -> str:
        n = check.n
        return f"without {format_count(n)} pairs of identical answers" if n else ""


def _count_ties(quality: JudgeQuality) -> Check:
    return Check(
        name="ties",
        state=NOT_DONE if quality.tie_rate is None else PASSED,
        value=quality.tie_rate,
        n=quality.n_equal_answers,
    )


CHECK = _Ties(
    name="ties",
    title="Ties",
    accepted="no limit",
    finding="{values} of comparisons are ties.",
    number=50,
    row=115,
)


class _TiesOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        return _count_ties(evidence.quality)

    def format_finding(self, check: Check) -> str:
        return format_percent(check.value)


GATE_CHECK = _TiesOfGate(
    name="ties", title="Ties", accepted="any share", number=50, is_measured_only=True
)
