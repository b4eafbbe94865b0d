"""Student's t: how wide an interval is, and how rare a difference, when the error itself is estimated from prompts.

An error that n prompts tell has n - 1 degrees of freedom: with four prompts a 95 % interval is 3.2 standard errors to
each side, with 143 it is 1.98. Normal ones, 1.96, would hold the truth in 87 % of runs of four prompts, and name a
difference between equals in a quarter of them (Cameron and Miller 2015 for clusters in general).
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Any, TypeVar, cast

import numpy as np

from elo_exp.arrays import Array

Numbers = TypeVar("Numbers", float, Array)

_MANY = 1e4  # degrees of freedom: as good as normal
_EXPANDED = 30  # degrees of freedom: the quantile is known without steps
_MAX_STEPS = 100
_TINY = 1e-300
_MAX_TERMS = 1000
_PRECISION = 1e-14  # of a probability
_ENOUGH = 1e-9  # of a quantile: the next step of Newton would be its square


def half_width(n_prompts: int | None) -> float:
    """Standard errors on each side of a 95 % interval if the error comes from so many prompts; None: endlessly many."""
    return t_quantile(degrees_of_freedom(n_prompts))


def degrees_of_freedom(n_prompts: int | None) -> float:
    """One less than the prompts, of which it takes two to tell an error."""
    return math.inf if n_prompts is None else max(n_prompts - 1.0, 1.0)


@functools.cache
def t_quantile(df: float, *, level: float = 0.95) -> float:
    """How many standard errors lie on each side of an interval of this level, with so many degrees of freedom."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    first = (z**3 + z) / (4 * df)
    if (
        df >= _EXPANDED
    ):  # Abramowitz and Stegun 26.7.5, to within 1e-6 of it up to a level of 99.9 %
        second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
        return z + first + second + third + fourth
    slope = 2 * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    t = z + first  # too low: from there Newton's steps never lead past the root
    for _ in range(_MAX_STEPS):
        step = (p_values(t, df) - (1 - level)) / (slope * (1 + t**2 / df) ** (-(df + 1) / 2))
        t += step
        if step < _ENOUGH * t:
            break
    return float(t)


def p_values(t: Numbers, df: float) -> Numbers:
    """Two-sided, of each t."""
    if df >= _MANY:
        return cast(Numbers, np.vectorize(math.erfc, otypes=[float])(abs(t) / math.sqrt(2.0)))
    return _incomplete_beta(df / (df + t**2), df / 2.0, 0.5)


def f_survival(f: float, df: float, df_error: float) -> float:
    """The probability that F with these degrees of freedom is larger than f."""
    return float(_incomplete_beta(df_error / (df_error + df * f), df_error / 2.0, df / 2.0))


def _incomplete_beta(x: Numbers, a: float, b: float) -> Numbers:
    """The regularised I_x(a, b), by its continued fraction (DLMF 8.17.22): that of 1 - x where it converges faster."""
    other = 1.0 * (x > (a + 1.0) / (a + b + 2.0))
    inside = np.clip(x + other * (1.0 - 2.0 * x), _TINY, 1.0 - _PRECISION)
    p, q = a + other * (b - a), b + other * (a - b)
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + p * np.log(inside)
        + q * np.log1p(-inside)
    )
    found = np.exp(log_front) / p / _fraction(inside, p, q)
    return cast(Numbers, other + (1.0 - 2.0 * other) * found)


def _fraction(x: Any, a: Any, b: Any) -> Any:
    """1 + d_1 / (1 + d_2 / (1 + ...)), by the method of Lentz; of numbers or arrays."""
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, _MAX_TERMS):
        k = n // 2
        if n % 2:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        d = 1.0 + term * d
        d = 1.0 / (d + _TINY * (d == 0.0))
        c = 1.0 + term / c
        c = c + _TINY * (c == 0.0)
        value = value * c * d
        if np.all(abs(c * d - 1.0) < _PRECISION):
            break
    return value
