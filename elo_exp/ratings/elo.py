"""Elo averaged over match orders, replayed in lockstep over permutations, values of K and dimensions.

Letters: d dimension, p permutation, t match, m model, k value of K. One replay step handles match t of every
permutation of every dimension for every K at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elo_exp.battles import models, n_battles
from elo_exp.likelihood import POINTS, abilities, games
from elo_exp.records import Battle, UserError
from elo_exp.results import Leaderboard, Rating, ranked
from elo_exp.settings import one_of

logger = logging.getLogger(__name__)

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
TIES = ("drop", "half")
_BLOCK_BYTES = 64 * 2**20  # match orders held at a time; more permutations are replayed block by block
_STEPS = 32  # matches indexed at a time, so that their index stays in cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matches of one dimension, in order. `first` won, unless `tied`."""

    n_models: int
    first: Index  # (t,)
    second: Index  # (t,)
    tied: npt.NDArray[np.bool_]  # (t,)

    def __len__(self) -> int:
        return len(self.first)


@dataclass(kw_only=True)
class PermutationElo:
    """Elo with update R' = R + K (S - E), E_a = 1 / (1 + 10^((R_b - R_a) / 400)), averaged over `n_perms` random
    orders of the matches (Boubdir et al. 2023), at `k` and at every K of `k_sweep` with the same orders.

    ties     drop: only decisive matches are played; half: a tie scores 1/2 for each side
    shuffle  false: one pass in the order given
    """

    k: float
    n_perms: int
    k_sweep: list[float]
    seed: int
    initial_rating: float
    ties: str
    shuffle: bool

    def __post_init__(self) -> None:
        for name, k in [("k", self.k), *(("k_sweep", k) for k in self.k_sweep)]:
            if not 0 < k < math.inf:
                raise UserError(f"{name}: found {k:g}. Expected a number above 0.")
        if self.n_perms < 1:
            raise UserError(f"n_perms: found {self.n_perms}. Expected 1 or more.")
        if self.seed < 0:
            raise UserError(f"seed: found {self.seed}. Expected 0 or more.")
        if not math.isfinite(self.initial_rating):
            raise UserError(f"initial_rating: found {self.initial_rating}. Expected a finite number.")
        one_of("ties", self.ties, TIES)

    @property
    def ks(self) -> tuple[float, ...]:
        """Every K that is computed, ascending; `k` joins the sweep."""
        return tuple(sorted({float(self.k), *(float(k) for k in self.k_sweep)}))

    def rate(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, Leaderboard]:
        """The leaderboard at `k`, by dimension."""
        return {dimension: boards[float(self.k)] for dimension, boards in self.sweep(battles).items() if boards}

    def sweep(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, dict[float, Leaderboard]]:
        """A leaderboard by dimension and K; an empty one, with a warning, where no match is left to play."""
        matches = {dimension: self.matches(some) for dimension, some in battles.items()}
        playable = [dimension for dimension, m in matches.items() if len(m)]
        for dimension in matches.keys() - set(playable):
            logger.warning("%s: no decisive match, so no Elo rating for this dimension", dimension)
        boards: dict[str, dict[float, Leaderboard]] = {dimension: {} for dimension in matches}
        if playable:
            ratings = replay(
                [matches[d] for d in playable],
                ks=self.ks,
                n_perms=self.n_perms,
                seed=self.seed,
                initial_rating=self.initial_rating,
                shuffle=self.shuffle,
            )
            for dimension, ratings_pmk in zip(playable, ratings, strict=True):
                names = models(battles[dimension])
                played = n_battles([b for b in battles[dimension] if self.ties == "half" or not b.is_tie])
                boards[dimension] = {
                    k: leaderboard(names, ratings_pmk[:, :, i], played=played, k=k, n_matches=len(matches[dimension]))
                    for i, k in enumerate(self.ks)
                }
        return boards

    def limit(self, battles: Mapping[str, Sequence[Battle]]) -> dict[str, dict[str, float]]:
        """Where small K and many passes lead: the Bradley-Terry ratings of the matches that are played.

        Models without a finite one are left out.
        """
        return {dimension: self._limit(some) for dimension, some in battles.items()}

    def _limit(self, battles: Sequence[Battle]) -> dict[str, float]:
        played = [b for b in battles if self.ties == "half" or not b.is_tie]
        names = models(played)
        if not names:
            return {}
        theta = abilities(games(played, names, use="consistent").wins()).tolist()
        return {
            name: self.initial_rating + POINTS * t for name, t in zip(names, theta, strict=True) if math.isfinite(t)
        }

    def matches(self, battles: Sequence[Battle]) -> Matches:
        """The matches that are played, winner first, in the order of the battles."""
        names = models(battles)
        index = {name: i for i, name in enumerate(names)}
        sides = [
            (index[b.model_b], index[b.model_a], False)
            if b.winner == "model_b"
            else (index[b.model_a], index[b.model_b], b.is_tie)
            for b in battles
            if self.ties == "half" or not b.is_tie
        ]
        first, second, tied = np.array(sides, dtype=np.intp).reshape(-1, 3).T
        return Matches(n_models=len(names), first=first, second=second, tied=tied.astype(bool))


