"""How often the answer that is shown first wins against an equally good answer."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS_FROM_HIDING_A_DIFFERENCE,
    FAILED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    explain_open_share,
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
# What a preference for a position, and verdicts that change with the order, can do to a claim
POSITION_NOTE = "If each pair was judged in both orders, no entrant gains by this, but it can hide a difference."
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
        return f"The first of two equally good answers wins {format_percent(check.value)} of decisive verdicts{interval}."

    def explain_note(self, check: Check) -> str:
        if check.state == CANNOT_TELL:
            return f"{explain_open_share(check)} {POSITION_NOTE}"
        return POSITION_NOTE if check.state == FAILED else ""

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        return f"the first answer wins {format_percent_in_sentence(reason.value)} of decisive verdicts"


CHECK = _FirstShown(
    name="first_shown",
    title="First answer wins",
    accepted=f"interval within {_LIMITS}",
    finding=f"The first of two equally good answers wins {{values}} of decisive verdicts (accepted: {_LIMITS}).",
    number=30,
    blocked_claims=CLAIMS_FROM_HIDING_A_DIFFERENCE,
    weight=50,
    console_label="first answer wins",
    missing_label="first answer wins",
    warning=f"the first answer wins too often or too rarely (accepted: {_LIMITS})",
    unknown="Not checked: no verdict tells which answer the judge saw first.",
)


class _FirstShownOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        quality = evidence.quality
        n, n_all = quality.n_first_shown_wins, quality.n_decisive_verdicts
        return measure_share(self.name, n, n_all)


GATE_CHECK = _FirstShownOfGate(
    name="first_shown",
    title="First answer wins",
    accepted="no limit: the bounds allow for it",
    number=40,
    is_measured_only=True,
)
