"""Tournaments of known truth for planned looks, and the looks once more, of many tournaments at a time.

Entrants of one group are exchangeable, so that equal pairs are exactly equal. Letters: b tournaments times
dimensions; n prompts; g games on a prompt, pair by pair, the first of a pair shown first and second; m entrants.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, fdtrc, logit, ndtri, stdtr

from elo_exp.analysis.bounded_tests import p_value
from elo_exp.analysis.complete_separation import unbeaten_lower_bound
from elo_exp.analysis.sequential_tests import (
    MIN_P_VALUE_OF_FIT,
    Key,
    boundaries,
    comparison_key,
    estimate_stagewise,
    family_wise_alpha,
    plan_looks,
    prompt_order,
)
from elo_exp.arrays import Array
from elo_exp.ratings.fit import Fit
from elo_exp.ratings.games import Games
from elo_exp.records import Battle, Comparison

LOGIT = 400 / math.log(10)
ALPHA = family_wise_alpha(drop=True)
STRETCH = 1.9  # latent units, so that marginal gaps are about the Elo points given


@dataclass(frozen=True, kw_only=True)
class World:
    """In logits: `quality` is the sd of an entrant's answer to a prompt, half of it the same in all dimensions;
    `position` the mean and sd of the advantage of being shown first; `strata` by how much even and odd entrants trade
    places between two strata. In pair (0, 1) the second has `cyclic` more than by its strength, which `makes_up` of the
    first against each other entrant balances."""

    elo: Sequence[float]
    n: int
    dims: int = 3
    quality: float = 1.2
    ties: float = 0.5
    position: tuple[float, float] = (0.1, 0.0)
    strata: float = 0.0
    invalid: float = 0.0
    cyclic: float = 0.0
    makes_up: float = 0.0

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(itertools.combinations(range(len(self.elo)), 2))

    @functools.cached_property
    def comparisons(self) -> list[Comparison]:
        """Of one dimension, prompts first, in the order in which they are judged."""
        texts = dict.fromkeys(("dimension", "prompt_text", "response_a"), "")
        names = prompt_order({f"q{q}": "one" for q in range(self.n)})
        return [
            Comparison(
                prompt_id=name,
                source="one",
                entrant_a=f"e{i}",
                entrant_b=f"e{j}",
                response_b="other",
                **texts,
            )
            for name in names
            for i, j in self.pairs
        ]

    def draw(self, n_runs: int, rng: np.random.Generator, orders: str) -> Array:
        """The points (b, n, g) of the first of each pair; NaN where not asked or invalid."""
        size, m = (n_runs, self.dims, self.n), len(self.elo)
        i, j = np.triu_indices(m, 1)
        answer = rng.normal(size=(n_runs, 1, self.n, m)) + rng.normal(size=(*size, m))
        side = np.outer(np.arange(self.n) % 2 * 2 - 1, np.arange(m) % 2 * 2 - 1)
        latent = np.array(self.elo) / LOGIT * STRETCH + self.strata / 2 * side
        latent = latent + self.quality / math.sqrt(2) * answer
        gap = latent[..., i] - latent[..., j] + rng.normal(size=(*size, len(i)))
        gap += np.where(i == 0, np.where(j == 1, -self.cyclic, self.makes_up), 0.0)
        mean, sd = self.position
        position = mean + sd * rng.normal(size=(n_runs, 1, self.n, 1, 1))
        win = np.exp((gap[..., None] + position * np.array([1, -1])) / 2)
        at = rng.random(win.shape) * (win + 1 / win + self.ties)
        points = np.where(at < win, 1.0, np.where(at < win + self.ties, 0.5, 0.0))
        points[rng.random(gap.shape) < self.invalid] = np.nan
        if orders == "one":
            is_first = rng.random(gap.shape) < 0.5
            points[np.stack([~is_first, is_first], axis=-1)] = np.nan
        return points.reshape(-1, self.n, 2 * len(i))

    def known(self, points: Array) -> list[dict[Key, Battle | None]]:
        """By dimension, the battles of one tournament (dims, n, g); None where a verdict is invalid."""
        names = {1.0: "model_a", 0.5: "tie", 0.0: "model_b"}
        found = []
        for some in points.reshape(self.dims, -1, 2).tolist():
            found.append({})
            for c, scores in zip(self.comparisons, some, strict=True):
                ab, ba = map(names.get, scores)
                valid = {ab, ba} - {None}
                winner = valid.pop() if len(valid) == 1 else "tie"
                found[-1][comparison_key(c)] = (
                    Battle(
                        model_a=c.entrant_a,
                        model_b=c.entrant_b,
                        winner=winner,
                        question_id=c.prompt_id,
                        verdict_ab=ab,
                        verdict_ba=ba,
                    )
                    if ab or ba
                    else None
                )
        return found


WORLDS = {
    "four equals": World(elo=(0,) * 4, n=143),
    "two equals": World(elo=(0,) * 2, n=29),
    "eight equals": World(elo=(0,) * 8, n=60),
    "two groups 150 apart": World(elo=(0,) * 3 + (150,) * 3, n=93),
    "gaps of 30 to 100": World(elo=(0, 30, 60, 100), n=143),
    "gaps of 100": World(elo=(0, 100, 200, 300), n=143),
    "many ties": World(elo=(0,) * 4, n=50, ties=4.0, quality=2.5),
    "position bias": World(elo=(0,) * 4, n=93, position=(0.8, 1.5)),
    "strata trade places": World(elo=(0,) * 4, n=143, strata=1.5),
    "one far ahead": World(elo=(0,) * 4 + (400,), n=40),
    "invalid verdicts": World(elo=(0,) * 3, n=100, invalid=0.05),
    "eight, 30 apart": World(elo=tuple(range(0, 240, 30)), n=143),
    "cyclic, .46": World(elo=(0, 0, -150, -150), n=143, cyclic=0.3, makes_up=0.363),
    "cyclic, .42": World(elo=(0, 0, -150, -150), n=143, cyclic=0.6, makes_up=0.761),
    "cyclic, .37": World(elo=(0, 0, -150, -150), n=143, cyclic=1.0, makes_up=1.373),
    "cyclic, five": World(
        elo=(0, 0, -100, -200, -300), n=143, dims=1, cyclic=0.3, makes_up=0.277
    ),
}
# In which entrants take every point from others, at all looks or at the first ones
UNBEATEN = {
    "one unbeaten": World(elo=(0,) * 4 + (1400,), n=60),
    "two unbeaten by all below": World(elo=(0, 0, 0, 1100, 2200), n=93, ties=0.2),
    "often unbeaten at first": World(elo=(0,) * 3 + (600,), n=143, quality=0.6),
}


# The looks once more, as a second opinion that takes milliseconds


def fit(points: Array, design: Array, m: int) -> tuple[Array, Array, Array]:
    """Fit logistic regressions of points (b, n, g) on a design (g, k), the m abilities first.

    Returns the parameters (b, k), the residuals (b, n, g) and the inverse information (b, k, k).
    """
    is_there = ~np.isnan(points)
    won, played = np.nansum(points, axis=1), is_there.sum(axis=1)
    parameters = np.zeros((len(points), design.shape[1]))
    level = np.zeros((design.shape[1],) * 2)
    level[:m, :m] = 1 / m
    for _ in range(30):
        p = expit(parameters @ design.T)
        weight = played * p * (1 - p) + 1e-9
        information = (design.T * weight[:, None]) @ design + level
        slope = (won - played * p) @ design
        step = np.linalg.solve(information, slope[..., None])[..., 0]
        step *= 1.5 / np.abs(step).max(axis=1, keepdims=True, initial=1.5)
        parameters += step
        if np.abs(step).max(initial=0.0) < 1e-8:
            break
    residual = np.where(is_there, points - expit(parameters @ design.T)[:, None], 0.0)
    return parameters, residual, np.linalg.inv(information) - level


def misfit(points: Array, design: Array, m: int) -> Array:
    """The p values (b,) of Hotelling's test that Bradley-Terry explains the points of all pairs."""
    (b, n, _), df = points.shape, (m - 1) * (m - 2) // 2
    if not 0 < df < n:
        return np.ones(b)
    parameters, residual, inverse = fit(points, design, m)
    p = expit(parameters @ design.T)
    weight = (~np.isnan(points)).sum(axis=1) * p * (1 - p)
    weight, pair = weight.reshape(b, 1, -1, 2).sum(axis=-1), design[::2]
    own = residual.reshape(b, n, -1, 2).sum(axis=-1)
    own -= own @ pair @ inverse @ pair.T * weight
    total = own.sum(axis=1)
    spread = own.swapaxes(1, 2) @ own - total[:, :, None] * total[:, None] / n
    values, vectors = np.linalg.eigh(spread * n / (n - 1))
    on = np.einsum("bpk,bp->bk", vectors[:, :, -df:], total)
    square = (on**2 / np.maximum(values[:, -df:], 1e-12)).sum(axis=1)
    return fdtrc(df, n - df, square * (n - df) / (df * (n - 1)))


