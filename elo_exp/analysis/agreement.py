"""Agreement of two judges, of a judge with itself or with labels, of two dimensions, of two leaderboards.

Letters: b battles; c comparisons, which are a prompt and two models; 3 categories of a verdict:
the first model wins, a tie, the second wins.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import (
    clustered_error_and_n_effective,
    interval_by_prompt,
    sort_sides_by_name,
)
from elo_exp.arrays import Array, Index, Mask, count_codes, make_row
from elo_exp.data.battle_clusters import map_questions_to_clusters
from elo_exp.data.battles import Battles
from elo_exp.data.labelled_pairs import GoldPair
from elo_exp.data.pairing import pair_repeats, unswap_verdict
from elo_exp.ratings.leaderboard import (
    Leaderboard,
    degrees_of_freedom,
    t_quantile,
)
from elo_exp.records import Judgment

_LETTERS = ("A", "TIE", "B")
# If both sides always give one verdict, rounding leaves this much of a chance of 0
_MIN_CHANCE_TO_DISAGREE = 1e-12


# Kappa, as rows of ratings.json:
#
# n_comparisons, n_prompts, agreement; kappa, with its std_error clustered by prompt, ci_low and ci_high;
# None where there is nothing to compare, or where both always give the same verdict, as chance would.


def kappa(
    first: Battles, second: Battles, *, names: tuple[str, str], dimension: str | None
) -> dict[str, Any]:
    """Compute Cohen's kappa of the winners of the same two answers to the same prompt.

    Two orders that disagree are a tie. Which model is called a is arbitrary, so every comparison
    counts both ways round, each half. Where one side has several verdicts on a comparison, the
    comparison counts once: it is the agreement of a verdict drawn from each. Battles that name no
    question are left out.

    Parameters
    ----------
    first, second : Battles
        Of two judges on one dimension, or of one judge on two dimensions.
    names : tuple of str
        What the row calls the two sides.
    dimension : str or None
        What the row says of its dimension; None if the sides are dimensions.

    Returns
    -------
    dict
        A row as `verdict_agreement` returns it.
    """
    (left, right), prompt, _ = _find_shared_votes(first, second)
    unit = _number_units([first, second])[prompt]
    return _compute_kappa_row(
        left,
        right,
        prompt,
        names=names,
        dimension=dimension,
        unit=unit,
        is_symmetric=True,
    )


def mutual_kappa(
    sides: Mapping[str, Battles], *, name: str, dimension: str | None
) -> dict[str, Any]:
    """Compute Cohen's kappa of any two of several judges, as `kappa`, over all pairs of judges at once.

    Parameters
    ----------
    sides : mapping of str to Battles
        By judge, of one dimension.
    name : str
        What the row calls both sides.
    dimension : str or None
        What the row says of its dimension.

    Returns
    -------
    dict
        A row as `verdict_agreement` returns it; a comparison counts once for every two who judged it.
    """
    sorted_sides = [sort_sides_by_name(side) for side in sides.values()]
    codes, n_pairs = comparison_codes(sorted_sides)
    parts = [
        _count_shared_votes([sorted_sides[i], sorted_sides[j]], [codes[i], codes[j]])
        for i, j in combinations(range(len(sorted_sides)), 2)
    ]
    empty = np.empty((0, 3)), np.empty((0, 3)), np.empty(0, dtype=np.intp)
    left, right, shared_codes = (
        np.concatenate(column)
        for column in zip(empty, *((*v, s) for v, s, _ in parts), strict=True)
    )
    prompt = shared_codes // n_pairs
    return _compute_kappa_row(
        left,
        right,
        prompt,
        names=(name, name),
        dimension=dimension,
        unit=_number_units(sorted_sides)[prompt],
        is_symmetric=True,
    )


def pairwise_kappa(
    battles: Mapping[str, Battles], *, dimension: str | None = None
) -> list[dict[str, Any]]:
    """Compute kappa of every two judges on one dimension, or of every two dimensions.

    Parameters
    ----------
    battles : mapping of str to Battles
        By judge, or by dimension.
    dimension : str, optional
        That of all of them; None if the keys are dimensions.

    Returns
    -------
    list of dict
        A row of `kappa` for each pair of keys, in their order.
    """
    return [
        kappa(battles[a], battles[b], names=(a, b), dimension=dimension)
        for a, b in combinations(battles, 2)
    ]


def repeat_agreement(
    judgments: Sequence[Judgment], *, dimension: str
) -> dict[str, Any]:
    """Compare each repeated verdict with the first one of its order, in the letters that the judge saw.

    A judge that always names the first shown agrees with itself by chance alone: no kappa.

    Parameters
    ----------
    judgments : sequence of Judgment
        With the raw verdicts; mirrored and invalid ones are left out, as is the second order of
        equal answers.
    dimension : str
        Of the row.

    Returns
    -------
    dict
        A row as `verdict_agreement` returns it, with zero comparisons where nothing was repeated.
    """
    pairs = [
        (judgment.prompt_id, before.verdict, again.verdict)
        for judgment in judgments
        for before, again in pair_repeats(judgment)
    ]
    return verdict_agreement(
        pairs, names=("first answer", "repeat"), dimension=dimension
    )


def verdict_agreement(
    pairs: Sequence[tuple[str, str, str]],
    *,
    names: tuple[str, str],
    dimension: str | None = None,
) -> dict[str, Any]:
    """Compute Cohen's kappa of pairs of verdicts, with an error clustered by prompt.

    kappa = (p_o - p_e) / (1 - p_e), of the shares of pairs that agree, observed and by chance. Its
    error is that of the delta method, from what each prompt contributes to p_o and p_e.

    Parameters
    ----------
    pairs : sequence of (prompt, first, second)
        The prompt's id, and what each side says: A, TIE or B.
    names : tuple of str
        What the row calls the two sides.
    dimension : str, optional
        What the row says of its dimension.

    Returns
    -------
    dict
        `n_comparisons`, `n_prompts`, `agreement` (a share), `kappa`, its `std_error`, and the ends of
        its 95% interval, `ci_low` and `ci_high`, within [-1, 1]. `kappa` is None where there is nothing
        to compare, or where both sides always say the same, as chance would; the error and the interval
        are None also where the prompts do not differ.

    Raises
    ------
    ValueError
        For a verdict of another letter.

    References
    ----------
    .. [1] J. Cohen (1960), "A coefficient of agreement for nominal scales", Educational and
       Psychological Measurement 20(1), 37-46.

    Examples
    --------
    Of four verdicts three agree; by chance, half would.

    >>> pairs = [("p1", "A", "A"), ("p2", "A", "A"), ("p3", "B", "B"), ("p4", "B", "A")]
    >>> row = verdict_agreement(pairs, names=("judge", "repeat"))
    >>> row["agreement"], row["kappa"]
    (0.75, 0.5)
    """
    prompts, *letters = zip(*pairs, strict=True) if pairs else ((), (), ())
    first, second = (np.eye(3)[[_LETTERS.index(v) for v in side]] for side in letters)
    prompt = np.unique(prompts, return_inverse=True)[1]
    return _compute_kappa_row(first, second, prompt, names=names, dimension=dimension)


def _compute_kappa_row(
    first: Array,
    second: Array,
    prompt: Index,
    *,
    names: tuple[str, str],
    dimension: str | None,
    unit: Index | None = None,
    is_symmetric: bool = False,
) -> dict[str, Any]:
    """Compute kappa with its error from the shares (c, 3) of each side's verdicts on each comparison.

    kappa = (p_o - p_e) / (1 - p_e), Cohen (1960); its error by the delta method, from what each
    prompt contributes to p_o and p_e.

    unit  (c,) the cluster of each prompt, as numbers; None: each prompt is one
    """
    n, n_prompts = len(prompt), len(np.unique(prompt))
    unit = prompt if unit is None else unit
    agreement = value = half_width = math.nan
    std_error, n_effective = None, 0.0
    if n:
        table = first.T @ second / n
        if is_symmetric:
            table = (table + table[::-1, ::-1]) / 2.0
        by_first, by_second = table.sum(axis=1), table.sum(axis=0)
        agreement, by_chance = float(np.trace(table)), float(by_first @ by_second)
        if 1.0 - by_chance >= _MIN_CHANCE_TO_DISAGREE:
            value = (agreement - by_chance) / (1.0 - by_chance)
            chance = by_second[:, None] + by_first[None, :] - 2.0 * by_chance
            influence = np.eye(3) - agreement - (1.0 - value) * chance
            parts = ((first @ influence) * second).sum(axis=1) / (1.0 - by_chance)
            std_error, n_effective = clustered_error_and_n_effective(parts, unit)
    if std_error is not None:
        half_width = float(t_quantile(degrees_of_freedom(n_effective))) * std_error
    return make_row(
        first=names[0],
        second=names[1],
        dimension=dimension,
        n_comparisons=n,
        n_prompts=n_prompts,
        agreement=agreement,
        kappa=value,
        std_error=std_error,
        ci_low=max(value - half_width, -1.0),
        ci_high=min(value + half_width, 1.0),
    )


def _find_shared_votes(*sides: Battles) -> tuple[list[Array], Index, list[Mask]]:
    """Find the comparisons that all sides judged.

    Returns the shares (c, 3) of each side's verdicts on them, their prompts (c,), and masks of each side's battles.
    """
    sorted_sides = [sort_sides_by_name(side) for side in sides]
    codes, n_pairs = comparison_codes(sorted_sides)
    votes, shared_codes, masks = _count_shared_votes(sorted_sides, codes)
    return votes, shared_codes // n_pairs, masks


def _number_units(sides: Sequence[Battles]) -> Index:
    """Number the cluster of each prompt, or the prompt itself if it has none; prompts as in `comparison_codes`."""
    prompts, clusters = dict[str, int](), dict[str, str]()
    for side in sides:
        for question in side.questions:
            prompts.setdefault(question, len(prompts))
        clusters |= map_questions_to_clusters(side)
    units = dict[tuple[str, str], int]()
    unit_numbers = [
        units.setdefault(
            ("cluster", clusters[name]) if name in clusters else ("prompt", name),
            len(units),
        )
        for name in prompts
    ]
    return np.array(unit_numbers, dtype=np.intp)


def _count_shared_votes(
    sorted_sides: Sequence[Battles], codes: Sequence[Index]
) -> tuple[list[Array], Index, list[Mask]]:
    """Return the same as `_find_shared_votes` for sides in name order, but codes (c,) instead of prompts."""
    shared_codes = functools.reduce(np.intersect1d, codes)
    shared_codes = shared_codes[shared_codes >= 0]
    masks = [np.isin(code, shared_codes) for code in codes]
    votes = []
    for side, code, mask in zip(sorted_sides, codes, masks, strict=True):
        category = np.array([0, 2, 1, 1])[side.winner[mask]]
        cell = 3 * np.searchsorted(shared_codes, code[mask]) + category
        n = None if side.count is None else side.count[mask]
        counts = count_codes(cell, n, 3 * len(shared_codes)).reshape(-1, 3)
        votes.append(counts / counts.sum(axis=1, keepdims=True))
    return votes, shared_codes, masks


def comparison_codes(sides: Sequence[Battles]) -> tuple[list[Index], int]:
    """Number the prompt, pair and draws of each battle, the same on every side.

    Parameters
    ----------
    sides : sequence of Battles
        Each as `sort_sides_by_name` returns it; sides may have other models and prompts.

    Returns
    -------
    codes : list of Index, shape (b,) each
        One for each side; -1 for a battle that names no prompt.
    n_pairs : int
        How many numbers a prompt takes, of pairs and draws, so that `code // n_pairs` numbers the prompt.
    """
    names = sorted({name for side in sides for name in side.models})
    number = {name: i for i, name in enumerate(names)}
    prompts = dict[str, int]()
    m, codes = len(names), []
    d = 1 + max((int(max(map(np.max, s.draws()))) for s in sides if len(s)), default=0)
    for side in sides:
        draw_a, draw_b = (draw.astype(np.intp) for draw in side.draws())
        model = np.array([number[name] for name in side.models], dtype=np.intp)
        prompt_numbers = [prompts.setdefault(q, len(prompts)) for q in side.questions]
        prompt = np.array([*prompt_numbers, -1])[
            np.minimum(side.question, len(prompt_numbers))
        ]
        pair = model[side.model_a] * m + model[side.model_b]
        code = ((prompt * m * m + pair) * d + draw_a) * d + draw_b
        codes.append(np.where(prompt < 0, -1, code))
    return codes, max(m * m, 1) * d * d


# Rank correlation


def rank_correlation(
    first: Leaderboard, second: Leaderboard, *, names: tuple[str, str], dimension: str
) -> dict[str, Any]:
    """Compute Spearman's rank correlation of the models that both leaderboards rate.

    Parameters
    ----------
    first, second : Leaderboard
        Models that one of them does not rate are left out; equal ratings share the mean of their ranks.
    names : tuple of str
        What the row calls the two.
    dimension : str
        Of the row.

    Returns
    -------
    dict
        `n_models` and `rho`, which is None for fewer than three models, or where one leaderboard has
        no order.

    References
    ----------
    .. [1] C. Spearman (1904), "The proof and measurement of association between two things", American
       Journal of Psychology 15(1), 72-101.
    """
    from scipy.stats import spearmanr  # a third of a second

    ratings = dict(zip(second.models, second.rating.tolist(), strict=True))
    second_ratings = np.array([ratings.get(model, np.nan) for model in first.models])
    is_shared = np.isfinite(first.rating + second_ratings)
    sides = first.rating[is_shared], second_ratings[is_shared]
    has_order = len(sides[0]) > 2 and all(np.ptp(side) > 0 for side in sides)
    return {
        "first": names[0],
        "second": names[1],
        "dimension": dimension,
        "n_models": int(is_shared.sum()),
        "rho": float(spearmanr(*sides).statistic) if has_order else None,
    }


def correlate_judge_ratings(
    battles: Mapping[str, Battles],
    rate: Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]],
    *,
    dimension: str,
) -> list[dict[str, Any]]:
    """Correlate the ratings by every two judges, from the comparisons that both judged.

    Parameters
    ----------
    battles : mapping of str to Battles
        By judge.
    rate : callable
        From battles by dimension to leaderboards by dimension.
    dimension : str
        Of all of them.

    Returns
    -------
    list of dict
        A row of `rank_correlation` for each pair of judges that have comparisons in common and that
        `rate` rates.
    """
    rows = []
    for names in combinations(battles, 2):
        sides = [battles[name] for name in names]
        _, _, masks = _find_shared_votes(*sides)
        if not masks[0].any():
            continue
        boards = [
            rate({dimension: side.select(mask).compact()}).get(dimension)
            for side, mask in zip(sides, masks, strict=True)
        ]
        if boards[0] is not None and boards[1] is not None:
            rows.append(
                rank_correlation(boards[0], boards[1], names=names, dimension=dimension)
            )
    return rows


# Agreement with labels


def label_errors(
    people: Battles, judges: Mapping[str, Battles]
) -> tuple[dict[str, Array], Index]:
    """Compare judges with people's labels, one comparison after the other.

    Parameters
    ----------
    people : Battles
        A battle for each label of one dimension.
    judges : mapping of str to Battles
        By judge, of the same dimension; two orders that disagree are a tie.

    Returns
    -------
    errors : dict of str to Array, shape (c,)
        By judge, of the comparisons that people and all judges have judged: the share of labels that name another
        outcome.
    units : Index, shape (c,)
        Their prompts, or the clusters of these, as numbers.
    """
    (truth, *votes), prompts, _ = _find_shared_votes(people, *judges.values())
    return {
        name: 1.0 - (truth * shares).sum(axis=1)
        for name, shares in zip(judges, votes, strict=True)
    }, _number_units([people, *judges.values()])[prompts]


def gold_errors(
    pairs: Sequence[GoldPair], judgments: Mapping[str, Sequence[Judgment]]
) -> tuple[dict[str, Array], list[str]]:
    """Compare judges with the labels of pairs, one pair after the other.

    Parameters
    ----------
    pairs : sequence of GoldPair
        With their labels.
    judgments : mapping of str to sequence of Judgment
        By judge, as of `gold_results`.

    Returns
    -------
    errors : dict of str to Array, shape (n,)
        By judge, of the n pairs that were asked: the share of orders that are wrong; NaN without a valid judgment.
    units : list of str
        (n,) the prompts of the pairs, or their clusters.
    """
    by_judge = {
        name: {
            judgment.prompt_id: judgment for judgment in rows if not judgment.invalid
        }
        for name, rows in judgments.items()
    }
    asked_ids = {judgment.prompt_id for rows in judgments.values() for judgment in rows}
    asked_pairs = [pair for pair in pairs if pair.pair_id in asked_ids]
    errors_by_judge = {
        name: np.array(
            [_share_wrong(pair, by_pair.get(pair.pair_id)) for pair in asked_pairs]
        )
        for name, by_pair in by_judge.items()
    }
    return errors_by_judge, [pair.unit for pair in asked_pairs]


def _share_wrong(pair: GoldPair, judgment: Judgment | None) -> float:
    if judgment is None:
        return math.nan
    return fmean(unswap_verdict(verdict) != pair.label for verdict in judgment.orders)


def _share_right(
    pair: GoldPair, judgment: Judgment, *, invalid_is_right: bool = False
) -> float:
    """Return the share of orders whose verdict is the label; an invalid verdict is wrong, or right."""
    right = {pair.label, None} if invalid_is_right else {pair.label}
    return fmean(unswap_verdict(verdict) in right for verdict in judgment.orders)


def gold_results(
    pairs: Sequence[GoldPair], judgments: Sequence[Judgment]
) -> list[dict[str, Any]]:
    """Compare a judge with the labels: all pairs, then each subset where there are several.

    Parameters
    ----------
    pairs : sequence of GoldPair
        With their labels.
    judgments : sequence of Judgment
        Of response_a against response_b, whose prompt_id is the pair's id; others are ignored.

    Returns
    -------
    list of dict
        By subset, "all" first. `n` pairs that were asked; `n_invalid` of them without a valid verdict in
        each order, `n_flips`; `accuracy`, a mean over orders, so that a flip counts as half and an invalid
        verdict is wrong, as LLMBar counts it [1]_; `low` to `high`, its 95% interval, in which all pairs
        of a prompt, or of a named cluster, are one observation and invalid verdicts may be wrong (`low`) or right (`high`);
        `strict`, the share of pairs that are right in all orders; Cohen's `kappa` of a, tie and b on pairs
        with valid verdicts, a flip being a tie, with `kappa_low` and `kappa_high`. None where undefined.

    References
    ----------
    .. [1] Z. Zeng, J. Yu, T. Gao, Y. Meng, T. Goyal and D. Chen (2024), "Evaluating large language models at
       evaluating instruction following", International Conference on Learning Representations.
    """
    by_id = {judgment.prompt_id: judgment for judgment in judgments}
    subsets: dict[str, list[tuple[GoldPair, Judgment]]] = {}
    for pair in pairs:
        if judgment := by_id.get(pair.pair_id):
            for name in ("all", pair.subset or "other"):
                subsets.setdefault(name, []).append((pair, judgment))
    rows = []
    for subset, judged_pairs in subsets.items():
        valid_pairs = [
            (pair, judgment) for pair, judgment in judged_pairs if not judgment.invalid
        ]
        right = np.array([_share_right(p, j) for p, j in judged_pairs])
        not_wrong = np.array(
            [_share_right(p, j, invalid_is_right=True) for p, j in judged_pairs]
        )
        verdict_pairs = [
            (
                p.unit,
                p.label.upper(),
                _LETTERS[(j.entrant_a, None, j.entrant_b).index(j.winner)],
            )
            for p, j in valid_pairs
        ]
        agreement = verdict_agreement(verdict_pairs, names=("label", "judge"))
        units = np.unique([p.unit for p, _ in judged_pairs], return_inverse=True)
        low, _ = interval_by_prompt(right, units[1])
        _, high = interval_by_prompt(not_wrong, units[1])
        row = make_row(
            subset=subset,
            n=len(judged_pairs),
            n_invalid=len(judged_pairs) - len(valid_pairs),
            n_flips=sum(bool(judgment.inconsistent) for _, judgment in valid_pairs),
            accuracy=float(right.mean()),
            low=low,
            high=high,
            strict=float(np.mean(right == 1.0)),
            kappa=agreement["kappa"],
            kappa_low=agreement["ci_low"],
            kappa_high=agreement["ci_high"],
        )
        rows.append(row)
    return rows if len(rows) > 2 else rows[:1]
