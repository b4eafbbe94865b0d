"""How often a judge is right on pairs whose better answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from elo_exp.analysis.agreement import verdict_agreement
from elo_exp.analysis.win_rates import share_interval
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import outcome
from elo_exp.records import Judgment


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
    subsets: dict[str, list[tuple[GoldPair, Judgment]]] = {"all": []}
    for pair in pairs:
        if judgment := by_id.get(pair.pair_id):
            for name in ("all", pair.subset or "other"):
                subsets.setdefault(name, []).append((pair, judgment))
    rows = [_row(name, judged) for name, judged in subsets.items() if judged]
    return rows if len(rows) > 2 else rows[:1]


def _row(subset: str, judged: Sequence[tuple[GoldPair, Judgment]]) -> dict[str, Any]:
    valid = [(pair, judgment) for pair, judgment in judged if not judgment.invalid]
    right = [
        fmean(outcome(verdict) == pair.label for verdict in judgment.orders)
        for pair, judgment in valid
    ]
    named = [
        (p.prompt, p.label.upper(), {None: "TIE", j.entrant_a: "A"}.get(j.winner, "B"))
        for p, j in valid
    ]
    agreement = verdict_agreement(named, names=("label", "judge"))
    low, high = share_interval(fmean(right), len(right)) if right else (None, None)
    return {
        "subset": subset,
        "n": len(valid),
        "n_invalid": len(judged) - len(valid),
        "n_flips": sum(bool(judgment.inconsistent) for _, judgment in valid),
        "accuracy": fmean(right) if right else None,
        "low": low,
        "high": high,
        "strict": right.count(1.0) / len(right) if right else None,
        "kappa": agreement.kappa,
        "kappa_low": agreement.ci_low,
        "kappa_high": agreement.ci_high,
    }
