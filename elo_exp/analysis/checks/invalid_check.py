"""How many comparisons have no valid verdict."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    FAILED,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_counts,
)
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.gate_checks import (
    CandidateEvidence,
    GateCheckDefinition,
    measure_share,
)
from elo_exp.formatting import (
    format_count,
    format_percent,
    format_percent_in_sentence,
    format_percent_of_limit,
)

MAX_INVALID_SHARE = 0.02


class _Invalid(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        quality = evidence.quality
        if quality is None or (share := quality.invalid_rate) is None:
            return
        yield Check(
            name=self.name,
            state=PASSED if share <= MAX_INVALID_SHARE else FAILED,
            # of these comparisons: no interval, for all of them are known
            value=share,
            n=quality.n_invalid,
            of=quality.n_judgments,
            about={"refused": quality.n_refused, "cut off": quality.n_cut_off},
        )

    def describe_counts(self, check: Check) -> str:
        about = check.about or {}
        kinds = [f", {format_count(n)} {kind}" for kind, n in about.items() if n]
        return format_counts(check) + "".join(kinds)

    def explain_failure(self, check: Check) -> str:
        return f"{format_percent(check.value)} of comparisons have no valid verdict."

    def explain_note(self, check: Check) -> str:
        if check.state != FAILED:
            return ""
        _, *kinds = self.describe_counts(check).split(", ")
        return f"Invalid: {', '.join([f'{format_counts(check)} comparisons', *kinds])}."

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        share = format_percent_in_sentence(reason.value)
        return f"{share} of its verdicts are invalid"


CHECK = _Invalid(
    name="invalid",
    title="Invalid verdicts",
    accepted=f"up to {format_percent_of_limit(MAX_INVALID_SHARE)}",
    finding="The judge gave no valid verdict in {values} of comparisons "
    f"(accepted: up to {format_percent_of_limit(MAX_INVALID_SHARE)}).",
    number=40,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=20,
    console_label="invalid verdicts",
    warning=f"verdicts are invalid (accepted: up to {format_percent_of_limit(MAX_INVALID_SHARE)})",
    compared_rate="invalid_rate",
)


class _InvalidOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        quality = evidence.quality
        return measure_share(self.name, quality.n_invalid, quality.n_judgments)


GATE_CHECK = _InvalidOfGate(
    name="invalid",
    title="Invalid verdicts",
    accepted="no limit: the bounds allow for it",
    number=60,
    is_measured_only=True,
)
