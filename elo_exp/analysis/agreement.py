"""Who agrees with whom: two judges, a judge with itself, two dimensions, two leaderboards; and a judge's verdicts with
any ranking at all.

Letters: m models; p of the pairs i < j that met; q of n prompts; c of the three categories of a verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from elo_exp.analysis.covariates import mean_error
from elo_exp.arrays import Array
from elo_exp.data.pairing import repeated
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Judgment, Record
from elo_exp.statistics.student import half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(Record):
    """How often two agree on the same comparisons, and Cohen's kappa; None where there is nothing to compare, or where
    both always say the same thing, which chance would do as well."""

    first: str
    second: str
    dimension: str | None  # None: the two are dimensions
    n_comparisons: int
    n_prompts: int
    agreement: float | None = None
    kappa: float | None = None
    std_error: float | None = None  # of kappa, prompt-clustered
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation(Record):
    """Spearman's, over the models that both leaderboards rate; None for fewer than three, or if one has no order."""

    first: str
    second: str
    dimension: str
    n_models: int
    rho: float | None = None


# Kappa


def kappa(
    first: Sequence[Battle],
    second: Sequence[Battle],
    *,
    names: tuple[str, str],
    dimension: str | None,
) -> Agreement:
    """Of the winners of the same two models on the same prompt; the two orders disagreeing is a tie.

    Which model is called a is arbitrary, so every comparison counts both ways round, each half: the share of chance
    agreement then does not hang on names. Where one side has several verdicts on a comparison, each is paired with each
    of the other side, and the comparison counts once: it is the agreement of a verdict drawn from each.
    """
    return _kappa(
        votes_by_comparison(first), votes_by_comparison(second), names=names, dimension=dimension
    )


def _kappa(
    first: _Votes, second: _Votes, *, names: tuple[str, str], dimension: str | None
) -> Agreement:
    shared = [key for key in first if key in second]
    rows = [
        (place, i, j, n_i * n_j / (sum(first[key]) * sum(second[key])))
        for place, key in enumerate(shared)
        for i, n_i in enumerate(first[key])
        for j, n_j in enumerate(second[key])
        if n_i and n_j
    ]
    both_ways = [(place, i, j, w / 2) for place, i, j, w in rows]
    both_ways += [(place, _OTHER[i], _OTHER[j], w / 2) for place, i, j, w in rows]
    return _agreement(both_ways, [key[0] for key in shared], names=names, dimension=dimension)


def between_judges(battles: Mapping[str, Sequence[Battle]], *, dimension: str) -> list[Agreement]:
    """Every two judges, on one dimension."""
    return _every_two(battles, dimension=dimension)


def between_dimensions(battles: Mapping[str, Sequence[Battle]]) -> list[Agreement]:
    """Every two dimensions, by one judge: low, if they ask about different things."""
    return _every_two(battles, dimension=None)


def _every_two(
    battles: Mapping[str, Sequence[Battle]], *, dimension: str | None
) -> list[Agreement]:
    votes = {name: votes_by_comparison(some) for name, some in battles.items()}
    return [
        _kappa(votes[a], votes[b], names=(a, b), dimension=dimension)
        for a, b in combinations(votes, 2)
    ]


def repeat_agreement(judgments: Sequence[Judgment], *, dimension: str) -> Agreement:
    """A judge with itself: each repeated verdict with the first one of its order, in the letters that it saw.

    A judge that always names the first shown agrees with itself by chance alone, and has no kappa.
    """
    rows: list[tuple[int, int, int, float]] = []
    prompts: list[str] = []
    for judgment in judgments:
        for before, again in repeated(judgment):
            rows.append((len(prompts), _LETTERS[before.verdict], _LETTERS[again.verdict], 1.0))
            prompts.append(judgment.prompt_id)
    return _agreement(rows, prompts, names=("first answer", "repeat"), dimension=dimension)


FIRST, TIE, SECOND = range(3)
_OTHER = (SECOND, TIE, FIRST)
_WINNERS = ("model_a", "tie", "model_b")
_LETTERS = {"A": FIRST, "TIE": TIE, "B": SECOND}
_Comparison = tuple[str, str, str]  # prompt, and the two models by name
_Votes = Mapping[_Comparison, Sequence[int]]  # how often FIRST, TIE and SECOND


