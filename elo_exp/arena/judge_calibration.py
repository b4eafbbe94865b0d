"""The judge beside the humans: how often they agree, and how much more decisive one is than the others.

A judge that ties seldom and is sure of itself wins and loses more clearly than a crowd. Ratings by its verdicts then
stretch the distances between models that humans put closer together. Both are measured on human battles that the judge
has judged again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from elo_exp.analysis import agreement
from elo_exp.analysis.agreement import Agreement
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import POINTS, Fit
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle

_SCORE = {"model_a": 1.0, "model_b": 0.0}
_FEWEST = 10  # battles from which anything is estimated
_LARGEST = 10.0  # of a temperature: the chance is then within .00005 of certainty; and of a decisiveness
_FURTHEST = 20.0  # log-odds from the mean of the anchors
_STEPS = 60  # halvings
_FOLLOWS = 2.0  # standard errors above zero from which a judge is known to follow the order of the humans


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The judge on human battles that it has judged again.

    temperature     T in [0, 10]: a human prefers model_a with probability 1 / (1 + exp(-T margin)), the margin being
                    what the judge says, from -1 where both of its orders name model_b to 1 where both name model_a
    decisiveness    s: the judge prefers a to b with log-odds s (a - b), by the abilities that humans give them; above 1
                    its verdicts stretch distances, so many times
    on_human_scale  ratings of the placed models if the judge were as decisive as the humans

    None where there are too few battles, or where the judge does not follow the humans.
    """

    agreement: Agreement
    temperature: float | None
    decisiveness: float | None = None
    decisiveness_std_error: float | None = None
    on_human_scale: Mapping[str, float]


def calibrate(
    human: Sequence[Battle],
    again: Sequence[Battle],
    judged: Sequence[Battle],
    board: Leaderboard,
    *,
    judge_model: str,
) -> Calibration:
    """The judge beside the humans.

    human   all battles between anchors
    again   those of them that the judge has judged
    judged  its battles between placed models, model_a of each, and anchors; `board` rates them with the human ones
    """
    asked = {battle.question_id for battle in again}
    voted = [battle for battle in human if battle.question_id in asked]
    theta = _abilities(human)
    s, error = _decisiveness(again, theta)
    follows = s is not None and error is not None and s > _FOLLOWS * error
    return Calibration(
        agreement=agreement.kappa(
            Battles.from_rows(voted),
            Battles.from_rows(again),
            names=("humans", judge_model),
            dimension=again[0].dimension,
        ),
        temperature=temperature(voted, again),
        decisiveness=s,
        decisiveness_std_error=error,
        on_human_scale=_on_human_scale(judged, theta, board, s)
        if follows and s is not None
        else {},
    )


def temperature(human: Sequence[Battle], judged: Sequence[Battle]) -> float | None:
    """By maximum likelihood, from battles with a winner by both; 0 where the judge says nothing of what humans prefer,
    or the contrary."""
    margin = {question_and_pair(b): _margin(b) for b in judged}
    terms = [
        _sign(b) * m
        for b in human
        if not b.is_tie and (m := margin.get(question_and_pair(b)))
    ]
    if len(terms) < _FEWEST:
        return None
    agreed = np.array(terms)  # above zero where the judge names the winner of the human
    return _root(lambda t: float((agreed / (1.0 + np.exp(t * agreed))).sum()))


def question_and_pair(battle: Battle) -> tuple[str | None, str, str]:
    """What a judge is asked, whichever model is called a."""
    first, second = sorted((battle.model_a, battle.model_b))
    return battle.question_id, first, second


def _sign(battle: Battle) -> float:
    """1 where the first of the two by name won, -1 where the second did."""
    return (
        1.0
        if (battle.winner == "model_a") == (battle.model_a < battle.model_b)
        else -1.0
    )


def _margin(battle: Battle) -> float:
    """Of the first of the two by name."""
    margin = 2.0 * _share(battle) - 1.0
    return margin if battle.model_a < battle.model_b else -margin


def _share(battle: Battle) -> float:
    """What model_a has of its games in both orders."""
    said = battle.results(use="both")
    return math.fsum(_SCORE.get(winner, 0.5) for winner in said) / len(said)


def _abilities(human: Sequence[Battle]) -> dict[str, float]:
    """Log-odds of the models that have finite ones by the humans alone."""
    battles = Battles.from_rows(human)
    fit = Fit.of(games(battles, use="both"))
    rated = [
        name
        for name, is_rated in zip(battles.models, fit.rated, strict=True)
        if is_rated
    ]
    return dict(zip(rated, fit.theta.tolist(), strict=True))


def _decisiveness(
    again: Sequence[Battle], theta: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """With its prompt-clustered standard error."""
    known = [b for b in again if b.model_a in theta and b.model_b in theta]
    if len(known) < _FEWEST:
        return None, None
    gap = np.array([theta[b.model_a] - theta[b.model_b] for b in known])
    share = np.array([_share(b) for b in known])

    def surprise(s: float) -> Array:
        return np.asarray(share - 1.0 / (1.0 + np.exp(-s * gap)))

    s = _root(lambda s: float((gap * surprise(s)).sum()))
    p = share - surprise(s)
    information = float((gap**2 * p * (1.0 - p)).sum())
    by_prompt: dict[str | None, float] = {}
    for battle, score in zip(known, (gap * surprise(s)).tolist(), strict=True):
        by_prompt[battle.question_id] = by_prompt.get(battle.question_id, 0.0) + score
    return s, math.sqrt(
        math.fsum(score**2 for score in by_prompt.values())
    ) / information


def _on_human_scale(
    judged: Sequence[Battle], theta: Mapping[str, float], board: Leaderboard, s: float
) -> dict[str, float]:
    """Rating points; of the models that won and lost something, with the anchors where the humans have them."""
    points = {
        r.model: r.rating
        for r in board.ratings
        if r.rating is not None and r.model in theta
    }
    if not points:
        return {}
    level = math.fsum(
        rating - POINTS * theta[model] for model, rating in points.items()
    ) / len(points)
    found = {}
    for model in dict.fromkeys(battle.model_a for battle in judged):
        met = [
            battle
            for battle in judged
            if battle.model_a == model and battle.model_b in theta
        ]
        others = np.array([theta[battle.model_b] for battle in met])
        won = math.fsum(_share(battle) for battle in met)
        if 0.0 < won < len(met):
            ability = _root(
                partial(_still_won, won=won, others=others, s=s),
                low=-_FURTHEST,
                high=_FURTHEST,
            )
            found[model] = level + POINTS * ability
    return found


def _still_won(ability: float, *, won: float, others: Array, s: float) -> float:
    """Battles that were won beyond those that this ability foretells."""
    return won - float((1.0 / (1.0 + np.exp(s * (others - ability)))).sum())


def _root(
    falling: Callable[[float], float], low: float = 0.0, high: float = _LARGEST
) -> float:
    """Where a falling function is zero; the end that is nearer to it where it is so nowhere between low and high."""
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low
