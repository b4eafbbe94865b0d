"""What a lead at equal style rests on: the same ratings without the control, and whether the data support it."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from elo_exp.analysis.comparisons import Leader, differences
from elo_exp.analysis.conclusions import Adjustment, Effect, Reason
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import FEATURES, Feature
from elo_exp.ratings.leaderboard import Leaderboard

# Least share of an entrant's battles in which its answer has more, and in which it has less, of a feature. Below it
# ratings at equal style rest on a curve beyond the data: tests/test_style_support.py
MIN_SUPPORT = 0.05


def find_adjustment(
    raw: Leaderboard, leader: Leader, features: Sequence[Feature], unit: str
) -> Adjustment:
    """Return what a lead is adjusted for, and the lead of the same two entrants without the control.

    Parameters
    ----------
    raw : Leaderboard
        Of the same battles without the control.
    leader : Leader
        Of the leaderboard with the control.
    features : sequence of str
        That it holds equal.
    unit : str
        Of the ratings: points, or score.

    Returns
    -------
    Adjustment
        Without a raw effect if the two are not rated without the control.
    """
    pair = {leader.model, leader.second}
    lead = next(
        (d for d in differences({"": raw}) if {d.higher, d.lower} == pair), None
    )
    effect = None
    if lead is not None:
        value, low, high = lead.difference, lead.ci_low, lead.ci_high
        if lead.higher != leader.model:
            value, low, high = (None if x is None else -x for x in (value, high, low))
        effect = Effect(value=value, low=low, high=high, unit=unit)
    return Adjustment(features=tuple(features), raw=effect)


def shares_with_more(battles: Battles, feature: Feature) -> Mapping[str, float]:
    """Return the share of each model's battles in which its answer has more of a feature.

    Parameters
    ----------
    battles : Battles
        Of one dimension; those without the counts of both answers are left out.
    feature : str
        Of `data.writing_style.FEATURES`.

    Returns
    -------
    mapping of str to float
        By model; equal counts are half. NaN for a model without such a battle.
    """
    style = battles.style()[:, :, FEATURES.index(feature)]
    is_known = ~np.isnan(style.sum(axis=1))
    weight = np.ones(len(battles)) if battles.count is None else battles.count
    more = np.sign(style[:, 0] - style[:, 1]) / 2.0 + 0.5
    side = np.append(battles.model_a[is_known], battles.model_b[is_known])
    more_of_side = np.append(more[is_known], 1.0 - more[is_known])
    n = np.append(weight[is_known], weight[is_known])
    m = len(battles.models)
    total = np.bincount(side, n, m)
    with np.errstate(invalid="ignore"):
        shares = np.bincount(side, n * more_of_side, m) / total
    return dict(zip(battles.models, shares.tolist(), strict=True))


def style_support_reasons(
    battles: Battles, leader: Leader, features: Sequence[Feature]
) -> Iterator[Reason]:
    """Yield that one of the two entrants nearly always has more, or less, of a feature that the fit holds equal.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    leader : Leader
        The leader and the next entrant.
    features : sequence of str
        That the fit holds equal; none of a fit without a control.

    Returns
    -------
    iterator of Reason
        `support`, for the first feature and entrant of which this is so; its value is the share.
    """
    for feature in features:
        shares = shares_with_more(battles, feature)
        for model in (leader.model, leader.second):
            share = shares.get(model, 0.5)
            if min(share, 1.0 - share) < MIN_SUPPORT:
                about = {"model": model, "feature": feature}
                yield Reason(name="support", value=share, about=about)
                return
