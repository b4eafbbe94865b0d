"""The prompt bootstrap: prompts are drawn with replacement, each with all its verdicts, and the ratings fitted anew.

Letters: b of n_bootstraps resamples; q of n prompts; d dimension; p of the pairs that met; i, j of m models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elo_exp.statistics.likelihood import (
    Array,
    Games,
    Index,
    Mask,
    Pairs,
    bradley_terry_mle,
    information,
    pairs,
    win_probability,
)

_NUMBERS_TO_FIT = (
    2**16
)  # held at a time for the resamples that are fitted together, so that they stay in cache
_NUMBERS_TO_DRAW = 2**17  # held at a time for the prompts drawn, so that they stay in cache
_CHORD_STEPS = 30  # after which a resample is fitted by Newton's method proper
_SETTLED = (
    1e-7  # largest change of an ability, in log-odds: some hundred-thousandths of a rating point
)
_DENSE = 20  # prompts are summed as a matrix where that takes no more than so many numbers a game


def resampled_abilities(
    dimensions: Sequence[Games], thetas: Sequence[Array], *, n_bootstraps: int, seed: int
) -> list[Array]:
    """Bradley-Terry abilities (b, m) in log-odds of each dimension, mean zero, over the same draws of prompts.

    dimensions  games among models that have finite abilities together, and `thetas` those abilities
    A prompt is known by its question, so it is drawn for all dimensions at once; clusters without a question are drawn
    one by one. A row is NaN where the resample leaves no finite abilities, because someone lost every link to or from
    the others: it has no maximum, and a prior that gave it one would decide what it is.
    """
    prompts = _prompts(dimensions)
    n_prompts = 1 + max(int(numbers.max()) for numbers in prompts)
    fits = [
        _Refit(*one, n_prompts=n_prompts) for one in zip(dimensions, thetas, prompts, strict=True)
    ]
    rng = np.random.default_rng(seed)
    found: list[list[Array]] = [[] for _ in fits]
    for n in _blocks(n_bootstraps, _NUMBERS_TO_FIT // max(fit.width for fit in fits)):
        counts: list[list[Array]] = [[] for _ in fits]
        for n_at_once in _blocks(n, _NUMBERS_TO_DRAW // n_prompts):
            drawn = _draw(rng, n_at_once, n_prompts)
            for fit, rows in zip(fits, counts, strict=True):
                rows.append(fit.counts(drawn))
        for fit, rows, blocks in zip(fits, counts, found, strict=True):
            blocks.append(fit.abilities(np.concatenate(rows)))
    return [np.concatenate(blocks) for blocks in found]


def drawn_prompts(dimensions: Sequence[Games], *, n_bootstraps: int, seed: int) -> list[Index]:
    """How often each prompt of each dimension is drawn (b, q), prompts being drawn for all dimensions at once, in
    numbers of as few bytes as they need: every battle may be a prompt of its own."""
    prompts = _prompts(dimensions)
    n_prompts = 1 + max(int(numbers.max()) for numbers in prompts)
    rng = np.random.default_rng(seed)
    sizes = _blocks(n_bootstraps, _NUMBERS_TO_DRAW // n_prompts)
    times = np.concatenate([_narrow(_times(_draw(rng, n, n_prompts))) for n in sizes])
    return [times[:, numbers] for numbers in prompts]


def _narrow(times: Array) -> Index:
    return times.astype(np.min_scalar_type(int(times.max())))


def _prompts(dimensions: Sequence[Games]) -> list[Index]:
    """The number over all dimensions of each dimension's clusters (q,)."""
    number: dict[str, int] = {}
    for games in dimensions:
        for question in games.questions:
            if question is not None:
                number.setdefault(question, len(number))
    n = len(number)
    prompts = []
    for games in dimensions:
        nameless = np.array(
            [question is None for question in games.questions] or [True] * games.n_clusters,
            dtype=bool,
        )
        numbers = np.full(games.n_clusters, -1)
        numbers[nameless] = n + np.arange(nameless.sum())
        numbers[~nameless] = [
            number[question] for question in games.questions if question is not None
        ]
        n += int(nameless.sum())
        prompts.append(numbers)
    return prompts


def _blocks(n: int, size: int) -> list[int]:
    """n as a sum of numbers up to `size`, at least 1."""
    size = max(1, size)
    return [min(size, n - start) for start in range(0, n, size)]


def _draw(rng: np.random.Generator, n: int, n_prompts: int) -> Index:
    """As many prompts (n, q) as there are, with replacement, for each of n resamples."""
    return rng.integers(n_prompts, size=(n, n_prompts))


def _times(drawn: Index) -> Array:
    """How often each prompt is drawn in each resample (b, q)."""
    n, n_prompts = drawn.shape
    at = drawn + n_prompts * np.arange(n)[:, None]
    return np.bincount(at.ravel(), minlength=n * n_prompts).reshape(n, n_prompts).astype(np.float64)


