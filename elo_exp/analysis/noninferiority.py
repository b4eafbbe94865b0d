"""Test whether a candidate is not worse than a baseline, by its share of points on the same prompts."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.bounded_means import lower_bound, upper_bound
from elo_exp.arrays import Array
from elo_exp.data.pairing import unswap_verdict
from elo_exp.records import Judgment, Record, Slot

MIN_PROMPTS_FOR_VERDICT = 20
POWER = 0.8
_N_WORST = 5
# A smaller margin is rounding
_MIN_MARGIN = 1e-9
_MAX_PROMPTS = 2**62
# The candidate is entrant_a
_SCORES = {"a": 1.0, "tie": 0.5, "b": 0.0}
_UNKNOWN_ORDERS = None, None

OrderPoints = tuple[
    float | None, ...
]  # points of the candidate in each order; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class PointShare(Record):
    """The candidate's share of points on one dimension; without numbers if n_clusters < 20.

    n_prompts  prompts that were compared
    n_invalid  prompts without a valid verdict
    share      share of points on the prompts with valid verdicts
    low, high  one-sided bounds, where an invalid verdict counts as lost in `low` and as won in `high`, and `low`
               counts what the judge's disagreement between the orders may hide; `low` is None if only one order
               was judged
    low_of_valid, high_of_valid
               the bounds of these prompts alone; None where they are fewer than 20
    n_needed   prompts that have 80% power to pass a candidate equal to the baseline, if as many
               verdicts are invalid and the judge disagrees as often with itself; None where no number has
    n_clusters  groups of prompts that belong together; the bounds are of their means
    low_of_points  `low` if the judge's disagreement hid nothing
    n_lost     prompts to which the candidate's answer is missing or empty, which is lost in `low`
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
    n_clusters: int | None = None
    low_of_points: float | None = None
    n_lost: int = 0

    @property
    def n_units(self) -> int:
        """How many independent observations there are."""
        return self.n_prompts if self.n_clusters is None else self.n_clusters

    def without_invalid(self) -> "PointShare":
        """The same with the bounds that it would have if invalid verdicts said nothing."""
        return replace(self, low=self.low_of_valid, high=self.high_of_valid)

    def without_penalty(self) -> "PointShare":
        """The same with the bound that it would have if the judge's disagreement hid nothing."""
        return replace(self, low=self.low_of_points)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPrompt(Record):
    """A prompt on which the candidate lost; points by dimension, None where there are none."""

    prompt_id: str
    question: str
    points: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPoints:
    """The points of one of the candidate's answers to a prompt.

    orders    in each order that was judged
    is_equal  whether it is the baseline's answer, which shows no disagreement of the judge
    is_lost   whether it is missing or empty: whatever the judge says, it counts as lost in the lower bound
    """

    orders: OrderPoints
    is_equal: bool = False
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPoints:
    """The points of the candidate on a prompt, the mean of its answers.

    known        by its verdicts; None if one is not valid
    least, most  if unknown verdicts were lost, or won; an answer that is missing or empty is lost in the least
    counted      the least, less what the judge's disagreement between the orders may hide; None: not known
    cost         what unknown verdicts, lost answers and that disagreement take from an equal candidate's 1/2
    is_lost      whether an answer is missing or empty
    """

    known: float | None
    lowest: float
    highest: float
    penalized: float | None
    cost: float = 0.0
    is_lost: bool = False

    @classmethod
    def from_ends(cls, least: float, most: float) -> "PromptPoints":
        """Return the points of a prompt by their ends, if the judge's disagreement hides nothing."""
        return cls(
            known=least if least == most else None,
            lowest=least,
            highest=most,
            penalized=least,
            cost=(most - least) / 2.0,
        )


