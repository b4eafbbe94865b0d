"""How far ratings moved between two runs, and how certain that is when the runs share prompts.

A run's Bradley-Terry fit is, to first order, a sum of parts that its prompts have in it, H^-1 s_q,
whose outer products add up to the clustered covariance. A prompt of both runs has a part in both
fits: the variance of a shift is the sum over all prompts of the squared difference of the parts. It
is that of independent runs where no prompt is shared, and zero where the battles are the same.
Letters: m models; n prompts.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from elo_exp.arrays import Array, records
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import fit_columns
from elo_exp.ratings.fit import POINTS, bread, residuals
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile
from elo_exp.records import Record

_ROUNDING = 1e-3  # rating points: a smaller standard error is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Record):
    """How far one model moved, in rating points, against the mean of those rated in both runs.

    None where the prompts do not tell how certain it is.
    """

    model: str
    shift: float
    # over prompts; those of both runs are the same observations
    std_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this shift alone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Influence:
    """A Bradley-Terry fit with the part of each prompt in it, in rating points around the mean."""

    models: tuple[str, ...]  # those that are rated
    ratings: Array  # (m,), mean zero
    prompts: tuple[str, ...]  # (n,)
    parts: Array  # (n, m)


def influence(battles: Battles, *, orders: str) -> Influence | None:
    """Split a Bradley-Terry fit by prompt.

    Parameters
    ----------
    battles : Battles
        Of one dimension of a run.
    orders : str
        As of `games`.

    Returns
    -------
    Influence or None
        None where a battle names no prompt, nobody is rated, or there is one prompt.
    """
    fit = fit_columns(games(battles, orders=orders))
    played, n = fit.played, fit.played.n_clusters
    if n < 2 or battles.n_unnamed():
        return None
    parts, names = fit.parts, battles.unit_names
    if parts is None:
        scores = played.by_cluster(residuals(fit.theta, played))
        parts = np.asarray(scores @ bread(fit.theta, played))
    return Influence(
        models=tuple(battles.models[i] for i in np.flatnonzero(fit.rated).tolist()),
        ratings=POINTS * fit.theta,
        prompts=tuple(names[q] for q in played.prompts.tolist()),
        parts=POINTS * math.sqrt(n / (n - 1)) * parts,
    )


def verdicts(battles: Battles) -> Counter[tuple[str | float | None, ...]]:
    """Count the battles by all that they say, to compare those of two runs.

    Where one run's are among the other's, nothing but the choice of prompts can have moved a
    rating: there is no shift to test.

    Parameters
    ----------
    battles : Battles
        Of one dimension of a run.

    Returns
    -------
    Counter
        Of prompt, both models, winner and the verdicts of both orders; `<=` compares two of them.
    """
    counts = Counter[tuple[str | float | None, ...]]()
    for b in battles.rows():
        said = b.question_id, b.model_a, b.model_b, b.winner
        counts[*said, b.verdict_ab, b.verdict_ba, b.score] += b.count or 1
    return counts


def shifts(
    before: Mapping[str, float],
    after: Mapping[str, float],
    fits: tuple[Influence, Influence] | None = None,
) -> list[Shift]:
    """Compare the ratings of two runs, by model.

    Each run's scale is free, so that a shift is against the mean of those rated in both.

    Parameters
    ----------
    before, after : mapping of str to float
        Ratings by model, in rating points.
    fits : pair of Influence, optional
        Of both runs, with every model that both rate: for intervals and t tests.

    Returns
    -------
    list of Shift
        In rating points, in the order of `before`; empty where fewer than two models are rated in both.
        A shift has no error where no fits are given, or where they do not differ.
    """
    shared = [model for model in before if model in after]
    if len(shared) < 2:
        return []
    moved = np.array([after[model] - before[model] for model in shared])
    moved -= moved.mean()
    std_error, half_width, p_value = np.full((3, len(shared)), np.nan)
    if fits is not None:
        parts = _moving_parts(shared, *fits)
        df = degrees_of_freedom(float(parts.any(axis=1).sum()))
        std_error = np.sqrt((parts**2).sum(axis=0))
        std_error[std_error < _ROUNDING] = np.nan
        half_width = t_quantile(df) * std_error
        p_value = 2.0 * scipy.special.stdtr(df, -np.abs(moved / std_error))
    return records(
        Shift,
        model=shared,
        shift=moved,
        std_error=std_error,
        ci_low=moved - half_width,
        ci_high=moved + half_width,
        p_value=p_value,
    )


def _moving_parts(models: Sequence[str], before: Influence, after: Influence) -> Array:
    """What each prompt of either run (n,) moves these models (m,) by, against their mean."""
    prompts = dict.fromkeys([*before.prompts, *after.prompts])
    place = {prompt: q for q, prompt in enumerate(prompts)}
    parts = np.zeros((len(place), len(models)))
    for fit, sign in ((before, -1.0), (after, 1.0)):
        columns = fit.parts[:, [fit.models.index(model) for model in models]]
        rows = [place[prompt] for prompt in fit.prompts]
        parts[rows] += sign * (columns - columns.mean(axis=1, keepdims=True))
    return parts
