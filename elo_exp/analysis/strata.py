"""Whether entrants compare the same way on every stratum of the prompts, such as their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from scipy.sparse import csgraph

from elo_exp.analysis.transitivity import score_test
from elo_exp.arrays import Index
from elo_exp.data.battles import Battles
from elo_exp.ratings.bradley_terry import Fit, bread, information, residuals
from elo_exp.ratings.games import games
from elo_exp.ratings.leaderboard import Leaderboard

_MAX_SCORES = 2_000  # models times strata: more take seconds


def by_stratum(battles: Battles, strata: Mapping[str, str]) -> dict[str, Battles]:
    """Split battles by the stratum of their prompts, the largest stratum first.

    strata  of each prompt, by its id; battles on other prompts are left out
    """
    names, code = _codes(battles, strata)
    return {name: battles.select(code == s).compact() for s, name in enumerate(names)}


def _codes(battles: Battles, strata: Mapping[str, str]) -> tuple[list[str], Index]:
    """The strata, the largest first, and the number (n,) of each battle's, -1 for none."""
    of_question = [*(strata.get(q) for q in battles.questions), None]
    last = len(of_question) - 1
    of_battle = [of_question[min(q, last)] for q in battles.question.tolist()]
    names = [name for name, _ in Counter(of_battle).most_common() if name is not None]
    number = {name: s for s, name in enumerate(names)}
    return names, np.array([number.get(s or "", -1) for s in of_battle], dtype=np.intp)


def heterogeneity(
    battles: Battles, strata: Mapping[str, str], *, dimension: str
) -> dict[str, Any]:
    """Test whether one rating for each model explains the battles of every stratum.

    The statistic is the prompt-clustered score chi-square of ratings of their own for each
    stratum, so that a model which wins or loses everything on a stratum is no obstacle.
    Returns the test of `judge.DIMENSION.strata` of ratings.json.
    """
    names, code = _codes(battles, strata)
    fit = Fit.of(games(battles.select(code >= 0), orders="both"))
    played, m, n = fit.played, len(fit.theta), fit.played.n_clusters
    of_prompt = dict(zip(battles.question.tolist(), code.tolist(), strict=True))
    stratum = np.array([of_prompt[q] for q in played.prompts.tolist()], dtype=np.intp)
    df, chi_square, p_value = 0, None, None
    if len(names) > 1 and m > 1 and m * len(names) <= _MAX_SCORES:
        own = played.by_cluster(residuals(fit.theta, played)).toarray()
        inverse = bread(fit.theta, played)
        parts, df = [], 1 - m  # of each prompt in the scores
        for s in range(len(names)):
            n_games = played.select(stratum[played.cluster] == s).sums()
            n_games += n_games.T
            shared = inverse @ information(fit.theta, n_games)
            parts.append(np.where(stratum[:, None] == s, own, 0.0) - own @ shared)
            n_groups, _ = csgraph.connected_components(n_games, directed=False)
            df += m - int(n_groups)  # differences of ratings that its games identify
        every = np.hstack(parts)  # (n, m * strata)
        chi_square, p_value = score_test(
            every.sum(axis=0), every.T @ every, df=df, n_prompts=n
        )
    return {
        "dimension": dimension,
        "strata": names,
        "n_prompts": np.bincount(stratum, minlength=len(names)).tolist(),
        "df": df,
        "chi_square": chi_square,
        "p_value": p_value,
    }


def most_varied_gap(boards: Mapping[str, Leaderboard]) -> dict[str, Any] | None:
    """Return the pair of models whose gap varies most between strata, and its gap on each."""
    ratings = {
        stratum: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for stratum, board in boards.items()
    }
    models = sorted({model for by_model in ratings.values() for model in by_model})
    varied, found = 0.0, None
    for a, b in combinations(models, 2):
        gaps = {
            stratum: by_model[a] - by_model[b]
            for stratum, by_model in ratings.items()
            if a in by_model and b in by_model
        }
        spread = max(gaps.values()) - min(gaps.values()) if gaps else 0.0
        if spread > varied:
            rows = [{"stratum": s, "gap": gap} for s, gap in gaps.items()]
            varied, found = spread, {"model_a": a, "model_b": b, "gaps": rows}
    return found