def votes_by_comparison(battles: Sequence[Battle]) -> _Votes:
    """How often each winner was named. A battle without a question is on no comparison that another could share."""
    votes: defaultdict[_Comparison, list[int]] = defaultdict(lambda: [0, 0, 0])
    for b in battles:
        if (comparison := _comparison(b)) is not None:
            category = TIE if b.is_tie else _WINNERS.index(b.winner)
            votes[comparison][category if b.model_a < b.model_b else _OTHER[category]] += 1
    return votes


def _comparison(battle: Battle) -> _Comparison | None:
    if battle.question_id is None:
        return None
    first, second = sorted((battle.model_a, battle.model_b))
    return battle.question_id, first, second


def _agreement(
    rows: Sequence[tuple[int, int, int, float]],
    prompts: Sequence[str],
    *,
    names: tuple[str, str],
    dimension: str | None,
) -> Agreement:
    """From rows of comparison, the two categories and a weight; the weights of a comparison add up to one.

    kappa = (p_o - p_e) / (1 - p_e); its error by the delta method from the parts that prompts have in p_o and p_e.
    """
    counts = {"n_comparisons": len(prompts), "n_prompts": len(set(prompts))}
    if not prompts:
        return Agreement(first=names[0], second=names[1], dimension=dimension, **counts)
    comparison, i, j = (
        np.array(column, dtype=np.intp) for column in list(zip(*rows, strict=True))[:3]
    )
    weight = np.array([row[3] for row in rows])
    share = np.bincount(3 * i + j, weights=weight, minlength=9).reshape(3, 3) / len(prompts)
    by_first, by_second = share.sum(axis=1), share.sum(axis=0)
    observed, by_chance = float(np.trace(share)), float(by_first @ by_second)
    if 1.0 - by_chance < 1e-12:
        return Agreement(
            first=names[0], second=names[1], dimension=dimension, **counts, agreement=observed
        )
    value = (observed - by_chance) / (1.0 - by_chance)
    influence = (i == j) - observed - (1.0 - value) * (by_second[i] + by_first[j] - 2.0 * by_chance)
    number = {prompt: q for q, prompt in enumerate(dict.fromkeys(prompts))}
    cluster = np.array([number[prompt] for prompt in prompts])[comparison]
    error = mean_error(influence / (1.0 - by_chance), cluster, weight)
    return Agreement(
        first=names[0],
        second=names[1],
        dimension=dimension,
        **counts,
        agreement=observed,
        kappa=value,
        std_error=error,
        ci_low=None
        if error is None
        else max(-1.0, value - half_width(counts["n_prompts"]) * error),
        ci_high=None
        if error is None
        else min(1.0, value + half_width(counts["n_prompts"]) * error),
    )


# Rank correlation


def rank_correlation(
    first: Leaderboard, second: Leaderboard, *, names: tuple[str, str], dimension: str
) -> RankCorrelation:
    """Of the ratings; equal ones share the mean of their ranks."""
    known = [
        {r.model: r.rating for r in board.ratings if r.rating is not None}
        for board in (first, second)
    ]
    shared = [model for model in known[0] if model in known[1]]
    one, other = (
        _mean_ranks(np.array([ratings[model] for model in shared], dtype=np.float64))
        for ratings in known
    )
    has_order = len(shared) > 2 and np.ptp(one) > 0 and np.ptp(other) > 0
    return RankCorrelation(
        first=names[0],
        second=names[1],
        dimension=dimension,
        n_models=len(shared),
        rho=float(np.corrcoef(one, other)[0, 1]) if has_order else None,
    )


def ranks_between_judges(
    battles: Mapping[str, Sequence[Battle]],
    rate: Callable[[Mapping[str, Sequence[Battle]]], Mapping[str, Leaderboard]],
    *,
    dimension: str,
) -> list[RankCorrelation]:
    """Of every two judges, each rated by the comparisons that both of them judged."""
    found = []
    for names in combinations(battles, 2):
        first, second = (battles[name] for name in names)
        shared = votes_by_comparison(first).keys() & votes_by_comparison(second).keys()
        sides = [[b for b in some if _comparison(b) in shared] for some in (first, second)]
        boards = [
            board for some in sides if shared and (board := rate({dimension: some}).get(dimension))
        ]
        if len(boards) == 2:
            found.append(rank_correlation(*boards, names=names, dimension=dimension))
    return found


def _mean_ranks(values: Array) -> Array:
    return np.asarray(
        (values[:, None] > values).sum(axis=1) + (values[:, None] == values).sum(axis=1) / 2.0
    )
