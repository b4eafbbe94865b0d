"""Verdicts as a table for trackers, to be filtered by prompt, pair, order and dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elo_exp.records import Comparison, Judgment, Verdict


def verdict_rows(
    comparisons: Sequence[Comparison], judgments: Sequence[Judgment]
) -> Iterator[dict[str, Any]]:
    """A row for each query. `verdict`: in the positions that the judge saw; `winner`: the entrant whom it names, tie or
    invalid; `reconciled`: the same of both orders, or inconsistent. Lengths in characters."""
    asked = {_place(comparison): comparison for comparison in comparisons}
    for judgment in judgments:
        comparison = asked[_place(judgment)]
        for verdict in judgment.raw:
            yield {
                "prompt_id": judgment.prompt_id,
                "source": comparison.source,
                "dimension": judgment.dimension,
                "entrant_a": judgment.entrant_a,
                "entrant_b": judgment.entrant_b,
                "order": "ba" if verdict.position_swap else "ab",
                "repeat": verdict.repeat,
                "verdict": verdict.verdict,
                "winner": _winner(judgment, verdict),
                "reconciled": _reconciled(judgment),
                "length_a": len(comparison.response_a),
                "length_b": len(comparison.response_b),
            }


def _place(some: Comparison | Judgment) -> tuple[str, str, str]:
    return some.prompt_id, some.entrant_a, some.entrant_b


def _winner(judgment: Judgment, verdict: Verdict) -> str:
    shown = (judgment.entrant_a, judgment.entrant_b)
    if verdict.position_swap:
        shown = shown[::-1]
    return {"A": shown[0], "B": shown[1], "TIE": "tie", "INVALID": "invalid"}[
        verdict.verdict
    ]


def _reconciled(judgment: Judgment) -> str:
    if judgment.invalid:
        return "invalid"
    return "inconsistent" if judgment.inconsistent else judgment.winner or "tie"
