"""Whether any ranking can say what a judge says: pairs that stand apart from their ratings, and circles.

Letters: m models; p of the pairs i < j that met; q of n prompts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from elo_exp.analysis.agreement import FIRST, SECOND, votes_by_comparison
from elo_exp.arrays import Array, Index
from elo_exp.ratings.games import Games
from elo_exp.records import Battle, Record
from elo_exp.statistics.likelihood import (
    bradley_terry_mle,
    games,
    information,
    mean_zero,
    models,
    pairs,
    strongest_component,
    win_probability,
)
from elo_exp.statistics.student import f_survival


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResidual(Record):
    """How often one model beats another, a tie being half a win, beside what Bradley-Terry expects."""

    dimension: str
    model_a: str
    model_b: str
    n_games: int
    observed: float
    expected: float
    z: float | None = (
        None  # the difference in its own prompt-clustered standard errors, as if Bradley-Terry were true
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles(Record):
    """How often three models beat one another in a circle, each having met both others on a prompt."""

    dimension: str
    models: tuple[str, ...]  # all, or the three of one triple
    n_prompts: int  # on which such a triple met
    n_cyclic_prompts: int  # on which one of them is a circle
    n_triples: int  # over all prompts
    n_cyclic: int

    @property
    def share(self) -> float | None:
        """Of prompts with a circle."""
        return self.n_cyclic_prompts / self.n_prompts if self.n_prompts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitivityTest(Record):
    """Whether one rating for each model is enough to say who beats whom; None where the games do not say."""

    dimension: str
    n_models: int  # with a rating
    n_pairs: int  # of them that met
    n_prompts: int  # there is no test unless there are more than `df`
    df: int  # pairs that are free once the ratings are known
    chi_square: float | None = None  # robust: prompt-clustered; n_prompts at most
    p_value: float | None = None


_MAX_TABLE = (
    2 * 10**7
)  # prompts x pairs: 160 MB; with more, ratings are of crowds whose pairs hardly share a prompt
_SINGULAR = 1e-10  # of the largest variance: what rounding leaves of one that is zero


def transitivity_test(battles: Sequence[Battle], *, dimension: str, use: str) -> TransitivityTest:
    """The saturated model, a win rate for each pair, against Bradley-Terry; clusters are prompts.

    The statistic is the robust (score) chi-square of the wins that Bradley-Terry leaves over, with (m - 1) (m - 2) / 2
    degrees of freedom if all pairs met. Their covariance is itself an estimate from n prompts, so p is Hotelling's: F
    with df and n - df, which is chi-square where prompts are many. With eight models and 143 prompts, chi-square and
    Wald's statistic find 16 % of transitive tournaments intransitive at the 5 % level.
    """
    return transitivity_of_games(games(battles, models(battles), use=use), dimension=dimension)


def transitivity_of_games(games: Games, *, dimension: str) -> TransitivityTest:
    left = _left_over(games)
    if left is None:
        return TransitivityTest(dimension=dimension, n_models=0, n_pairs=0, n_prompts=0, df=0)
    n, df = left.n_clusters, len(left.first) - left.n_models + 1
    found = TransitivityTest(
        dimension=dimension, n_models=left.n_models, n_pairs=len(left.first), n_prompts=n, df=df
    )
    if df < 1 or n <= df or left.by_cluster is None:
        return found
    # The wins left over of all pairs of a model add up to zero: there are df directions in which they can lie.
    free = np.linalg.svd(left.design)[0][:, left.n_models - 1 :]
    parts = left.by_cluster @ free
    variances, directions = np.linalg.eigh(parts.T @ parts)
    if variances[0] <= _SINGULAR * variances[-1]:
        return found
    statistic = float(((directions.T @ free.T @ left.over) ** 2 / variances).sum())
    if statistic >= n * (1.0 - _SINGULAR):  # every prompt says exactly the same
        return found
    f = statistic / (n - statistic) * (n - df) / df
    return TransitivityTest(
        dimension=dimension,
        n_models=left.n_models,
        n_pairs=len(left.first),
        n_prompts=n,
        df=df,
        chi_square=statistic,
        p_value=f_survival(f, df, n - df),
    )


def pair_residuals(battles: Sequence[Battle], *, dimension: str, use: str) -> list[PairResidual]:
    """Every pair of rated models that met, sorted by name."""
    names = models(battles)
    left = _left_over(games(battles, names, use=use))
    if left is None:
        return []
    names = tuple(names[i] for i in left.models)
    variance = np.zeros(len(left.first))
    if left.by_cluster is not None and left.n_clusters > 1:
        variance = (left.by_cluster**2).sum(axis=0)
    is_known = variance > _SINGULAR * left.n_games
    is_known &= left.over**2 < left.n_clusters * variance * (
        1.0 - _SINGULAR
    )  # else every prompt says exactly the same
    return [
        PairResidual(
            dimension=dimension,
            model_a=names[left.first[p]],
            model_b=names[left.second[p]],
            n_games=int(left.n_games[p]),
            observed=float(left.expected[p] + left.over[p] / left.n_games[p]),
            expected=float(left.expected[p]),
            z=float(left.over[p] / math.sqrt(variance[p])) if is_known[p] else None,
        )
        for p in range(len(left.first))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftOver:
    """What Bradley-Terry leaves over of the wins of each pair, among the models that it rates."""

    models: Index  # (m,)
    first: Index  # (p,)
    second: Index  # (p,)
    design: Array  # (p, m): 1 and -1
    n_games: Array  # (p,)
    expected: Array  # (p,) win rate of the first
    over: Array  # (p,) wins less expected wins
    n_clusters: int
    by_cluster: (
        Array | None
    )  # (n, p): what each prompt moves them by; None where that is too large a table

    @property
    def n_models(self) -> int:
        return len(self.models)


def _left_over(every: Games) -> _LeftOver | None:
    """None where nobody is rated."""
    rated = strongest_component(every.wins()) if len(every.score) else np.zeros(0, dtype=np.bool_)
    if not rated.any():
        return None
    played = every.among(rated)
    m, met = played.n_models, pairs(played)
    wins = played.wins()
    p = win_probability(bradley_terry_mle(wins))
    expected, n_games = p[met.first, met.second], met.counts.sum(axis=1)
    won = wins[met.first, met.second]
    rows = np.arange(len(met.first))
    design = np.zeros((len(rows), m))
    design[rows, met.first], design[rows, met.second] = 1.0, -1.0
    by_cluster = None
    if played.n_clusters * len(rows) <= _MAX_TABLE:
        # A prompt's wins less the expected, less what they move the expected wins by through the abilities.
        pair, half_points = np.divmod(met.code, 3)
        at = played.cluster * len(rows) + pair
        own = np.bincount(
            at, half_points / 2.0 - expected[pair], minlength=played.n_clusters * len(rows)
        )
        own = own.reshape(played.n_clusters, len(rows))
        level = mean_zero(m, m)
        bread = np.linalg.inv(information(p, wins + wins.T) + level) - level
        by_ability = (n_games * expected * (1.0 - expected))[:, None] * design
        by_cluster = own - own @ design @ bread @ by_ability.T
    return _LeftOver(
        models=np.flatnonzero(rated),
        first=met.first,
        second=met.second,
        design=design,
        n_games=n_games,
        expected=expected,
        over=won - n_games * expected,
        n_clusters=played.n_clusters,
        by_cluster=by_cluster,
    )


def cycles(battles: Sequence[Battle], *, dimension: str) -> Cycles:
    """Circles among all models. A pair of several battles on a prompt goes to who won more of them; a tie breaks a
    circle. A triple counts on the prompts on which its three pairs met."""
    prompts = n_triples = n_cyclic = cyclic_prompts = 0
    for net in _by_prompt(battles):
        met, won = _tables(net, {model for pair in net for model in pair})
        triples, circles = (
            round(float(np.trace(met @ met @ met)) / 6),
            round(float(np.trace(won @ won @ won)) / 3),
        )
        prompts += triples > 0
        n_triples += triples
        n_cyclic += circles
        cyclic_prompts += circles > 0
    return Cycles(
        dimension=dimension,
        models=models(battles),
        n_prompts=prompts,
        n_cyclic_prompts=cyclic_prompts,
        n_triples=n_triples,
        n_cyclic=n_cyclic,
    )


def cycles_by_triple(battles: Sequence[Battle], *, dimension: str) -> list[Cycles]:
    """The same for every three models: m (m - 1) (m - 2) / 6 of them, so ask for it when models are few."""
    found = []
    names = models(battles)
    tables = [_tables(net, names) for net in _by_prompt(battles)]
    met = np.array([table[0] for table in tables], dtype=bool)
    won = np.array([table[1] for table in tables], dtype=bool)
    for i, j, k in combinations(range(len(names)), 3):
        if not tables or not (together := met[:, i, j] & met[:, j, k] & met[:, i, k]).any():
            continue
        circle = (won[:, i, j] & won[:, j, k] & won[:, k, i]) | (
            won[:, j, i] & won[:, k, j] & won[:, i, k]
        )
        found.append(
            Cycles(
                dimension=dimension,
                models=(names[i], names[j], names[k]),
                n_prompts=int(together.sum()),
                n_cyclic_prompts=int(circle.sum()),
                n_triples=int(together.sum()),
                n_cyclic=int(circle.sum()),
            )
        )
    return found


def _by_prompt(battles: Sequence[Battle]) -> list[dict[tuple[str, str], int]]:
    """For each prompt on which three pairs or more met: how many battles more the first of each pair won."""
    net: defaultdict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for (prompt, a, b), votes in votes_by_comparison(battles).items():
        net[prompt][a, b] = votes[FIRST] - votes[SECOND]
    return [of_pair for of_pair in net.values() if len(of_pair) > 2]


def _tables(net: Mapping[tuple[str, str], int], names: Collection[str]) -> tuple[Array, Array]:
    """Which of the named models met, and who won, each (m, m) of 0 and 1."""
    number = {name: i for i, name in enumerate(names)}
    met, won = np.zeros((2, len(number), len(number)))
    for (a, b), more in net.items():
        i, j = number[a], number[b]
        met[i, j] = met[j, i] = 1.0
        won[i, j], won[j, i] = float(more > 0), float(more < 0)
    return met, won


# The F distribution
