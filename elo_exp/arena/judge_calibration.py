"""The judge beside the humans: how often they agree, and what its verdicts allow to be said.

A judge that ties seldom and is sure of itself wins and loses more clearly than a crowd, and it has
tastes of its own. Both are measured on human battles that the judge has judged again.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import optimize, special

from elo_exp.analysis.agreement import comparison_codes
from elo_exp.analysis.win_rates import in_name_order
from elo_exp.arena.joint_fit import JointFit
from elo_exp.arrays import Array
from elo_exp.data.battles import SCORES, Battles
from elo_exp.ratings.bradley_terry import Fit, leaderboard
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment

MIN_ANCHORS = 4  # from which a judge can be calibrated
_MIN_PROMPTS = 20  # from here on intervals cover the truth as often as they should
_MIN_BATTLES = 10  # from which a temperature is estimated
_MAX_TEMPERATURE = 10.0  # chances are then within .00005 of 1


def reliability(
    fit: JointFit | None, model: str, flag: str | None = None
) -> dict[str, str | None]:
    """Return the status of a placed model, report, caution or refuse, and the reason.

    Refused where Fieller's interval of phi / s is unbounded: a judge at chance passes in 2.5 %.

    fit   None where no human battle was judged again
    flag  why the judge's verdicts give the model no rating
    """
    reason = refusal(fit) or (flag and f"{flag} by the judge's verdicts")
    if fit is None or reason:
        return {"status": "refuse", "reason": reason}
    reason = "; ".join(_cautions(fit, model)) or None
    return {"status": "caution" if reason else "report", "reason": reason}


def refusal(fit: JointFit | None) -> str | None:
    """Return why a judge so calibrated places no model; None where it may."""
    if fit is None:
        return (
            "the judge has judged no human battle again, so nothing calibrates it: give it more "
            "pairs, or take its own scale with arena.placement=raw"
        )
    if fit.n_anchors < MIN_ANCHORS:
        return f"{fit.n_anchors} anchors, and {MIN_ANCHORS} are needed to calibrate the judge"
    z = fit.s / fit.s_std_error
    if z <= fit.t:
        return (
            f"the judge is not known to follow the humans: it sees {fit.s:.2f} ± "
            f"{fit.s_std_error:.2f} of their distances, {z:.1f} standard errors from 0 where "
            f"more than {fit.t:.1f} are needed"
        )
    # Where a judge always prefers the same models, s is at its bounds and its error means nothing.
    least = fit.t / math.sqrt(fit.df + fit.t**2)
    if fit.correlation <= least:
        return (
            "the judge is not known to follow the humans: its abilities of the anchors correlate "
            f"with theirs at {fit.correlation:.2f}, where more than {least:.2f} is needed"
        )
    return None


def _cautions(fit: JointFit, model: str) -> Iterator[str]:
    place = fit.models.index(model)
    anchors = fit.theta[fit.is_anchor]
    if fit.t * fit.covariance[place, place] ** 0.5 >= 1.96 * fit.omega:
        yield "the interval says no more than that it is one of these models"
    if not anchors.min() <= fit.theta[place] <= anchors.max():
        yield "it is beyond all anchors, where nothing calibrates the judge"
    n_prompts = min(fit.n_prompts["calibration"], fit.n_prompts[model])
    if n_prompts < _MIN_PROMPTS:
        yield f"its verdicts are on {n_prompts} prompts, fewer than {_MIN_PROMPTS}"


def temperature(
    human: Battles, judged: Battles, margins: Array | None = None
) -> float | None:
    """Estimate T in [0, 10]: a human prefers model_a with probability 1 / (1 + exp(-T margin)).

    By maximum likelihood, from battles with a winner by both; None for too few. 0 where the judge's
    verdicts say nothing of what humans prefer, or the contrary.

    margins  (n,) of the model of each judged battle that is the first by name; None: 1 where both
             orders of the judge name it, -1 where both name the other
    """
    human, judged = in_name_order(human), in_name_order(judged)
    if margins is None:
        twice = (judged.verdict_ab >= 0) & (judged.verdict_ba >= 0)
        both = SCORES[judged.verdict_ab] + SCORES[judged.verdict_ba]
        margins = np.where(twice, both, 2.0 * judged.scores()) - 1.0
    (voted, answered), _ = comparison_codes([human, judged])
    vote, verdict = np.nonzero(voted[:, None] == answered)
    agreed = (2.0 * human.scores()[vote] - 1.0) * margins[verdict]
    agreed = agreed[agreed != 0.0]
    if len(agreed) < _MIN_BATTLES:
        return None
    found = optimize.minimize_scalar(
        lambda t: np.logaddexp(0.0, -t * agreed).sum(),
        bounds=(0.0, _MAX_TEMPERATURE),
        options={"xatol": 1e-9},
    )
    return round(float(found.x), 6)  # to the ends of the range, which are not tried


def soft_elo(
    judgments: Sequence[Judgment],
    human: Battles,
    placed: Collection[str],
    *,
    soft: float | str,
    initial_rating: float,
) -> Leaderboard | None:
    """Rate models by preferences 1 / (1 + exp(-T (s_a - s_b))) from the judge's scores s, 0 to 10.

    Each order is a game, but for those without scores; human votes are games, too.

    judgments  of placed models, and of the human battles that calibrate T
    soft       T; or calibrated: by the likelihood of untied human battles
    Returns the leaderboard on the judge's scale; None where too few battles calibrate T.
    """
    judged, gaps = _scored([j for j in judgments if j.entrant_a in placed])
    t: float | None = None if isinstance(soft, str) else soft
    if t is None:
        again = [j for j in judgments if j.entrant_a not in placed]
        t = temperature(human, *_scored(again))
    if t is None or not len(judged):
        return None
    every = replace(judged, score=special.expit(t * gaps)).concatenate(human)
    fit = Fit.of(games(every, orders="reconciled"))
    return leaderboard(
        replace(fit, parameters={"temperature": t}),
        every,
        label="Soft Elo",
        interval="prompt-clustered",
        initial_rating=initial_rating,
    )


def _scored(judgments: Sequence[Judgment]) -> tuple[Battles, Array]:
    """Each order with scores as a battle, and how much more model_a, the first by name, has."""
    rows, gaps = [], []
    for judgment in judgments:
        a, b = sorted((judgment.entrant_a, judgment.entrant_b))
        battle = Battle(
            model_a=a, model_b=b, winner="tie", question_id=judgment.prompt_id
        )
        for verdict in judgment.orders:
            if verdict.scores is not None:
                first, second = verdict.scores
                is_turned = verdict.position_swap != (a != judgment.entrant_a)
                gaps.append(second - first if is_turned else first - second)
                rows.append(battle)
    return Battles.from_rows(rows), np.array(gaps)
