"""Whether entrants compare the same way on every stratum of the prompts, such as their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special
from scipy.sparse import csgraph, csr_array

from elo_exp.arrays import Index
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import Fit, bread, information, residuals
from elo_exp.ratings.games import Games, games
from elo_exp.records import Record

_MAX_SCORES = 2_000  # models times strata: more take seconds
_SINGULAR = 1e-10  # of the largest variance: what rounding leaves of zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Heterogeneity(Record):
    """Whether ratings differ between strata; None where the prompts do not tell."""

    dimension: str
    strata: tuple[str, ...]
    n_prompts: tuple[int, ...]  # of each stratum
    df: int
    chi_square: float | None = None  # robust: clustered by prompt
    p_value: float | None = None


def by_stratum(battles: Battles, strata: Mapping[str, str]) -> dict[str, Battles]:
    """Split battles by the stratum of their prompts, the largest stratum first.

    strata  of each prompt, by its id; battles on other prompts are left out
    """
    names, code = _codes(battles, strata)
    sizes = np.bincount(code[code >= 0], minlength=len(names))
    order = np.argsort(-sizes, kind="stable")
    return {names[s]: battles.select(code == s).compact() for s in order if sizes[s]}


def heterogeneity(
    battles: Battles, strata: Mapping[str, str], *, dimension: str, use: str
) -> Heterogeneity:
    """Test whether one rating for each model explains the battles of every stratum.

    The statistic is the prompt-clustered score chi-square of ratings of their own for each
    stratum, so that a model which wins or loses everything on a stratum is no obstacle. Its
    covariance is estimated from n prompts, so p is Hotelling's: F with df and n - df.
    """
    names, code = _codes(battles, strata)
    present = np.unique(code[code >= 0])
    number = np.full(len(names) + 1, -1)
    number[present] = np.arange(len(present))
    fit = Fit.of(games(battles.select(code >= 0), use=use))
    of_prompt = np.full(int(battles.question.max(initial=0)) + 1, -1)
    of_prompt[battles.question] = number[code]
    stratum = of_prompt[fit.played.prompts]  # (n,)
    sizes = np.bincount(stratum, minlength=len(present))
    df, statistic, p_value = _test(fit, stratum)
    return Heterogeneity(
        dimension=dimension,
        strata=tuple(names[s] for s in present),
        n_prompts=tuple(sizes.tolist()),
        df=df,
        chi_square=statistic,
        p_value=p_value,
    )


def most_varied_gap(
    ratings: Mapping[str, Mapping[str, float]],
) -> dict[str, Any] | None:
    """Return the pair of models whose gap varies most between strata, and its gap on each.

    ratings  by stratum and model
    """
    models = sorted({model for by_model in ratings.values() for model in by_model})
    varied, found = 0.0, None
    for a, b in combinations(models, 2):
        gaps = {
            stratum: by_model[a] - by_model[b]
            for stratum, by_model in ratings.items()
            if a in by_model and b in by_model
        }
        spread = max(gaps.values()) - min(gaps.values()) if len(gaps) > 1 else 0.0
        if spread > varied:
            rows = [{"stratum": s, "gap": gap} for s, gap in gaps.items()]
            varied, found = spread, {"model_a": a, "model_b": b, "gaps": rows}
    return found


def _codes(battles: Battles, strata: Mapping[str, str]) -> tuple[list[str], Index]:
    """The strata, and the number (n,) of each battle's, -1 for none."""
    names = list(dict.fromkeys(strata.values()))
    number = {name: i for i, name in enumerate(names)}
    of_question = [number.get(strata.get(q, ""), -1) for q in battles.questions]
    known = np.array([*of_question, -1], dtype=np.intp)
    return names, known[np.minimum(battles.question, len(battles.questions))]


def _test(fit: Fit, stratum: Index) -> tuple[int, float | None, float | None]:
    """Degrees of freedom, chi-square and p value; stratum (n,) of each prompt."""
    played, m, n = fit.played, len(fit.theta), len(stratum)
    n_strata = int(stratum.max(initial=-1)) + 1
    if n_strata < 2 or m < 2 or m * n_strata > _MAX_SCORES:
        return 0, None, None
    own = played.by_cluster(residuals(fit.theta, played)).toarray()
    inverse = bread(fit.theta, played)
    blocks, df = [], 1 - m
    for s in range(n_strata):
        inside = played.select(stratum[played.cluster] == s)
        n_games = inside.sums()
        shared = inverse @ information(fit.theta, n_games + n_games.T)
        blocks.append(np.where(stratum[:, None] == s, own, 0.0) - own @ shared)
        df += _n_free(inside)
    if not 0 < df < n:
        return df, None, None
    influence = np.hstack(blocks)  # (n, m * strata): of each prompt on the scores
    values, vectors = np.linalg.eigh(influence.T @ influence)
    values, vectors = values[-df:], vectors[:, -df:]
    if values[0] <= _SINGULAR * values[-1]:
        return df, None, None
    statistic = float(((influence.sum(axis=0) @ vectors) ** 2 / values).sum())
    if statistic >= n * (1.0 - _SINGULAR):
        return df, None, None
    f = statistic / (n - statistic) * (n - df) / df
    return df, statistic, float(special.fdtrc(df, n - df, f))


def _n_free(played: Games) -> int:
    """How many differences of ratings the games tell: models less connected groups."""
    links = csr_array(played.sums())
    n_groups, _ = csgraph.connected_components(links, directed=False)
    return played.n_models - int(n_groups)
