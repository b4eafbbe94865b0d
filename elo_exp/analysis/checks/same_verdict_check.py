"""Whether the judge of a gate gives one verdict to (nearly) all comparisons: then it has compared nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence

from elo_exp.analysis.checks import (
    FAILED,
    NOT_DONE,
    NOT_WORSE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.formatting import format_percent
from elo_exp.records import Judgment

MIN_COMPARISONS_OF_ONE_VERDICT = 10
# Of the comparisons: if as many have one verdict, the judge compared nothing
MAX_SAME_SHARE = 0.95


class _SameVerdict(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Yield nothing: a tournament checks the same by `one_verdict`, which knows more of a file."""
        yield from ()


CHECK = _SameVerdict(
    name="same_verdict",
    title="One verdict for all comparisons",
    accepted=f"under {format_percent(MAX_SAME_SHARE)}",
    blocked_claims=(NOT_WORSE,),
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
        name=CHECK.name,
        state=FAILED if is_blind else PASSED if letters else NOT_DONE,
        value=n / len(letters) if letters else None,
        n=n,
        of=len(letters),
        about={"verdict": letter},
    )
