"""How far the win rate of the worst pair lies from what the ratings predict."""

from collections.abc import Iterator

from elo_exp.analysis.checks import PASSED, Check, CheckDefinition, JudgeEvidence
from elo_exp.formatting import format_number

# Observed minus predicted
MAX_WIN_RATE_MISFIT = 0.10


class _Fit(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        residuals = evidence.diagnosis.get("pair_residuals")
        if not residuals:
            return
        worst = max(residuals, key=lambda row: abs(row["observed"] - row["expected"]))
        value = worst["observed"] - worst["expected"]
        yield Check(
            name=self.name,
            state=PASSED,
            is_notable=abs(value) > MAX_WIN_RATE_MISFIT,
            value=value,
            about={"first": worst["model_a"], "second": worst["model_b"]},
        )

    def format_value(self, check: Check) -> str:
        if check.value is None:
            return super().format_value(check)
        return f"{format_number(100.0 * check.value, sign=True)} percentage points"

    def describe_counts(self, check: Check) -> str:
        about = check.about or {}
        return f"{about['first']} against {about['second']}"

    def explain_note(self, check: Check) -> str:
        if not check.is_notable:
            return ""
        return f"For {self.describe_counts(check)}, read the win rate of the pair instead of the ratings."


CHECK = _Fit(
    name="fit",
    title="Predicted win rates of pairs",
    accepted=f"within ± {format_number(100.0 * MAX_WIN_RATE_MISFIT)} percentage points",
    finding="For the worst predicted pair, the observed win rate differs from the prediction by {values} "
    f"(accepted: up to {format_number(100.0 * MAX_WIN_RATE_MISFIT)}).",
    number=120,
)
