"""Agreement: of two judges, of a judge with itself or with labels, two dimensions, two leaderboards.

Letters: b battles; c comparisons, which are a prompt and two models; 3 categories of a verdict:
the first model wins, a tie, the second wins.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import in_name_order, mean_error, share_interval
from elo_exp.arrays import Array, Index, Mask, one_row
from elo_exp.data.battles import Battles
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import outcome, repeated
from elo_exp.ratings.leaderboard import Leaderboard, t_quantile
from elo_exp.records import Judgment

_LETTERS = ("A", "TIE", "B")
_NO_CHANCE = 1e-12  # what rounding leaves of a chance of 1 to disagree


# Kappa, as rows of ratings.json:
#
# n_comparisons, n_prompts, agreement; kappa, with its std_error clustered by prompt, ci_low and ci_high;
# None where there is nothing to compare, or where both always give the same verdict, as chance would.


def kappa(
    first: Battles, second: Battles, *, names: tuple[str, str], dimension: str | None
) -> dict[str, Any]:
    """Compute Cohen's kappa of the winners of the same two models on the same prompt.

    Two orders that disagree are a tie. Which model is called a is arbitrary, so every comparison
    counts both ways round, each half. Where one side has several verdicts on a comparison, the
    comparison counts once: it is the agreement of a verdict drawn from each. Battles that name no
    question are left out.
    """
    (left, right), prompt, _ = _shared_votes(first, second)
    return _agreement(
        left, right, prompt, names=names, dimension=dimension, is_symmetric=True
    )


def pairwise_kappa(
    battles: Mapping[str, Battles], *, dimension: str | None = None
) -> list[dict[str, Any]]:
    """Compute kappa of every two judges on one dimension; None: of every two dimensions."""
    return [
        kappa(battles[a], battles[b], names=(a, b), dimension=dimension)
        for a, b in combinations(battles, 2)
    ]


def repeat_agreement(
    judgments: Sequence[Judgment], *, dimension: str
) -> dict[str, Any]:
    """Compare each repeated verdict with the first one of its order, in the letters the judge saw.

    A judge that always names the first shown agrees with itself by chance alone: no kappa.
    """
    pairs = [
        (judgment.prompt_id, before.verdict, again.verdict)
        for judgment in judgments
        for before, again in repeated(judgment)
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
    """Compute kappa of pairs of verdicts: the prompt, and what each side says, A, TIE or B."""
    prompts, *letters = zip(*pairs, strict=True) if pairs else ((), (), ())
    first, second = (np.eye(3)[[_LETTERS.index(v) for v in side]] for side in letters)
    prompt = np.unique(prompts, return_inverse=True)[1]
    return _agreement(first, second, prompt, names=names, dimension=dimension)


def _agreement(
    first: Array,
    second: Array,
    prompt: Index,
    *,
    names: tuple[str, str],
    dimension: str | None,
    is_symmetric: bool = False,
) -> dict[str, Any]:
    """From the shares (c, 3) of each side's verdicts on each comparison.

    kappa = (p_o - p_e) / (1 - p_e), Cohen (1960); its error by the delta method, from what each
    prompt contributes to p_o and p_e.
    """
    n, n_prompts = len(prompt), len(np.unique(prompt))
    agreement = value = half = math.nan
    std_error = None
    if n:
        table = first.T @ second / n
        if is_symmetric:
            table = (table + table[::-1, ::-1]) / 2.0
        by_first, by_second = table.sum(axis=1), table.sum(axis=0)
        agreement, by_chance = float(np.trace(table)), float(by_first @ by_second)
        if 1.0 - by_chance >= _NO_CHANCE:
            value = (agreement - by_chance) / (1.0 - by_chance)
            chance = by_second[:, None] + by_first[None, :] - 2.0 * by_chance
            influence = np.eye(3) - agreement - (1.0 - value) * chance
            parts = ((first @ influence) * second).sum(axis=1) / (1.0 - by_chance)
            std_error = mean_error(parts, prompt)
    if std_error is not None:
        half = float(t_quantile(n_prompts - 1.0)) * std_error
    return one_row(
        first=names[0],
        second=names[1],
        dimension=dimension,
        n_comparisons=n,
        n_prompts=n_prompts,
        agreement=agreement,
        kappa=value,
        std_error=std_error,
        ci_low=max(value - half, -1.0),
        ci_high=min(value + half, 1.0),
    )


def _shared_votes(*sides: Battles) -> tuple[list[Array], Index, list[Mask]]:
    """The comparisons that both sides judged.

    The shares (c, 3) of each side's verdicts on them, their prompts (c,), and each side's battles.
    """
    ordered = [in_name_order(side) for side in sides]
    codes, n_pairs = comparison_codes(ordered)
    shared = np.intersect1d(codes[0], codes[1])
    shared = shared[shared >= 0]
    masks = [np.isin(code, shared) for code in codes]
    votes = []
    for side, code, mask in zip(ordered, codes, masks, strict=True):
        category = np.array([0, 2, 1, 1])[side.winner[mask]]
        at = 3 * np.searchsorted(shared, code[mask]) + category
        counts = np.bincount(at, minlength=3 * len(shared)).reshape(-1, 3)
        votes.append(counts / counts.sum(axis=1, keepdims=True))
    return votes, shared // n_pairs, masks


def comparison_codes(sides: Sequence[Battles]) -> tuple[list[Index], int]:
    """A number for each battle's prompt and pair, the same on every side; -1: names no prompt.

    Also how many numbers a prompt takes.
    """
    names = sorted({name for side in sides for name in side.models})
    number = {name: i for i, name in enumerate(names)}
    prompts = dict[str, int]()
    m, codes = len(names), []
    for side in sides:
        model = np.array([number[name] for name in side.models], dtype=np.intp)
        named = [prompts.setdefault(q, len(prompts)) for q in side.questions]
        prompt = np.array([*named, -1])[np.minimum(side.question, len(named))]
        pair = model[side.model_a] * m + model[side.model_b]
        codes.append(np.where(prompt < 0, -1, prompt * m * m + pair))
    return codes, max(m * m, 1)


# Rank correlation


def rank_correlation(
    first: Leaderboard, second: Leaderboard, *, names: tuple[str, str], dimension: str
) -> dict[str, Any]:
    """Compute Spearman's rank correlation of the models that both leaderboards rate.

    Equal ratings share the mean of their ranks. `rho` is None for fewer than three models, or where
    one leaderboard has no order.
    """
    from scipy.stats import spearmanr  # a third of a second

    ratings = dict(zip(second.models, second.rating.tolist(), strict=True))
    other = np.array([ratings.get(model, np.nan) for model in first.models])
    shared = np.isfinite(first.rating + other)
    sides = first.rating[shared], other[shared]
    has_order = len(sides[0]) > 2 and all(np.ptp(side) > 0 for side in sides)
    return {
        "first": names[0],
        "second": names[1],
        "dimension": dimension,
        "n_models": int(shared.sum()),
        "rho": float(spearmanr(*sides).statistic) if has_order else None,
    }


def ranks_between_judges(
    battles: Mapping[str, Battles],
    rate: Callable[[Mapping[str, Battles]], Mapping[str, Leaderboard]],
    *,
    dimension: str,
) -> list[dict[str, Any]]:
    """Correlate the ratings by every two judges, from the comparisons that both judged."""
    found = []
    for names in combinations(battles, 2):
        sides = [battles[name] for name in names]
        _, _, masks = _shared_votes(*sides)
        if not masks[0].any():
            continue
        boards = [
            rate({dimension: side.select(mask).compact()}).get(dimension)
            for side, mask in zip(sides, masks, strict=True)
        ]
        if boards[0] is not None and boards[1] is not None:
            found.append(
                rank_correlation(boards[0], boards[1], names=names, dimension=dimension)
            )
    return found


# Agreement with labels


def gold_results(
    pairs: Sequence[GoldPair], judgments: Sequence[Judgment]
) -> list[dict[str, Any]]:
    """Compare a judge with the labels: all pairs, then each subset where there are several.

    A row has `accuracy`, a mean over orders, so that a flip counts as half, with its 95 % interval
    (both orders of a pair are one observation); `strict`, the share of pairs that are right in all
    orders; Cohen's `kappa` of a, tie and b, a flip being a tie, with its interval; None where
    undefined.

    judgments  of response_a against response_b, whose prompt_id is pair_id; others are ignored
    """
    by_id = {judgment.prompt_id: judgment for judgment in judgments}
    subsets: dict[str, list[tuple[GoldPair, Judgment]]] = {}
    for pair in pairs:
        if judgment := by_id.get(pair.pair_id):
            for name in ("all", pair.subset or "other"):
                subsets.setdefault(name, []).append((pair, judgment))
    rows = []
    for subset, judged in subsets.items():
        valid = [(pair, judgment) for pair, judgment in judged if not judgment.invalid]
        right = [fmean(outcome(v) == p.label for v in j.orders) for p, j in valid]
        named = [
            (
                p.prompt,
                p.label.upper(),
                _LETTERS[(j.entrant_a, None, j.entrant_b).index(j.winner)],
            )
            for p, j in valid
        ]
        agreement = verdict_agreement(named, names=("label", "judge"))
        n = len(valid) or math.nan
        low, high = share_interval(sum(right) / n, n)
        row = one_row(
            subset=subset,
            n=len(valid),
            n_invalid=len(judged) - len(valid),
            n_flips=sum(bool(judgment.inconsistent) for _, judgment in valid),
            accuracy=sum(right) / n,
            low=low,
            high=high,
            strict=right.count(1.0) / n,
            kappa=agreement["kappa"],
            kappa_low=agreement["ci_low"],
            kappa_high=agreement["ci_high"],
        )
        rows.append(row)
    return rows if len(rows) > 2 else rows[:1]
