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
from dataclasses import dataclass, replace

import numpy as np
import scipy

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.analysis.missing_answers import (
    compute_influence,
    count_against,
    find_missing_orders,
)
from elo_exp.arrays import Array, make_records
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER
from elo_exp.data.battles import Battles
from elo_exp.ratings.covariates import fit_columns
from elo_exp.ratings.fit import POINTS_PER_LOG_ODDS, inverse_information, residuals
from elo_exp.ratings.games import make_games, number_codes
from elo_exp.ratings.leaderboard import degrees_of_freedom, t_quantile
from elo_exp.records import MissingBattle, Record
from elo_exp.types import Orders

# The name that `Battles.unit_names` gives it
_UNNAMED = f"cluster {UNNAMED_CLUSTER}"
# A smaller standard error is rounding
_MIN_ERROR_IN_POINTS = 1e-3


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
class PromptInfluence:
    """A Bradley-Terry fit with the part of each prompt in it, in rating points around the mean.

    unnamed  (k, m) the parts of battles that name no question, among others that do; they are one prompt in `parts`
    """

    models: tuple[str, ...]  # those that are rated
    ratings: Array  # (m,), mean zero
    prompts: tuple[str, ...]  # (n,)
    parts: Array  # (n, m)
    unnamed: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedRun:
    """What a run has rated on a dimension, and what is missing there.

    orders  the games of a battle, as of `games`
    """

    battles: Battles
    missing: Sequence[MissingBattle]
    orders: Orders

    @property
    def has_both_orders(self) -> bool:
        """Return whether a judge gave verdicts in both orders, each a game."""
        return self.orders == "both" and bool(self.battles.has_both_orders().any())

    def lacks_results(self, *, everybody: bool) -> bool:
        """Return whether a comparison has no result, or no verdict of an order. `everybody`: as of `find_missing_orders`."""
        if self.missing:
            return True
        is_planned = self.orders == "both"
        return is_planned and bool(
            find_missing_orders(self.battles, everybody=everybody).any()
        )


def split_fit_by_prompt(battles: Battles, *, orders: str) -> PromptInfluence | None:
    """Split a Bradley-Terry fit by prompt.

    Parameters
    ----------
    battles : Battles
        Of one dimension of a run.
    orders : str
        As of `games`.

    Returns
    -------
    PromptInfluence or None
        None where a battle names no prompt, nobody is rated, or there is one prompt.
    """
    fit = fit_columns(make_games(battles, orders=orders))
    played, n = fit.games, fit.games.n_clusters
    if n < 2 or battles.n_unnamed():
        return None
    parts, names = fit.influence_by_cluster, battles.unit_names
    prompts = tuple(names[q] for q in played.prompts.tolist())
    unnamed = np.zeros((0, len(fit.theta)))
    if parts is None:
        slopes, inverse = (
            residuals(fit.theta, played),
            inverse_information(fit.theta, played),
        )
        parts = np.asarray(played.sum_by_cluster(slopes) @ inverse)
        if _UNNAMED in prompts:
            is_unnamed = played.cluster == prompts.index(_UNNAMED)
            unnamed_games = played.select(is_unnamed)
            battles_in_games, number = number_codes(unnamed_games.battle)
            games_by_battle = replace(
                unnamed_games, cluster=number, prompts=battles_in_games
            )
            unnamed = np.asarray(
                games_by_battle.sum_by_cluster(slopes[is_unnamed]) @ inverse
            )
    return PromptInfluence(
        models=tuple(battles.models[i] for i in np.flatnonzero(fit.is_rated).tolist()),
        ratings=POINTS_PER_LOG_ODDS * fit.theta,
        prompts=prompts,
        parts=POINTS_PER_LOG_ODDS * math.sqrt(n / (n - 1)) * parts,
        unnamed=POINTS_PER_LOG_ODDS * unnamed,
    )


Verdict = tuple[str | float | None, ...]  # as of `verdicts`
Verdicts = Counter[Verdict]


def count_verdicts(battles: Battles) -> Verdicts:
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
    counts = Verdicts()
    for b in battles.rows():
        cells = b.question_id, b.model_a, b.model_b, b.winner
        counts[*cells, b.verdict_ab, b.verdict_ba, b.score] += b.count or 1
    return counts


def may_be_nested(before: Verdicts, after: Verdicts) -> bool:
    """Return whether all verdicts of one run may be among the other's, if blank cells are filled.

    Parameters
    ----------
    before, after : Counter
        As `verdicts` returns them.

    Returns
    -------
    bool
        Whether each row of one, that the other lacks, is a row of the other but for cells that are blank in either.

    Examples
    --------
    >>> full = Counter({("q1", "a", "b", "model_a", "model_a", "model_a", None): 1})
    >>> may_be_nested(full, Counter({("q1", "a", "b", "model_a", "model_a", None, None): 1}))
    True
    """
    differences = before - after, after - before
    return any(
        _are_all_among(rows, other_rows)
        for rows, other_rows in (differences, differences[::-1])
        if rows and other_rows
    )


def _are_all_among(rows: Verdicts, other_rows: Verdicts) -> bool:
    """Return whether each row equals one of the other rows in all cells that both have."""
    by_cells: dict[tuple[int, ...], list[Verdict]] = {}
    for other_row in other_rows:
        by_cells.setdefault(_known_cells(other_row), []).append(other_row)
    known_rows = dict[tuple[int, ...], set[Verdict]]()
    for row in rows:
        is_among = False
        for cells, candidates in by_cells.items():
            shared_cells = tuple(n for n in _known_cells(row) if n in cells)
            key = (*shared_cells, -1, *cells)
            if key not in known_rows:
                known_rows[key] = {
                    tuple(candidate[n] for n in shared_cells)
                    for candidate in candidates
                }
            is_among = (
                is_among or tuple(row[n] for n in shared_cells) in known_rows[key]
            )
        if not is_among:
            return False
    return True


