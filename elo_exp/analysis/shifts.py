"""How far ratings moved between two runs, and how sure that is when the runs share prompts.

Letters: i of m models rated in both runs; q of n prompts of either. The Bradley-Terry fit of a run is, to first order,
a sum of parts that its prompts have in it, H^-1 s_q, whose outer products add up to the clustered covariance of
`sandwich`. A prompt of both runs has a part in both fits: the variance of a shift is the sum over all prompts of the
squared difference of the two parts. It is that of independent runs where no prompt is shared, and zero where the
battles are the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elo_exp.analysis.comparisons import holm
from elo_exp.arrays import Array
from elo_exp.data.battles import Battles
from elo_exp.ratings.games import games
from elo_exp.records import Battle, Record
from elo_exp.statistics.likelihood import POINTS, abilities, information, mean_zero, win_probability
from elo_exp.statistics.student import degrees_of_freedom, half_width, p_values

_ROUNDING = 1e-3  # a standard error below this, in rating points, is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Record):
    """How far one model moved against the mean of those rated in both runs, in rating points; None where the prompts
    do not say how sure that is."""

    model: str
    shift: float
    std_error: float | None = None  # over prompts, those of both runs being the same observations
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, of this shift alone
    p_holm: float | None = None  # adjusted for all shifts that were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """A Bradley-Terry fit with the part of each prompt in it, in rating points around the mean."""

    models: tuple[str, ...]  # those that are rated
    ratings: Array  # (m,), mean zero
    prompts: tuple[str, ...]  # (n,)
    parts: Array  # (n, m)


def influence(battles: Sequence[Battle], *, use: str) -> Influence | None:
    """None where a battle names no prompt, where nobody can be rated, and where there is one prompt."""
    columns = Battles.from_rows(battles)
    every = games(columns, use=use)
    theta = abilities(every.wins())
    rated = np.isfinite(theta)
    played, theta = every.among(rated), theta[rated]
    named = columns.questions
    prompts = tuple(named[code] for code in played.prompts.tolist() if code < len(named))
    n, m = played.n_clusters, len(theta)
    if n < 2 or len(prompts) < n:
        return None
    p = win_probability(theta)
    surprise = played.score - p[played.first, played.second]
    scores = np.zeros((n, m))
    np.add.at(scores, (played.cluster, played.first), surprise)
    np.add.at(scores, (played.cluster, played.second), -surprise)
    wins = played.wins()
    level = mean_zero(m, m)
    bread = np.linalg.inv(information(p, wins + wins.T) + level) - level
    parts = POINTS * math.sqrt(n / (n - 1)) * scores @ bread
    models = tuple(name for name, is_rated in zip(columns.models, rated, strict=True) if is_rated)
    return Influence(models=models, ratings=POINTS * theta, prompts=prompts, parts=parts)


def shifts(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Shift]:
    """By model, from the ratings of two runs; none where fewer than two models are rated in both."""
    shared = [model for model in before if model in after]
    if len(shared) < 2:
        return {}
    moved = np.array([after[model] - before[model] for model in shared])
    return {
        model: Shift(model=model, shift=float(by))
        for model, by in zip(shared, moved - moved.mean(), strict=True)
    }


def with_errors(
    found: Mapping[str, Shift], before: Influence, after: Influence
) -> dict[str, Shift]:
    """The shifts with their intervals; as they were where the prompts of the two fits do not differ."""
    place = {prompt: q for q, prompt in enumerate(dict.fromkeys([*before.prompts, *after.prompts]))}
    parts = np.zeros((len(place), len(found)))
    for fit, sign in ((before, -1.0), (after, 1.0)):
        columns = fit.parts[:, [fit.models.index(model) for model in found]]
        parts[[place[prompt] for prompt in fit.prompts]] += sign * (
            columns - columns.mean(axis=1, keepdims=True)
        )
    errors = np.sqrt((parts**2).sum(axis=0)).tolist()
    n_prompts = int(np.count_nonzero(parts.any(axis=1)))
    return {
        model: _sure(found[model], error, n_prompts)
        for model, error in zip(found, errors, strict=True)
    }


def _sure(shift: Shift, error: float, n_prompts: int) -> Shift:
    if error < _ROUNDING:
        return shift
    return dataclasses.replace(
        shift,
        std_error=error,
        ci_low=shift.shift - half_width(n_prompts) * error,
        ci_high=shift.shift + half_width(n_prompts) * error,
        p_value=float(p_values(np.asarray(shift.shift / error), degrees_of_freedom(n_prompts))),
    )


def adjusted(found: Sequence[Shift]) -> list[Shift]:
    """With their p values adjusted together (Holm)."""
    p_values = iter(holm([shift.p_value for shift in found if shift.p_value is not None]))
    return [
        s if s.p_value is None else dataclasses.replace(s, p_holm=next(p_values)) for s in found
    ]