def order_points(judgment: Judgment) -> SlotPoints:
    """Return the points of the candidate in each order that was judged.

    A mirrored verdict is no observation of its order.

    Parameters
    ----------
    judgment : Judgment
        Of the candidate, its first entrant, against the baseline.

    Returns
    -------
    SlotPoints
        1 for a win, 1/2 for a tie, 0 for a loss, None for an invalid verdict.
    """
    if judgment.equal_answers:
        return SlotPoints(orders=(0.5, 0.5), is_equal=True)
    verdicts = [verdict for verdict in judgment.orders if not verdict.mirrored]
    sides = [
        unswap_verdict(verdict) or "" for verdict in verdicts or judgment.orders[:1]
    ]
    return SlotPoints(orders=tuple(_SCORES.get(side) for side in sides))


def point_range(judgment: Judgment) -> tuple[float, float]:
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
    sides = order_points(judgment).orders
    least, most = (
        fmean(unknown if side is None else side for side in sides) for unknown in (0, 1)
    )
    return least, most


def prompt_points(
    slots: Mapping[Slot, SlotPoints | None], margin: float
) -> tuple[dict[str, PromptPoints], float]:
    """Return the points of the candidate by prompt, and the least that a prompt can count.

    Verdicts of the two orders that differ are no evidence, and they hide losses: if a judge names the first answer
    in a share p of its replies, whatever the answers are, both the candidate's loss and the agreement of its orders
    shrink by the factor 1 - p. So a comparison whose orders name different winners counts as much as a candidate at
    the margin has, and one with a winner and a tie half way there. If only a share of the comparisons was judged in
    both orders, these stand for all.

    Parameters
    ----------
    slots : mapping of (str, int) to SlotPoints or None
        By prompt and number of the answer; None: nothing is known, neither an answer of the baseline nor a verdict.
    margin : float
        The loss that is tolerated, as share of points.

    Returns
    -------
    points : dict of str to PromptPoints
        By prompt.
    floor : float
        In points, at most 0: the lower end of the values `counted`.
    """
    compared_slots = [
        slot
        for slot in slots.values()
        if slot and not slot.is_equal and any(x is not None for x in slot.orders)
    ]
    n_both = sum(len(slot.orders) == 2 for slot in compared_slots)
    penalty = margin * len(compared_slots) / n_both if n_both else 0.0
    by_prompt: dict[str, list[PromptPoints]] = {}
    for (prompt_id, _), slot in slots.items():
        by_prompt.setdefault(prompt_id, []).append(_score_slot(slot, penalty))
    is_measured = bool(n_both) or not compared_slots
    points = {
        prompt_id: PromptPoints(
            known=_mean_of_all([answer.known for answer in answers]),
            lowest=fmean(answer.lowest for answer in answers),
            highest=fmean(answer.highest for answer in answers),
            penalized=_mean_of_all([answer.penalized for answer in answers])
            if is_measured
            else None,
            cost=fmean(answer.cost for answer in answers),
            is_lost=any(answer.is_lost for answer in answers),
        )
        for prompt_id, answers in by_prompt.items()
    }
    return points, min(0.0, 0.5 - penalty)


