"""Elo averaged over random orders of the matches, with the error that the choice of prompts leaves.

Letters: p permutation, l lane (one order of the matches), t match, m model, k value of K;
q of n prompts; b of n_bootstraps resamples of them.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, count_codes
from elo_exp.data.battles import Battles
from elo_exp.errors import SettingError
from elo_exp.progress import track_amount
from elo_exp.ratings.bootstrap import draw_prompts
from elo_exp.ratings.convergence import Convergence, measure_convergence
from elo_exp.ratings.fit import (
    POINTS_PER_LOG_ODDS,
    find_strongest_component,
    unrated_reasons,
)
from elo_exp.ratings.games import Games, group_kinds, make_games
from elo_exp.ratings.leaderboard import Leaderboard, add_intervals
from elo_exp.ratings.tail import (
    Tail,
    count_kinds_by_prompt,
    draw_ends,
    find_resample_tail,
    find_tail,
)
from elo_exp.types import Count, K, Natural, RatingPoints

logger = logging.getLogger(__name__)

Advance = Callable[[float], object]  # called with the number of orders played since
Orders = NDArray[np.integer[Any]]  # kinds of matches, in as few bytes as they need

# Of the scatter of resamples; a smaller rest is mostly noise.
_MIN_PROMPT_VARIANCE_SHARE = 0.4
# In squared rating points
_MAX_ROUNDING_VARIANCE = 1e-12
_MAX_BLOCK_BYTES = 64 * 2**20
# A step costs 2.5 us and 10 to 20 ns an order.
_MIN_BLOCK_ORDERS = 256
# They take about five seconds.
_MIN_ANNOUNCED_UPDATES = 100_000_000
# A block is enlarged to _MIN_BLOCK_ORDERS within these.
_MAX_ENLARGED_BLOCK_BYTES = 256 * 2**20
# The index of so many matches stays in the processor's cache.
_MATCHES_PER_INDEX = 32


@dataclass(kw_only=True)
class PermutationElo:
    """Elo with update R' = R + K (S - E), E_a = 1 / (1 + 10^((R_b - R_a) / 400)), averaged over
    `n_perms` random orders of the matches (Boubdir et al. 2023), at `k` and at every K of `k_sweep`
    with the same orders.

    ties     drop: only decisive matches are played; half: a tie scores 1/2 for each side. A class
             with another treatment overrides `select_played`
    shuffle  false: one pass in the order given

    Of long orders the end alone is played that decides where Elo ends, to 1e-6 points (`tail`).

    The standard error, at `k`, is the scatter of this mean over `n_bootstraps` draws of the prompts
    with replacement, each averaged over `perms_per_bootstrap` orders. All dimensions share the draws.
    The scatter is reduced by what these few orders add to it, and increased by what the `n_perms`
    orders of the mean add. There is none where no prompt differs from another, nor with `n_bootstraps`
    0, nor of a model whose matches were all on one prompt or all ended alike: draws of them cannot
    show how far off it is.
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
            raise SettingError.bad_value(
                "n_bootstraps", self.n_bootstraps, "be 2 or more, or 0 for none"
            )

    @property
    def ks(self) -> list[float]:
        """Every K that is computed, ascending; `k` joins the sweep."""
        return sorted({float(self.k), *map(float, self.k_sweep)})

    def select_played(self, battles: Battles) -> Battles:
        """Return the battles that are played."""
        return battles if self.ties == "half" else battles.select(~battles.is_tie())

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        """The leaderboard at `k`, by dimension."""
        boards_by_k = self.rate_each_k(battles)
        return {
            name: boards[float(self.k)]
            for name, boards in boards_by_k.items()
            if boards
        }

    def rate_each_k(
        self, battles: Mapping[str, Battles]
    ) -> dict[str, dict[float, Leaderboard]]:
        """A leaderboard by dimension and K; none, with a warning, where no match is played."""
        boards: dict[str, dict[float, Leaderboard]] = {name: {} for name in battles}
        played = {}
        for name, dimension_battles in battles.items():
            if dimension_battles.count is not None and not self.shuffle:
                raise SettingError(
                    "elo.shuffle must be true for a table of counts, which has no order of battles; got false.",
                    "  To rate battles in their order, give a file with one battle a row.",
                )
            dimension_matches = make_games(
                self.select_played(dimension_battles), orders="reconciled"
            )
            if dimension_matches.n_clusters:
                played[name] = dimension_matches
            else:
                logger.warning(
                    "%s: no match was decisive, so there is no Elo rating for this rubric",
                    name,
                )
        n_perms, ks = self.n_perms if self.shuffle else 1, self.ks
        ends = {
            name: find_tail(matches.wins(), ks if self.shuffle else [])
            for name, matches in played.items()
        }
        self._log_workload(played, ends)
        with track_amount(
            "playing match orders", total=n_perms * len(played)
        ) as advance:
            for name, matches in played.items():
                log_odds = play_orders(
                    matches,
                    ks=ks,
                    n_perms=n_perms,
                    seed=self._shuffle_seed,
                    end=ends[name],
                    advance=advance,
                )
                samples = self.initial_rating + POINTS_PER_LOG_ODDS * log_odds[0]
                boards[name] = average_leaderboards(
                    battles[name].models, matches, samples, ks, ends[name].lengths
                )
        if not self.n_bootstraps:
            return boards
        times_by_dimension = draw_prompts(
            list(played.values()), n_bootstraps=self.n_bootstraps, seed=self.seed
        )
        n_perms = self.perms_per_bootstrap if self.shuffle else 1
        total = len(played) * self.n_bootstraps * n_perms
        with track_amount(
            "playing match shuffles of resampled prompts", total=total
        ) as advance:
            for (name, matches), times in zip(
                played.items(), times_by_dimension, strict=True
            ):
                board = boards[name][float(self.k)]
                assert board.n_prompts is not None
                error = self._estimate_error(
                    matches, board.n_prompts, times, n_perms, ends[name], advance
                )
                if np.isfinite(error).any():
                    board = replace(board, interval="prompt bootstrap")
                    boards[name][float(self.k)] = add_intervals(board, error)
        return boards

    def convergence(self, battles: Mapping[str, Battles]) -> dict[str, Convergence]:
        """How far the mean over permutations has come at every K, by dimension."""
        played = {
            name: self.select_played(dimension_battles).compact()
            for name, dimension_battles in battles.items()
        }
        return {
            name: measure_convergence(
                make_games(dimension_battles, orders="reconciled").wins(),
                dimension_battles.models,
                ks=self.ks,
                initial_rating=self.initial_rating,
            )
            for name, dimension_battles in played.items()
        }

    def _log_workload(
        self, played: Mapping[str, Games], ends: Mapping[str, Tail]
    ) -> None:
        """Log how much is to be played, and how to ask for less, if it takes more than some seconds."""
        n_matches, n_updates, n_resample_orders = 0, 0, self.n_bootstraps
        n_resample_orders *= self.perms_per_bootstrap if self.shuffle else 1
        for name, matches in played.items():
            n, lengths = matches.n_games, ends[name].lengths
            n_orders = self.n_perms if self.shuffle else 1
            n_matches += n
            n_updates += n_orders * sum(lengths.get(k, n) for k in self.ks)
            n_updates += n_resample_orders * lengths.get(self.k, n)
        if n_updates < _MIN_ANNOUNCED_UPDATES:
            return
        resample_note = (
            f" and in {n_resample_orders:,} shuffles of resampled prompts"
            if n_resample_orders
            else ""
        )
        bootstrap_hint = " and elo.n_bootstraps" if n_resample_orders else ""
        logger.info(
            "Elo replays %s matches in %s shuffles for %s of K%s: %s million updates. Smaller "
            "elo.n_perms%s take less time",
            f"{n_matches:,}",
            f"{self.n_perms if self.shuffle else 1:,}",
            "one value" if len(self.ks) == 1 else f"{len(self.ks)} values",
            resample_note,
            f"{n_updates / 1e6:,.0f}",
            bootstrap_hint,
        )

    @property
    def _shuffle_seed(self) -> int | None:
        return self.seed if self.shuffle else None

    def _estimate_error(
        self,
        played: Games,
        n_prompts: Array,
        times: NDArray[np.integer[Any]],
        n_perms: int,
        end: Tail,
        advance: Advance,
    ) -> Array:
        """Estimate standard errors (m,) at `k`, in rating points, from how often each prompt is drawn (b, q).

        NaN where they cannot be estimated.

        The variance of other prompts is that between the resamples' means, less what the variance
        between the orders of one resample explains; of a difference of two estimates of one size
        only noise would be left. Resamples of n prompts scatter by (n - 1) / n of the variance that
        new prompts have, n being those that a model was on.
        """
        ties = played.ties()
        has_decisive = (played.wins() - ties / 2.0) > 0
        has_outcome = np.stack(
            [has_decisive.any(axis=1), has_decisive.any(axis=0), ties.any(axis=1)]
        )
        is_estimable = (n_prompts > 1) & (has_outcome.sum(axis=0) > 1)
        *_, kind = group_kinds(played)
        counts = count_kinds_by_prompt(played, kind)
        prompts_differ = (counts.max(axis=0) - counts.min(axis=0)).nnz
        if not (is_estimable.any() and prompts_differ):
            return np.full(played.n_models, np.nan)
        ratings = POINTS_PER_LOG_ODDS * play_orders(
            played,
            ks=[self.k],
            n_perms=n_perms,
            seed=self._shuffle_seed,
            times=times,
            end=find_resample_tail(end, self.k, played, times),
            advance=advance,
        ).squeeze(axis=3)
        variance_between = ratings.mean(axis=1).var(axis=0, ddof=1)
        order_variance = np.zeros(played.n_models)
        if n_perms > 1:
            order_variance = ratings.var(axis=1, ddof=1).mean(axis=0)
        prompt_variance = np.maximum(
            variance_between - order_variance / n_perms,
            _MIN_PROMPT_VARIANCE_SHARE * variance_between,
        )
        prompt_variance *= n_prompts / np.maximum(n_prompts - 1, 1)
        is_estimable &= prompt_variance > _MAX_ROUNDING_VARIANCE
        return np.sqrt(
            np.where(is_estimable, prompt_variance, np.nan)
            + order_variance / self.n_perms
        )


