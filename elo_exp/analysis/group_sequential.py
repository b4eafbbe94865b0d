"""Boundaries of repeated looks by alpha spending, and what may be said after stopping at one.

A difference has the statistic Z_k at look k, its estimate over its standard error, when the share
t_k of the planned prompts is judged: B(t) = Z sqrt(t) is a Brownian motion with a drift, which is
the mean of Z at t = 1. Its density over the paths that no look has stopped is carried from look to
look by numerical integration (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_FAR = 9.0  # standard errors: no boundary is farther out


def _stopped(
    times: Sequence[float], bounds: Sequence[float], drift: float = 0.0
) -> Iterator[tuple[float, float]]:
    """Yield the probabilities of stopping at each look with a bound: above it, and below."""
    at, weight, before = np.zeros(1), np.ones(1), 0.0
    for t, bound in zip(times, bounds, strict=False):
        mean, scale = at + drift * (t - before), math.sqrt(t - before)
        end = bound * math.sqrt(t)
        above = weight @ ndtr((mean - end) / scale)
        yield float(above), float(weight @ ndtr((-end - mean) / scale))
        at = end * _NODES
        density = np.exp(-(((at[:, None] - mean) / scale) ** 2) / 2) @ weight
        weight = end * _WEIGHTS * density / (scale * math.sqrt(2 * math.pi))
        before = t


def spent(alpha: float, t: float) -> float:
    """Return the error spent by time t: 4 - 4 Phi(z(1 - alpha / 4) / sqrt(t)), which is like O'Brien
    and Fleming's on either side. Lan and DeMets (1983)."""
    return float(4.0 * ndtr(ndtri(alpha / 4) / math.sqrt(t)))


@cache
def boundaries(alpha: float, times: tuple[float, ...]) -> tuple[float, ...]:
    """Return the two-sided boundary of each look, in standard errors; the last spends what is left.

    times  of the looks, ascending, shares of the plan
    """
    from scipy.optimize import brentq

    found: list[float] = []
    for t in times:
        error = alpha if t == times[-1] else spent(alpha, t)

        def excess(bound: float, error: float = error) -> float:
            return sum(map(sum, _stopped(times, [*found, bound]))) - error

        found.append(_FAR if excess(_FAR) >= 0 else brentq(excess, 0.0, _FAR))
    return tuple(found)


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

    def more_extreme(drift: float, p: float) -> float:
        return sum(above for above, _ in _stopped(times, [*bounds, z], drift)) - p

    plain, width = z / math.sqrt(times[-1]), _FAR / math.sqrt(times[-1])
    middle, low, high = (
        brentq(more_extreme, plain - width, plain + width, args=(p,))
        for p in (0.5, 0.025, 0.975)
    )
    return middle, low, high


def expected_share(
    times: Sequence[float], bounds: Sequence[float], drift: float
) -> tuple[float, float]:
    """Return the share of the plan that is judged on average, and the power."""
    share = power = before = 0.0
    for t, stopped in zip(times, _stopped(times, bounds, drift), strict=True):
        share += (t - before) * (1.0 - power)
        power, before = power + sum(stopped), t
    return share, power
