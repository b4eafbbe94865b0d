"""From abilities and their covariance, in log-odds, to a leaderboard in rating points."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from elo_exp.data.battles import n_battles
from elo_exp.records import Battle
from elo_exp.results import Leaderboard, Rating, ranked
from elo_exp.statistics.likelihood import (
    POINTS,
    Array,
    Games,
    Index,
    Mask,
    information,
    win_probability,
)
from elo_exp.statistics.student import half_width

_FEW = 20  # prompts: from here on intervals hold the truth as often as they should
_WITHOUT_PROMPTS = {
    "prompt-clustered": "independent battles",
    "prompt bootstrap": "battle bootstrap",
}


def leaderboard(
    battles: Sequence[Battle],
    theta: Array,
    covariance: Array,
    *,
    method: str,
    label: str,
    interval: str = "prompt-clustered",
    initial_rating: float,
    flags: Mapping[int, str],
    played: Games,
    rated: Mask,
    n_matches: int,
    samples: Array | None = None,
    parameters: Mapping[str, float] | None = None,
) -> Leaderboard:
    """Ratings initial_rating + 173.7 theta with 95 % intervals by Student's t; none where the variance is NaN.

    theta       (r,) log-odds of the rated models
    covariance  (r, r) of them, as if each had met others on all prompts: see `_of_own_prompts`
    flags       why a model without a rating has none, by its number
    played      the games among the rated models
    rated       (m,) of the models of the battles, sorted by name
    n_matches   games that the method was given
    samples     (s, r) log-odds: the abilities of resamples
    """
    counts = n_battles(battles)
    if all(battle.question_id is None for battle in battles):
        interval = _WITHOUT_PROMPTS[interval]
    names = tuple(sorted(counts))
    n_prompts = played.clusters_met()
    covariance = spread(_of_own_prompts(covariance, theta, played, n_prompts), rated)
    error = POINTS * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found = dict(
        zip(
            np.flatnonzero(rated).tolist(),
            zip(theta.tolist(), n_prompts.tolist(), strict=True),
            strict=True,
        )
    )
    ratings = [
        with_interval(
            Rating(
                model=name,
                rating=initial_rating + POINTS * found[i][0],
                n_battles=counts[name],
                n_prompts=found[i][1],
            ),
            float(error[i]),
        )
        if i in found
        else Rating(model=name, rating=None, n_battles=counts[name], flag=flags[i])
        for i, name in enumerate(names)
    ]
    return Leaderboard(
        method=method,
        label=label,
        interval=interval,
        models=names,
        ratings=ranked(ratings),
        samples=None if samples is None else initial_rating + POINTS * _in_columns(samples, rated),
        n_matches=n_matches,
        covariance=POINTS**2 * covariance,
        parameters=parameters or {},
        n_clusters=played.n_clusters,
    )


def _of_own_prompts(covariance: Array, theta: Array, played: Games, n_prompts: Index) -> Array:
    """A covariance (r, r) from n prompts for models of which each has met others on n_prompts (r,) of them.

    An error is told by the prompts that a model was on. At the maximum its scores there add up to zero, so that k of
    them take k / (k - 1) in place of n / (n - 1); one alone is zero, and tells nothing: NaN. A few of many may be alike
    by chance: less than what independent games would leave is not believed of them.
    """
    n = played.n_clusters
    fewer = n_prompts < n
    if not fewer.any():
        return covariance
    k = np.where(n_prompts > 1, n_prompts, np.nan)
    factor = np.where(fewer, np.sqrt(k / (k - 1) * (n - 1) / n), 1.0)
    own = factor[:, None] * covariance * factor
    wins = played.wins()
    level = 1.0 / len(theta)
    independent = (
        np.diag(np.linalg.inv(information(win_probability(theta), wins + wins.T) + level)) - level
    )
    lacking = np.where(n_prompts < min(_FEW, n / 2), independent - np.diag(own), 0.0)
    return np.asarray(
        own + np.diag(np.fmax(lacking, 0.0)) / (1 - level) ** 2
    )  # of its distance to each of the others


def with_interval(rating: Rating, std_error: float, *, n_prompts: int | None = None) -> Rating:
    """With this error and a 95 % interval by Student's t, of its own or of so many prompts; without, if it is NaN."""
    if rating.rating is None or not math.isfinite(std_error):
        return dataclasses.replace(rating, std_error=None, ci_low=None, ci_high=None)
    width = half_width(rating.n_prompts if n_prompts is None else n_prompts) * std_error
    low, high = rating.rating - width, rating.rating + width
    return dataclasses.replace(rating, std_error=std_error, ci_low=low, ci_high=high)


def _in_columns(samples: Array, rated: Mask) -> Array:
    whole = np.full((len(samples), len(rated)), np.nan)
    whole[:, rated] = samples
    return whole


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
        i: "unbeaten"
        if not wins[:, i].any()
        else "winless"
        if not wins[i].any()
        else "disconnected"
        for i in range(len(wins))
    }