def average_leaderboards(
    models: tuple[str, ...],
    played: Games,
    samples: Array,
    ks: Sequence[float],
    lengths: Mapping[float, int] | None = None,
) -> dict[float, Leaderboard]:
    """Average Elo over permutations, with the Monte Carlo error of the mean, by K.

    Parameters
    ----------
    models : tuple of str
        m names.
    played : Games
        The matches.
    samples : Array, shape (p, m, k)
        Final ratings in rating points, of each permutation.
    ks : sequence of float
        k values of K.
    lengths : mapping of float to int, optional
        How many matches at the end of each order were played, by K; of others all were.

    Returns
    -------
    dict of float to Leaderboard
        Without an error of prompts; the Monte Carlo error of one permutation is zero.
    """
    n_perms, m, _ = samples.shape
    n_games = played.sum_by_pair().astype(np.intp)
    n_battles = n_games.sum(axis=0) + n_games.sum(axis=1)
    wins = played.wins()
    flags = unrated_reasons(wins, find_strongest_component(wins))
    flags |= dict.fromkeys(np.flatnonzero(n_battles == 0).tolist(), "no match")
    by_prompt = played.sum_by_cluster(np.ones(len(played.score)))
    n_prompts = played.count_prompts(by_prompt).astype(np.float64)
    boards = {}
    for i, k in enumerate(ks):
        k_samples, ordering_error = samples[:, :, i], np.zeros(m)
        parameters = {"k": k}
        if lengths and k in lengths:
            parameters["matches_played"] = lengths[k]
        if n_perms > 1:
            ordering_error = k_samples.std(axis=0, ddof=1) / math.sqrt(n_perms)
        boards[k] = Leaderboard(
            label="Elo",
            interval=None,
            models=models,
            rating=k_samples.mean(axis=0),
            ordering_error=ordering_error,
            samples=k_samples,
            n_battles=n_battles,
            n_prompts=n_prompts,
            n_clusters=played.n_clusters,
            n_matches=played.n_games,
            flags=flags,
            parameters=parameters,
        )
    return boards