def convergence(k: float, *, n_matches: int, n_models: int) -> float:
    """The share of the way from the initial rating to its final level that Elo has gone after so many matches.

    1 - exp(-K n / (2 (m - 1) 173.7)): near equality a match closes K / (2 * 173.7) of the gap of the two that play it,
    and among m models the gaps close m - 1 times as slowly. Below results.CONVERGED gaps are understated, and close
    models may stand in the wrong order.
    """
    return 1.0 - math.exp(-k * n_matches / (2 * (n_models - 1) * POINTS)) if n_models > 1 else 1.0


def leaderboard(
    names: tuple[str, ...], samples: Array, *, played: Mapping[str, int], k: float, n_matches: int
) -> Leaderboard:
    """Mean over permutations and its Monte-Carlo error; samples (p, m)."""
    n_perms = len(samples)
    error = samples.std(axis=0, ddof=1) / math.sqrt(n_perms) if n_perms > 1 else np.zeros(len(names))
    ratings = [
        Rating(model=name, rating=mean, ordering_error=sem, n_battles=played.get(name, 0))
        for name, mean, sem in zip(names, samples.mean(axis=0).tolist(), error.tolist(), strict=True)
    ]
    return Leaderboard(
        method="elo",
        models=names,
        ratings=ranked(ratings),
        samples=samples,
        n_matches=n_matches,
        parameters={"k": k, "convergence": convergence(k, n_matches=n_matches, n_models=len(names))},
    )


def replay(
    dimensions: Sequence[Matches],
    *,
    ks: Sequence[float],
    n_perms: int,
    seed: int,
    initial_rating: float,
    shuffle: bool = True,
) -> list[Array]:
    """Final ratings (p, m, k) of each dimension, every dimension shuffled by its own `default_rng(seed)`.

    Raises ValueError for a dimension without matches.
    """
    if any(len(matches) == 0 for matches in dimensions):
        raise ValueError("no match to play")
    n_perms = n_perms if shuffle else 1
    longest_first = sorted(range(len(dimensions)), key=lambda d: -len(dimensions[d]))
    ordered = [dimensions[d] for d in longest_first]
    blocks = [
        _replay_block(ordered, orders, ks=np.array(ks, dtype=float), initial_rating=initial_rating)
        for orders in _orders([len(m) for m in ordered], n_perms=n_perms, seed=seed, shuffle=shuffle)
    ]
    results: list[Array] = [np.empty(0)] * len(dimensions)
    for place, d in enumerate(longest_first):
        results[d] = np.concatenate([block[place] for block in blocks])
    return results


