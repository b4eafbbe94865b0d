"""How often a judge is right on pairs whose better answer is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elo_exp.analysis.agreement import shares_agreement
from elo_exp.analysis.win_rates import clustered_interval, mean_error, share_interval
from elo_exp.arrays import Array
from elo_exp.data.gold import GoldPair
from elo_exp.data.pairing import outcome
from elo_exp.records import Judgment, Record

_CLASSES = ("a", "tie", "b")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldResult(Record):
    """Agreement with the labels of one subset; both orders of a pair are one observation.

    accuracy       a flip between the orders counts as half
    strict         a flip counts as wrong
    low, high      of the 95 % interval of `accuracy`
    kappa          Cohen's, of the classes a, tie and b, a flip being a tie; None where undefined
    """

    subset: str
    n: int
    n_invalid: int
    n_flips: int
    accuracy: float | None = None
    strict: float | None = None
    low: float | None = None
    high: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None


def gold_results(
    pairs: Sequence[GoldPair], judgments: Mapping[str, Judgment]
) -> list[GoldResult]:
    """Compare a judge with the labels: all pairs, then each subset where there are several.

    judgments  by pair_id, of response_a as entrant_a; a pair without one is left out
    """
    judged = [
        (pair, judgments[pair.pair_id]) for pair in pairs if pair.pair_id in judgments
    ]
    subsets = sorted({pair.subset or "other" for pair, _ in judged})
    return [
        _result("all", judged),
        *(
            _result(name, [row for row in judged if (row[0].subset or "other") == name])
            for name in subsets
            if len(subsets) > 1
        ),
    ]


def _result(subset: str, judged: Sequence[tuple[GoldPair, Judgment]]) -> GoldResult:
    valid = [(pair, judgment) for pair, judgment in judged if not judgment.invalid]
    counts = GoldResult(
        subset=subset,
        n=len(valid),
        n_invalid=len(judged) - len(valid),
        n_flips=sum(bool(judgment.inconsistent) for _, judgment in valid),
    )
    if not valid:
        return counts
    right = [
        [outcome(verdict) == pair.label for verdict in judgment.orders]
        for pair, judgment in valid
    ]
    share = np.array([np.mean(orders) for orders in right])
    _, prompt = np.unique([pair.prompt for pair, _ in valid], return_inverse=True)
    n_prompts, accuracy = int(prompt.max()) + 1, float(share.mean())
    interval = clustered_interval(
        accuracy, mean_error(share - accuracy, prompt), n_prompts
    ) or share_interval(accuracy, n_prompts)
    agreement = shares_agreement(
        _one_hot([pair.label for pair, _ in valid]),
        _one_hot([_winner(judgment) for _, judgment in valid]),
        prompt,
        names=("labels", "judge"),
        dimension=None,
    )
    return replace(
        counts,
        accuracy=accuracy,
        strict=float(np.mean([all(orders) for orders in right])),
        low=interval[0],
        high=interval[1],
        kappa=agreement.kappa,
        kappa_low=agreement.ci_low,
        kappa_high=agreement.ci_high,
    )


def _winner(judgment: Judgment) -> str:
    names = {judgment.entrant_a: "a", judgment.entrant_b: "b"}
    return names.get(judgment.winner or "", "tie")


def _one_hot(labels: Sequence[str]) -> Array:
    return np.array([[float(label == name) for name in _CLASSES] for label in labels])