def _known_cells(row: Verdict) -> tuple[int, ...]:
    return tuple(n for n, cell in enumerate(row) if cell is not None)


def compute_shifts(
    before: Mapping[str, float],
    after: Mapping[str, float],
    fits: tuple[PromptInfluence, PromptInfluence] | None = None,
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
    shared_models = [model for model in before if model in after]
    if len(shared_models) < 2:
        return []
    changes = np.array([after[model] - before[model] for model in shared_models])
    changes -= changes.mean()
    std_error, half_width, p_value = np.full((3, len(shared_models)), np.nan)
    if fits is not None:
        parts = _moving_parts(shared_models, *fits)
        df = degrees_of_freedom(float(parts.any(axis=1).sum()))
        std_error = np.sqrt((parts**2).sum(axis=0))
        std_error += _error_of_unnamed(shared_models, *fits)
        std_error[std_error < _MIN_ERROR_IN_POINTS] = np.nan
        half_width = t_quantile(df) * std_error
        p_value = 2.0 * scipy.special.stdtr(df, -np.abs(changes / std_error))
    return make_records(
        Shift,
        model=shared_models,
        shift=changes,
        std_error=std_error,
        ci_low=changes - half_width,
        ci_high=changes + half_width,
        p_value=p_value,
    )


def retest_with_missing(
    tested: Sequence[Shift], before: RatedRun, after: RatedRun
) -> list[Shift]:
    """Test shifts once more, with what is missing in either run counted against each of them.

    If one of the runs has verdicts in both orders, a verdict of an order that the other lacks is missing.

    Parameters
    ----------
    tested : sequence of Shift
        Of all models that both runs rate.
    before, after : RatedRun
        The runs.

    Returns
    -------
    list of Shift
        With the larger of both p values; 1 if the shift goes the other way, or cannot be tested.
    """
    everybody = before.has_both_orders or after.has_both_orders
    runs = before, after
    if not any(run.lacks_results(everybody=everybody) for run in runs):
        return list(tested)
    models = [shift.model for shift in tested]
    retested = []
    for shift in tested:
        p_value = shift.p_value
        if p_value is not None and p_value <= ALPHA:
            fits = [
                _fit_filled(run, models, shift.model, sign, everybody=everybody)
                for run, sign in zip(
                    runs, np.sign([-shift.shift, shift.shift]).tolist(), strict=True
                )
            ]
            p_value = max(p_value, _retest(shift, models, fits))
        retested.append(replace(shift, p_value=p_value))
    return retested


def _fit_filled(
    run: RatedRun, models: Sequence[str], model: str, sign: float, *, everybody: bool
) -> PromptInfluence | None:
    """Fit a run with its missing results counted against a rating that is high (1) or low (-1)."""
    contrast = {name: sign * ((name == model) - 1.0 / len(models)) for name in models}
    battles = count_against(
        run.battles,
        run.missing,
        compute_influence(run.battles, contrast),
        in_both_orders=run.orders == "both",
        everybody=everybody,
    )
    return split_fit_by_prompt(battles, orders=run.orders)


def _retest(
    shift: Shift, models: Sequence[str], fits: Sequence[PromptInfluence | None]
) -> float:
    """Return the p value of a shift by other fits; 1 if it goes the other way or if a fit lacks one of the models."""
    before, after = fits
    if before is None or after is None:
        return 1.0
    if not {*models} <= {*before.models} & {*after.models}:
        return 1.0
    ratings = [
        {name: fit.ratings[fit.models.index(name)] for name in models}
        for fit in (before, after)
    ]
    new_shifts = compute_shifts(ratings[0], ratings[1], (before, after))
    (same_shift,) = (
        new_shift for new_shift in new_shifts if new_shift.model == shift.model
    )
    if same_shift.shift * shift.shift <= 0.0 or same_shift.p_value is None:
        return 1.0
    return same_shift.p_value


def _error_of_unnamed(models: Sequence[str], *fits: PromptInfluence) -> Array:
    """Bound what battles that name no question add to the errors (m,) of shifts.

    Any of them may be on any prompt of the other run. The error is a norm, so that of all battles is at most the sum of
    that of the named ones and this. They may be one prompt or one each: the larger counts. The same battles in both runs
    add nothing.
    """
    total = np.zeros(len(models))
    before, after = fits
    if np.array_equal(before.unnamed, after.unnamed):
        return total
    for fit in fits:
        columns = fit.unnamed[:, [fit.models.index(model) for model in models]]
        columns = columns - columns.mean(axis=1, keepdims=True)
        error_of_each = np.sqrt((columns**2).sum(axis=0))
        total += np.maximum(error_of_each, np.abs(columns.sum(axis=0)))
    return total


def _moving_parts(
    models: Sequence[str], before: PromptInfluence, after: PromptInfluence
) -> Array:
    """Return how far each prompt of either run (n,) moves these models (m,), against their mean."""
    prompts = dict.fromkeys([*before.prompts, *after.prompts])
    index = {prompt: q for q, prompt in enumerate(prompts)}
    parts = np.zeros((len(index), len(models)))
    for fit, sign in ((before, -1.0), (after, 1.0)):
        columns = fit.parts[:, [fit.models.index(model) for model in models]]
        rows = [index[prompt] for prompt in fit.prompts]
        parts[rows] += sign * (columns - columns.mean(axis=1, keepdims=True))
    if any(len(fit.unnamed) for fit in (before, after)):
        parts[index[_UNNAMED]] = 0.0  # which `_error_of_unnamed` has
    return parts
