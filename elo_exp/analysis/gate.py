"""Is a candidate no worse than a baseline, by its share of points on the same prompts?"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import scipy

from elo_exp.analysis.bounded import lower_bound, upper_bound
from elo_exp.arrays import Array
from elo_exp.data.pairing import outcome
from elo_exp.records import Judgment, Record

MIN_PROMPTS = 20  # for a verdict
POWER = 0.8
_N_WORST = 5
_MOST_PROMPTS = 2**62
_SCORES = {"a": 1.0, "tie": 0.5, "b": 0.0}  # the candidate is entrant_a


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Record):
    """The candidate's share of points on one dimension; without numbers if n_prompts < 20.

    n_prompts  that were compared
    n_invalid  of these, without a valid verdict
    share      of the prompts whose verdicts are valid
    low, high  one-sided bounds, where an invalid verdict counts as lost in `low` and as won in `high`
    low_of_valid, high_of_valid
               the bounds of these prompts alone; None where they are fewer than 20
    n_needed   prompts that have 80 % power to pass a candidate equal to the baseline, if as many
               verdicts are invalid; None where no number has
    """

    dimension: str
    n_prompts: int
    n_invalid: int = 0
    share: float | None = None
    low: float | None = None
    high: float | None = None
    low_of_valid: float | None = None
    high_of_valid: float | None = None
    n_needed: int | None = None

    def of_valid(self) -> "Share":
        """The same with the bounds that it would have if invalid verdicts said nothing."""
        return replace(self, low=self.low_of_valid, high=self.high_of_valid)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPrompt(Record):
    """A prompt on which the candidate lost; points by dimension, None where there are none."""

    prompt_id: str
    question: str
    points: Mapping[str, float | None]


def points_of(judgment: Judgment) -> tuple[float, float]:
    """Return the least and the most points of the candidate on a prompt, the mean over its orders.

    They are equal where all verdicts are valid. An invalid one may have been lost and may have been won,
    and may well be invalid because of the candidate's answer: nothing is known of it.

    Parameters
    ----------
    judgment : Judgment
        Of the candidate, its first entrant, against the baseline.

    Returns
    -------
    least, most : float
        In [0, 1]; a tie is one half, and so are equal answers that no judge was asked about.
    """
    if not judgment.orders:
        return 0.5, 0.5
    sides = [outcome(verdict) or "" for verdict in judgment.orders]
    least, most = (fmean(_SCORES.get(s, unknown) for s in sides) for unknown in (0, 1))
    return least, most


def share_of_points(
    points: Array, *, margin: float, alpha: float, dimension: str, n_dimensions: int
) -> Share:
    """Estimate the candidate's share of points on one dimension.

    The lower bound is at alpha, since every dimension has to pass; the upper at alpha / n_dimensions,
    since one suffices to fail. Both are bounds of bounded means: with t, where most verdicts tie, a
    candidate at the margin passes in up to .20 of gates at an alpha of .05.

    Parameters
    ----------
    points : Array, shape (n, 2)
        The least and the most points on each prompt, in [0, 1], as `points_of`.
    margin : float
        The loss that is tolerated, as share of points.
    alpha : float
        Level of the bounds.
    dimension : str
        Its name.
    n_dimensions : int
        How many dimensions the gate has.

    Returns
    -------
    Share
        Without numbers if n < 20, and without bounds of valid verdicts if fewer than 20 prompts have these.

    References
    ----------
    .. [1] J. L. Horowitz and C. F. Manski (2000), "Nonparametric analysis of randomized experiments with
       missing covariate and outcome data", Journal of the American Statistical Association 95, 77-84.
    """
    least, most = points.reshape(-1, 2).T
    valid, n = least[least == most], len(least)
    share = Share(dimension=dimension, n_prompts=n, n_invalid=n - len(valid))
    if n < MIN_PROMPTS:
        return share
    alpha_of_high = alpha / n_dimensions
    lost = float((most - least).mean()) / 2.0  # of an equal candidate's share
    share = replace(
        share,
        low=lower_bound(least, alpha=alpha),
        high=upper_bound(most, alpha=alpha_of_high),
        n_needed=prompts_to_pass(float(np.std(least, ddof=1)), margin - lost, alpha),
    )
    if len(valid) == n:
        share = replace(share, low_of_valid=share.low, high_of_valid=share.high)
    elif len(valid) >= MIN_PROMPTS:
        share = replace(
            share,
            low_of_valid=lower_bound(valid, alpha=alpha),
            high_of_valid=upper_bound(valid, alpha=alpha_of_high),
        )
    return replace(share, share=float(valid.mean())) if len(valid) else share


def decide(shares: Sequence[Share], margin: float) -> str:
    """Decide a gate.

    Parameters
    ----------
    shares : sequence of Share
        Of every dimension.
    margin : float
        The loss that is tolerated, as share of points.

    Returns
    -------
    str
        "pass" where every share is above 1/2 - margin, else "fail" where one is below 1/2, else
        "cannot tell".

    Examples
    --------
    >>> tie = Share(dimension="d", n_prompts=93, low=0.48, high=0.52)
    >>> decide([tie], margin=0.1), decide([tie], margin=0.01)
    ('pass', 'cannot tell')
    """
    if all(one.low is not None and one.low > 0.5 - margin for one in shares):
        return "pass"
    is_worse = any(one.high is not None and one.high < 0.5 for one in shares)
    return "fail" if is_worse else "cannot tell"


def pass_probability(n_prompts: int, sd: float, margin: float, alpha: float) -> float:
    """Return the probability that a candidate equal to the baseline passes in one dimension.

    That of t with the margin less 1 / (2 (n + 1)), which is what one more prompt, lost outright, takes
    from a share of one half; none where the lower bound of as many ties is not above the margin.

    Parameters
    ----------
    n_prompts : int
        Prompts, all with valid verdicts.
    sd : float
        Standard deviation of the points on a prompt, in [0, .5].
    margin, alpha : float
        As of `share_of_points`.

    Returns
    -------
    float
        Within .02 of what simulated gates have, at 93 prompts or more of which a fifth or more decide.
    """
    passes_ties = 0.5 * alpha ** (1.0 / max(n_prompts, 1)) > 0.5 - margin
    if n_prompts < MIN_PROMPTS or not passes_ties:
        return 0.0
    if sd == 0.0:
        return 1.0
    df, left = n_prompts - 1, margin - 0.5 / (n_prompts + 1)
    distance = left * math.sqrt(n_prompts) / sd
    return 1.0 - float(
        scipy.special.nctdtr(df, distance, scipy.special.stdtrit(df, 1 - alpha))
    )


def prompts_to_pass(sd: float, margin: float, alpha: float) -> int | None:
    """Return the prompts with which an equal candidate passes in one dimension with 80 % power.

    Parameters
    ----------
    sd, margin, alpha : float
        As of `pass_probability`.

    Returns
    -------
    int or None
        None where no number is enough, because the margin is not above 0.

    Examples
    --------
    >>> prompts_to_pass(0.37, margin=0.1, alpha=0.05)
    96
    """
    if margin <= 0.0:
        return None
    return bisect_left(
        range(_MOST_PROMPTS),
        POWER,
        key=lambda n: pass_probability(n, sd, margin, alpha),
    )


def worst_prompts(
    points: Mapping[str, Mapping[str, tuple[float, float]]],
    questions: Mapping[str, str],
) -> list[WorstPrompt]:
    """Return the prompts on which the candidate lost most, over all dimensions.

    Parameters
    ----------
    points : mapping of str to mapping of str to (float, float)
        The least and the most, by dimension and prompt; what is not known counts for nothing.
    questions : mapping of str to str
        By prompt.

    Returns
    -------
    list of WorstPrompt
        Five at most, the worst first; none on which it won as much as it lost.
    """
    known = {
        name: {q: least for q, (least, most) in by.items() if least == most}
        for name, by in points.items()
    }
    lead = {q: sum(by.get(q, 0.5) - 0.5 for by in known.values()) for q in questions}
    return [
        WorstPrompt(
            prompt_id=q,
            question=questions[q],
            points={name: by.get(q) for name, by in known.items()},
        )
        for q in sorted(lead, key=lead.__getitem__)[:_N_WORST]
        if lead[q] < 0
    ]
