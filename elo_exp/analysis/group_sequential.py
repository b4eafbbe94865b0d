"""Boundaries of repeated looks by alpha spending, and what may be said after stopping at one.

A difference has the statistic Z_k at look k, its estimate over its standard error, when the share
t_k of the planned prompts is judged: B(t) = Z sqrt(t) is a Brownian motion with a drift, which is
the mean of Z at t = 1. Its density over the paths that no look has stopped is carried from look to
look by numerical integration (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from elo_exp.arrays import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_FAR = 9.0  # standard errors: no boundary is farther out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Paths:
    """Where the paths that no look has stopped are at time t, as weights of some points."""

    drift: float = 0.0
    t: float = 0.0
    at: Array = field(default_factory=lambda: np.zeros(1))
    weight: Array = field(default_factory=lambda: np.ones(1))

    def beyond(self, t: float, bound: float) -> tuple[float, float]:
        """The probabilities of going on to t and being above the bound there, and below."""
        mean = self.at + self.drift * (t - self.t)
        scale, end = math.sqrt(t - self.t), bound * math.sqrt(t)
        above = self.weight @ ndtr((mean - end) / scale)
        return float(above), float(self.weight @ ndtr((-end - mean) / scale))

    def past(self, t: float, bound: float) -> _Paths:
        """The paths within the bounds at t."""
        end = min(bound, _FAR + abs(self.drift) * math.sqrt(t)) * math.sqrt(t)
        at, scale = end * _NODES, math.sqrt(t - self.t)
        z = (at[:, None] - self.at - self.drift * (t - self.t)) / scale
        density = np.exp(-(z**2) / 2) @ self.weight / (scale * math.sqrt(2 * math.pi))
        return _Paths(drift=self.drift, t=t, at=at, weight=end * _WEIGHTS * density)


def spent(alpha: float, t: float) -> float:
    """Return the error spent by time t: 4 - 4 Phi(z(1 - alpha / 4) / sqrt(t)), which is like O'Brien
    and Fleming's on either side. Lan and DeMets (1983)."""
    return float(4.0 * ndtr(ndtri(alpha / 4) / math.sqrt(t)))


@lru_cache(maxsize=10_000)
def boundaries(alpha: float, times: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two-sided boundary of each look, in standard errors; the last spends what is left.

    times  of the looks, ascending, shares of the plan
    """
    paths, found, before = _Paths(), list[float](), 0.0
    for t in times:
        now = alpha if t == times[-1] else spent(alpha, t)
        found.append(_bound(paths, t, now - before))
        paths, before = paths.past(t, found[-1]), now
    return tuple(found)


def _bound(paths: _Paths, t: float, error: float) -> float:
    from scipy.optimize import brentq

    if sum(paths.beyond(t, _FAR)) >= error:
        return _FAR
    bound = brentq(lambda c: sum(paths.beyond(t, c)) - error, 0.0, _FAR)
    return float(bound)


def stagewise(
    times: Sequence[float], bounds: Sequence[float], z: float
) -> tuple[float, float, float]:
    """Return the drift's median-unbiased estimate and the ends of its 95 % interval.

    By stage-wise ordering: the earlier an upper boundary is crossed the more extreme, and at one
    look the larger Z. Tsiatis, Rosner and Mehta (1984).

    times   of the looks up to the one at which testing stopped, with Z = z
    bounds  of those before it
    """
    from scipy.optimize import brentq

    def more_extreme(drift: float) -> float:
        paths, p = _Paths(drift=drift), 0.0
        for t, bound in zip(times, bounds, strict=False):
            p += paths.beyond(t, bound)[0]
            paths = paths.past(t, bound)
        return p + paths.beyond(times[-1], z)[0]

    scale = math.sqrt(times[-1])
    middle, low, high = (
        brentq(
            lambda drift, p=p: more_extreme(drift) - p,
            (z - _FAR) / scale,
            (z + _FAR) / scale,
        )
        for p in (0.5, 0.025, 0.975)
    )
    return middle, low, high


def expected_share(
    times: Sequence[float], bounds: Sequence[float], drift: float
) -> tuple[float, float]:
    """Return the share of the plan that is judged on average, and the power."""
    paths, share, power = _Paths(drift=drift), 0.0, 0.0
    before = 0.0
    for t, bound in zip(times, bounds, strict=True):
        share += (t - before) * (1.0 - power)
        power += sum(paths.beyond(t, bound))
        paths, before = paths.past(t, bound), t
    return share, power
