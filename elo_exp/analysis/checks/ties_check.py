"""How many verdicts are ties: a number without a limit."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.formatting import format_count


class _Ties(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        quality = evidence.quality
        if quality is None or not quality.n_judgments:
            return
        yield Check(
            name=self.name,
            state=NOT_DONE if quality.tie_rate is None else PASSED,
            value=quality.tie_rate,
            n=quality.n_equal_answers,
        )

    def describe_counts(self, check: Check) -> str:
        return f"{format_count(check.n)} identical answers excluded"


CHECK = _Ties(name="ties", title="Ties", accepted="no limit", number=50, row=115)
