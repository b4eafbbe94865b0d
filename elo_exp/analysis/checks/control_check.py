"""Whether the judge of a gate names degraded copies of the baseline's answers the losers."""

from collections.abc import Iterator, Sequence

from elo_exp.analysis.checks import (
    CANNOT_TELL,
    FAILED,
    NOT_DONE,
    NOT_WORSE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.data.degraded_copies import CONTROL_PROMPTS
from elo_exp.records import Comparison, Judgment

# Of ten degraded copies
MIN_CONTROLS_LOST = 9


class _Control(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """Yield nothing: only a gate has a control."""
        yield from ()


CHECK = _Control(
    name="control",
    title="Degraded copies of the baseline's answers that lost to them",
    accepted=f"at least {MIN_CONTROLS_LOST} of {CONTROL_PROMPTS}",
    blocked_claims=(NOT_WORSE,),
    # anybody can have a control
    blocking_states=(FAILED, CANNOT_TELL, NOT_DONE),
)


def control_check(
    controls: Sequence[Comparison], judgments: Sequence[Judgment]
) -> Check:
    """Check that the judge names degraded copies of the baseline's answers the losers.

    Parameters
    ----------
    controls : sequence of Comparison
        That the judge was to be asked about, a prompt each; empty if there are none.
    judgments : sequence of Judgment
        Of these; a comparison without all its verdicts has none.

    Returns
    -------
    Check
        Its value is the share of the copies that lost in both orders. It is not done if nothing was judged, and
        cannot tell if verdicts are missing that would decide it.
    """
    n_lost = sum(judgment.winner == judgment.entrant_b for judgment in judgments)
    n_missing = len(controls) - len(judgments)
    state = FAILED
    if not judgments:
        state = NOT_DONE
    elif n_lost >= MIN_CONTROLS_LOST:
        state = PASSED
    elif n_lost + n_missing >= MIN_CONTROLS_LOST:
        state = CANNOT_TELL
    return Check(
        name=CHECK.name,
        state=state,
        value=n_lost / len(judgments) if judgments else None,
        n=n_lost,
        of=len(judgments),
        about={
            "least": MIN_CONTROLS_LOST,
            "n_prompts": CONTROL_PROMPTS,
            "n_missing": n_missing,
            "n_invalid": sum(judgment.invalid for judgment in judgments),
        },
    )
