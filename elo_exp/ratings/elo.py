"""Elo averaged over random orders of the matches, with the error that the choice of prompts leaves.

Letters: d dimension, p permutation, l lane (one order of one dimension's matches), t match, m model,
k value of K; q of n prompts; b of n_bootstraps resamples of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.battles import Battles
from elo_exp.progress import meter
from elo_exp.ratings.bradley_terry import (
    POINTS,
    abilities,
    drawn_prompts,
    joint_prompts,
    strongest_component,
    why_unrated,
)
from elo_exp.ratings.games import Games, games
from elo_exp.ratings.leaderboard import Leaderboard, with_intervals
from elo_exp.records import UserError
from elo_exp.types import Count, K, Natural, RatingPoints

logger = logging.getLogger(__name__)

Orders = NDArray[np.integer[Any]]  # kinds of matches, in as few bytes as they need

_LEAST_SHARE = 0.4  # of the scatter of resamples; a smaller rest is mostly noise
_ROUNDING = 1e-12  # squared rating points: less scatter than this is none
_BLOCK_BYTES = 64 * 2**20  # match orders held at a time
_BLOCK_ORDERS = (
    256  # but no fewer than these: a step costs 2.5 us and 10 to 20 ns an order
)
_STEPS = 32  # matches indexed at a time, so that their index stays in cache


@dataclass(kw_only=True)
class PermutationElo:
    """Elo with update R' = R + K (S - E), E_a = 1 / (1 + 10^((R_b - R_a) / 400)), averaged over
    `n_perms` random orders of the matches (Boubdir et al. 2023), at `k` and at every K of `k_sweep`
    with the same orders.

    ties     drop: only decisive matches are played; half: a tie scores 1/2 for each side. A class
             with another treatment overrides `played` or `matches`
    shuffle  false: one pass in the order given

    The standard error, at `k`, is the scatter of this mean over `n_bootstraps` draws of the prompts
    with replacement, the same draws for every dimension, each averaged over `perms_per_bootstrap`
    orders; what these few orders add to the scatter is taken off, and what the `n_perms` of the mean
    add is put on. There is none where no prompt differs from another, nor with `n_bootstraps` 0, nor
    of a model whose matches were all on one prompt or all ended alike: draws of them cannot show how
    far off it is.
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
            raise UserError("n_bootstraps: found 1. Expected 2 or more, or 0 for none.")

    @property
    def ks(self) -> tuple[float, ...]:
        """Every K that is computed, ascending; `k` joins the sweep."""
        return tuple(sorted({float(self.k), *(float(k) for k in self.k_sweep)}))

    def played(self, battles: Battles) -> Battles:
        """Return the battles that are played."""
        return battles if self.ties == "half" else battles.select(~battles.is_tie())

    def rate(self, battles: Mapping[str, Battles]) -> dict[str, Leaderboard]:
        """The leaderboard at `k`, by dimension."""
        swept = self.sweep(battles)
        return {name: boards[float(self.k)] for name, boards in swept.items() if boards}

    def sweep(
        self, battles: Mapping[str, Battles]
    ) -> dict[str, dict[float, Leaderboard]]:
        """A leaderboard by dimension and K; none, with a warning, where no match is played."""
        boards: dict[str, dict[float, Leaderboard]] = {name: {} for name in battles}
        played = {name: self.played(some) for name, some in battles.items()}
        for name in [name for name, some in played.items() if not len(some)]:
            logger.warning(
                "%s: no decisive match, so no Elo rating for this dimension", name
            )
            del played[name]
        if not played:
            return boards
        matches = {name: Matches.of(some) for name, some in played.items()}
        n_orders = self.n_perms if self.shuffle else 1
        with meter("playing match orders", total=n_orders * len(matches)) as tell:
            ratings = replay(
                list(matches.values()),
                ks=self.ks,
                n_perms=n_orders,
                seed=self.seed if self.shuffle else None,
                tell=tell,
            )
        meetings = {
            name: games(some, use="consistent") for name, some in played.items()
        }
        variances = self._variances(meetings, matches)
        for (name, some), log_odds in zip(played.items(), ratings, strict=True):
            without_ratings = _unrated(some, meetings[name])
            samples = self.initial_rating + POINTS * log_odds
            for i, k in enumerate(self.ks):
                board = leaderboard(without_ratings, samples[:, :, i], k=k)
                if name in variances and k == self.k:
                    of_prompts, of_one_order = variances[name]
                    error = np.sqrt(of_prompts + of_one_order / self.n_perms)
                    interval = "prompt bootstrap" if np.isfinite(error).any() else None
                    board = with_intervals(replace(board, interval=interval), error)
                boards[name][k] = board
        return boards

    def limit(self, battles: Mapping[str, Battles]) -> dict[str, dict[str, float]]:
        """Where small K and many passes lead: Bradley-Terry of the matches that are played.

        Empty where a model has no finite rating: it goes on for ever, and takes the mean along.
        """
        return {name: self._limit(some) for name, some in battles.items()}

    def _limit(self, battles: Battles) -> dict[str, float]:
        played = self.played(battles).compact()
        wins = games(played, use="consistent").wins()
        if not len(played) or not strongest_component(wins).all():
            return {}
        ratings = self.initial_rating + POINTS * abilities(wins)
        return dict(zip(played.models, ratings.tolist(), strict=True))

    def _variances(
        self, played: Mapping[str, Games], matches: Mapping[str, Matches]
    ) -> dict[str, tuple[Array, Array]]:
        """Variances (m,) of other prompts and of the order of matches, at `k`, in squared points."""
        if not self.n_bootstraps:
            return {}
        numbers, n_prompts = joint_prompts(list(played.values()))
        draws = drawn_prompts(
            n_prompts, n_bootstraps=self.n_bootstraps, seed=self.seed, width=n_prompts
        )
        times = np.concatenate([block.astype(np.uint8) for block in draws])
        n_perms = self.perms_per_bootstrap if self.shuffle else 1
        total = len(played) * self.n_bootstraps * n_perms
        with meter("playing match orders of drawn prompts", total=total) as tell:
            return {
                name: self._variance(
                    matches[name], some, times[:, number], n_perms, tell
                )
                for (name, some), number in zip(played.items(), numbers, strict=True)
            }

    def _variance(
        self,
        matches: Matches,
        played: Games,
        times: NDArray[np.uint8],
        n_perms: int,
        tell: Callable[[float], object],
    ) -> tuple[Array, Array]:
        """From how often each prompt is drawn (b, q).

        The first is the variance between the resamples' means, less what the variance between the
        orders of one resample explains; of a difference of two estimates of one size only noise
        would be left. Resamples of n prompts scatter by (n - 1) / n of the variance that new prompts
        have, n being those that a model was on.
        """
        n_prompts = played.clusters_met()
        known = (n_prompts > 1) & matches.ended_differently()
        if not (known.any() and _prompts_differ(matches, played)):
            return np.full(matches.n_models, np.nan), np.zeros(matches.n_models)
        log_odds = replay_resamples(
            matches,
            times,
            played.cluster,
            k=self.k,
            n_perms=n_perms,
            seed=self.seed if self.shuffle else None,
            tell=tell,
        )
        ratings = POINTS * log_odds
        between = ratings.mean(axis=1).var(axis=0, ddof=1)
        of_one_order = np.zeros(matches.n_models)
        if n_perms > 1:
            of_one_order = ratings.var(axis=1, ddof=1).mean(axis=0)
        of_prompts = np.maximum(
            between - of_one_order / n_perms, _LEAST_SHARE * between
        )
        of_prompts *= n_prompts / np.maximum(n_prompts - 1, 1)
        known &= of_prompts > _ROUNDING
        return np.where(known, of_prompts, np.nan), of_one_order


