"""The judge beside the humans: how often they agree, and how much more decisive the judge is.

A judge that ties seldom and is sure of itself wins and loses more clearly than a crowd. Ratings by
its verdicts then stretch the distances between models that humans put closer together. Both are
measured on human battles that the judge has judged again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize, special

from elo_exp.analysis import agreement
from elo_exp.analysis.agreement import Agreement
from elo_exp.analysis.win_rates import in_name_order
from elo_exp.arrays import Array
from elo_exp.data.battles import SCORES, Battles
from elo_exp.ratings.bradley_terry import POINTS, Fit
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard

_FEWEST = 10  # battles from which anything is estimated
_LARGEST = 10.0  # temperature or decisiveness: chances are then within .00005 of 1
_FURTHEST = 20.0  # log-odds from the mean of the anchors
_FOLLOWS = (
    2.0  # standard errors above 0 from which a judge is known to follow the humans
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The judge on human battles that it has judged again.

    temperature     T in [0, 10]: a human prefers model_a with probability 1 / (1 + exp(-T margin)),
                    where margin is 1 if both orders of the judge name model_a, -1 if both model_b
    decisiveness    s: the judge prefers a to b with log-odds s (a - b), by the abilities that
                    humans give them; above 1 its verdicts stretch distances, so many times
    on_human_scale  ratings of the placed models if the judge were as decisive as the humans

    None, or no models, with too few battles or for a judge that does not follow the humans.
    """

    agreement: Agreement
    temperature: float | None
    decisiveness: float | None = None
    decisiveness_std_error: float | None = None
    on_human_scale: Mapping[str, float] = field(default_factory=dict)


def calibrate(
    human: Battles,
    again: Battles,
    judged: Battles,
    board: Leaderboard,
    *,
    judge_model: str,
    dimension: str | None = None,
) -> Calibration:
    """Compare a judge with humans.

    human   all battles between anchors
    again   those of them that the judge has judged
    judged  its battles between placed models, model_a of each, and anchors; `board` rates them
            together with the human ones
    """
    asked = np.isin(human.questions, again.questions)
    voted = human.select(asked[human.question])
    fit = Fit.of(games(human, orders="both"))
    rated = np.array(human.models)[fit.rated].tolist()
    theta = dict(zip(rated, fit.theta.tolist(), strict=True))
    s, std_error = _decisiveness(again, theta)
    return Calibration(
        agreement=agreement.kappa(
            voted,
            again,
            names=("humans", judge_model),
            dimension=dimension,
        ),
        temperature=temperature(voted, again),
        decisiveness=s,
        decisiveness_std_error=std_error,
        on_human_scale=_on_human_scale(judged, theta, board, s)
        if s is not None and std_error is not None and s > _FOLLOWS * std_error
        else {},
    )


def temperature(human: Battles, judged: Battles) -> float | None:
    """Estimate T by maximum likelihood, from battles with a winner by both.

    0 where the judge's verdicts say nothing of what humans prefer, or the contrary.
    """
    human, judged = in_name_order(human), in_name_order(judged)
    (voted, answered), _ = agreement.comparison_codes([human, judged])
    margins = dict(
        zip(answered.tolist(), (2.0 * _shares(judged) - 1.0).tolist(), strict=True)
    )
    margin = np.array([margins.get(code, 0.0) for code in voted.tolist()])
    agreed = (2.0 * human.scores() - 1.0) * margin
    agreed = agreed[agreed != 0.0]
    if len(agreed) < _FEWEST:
        return None
    return _root(lambda t: float((agreed * special.expit(-t * agreed)).sum()))


def _shares(battles: Battles) -> Array:
    """What model_a scores (n,), on average over both orders where both were judged."""
    twice = (battles.verdict_ab >= 0) & (battles.verdict_ba >= 0)
    both = (SCORES[battles.verdict_ab] + SCORES[battles.verdict_ba]) / 2.0
    return np.where(twice, both, battles.scores())


def _ability(battles: Battles, theta: Mapping[str, float]) -> Array:
    """Log-odds (m,) of the models; NaN for one that humans do not rate."""
    return np.array([theta.get(model, math.nan) for model in battles.models])


def _decisiveness(
    again: Battles, theta: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """s by logistic regression through the origin, and its prompt-clustered standard error."""
    ability = _ability(again, theta)
    gap = ability[again.model_a] - ability[again.model_b]
    known = np.isfinite(gap)
    gap, share, prompt = gap[known], _shares(again)[known], again.question[known]
    if len(gap) < _FEWEST:
        return None, None
    s = _root(lambda s: float((gap * (share - special.expit(s * gap))).sum()))
    p = special.expit(s * gap)
    by_prompt = np.bincount(prompt, gap * (share - p))
    information = (gap**2 * p * (1.0 - p)).sum()
    return s, float(math.sqrt((by_prompt**2).sum()) / information)


def _on_human_scale(
    judged: Battles, theta: Mapping[str, float], board: Leaderboard, s: float
) -> dict[str, float]:
    """Rating points of placed models that won and lost, with the anchors where humans put them."""
    levels = [
        r.rating - POINTS * theta[r.model]
        for r in board.ratings
        if r.rating is not None and r.model in theta
    ]
    if not levels:
        return {}
    level = math.fsum(levels) / len(levels)
    opponent, share = _ability(judged, theta)[judged.model_b], _shares(judged)
    found = {}
    for placed in dict.fromkeys(judged.model_a.tolist()):
        met = (judged.model_a == placed) & np.isfinite(opponent)
        ability = _ability_against(opponent[met], share[met], s)
        if ability is not None:
            found[judged.models[placed]] = level + POINTS * ability
    return found


def _ability_against(opponents: Array, share: Array, s: float) -> float | None:
    """Log-odds that explain the shares (n,) won; None where all or nothing was won."""
    won = float(share.sum())
    if not 0.0 < won < len(share):
        return None
    return _root(
        lambda ability: won - float(special.expit(s * (ability - opponents)).sum()),
        -_FURTHEST,
        _FURTHEST,
    )


def _root(
    falling: Callable[[float], float], low: float = 0.0, high: float = _LARGEST
) -> float:
    """Where a falling function is zero; the nearer end where it is so nowhere in between."""
    if falling(low) <= 0.0:
        return low
    if falling(high) >= 0.0:
        return high
    return float(optimize.brentq(falling, low, high, xtol=1e-12))
