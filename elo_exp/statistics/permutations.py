"""Elo over many orders of the same matches, replayed in lockstep over permutations, values of K and dimensions.

Letters: d dimension, p permutation, t match, m model, k value of K. One replay step handles match t of every
permutation of every dimension for every K at once.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.statistics.likelihood import POINTS, Array, Index, Mask

_BLOCK_BYTES = (
    64 * 2**20
)  # match orders held at a time; more permutations are replayed block by block
_BLOCK_ORDERS = 256  # but no fewer than these: a step costs 2.5 us and, by the values of K, 10 to 20 ns an order
_STEPS = 32  # matches indexed at a time, so that their index stays in cache
Orders = NDArray[np.integer[Any]]  # (t, p), numbers of matches or of their kinds
_Rows = NDArray[np.void]  # of K values each


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The matches of one dimension, in order. `first` won, unless `tied`."""

    n_models: int
    first: Index  # (t,)
    second: Index  # (t,)
    tied: Mask  # (t,)

    def __len__(self) -> int:
        return len(self.first)


def _say_nothing(orders: float) -> None:
    """To whoever does not ask how far the work is."""


def replay(
    dimensions: Sequence[Matches],
    *,
    ks: Sequence[float],
    n_perms: int,
    seed: int,
    initial_rating: float,
    shuffle: bool = True,
    tell: Callable[[float], object] = _say_nothing,
) -> list[Array]:
    """Final ratings (p, m, k) of each dimension, every dimension shuffled by its own `default_rng(seed)`.

    tell  is told now and then how many orders were played since, of n_perms in all
    Raises ValueError for a dimension without matches.
    """
    if any(len(matches) == 0 for matches in dimensions):
        raise ValueError("no match to play")
    n_perms = n_perms if shuffle else 1
    longest_first = sorted(range(len(dimensions)), key=lambda d: -len(dimensions[d]))
    ordered = [dimensions[d] for d in longest_first]
    tables, kinds = _kinds(ordered, n_bytes=8 * n_perms * sum({len(m) for m in ordered}))
    blocks = [
        _replay_block(
            tables, orders, ks=np.array(ks, dtype=float), initial_rating=initial_rating, tell=tell
        )
        for orders in _orders(
            [len(m) for m in ordered], kinds, n_perms=n_perms, seed=seed, shuffle=shuffle
        )
    ]
    results: list[Array] = [np.empty(0)] * len(dimensions)
    for place, d in enumerate(longest_first):
        results[d] = np.concatenate([block[place] for block in blocks])
    return results