def convergence(k: float, *, n_matches: int, n_models: int) -> float:
    """The share of the way to its final level that Elo has gone after so many matches.

    1 - exp(-K n / (2 (m - 1) 173.7)): near equality a match closes K / (2 * 173.7) of the gap of
    the two that play it, and among m models the gaps close m - 1 times as slowly. Below
    CONVERGED gaps are understated, and close models may stand in the wrong order.
    """
    return (
        1.0 - math.exp(-k * n_matches / (2 * (n_models - 1) * POINTS))
        if n_models > 1
        else 1.0
    )


def leaderboard(board: Leaderboard, samples: Array, *, k: float) -> Leaderboard:
    """The mean over permutations (p, m) and its Monte-Carlo error, on a leaderboard without them."""
    n_perms, m = samples.shape
    ordering_error = np.zeros(m)
    if n_perms > 1:
        ordering_error = samples.std(axis=0, ddof=1) / math.sqrt(n_perms)
    share = convergence(k, n_matches=board.n_matches, n_models=m)
    return replace(
        board,
        rating=samples.mean(axis=0),
        ordering_error=ordering_error,
        samples=samples,
        parameters={"k": k, "convergence": share},
    )


def _unrated(played: Battles, meetings: Games) -> Leaderboard:
    """What is the same for every K."""
    wins = meetings.wins()
    flags = why_unrated(wins, strongest_component(wins))
    flags |= dict.fromkeys(np.flatnonzero(played.n_battles() == 0).tolist(), "no match")
    return Leaderboard(
        label="Elo",
        interval=None,
        models=played.models,
        rating=np.full(len(played.models), np.nan),
        n_battles=played.n_battles(),
        n_prompts=meetings.clusters_met().astype(np.float64),
        n_clusters=meetings.n_clusters,
        n_matches=len(played),
        flags=flags,
    )


