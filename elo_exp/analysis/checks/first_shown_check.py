"""How often the answer that is shown first wins, of two equal answers."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS_FROM_HIDING_A_DIFFERENCE,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_interval_before_counts,
    state_of_share,
)
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.gate_checks import (
    CandidateEvidence,
    GateCheckDefinition,
    measure_share,
)
from elo_exp.formatting import (
    format_count,
    format_number,
    format_percent,
    format_percent_in_sentence,
    format_percent_interval,
    format_percent_of_limit,
)

MIN_FIRST_SHOWN_SHARE, MAX_FIRST_SHOWN_SHARE = 0.45, 0.55
_LIMITS = (
    f"{format_number(100.0 * MIN_FIRST_SHOWN_SHARE)} to "
    f"{format_percent_of_limit(MAX_FIRST_SHOWN_SHARE)}"
)


class _FirstShown(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        effect = evidence.diagnosis.get("position")
        if effect is None or effect.p_first is None:
            return
        low, high = effect.ci_low, effect.ci_high
        state = CANNOT_TELL
        if low is not None and high is not None:
            state = state_of_share(
                low, high, least=MIN_FIRST_SHOWN_SHARE, most=MAX_FIRST_SHOWN_SHARE
            )
        yield Check(
            name=self.name,
            state=state,
            value=effect.p_first,
            low=low,
            high=high,
            n=effect.n_decisive,
        )

    def format_value(self, check: Check) -> str:
        if check.value is None:
            return super().format_value(check)
        return format_percent(check.value, 1)

    def describe_counts(self, check: Check) -> str:
        interval = format_interval_before_counts(check)
        return f"{interval}{format_count(check.n)} decisive verdicts"

    def explain_failure(self, check: Check) -> str:
        interval = ""
        if check.low is not None:
            ends = format_percent_interval(check.low, check.high)
            interval = f" (95% CI {ends})"
        return (
            f"Of equal answers the one shown first wins {format_percent(check.value)} of decisive "
            f"verdicts{interval}."
        )

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        return f"the first shown wins {format_percent_in_sentence(reason.value)}"


CHECK = _FirstShown(
    name="first_shown",
    title="First shown wins, of equal answers",
    accepted=f"interval within {_LIMITS}; not against a lead in both orders",
    number=30,
    blocked_claims=CLAIMS_FROM_HIDING_A_DIFFERENCE,
    weight=50,
    console_label="first shown wins",
    missing_label="no positions",
    warning=f"the first-shown answer wins (accepted: {_LIMITS})",
)


class _FirstShownOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        quality = evidence.quality
        n, n_all = quality.n_first_shown_wins, quality.n_decisive_verdicts
        return measure_share(self.name, n, n_all)


GATE_CHECK = _FirstShownOfGate(
    name="first_shown",
    title="First answer named, of all winners",
    accepted="the bound counts it",
    number=40,
)
