"""Bradley-Terry by maximum likelihood: the rating that does not depend on the order of matches."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from elo_exp.records import Battle
from elo_exp.results import Leaderboard
from elo_exp.statistics.boards import leaderboard, why_unrated
from elo_exp.statistics.bootstrap import resampled_abilities
from elo_exp.statistics.intervals import pinned, with_percentiles
from elo_exp.statistics.likelihood import Array, Games, Mask, abilities, games
from elo_exp.statistics.sandwich import clustered_covariance
from elo_exp.types import Natural, RatingPoints, Use

logger = logging.getLogger(__name__)

INTERVALS = {
    "sandwich": "prompt-clustered",
    "bootstrap": "prompt bootstrap",
    "percentile": "prompt bootstrap",
}
_MAX_DROPPED = 0.05  # of the resamples: with more, the ends of a 95 % interval are among those that were dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """One dimension: r of the m models have finite abilities together."""

    battles: Sequence[Battle]
    n_matches: int
    wins: Array  # (m, m)
    rated: Mask  # (m,)
    played: Games  # among the r rated models
    theta: Array  # (r,) log-odds
    covariance: Array  # (r, r)
    samples: Array | None = None  # (s, r)
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class BradleyTerry:
    """Ratings centred at `initial_rating`, ties half a win for each side.

    All battles on one prompt, in both orders and in every dimension, are one observation.

    use             both: the two orders of a pair are two games; consistent: one game, the reconciled winner
    interval        sandwich: the prompt-clustered sandwich; bootstrap: prompts are drawn with replacement
                    `n_bootstraps` times, the same draws for every dimension, and the error is the
                    standard deviation of the fits, which are the leaderboard's samples; percentile: the same with the
                    2.5 and 97.5 percentiles of the fits. The rating itself is always that of all battles
    baseline_model  whose rating is `initial_rating`, in place of the mean of all; errors are then of the distance to it

    A model that never lost, never won, or met nobody of the main group has no finite rating: its rating is None and
    `flag` says why; the others are rated as if it were absent. A resample can lose the links that keep ratings finite.
    It is then dropped, and counted in a warning and in the leaderboard's parameters: the standard deviation of the
    others is a little too small, and with more than 5 % dropped none is given. Nor is there one, of either kind, where
    the prompts do not differ: a single prompt, or the same balance on all of them.
    """

    initial_rating: RatingPoints
    use: Use
    interval: Literal["sandwich", "bootstrap", "percentile"]
    n_bootstraps: Annotated[int, Field(strict=True, ge=2)]
    seed: Natural
    baseline_model: str | None = None

    def rate(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, Leaderboard]:
        fits = {dimension: _fit(some, use=self.use) for dimension, some in battles.items() if some}
        if self.interval != "sandwich":
            fits |= self._bootstrapped(fits)
        return {
            dimension: self._as_asked(self._leaderboard(fit)) for dimension, fit in fits.items()
        }

    def _as_asked(self, board: Leaderboard) -> Leaderboard:
        if self.baseline_model is not None:
            board = pinned(board, self.baseline_model, self.initial_rating)
        return with_percentiles(board) if self.interval == "percentile" else board

    def _bootstrapped(self, fits: Mapping[str, _Fit]) -> dict[str, _Fit]:
        """The dimensions whose prompts differ, with the bootstrap's covariance in place of the sandwich."""
        differ = {
            dimension: fit for dimension, fit in fits.items() if np.isfinite(fit.covariance).any()
        }
        if not differ:
            return {}
        samples = resampled_abilities(
            [fit.played for fit in differ.values()],
            [fit.theta for fit in differ.values()],
            n_bootstraps=self.n_bootstraps,
            seed=self.seed,
        )
        return {
            name: _with_samples(fit, some, name)
            for (name, fit), some in zip(differ.items(), samples, strict=True)
        }

    def _leaderboard(self, fit: _Fit) -> Leaderboard:
        return leaderboard(
            fit.battles,
            fit.theta,
            fit.covariance,
            method="bradley_terry",
            label="Bradley-Terry",
            interval=INTERVALS[self.interval],
            initial_rating=self.initial_rating,
            flags=why_unrated(fit.wins),
            played=fit.played,
            rated=fit.rated,
            n_matches=fit.n_matches,
            samples=fit.samples,
            parameters=fit.parameters,
        )


def _fit(battles: Sequence[Battle], *, use: str) -> _Fit:
    every = games(battles, use=use)
    wins = every.wins()
    theta = abilities(wins)
    rated = np.isfinite(theta)
    played = every.among(rated)
    return _Fit(
        battles=battles,
        n_matches=len(every.score),
        wins=wins,
        rated=rated,
        played=played,
        theta=theta[rated],
        covariance=clustered_covariance(theta[rated], played),
    )


def _with_samples(fit: _Fit, samples: Array, dimension: str) -> _Fit:
    kept = samples[np.isfinite(samples).all(axis=1)]
    n_dropped = len(samples) - len(kept)
    enough = n_dropped <= _MAX_DROPPED * len(samples)
    if n_dropped:
        logger.warning(
            "%s: %d of %d resamples of the prompts leave no finite ratings and are dropped%s",
            dimension,
            n_dropped,
            len(samples),
            "" if enough else ": too many for an interval. Take interval=sandwich, or more prompts",
        )
    return dataclasses.replace(
        fit,
        covariance=np.asarray(np.cov(kept, rowvar=False))
        if enough
        else np.full_like(fit.covariance, np.nan),
        samples=kept,
        parameters={"n_bootstraps": float(len(samples)), "n_dropped": float(n_dropped)},
    )