def _score_slot(slot: SlotPoints | None, penalty: float) -> PromptPoints:
    orders = slot.orders if slot else _UNKNOWN_ORDERS
    least, most = _mean_if(orders, 0.0), _mean_if(orders, 1.0)
    counted = _count_least_points(orders, penalty)
    points = PromptPoints(
        known=_mean_of_all(orders),
        lowest=least,
        highest=most,
        penalized=counted,
        cost=(most - least) / 2.0 + least - counted,
    )
    if not (slot and slot.is_lost):
        return points
    return replace(
        points, lowest=0.0, penalized=min(counted, 0.0), cost=0.5, is_lost=True
    )


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is None."""
    known_values = [value for value in values if value is not None]
    return fmean(known_values) if len(known_values) == len(values) else None


def _mean_if(orders: OrderPoints, unknown: float) -> float:
    return fmean(unknown if side is None else side for side in orders)


def _count_least_points(orders: OrderPoints, penalty: float) -> float:
    """Return the least points, less the penalty if two orders disagree, over all values of unknown verdicts."""
    possible_points = [_SCORES.values() if side is None else (side,) for side in orders]
    return min(
        fmean(sides) - penalty * (max(sides) - min(sides))
        for sides in product(*possible_points)
    )


def share_of_points(
    points: Array | Sequence[PromptPoints],
    *,
    margin: float,
    alpha: float,
    dimension: str,
    n_dimensions: int,
    floor: float = 0.0,
    clusters: Sequence[str] | None = None,
    alpha_of_high: float | None = None,
) -> PointShare:
    """Estimate the candidate's share of points on one dimension.

    The lower bound is at alpha, since every dimension has to pass; the upper at alpha / n_dimensions,
    since one suffices to fail. Both are bounds of bounded means: with t, where most verdicts tie, a
    candidate at the margin passes in up to .20 of gates at an alpha of .05.

    Parameters
    ----------
    points : Array, shape (n, 2), or sequence of PromptPoints
        Of each prompt: the least and the most points, in [0, 1], as `point_range`, or all of `prompt_points`.
    margin : float
        The loss that is tolerated, as share of points.
    alpha : float
        Level of the bounds.
    dimension : str
        Its name.
    n_dimensions : int
        How many dimensions the gate has.
    floor : float, default 0.0
        The least that a prompt can count, in points.
    clusters : sequence of str, optional
        Of each prompt, the group that it belongs to: the mean of a group is one observation. None: each prompt is one.
    alpha_of_high : float, optional
        Level of the upper bounds, over all dimensions; None: alpha.

    Returns
    -------
    PointShare
        Without numbers if there are fewer than 20 groups, and without bounds of valid verdicts if fewer than 20 have
        these.

    References
    ----------
    .. [1] J. L. Horowitz and C. F. Manski (2000), "Nonparametric analysis of randomized experiments with
       missing covariate and outcome data", Journal of the American Statistical Association 95, 77-84.
    """
    rows = (
        [PromptPoints.from_ends(*ends) for ends in points.reshape(-1, 2).tolist()]
        if isinstance(points, np.ndarray)
        else points
    )
    n = len(rows)
    names = np.arange(n) if clusters is None else np.asarray(clusters, dtype=object)
    _, group = np.unique(names, return_inverse=True)
    n_groups = int(group.max(initial=-1)) + 1
    is_valid = np.array([row.known is not None for row in rows], dtype=np.bool_)
    share = PointShare(
        dimension=dimension,
        n_prompts=n,
        n_invalid=n - int(is_valid.sum()),
        n_lost=sum(row.is_lost for row in rows),
        n_clusters=n_groups,
    )
    if n_groups < MIN_PROMPTS_FOR_VERDICT:
        return share

    def means(values: Sequence[float | None], selection: Any = slice(None)) -> Array:
        """The mean of each group; not finite if a value is None."""
        return _average_groups(
            np.array(values, dtype=np.float64)[selection], group[selection]
        )

    def bound_below(values: Array) -> float | None:
        is_known = np.isfinite(values).all()
        return lower_bound(values, alpha=alpha, least=floor) if is_known else None

    alpha_of_high = (alpha if alpha_of_high is None else alpha_of_high) / n_dimensions
    counted, most = [row.penalized for row in rows], [row.highest for row in rows]
    values = means(counted)
    share = replace(
        share,
        low=bound_below(values),
        high=upper_bound(means(most), alpha=alpha_of_high),
        low_of_points=lower_bound(means([row.lowest for row in rows]), alpha=alpha),
    )
    if share.low is not None:
        cost = float(means([row.cost for row in rows]).mean())
        sd = float(np.std(values, ddof=1))
        n_groups_needed = prompts_to_pass(sd, margin - cost, alpha, floor)
        share = replace(
            share,
            n_needed=None
            if n_groups_needed is None
            else math.ceil(n_groups_needed * n / n_groups),
        )
    if not is_valid.any():
        return share
    known_means = means([row.known for row in rows], is_valid)
    share = replace(share, share=float(known_means.mean()))
    if is_valid.all():
        return replace(share, low_of_valid=share.low, high_of_valid=share.high)
    if len(known_means) < MIN_PROMPTS_FOR_VERDICT:
        return share
    return replace(
        share,
        low_of_valid=bound_below(means(counted, is_valid)),
        high_of_valid=upper_bound(means(most, is_valid), alpha=alpha_of_high),
    )


def _average_groups(values: Array, group: Array) -> Array:
    """Average each group of values, in the order of the groups."""
    _, number = np.unique(group, return_inverse=True)
    means: Array = np.bincount(number, values) / np.bincount(number)
    return means


def decide_gate(shares: Sequence[PointShare], margin: float) -> str:
    """Decide a gate.

    Parameters
    ----------
    shares : sequence of PointShare
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
    >>> tie = PointShare(dimension="d", n_prompts=93, low=0.48, high=0.52)
    >>> decide_gate([tie], margin=0.1), decide_gate([tie], margin=0.01)
    ('pass', 'cannot tell')
    """
    if all(share.low is not None and share.low > 0.5 - margin for share in shares):
        return "pass"
    is_worse = any(share.high is not None and share.high < 0.5 for share in shares)
    return "fail" if is_worse else "cannot tell"


def pass_probability(
    n_prompts: int, sd: float, margin: float, alpha: float, floor: float = 0.0
) -> float:
    """Return the probability that a candidate equal to the baseline passes in one dimension.

    That of t with the margin less (1/2 - floor) / (n + 1), which is what one more prompt, lost outright, takes
    from a share of one half; none where the lower bound of as many ties is not above the margin.

    Parameters
    ----------
    n_prompts : int
        Prompts, all with valid verdicts.
    sd : float
        Standard deviation of the points on a prompt, in [0, .5].
    margin, alpha, floor : float
        As of `share_of_points`; the margin less what the judge's disagreement takes from it.

    Returns
    -------
    float
        Within .02 of what simulated gates have, at 93 prompts or more of which a fifth or more decide.
    """
    passes_ties = 0.5 * alpha ** (1.0 / max(n_prompts, 1)) > 0.5 - margin
    if n_prompts < MIN_PROMPTS_FOR_VERDICT or not passes_ties or margin <= 0.0:
        return 0.0
    if sd == 0.0:
        return 1.0
    df, usable_margin = n_prompts - 1, margin - (0.5 - floor) / (n_prompts + 1)
    distance = usable_margin * math.sqrt(n_prompts) / sd
    return 1.0 - float(
        scipy.special.nctdtr(df, distance, scipy.special.stdtrit(df, 1 - alpha))
    )


def prompts_to_pass(
    sd: float, margin: float, alpha: float, floor: float = 0.0
) -> int | None:
    """Return the prompts with which an equal candidate passes in one dimension with 80% power.

    Parameters
    ----------
    sd, margin, alpha, floor : float
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
    if margin <= _MIN_MARGIN:
        return None
    return bisect_left(
        range(_MAX_PROMPTS),
        POWER,
        key=lambda n: pass_probability(n, sd, margin, alpha, floor),
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
    known_points = {
        name: {
            q: least for q, (least, most) in points_by_prompt.items() if least == most
        }
        for name, points_by_prompt in points.items()
    }
    lead = {
        q: sum(
            points_by_prompt.get(q, 0.5) - 0.5
            for points_by_prompt in known_points.values()
        )
        for q in questions
    }
    return [
        WorstPrompt(
            prompt_id=q,
            question=questions[q],
            points={
                name: points_by_prompt.get(q)
                for name, points_by_prompt in known_points.items()
            },
        )
        for q in sorted(lead, key=lead.__getitem__)[:_N_WORST]
        if lead[q] < 0
    ]