def one_sided(points: Array, design: Array, pair: Array) -> Array:
    """On how many prompts the first of a pair took every point (b, p), less those on which the second did; 0
    unless one of them took every point from all others, or none."""
    there = ~np.isnan(points)
    won, played = np.nansum(points, axis=1), there.sum(axis=1)
    ahead, behind = np.maximum(design, 0), np.maximum(-design, 0)
    points_of = won @ ahead + (played - won) @ behind
    games_of = played @ (ahead + behind)
    never = (points_of == 0) | (points_of == games_of)
    met = there.reshape(*there.shape[:2], len(pair), 2).any(axis=3).sum(axis=1)
    is_ahead = won.reshape(len(won), len(pair), 2).sum(axis=2) > 0
    return np.where(never @ np.abs(pair.T) > 0, np.where(is_ahead, met, -met), 0)


def gaps(points: Array, design: Array, pair: Array) -> tuple[Array, Array]:
    """The gaps of the pairs (b, p), 0 where an entrant only won or only lost, and their errors by prompt."""
    (_, n, _), m = points.shape, pair.shape[1]
    parameters, residual, inverse = fit(points, design, m)
    parts = (residual @ design @ inverse)[..., :m] @ pair.T
    error = np.sqrt((parts**2).sum(axis=1) * n / (n - 1))
    won = np.nansum(points, axis=1)
    lost = (~np.isnan(points)).sum(axis=1) - won
    ahead, behind = np.maximum(design[:, :m], 0), np.maximum(-design[:, :m], 0)
    never = (won @ ahead + lost @ behind == 0) | (lost @ ahead + won @ behind == 0)
    gap = np.where(never @ np.abs(pair.T) > 0, 0.0, parameters[:, :m] @ pair.T)
    return gap, np.maximum(error, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What simulated tournaments with looks claimed.

    claims            (runs, dims, p): 1 if the first of a pair is claimed to be better, -1 if the second is
    asked             (runs,): comparisons
    look, gap, error  (b, p): those of each pair's last test; the error is 0 if one of the pair took every point
    swept             (b, p): the prompts on which the first took every point, less those on which the second did
    has_error         (looks, b, p): whether there was an error at the look
    bounds            (looks, b): the boundary of the look
    """

    claims: Array
    asked: Array
    look: Array
    gap: Array
    error: Array
    swept: Array
    has_error: Array
    bounds: Array


def bounds_of_one(times: tuple[float, ...], k: int) -> float:
    """The lowest boundary of a look, with a single pair open: whoever is below it has not crossed any."""
    return boundaries(ALPHA, times)[k]


def bounded_z(
    points: Array, pairs: Sequence[tuple[int, int]], m: int, which: int
) -> float:
    """Z of the bounded-mean test of a pair, from points (n, 2 p) of the first of each pair; NaN was not asked."""
    q, game = np.nonzero(~np.isnan(points))
    first, second = np.array(pairs)[game // 2].T
    prompts, cluster = np.unique(q, return_inverse=True)
    played = Games(
        n_models=m,
        first=first,
        second=second,
        score=points[q, game],
        cluster=cluster,
        prompts=prompts,
        position=np.zeros(len(q)),
        is_one_order=False,
        battle=np.arange(len(q)),
    )
    fit = Fit.from_games(played)
    contrast = np.zeros(m)
    contrast[list(pairs[which])] = 1.0, -1.0
    rated, theta = contrast[fit.is_rated], fit.theta
    wins = fit.games.wins()
    tests = [p_value(fit.games, wins, theta, sign * rated) for sign in (1.0, -1.0)]
    return -float(ndtri(min(0.5, *tests)))


def look(world: World, points: Array, orders: str, *, n_looks: int = 5) -> Looked:
    """Take looks at tournaments (b, n, g), pairs being left out while Bradley-Terry fits."""
    b, n, g = points.shape
    m, p, dims = len(world.elo), g // 2, world.dims
    pair = (
        np.eye(m)[[i for i, _ in world.pairs]] - np.eye(m)[[j for _, j in world.pairs]]
    )
    plain = np.repeat(pair, 2, axis=0)
    shown = np.tile([[1.0], [-1.0]], (p, 1))
    design = np.hstack([plain, shown]) if orders == "one" else plain
    looks = plan_looks(n, n_looks)
    times = tuple(end / n for end in looks)
    claims, gap, error, swept = np.zeros((4, b, p))
    last, is_whole = np.zeros((b, p), int), np.zeros(b, bool)
    is_asked, bounds = np.zeros((b, n, p), bool), np.zeros((len(looks), b))
    has_error = np.zeros((len(looks), b, p), bool)
    for k, (start, end) in enumerate(itertools.pairwise([0, *looks])):
        due = np.flatnonzero(~claims.all(axis=1))
        wanted = (claims == 0) | is_whole[:, None]
        is_asked[due, start:end] = wanted[due, None]

        def seen(which: Array, end: int = end) -> Array:
            there = np.repeat(is_asked[which, :end], 2, axis=2)
            return np.where(there, points[which, :end], np.nan)

        new = due[~is_whole[due] & (misfit(seen(due), plain, m) < MIN_P_VALUE_OF_FIT)]
        is_whole[new] = is_asked[new, :end] = True
        now = np.zeros((3, b, p))
        now[:2, due] = gaps(seen(due), design, pair)
        now[2, due] = one_sided(seen(due), plain, pair)
        is_tested = (claims == 0) & ((now[0] != 0) | (now[2] != 0))
        gap[is_tested], error[is_tested], swept[is_tested] = now[:, is_tested]
        error[swept != 0] = 0.0
        has_error[k] = is_tested & (now[0] != 0)
        last[is_tested] = k
        t = np.divide(*now[:2], out=np.zeros((b, p)), where=is_tested & (now[0] != 0))
        z = np.where(
            now[2] != 0,
            -ndtri(0.5 ** np.abs(now[2])),
            -ndtri(stdtr(end - 1, -np.abs(t))),
        )
        crossed = is_tested & (now[0] != 0) & (z > bounds_of_one(times, k))
        for d, q in np.argwhere(crossed).tolist():
            rows = np.where(np.repeat(is_asked[d, :end], 2, axis=1), points[d, :end], np.nan)  # fmt: skip
            z[d, q] = min(z[d, q], bounded_z(rows, world.pairs, m, q))
        while True:
            n_open = (claims == 0).reshape(-1, dims * p).sum(axis=1).repeat(dims)
            for h in set(n_open[due]) - {0}:
                bounds[k, n_open == h] = boundaries(ALPHA / h, times)[k]
            new = is_tested & (claims == 0) & (z > bounds[k][:, None])
            if not new.any():
                break
            claims[new] = np.sign(gap + swept)[new]
    return Looked(
        claims=claims.reshape(-1, dims, p),
        asked=is_asked.reshape(-1, dims * n * p).sum(axis=1),
        look=last,
        gap=gap,
        error=error,
        swept=swept,
        has_error=has_error,
        bounds=bounds,
    )


def study(world: World, n: int, orders: str) -> tuple[float, float, float, float]:
    """Of n tournaments: how often any claim was wrong, the mean share of the calls of all comparisons in both orders,
    the resolved pairs of a dimension, and how often the intervals of some cover the gap that many prompts show."""
    rng = np.random.default_rng(5)
    many = dataclasses.replace(world, n=40_000, dims=1)
    ((true_gap,),) = (look(many, many.draw(1, rng, orders), orders, n_looks=1).gap,)
    better = np.sign([world.elo[i] - world.elo[j] for i, j in world.pairs])
    times = np.array(plan_looks(world.n, 5)) / world.n
    most = world.n * len(world.pairs) * world.dims * (2 if orders == "one" else 1)
    rows, covered = [], []
    for some in range(n // 50):
        found = look(world, world.draw(50, rng, orders), orders)
        claims = found.claims
        wrong = ((claims != 0) & (claims != better)).any(axis=(1, 2))
        n_resolved = (claims != 0).sum(axis=(1, 2)) / world.dims
        rows.append([wrong, found.asked / most, n_resolved])
        for d, q in np.argwhere(found.error)[: 1000 if some == 0 else 0].tolist():
            k, gap, error = found.look[d, q], found.gap[d, q], found.error[d, q]
            looks = np.flatnonzero(found.has_error[:, d, q])
            bounds = found.bounds[looks[:-1], d].tolist()
            _, *ends = estimate_stagewise(times[looks].tolist(), bounds, gap / error)
            low, high = (math.sqrt(times[k]) * error * end for end in ends)
            covered.append(low <= true_gap[q] <= high)
    return (*np.mean(rows, axis=(0, 2)).tolist(), float(np.mean(covered)))


def study_bounds(world: World, n: int, orders: str) -> tuple[float, float, int]:
    """Of n tournaments: how often any claim was wrong, and how often the bounds of one-sided pairs hold, of how many."""
    rng = np.random.default_rng(5)
    many = dataclasses.replace(world, n=40_000, dims=1)
    points = many.draw(1, rng, orders).reshape(many.n, -1, 2)
    odds = logit(np.nanmean(points, axis=(0, 2)))
    better = np.sign([world.elo[i] - world.elo[j] for i, j in world.pairs])
    wrong, holds = [], []
    for _ in range(n // 50):
        found = look(world, world.draw(50, rng, orders), orders)
        is_wrong = (found.claims != 0) & (found.claims != better)
        wrong += is_wrong.any(axis=(1, 2)).tolist()
        for d, q in np.argwhere(found.swept).tolist():
            won = found.swept[d, q]
            holds.append(
                unbeaten_lower_bound(int(abs(won))) / LOGIT <= odds[q] * np.sign(won)
            )
    return float(np.mean(wrong)), float(np.mean(holds or [1.0])), len(holds)
