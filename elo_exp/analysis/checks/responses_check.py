"""Whether the answers of an entrant are odd: one text to many prompts, boilerplate, refusals."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    FAILED,
    NOT_DONE,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.analysis.odd_answers import ODD_ANSWER_KINDS, describe_odd_answers
from elo_exp.formatting import format_count, format_percent_in_sentence


class _Responses(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """One answer to many prompts is no answer to any of them, however the judge ranks it."""
        responses, leaders = evidence.responses, evidence.leaders
        if responses:
            flagged = {
                row["model"]: {name: row[name] for name in row["flags"]}
                for row in responses
                if row["flags"]
            }
            is_of_leader = bool(flagged.keys() & set(leaders[:1]))
            yield Check(
                name=self.name,
                state=FAILED if is_of_leader else PASSED,
                is_notable=bool(flagged) and not is_of_leader,
                value=len(flagged) / len(responses),
                about={
                    "flagged": flagged,
                    "cut off": sum(row["n_cut_off"] for row in responses),
                },
            )
        elif evidence.has_battles:
            yield Check(name=self.name, state=NOT_DONE)

    def describe_counts(self, check: Check) -> str:
        about = check.about
        if not about:
            return ""
        n = about["cut off"]
        return (describe_odd_answers(about["flagged"]) or "none") + (
            f"; {format_count(n)} cut off" if n else ""
        )

    def explain_failure(self, check: Check) -> str:
        return f"Odd answers: {describe_odd_answers((check.about or {})['flagged'])}."

    def make_reason(self, check: Check, leader: str) -> Reason:
        flags = (check.about or {})["flagged"][leader]
        kind = max(flags, key=flags.__getitem__)
        return Reason(name="answers", value=flags[kind], about={"kind": kind})

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        share = format_percent_in_sentence(reason.value)
        return f"{share} of its answers are {ODD_ANSWER_KINDS[reason.about['kind']]}"


CHECK = _Responses(
    name="responses",
    title="Entrants with odd answers",
    accepted="repeated, boilerplate, short or refusing; caution if the leader’s are",
    number=80,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    is_about_judge=False,
    reasons=("answers",),
)
