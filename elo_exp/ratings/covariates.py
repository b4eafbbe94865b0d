"""Bradley-Terry with columns beside the abilities: position, length, style.

logit P(i beats j) = theta_i - theta_j + sum of effect x, with errors clustered by prompt. Letters: g
games; m models; k columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from elo_exp.arrays import Array, Mask, known
from elo_exp.data.battles import Battles
from elo_exp.data.style import FEATURES
from elo_exp.ratings.bradley_terry import (
    POINTS,
    Fit,
    bread,
    logistic,
    mean_zero,
    sandwich,
    strongest_component,
)
from elo_exp.ratings.games import Games
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile

# log-odds of a game: as certain only if the maximum lies at infinity
_LARGEST_GAP = 25.0
# of a column's sum of squares: what rounding leaves of one that is explained
_COLLINEAR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CovariateFit:
    """Abilities and the effects of columns at the maximum of the likelihood, in log-odds.

    The effect of a column is NaN where the models or the columns before it explain it. All is NaN
    where no column is left, or where the maximum is not finite, as with columns that decide every
    game; errors also where the prompts do not differ.
    """

    rated: Mask  # (models,): the m models that have a finite ability together
    theta: Array  # (m,), mean zero
    effects: Array  # (k,)
    covariance: Array  # (m + k, m + k), clustered by prompt
    parts: Array | None  # (n, m) of Fit
    half_width: float  # standard errors on each side of a 95 % interval

    @property
    def std_error(self) -> Array:
        """Of the abilities and the effects (m + k,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def intervals(self) -> tuple[Array, Array]:
        """Return the ends of the effects' 95 % intervals, each (k,)."""
        half = self.half_width * self.std_error[len(self.theta) :]
        return self.effects - half, self.effects + half

    @classmethod
    def of(cls, games: Games, columns: Array) -> CovariateFit:
        """Fit by maximum likelihood; columns (g, k) are oriented towards the first of each game."""
        rated = strongest_component(games.wins())
        played = games.among(rated)
        x = columns[rated[games.first] & rated[games.second]]
        m, n_parameters = played.n_models, played.n_models + x.shape[1]
        parameters = np.full(n_parameters, np.nan)
        covariance = np.full((n_parameters, n_parameters), np.nan)
        parts = None
        if kept := _identified(played, x):
            own, x = np.append(np.arange(m), m + np.array(kept)), x[:, kept]
            ones, level = np.ones(len(x)), mean_zero(m, len(own))
            of_columns = np.broadcast_to(np.arange(m, len(own)), x.shape)
            place = np.column_stack([played.first, played.second, of_columns])
            entry = np.column_stack([ones, -ones, x])
            found, information, _ = logistic(
                place,
                entry,
                ones,
                played.score,
                level,
                np.zeros(len(own)),
                largest=_LARGEST_GAP,
            )
            gap = (entry * found[place]).sum(axis=1)
            if np.abs(gap).max() < _LARGEST_GAP - 1.0:
                residual = played.score - special.expit(gap)
                by_cluster = played.by_cluster(residual, *(x.T * residual))
                inverse = np.linalg.inv(information) - level
                parts = (by_cluster @ inverse)[:, :m]
                error = sandwich(inverse, by_cluster, m)
                parameters[own], covariance[np.ix_(own, own)] = found, error
        return cls(
            rated=rated,
            theta=parameters[:m],
            effects=parameters[m:],
            covariance=covariance,
            parts=parts,
            half_width=float(t_quantile(degrees_of_freedom(games.n_clusters))),
        )


def fit_columns(every: Games, style: Mapping[str, Array] | None = None) -> Fit:
    """Fit Bradley-Terry, with a position effect where one order alone was judged, and with style.

    style  columns (g,) by name
    Effects and their errors are the fit's parameters: of position in log-odds, of style in rating
    points; None for one that cannot be told, as its column does not vary.
    """
    fit, columns = Fit.of(every), dict(style or {})
    if every.is_one_order:
        columns["position"] = every.shown
    if not columns:
        return fit
    found = CovariateFit.of(every, np.stack(list(columns.values()), axis=1))
    m, parameters = len(found.theta), dict[str, float | None]()
    for k, name in enumerate(columns):
        unit = 1.0 if name == "position" else POINTS
        parameters[name] = known(unit * found.effects[k])
        parameters[f"{name}_std_error"] = known(unit * found.std_error[m + k])
    if np.isnan(found.effects).all():
        return replace(fit, parameters=parameters)
    return replace(
        fit,
        theta=found.theta,
        covariance=found.covariance[:m, :m],
        parameters=parameters,
        parts=found.parts,
    )


def style_columns(battles: Battles, features: Sequence[str]) -> dict[str, Array]:
    """Return columns (n,) of the style of model_a against model_b, by name.

    (a - b) / (a + b + 1) of the counts of both, as FastChat has it, over its root mean square: not
    centred, so that it turns its sign where the sides are swapped. Votes and verdicts have columns
    of their own.
    """
    of_a, of_b = np.moveaxis(battles.style(), 1, 0)
    ratio = (of_a - of_b) / (of_a + of_b + 1.0)
    is_vote = np.array([*battles.sources, ""])[battles.source] == "human"
    found = {}
    for whose, chosen in (("votes", is_vote), ("verdicts", ~is_vote)):
        for feature in features if chosen.any() else ():
            x = np.where(chosen, ratio[:, FEATURES.index(feature)], 0.0)
            rms = math.sqrt((x**2).sum() / chosen.sum())
            found[f"style_{feature}_{whose}"] = x / (rms or 1.0)
    return found


def _identified(played: Games, x: Array) -> list[int]:
    """Number the columns that neither the models nor the columns before them explain."""
    cross = np.array([played.by_cluster(column).sum(axis=0) for column in x.T])
    inverse = bread(np.zeros(played.n_models), played) / 4.0  # all are equals
    left, kept = x.T @ x - cross @ inverse @ cross.T, []
    for k, column in enumerate(x.T):
        if left[k, k] > _COLLINEAR * (column @ column):
            kept.append(k)
            left = left - np.outer(left[k], left[k]) / left[k, k]
    return kept
