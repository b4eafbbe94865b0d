"""Which difference a run can find, and how many prompts a difference takes."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from elo_exp.analysis.comparisons import ALPHA, rank_rated_models
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile
from elo_exp.records import Record

EFFECTS_IN_POINTS = (20, 40, 60)
_TARGET_POWER = 0.8

# The variance, over prompts, of one prompt's part in the difference of two ratings, in squared
# rating points, in a round robin of m entrants: quality + noise * 2 / m. The quality of a response
# differs by prompt, whichever other it is compared with; the noise of the comparisons averages out
# over opponents. They are fitted to simulations in which 28% of the decisive verdicts flip with
# the order: an assumption until a pilot has run.
_QUALITY = 36_100.0
_NOISE_OF_BOTH_ORDERS = 67_600.0
_NOISE_OF_ONE_ORDER = 115_900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision(Record):
    """The differences of an average pair, in rating points, that one dimension's prompts can find.

    With 80% power, by a two-sided test at 5%. `corrected`: by Bonferroni over `n_tests`, which is
    Holm's first step. None and {} where the error cannot be estimated.
    """

    dimension: str
    n_prompts: int | None  # independent observations
    n_tests: int  # pairs in all dimensions
    # root mean square over pairs of one prompt's part in a difference
    sigma: float | None = None
    detectable: float | None = None
    detectable_corrected: float | None = None
    # by the difference to find
    prompts_needed: Mapping[str, int] = field(default_factory=dict)
    prompts_needed_corrected: Mapping[str, int] = field(default_factory=dict)


def estimate_precision(boards: Mapping[str, Leaderboard]) -> list[Precision]:
    """Compute for each dimension which differences its prompts can find, by its own variance.

    The standard error of an average pair times the root of the prompts is sigma, what `detectable` and
    `prompts_needed` ask for. Pairs with less than half the degrees of freedom of others are left out
    of it: a model on few prompts is no measure of the design.

    Parameters
    ----------
    boards : mapping of str to Leaderboard
        By dimension, with covariances; all are of one method.

    Returns
    -------
    list of Precision
        One for each dimension, in rating points; without numbers where no error can be estimated.
    """
    rated_models = {name: rank_rated_models(board) for name, board in boards.items()}
    n_tests = sum(
        int(np.isfinite(models.std_error).sum()) // 2
        for models in rated_models.values()
    )
    rows = []
    for dimension, models in rated_models.items():
        n = boards[dimension].n_clusters
        row = Precision(dimension=dimension, n_prompts=n, n_tests=n_tests)
        std_error, df = models.std_error, models.df_of_differences()
        is_known = np.isfinite(std_error)
        # A model on few prompts is no measure of the design of the run.
        is_typical = is_known & (df >= df[is_known].max(initial=0.0) / 2)
        if n and is_typical.any():
            sigma = math.sqrt(n * float((std_error[is_typical] ** 2).mean()))
            corrected_alpha = ALPHA / n_tests
            row = dataclasses.replace(
                row,
                sigma=sigma,
                detectable=detectable_difference(sigma, n),
                detectable_corrected=detectable_difference(
                    sigma, n, alpha=corrected_alpha
                ),
                prompts_needed={
                    str(e): prompts_needed(sigma, e) for e in EFFECTS_IN_POINTS
                },
                prompts_needed_corrected={
                    str(e): prompts_needed(sigma, e, alpha=corrected_alpha)
                    for e in EFFECTS_IN_POINTS
                },
            )
        rows.append(row)
    return rows


def assumed_sigma(
    n_entrants: int, *, both_orders: float = 1.0, opponents: float | None = None
) -> float:
    """Return the sigma that a planned tournament is expected to have.

    It is the standard deviation, over prompts, of one prompt's part in the difference of two ratings. A
    response's quality differs by prompt, whichever other it is compared with; the noise of comparisons
    averages out over opponents. Both variances are fitted to simulations in which 28% of the decisive
    verdicts flip with the order: an assumption, until a pilot has run.

    Parameters
    ----------
    n_entrants : int
        m, of which every two can meet.
    both_orders : float, default 1.0
        Share of the comparisons that are judged in both orders.
    opponents : float, optional
        How many others each entrant meets on a prompt, drawn evenly; None: all m - 1.

    Returns
    -------
    float
        In rating points; infinite for fewer than two entrants.

    Examples
    --------
    >>> round(assumed_sigma(4))
    264
    """
    if n_entrants < 2:
        return math.inf
    k = n_entrants - 1 if opponents is None else opponents
    one_order = 1.0 - both_orders
    # A comparison in both orders weighs twice as much, and unequal weights bring quality in.
    noise = one_order * _NOISE_OF_ONE_ORDER + 4.0 * both_orders * _NOISE_OF_BOTH_ORDERS
    noise = (noise + one_order * both_orders * _QUALITY) / (1.0 + both_orders) ** 2
    share = (n_entrants - 1) / (k * n_entrants)
    return math.sqrt(share * ((k + 1) * _QUALITY + 2.0 * noise))


def detectable_difference(
    sigma: float, n_prompts: int, *, alpha: float = ALPHA
) -> float:
    """Return the difference that a two-sided test finds with 80% power.

    (t(1 - alpha / 2) + t(.8)) sigma / sqrt(n_prompts), with n_prompts - 1 degrees of freedom.

    Parameters
    ----------
    sigma : float
        Standard deviation of one prompt's part in the difference.
    n_prompts : int
        Independent observations.
    alpha : float, default ALPHA
        Two-sided level of the test.

    Returns
    -------
    float
        In the unit of sigma; infinite for fewer than two prompts.

    References
    ----------
    .. [1] E. Miller (2024), "Adding error bars to evals: a statistical approach to language model
       evaluations", arXiv:2411.00640. It has normal quantiles.

    Examples
    --------
    >>> round(detectable_difference(264.0, 143))
    62
    """
    if n_prompts < 2:
        return math.inf
    return _detectable_standard_errors(n_prompts, alpha) * sigma / math.sqrt(n_prompts)


def prompts_needed(sigma: float, difference: float, *, alpha: float = ALPHA) -> int:
    """Return the fewest prompts by which a difference is `detectable`.

    Parameters
    ----------
    sigma : float
        As of `detectable`.
    difference : float
        Above zero, in the unit of sigma.
    alpha : float, default ALPHA
        Two-sided level of the test.

    Returns
    -------
    int
        Two or more.

    Examples
    --------
    >>> prompts_needed(264.0, 40.0)
    344
    """
    n = max(
        2,
        math.ceil(
            (_detectable_standard_errors(math.inf, alpha) * sigma / difference) ** 2
        ),
    )
    while detectable_difference(sigma, n, alpha=alpha) > difference:
        n += 1
    return n


def _detectable_standard_errors(n_prompts: float, alpha: float) -> float:
    """Return the size of a difference that is found with the target power, in standard errors."""
    df, power = n_prompts - 1.0, 2.0 * _TARGET_POWER - 1.0
    return float(t_quantile(df, level=1.0 - alpha) + t_quantile(df, level=power))
