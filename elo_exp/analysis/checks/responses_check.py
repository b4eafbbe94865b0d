"""Whether the answers of an entrant are unusual: one text to many prompts, boilerplate, refusals."""

from collections.abc import Iterator, Mapping
from typing import Any

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
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.analysis.odd_answers import (
    ODD_ANSWER_KINDS,
    check_responses,
    describe_odd_answers,
)
from elo_exp.formatting import (
    format_count,
    format_percent,
    format_percent_in_sentence,
    join_names,
)


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
        return (
            f"Unusual answers: {describe_odd_answers((check.about or {})['flagged'])}."
        )

    def explain_note(self, check: Check) -> str:
        if check.state == NOT_DONE or not (check.about or {})["flagged"]:
            return ""
        leader = " The leader is among them." if check.state == FAILED else ""
        text = describe_odd_answers((check.about or {})["flagged"])
        return f"{text[:1].upper()}{text[1:]}.{leader}"

    def make_reason(self, check: Check, leader: str) -> Reason:
        flags = (check.about or {})["flagged"][leader]
        kind = max(flags, key=flags.__getitem__)
        return Reason(name="answers", value=flags[kind], about={"kind": kind})

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        share = format_percent_in_sentence(reason.value)
        return f"{share} of its answers are {ODD_ANSWER_KINDS[reason.about['kind']]}"


CHECK = _Responses(
    name="responses",
    title="Entrants with unusual answers",
    accepted="not the leader",
    finding="{values} of the entrants repeat texts, use boilerplate, refuse or give very short answers "
    "(accepted: not the leader).",
    unknown="Not checked: the texts of the answers are not known.",
    number=80,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    is_about_judge=False,
    reasons=("answers",),
)


class _ResponsesOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        return _compare(evidence, evidence.candidate, evidence.baseline)

    def check_fail(self, evidence: CandidateEvidence) -> Check:
        return _compare(evidence, evidence.baseline, evidence.candidate)

    def format_finding(self, check: Check) -> str:
        flagged = next(iter((check.about or {})["flagged"].values()))
        flags = [
            f"{ODD_ANSWER_KINDS[name]} {format_percent(share)}"
            for name, share in flagged.items()
        ]
        return join_names(flags) or "none"

    def explain_reason(self, reason: Reason, subject: str) -> str:
        flagged = next(iter(reason.about["flagged"].values()))
        flags = [
            f"{ODD_ANSWER_KINDS[name]} in {format_percent(share)}"
            for name, share in flagged.items()
        ]
        owner, other_owner = f"{subject}'s", "the baseline's"
        if reason.about["favours"] == "baseline":
            owner, other_owner = "The baseline's", owner
        return f"{owner} answers are unusual, and {other_owner} are not: {join_names(flags)}."


def _compare(evidence: CandidateEvidence, favoured: str, rival: str) -> Check:
    favoured_row, rival_row = (
        check_responses(name, evidence.responses[name]) for name in (favoured, rival)
    )
    return compare_odd_answers(favoured_row, rival_row)


GATE_CHECK = _ResponsesOfGate(
    name="responses",
    title="Unusual answers",
    accepted="no kind that the baseline does not have",
    number=80,
    is_about_judge=False,
    is_caution_of_fail=True,
)


def compare_odd_answers(
    favoured: Mapping[str, Any], rival: Mapping[str, Any] | None
) -> Check:
    """Check whether the answers of the one that a claim favours are unusual and those of the other are not.

    Parameters
    ----------
    favoured, rival : mapping
        Rows of `check_responses`: of candidate and baseline if the claim is a pass, of baseline and candidate if it
        is a fail; None: the rival's answers are not known.

    Returns
    -------
    Check
        Its value is the number of flags that the favoured one has and the rival has not.
    """
    rival_flags = set(rival["flags"]) if rival else set()
    flags = [name for name in favoured["flags"] if name not in rival_flags]
    return Check(
        name=GATE_CHECK.name,
        state=FAILED if flags else PASSED,
        value=float(len(flags)),
        about={
            "flagged": {favoured["model"]: {name: favoured[name] for name in flags}},
            "flags": flags,
        },
    )