# Playing


def play_orders(
    played: Games,
    *,
    ks: Sequence[float],
    n_perms: int,
    seed: int | None,
    times: NDArray[np.integer[Any]] | None = None,
    end: Tail | None = None,
    advance: Advance = lambda orders: None,
) -> Array:
    """Play matches in random orders, and return where every model ends.

    Parameters
    ----------
    played : Games
        Matches of m models on q prompts.
    ks : sequence of float
        k values of K, in rating points.
    n_perms : int
        p, orders of each resample.
    seed : int or None
        Of `numpy.random.default_rng`, which shuffles; None: in the order given.
    times : NDArray of int, shape (b, q), optional
        How often the matches of each prompt are played, in orders of its own for each resample b, and of
        prompts alike how often those of any of them are; None: once each, in one resample.
    end : Tail, optional
        What to play of each order, by K; None: all of it.
    advance : callable, optional
        Called with the number of orders played since.

    Returns
    -------
    Array, shape (b, p, m, k)
        Final log-odds, from zero; times `POINTS_PER_LOG_ODDS`, in rating points.
    """
    (first, second, score, kind), m = group_kinds(played), played.n_models
    on_each = 1 if played.games_per_prompt is None else played.games_per_prompt
    if times is None:
        n_alike = (
            np.ones(played.n_rows, np.intp)
            if played.prompts_per_cluster is None
            else played.prompts_per_cluster
        )
        times = n_alike[None]
    lengths = times @ count_codes(played.cluster, played.games_per_prompt)
    lengths_by_k = {k: end.lengths[k] for k in ks if k in end.lengths} if end else {}
    full_ks = [k for k in ks if k not in lengths_by_k]
    longest = int(lengths.max()) if full_ks else max(lengths_by_k.values())
    parts = [([k], n) for k, n in lengths_by_k.items()] + [(full_ks, longest)][
        : len(full_ks)
    ]
    n_updates = sum(len(part_ks) * n for part_ks, n in parts)
    # Shorter orders are filled up with a match of two models that meet nobody else.
    filler_kind = len(first)
    sides = np.array([np.append(first, m), np.append(second, m + 1)])
    kind_numbers = np.append(kind, filler_kind).astype(
        np.min_scalar_type(filler_kind + 1)
    )
    by_prompt = count_kinds_by_prompt(played, kind)
    rng = np.random.default_rng(seed)
    resample = np.repeat(np.arange(len(times)), n_perms)  # of each lane
    bytes_per_order = max(longest * kind_numbers.itemsize, 1)
    size = max(
        _MAX_BLOCK_BYTES // bytes_per_order,
        min(_MIN_BLOCK_ORDERS, _MAX_ENLARGED_BLOCK_BYTES // bytes_per_order),
        1,
    )
    blocks = []
    for begin in range(0, len(resample), size):
        block = resample[begin : begin + size]
        if full_ks:
            orders_by_resample = [
                np.repeat(
                    kind_numbers,
                    np.append(times[b][played.cluster] * on_each, longest - lengths[b]),
                )
                for b in range(block[0], block[-1] + 1)
            ]
            lanes = np.stack(orders_by_resample)[block - block[0]]
            if seed is not None:
                rng.permuted(lanes, axis=1, out=lanes)
        else:
            lanes = np.concatenate(
                [
                    draw_ends(times[b] @ by_prompt, longest, n_lanes=n, rng=rng)
                    for b, n in enumerate(np.bincount(block))
                    if n
                ]
            )
        log_odds_by_k: dict[float, Array] = {}
        for part_ks, n in parts:
            start = (
                np.append(end.start, [0.0, 0.0]) if end and part_ks != full_ks else None
            )
            log_odds = play(
                sides,
                np.append(score, 1.0),
                lanes[:, -n:],
                n_models=m + 2,
                ks=part_ks,
                start=start,
                advance=_scale_advance(advance, len(part_ks) * n / n_updates),
            )
            log_odds_by_k |= zip(
                part_ks, log_odds[:, :m].transpose(2, 0, 1), strict=True
            )
        blocks.append(np.stack([log_odds_by_k[k] for k in ks], axis=2))
    log_odds = np.concatenate(blocks)
    return log_odds.reshape(len(times), n_perms, m, len(ks))


def _scale_advance(advance: Advance, share: float) -> Advance:
    return lambda orders: advance(share * orders)


def play(
    models: Index,
    score: Array,
    orders: Orders,
    *,
    n_models: int,
    ks: Sequence[float],
    start: Array | None = None,
    advance: Advance,
) -> Array:
    """Play matches in each lane's order, for every K.

    The state has one row of K values for each model of each lane. A row moves as one opaque item:
    half the cost of moving its K numbers one by one. Plain numbers and named arguments in the calls
    would make a step a quarter slower.

    Parameters
    ----------
    models : Index, shape (2, kinds)
        The first and the second of each kind of match.
    score : Array, shape (kinds,)
        Of the first, in [0, 1].
    orders : NDArray of int, shape (l, t)
        The kinds of matches in the order in which each lane plays them.
    n_models : int
        m.
    ks : sequence of float
        k values of K, in rating points.
    start : Array, shape (m,), optional
        Log-odds before the first match; None: zero.
    advance : callable
        Called with the number of orders played since.

    Returns
    -------
    Array, shape (l, m, k)
        Final log-odds.
    """
    (n_lanes, n_steps), n_ks = orders.shape, len(ks)
    state = np.zeros((n_lanes * n_models, n_ks))
    if start is not None:
        state += np.tile(start, n_lanes)[:, None]
    rows = state.view(np.dtype((np.void, state.itemsize * n_ks))).ravel()
    ratings = np.empty((2, n_lanes, n_ks))
    first, second = ratings
    rating_rows = ratings.view(rows.dtype).ravel()
    gain, ones = np.empty_like(first), np.ones_like(first)
    step = np.tile(np.array(ks, dtype=float) / POINTS_PER_LOG_ODDS, (n_lanes, 1))
    base = n_models * np.arange(n_lanes)
    lost_share = 1.0 - score
    is_all_decisive = not lost_share.any()
    for begin in range(0, n_steps, _MATCHES_PER_INDEX):
        block = np.ascontiguousarray(
            orders[:, begin : begin + _MATCHES_PER_INDEX].T, dtype=np.intp
        )
        index = models[:, block].swapaxes(0, 1) + base
        for t, sides in enumerate(index.reshape(-1, 2 * n_lanes)):
            rows.take(sides, None, rating_rows, "clip")
            np.subtract(first, second, gain)
            np.exp(gain, gain)
            gain += ones
            np.divide(step, gain, gain)  # K (1 - E_first), the gain of a win
            if not is_all_decisive:
                gain -= step * lost_share[block[t], None]
            first += gain
            second -= gain
            rows.put(sides, rating_rows, "clip")
        advance(n_lanes * len(block) / n_steps)
    return state.reshape(n_lanes, n_models, n_ks)
