"""Elo averaged over random orders of the matches, with the error that the choice of prompts leaves.

Letters: p permutation, t match, m model, k value of K; q of n prompts; b of n_bootstraps resamples of them.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from elo_exp.data.battles import models, n_battles, n_prompts
from elo_exp.progress import meter
from elo_exp.records import Battle, UserError
from elo_exp.results import Leaderboard, Rating, ranked
from elo_exp.statistics.boards import why_unrated, with_interval
from elo_exp.statistics.bootstrap import drawn_prompts
from elo_exp.statistics.likelihood import (
    POINTS,
    Array,
    Games,
    Index,
    Mask,
    abilities,
    games,
    strongest_component,
)
from elo_exp.statistics.permutations import Matches, replay, replay_resamples
from elo_exp.types import Count, K, Natural, RatingPoints

logger = logging.getLogger(__name__)

_LEAST_SHARE = 0.4  # of the scatter of 200 resamples, known to within a tenth of itself; a smaller rest is mostly noise
_ROUNDING = 1e-12  # squared rating points: less scatter than this is none


@dataclass(kw_only=True)
class PermutationElo:
    """Elo with update R' = R + K (S - E), E_a = 1 / (1 + 10^((R_b - R_a) / 400)), averaged over `n_perms` random
    orders of the matches (Boubdir et al. 2023), at `k` and at every K of `k_sweep` with the same orders.

    ties     drop: only decisive matches are played; half: a tie scores 1/2 for each side
    shuffle  false: one pass in the order given

    The standard error, at `k`, is the scatter of this mean over `n_bootstraps` draws of the prompts with replacement,
    the same draws for every dimension, each averaged over `perms_per_bootstrap` orders; what these few orders add to
    the scatter is taken off, and what the `n_perms` of the mean add is put on. There is none where no prompt differs
    from another, nor with `n_bootstraps` 0, nor of a model whose matches were all on one prompt or all ended alike:
    draws of them cannot show how far off it is.
    """

    k: K
    n_perms: Count
    k_sweep: list[K]
    seed: Natural
    initial_rating: RatingPoints
    ties: Literal["drop", "half"]
    shuffle: bool
    n_bootstraps: Natural
    perms_per_bootstrap: Count

    def __post_init__(self) -> None:
        if self.n_bootstraps == 1:
            raise UserError(
                f"n_bootstraps: found {self.n_bootstraps}. Expected 2 or more, or 0 for none."
            )

    @property
    def ks(self) -> tuple[float, ...]:
        """Every K that is computed, ascending; `k` joins the sweep."""
        return tuple(sorted({float(self.k), *(float(k) for k in self.k_sweep)}))

    def rate(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, Leaderboard]:
        """The leaderboard at `k`, by dimension."""
        return {
            dimension: boards[float(self.k)]
            for dimension, boards in self.sweep(battles).items()
            if boards
        }

    def sweep(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, dict[float, Leaderboard]]:
        """A leaderboard by dimension and K; an empty one, with a warning, where no match is left to play."""
        matches = {dimension: self.matches(some) for dimension, some in battles.items()}
        playable = [dimension for dimension, m in matches.items() if len(m)]
        for dimension in matches.keys() - set(playable):
            logger.warning("%s: no decisive match, so no Elo rating for this dimension", dimension)
        boards: dict[str, dict[float, Leaderboard]] = {dimension: {} for dimension in matches}
        if playable:
            with meter(
                "playing match orders", total=self.n_perms if self.shuffle else 1
            ) as played_since:
                ratings = replay(
                    [matches[d] for d in playable],
                    ks=self.ks,
                    n_perms=self.n_perms,
                    seed=self.seed,
                    initial_rating=self.initial_rating,
                    shuffle=self.shuffle,
                    tell=played_since,
                )
            errors = self._variances({d: battles[d] for d in playable}, matches)
            for dimension, ratings_pmk in zip(playable, ratings, strict=True):
                names = models(battles[dimension])
                played = self._played(battles[dimension])
                meetings = games(played, names, use="consistent")
                of_prompts, of_one_order = errors[dimension]
                std_errors = np.sqrt(of_prompts + of_one_order / self.n_perms)
                boards[dimension] = {
                    k: leaderboard(
                        names,
                        ratings_pmk[:, :, i],
                        played=n_battles(played),
                        k=k,
                        n_matches=len(matches[dimension]),
                        n_prompts=n_prompts(played),
                        own_prompts=meetings.clusters_met().tolist(),
                        flags=_flags(meetings.wins()),
                        std_errors=std_errors if k == self.k else np.full(len(names), np.nan),
                    )
                    for i, k in enumerate(self.ks)
                }
        return boards

    def limit(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, dict[str, float]]:
        """Where small K and many passes lead: the Bradley-Terry ratings of the matches that are played.

        None where a model has no finite one: it goes on for ever, and takes the others' mean along.
        """
        return {dimension: self._limit(some) for dimension, some in battles.items()}

    def _limit(self, battles: Sequence[Battle]) -> dict[str, float]:
        played = self._played(battles)
        names = models(played)
        if not names:
            return {}
        theta = abilities(games(played, names, use="consistent").wins())
        if not np.isfinite(theta).all():
            return {}
        return {
            name: self.initial_rating + POINTS * t
            for name, t in zip(names, theta.tolist(), strict=True)
        }

    def _played(self, battles: Sequence[Battle]) -> list[Battle]:
        return [b for b in battles if self.ties == "half" or not b.is_tie]

    def matches(self, battles: Sequence[Battle]) -> Matches:
        """The matches that are played, winner first, in the order of the battles."""
        names = models(battles)
        index = {name: i for i, name in enumerate(names)}
        sides = [
            (index[b.model_b], index[b.model_a], False)
            if b.winner == "model_b"
            else (index[b.model_a], index[b.model_b], b.is_tie)
            for b in self._played(battles)
        ]
        first, second, tied = np.array(sides, dtype=np.intp).reshape(-1, 3).T
        return Matches(n_models=len(names), first=first, second=second, tied=tied.astype(bool))

    def _variances(
        self, battles: Mapping[str, Sequence[Battle]], matches: Mapping[str, Matches]
    ) -> dict[str, Array]:
        """(2, m) of each dimension at `k`, in squared rating points: of other prompts, NaN where draws of them do not
        tell; and of the order of the matches."""
        if not self.n_bootstraps:
            return {
                dimension: np.full((2, matches[dimension].n_models), np.nan)
                for dimension in battles
            }
        clusters = {
            d: games(self._played(some), models(some), use="consistent")
            for d, some in battles.items()
        }
        draws = drawn_prompts(
            list(clusters.values()), n_bootstraps=self.n_bootstraps, seed=self.seed
        )
        n_orders = (
            len(clusters) * self.n_bootstraps * (self.perms_per_bootstrap if self.shuffle else 1)
        )
        with (
            meter("playing match orders of drawn prompts", total=n_orders) as played_since,
            ThreadPoolExecutor(
                os.cpu_count()
            ) as pool,  # numpy leaves Python to the others while it counts
        ):
            variance = functools.partial(self._variance, tell=played_since)
            found = pool.map(variance, [matches[d] for d in clusters], clusters.values(), draws)
            return dict(zip(clusters, found, strict=True))

    def _variance(
        self, matches: Matches, clusters: Games, drawn: Index, *, tell: Callable[[float], object]
    ) -> Array:
        """From how often each prompt is drawn (b, q): the variance between the resamples' means, less what the variance
        between the orders of one resample explains; of a difference of two estimates of one size only noise would be
        left. Resamples of n prompts scatter by (n - 1) / n of the variance that new prompts have, n being those that a
        model was on: of four, intervals would hold the truth in too few runs."""
        n_prompts = clusters.clusters_met()
        tells = (n_prompts > 1) & _ended_otherwise(matches)
        if not (tells.any() and _prompts_differ(matches, clusters)):
            return np.full((2, matches.n_models), np.nan)
        ratings = replay_resamples(
            matches,
            drawn,
            clusters.cluster,
            k=self.k,
            n_perms=self.perms_per_bootstrap,
            seed=self.seed,
            initial_rating=self.initial_rating,
            shuffle=self.shuffle,
            tell=tell,
        )
        between = ratings.mean(axis=1).var(axis=0, ddof=1)
        n_orders = ratings.shape[1]
        of_one_order = (
            ratings.var(axis=1, ddof=1).mean(axis=0) if n_orders > 1 else np.zeros(matches.n_models)
        )
        of_prompts = np.maximum(between - of_one_order / n_orders, _LEAST_SHARE * between)
        of_prompts *= n_prompts / np.maximum(n_prompts - 1, 1)
        return np.stack(
            [np.where((of_prompts > _ROUNDING) & tells, of_prompts, np.nan), of_one_order]
        )


def _prompts_differ(matches: Matches, clusters: Games) -> bool:
    """Whether a draw of prompts may change what is played: not if there is one, or if all say the same as often."""
    outcome = (matches.first * matches.n_models + matches.second) * 2 + matches.tied
    _, outcome = np.unique(outcome, return_inverse=True)
    n = outcome.max() + 1
    said, times = np.unique(clusters.cluster * n + outcome, return_counts=True)
    return bool(
        len(said) < n * clusters.n_clusters or len(set(zip(said % n, times, strict=True))) > n
    )


def _flags(wins: Array) -> dict[int, str]:
    """By number, whose matches (m, m) do not say where it stands: by Bradley-Terry it would have no rating. Elo leaves
    such a model where few matches have brought it, or where it began."""
    rated = strongest_component(wins)
    unplayed = (wins + wins.T).sum(axis=1) == 0
    return {
        i: "no match" if unplayed[i] else why
        for i, why in why_unrated(wins).items()
        if not rated[i]
    }


def _ended_otherwise(matches: Matches) -> Mask:
    """(m,): whether a model's matches ended in more ways than one."""
    decided = ~matches.tied
    sides = (
        matches.first[decided],
        matches.second[decided],
        [*matches.first[~decided], *matches.second[~decided]],
    )
    ways = [
        np.bincount(np.asarray(side, dtype=np.intp), minlength=matches.n_models) > 0
        for side in sides
    ]
    return np.asarray(np.sum(ways, axis=0) > 1)


