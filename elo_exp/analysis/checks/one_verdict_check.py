"""Whether the judge compared at all, or gave one verdict whatever it was shown."""

from collections.abc import Iterator

import numpy as np

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    CLAIMS_FROM_HIDING_A_DIFFERENCE,
    FAILED,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
    format_counts,
    format_interval_before_counts,
)
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.exact_shares import exact_interval
from elo_exp.arrays import Mask
from elo_exp.data.battles import Battles
from elo_exp.formatting import format_percent_of_limit
from elo_exp.records import WINNERS

# share of comparisons with one and the same useless verdict, and the least end of its interval, from
# which a judge has compared nothing
MIN_SHARE_OF_ONE_VERDICT, MIN_LOW_OF_ONE_VERDICT = 0.95, 0.80
_TIE = WINNERS.index("tie")
# By kind of verdict: as a state of things, and as what the judge did
_PASSIVE_PHRASES = {
    "first": "the first answer wins",
    "second": "the second answer wins",
    "tie": "the verdict is a tie",
    "invalid": "no verdict is valid",
    "model_a": "the entrant in the first column wins",
    "model_b": "the entrant in the second column wins",
}
_ACTIVE_PHRASES = {
    "first": "named the first answer",
    "second": "named the second answer",
    "tie": "called a tie",
    "model_a": "named the entrant in the first column",
    "model_b": "named the entrant in the second column",
    "invalid": "gave no valid verdict",
}


class _OneVerdict(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Count the most frequent verdict that compares nothing.

        Comparisons without a valid verdict count as that verdict: what is not known is no comparison. If a
        file names winners alone, nobody knows who was shown first. A judge that goes by the place of an answer
        then shows only if pairs were asked with each entrant as model_a: one column wins whoever is in it.
        """
        n_by_kind = _count_verdicts(evidence.battles)
        n_invalid = evidence.quality.n_invalid if evidence.quality else 0
        battles = evidence.battles
        n_asked = battles.count_at(~battles.equal_answers) + n_invalid
        if not n_asked:
            return
        # the more telling of equal ones
        kind = max(n_by_kind, key=n_by_kind.__getitem__)
        n = n_by_kind[kind] + n_invalid
        if n_invalid > n_by_kind[kind]:
            kind = "invalid"
        low, high = exact_interval(n / n_asked, n_asked)
        state = PASSED if high < MIN_SHARE_OF_ONE_VERDICT else CANNOT_TELL
        if n / n_asked >= MIN_SHARE_OF_ONE_VERDICT and low >= MIN_LOW_OF_ONE_VERDICT:
            state = FAILED
        yield Check(
            name=self.name,
            state=state,
            value=n / n_asked,
            low=low,
            high=high,
            n=n,
            of=n_asked,
            about={"kind": kind},
        )

    def describe_counts(self, check: Check) -> str:
        phrase = _PASSIVE_PHRASES[(check.about or {})["kind"]]
        return f"{format_interval_before_counts(check)}{format_counts(check)}: {phrase}"

    def explain_failure(self, check: Check) -> str:
        phrase = _PASSIVE_PHRASES[(check.about or {})["kind"]]
        return f"{phrase.capitalize()} in {format_counts(check)} comparisons, so the judge compared nothing."

    def summarize_failure(self, check: Check) -> str:
        return (
            f"{_PASSIVE_PHRASES[(check.about or {})['kind']]} in nearly all comparisons"
        )

    def make_reason(self, check: Check, leader: str) -> Reason:
        about = {**(check.about or {}), "n": check.n, "of": check.of}
        return Reason(name="no_result", value=check.value, about=about, judges=True)

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        about = reason.about
        plural = "" if about["of"] == 1 else "s"
        return (
            f"the judge {_ACTIVE_PHRASES[about['kind']]} in {about['n']:,} of {about['of']:,} "
            f"comparison{plural}"
        )


def _count_verdicts(battles: Battles) -> dict[str, int]:
    """Count by kind the verdicts of a judge that goes by the place of an answer, or calls ties alone."""
    counts = battles.count_at
    is_asked = ~battles.equal_answers
    ab, ba = battles.verdict_ab, battles.verdict_ba
    in_both, in_one = battles.has_both_orders(), battles.has_single_order()
    names_first = np.where(ab >= 0, ab == 0, True) & np.where(ba >= 0, ba == 1, True)
    names_second = np.where(ab >= 0, ab == 1, True) & np.where(ba >= 0, ba == 0, True)
    n_by_kind = {
        "first": counts((in_both | in_one) & is_asked & names_first),
        "second": counts((in_both | in_one) & is_asked & names_second),
        "tie": counts(is_asked & (battles.winner >= _TIE)),
    }
    is_unplaced = is_asked & ~(in_both | in_one)
    if _has_both_places(battles, is_unplaced):
        n_by_kind["model_a"] = counts(is_unplaced & (battles.winner == 0))
        n_by_kind["model_b"] = counts(is_unplaced & (battles.winner == 1))
    return n_by_kind


def _has_both_places(battles: Battles, chosen: Mask) -> bool:
    """Return whether pairs met with each entrant as model_a, so often that no order of the entrants could
    explain that one column wins nearly always."""
    a, b = battles.model_a.astype(np.int64), battles.model_b.astype(np.int64)
    pair = np.minimum(a, b) * len(battles.models) + np.maximum(a, b)
    count = np.ones(len(battles)) if battles.count is None else battles.count
    codes, number = np.unique(pair[chosen], return_inverse=True)
    is_swapped = (a > b)[chosen]
    weights = np.asarray(count, dtype=np.float64)[chosen]
    n_swapped = np.bincount(number, weights * is_swapped, len(codes))
    n_straight = np.bincount(number, weights * ~is_swapped, len(codes))
    n_rarer = float(np.minimum(n_swapped, n_straight).sum())
    return n_rarer > (1.0 - MIN_SHARE_OF_ONE_VERDICT) * float(weights.sum())


CHECK = _OneVerdict(
    name="one_verdict",
    title="Same verdict in all comparisons",
    accepted=f"under {format_percent_of_limit(MIN_SHARE_OF_ONE_VERDICT)}",
    finding="The judge gave one and the same verdict, such as a tie, in {values} of comparisons "
    f"(accepted: under {format_percent_of_limit(MIN_SHARE_OF_ONE_VERDICT)}).",
    number=10,
    blocked_claims=CLAIMS_FROM_HIDING_A_DIFFERENCE,
    leaves_no_result=True,
    reasons=("no_result",),
)
