"""Other ways to say what a leaderboard says: by percentiles of its resamples, or with one model's rating fixed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from elo_exp.records import UserError
from elo_exp.results import Leaderboard, Rating
from elo_exp.statistics.boards import with_interval
from elo_exp.statistics.likelihood import Array

_ENDS = (2.5, 97.5)  # percentiles


def with_percentiles(board: Leaderboard) -> Leaderboard:
    """The ratings as they are, with 95 % intervals from the percentiles of the resamples in place of normal ones.

    A rating without an interval stays without one.
    """
    samples = board.samples
    if samples is None or not len(samples):
        return board
    column = {model: i for i, model in enumerate(board.models)}
    ratings = tuple(
        r if r.ci_low is None else _between(r, samples[:, column[r.model]]) for r in board.ratings
    )
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
        raise UserError(
            f"baseline_model: {model!r} has no rating here. Expected a rated model, such as {rated}."
        )
    fixed = board.models.index(model)
    covariance, samples = board.covariance, board.samples
    distances = None
    if covariance is not None:
        column = covariance[:, [fixed]]
        distances = covariance - column - column.T + covariance[fixed, fixed]
        if math.isfinite(
            covariance[fixed, fixed]
        ):  # else nothing is known of distances to it, and of others as before
            covariance = distances
    if samples is not None:
        samples = samples - samples[:, [fixed]] + at
    variance = (
        {}
        if distances is None
        else dict(zip(board.models, np.diag(distances).tolist(), strict=True))
    )
    n_prompts = board.rating(model).n_prompts
    moved = tuple(
        _moved(r, at - rating, variance.get(r.model, math.nan), n_prompts) for r in board.ratings
    )
    return dataclasses.replace(board, ratings=moved, covariance=covariance, samples=samples)


def _moved(rating: Rating, by: float, variance: float, n_prompts: int | None) -> Rating:
    """By so much, and with an interval of the distance to a model that met others on so many prompts."""
    if rating.rating is None:
        return rating
    moved = dataclasses.replace(rating, rating=rating.rating + by)
    error = math.sqrt(variance) if variance > 0.0 else variance
    known = [n for n in (rating.n_prompts, n_prompts) if n is not None]
    return with_interval(moved, 0.0 if error < 0.0 else error, n_prompts=min(known, default=None))
