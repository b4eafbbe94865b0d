"""Whether one rating for each entrant explains all pairs."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.formatting import (
    format_number,
    format_p_equation,
    format_probability_limit,
)

ALPHA_OF_TRANSITIVITY = 0.05


class _Transitivity(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        test = evidence.diagnosis.get("transitivity")
        if test is None or test.df <= 0:
            return
        p = test.p_value
        yield Check(
            name=self.name,
            state=NOT_DONE if p is None else PASSED,
            value=p,
            about=test.to_dict(),
            is_notable=p is not None and p <= ALPHA_OF_TRANSITIVITY,
        )

    def format_value(self, check: Check) -> str:
        if check.value is None:
            return super().format_value(check)
        return format_p_equation(check.value)

    def describe_counts(self, check: Check) -> str:
        about = check.about or {}
        if check.value is None and about["n_prompts"] <= about["df"]:
            return "too few prompts for a test"
        if about.get("chi_square") is None:
            return ""
        return f"χ² = {format_number(about['chi_square'], 1)}, {about['df']} df, {about['n_models']} entrants"

    def explain_note(self, check: Check) -> str:
        if not check.is_notable:
            return ""
        return "Single pairs differ from what the ratings predict. Read win rates of pairs next to the ratings."


CHECK = _Transitivity(
    name="transitivity",
    title="One rating per entrant explains all pairs",
    accepted=f"p > {format_probability_limit(ALPHA_OF_TRANSITIVITY)}",
    finding="The test whether one rating per entrant explains all pairs gives {values} "
    f"(accepted: p > {format_probability_limit(ALPHA_OF_TRANSITIVITY)}).",
    number=130,
)
