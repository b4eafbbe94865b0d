"""From abilities and their covariance, in log-odds, to a leaderboard in rating points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from elo_exp.battles import n_battles
from elo_exp.records import Battle, UserError
from elo_exp.results import Leaderboard, Rating, ranked
from elo_exp.statistics.likelihood import POINTS, Array, Mask
from elo_exp.statistics.student import half_width

_MAX_INITIAL_RATING = 1_000_000


def leaderboard(
    battles: Sequence[Battle],
    theta: Array,
    covariance: Array,
    *,
    method: str,
    initial_rating: float,
    flags: Mapping[int, str],
    n_matches: int,
    n_clusters: int,
    samples: Array | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Leaderboard:
    """Ratings initial_rating + 173.7 theta with 95 % intervals by Student's t; none where the variance is NaN.

    theta       (m,) log-odds of the models of the battles, sorted by name; NaN for one that has no finite ability
    covariance  (m, m) of them
    flags       why a model without a rating has none, by its number
    samples     (s, m) log-odds: the abilities of resamples
    """
    counts = n_battles(battles)
    names = tuple(sorted(counts))
    error = POINTS * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    width = half_width(n_clusters)
    ratings = [
        _rating(name, initial_rating + POINTS * float(theta[i]), float(error[i]), width, n_battles=counts[name])
        if math.isfinite(theta[i])
        else Rating(model=name, rating=None, n_battles=counts[name], flag=flags[i])
        for i, name in enumerate(names)
    ]
    return Leaderboard(
        method=method,
        models=names,
        ratings=ranked(ratings),
        samples=None if samples is None else initial_rating + POINTS * samples,
        n_matches=n_matches,
        covariance=POINTS**2 * covariance,
        parameters=parameters or {},
        n_clusters=n_clusters,
    )


def _rating(name: str, rating: float, std_error: float, width: float, *, n_battles: int) -> Rating:
    if not math.isfinite(std_error):
        return Rating(model=name, rating=rating, n_battles=n_battles)
    return Rating(
        model=name,
        rating=rating,
        std_error=std_error,
        ci_low=rating - width * std_error,
        ci_high=rating + width * std_error,
        n_battles=n_battles,
    )


def spread(part: Array, chosen: Mask) -> Array:
    """A vector or a matrix over the chosen models, as one over all (m,) or (m, m) with NaN for the others."""
    whole = np.full((len(chosen),) * part.ndim, np.nan)
    whole[np.ix_(*(chosen,) * part.ndim)] = part
    return whole


def why_unrated(wins: Array) -> dict[int, str]:
    """By number: unbeaten for a model that never lost nor tied, winless for one that never won nor tied, else
    disconnected: no chain of wins or ties leads from it to the rated models and back. wins (m, m), ties counting half.
    """
    return {
        i: "unbeaten" if not wins[:, i].any() else "winless" if not wins[i].any() else "disconnected"
        for i in range(len(wins))
    }


def check_initial_rating(value: float) -> None:
    """Raise UserError for a middle of the scale so far out that differences would be lost to rounding."""
    if not math.isfinite(value):
        raise UserError(f"initial_rating: found {value}. Expected a finite number.")
    if abs(value) > _MAX_INITIAL_RATING:
        raise UserError(f"initial_rating: found {value:g}. Expected at most {_MAX_INITIAL_RATING} points from 0.")
