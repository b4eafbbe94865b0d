"""Whether any ranking can explain a judge's verdicts: pairs that do not fit, cycles, strata that differ.

Letters: m rated models; p of the pairs i < j that met; q of n prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import scipy

from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.win_rates import pairs_that_met, sort_sides_by_name
from elo_exp.arrays import Array, Index, count_codes, fill_nan, make_rows
from elo_exp.data.battles import Battles
from elo_exp.ratings.fit import (
    Fit,
    information,
    inverse_information,
    residuals,
    win_probability,
)
from elo_exp.ratings.games import difference_matrix
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Record, Rows

# The pairs of 63 models take seconds
_MAX_TESTED_PAIRS = 2_000
# A smaller part of the largest variance is rounding
_MIN_PART_OF_LARGEST = 1e-10
_PAIRS_PER_BLOCK = 100_000
# More take seconds
_MAX_MODELS_TIMES_STRATA = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitivityTest(Record):
    """The test whether one rating for each model explains all pairs: `transitivity` of ratings.json.

    `chi_square` and `p_value` are None of more than 2,000 pairs, and where `score_test` has none.
    """

    dimension: str
    n_models: int
    n_pairs: int
    n_prompts: int
    df: int
    chi_square: float | None
    p_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCounts(Record):
    """How often three models beat each other in a circle: `cycles` of ratings.json.

    n_prompts         on which a triple met; on `n_cyclic_prompts` one is a cycle, which is the `share`, None without any
    n_triples         that met on a prompt; of these, `n_cyclic` are cycles
    """

    dimension: str
    models: tuple[str, ...]
    n_prompts: int
    n_cyclic_prompts: int
    n_triples: int
    n_cyclic: int
    share: float | None


def transitivity(
    fitted: DimensionFit, *, dimension: str
) -> tuple[TransitivityTest, list[dict[str, Any]]]:
    """Test whether one rating for each model explains all pairs, and compare each pair with it.

    The residual wins of a pair are those that Bradley-Terry does not explain. A prompt's part in
    them is e_q - v D B s_q: its own residuals e_q (p,), less what its scores s_q (m,) move the
    expected wins through the abilities; D (p, m) has 1 for the first of a pair and -1 for the
    second, B is the inverse information and v = n_games expected (1 - expected).

    The test is the prompt-clustered score chi-square of the residual wins against the saturated
    model, a win rate for each pair, with (m - 1) (m - 2) / 2 degrees of freedom if all pairs met.

    Parameters
    ----------
    fitted : DimensionFit
        Of the dimension.
    dimension : str
        Of the rows.

    Returns
    -------
    test : TransitivityTest
    residuals : list of dict
        `pair_residuals` of ratings.json, of every pair of rated models that met: shares of points
        `observed` and `expected`, and `z`, their difference in standard errors; None where all prompts
        are alike.
    """
    played, theta = fitted.fit.games, fitted.fit.theta
    m, n = len(theta), played.n_clusters
    first, second, pair = pairs_that_met(played.first, played.second)
    p, n_games = len(first), count_codes(pair, played.count)
    expected = win_probability(theta)[first, second]
    game_residuals = residuals(theta, played)
    residual = np.asarray(
        np.bincount(pair, played.weight_by_count(game_residuals), p), dtype=np.float64
    )
    slope = n_games * expected * (1.0 - expected)  # v

    by_prompt = scipy.sparse.csr_array(  # e
        (played.weight_for_squares(game_residuals), (played.cluster, pair)),
        shape=(played.n_rows, p),
    )
    design = difference_matrix(
        np.arange(p), first, second, np.ones(p), shape=(p, m)
    )  # D
    scores, inverse = by_prompt @ design, inverse_information(theta, played)
    covariance_of_abilities = inverse @ (scores.T @ scores).toarray() @ inverse
    square = (
        covariance_of_abilities[first, first] - covariance_of_abilities[second, first]
    )
    square -= (
        covariance_of_abilities[first, second] - covariance_of_abilities[second, second]
    )
    is_one_block = p <= _MAX_TESTED_PAIRS  # by columns its product takes a third
    by_pair, cross = by_prompt.T if is_one_block else by_prompt.T.tocsr(), np.empty(p)
    for start in range(0, max(p, 1), _MAX_TESTED_PAIRS):  # (p, m) would fill the memory
        block = slice(start, start + _MAX_TESTED_PAIRS)
        pair_block = by_pair if is_one_block else by_pair[block]
        by_ability = (pair_block @ scores).toarray() @ inverse
        row = np.arange(len(by_ability))
        cross[block] = by_ability[row, first[block]] - by_ability[row, second[block]]
    variance = by_prompt.power(2).sum(axis=0) - 2.0 * slope * cross + slope**2 * square

    df = p - m + 1 if p else 0
    chi_square = p_value = None
    if p <= _MAX_TESTED_PAIRS:
        sensitivity = slope[:, None] * design.toarray()
        cross_covariance = by_ability @ sensitivity.T
        covariance = (
            (by_prompt.T @ by_prompt).toarray() - cross_covariance - cross_covariance.T
        )
        covariance += sensitivity @ covariance_of_abilities @ sensitivity.T
        chi_square, p_value = score_test(residual, covariance, df=df, n_prompts=n)
    test = TransitivityTest(
        dimension=dimension,
        n_models=m,
        n_pairs=p,
        n_prompts=n,
        df=df,
        chi_square=chi_square,
        p_value=p_value,
    )
    # No error where all prompts are alike.
    has_error = (variance > _MIN_PART_OF_LARGEST * n_games) & (n > 1)
    has_error &= residual**2 < n * variance * (1.0 - _MIN_PART_OF_LARGEST)
    z = residual[has_error] / np.sqrt(variance[has_error])
    names = np.array(fitted.battles.models, dtype=object)[fitted.fit.is_rated]
    return test, make_rows(
        dimension=dimension,
        model_a=names[first],
        model_b=names[second],
        n_games=n_games,
        observed=expected + residual / n_games,
        expected=expected,
        z=fill_nan(z, has_error, p),
    )


def score_test(
    scores: Array, covariance: Array, *, df: int, n_prompts: int
) -> tuple[float | None, float | None]:
    """Test whether scores of a given rank are zero: a robust chi-square, and its p value.

    Their covariance is estimated from n prompts, so p is Hotelling's: F with df and n - df [1]_.
    With eight models and 143 prompts, chi-square and Wald's statistic reject 16% of transitive
    tournaments at the 5% level.

    Parameters
    ----------
    scores : Array, shape (k,)
        Sums over the prompts.
    covariance : Array, shape (k, k)
        Sum over the prompts of the outer products of what each contributes.
    df : int
        The rank of the covariance.
    n_prompts : int
        n.

    Returns
    -------
    chi_square, p_value : float or None
        None where df is not between 0 and n, the covariance lacks the rank, or all prompts are alike.

    References
    ----------
    .. [1] H. Hotelling (1931), "The generalization of Student's ratio", Annals of Mathematical
       Statistics 2(3), 360-378.
    """
    n = n_prompts
    if not 0 < df < n:
        return None, None
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[-df:], vectors[:, -df:]
    if values[0] <= _MIN_PART_OF_LARGEST * values[-1]:
        return None, None
    chi_square = float(((scores @ vectors) ** 2 / values).sum())
    if chi_square >= n * (1.0 - _MIN_PART_OF_LARGEST):
        return None, None
    f = chi_square / (n - chi_square) * (n - df) / df
    return chi_square, float(scipy.special.fdtrc(df, n - df, f))


# Cycles


def count_cycles(battles: Battles, *, dimension: str) -> CycleCounts:
    """Count the cycles among all models.

    A pair of several battles on a prompt goes to who won more of them; a tie breaks a cycle. A
    triple counts on the prompts on which its three pairs met [1]_.

    Parameters
    ----------
    battles : Battles
        Of one dimension; those that name no prompt are left out.
    dimension : str
        Of the row.

    Returns
    -------
    CycleCounts

    References
    ----------
    .. [1] M. G. Kendall and B. Babington Smith (1940), "On the method of paired comparisons", Biometrika
       31, 324-345.
    """
    named_battles = sort_sides_by_name(
        battles.select(battles.question < len(battles.questions))
    )
    m = max(len(named_battles.models), 1)
    sign, n = np.sign(named_battles.scores() - 0.5), named_battles.count
    pair = named_battles.model_a.astype(np.intp) * m + named_battles.model_b
    lead = scipy.sparse.csr_array(  # of the first, for each pair that met on a prompt
        (sign if n is None else sign * n, (named_battles.question, pair)),
        shape=(len(named_battles.questions), m * m),
    )
    starts = np.arange(0, lead.nnz, _PAIRS_PER_BLOCK)
    ends = [*np.unique(np.searchsorted(lead.indptr, starts)).tolist(), lead.shape[0]]
    blocks = [
        _count_triples(lead, first_prompt, end_prompt, m)
        for first_prompt, end_prompt in pairwise(ends)
    ]
    triples, circles = np.concatenate(blocks or [np.zeros((2, 0))], axis=1)
    n_prompts, n_cyclic = int((triples > 0.5).sum()), int((circles > 0.5).sum())
    return CycleCounts(
        dimension=dimension,
        models=tuple(battles.models),
        n_prompts=n_prompts,
        n_cyclic_prompts=n_cyclic,
        n_triples=round(triples.sum()),
        n_cyclic=round(circles.sum()),
        share=n_cyclic / n_prompts if n_prompts else None,
    )


def _count_triples(
    lead: scipy.sparse.csr_array, first_prompt: int, end_prompt: int, m: int
) -> Array:
    """Count the triples that met on each prompt before the end prompt, and their cycles: (2, prompts)."""
    start, end = lead.indptr[first_prompt], lead.indptr[end_prompt]
    pair, won = lead.indices[start:end], lead.data[start:end]
    prompt = np.repeat(
        np.arange(end_prompt - first_prompt),
        np.diff(lead.indptr[first_prompt : end_prompt + 1]),
    )
    ends = np.append(prompt * m + pair // m, prompt * m + pair % m)
    node, number = np.unique(ends, return_inverse=True)  # a model on a prompt
    a, b = number[: len(pair)], number[len(pair) :]
    met_two = np.bincount(number) > 1  # else in no triple
    is_in_triple = met_two[a] & met_two[b]
    a, b, won = a[is_in_triple], b[is_in_triple], won[is_in_triple]
    met = _make_link_matrix(np.append(a, b), np.append(b, a), len(node))
    beat = _make_link_matrix(
        np.append(a[won > 0], b[won < 0]), np.append(b[won > 0], a[won < 0]), len(node)
    )
    triples = (met @ met).multiply(met).sum(axis=1) / 6
    circles = (beat @ beat).multiply(beat.T).sum(axis=1) / 3
    return np.array(
        [
            np.bincount(node // m, counts, end_prompt - first_prompt)
            for counts in (triples, circles)
        ]
    )


def _make_link_matrix(start: Index, end: Index, n: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(len(start)), (start, end)), shape=(n, n))


# Strata of the prompts, such as their source


def split_by_stratum(battles: Battles, strata: Mapping[str, str]) -> dict[str, Battles]:
    """Split battles by the stratum of their prompts.

    Parameters
    ----------
    battles : Battles
        Of one dimension.
    strata : mapping of str to str
        The stratum of each prompt, by its id; battles on other prompts are left out.

    Returns
    -------
    dict of str to Battles
        By stratum, the one with most battles first.
    """
    names, code = _number_strata(battles, strata)
    return {name: battles.select(code == s).compact() for s, name in enumerate(names)}


def _number_strata(
    battles: Battles, strata: Mapping[str, str]
) -> tuple[list[str], Index]:
    """Return the strata, the largest first, and the number (n,) of each battle's stratum, -1 for none."""
    stratum_of_question = [*(strata.get(q) for q in battles.questions), None]
    last = len(stratum_of_question) - 1
    stratum_of_battle = [
        stratum_of_question[min(q, last)] for q in battles.question.tolist()
    ]
    counts = (
        [1] * len(stratum_of_battle)
        if battles.count is None
        else battles.count.tolist()
    )
    sizes = Counter[str | None]()
    for name, n in zip(stratum_of_battle, counts, strict=True):
        sizes[name] += n
    names = [name for name, _ in sizes.most_common() if name is not None]
    number = {name: s for s, name in enumerate(names)}
    return names, np.array(
        [number.get(s or "", -1) for s in stratum_of_battle], dtype=np.intp
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataTest(Record):
    """The test whether one rating for each model explains the battles of every stratum.

    strata      their names
    n_prompts   of each
    chi_square, p_value  None of one stratum, of more than 2,000 models times strata, and if `score_test` has none
    """

    dimension: str
    strata: Sequence[str]
    n_prompts: Sequence[int]
    df: int
    chi_square: float | None
    p_value: float | None


def heterogeneity(
    fitted: DimensionFit, strata: Mapping[str, str], *, dimension: str
) -> StrataTest:
    """Test whether one rating for each model explains the battles of every stratum.

    The statistic is the prompt-clustered score chi-square of ratings of their own for each
    stratum, so that a model which wins or loses everything on a stratum is no obstacle.

    Parameters
    ----------
    fitted : DimensionFit
        Of the dimension.
    strata : mapping of str to str
        The stratum of each prompt, by its id; battles on other prompts are left out.
    dimension : str
        Of the row.

    Returns
    -------
    StrataTest
    """
    battles, fit = fitted.battles, fitted.fit
    names, code = _number_strata(battles, strata)
    if (code < 0).any():
        fit = Fit.from_games(fitted.select_games(code >= 0))
    played, m, n = fit.games, len(fit.theta), fit.games.n_clusters
    stratum_of_prompt = dict(zip(battles.units().tolist(), code.tolist(), strict=True))
    stratum = np.array(
        [stratum_of_prompt[q] for q in played.prompts.tolist()], dtype=np.intp
    )
    df, chi_square, p_value = 0, None, None
    if len(names) > 1 and m > 1 and m * len(names) <= _MAX_MODELS_TIMES_STRATA:
        scores = played.sum_by_cluster(residuals(fit.theta, played)).toarray()
        inverse = inverse_information(fit.theta, played)
        parts, df = [], 1 - m  # of each prompt in the scores
        for s in range(len(names)):
            n_games = played.select(stratum[played.cluster] == s).sum_by_pair()
            n_games += n_games.T
            projection = inverse @ information(fit.theta, n_games)
            parts.append(
                np.where(stratum[:, None] == s, scores, 0.0) - scores @ projection
            )
            n_groups, _ = scipy.sparse.csgraph.connected_components(
                n_games, directed=False
            )
            df += m - int(n_groups)  # differences of ratings that its games identify
        contributions = np.hstack(parts)  # (n, m * strata)
        chi_square, p_value = score_test(
            played.sum_over_prompts(contributions),
            contributions.T @ contributions,
            df=df,
            n_prompts=n,
        )
    return StrataTest(
        dimension=dimension,
        strata=names,
        n_prompts=count_codes(stratum, played.prompts_per_cluster, len(names)).tolist(),
        df=df,
        chi_square=chi_square,
        p_value=p_value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedGap(Record):
    """The gap of two models on each stratum that rates both.

    gaps  rows of `stratum` and `gap`, the lead of model_a in the unit of the ratings
    """

    model_a: str
    model_b: str
    gaps: Rows


def find_most_varied_gap(boards: Mapping[str, Leaderboard]) -> VariedGap | None:
    """Return the pair of models whose gap varies most between strata.

    Parameters
    ----------
    boards : mapping of str to Leaderboard
        By stratum.

    Returns
    -------
    VariedGap or None
        None where no gap varies.
    """
    ratings = {
        stratum: {r.model: r.rating for r in board.ratings if r.rating is not None}
        for stratum, board in boards.items()
    }
    models = sorted({model for by_model in ratings.values() for model in by_model})
    widest_spread, most_varied = 0.0, None
    for a, b in combinations(models, 2):
        gaps = {
            stratum: by_model[a] - by_model[b]
            for stratum, by_model in ratings.items()
            if a in by_model and b in by_model
        }
        spread = max(gaps.values()) - min(gaps.values()) if gaps else 0.0
        if spread > widest_spread:
            rows = [{"stratum": s, "gap": gap} for s, gap in gaps.items()]
            widest_spread, most_varied = (
                spread,
                VariedGap(model_a=a, model_b=b, gaps=rows),
            )
    return most_varied
