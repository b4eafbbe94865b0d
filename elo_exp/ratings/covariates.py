"""Bradley-Terry with columns beside the abilities: position, length, style.

logit P(i beats j) = theta_i - theta_j + sum of effect x, with errors clustered by prompt. Letters: g
games; m models; k columns.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from elo_exp.arrays import Array, none_if_nan
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import FEATURES
from elo_exp.ratings.fit import (
    POINTS_PER_LOG_ODDS,
    Fit,
    fit_logistic,
    inverse_information,
    mean_zero_constraint,
    sandwich,
)
from elo_exp.ratings.games import Games

# A game is as certain only if the maximum lies at infinity.
_MAX_GAP_LOG_ODDS = 25.0
# Rounding leaves less of a column that the others explain.
_MAX_COLLINEAR_SHARE = 1e-9


def with_columns(
    fit: Fit, all_games: Games, columns: Array
) -> tuple[Fit, Array, Array]:
    """Fit columns together with the abilities.

    Parameters
    ----------
    fit : Fit
        Of the same games without columns: r rated models.
    all_games : Games
        All g games.
    columns : Array, shape (g, k)
        Oriented towards the first of each game: their signs turn where the sides are swapped.

    Returns
    -------
    fit : Fit
        With the abilities beside the columns. All is NaN where no column is left, or where the maximum
        is not finite, as with columns that decide every game.
    effects, errors : Array, shape (k,)
        In log-odds by unit of the column, and their prompt-clustered standard errors, for which a prompt with
        more games than others is taken as if the fit had left it out. An effect is NaN where the models or the
        columns before it explain it, an error also where the prompts do not
        differ.
    """
    played, m = fit.games, len(fit.theta)
    x = columns[fit.is_rated[all_games.first] & fit.is_rated[all_games.second]]
    effects, errors = np.full((2, x.shape[1]), np.nan)
    nan_covariance = np.full_like(fit.covariance, np.nan)
    unfitted = replace(fit, theta=np.diag(nan_covariance), covariance=nan_covariance)
    if not (chosen := _find_identified_columns(played, x)):
        return unfitted, effects, errors
    n, x = m + len(chosen), x[:, chosen]
    ones, level = np.ones(len(x)), mean_zero_constraint(m, n)
    count, wins = played.weight_by_count(ones), played.weight_by_count(played.score)
    column_numbers = np.broadcast_to(np.arange(m, n), x.shape)
    parameter_index = np.column_stack([played.first, played.second, column_numbers])
    design = np.column_stack([ones, -ones, x])
    estimate, information, _ = fit_logistic(
        parameter_index,
        design,
        count,
        wins,
        level,
        np.zeros(n),
        max_gap=_MAX_GAP_LOG_ODDS,
    )
    gap = (design * estimate[parameter_index]).sum(axis=1)
    if np.abs(gap).max() >= _MAX_GAP_LOG_ODDS - 1.0:
        return unfitted, effects, errors
    residual = played.score - scipy.special.expit(gap)
    by_cluster = played.sum_by_cluster(residual, *(x.T * residual))
    inverse = np.linalg.inv(information) - level
    covariance = sandwich(inverse, by_cluster, m, n=played.n_clusters)
    column_covariance, (leverage_factor, _) = covariance, played.leverage_factors()
    if (leverage_factor != 1.0).any():
        corrected_by_cluster = scipy.sparse.csr_array(
            scipy.sparse.diags_array(leverage_factor) @ by_cluster
        )
        column_covariance = sandwich(
            inverse, corrected_by_cluster, m, n=played.n_clusters
        )
    effects[chosen] = estimate[m:]
    errors[chosen] = np.sqrt(np.maximum(np.diag(column_covariance)[m:], 0.0))
    parts = (by_cluster @ inverse)[:, :m]
    fit = replace(
        fit,
        theta=estimate[:m],
        covariance=covariance[:m, :m],
        influence_by_cluster=parts,
    )
    return fit, effects, errors


def fit_columns(all_games: Games, style: Mapping[str, Array] | None = None) -> Fit:
    """Fit Bradley-Terry, with a position effect where one order alone was judged, and with style.

    Parameters
    ----------
    all_games : Games
        All g games.
    style : mapping of str to Array, shape (g,) each, optional
        Columns by name, as `style_columns` returns them, for each game.

    Returns
    -------
    Fit
        Effects and their errors are its parameters: of position in log-odds, of style in rating points;
        None for one that cannot be told, as its column does not vary.
    """
    fit, columns = Fit.from_games(all_games), dict(style or {})
    if all_games.is_one_order:
        columns["position"] = all_games.position
    if not columns:
        return fit
    x = np.stack(list(columns.values()), axis=1)
    fit_with_columns, effects, errors = with_columns(fit, all_games, x)
    parameters = dict[str, float | None]()
    for name, effect, error in zip(columns, effects, errors, strict=True):
        unit = 1.0 if name == "position" else POINTS_PER_LOG_ODDS
        parameters[name] = none_if_nan(unit * effect)
        parameters[f"{name}_std_error"] = none_if_nan(unit * error)
    is_estimated = np.isfinite(effects).any()
    return replace(fit_with_columns if is_estimated else fit, parameters=parameters)


def make_contrast(
    difference: Array, weight: Array | None = None
) -> tuple[Array, float]:
    """Return the difference of two counts as the column by which a fit controls for it.

    tanh(difference / scale) [1]_: a longer answer helps or hurts up to a limit, whatever the lengths. The
    difference turns its sign where the sides are swapped, so that its scale is the root mean square.

    Parameters
    ----------
    difference : Array, shape (n,)
        Of the first side's count and the second side's, such as characters.
    weight : Array, shape (n,), optional
        How many battles a row stands for; None: one.

    Returns
    -------
    column : Array, shape (n,)
        From -1 to 1; all zero if no difference is there.
    scale : float
        In the unit of the counts; 0 if no difference is there.

    References
    ----------
    .. [1] Y. Dubois, B. Galambosi, P. Liang and T. B. Hashimoto (2024), "Length-controlled AlpacaEval: a
       simple way to debias automatic evaluators", arXiv:2404.04475.

    Examples
    --------
    >>> column, scale = make_contrast(np.array([300.0, -300.0, 0.0]))
    >>> round(scale), [round(x, 2) for x in column.tolist()]
    (245, [0.84, -0.84, 0.0])
    """
    if not len(difference):
        return np.zeros(0), 0.0
    scale = math.sqrt(np.average(difference**2, weights=weight))
    column = np.tanh(difference / scale) if scale > 0.0 else np.zeros_like(difference)
    return column, scale


def style_columns(battles: Battles, features: Sequence[str]) -> dict[str, Array]:
    """Return the style of model_a against model_b as columns of a fit.

    The `contrast` of the counts of both, the same control as in the judge's section, over its root mean
    square: not centred, so that it turns its sign where the sides are swapped. Votes and verdicts have
    columns of their own.

    Parameters
    ----------
    battles : Battles
        n battles with the style of both answers.
    features : sequence of str
        Of `data.writing_style.FEATURES`.

    Returns
    -------
    dict of str to Array, shape (n,) each
        By name: style, the feature, and votes or verdicts; those that no battle has are left out.
    """
    style_a, style_b = np.moveaxis(battles.style(), 1, 0)
    is_vote = np.array([*battles.sources, ""])[battles.source] == "human"
    columns = {}
    for source_kind, is_chosen in (("votes", is_vote), ("verdicts", ~is_vote)):
        for feature in features if is_chosen.any() else ():
            weight = np.ones(len(battles)) if battles.count is None else battles.count
            difference = (style_a - style_b)[:, FEATURES.index(feature)]
            x = np.zeros(len(battles))
            x[is_chosen], _ = make_contrast(difference[is_chosen], weight[is_chosen])
            rms = math.sqrt((weight * x**2).sum() / battles.count_at(is_chosen))
            columns[f"style_{feature}_{source_kind}"] = x / (rms or 1.0)
    return columns


def _find_identified_columns(played: Games, x: Array) -> list[int]:
    """Number the columns that neither the models nor the columns before them explain."""
    cross = np.array(
        [played.sum_over_prompts(played.sum_by_cluster(column)) for column in x.T]
    )
    weighted_columns = x if played.count is None else x * played.count[:, None]
    inverse = (
        inverse_information(np.zeros(played.n_models), played) / 4.0
    )  # all are equals
    unexplained, chosen = x.T @ weighted_columns - cross @ inverse @ cross.T, []
    for k, column in enumerate(x.T):
        if unexplained[k, k] > _MAX_COLLINEAR_SHARE * (column @ weighted_columns[:, k]):
            chosen.append(k)
            unexplained = (
                unexplained
                - np.outer(unexplained[k], unexplained[k]) / unexplained[k, k]
            )
    return chosen