def replay_resamples(
    matches: Matches,
    times: Index,
    cluster: Index,
    *,
    k: float,
    n_perms: int,
    seed: int,
    initial_rating: float,
    shuffle: bool = True,
    tell: Callable[[float], object] = _say_nothing,
) -> Array:
    """Final ratings (b, p, m) where the matches of cluster q are played times[b, q] times, in orders of its own for
    each resample b.

    cluster  (t,) of each match
    tell     is told now and then how many orders were played since, of b p in all
    All resamples are filled up to one length with matches of two models that nobody else meets.
    """
    n_perms = n_perms if shuffle else 1
    m = matches.n_models
    padded = Matches(
        n_models=m + 2,
        first=np.append(matches.first, m),
        second=np.append(matches.second, m + 1),
        tied=np.append(matches.tied, False),
    )
    n_matches = np.bincount(cluster, minlength=times.shape[1])
    lengths = np.array(
        [drawn @ n_matches for drawn in times]
    )  # times may be of one byte, and all at once of eight
    longest = int(lengths.max())
    (table,), kinds = _kinds([padded], n_bytes=8 * n_perms * len(times) * longest)
    kind = kinds[len(padded)]
    rng = np.random.default_rng(seed)
    size = max(1, _held(kind.itemsize * longest) // n_perms)
    held = np.empty((min(size, len(times)), n_perms, longest), dtype=kind.dtype)
    ratings = []
    for start in range(0, len(times), size):
        block = times[start : start + size]
        for order, drawn, length in zip(held, block, lengths[start : start + size], strict=False):
            order[:] = np.repeat(kind, np.append(drawn[cluster], longest - length))
        orders = held[: len(block)].reshape(-1, longest)
        if shuffle:
            rng.permuted(orders, axis=1, out=orders)
        (found,) = _replay_block(
            [table], [orders.T], ks=np.array([k]), initial_rating=initial_rating, tell=tell
        )
        ratings.append(found[:, :m, 0].reshape(len(block), n_perms, m))
    return np.concatenate(ratings)


def _kinds(
    dimensions: Sequence[Matches], *, n_bytes: int
) -> tuple[list[Matches], dict[int, Orders]]:
    """What orders are orders of: matches, and by the length of a dimension the number (t,) of each of its own.

    Where all orders take no more than a block in `n_bytes`, eight for each number, these are the dimensions' matches:
    numbers of eight bytes are shuffled fastest. Else equal matches are one, and a number takes as few bytes as it can.
    """
    if n_bytes <= _BLOCK_BYTES:
        return list(dimensions), {n: np.arange(n) for n in map(len, dimensions)}
    kinds: dict[int, Orders] = {}
    for matches in dimensions:
        outcome = (matches.first * matches.n_models + matches.second) * 2 + matches.tied
        together = (
            kinds.get(len(matches), np.zeros(len(matches), dtype=np.intp))
            * (2 * matches.n_models**2)
            + outcome
        )
        _, kinds[len(matches)] = np.unique(together, return_inverse=True)
    tables = []
    for matches in dimensions:
        _, one = np.unique(kinds[len(matches)], return_index=True)
        tables.append(
            Matches(
                n_models=matches.n_models,
                first=matches.first[one],
                second=matches.second[one],
                tied=matches.tied[one],
            )
        )
    return tables, {
        n: kind.astype(np.min_scalar_type(int(kind.max()))) for n, kind in kinds.items()
    }


def _held(n_bytes: int) -> int:
    """How many orders of so many bytes are held at a time."""
    return max(_BLOCK_ORDERS, _BLOCK_BYTES // max(1, n_bytes))


def _orders(
    lengths: Sequence[int], kinds: Mapping[int, Orders], *, n_perms: int, seed: int, shuffle: bool
) -> Iterator[list[Orders]]:
    """Blocks of match orders (t, p), one for each dimension; dimensions of one length share them.

    A block is gone when the next is asked for: it is written over.
    """
    rngs = {n: np.random.default_rng(seed) for n in lengths}
    size = min(n_perms, _held(sum(kind.nbytes for kind in kinds.values())))
    held = {n: np.empty((size, n), dtype=kind.dtype) for n, kind in kinds.items()}
    for start in range(0, n_perms, size):
        block = {}
        for n, rng in rngs.items():
            orders = held[n][: n_perms - start]
            orders[:] = kinds[n]
            if shuffle:
                rng.permuted(
                    orders, axis=1, out=orders
                )  # the stream of rng.permutation(n) row by row, faster
            block[n] = orders.T
        yield [block[n] for n in lengths]


def _replay_block(
    dimensions: Sequence[Matches],
    orders: Sequence[Orders],
    *,
    ks: Array,
    initial_rating: float,
    tell: Callable[[float], object],
) -> list[Array]:
    """Ratings (p, m, k) of each dimension; orders (t, p) of its matches, the longest first.

    The state holds one row of K values for each model of each permutation of each dimension, in log-odds from the
    initial rating. A row moves as one opaque item: half the cost of moving its K numbers one by one.
    """
    n_perms = orders[0].shape[1]
    sizes = [n_perms * m.n_models for m in dimensions]
    bases = np.cumsum([0, *sizes[:-1]])
    state = np.zeros((sum(sizes), len(ks)))
    rows = state.view(np.dtype((np.void, state.itemsize * len(ks)))).ravel()
    write = _fastest_way_to_write(rows)
    ends = sorted({len(order) for order in orders})
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        active = [d for d, order in enumerate(orders) if len(order) >= end]
        n_rows = len(active) * n_perms
        held = np.empty((2, n_rows, len(ks)))
        first, second = held
        held_rows = held.reshape(2 * n_rows, len(ks)).view(rows.dtype).ravel()
        gain = np.empty((n_rows, len(ks)))
        step = np.tile(
            ks / POINTS, (n_rows, 1)
        )  # written out: broadcasting five values costs three times the division
        any_tied = any(dimensions[d].tied.any() for d in active)
        for lo in range(begin, end, _STEPS):
            steps = slice(lo, min(lo + _STEPS, end))
            index = _step_index(dimensions, orders, bases, active, steps)
            if any_tied:
                tied = np.concatenate(
                    [dimensions[d].tied[orders[d][steps]] for d in active], axis=1
                )
            for t, sides in enumerate(index):
                rows.take(sides, out=held_rows, mode="clip")
                np.subtract(first, second, out=gain)
                np.exp(gain, out=gain)
                np.add(gain, 1.0, out=gain)
                np.divide(step, gain, out=gain)  # K (1 - E_first), the gain of a win
                if any_tied:
                    np.subtract(
                        gain, step / 2.0, out=gain, where=tied[t, :, None]
                    )  # a tie scores 1/2 less
                np.add(first, gain, out=first)
                np.subtract(second, gain, out=second)
                write(rows, sides, held_rows)
            tell(n_perms * len(index) / ends[-1])
    state *= POINTS
    state += initial_rating
    return [
        state[base : base + size].reshape(n_perms, m.n_models, len(ks))
        for base, size, m in zip(bases, sizes, dimensions, strict=True)
    ]


def _put(rows: _Rows, at: Index, values: _Rows) -> None:
    rows.put(at, values, mode="clip")


def _assign(rows: _Rows, at: Index, values: _Rows) -> None:
    rows[at] = values


_WAYS = (_put, _assign)


def _fastest_way_to_write(rows: _Rows) -> Callable[[_Rows, Index, _Rows], None]:
    """An assignment takes 2 to 7 ns a row by its size; put divides integers for each, 2 to 12 ns by the processor.

    They do the same, and the wrong one costs a replay a tenth to a half of its time. Each is tried on rows as they are.
    """
    at = np.arange(min(len(rows), 1000))
    values = rows[at]
    return min(
        _WAYS, key=lambda write: min(timeit.repeat(lambda: write(rows, at, values), number=1))
    )


def _step_index(
    dimensions: Sequence[Matches],
    orders: Sequence[Orders],
    bases: Index,
    active: Sequence[int],
    steps: slice,
) -> Index:
    """State rows of the matches played: all first sides, then all second sides (t, 2 rows)."""
    n_steps, n_perms = orders[0][steps].shape
    index = np.empty((n_steps, 2, len(active), n_perms), dtype=np.intp)
    model = np.empty((n_steps, n_perms), dtype=np.intp)
    ordered = {id(orders[d]): np.ascontiguousarray(orders[d][steps], dtype=np.intp) for d in active}
    for place, d in enumerate(active):
        base = bases[d] + np.arange(n_perms) * dimensions[d].n_models
        for side, models in enumerate((dimensions[d].first, dimensions[d].second)):
            models.take(
                ordered[id(orders[d])], out=model, mode="clip"
            )  # half the time of models[order]
            np.add(model, base, out=index[:, side, place])
    return index.reshape(n_steps, -1)


def running_means(samples: Array, *, n_points: int = 120) -> tuple[Index, Array, Array]:
    """Return how the mean over permutations settles, at log-spaced numbers of them.

    samples  (p, m), as `replay` returns them for one K
    Returns the numbers of permutations (n,), the means (n, m) and their standard errors (n, m),
    zero for one permutation.
    """
    counts = np.unique(np.geomspace(1, len(samples), n_points).round().astype(np.intp))
    n = counts[:, None]
    means = np.cumsum(samples, axis=0)[counts - 1] / n
    shifted = samples - samples[0]  # small numbers: their squares lose no digits
    squares = np.cumsum(shifted**2, axis=0)[counts - 1] - n * (means - samples[0]) ** 2
    errors = np.sqrt(np.maximum(squares, 0.0) / np.maximum(n - 1, 1) / n)
    return counts, means, errors