def convergence(k: float, *, n_matches: int, n_models: int) -> float:
    """The share of the way from the initial rating to its final level that Elo has gone after so many matches.

    1 - exp(-K n / (2 (m - 1) 173.7)): near equality a match closes K / (2 * 173.7) of the gap of the two that play it,
    and among m models the gaps close m - 1 times as slowly. Below results.CONVERGED gaps are understated, and close
    models may stand in the wrong order.
    """
    return 1.0 - math.exp(-k * n_matches / (2 * (n_models - 1) * POINTS)) if n_models > 1 else 1.0


def leaderboard(
    names: tuple[str, ...],
    samples: Array,
    *,
    played: Mapping[str, int],
    k: float,
    n_matches: int,
    n_prompts: int,
    own_prompts: Sequence[int],
    flags: Mapping[int, str],
    std_errors: Array,
) -> Leaderboard:
    """Mean over permutations and its Monte-Carlo error.

    samples      (p, m)
    n_prompts    on which matches were played
    own_prompts  (m,): on which each model played
    flags        why a model's rating says little, by its number
    std_errors   (m,), NaN where unknown
    """
    n_perms = len(samples)
    ordering = (
        samples.std(axis=0, ddof=1) / math.sqrt(n_perms) if n_perms > 1 else np.zeros(len(names))
    )
    columns = (
        names,
        samples.mean(axis=0).tolist(),
        ordering.tolist(),
        own_prompts,
        std_errors.tolist(),
    )
    ratings = [
        with_interval(
            Rating(
                model=name,
                rating=mean,
                ordering_error=sem,
                n_battles=played.get(name, 0),
                n_prompts=n,
                flag=flags.get(i),
            ),
            error,
        )
        for i, (name, mean, sem, n, error) in enumerate(zip(*columns, strict=True))
    ]
    return Leaderboard(
        method="elo",
        label="Elo",
        interval="prompt bootstrap" if np.isfinite(std_errors).any() else None,
        models=names,
        ratings=ranked(ratings),
        samples=samples,
        n_matches=n_matches,
        n_clusters=n_prompts,
        parameters={
            "k": k,
            "convergence": convergence(k, n_matches=n_matches, n_models=len(names)),
        },
    )
