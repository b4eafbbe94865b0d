"""Whether the judge of a gate gives one verdict to (nearly) all comparisons: then it has compared nothing."""

from collections import Counter
from collections.abc import Sequence

from elo_exp.analysis.checks import FAILED, NOT_DONE, PASSED, Check
from elo_exp.analysis.checks.control_check import control_check
from elo_exp.analysis.conclusions import Reason
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.formatting import format_count, format_percent
from elo_exp.records import Judgment

MIN_COMPARISONS_OF_ONE_VERDICT = 10
# Of the comparisons: if as many have one verdict, the judge compared nothing
MAX_SAME_SHARE = 0.95
_PHRASES = {"A": "chose the first answer", "B": "chose the second answer"}


class _SameVerdict(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        control = control_check(evidence.controls, evidence.control_judgments)
        return same_verdict_check(
            evidence.judgments, sees_control=control.state == PASSED
        )

    def explain_reason(self, reason: Reason, subject: str) -> str:
        about = reason.about
        phrase = _PHRASES.get(about["verdict"], "called a tie")
        return f"No result: the judge {phrase} in {format_count(about['n'])} of {format_count(about['of'])} comparisons."


GATE_CHECK = _SameVerdict(
    name="same_verdict",
    title="Same verdict in all comparisons",
    accepted=f"under {format_percent(MAX_SAME_SHARE)}",
    number=10,
    shows_blind_judge=True,
    leaves_no_result=True,
)


def same_verdict_check(judgments: Sequence[Judgment], *, sees_control: bool) -> Check:
    """Check whether the judge gives one verdict to (nearly) all comparisons: then it has compared nothing.

    Parameters
    ----------
    judgments : sequence of Judgment
        Of the candidate and the baseline.
    sees_control : bool
        Whether the judge found the degraded copies. Then its ties are ties.

    Returns
    -------
    Check
        Its value is the share of the comparisons with the most frequent verdict in each order.
    """
    letters = [
        {verdict.verdict for verdict in judgment.orders}
        for judgment in judgments
        if not judgment.equal_answers
    ]
    n_by_verdict = Counter(
        next(iter(verdicts)) for verdicts in letters if len(verdicts) == 1
    )
    n_by_verdict = Counter(
        {name: n for name, n in n_by_verdict.items() if name in ("A", "B", "TIE")}
    )
    ((letter, n),) = n_by_verdict.most_common(1) or [("", 0)]
    is_same = n >= max(MIN_COMPARISONS_OF_ONE_VERDICT, MAX_SAME_SHARE * len(letters))
    is_blind = is_same and not (letter == "TIE" and sees_control)
    return Check(
        name=GATE_CHECK.name,
        state=FAILED if is_blind else PASSED if letters else NOT_DONE,
        value=n / len(letters) if letters else None,
        n=n,
        of=len(letters),
        about={"verdict": letter},
    )
