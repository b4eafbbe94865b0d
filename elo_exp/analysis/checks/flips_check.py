"""How often the judge names another winner when the two answers swap places."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS_FROM_HIDING_A_DIFFERENCE,
    FAILED,
    NOT_DONE,
    Check,
    CheckDefinition,
    JudgeEvidence,
    effective_share,
    explain_open_share,
    format_counts,
    format_interval_before_counts,
    state_of_share,
)
from elo_exp.analysis.checks.first_shown_check import POSITION_NOTE
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.exact_shares import exact_interval
from elo_exp.analysis.gate_checks import (
    CandidateEvidence,
    GateCheckDefinition,
    measure_share,
)
from elo_exp.formatting import (
    format_percent,
    format_percent_in_sentence,
    format_percent_of_limit,
)

MAX_FLIP_SHARE = 0.10


class _Flips(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Judged in one order alone, flips cannot be measured: the result needs care."""
        battles, quality = evidence.battles, evidence.quality
        masks = (
            battles.is_inconsistent(),
            battles.has_both_orders(),
            battles.has_single_order(),
        )
        n, n_both, n_one_order = map(battles.count_at, masks)
        n_independent = effective_share(battles, masks[0], masks[1])
        if quality:
            n, n_both = quality.n_flips, quality.n_two_order
            n_one_order = quality.n_one_order
        if n_both:
            low, high = exact_interval(n / n_both, n_independent * n_both)
            yield Check(
                name=self.name,
                state=state_of_share(low, high, most=MAX_FLIP_SHARE),
                value=n / n_both,
                low=low,
                high=high,
                n=n,
                of=n_both,
            )
        elif n_one_order or quality:
            about = {"n_one_order": n_one_order}
            yield Check(name=self.name, state=NOT_DONE, n=n, of=n_both, about=about)

    def describe_counts(self, check: Check) -> str:
        interval = format_interval_before_counts(check)
        return f"{interval}{format_counts(check)} comparisons in both orders"

    def explain_failure(self, check: Check) -> str:
        if check.value is None:
            return "Each comparison was judged in one order, so nobody knows how often the order changes the verdict."
        return (
            f"The judge names another winner in {format_percent(check.value)} of comparisons when the "
            "answers swap places."
        )

    def explain_note(self, check: Check) -> str:
        if check.is_one_order:
            return self.explain_failure(check)
        if check.state == CANNOT_TELL:
            return f"{explain_open_share(check)} {POSITION_NOTE}"
        return POSITION_NOTE if check.state == FAILED else ""

    def make_reason(self, check: Check, leader: str) -> Reason:
        name = "one_order" if check.is_one_order else self.name
        about = dict(check.about or {})
        return Reason(name=name, value=check.value, about=about, judges=True)

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        if reason.name == "one_order":
            return "it judged each comparison in one order only"
        share = format_percent_in_sentence(reason.value)
        return f"{share} of its verdicts change with the order"


CHECK = _Flips(
    name="flips",
    title="Verdict changes when the answers swap places",
    accepted=f"interval up to {format_percent_of_limit(MAX_FLIP_SHARE)}",
    finding="The judge names another winner in {values} of comparisons when the answers swap places "
    f"(accepted: up to {format_percent_of_limit(MAX_FLIP_SHARE)}).",
    number=20,
    blocked_claims=CLAIMS_FROM_HIDING_A_DIFFERENCE,
    reasons=("flips", "one_order"),
    weight=40,
    console_label="order changes the verdict",
    missing_label="order changes the verdict",
    warning=f"the order changes the verdict (accepted: up to {format_percent_of_limit(MAX_FLIP_SHARE)})",
    unknown="Not checked: no comparison was judged in both orders.",
    compared_rate="flip_rate",
)


class _FlipsOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        """The lower bound counts flips against the candidate, so any share passes that was measured."""
        quality = evidence.quality
        if not quality.n_two_order and quality.n_one_order:
            about = {"n_one_order": quality.n_one_order}
            return Check(name=self.name, state=CANNOT_TELL, of=0, about=about)
        return measure_share(self.name, quality.n_flips, quality.n_two_order)

    def explain_reason(self, reason: Reason, subject: str) -> str:
        return (
            "Each comparison was judged in one order, so nobody knows how often the order changes the verdict, which "
            "can hide losses. Judge both orders of some comparisons: judging.both_orders_share=0.2."
        )


GATE_CHECK = _FlipsOfGate(
    name="flips",
    title="Verdict changes when the answers swap places",
    accepted="no limit: the bounds allow for it",
    number=30,
)