def _prompts_differ(matches: Matches, played: Games) -> bool:
    """Whether a draw of prompts can change what is played.

    It cannot if there is one prompt, or if every prompt holds every kind of match equally often.
    """
    n_kinds = len(matches.first)
    found, times = np.unique(
        played.cluster * n_kinds + matches.order, return_counts=True
    )
    is_everywhere = len(found) == n_kinds * played.n_clusters
    return (
        not is_everywhere
        or len(set(zip(found % n_kinds, times, strict=True))) > n_kinds
    )


# Playing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matches:
    """The matches of one dimension: their kinds, and the kind of each in order."""

    n_models: int
    first: Index  # (kinds,)
    second: Index  # (kinds,)
    score: Array  # (kinds,) of the first, 1/2 or more
    order: Orders  # (t,)

    def __len__(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, battles: Battles) -> Matches:
        """Matches in the order of the battles, the side that scored more being the first."""
        score = battles.scores()
        swap = score < 0.5
        first = np.where(swap, battles.model_b, battles.model_a)
        second = np.where(swap, battles.model_a, battles.model_b)
        scores, level = np.unique(
            np.where(swap, 1.0 - score, score), return_inverse=True
        )
        m = len(battles.models)
        code = (level * m + first) * m + second
        kinds, order = np.unique(code, return_inverse=True)
        return cls(
            n_models=m,
            first=kinds // m % m,
            second=kinds % m,
            score=scores[kinds // m**2],
            order=_narrow(order),
        )

    def ended_differently(self) -> Mask:
        """Whether the matches (m,) of a model ended in more ways than one."""
        won, lost, tied = np.zeros((3, self.n_models), dtype=np.bool_)
        decided = self.score > 0.5
        won[self.first[decided]] = lost[self.second[decided]] = True
        tied[self.first[~decided]] = tied[self.second[~decided]] = True
        return (won & lost) | (won & tied) | (lost & tied)


def _narrow(numbers: Index) -> Orders:
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0)) + 1))


