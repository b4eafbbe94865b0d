"""What may be said of a model that a judge has placed among human battles."""

from collections.abc import Sequence

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import (
    list_judge_reasons,
    list_other_reasons,
)
from elo_exp.ratings.leaderboard import Rating

# The first that applies; each says more than those before it.
STATES = ("refused", "unrated", "no_interval", "caution", "placed")
# Reasons by their weight: of a judge that cannot be used, of the fit, of the scale, of the verdicts
REFUSALS = ("not_calibrated", "few_anchors", "distances", "correlation")
FIT_REASONS = ("no_kin_anchor", "wide", "beyond", "few_prompts")
MISSING_REASONS = ("failures",)
SCALE_REASONS = ("raw", "style")
# As the files name the status of a placement
STATUS_BY_STATE = {
    "refused": "refuse",
    "unrated": "refuse",
    "no_interval": "caution",
    "caution": "caution",
    "placed": "report",
}


def conclude(row: Rating, reasons: Sequence[Reason], scope: Scope) -> Conclusion:
    """Decide what may be said of a placed model, by the table of docs/arena_explained.md.

    Parameters
    ----------
    row
        Of the leaderboard; a refused model has no rating.
    reasons
        Any of REFUSALS, OF_FIT and the checks of the judge, `unrated` of a model that won or lost
        all, `raw` of one that is rated on the judge's own scale, and `style` of one whose answers' style lies far
        outside the anchors', and `failures` of one whose missing answers and verdicts could move it, in any order.
    scope
        The judge, the arena as source, and the prompts on which the model was judged.
    """
    names_by_weight = [
        *REFUSALS,
        "unrated",
        *FIT_REASONS,
        *SCALE_REASONS,
        *MISSING_REASONS,
        *list_judge_reasons(),
        *list_other_reasons(),
    ]
    sorted_reasons = sorted(
        reasons, key=lambda reason: names_by_weight.index(reason.name)
    )
    if {reason.name for reason in sorted_reasons} & {*REFUSALS}:
        state = "refused"
    elif row.rating is None:
        state = "unrated"
    elif row.ci_low is None:
        state = "no_interval"
    else:
        state = "caution" if sorted_reasons else "placed"
    return Conclusion(
        state=state,
        subject=row.model,
        effect=Effect(value=row.rating, low=row.ci_low, high=row.ci_high),
        reasons=tuple(sorted_reasons),
        scope=scope,
    )
