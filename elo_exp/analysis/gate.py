"""Is a candidate no worse than a baseline, by its share of points on the same prompts?"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import nctdtr, stdtrit

from elo_exp.analysis.power import prompts_needed
from elo_exp.arrays import Array

MIN_PROMPTS = 20  # for a verdict
OF_A_SHARE = ("share", "low", "high", "n_needed")


def share_of_points(
    points: Array, *, margin: float, alpha: float, dimension: str, n_dimensions: int
) -> dict[str, Any]:
    """Estimate the candidate's share of points from those (n,) on each prompt, in [0, 1].

    Student's t over prompts; None with fewer than 20. `low` and `high` are one-sided bounds: the
    lower at alpha, since every dimension has to pass; the upper at alpha / n_dimensions, since one
    suffices to fail. `n_needed` prompts have 80 % power to pass a candidate equal to the baseline.
    """
    n = len(points)
    found: dict[str, Any] = {"dimension": dimension, "n_prompts": n}
    if n < MIN_PROMPTS:
        return found | dict.fromkeys(OF_A_SHARE)
    mean, sd = float(points.mean()), float(points.std(ddof=1))
    unit = sd / math.sqrt(n)
    low = mean - unit * float(stdtrit(n - 1, 1 - alpha))
    high = mean + unit * float(stdtrit(n - 1, 1 - alpha / n_dimensions))
    numbers = (mean, low, high, prompts_to_pass(sd, margin, alpha))
    return found | dict(zip(OF_A_SHARE, numbers, strict=True))


def prompts_to_pass(sd: float, margin: float, alpha: float) -> int:
    """Return the prompts with which an equal candidate passes in one dimension with 80 % power."""
    return max(MIN_PROMPTS, prompts_needed(sd, margin, alpha=2 * alpha))


def decide(shares: Sequence[Mapping[str, Any]], margin: float) -> str:
    """Return pass where every share is above 1/2 - margin, else fail where one is below 1/2, else
    cannot tell."""
    if all(s["low"] is not None and s["low"] > 0.5 - margin for s in shares):
        return "pass"
    is_worse = any(s["high"] is not None and s["high"] < 0.5 for s in shares)
    return "fail" if is_worse else "cannot tell"


def pass_probability(n_prompts: int, sd: float, margin: float, alpha: float) -> float:
    """Return the probability that a candidate equal to the baseline passes in one dimension."""
    if n_prompts < MIN_PROMPTS:
        return 0.0
    df, distance = n_prompts - 1, margin * math.sqrt(n_prompts) / sd
    return 1.0 - float(nctdtr(df, distance, stdtrit(df, 1 - alpha)))
