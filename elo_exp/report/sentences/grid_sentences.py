"""The sentences of a grid: whether calibrated scores recover the truth."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elo_exp.formatting import (
    format_count,
    format_number,
    format_percent,
    format_percent_interval,
)

Row = Mapping[str, Any]  # of grid.csv
_NOMINAL_COVERAGE = 0.95
# Enough draws show that intervals cover at least this
_MIN_SHOWN_COVERAGE = 0.85


def title(reported: Sequence[Row], coverage: tuple[float, float, float] | None) -> str:
    """Return the answer in a few words.

    reported  rows of the reported estimates
    coverage  of their intervals, with its own interval; None if it is not known
    """
    if not reported:
        return "Cheap scores are not enough: no estimate can be reported"
    if coverage is None:
        return "Errors of reported estimates; their coverage is not known"
    _, low, high = coverage
    if high < _NOMINAL_COVERAGE:
        return "Reported intervals miss the truth more often than they should"
    if low < _MIN_SHOWN_COVERAGE:
        return "There are too few samples to tell how often reported intervals contain the truth"
    return "Calibrated scores recover the truth if they are reported"


def answer(
    size: int,
    shares: Mapping[float, float],
    reported: Sequence[Row],
    coverage: tuple[float, float, float] | None,
) -> str:
    """Return the answer with its numbers.

    size    prompts in each sample
    shares  by label share: the share of estimates that are reported
    """
    sentences = [
        f"Each sample has {format_count(size)} prompts, with "
        f"{_format_range(map(format_percent, _find_ends(shares)))} of the logged answers labelled.",
        f"{_format_range(map(format_percent, _find_ends(shares.values())))} of the estimates can be reported.",
    ]
    if reported:
        error = f"Their root mean square error is {_format_errors(reported, 'rmse')}"
        if reported[0]["rmse_judge"] is not None:
            judge_error = _format_errors(reported, "rmse_judge")
            error += f", and {judge_error} for the judge's mean scores alone"
        sentences.append(f"{error}.")
        if coverage is not None:
            share, low, high = coverage
            sentences.append(
                f"{format_percent(share)} of their 95% intervals contain the truth (95% interval for this share: "
                f"{format_percent_interval(low, high)})."
            )
    return " ".join(sentences)


def _format_errors(rows: Sequence[Row], column: str) -> str:
    return _format_range(
        format_number(value, 3) for value in _find_ends(row[column] for row in rows)
    )


def _find_ends(values: Iterable[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[0], ordered[-1]


def _format_range(ends: Iterable[str]) -> str:
    low, high = ends
    return low if low == high else f"{low} to {high}"
