"""The judge beside the humans: how often they agree, and what its verdicts allow to be said.

A judge that ties seldom and is sure of itself wins and loses more clearly than a crowd, and it has
tastes of its own. Both are measured on human battles that the judge has judged again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from elo_exp.analysis import agreement
from elo_exp.analysis.agreement import Agreement
from elo_exp.analysis.win_rates import in_name_order
from elo_exp.arena import joint_fit
from elo_exp.arena.joint_fit import JointFit
from elo_exp.arrays import Array
from elo_exp.data.battles import SCORES, Battles

MIN_ANCHORS = 4  # from which a judge can be calibrated
_MIN_PROMPTS = 20  # from here on intervals cover the truth as often as they should
_MIN_BATTLES = 10  # from which a temperature is estimated
_MAX_TEMPERATURE = 10.0  # chances are then within .00005 of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The judge on human battles that it has judged again.

    temperature  T in [0, 10]: a human prefers model_a with probability 1 / (1 + exp(-T margin)),
                 where margin is 1 if both orders of the judge name model_a, -1 if both model_b;
                 None with too few battles
    """

    agreement: Agreement
    temperature: float | None
    fit: JointFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Whether the calibrated rating of a placed model may be reported, and why not or with care."""

    status: Literal["report", "caution", "refuse"]
    reason: str | None = None


def calibrate(
    human: Battles,
    again: Battles,
    judged: Battles,
    placed: Sequence[str],
    *,
    judge_model: str,
    dimension: str | None = None,
) -> Calibration:
    """Compare a judge with humans.

    human   all battles between anchors
    again   those of them that the judge has judged
    judged  its battles between placed models, model_a of each, and anchors
    """
    asked = np.isin(human.questions, again.questions)
    voted = human.select(asked[human.question])
    return Calibration(
        agreement=agreement.kappa(
            voted,
            again,
            names=("humans", judge_model),
            dimension=dimension,
        ),
        temperature=temperature(voted, again),
        fit=joint_fit.fit(human, again, judged, placed),
    )


def reliability(
    found: JointFit | None, model: str, flag: str | None = None
) -> Reliability:
    """Decide whether the rating of a placed model is reported.

    Refused where Fieller's interval of phi / s is unbounded: a judge at chance passes in 2.5 %.

    found  None where no human battle was judged again
    flag   why the judge's verdicts give the model no rating
    """
    if reason := refusal(found):
        return Reliability(status="refuse", reason=reason)
    if flag:
        return Reliability(status="refuse", reason=f"{flag} by the judge's verdicts")
    assert found is not None
    if cautions := list(_cautions(found, model)):
        return Reliability(status="caution", reason="; ".join(cautions))
    return Reliability(status="report")


def refusal(found: JointFit | None) -> str | None:
    """Return why a judge so calibrated places no model; None where it may."""
    if found is None:
        return (
            "the judge has judged no human battle again, so nothing calibrates it: give it more "
            "pairs, or take its own scale with arena.placement=raw"
        )
    if found.n_anchors < MIN_ANCHORS:
        return f"{found.n_anchors} anchors, and {MIN_ANCHORS} are needed to calibrate the judge"
    z = found.s / found.s_std_error
    if z <= found.t:
        return (
            f"the judge is not known to follow the humans: it sees {found.s:.2f} ± "
            f"{found.s_std_error:.2f} of their distances, {z:.1f} standard errors from 0 where "
            f"more than {found.t:.1f} are needed"
        )
    # Where a judge always prefers the same models, s is at its bounds and its error means nothing.
    least = found.t / math.sqrt(found.df + found.t**2)
    if found.correlation <= least:
        return (
            "the judge is not known to follow the humans: its abilities of the anchors correlate "
            f"with theirs at {found.correlation:.2f}, where more than {least:.2f} is needed"
        )
    return None


def _cautions(found: JointFit, model: str) -> Iterator[str]:
    place = found.models.index(model)
    anchors = found.theta[found.is_anchor]
    if found.t * found.covariance[place, place] ** 0.5 >= 1.96 * found.omega:
        yield "the interval says no more than that it is one of these models"
    if not anchors.min() <= found.theta[place] <= anchors.max():
        yield "it is beyond all anchors, where nothing calibrates the judge"
    n_prompts = min(found.n_prompts["calibration"], found.n_prompts[model])
    if n_prompts < _MIN_PROMPTS:
        yield f"its verdicts are on {n_prompts} prompts, fewer than {_MIN_PROMPTS}"


def temperature(
    human: Battles, judged: Battles, margins: Array | None = None
) -> float | None:
    """Estimate T by maximum likelihood, from battles with a winner by both.

    0 where the judge's verdicts say nothing of what humans prefer, or the contrary.

    margins  (n,) of the model of each judged battle that is the first by name; None: its verdicts
    """
    human, judged = in_name_order(human), in_name_order(judged)
    if margins is None:
        margins = 2.0 * _shares(judged) - 1.0
    (voted, answered), _ = agreement.comparison_codes([human, judged])
    votes: dict[int, list[float]] = {}
    for code, score in zip(voted.tolist(), human.scores().tolist(), strict=True):
        votes.setdefault(code, []).append(2.0 * score - 1.0)
    pairs = zip(answered.tolist(), margins.tolist(), strict=True)
    agreed = np.array(
        [v * margin for code, margin in pairs for v in votes.get(code, ())]
    )
    agreed = agreed[agreed != 0.0]
    if len(agreed) < _MIN_BATTLES:
        return None
    found = optimize.minimize_scalar(
        lambda t: np.logaddexp(0.0, -t * agreed).sum(),
        bounds=(0.0, _MAX_TEMPERATURE),
        options={"xatol": 1e-9},
    )
    return round(float(found.x), 6)  # to the ends of the range, which are not tried


def _shares(battles: Battles) -> Array:
    """What model_a scores (n,), on average over both orders where both were judged."""
    twice = (battles.verdict_ab >= 0) & (battles.verdict_ba >= 0)
    both = (SCORES[battles.verdict_ab] + SCORES[battles.verdict_ba]) / 2.0
    return np.where(twice, both, battles.scores())
