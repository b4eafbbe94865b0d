"""Other ways to say what a leaderboard says: by percentiles of its resamples, or with one model's rating fixed."""

from __future__ import annotations

import dataclasses

import numpy as np

from elo_exp.records import UserError
from elo_exp.results import Leaderboard, Rating
from elo_exp.statistics.likelihood import Array
from elo_exp.statistics.student import half_width

_ENDS = (2.5, 97.5)  # percentiles


def with_percentiles(board: Leaderboard) -> Leaderboard:
    """The ratings as they are, with 95 % intervals from the percentiles of the resamples in place of normal ones.

    A rating without an interval stays without one.
    """
    samples = board.samples
    if samples is None or not len(samples):
        return board
    column = {model: i for i, model in enumerate(board.models)}
    ratings = tuple(r if r.ci_low is None else _between(r, samples[:, column[r.model]]) for r in board.ratings)
    return dataclasses.replace(board, ratings=ratings)


def _between(rating: Rating, samples: Array) -> Rating:
    low, high = np.percentile(samples, _ENDS).tolist()
    return dataclasses.replace(rating, ci_low=low, ci_high=high)


def pinned(board: Leaderboard, model: str, at: float) -> Leaderboard:
    """The leaderboard on the scale on which one model is rated so, and has no error: errors are of the distance to it.

    Raises UserError where the model is not rated.
    """
    if model not in board.models or (rating := board.rating(model).rating) is None:
        rated = ", ".join(r.model for r in board.ratings[:5] if r.rating is not None)
        raise UserError(f"baseline_model: {model!r} has no rating here. Expected a rated model, such as {rated}.")
    fixed = board.models.index(model)
    covariance, samples = board.covariance, board.samples
    if covariance is not None:
        column = covariance[:, [fixed]]
        covariance = covariance - column - column.T + covariance[fixed, fixed]
    if samples is not None:
        samples = samples - samples[:, [fixed]] + at
    variance = {} if covariance is None else dict(zip(board.models, np.diag(covariance).tolist(), strict=True))
    width = half_width(board.n_clusters)
    moved = tuple(_moved(r, at - rating, variance.get(r.model), width) for r in board.ratings)
    return dataclasses.replace(board, ratings=moved, covariance=covariance, samples=samples)


def _moved(rating: Rating, by: float, variance: float | None, width: float) -> Rating:
    if rating.rating is None:
        return rating
    points = rating.rating + by
    if rating.std_error is None or variance is None:
        return dataclasses.replace(rating, rating=points)
    error = max(variance, 0.0) ** 0.5
    return dataclasses.replace(
        rating, rating=points, std_error=error, ci_low=points - width * error, ci_high=points + width * error
    )