def replay(
    dimensions: Sequence[Matches],
    *,
    ks: Sequence[float],
    n_perms: int,
    seed: int | None,
    tell: Callable[[float], object] = lambda orders: None,
) -> list[Array]:
    """Final log-odds (p, m, k) of each dimension, each shuffled by its own `default_rng(seed)`.

    seed  None: in the order given
    tell  is called with the orders that were played since, of n_perms in all
    """
    table, offsets = _table(dimensions)
    longest = max(map(len, dimensions))
    filler = len(table.first) - 1
    padded = [
        np.append(
            matches.order.astype(np.intp) + offset,
            np.full(longest - len(matches), filler),
        )
        for matches, offset in zip(dimensions, offsets, strict=True)
    ]
    orders = _narrow(np.stack(padded))
    rngs = [np.random.default_rng(seed) for _ in dimensions]
    size = max(_BLOCK_ORDERS, _BLOCK_BYTES // orders.nbytes)
    found = []
    for start in range(0, n_perms, size):
        n = min(size, n_perms - start)
        block = np.repeat(orders[:, None], n, axis=1)
        for rng, lanes, matches in zip(rngs, block, dimensions, strict=True):
            own = lanes[:, : len(matches)]
            if seed is not None:
                rng.permuted(own, axis=1, out=own)
        log_odds = play(table, block.reshape(-1, longest), ks=ks, tell=tell)
        found.append(log_odds.reshape(len(dimensions), n, table.n_models, len(ks)))
    ratings = np.concatenate(found, axis=1)
    return [ratings[d, :, : matches.n_models] for d, matches in enumerate(dimensions)]


def replay_resamples(
    matches: Matches,
    times: NDArray[np.integer[Any]],
    cluster: Index,
    *,
    k: float,
    n_perms: int,
    seed: int | None,
    tell: Callable[[float], object] = lambda orders: None,
) -> Array:
    """Final log-odds (b, p, m) where the matches of cluster q are played times[b, q] times, in
    orders of its own for each resample.

    cluster  (t,) of each match
    """
    table, _ = _table([matches], is_filled=True)
    filler = len(table.first) - 1
    n_matches = np.bincount(cluster, minlength=times.shape[1])
    lengths = np.array([drawn @ n_matches for drawn in times])
    longest = int(lengths.max())
    order = _narrow(np.append(matches.order, filler))
    rng = np.random.default_rng(seed)
    size = (
        max(_BLOCK_ORDERS, _BLOCK_BYTES // (longest * order.itemsize)) // n_perms or 1
    )
    found = []
    for start in range(0, len(times), size):
        block = times[start : start + size]
        orders = np.empty((len(block), n_perms, longest), dtype=order.dtype)
        for lanes, drawn, length in zip(orders, block, lengths[start:], strict=False):
            lanes[:] = np.repeat(order, np.append(drawn[cluster], longest - length))
        lanes_of_block = orders.reshape(-1, longest)
        if seed is not None:
            rng.permuted(lanes_of_block, axis=1, out=lanes_of_block)
        log_odds = play(table, lanes_of_block, ks=[k], tell=tell)
        found.append(log_odds.reshape(len(block), n_perms, table.n_models))
    return np.concatenate(found)[:, :, : matches.n_models]


def _table(
    dimensions: Sequence[Matches], *, is_filled: bool = False
) -> tuple[Matches, Index]:
    """The kinds of all dimensions in one table, and where those of each begin.

    The last kind is a match of two models that nobody else meets: it fills shorter orders up.
    """
    m = max(matches.n_models for matches in dimensions)
    if is_filled or len(set(map(len, dimensions))) > 1:
        m += 2
    columns = {
        name: np.concatenate(
            [*(getattr(matches, name) for matches in dimensions), [filler]]
        )
        for name, filler in (("first", m - 2), ("second", m - 1), ("score", 1.0))
    }
    n_kinds = [len(matches.first) for matches in dimensions]
    nothing = np.zeros(0, dtype=np.uint8)
    return Matches(n_models=m, order=nothing, **columns), np.cumsum([0, *n_kinds[:-1]])


def play(
    matches: Matches,
    orders: Orders,
    *,
    ks: Sequence[float],
    tell: Callable[[float], object] = lambda orders: None,
) -> Array:
    """Log-odds (l, m, k) from zero after the matches in each lane's order (l, t), for every K.

    The state has one row of K values for each model of each lane. A row moves as one opaque item:
    half the cost of moving its K numbers one by one.
    """
    (n_lanes, n_steps), n_models, n_ks = orders.shape, matches.n_models, len(ks)
    state = np.zeros((n_lanes * n_models, n_ks))
    rows = state.view(np.dtype((np.void, state.itemsize * n_ks))).ravel()
    both = np.empty((2, n_lanes, n_ks))
    first, second = both
    both_rows = both.view(rows.dtype).ravel()
    gain = np.empty_like(first)
    step = np.tile(np.array(ks, dtype=float) / POINTS, (n_lanes, 1))
    base = n_models * np.arange(n_lanes)
    lost_share = 1.0 - matches.score
    all_won = not lost_share.any()
    for start in range(0, n_steps, _STEPS):
        kinds = np.ascontiguousarray(orders[:, start : start + _STEPS].T, dtype=np.intp)
        index = np.stack(
            [matches.first.take(kinds), matches.second.take(kinds)], axis=1
        )
        index += base
        for kind, sides in zip(kinds, index.reshape(-1, 2 * n_lanes), strict=True):
            rows.take(sides, out=both_rows, mode="clip")
            np.subtract(first, second, out=gain)
            np.exp(gain, out=gain)
            np.add(gain, 1.0, out=gain)
            np.divide(step, gain, out=gain)  # K (1 - E_first), the gain of a win
            if not all_won:
                gain -= step * lost_share[kind][:, None]
            np.add(first, gain, out=first)
            np.subtract(second, gain, out=second)
            rows.put(sides, both_rows, mode="clip")
        tell(n_lanes * len(kinds) / n_steps)
    return state.reshape(n_lanes, n_models, n_ks)
