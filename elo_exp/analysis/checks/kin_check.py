"""Whether the leader and the judge belong to one model family, and a rival does not: the judge may prefer its own."""

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
from elo_exp.analysis.families import JudgeFamily
from elo_exp.analysis.gate_checks import CandidateEvidence, GateCheckDefinition
from elo_exp.formatting import NO_VALUE, join_names


class _Kin(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        """An audit by labelled pairs may have found that the judge does not favour its own."""
        leaders = evidence.leaders
        if (kin := evidence.diagnosis.get("kin")) is None:
            if evidence.has_battles:
                yield Check(name=self.name, state=NOT_DONE)
            return
        results = (evidence.diagnosis.get("audit") or {}).get("results", ())
        kin_verdicts = [
            r["verdict"] for r in results if r["probe"].partition(":")[0] == "self"
        ]
        is_unbiased = bool(kin_verdicts) and set(kin_verdicts) == {"ok"}
        is_favoured = bool(kin.others and {*kin.models} & {*leaders[:1]})
        is_blocking = is_favoured and not kin.is_allowed and not is_unbiased
        yield Check(
            name=self.name,
            state=FAILED if is_blocking else PASSED,
            is_notable=not is_blocking and not is_unbiased,
            value=len(kin.models) / (len(kin.models) + len(kin.others)),
            about={
                "family": kin.family,
                "models": kin.models,
                "first": leaders[0] if leaders else None,
            },
        )

    def describe_counts(self, check: Check) -> str:
        about = check.about
        return (
            f"{join_names(about['models'])} (family {about['family']})" if about else ""
        )

    def explain_note(self, check: Check) -> str:
        if check.state == FAILED:
            return self.explain_failure(check)
        return f"{self.describe_counts(check)}." if check.is_notable else ""

    def explain_failure(self, check: Check) -> str:
        about = check.about or {}
        return f"{_describe_same_family(about['first'], about['family'])}."

    def summarize_failure(self, check: Check) -> str:
        return f"the leader is of the judge's model family ({(check.about or {})['family']})"

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        return _describe_same_family(str(conclusion.subject), reason.about["family"])


def _describe_same_family(model: str, family: str) -> str:
    return f"{model} and the judge belong to the same model family ({family})"


CHECK = _Kin(
    name="kin",
    title="Entrants of the judge’s model family",
    accepted="not the leader, unless all entrants are",
    finding="{values} of the entrants and the judge belong to one model family (accepted: not the leader, unless all do).",
    unknown="No entrant is known to belong to the judge’s model family.",
    number=110,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=70,
)


class _KinOfGate(GateCheckDefinition):
    def check_pass(self, evidence: CandidateEvidence) -> Check:
        return _check_favoured(
            evidence,
            evidence.candidate,
            evidence.baseline,
            is_known=evidence.is_family_known,
        )

    def check_fail(self, evidence: CandidateEvidence) -> Check:
        """A fail favours the baseline."""
        return _check_favoured(
            evidence,
            evidence.baseline,
            evidence.candidate,
            is_known=evidence.baseline in evidence.kin.models,
        )

    def format_finding(self, check: Check) -> str:
        return (check.about or {})["family"] or NO_VALUE

    def explain_reason(self, reason: Reason, subject: str) -> str:
        favoured, rival = subject, "the baseline"
        if reason.about["favours"] == "baseline":
            favoured, rival = "The baseline", subject
        return (
            f"{favoured} is of the judge's model family ({reason.about['family']}), and {rival} is not known to be. A judge "
            "may prefer its own family. Choose another judge, or allow it: judging.self_judging=allow."
        )


def _check_favoured(
    evidence: CandidateEvidence, favoured: str, rival: str, *, is_known: bool
) -> Check:
    self_verdicts = {
        row["verdict"]
        for row in evidence.audit.get("results", ())
        if row["probe"].partition(":")[0] == "self"
    }
    return check_family(
        evidence.kin,
        candidate=favoured,
        baseline=rival,
        is_known=is_known and evidence.kin.family is not None,
        is_unbiased=evidence.allows_kin or self_verdicts == {"ok"},
    )


GATE_CHECK = _KinOfGate(
    name="kin",
    title="Same model family",
    accepted="judge and candidate only if the baseline is, too",
    number=90,
    weight=90,
)


def check_family(
    kin: JudgeFamily,
    *,
    candidate: str,
    baseline: str,
    is_known: bool,
    is_unbiased: bool,
) -> Check:
    """Check whether the judge is of the candidate's family and not of the baseline's.

    Parameters
    ----------
    kin : JudgeFamily
        Who is of the judge's family.
    candidate, baseline : str
        Their names there.
    is_known : bool
        Whether a name tells the family of judge and candidate.
    is_unbiased : bool
        Whether the user allows it, or an audit found that the judge does not favour its own.

    Returns
    -------
    Check
        Not done if a family is not known.
    """
    is_favoured = candidate in kin.models and baseline not in kin.models
    state = FAILED if is_favoured and not is_unbiased else PASSED
    return Check(
        name=GATE_CHECK.name,
        state=state if is_known else NOT_DONE,
        about={"family": kin.family, "models": [*kin.models], "first": candidate},
    )
