"""Whether the best is of the judge's family and a rival is not: a lead may be the judge's preference for its own."""

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
from elo_exp.formatting import join_names


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
        return f"{join_names(about['models'])}, of {about['family']}" if about else ""

    def explain_failure(self, check: Check) -> str:
        about = check.about or {}
        return f"{_describe_same_family(about['first'], about['family'])}."

    def summarize_failure(self, check: Check) -> str:
        return f"kin of the first ({(check.about or {})['family']})"

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        return _describe_same_family(str(conclusion.subject), reason.about["family"])


def _describe_same_family(model: str, family: str) -> str:
    return f"{model} and the judge are of one family, {family}"


CHECK = _Kin(
    name="kin",
    title="Entrants of the judge’s family",
    accepted="caution if the leader is one and not all others are",
    number=110,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=70,
)