class _Refit:
    """Fits resamples of one dimension's prompts, starting from the fit of all of them."""

    def __init__(self, games: Games, theta: Array, prompts: Index, *, n_prompts: int) -> None:
        m = games.n_models
        self._theta = theta
        self._prompts = prompts  # (q,) of the dimension
        self._prompt_of_game = prompts[games.cluster]
        self._pairs: Pairs = pairs(games)
        n_pairs = len(self._pairs.first)
        self.width = max(3 * n_pairs, m * m)  # numbers that a resample takes
        self._code_of_prompt = self._by_prompt = None
        if games.n_clusters == len(games.score):
            self._code_of_prompt = np.full(
                n_prompts, 3 * n_pairs
            )  # of one that is not in this dimension
            self._code_of_prompt[self._prompt_of_game] = self._pairs.code
        elif 3 * n_pairs * games.n_clusters <= _DENSE * len(games.score):
            at = games.cluster * 3 * n_pairs + self._pairs.code
            counts = np.bincount(at, minlength=3 * n_pairs * games.n_clusters)
            self._by_prompt = counts.reshape(games.n_clusters, 3 * n_pairs).astype(np.float64)
        wins = games.wins()
        curvature = information(win_probability(theta), wins + wins.T)
        self._inverse = np.linalg.inv(curvature + 1.0 / m)

    def counts(self, drawn: Index) -> Array:
        """(b, 3 p): how often the first of each pair lost, tied and won, the prompts (b, q) being drawn."""
        n = 3 * len(self._pairs.first)
        if self._code_of_prompt is not None:
            codes = (self._code_of_prompt[prompts] for prompts in drawn)
            return np.array(
                [np.bincount(code, minlength=n + 1)[:n] for code in codes], dtype=np.float64
            )
        times = _times(drawn)
        if self._by_prompt is not None:
            return np.asarray(times[:, self._prompts] @ self._by_prompt)
        of_games = (row[self._prompt_of_game] for row in times)
        return np.array(
            [np.bincount(self._pairs.code, weights=row, minlength=n) for row in of_games]
        )

    def abilities(self, counts: Array) -> Array:
        """(b, m); NaN where there are no finite ones."""
        lost, tied, won = np.moveaxis(counts.reshape(len(counts), -1, 3), 2, 0)
        wins, n_games = won + 0.5 * tied, lost + tied + won
        found = np.full((len(counts), len(self._theta)), np.nan)
        connected = np.flatnonzero(self._connected(wins, n_games - wins))
        found[connected] = self._by_chord(wins[connected], n_games[connected])
        for b in connected[
            np.isnan(found[connected, 0])
        ]:  # far from the whole: few, small or lopsided prompts
            found[b] = bradley_terry_mle(self._matrix(wins[[b]], n_games[[b]] - wins[[b]])[0])
        return found

    def _by_chord(self, wins: Array, n_games: Array) -> Array:
        """(b, m) by Newton's method with the curvature of the whole data throughout; NaN where that does not settle."""
        n, m = len(wins), len(self._theta)
        theta = np.tile(self._theta, (n, 1))
        half = n_games.ravel() / 2.0
        excess = wins.ravel() - half  # p = (1 + tanh(gap / 2)) / 2, which no gap overflows
        row = m * np.arange(n)[:, None]
        first, second = (row + self._pairs.first).ravel(), (row + self._pairs.second).ravel()
        change = np.full(n, np.inf)
        for _ in range(_CHORD_STEPS):
            half_theta = theta.ravel() / 2.0
            surprise = half_theta[first]
            surprise -= half_theta[second]
            np.tanh(surprise, out=surprise)
            surprise *= half
            np.subtract(excess, surprise, out=surprise)
            gradient = np.bincount(first, surprise, n * m) - np.bincount(second, surprise, n * m)
            step = gradient.reshape(n, m) @ self._inverse
            theta += step
            change = np.abs(step).max(axis=1, initial=0.0)
            if (change < _SETTLED).all():
                break
        theta[change >= _SETTLED] = np.nan
        return theta

    def _connected(self, wins: Array, losses: Array) -> Mask:
        """In which resamples (b,) a chain of wins or ties still leads from everyone to everyone."""
        links = (self._matrix(wins, losses) > 0).astype(np.float32)
        return np.asarray(_all_reached(links) & _all_reached(links.transpose(0, 2, 1)))

    def _matrix(self, there: Array, back: Array) -> Array:
        """(b, m, m) of what each pair has in one direction and in the other (b, p)."""
        m = len(self._theta)
        matrix = np.zeros((len(there), m, m))
        matrix[:, self._pairs.first, self._pairs.second] = there
        matrix[:, self._pairs.second, self._pairs.first] = back
        return matrix


def _all_reached(links: npt.NDArray[np.float32]) -> Mask:
    """Whether a chain of links (b, m, m) leads from the first model to every other (b,)."""
    reached = np.zeros((len(links), 1, links.shape[1]), dtype=np.float32)
    reached[:, :, 0] = 1.0
    while True:
        further = ((reached + reached @ links) > 0).astype(np.float32)
        if (further == reached).all():
            return np.asarray(reached.all(axis=(1, 2)))
        reached = further
