"""The conclusion about a model that a judge has placed among human battles."""

from collections.abc import Sequence

from elo_exp.analysis.conclusions import Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.tournament_conclusion import (
    list_judge_reasons,
    list_other_reasons,
)
from elo_exp.ratings.leaderboard import Rating

# The first that applies; each says more than those before it.
STATES = ("refused", "unrated", "no_interval", "caution", "placed")
# Reasons by their weight: about a judge that cannot be used, the fit, the scale, and the verdicts
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
    """Return the conclusion about a placed model, by the table of docs/arena_explained.md.

    Parameters
    ----------
    row
        Row of the leaderboard; a refused model has no rating.
    reasons
        In any order: reasons of REFUSALS, FIT_REASONS, SCALE_REASONS and MISSING_REASONS, failed checks of the judge,
        and `unrated` for a model that won or lost every battle.
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
