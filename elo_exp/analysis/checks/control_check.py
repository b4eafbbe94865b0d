"""Whether the judge of a gate names degraded copies of the baseline's answers the losers."""

import dataclasses
from collections.abc import Sequence

from elo_exp.analysis.checks import CANNOT_TELL, FAILED, NOT_DONE, PASSED, Check
from elo_exp.analysis.conclusions import Reason
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.analysis.noninferiority import MIN_PROMPTS_FOR_VERDICT
from elo_exp.data.degraded_copies import CONTROL_PROMPTS
from elo_exp.formatting import format_count, join_names
from elo_exp.records import Comparison, Judgment

# Of ten degraded copies
MIN_CONTROLS_LOST = 9
# By why it was not done
_NOT_DONE_SENTENCES = {
    "left out": "The control was left out (gate.control=false), so nothing shows that the judge can recognize a worse "
    "candidate.",
    "not stored": "The cache has no verdict of the control, so nothing shows that the judge can recognize a worse candidate. "
    "Run the gate without judging.stored_only=true.",
    "too few": f"The control needs {MIN_PROMPTS_FOR_VERDICT} compared prompts, and the baseline must answer "
    f"{CONTROL_PROMPTS} of them with some words.",
}


class _Control(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        check = control_check(evidence.controls, evidence.control_judgments)
        if check.state != NOT_DONE:
            return check
        reason = "not stored" if evidence.controls else "too few"
        reason = reason if evidence.wants_control else "left out"
        return dataclasses.replace(check, about={**(check.about or {}), "why": reason})

    def explain_reason(self, reason: Reason, subject: str) -> str:
        about = reason.about
        if about["state"] == NOT_DONE:
            return _NOT_DONE_SENTENCES[about["why"]]
        text = (
            f"A degraded copy of the baseline's answer lost on {format_count(about['n'])} of "
            f"{format_count(about['n_prompts'])} prompts (at least {format_count(about['least'])} are needed)"
        )
        if about["state"] == CANNOT_TELL:
            return f"{text}. On {format_count(about['n_missing'])} the judge gave no verdict."
        return f"{text}. Nothing shows that the judge can recognize a worse candidate."

    def describe_results(self, checks: Sequence[Check]) -> list[str]:
        done_checks = [check for check in checks if check.of]
        if not done_checks:
            return []
        copies = join_names([f"{check.n} of {check.of}" for check in done_checks])
        return [
            f"Control: {copies} degraded copies of the baseline's answers lost to them in both orders "
            f"(at least {MIN_CONTROLS_LOST} must lose)."
        ]


GATE_CHECK = _Control(
    name="control",
    title="Control",
    accepted=f"at least {MIN_CONTROLS_LOST} of {CONTROL_PROMPTS} degraded copies lose to their originals",
    number=20,
    # anybody can have a control
    blocking_states=(FAILED, CANNOT_TELL, NOT_DONE),
    shows_blind_judge=True,
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
        name=GATE_CHECK.name,
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
