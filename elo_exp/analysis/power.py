"""How large a difference must be for a run to find it, and how many prompts a difference takes."""

from __future__ import annotations

import math

from elo_exp.statistics.student import t_quantile

# Variance, over prompts, of one prompt's contribution to the difference of two ratings, in squared Elo points, in a
# round robin of m entrants judged in both orders: QUALITY + OPPONENTS * 2 / m. The responses to a prompt differ in
# quality whoever they are compared with; the noise of the comparisons averages out over opponents. Both numbers are
# fitted to simulations in which 28 % of decisive verdicts flip with the order: an assumption until a pilot has run.
QUALITY_VARIANCE = 36_100.0
OPPONENT_VARIANCE = 67_600.0


def minimum_detectable_difference(n_prompts: int, n_entrants: int, *, n_tests: int = 1) -> float:
    """The difference of two entrants, in Elo points, that a run of this design is expected to find.

    Bonferroni over `n_tests`. Infinite for fewer than two entrants or no prompt.
    """
    if n_entrants < 2:
        return math.inf
    sigma = math.sqrt(QUALITY_VARIANCE + OPPONENT_VARIANCE * 2 / n_entrants)
    return detectable(sigma, n_prompts, n_tests=n_tests)


def detectable(sigma: float, n_prompts: int, *, n_tests: int = 1) -> float:
    """The difference that a two-sided test at 5 % finds with 80 % power, Bonferroni over `n_tests`.

    (t(1 - .05 / (2 n_tests)) + t(.8)) sigma / sqrt(n_prompts), with n_prompts - 1 degrees of freedom; Miller (2024),
    who has normal quantiles. Infinite for fewer than two prompts.

    sigma  standard deviation of one prompt's part in the difference, in the unit of the result
    """
    return (
        _errors_apart(n_prompts, n_tests) * sigma / math.sqrt(n_prompts)
        if n_prompts > 1
        else math.inf
    )


def prompts_needed(sigma: float, difference: float, *, n_tests: int = 1) -> int:
    """How many prompts make a difference `detectable`."""
    n = max(2, math.ceil((_errors_apart(math.inf, n_tests) * sigma / difference) ** 2))
    while detectable(sigma, n, n_tests=n_tests) > difference:
        n += 1
    return n


def _errors_apart(n_prompts: float, n_tests: int) -> float:
    """The standard errors that lie between no difference and one that is found with 80 % power."""
    df = n_prompts - 1
    return t_quantile(df, level=1 - 0.05 / n_tests) + t_quantile(df, level=0.6)
