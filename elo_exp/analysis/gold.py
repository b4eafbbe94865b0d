"""How often a judge is right on pairs whose better answer is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elo_exp.analysis.agreement import verdict_agreement
from elo_exp.analysis.win_rates import share_interval
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import outcome
from elo_exp.records import Judgment, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldResult(Record):
    """Agreement with the labels of one subset; both orders of a pair are one observation.

    accuracy   mean over orders, so that a flip counts as half; low, high: its 95 % interval
    strict     share of pairs that are right in all orders: a flip counts as wrong
    kappa      Cohen's, of a, tie and b, a flip being a tie; None where undefined
    """

    subset: str
    n: int
    n_invalid: int
    n_flips: int
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    strict: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None


def gold_results(
    pairs: Sequence[GoldPair], judgments: Mapping[str, Judgment]
) -> list[GoldResult]:
    """Compare a judge with the labels: all pairs, then each subset where there are several.

    judgments  by pair_id, of response_a as entrant_a; a pair without one is left out
    """
    subsets: dict[str, list[tuple[GoldPair, Judgment]]] = {}
    for pair in pairs:
        if judgment := judgments.get(pair.pair_id):
            subsets.setdefault(pair.subset or "other", []).append((pair, judgment))
    found = [_result("all", [row for rows in subsets.values() for row in rows])]
    if len(subsets) > 1:
        found += [_result(name, rows) for name, rows in sorted(subsets.items())]
    return found


def _result(subset: str, judged: Sequence[tuple[GoldPair, Judgment]]) -> GoldResult:
    valid = [row for row in judged if not row[1].invalid]
    result = GoldResult(
        subset=subset,
        n=len(valid),
        n_invalid=len(judged) - len(valid),
        n_flips=sum(bool(judgment.inconsistent) for _, judgment in valid),
    )
    if not valid:
        return result
    right = [
        float(np.mean([outcome(verdict) == pair.label for verdict in judgment.orders]))
        for pair, judgment in valid
    ]
    accuracy = float(np.mean(right))
    low, high = share_interval(accuracy, len(valid))
    letters = {"a": "A", "tie": "TIE", "b": "B"}
    agreement = verdict_agreement(
        [(p.prompt, letters[p.label], letters[_winner(j)]) for p, j in valid],
        names=("label", "judge"),
    )
    return replace(
        result,
        accuracy=accuracy,
        low=low,
        high=high,
        strict=right.count(1.0) / len(right),
        kappa=agreement.kappa,
        kappa_low=agreement.ci_low,
        kappa_high=agreement.ci_high,
    )


def _winner(judgment: Judgment) -> str:
    if judgment.winner is None:
        return "tie"
    return "a" if judgment.winner == judgment.entrant_a else "b"