def _orders(lengths: Sequence[int], *, n_perms: int, seed: int, shuffle: bool) -> Iterator[list[Index]]:
    """Blocks of match orders (t, p), one for each dimension; dimensions of one length share them."""
    rngs = {n: np.random.default_rng(seed) for n in lengths}
    size = max(1, _BLOCK_BYTES // (8 * sum(lengths)))
    for start in range(0, n_perms, size):
        block = {}
        for n, rng in rngs.items():
            orders = np.tile(np.arange(n), (min(size, n_perms - start), 1))
            if shuffle:
                rng.permuted(orders, axis=1, out=orders)  # the stream of rng.permutation(n) row by row, faster
            block[n] = orders.T
        yield [block[n] for n in lengths]


def _replay_block(
    dimensions: Sequence[Matches], orders: Sequence[Index], *, ks: Array, initial_rating: float
) -> list[Array]:
    """Ratings (p, m, k) of each dimension, the longest dimension first.

    The state holds one row of K values for each model of each permutation of each dimension, in log-odds from the
    initial rating. A row moves as one opaque item: half the cost of moving its K numbers one by one.
    """
    n_perms = orders[0].shape[1]
    sizes = [n_perms * m.n_models for m in dimensions]
    bases = np.cumsum([0, *sizes[:-1]])
    state = np.zeros((sum(sizes), len(ks)))
    rows = state.view(np.dtype((np.void, state.itemsize * len(ks)))).ravel()
    ends = sorted({len(m) for m in dimensions})
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        active = [d for d, m in enumerate(dimensions) if len(m) >= end]
        n_rows = len(active) * n_perms
        held = np.empty((2, n_rows, len(ks)))
        first, second = held
        held_rows = held.reshape(2 * n_rows, len(ks)).view(rows.dtype).ravel()
        gain = np.empty((n_rows, len(ks)))
        step = np.tile(ks / POINTS, (n_rows, 1))  # written out: broadcasting five values costs three times the division
        any_tied = any(dimensions[d].tied.any() for d in active)
        for lo in range(begin, end, _STEPS):
            played = slice(lo, min(lo + _STEPS, end))
            index = _step_index(dimensions, orders, bases, active, played)
            if any_tied:
                tied = np.concatenate([dimensions[d].tied[orders[d][played]] for d in active], axis=1)
            for t, sides in enumerate(index):
                rows.take(sides, out=held_rows, mode="clip")
                np.subtract(first, second, out=gain)
                np.exp(gain, out=gain)
                np.add(gain, 1.0, out=gain)
                np.divide(step, gain, out=gain)  # K (1 - E_first), the gain of a win
                if any_tied:
                    np.subtract(gain, step / 2.0, out=gain, where=tied[t, :, None])  # a tie scores 1/2 less
                np.add(first, gain, out=first)
                np.subtract(second, gain, out=second)
                rows.put(sides, held_rows, mode="clip")  # half the time of rows[sides] = held_rows
    state *= POINTS
    state += initial_rating
    return [
        state[base : base + size].reshape(n_perms, m.n_models, len(ks))
        for base, size, m in zip(bases, sizes, dimensions, strict=True)
    ]


def _step_index(
    dimensions: Sequence[Matches], orders: Sequence[Index], bases: Index, active: Sequence[int], played: slice
) -> Index:
    """State rows of the matches played: all first sides, then all second sides (t, 2 rows)."""
    n_steps, n_perms = orders[0][played].shape
    index = np.empty((n_steps, 2, len(active), n_perms), dtype=np.intp)
    for place, d in enumerate(active):
        order = np.ascontiguousarray(orders[d][played])
        base = bases[d] + np.arange(n_perms) * dimensions[d].n_models
        np.add(dimensions[d].first[order], base, out=index[:, 0, place])
        np.add(dimensions[d].second[order], base, out=index[:, 1, place])
    return index.reshape(n_steps, -1)
