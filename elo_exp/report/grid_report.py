"""A grid of estimators as an answer to its question, on the console and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.win_rates import share_interval
from elo_exp.console import text_table
from elo_exp.oracle.estimates import HEADLINE
from elo_exp.oracle.gates import REPORT
from elo_exp.oracle.grid_scores import ALL, GIVEN, JUDGE
from elo_exp.report.formats import number, percent
from elo_exp.report.page import template

Row = Mapping[str, Any]  # of grid.csv


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what page and console show: the largest size whose intervals are scored.

    size, calibration  the first calibration that uses labels
    headline           its rows over all policies, by label share and status
    estimators         rows of what is given, over all policies, by name and label share
    policies           the headline's rows of each
    coverage           of reported headlines at all label shares, with its interval over draws
    """
    scored = [row["size"] for row in rows if row["coverage"] is not None]
    size = max(scored or [row["size"] for row in rows])
    calibrations = dict.fromkeys(row["calibration"] for row in rows)
    calibration = next((name for name in calibrations if name != JUDGE), JUDGE)
    at = {"size": size, "calibration": calibration}
    headline: dict[float, dict[str, Row]] = {}
    estimators: dict[str, list[Row]] = {}
    policies: dict[str, list[Row]] = {}
    for row in rows:
        if not at.items() <= row.items():
            continue
        if (row["policy"], row["status"]) == (ALL, GIVEN):
            name = f"{row['estimator']} {row['weights']}".rstrip()
            estimators.setdefault(name, []).append(row)
        if row["estimator"] == HEADLINE and row["policy"] == ALL:
            headline.setdefault(row["label_share"], {})[row["status"]] = row
        elif row["estimator"] == HEADLINE and row["status"] != GIVEN:
            policies.setdefault(row["policy"], []).append(row)
    reported = [found[REPORT] for found in headline.values() if REPORT in found]
    covered = [row for row in reported if row["coverage"] is not None]
    coverage = None
    if n := sum(row["n"] for row in covered):
        share = sum(row["n"] * row["coverage"] for row in covered) / n
        n_draws = sum(row["n_draws"] for row in covered)
        coverage = (share, *share_interval(share, n_draws))
    return {
        **at,
        "headline": headline,
        "estimators": estimators,
        "policies": policies,
        "reported": reported,
        "coverage": coverage,
    }


def metrics(found: Mapping[str, Any]) -> dict[str, float]:
    """Return grid/<number>/<estimator>, at the largest label share."""
    columns = ("rmse", "coverage", "interval_score", "pairwise_accuracy", "share")
    return {
        f"grid/{column}/{name}": rows[-1][column]
        for name, rows in found["estimators"].items()
        for column in columns
        if rows[-1][column] is not None
    }


def text(found: Mapping[str, Any]) -> str:
    """Return the console's lines."""
    shares = [percent(share) for share in found["headline"]]
    cells = [
        [name, *(f"{number(r['rmse'], 3)} ({percent(1 - r['share'])})" for r in rows)]
        for name, rows in found["estimators"].items()
    ]
    table = text_table(["RMSE (refused)", *shares], cells)
    filled = template("grid.txt.j2").render(found=found, table=table)
    return filled.replace("\N{NO-BREAK SPACE}", " ")
