"""What a grid says: whether calibrated scores recover the truth."""

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
    """Answer in a few words.

    reported  rows of the headlines that may be reported
    coverage  of their intervals, with its own interval; None where it is not known
    """
    if not reported:
        return "Cheap scores do not tell: no headline may be reported"
    if coverage is None:
        return "Errors of reported headlines; their coverage is not known"
    _, low, high = coverage
    if high < _NOMINAL_COVERAGE:
        return "Reported intervals miss the truth more often than they should"
    if low < _MIN_SHOWN_COVERAGE:
        return "Too few draws to tell how often reported intervals hold the truth"
    return "Calibrated scores recover the truth where they may be reported"


def answer(
    size: int,
    shares: Mapping[float, float],
    reported: Sequence[Row],
    coverage: tuple[float, float, float] | None,
) -> str:
    """Answer in one sentence.

    size    prompts in each sample
    shares  by label share: of the headlines that may be reported
    """
    text = (
        f"In samples of {format_count(size)} prompts with {_format_range(map(format_percent, _find_ends(shares)))} of the "
        f"logged answers labelled, {_format_range(map(format_percent, _find_ends(shares.values())))} of the "
        "headlines may be reported"
    )
    if reported:
        text += f": they are off by {_format_errors(reported, 'rmse')} (root mean square error)"
        if reported[0]["rmse_judge"] is not None:
            judge_error = _format_errors(reported, "rmse_judge")
            text += f", where the judge's mean scores alone are off by {judge_error}"
        if coverage is not None:
            share, low, high = coverage
            text += (
                f", and {format_percent(share)} of their 95% intervals hold the truth "
                f"({format_percent_interval(low, high)} by the number of draws)"
            )
    return f"{text}."


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
