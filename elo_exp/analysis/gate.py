"""Is a candidate no worse than a baseline, by its share of points on the same prompts?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import nctdtr, stdtrit

from elo_exp.analysis.power import prompts_needed
from elo_exp.arrays import Array
from elo_exp.records import Record

MIN_PROMPTS = 20  # for a verdict
_N_WORST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Record):
    """The candidate's share of points on one dimension; None with fewer than 20 prompts.

    low, high  one-sided bounds
    n_needed   prompts that have 80 % power to pass a candidate equal to the baseline
    """

    dimension: str
    n_prompts: int
    share: float | None = None
    low: float | None = None
    high: float | None = None
    n_needed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPrompt(Record):
    """A prompt on which the candidate lost; points by dimension, None where there are none."""

    prompt_id: str
    question: str
    points: Mapping[str, float | None]


def share_of_points(
    points: Array, *, margin: float, alpha: float, dimension: str, n_dimensions: int
) -> Share:
    """Estimate the candidate's share of points from those (n,) on each prompt, in [0, 1].

    Student's t over prompts. The lower bound is at alpha, since every dimension has to pass; the
    upper at alpha / n_dimensions, since one suffices to fail.
    """
    n = len(points)
    if n < MIN_PROMPTS:
        return Share(dimension=dimension, n_prompts=n)
    mean, sd = float(points.mean()), float(points.std(ddof=1))
    unit = sd / math.sqrt(n)
    return Share(
        dimension=dimension,
        n_prompts=n,
        share=mean,
        low=mean - unit * float(stdtrit(n - 1, 1 - alpha)),
        high=mean + unit * float(stdtrit(n - 1, 1 - alpha / n_dimensions)),
        n_needed=prompts_to_pass(sd, margin, alpha),
    )


def prompts_to_pass(sd: float, margin: float, alpha: float) -> int:
    """Return the prompts with which an equal candidate passes in one dimension with 80 % power."""
    return max(MIN_PROMPTS, prompts_needed(sd, margin, alpha=2 * alpha))


def decide(shares: Sequence[Share], margin: float) -> str:
    """Return pass where every share is above 1/2 - margin, else fail where one is below 1/2, else
    cannot tell."""
    if all(one.low is not None and one.low > 0.5 - margin for one in shares):
        return "pass"
    is_worse = any(one.high is not None and one.high < 0.5 for one in shares)
    return "fail" if is_worse else "cannot tell"


def pass_probability(n_prompts: int, sd: float, margin: float, alpha: float) -> float:
    """Return the probability that a candidate equal to the baseline passes in one dimension."""
    if n_prompts < MIN_PROMPTS:
        return 0.0
    df, distance = n_prompts - 1, margin * math.sqrt(n_prompts) / sd
    return 1.0 - float(nctdtr(df, distance, stdtrit(df, 1 - alpha)))


def worst_prompts(
    points: Mapping[str, Mapping[str, float]], questions: Mapping[str, str]
) -> list[WorstPrompt]:
    """Return the prompts on which the candidate lost most, over all dimensions.

    points     by dimension and prompt
    questions  by prompt
    """
    lead = {q: sum(by.get(q, 0.5) - 0.5 for by in points.values()) for q in questions}
    return [
        WorstPrompt(
            prompt_id=q,
            question=questions[q],
            points={name: by.get(q) for name, by in points.items()},
        )
        for q in sorted(lead, key=lead.__getitem__)[:_N_WORST]
        if lead[q] < 0
    ]
