"""Bradley-Terry by maximum likelihood, with errors clustered by prompt."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.data.writing_style import Feature
from elo_exp.errors import SettingError
from elo_exp.ratings.bootstrap import bootstrap_abilities
from elo_exp.ratings.covariates import fit_columns, style_columns
from elo_exp.ratings.fit import Fit, make_leaderboard
from elo_exp.ratings.games import make_games
from elo_exp.ratings.leaderboard import Leaderboard, pin_rating
from elo_exp.types import Natural, Orders, RatingPoints

logger = logging.getLogger(__name__)

INTERVAL_LABELS = {
    "sandwich": "prompt-clustered",
    "bootstrap": "prompt bootstrap",
    "percentile": "prompt bootstrap",
}
# With more, the ends of a 95% interval are unknown.
_MAX_DROPPED_SHARE = 0.05


@dataclass(kw_only=True)
class BradleyTerry:
    """Ratings centred at `initial_rating`, with 95% intervals by Student's t.

    All battles on one prompt, in both orders and in every dimension, are one observation.

    orders          both: the two orders of a battle are two games; reconciled: one game, the
                    reconciled winner
    interval        sandwich: clustered by prompt; bootstrap: prompts are drawn with replacement,
                    the same draws for every dimension; percentile: the same, with the 2.5 and 97.5
                    percentiles of the fits. The rating itself is always that of all battles
    baseline_model  whose rating is `initial_rating`, in place of the mean; errors are then of the
                    distance to it
    style           features of the answers whose effects are in the fit; its intervals are sandwich

    A model that never lost, never won, or is not linked to the main group has no finite rating: NaN,
    with a flag, and the others are rated as if it were absent. A resample that loses the links
    which keep ratings finite is dropped and counted; with more than 5% dropped there is no
    interval. Nor is there one where the prompts do not differ.

    Where one order alone was judged, the fit has a position effect, and sandwich intervals.
    """

    initial_rating: RatingPoints
    orders: Orders
    interval: Literal["sandwich", "bootstrap", "percentile"]
    n_bootstraps: Annotated[int, Field(strict=True, ge=2)]
    seed: Natural
    baseline_model: str | None = None
    style: Sequence[Feature] = ()

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        fits = {
            dimension: self._fit(dimension_battles)
            for dimension, dimension_battles in battles.items()
            if len(dimension_battles)
        }
        if self.interval != "sandwich":
            plain_fits = {
                d: fit for d, fit in fits.items() if fit.influence_by_cluster is None
            }
            samples = bootstrap_abilities(
                plain_fits, n_bootstraps=self.n_bootstraps, seed=self.seed
            )
            for dimension, dimension_samples in samples.items():
                fits[dimension] = _add_samples(
                    dimension, fits[dimension], dimension_samples
                )
        return {
            name: self._leaderboard(fit, battles[name]) for name, fit in fits.items()
        }

    def _fit(self, battles: Battles) -> Fit:
        if not self.style:
            return fit_columns(make_games(battles, orders=self.orders))
        battles_with_style = battles.select(~np.isnan(battles.style().sum(axis=(1, 2))))
        if not len(battles_with_style):
            raise SettingError(
                "style must be left out, as no battle has the texts of its answers.",
                "  Battles of experiment=tournament or arena have them, and files with the columns style_a and style_b.",
            )
        if n := battles.n_total() - battles_with_style.n_total():
            logger.warning("warning: style: %d battles without texts are left out", n)
        played = make_games(battles_with_style, orders=self.orders)
        columns = style_columns(battles_with_style, self.style)
        return fit_columns(played, {k: x[played.battle] for k, x in columns.items()})

    def _leaderboard(self, fit: Fit, battles: Battles) -> Leaderboard:
        label, interval = "Bradley-Terry", self.interval
        if fit.influence_by_cluster is not None:
            column_kinds = dict.fromkeys(name.split("_")[0] for name in fit.parameters)
            label, interval = (
                f"Bradley-Terry with {' and '.join(column_kinds)}",
                "sandwich",
            )
        board = make_leaderboard(
            fit,
            battles,
            label=label,
            interval=INTERVAL_LABELS[interval],
            initial_rating=self.initial_rating,
        )
        if self.baseline_model is not None:
            board = pin_rating(board, self.baseline_model, self.initial_rating)
        assert board.std_error is not None
        is_known = np.isfinite(board.std_error)
        if interval == "percentile" and is_known.any():
            assert board.samples is not None
            percentiles = np.percentile(board.samples, [2.5, 97.5], axis=0)
            low, high = np.where(is_known, percentiles, np.nan)
            board = replace(board, ci_low=low, ci_high=high)
        return board


def _add_samples(dimension: str, fit: Fit, samples: Array) -> Fit:
    """Return the fit with resamples (b, r), whose covariance replaces the sandwich."""
    finite_samples = samples[np.isfinite(samples).all(axis=1)]
    n, n_dropped = len(samples), len(samples) - len(finite_samples)
    covariance = np.full_like(fit.covariance, np.nan)
    advice = ": too many for an interval. Take interval=sandwich or more prompts"
    if n_dropped <= _MAX_DROPPED_SHARE * n:
        covariance, advice = np.cov(finite_samples, rowvar=False), ""
    if n_dropped:
        logger.warning(
            "%s: %d of %d resamples of the prompts leave no finite ratings and are dropped%s",
            dimension,
            n_dropped,
            n,
            advice,
        )
    parameters = {"n_bootstraps": float(n), "n_dropped": float(n_dropped)}
    return replace(
        fit, covariance=covariance, samples=finite_samples, parameters=parameters
    )
