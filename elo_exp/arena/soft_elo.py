"""Soft Elo: by how far apart a judge's scores of two answers are, in place of who wins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from elo_exp.arena.judge_calibration import temperature
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import Fit, leaderboard
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment


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
