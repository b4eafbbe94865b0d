"""Whether invalid verdicts fall on one entrant more than on others: then they move its rating."""

from collections.abc import Iterator

from elo_exp.analysis.checks import (
    CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    FAILED,
    PASSED,
    Check,
    CheckDefinition,
    JudgeEvidence,
)
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.conclusions import Conclusion, Reason
from elo_exp.formatting import (
    format_count,
    format_number,
    format_percent_of_limit,
    join_names,
)


class _InvalidByEntrant(CheckDefinition):
    def measure(self, evidence: JudgeEvidence) -> Iterator[Check]:
        shares = evidence.diagnosis.get("invalid") or ()
        if not any(share.n_invalid for share in shares):
            return
        worst = max(shares, key=lambda share: share.share or 0.0)
        differing = [share.to_dict() for share in shares if share.differs]
        yield Check(
            name=self.name,
            state=FAILED if differing else PASSED,
            value=worst.share,
            about={"worst": worst.to_dict(), "differing": differing},
        )

    def describe_counts(self, check: Check) -> str:
        row = (check.about or {})["worst"]
        return f"most: {row['model']}, {format_count(row['n_invalid'])} of {format_count(row['n_judgments'])}"

    def explain_failure(self, check: Check) -> str:
        differing = (check.about or {})["differing"]
        models = join_names([row["model"] for row in differing])
        bounds = [
            f" Depending on what these verdicts would have been, the rating of {row['model']} is between "
            f"{format_number(row['bound_low'])} and {format_number(row['bound_high'])}."
            for row in differing
            if row["bound_low"] is not None and row["bound_high"] is not None
        ]
        return (
            f"Invalid verdicts fall on {models} more or less often than on others."
            + "".join(bounds)
        )

    def summarize_failure(self, check: Check) -> str:
        models = [row["model"] for row in (check.about or {})["differing"]]
        return f"share of invalid verdicts differs for {join_names(models)}"

    def explain_reason(self, reason: Reason, conclusion: Conclusion) -> str:
        models = [row["model"] for row in reason.about["differing"]]
        return f"the share of invalid verdicts differs for {join_names(models)}"


CHECK = _InvalidByEntrant(
    name="invalid_by_entrant",
    title="Invalid verdicts by entrant",
    accepted=f"no significant difference (Holm, {format_percent_of_limit(ALPHA)})",
    finding="The entrant with the most invalid verdicts has them in {values} of its comparisons.",
    number=60,
    blocked_claims=CLAIMS_FROM_FAVOURING_AN_ENTRANT,
    weight=30,
    warning="entrants differ in their shares of invalid verdicts; largest share",
)
