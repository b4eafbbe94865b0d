"""The page, the console text and the tracked numbers of a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elo_exp.analysis.win_rates import wilson_interval
from elo_exp.console import format_table, wrap_lines
from elo_exp.figures.style import grouped, read_columns
from elo_exp.formatting import NO_VALUE, format_count, format_number, format_percent
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import HEADLINE_ESTIMATOR
from elo_exp.oracle.gates import REPORT, STATUSES_BEST_FIRST
from elo_exp.oracle.grid import ALL, GIVEN, JUDGE_CALIBRATION
from elo_exp.report.document import (
    Cell,
    Document,
    FigureSlot,
    OtherFigures,
    Paragraph,
    Section,
    Styled,
    Table,
)
from elo_exp.report.provenance import (
    build_details_section,
    format_kicker,
    list_made_blocks,
    list_run_bill,
)
from elo_exp.report.sentences import grid_sentences as words
from elo_exp.report.sentences.oracle_sentences import SIMULATED_NOTE

Row = Mapping[str, Any]  # of grid.csv
_METRICS = ("rmse", "coverage", "interval_score", "pairwise_accuracy", "share")
_LABELS_NOTE = (
    "The reported estimate in samples of {size} prompts, over all policies. Given: with status report or caution. Refused "
    "estimates enter no mean. Judge alone: the mean of the judge’s scores of the same policies. Each sample hides labels "
    "of the same file, whose mean labels are the truth. The table therefore describes these answers, not new ones."
)
_ESTIMATORS_NOTE = (
    "RMSE of the estimates with status report or caution. An estimator that refuses the difficult policies has a smaller "
    "error than an estimator that gives a value for them."
)
_GLOSSARY = (
    ("truth", "The mean label of all samples of a policy in the file."),
    (
        "reported estimate",
        "The estimate of a policy to quote: the mean of its calibrated scores, moved towards an estimate that does not "
        "borrow the logging policy’s calibration.",
    ),
    ("RMSE", "Root mean square error, in units of the label."),
    (
        "report, caution, refuse",
        "Report: you may publish the estimate. Caution: quote it only with its reason. Refuse: there is no estimate.",
    ),
)
_FOOTER = (
    "All numbers, also for other sample sizes and calibrations, are in grid.csv next to this page. docs/oracle_grid.md "
    "describes the file."
)


@dataclass(frozen=True, kw_only=True)
class GridResult:
    """The shown part of a grid: the largest samples with scored intervals, and one calibration.

    headline    rows of the reported estimate, by label share and status, over all policies
    estimators  by name, a row for each label share
    policies    rows of the reported estimate for each label share and status
    """

    size: int
    calibration: str
    headline: Mapping[float, Mapping[str, Row]]
    estimators: Mapping[str, Sequence[Row]]
    policies: Mapping[str, Sequence[Row]]

    @property
    def reported(self) -> list[Row]:
        """The rows of reported estimates, by label share."""
        return [rows[REPORT] for rows in self.headline.values() if REPORT in rows]

    @property
    def shares(self) -> dict[float, list[float]]:
        """By label share: the shares of estimates that are reported, with caution, refused."""
        return {
            label_share: [
                rows[s]["share"] if s in rows else 0 for s in STATUSES_BEST_FIRST
            ]
            for label_share, rows in self.headline.items()
        }

    @property
    def coverage(self) -> tuple[float, float, float] | None:
        """Coverage of all reported intervals, with its interval over samples."""
        rows_with_coverage = [
            row for row in self.reported if row["coverage"] is not None
        ]
        if not rows_with_coverage:
            return None
        shares, n, n_draws = read_columns(
            rows_with_coverage, "coverage", "n", "n_draws"
        )
        share = float(np.average(shares, weights=n))
        low, high = wilson_interval(share, int(n_draws.sum()))
        return share, low, high

    @property
    def title(self) -> str:
        return words.title(self.reported, self.coverage)

    @property
    def answer(self) -> str:
        shares = {label_share: row[0] for label_share, row in self.shares.items()}
        return words.answer(self.size, shares, self.reported, self.coverage)


def grid_result(rows: Sequence[Row]) -> GridResult:
    """Choose the shown rows of grid.csv."""
    scored = [row for row in rows if row["coverage"] is not None] or rows
    calibrations = [
        row["calibration"] for row in rows if row["calibration"] != JUDGE_CALIBRATION
    ]
    filters = {
        "size": max(row["size"] for row in scored),
        "calibration": [*calibrations, JUDGE_CALIBRATION][0],
    }
    rows = [
        {**row, "name": f"{row['estimator']} {row['weights']}".rstrip()}
        for row in rows
        if filters.items() <= row.items()
    ]
    headline_by_policy = grouped(
        (row for row in rows if row["name"] == HEADLINE_ESTIMATOR), "policy"
    )
    given_rows = (row for row in rows if (row["policy"], row["status"]) == (ALL, GIVEN))
    return GridResult(
        **filters,
        headline={
            label_share: {row["status"]: row for row in share_rows}
            for label_share, share_rows in grouped(
                headline_by_policy.pop(ALL), "label_share"
            ).items()
        },
        estimators=grouped(given_rows, "name"),
        policies=headline_by_policy,
    )


def metrics(result: GridResult) -> dict[str, float]:
    """Return grid/<number>/<estimator>, at the largest label share."""
    return {
        f"grid/{column}/{name}": rows[-1][column]
        for name, rows in result.estimators.items()
        for column in _METRICS
        if rows[-1][column] is not None
    }


# The console


def format_console(result: GridResult) -> str:
    """Return the result of a grid for the console."""
    by_share = list[list[str]]()
    for label_share, shares in result.shares.items():
        reported = result.headline[label_share].get(REPORT)
        rmse = format_number(reported["rmse"], 3) if reported else NO_VALUE
        by_share.append(
            [format_percent(label_share), *map(format_percent, shares), rmse]
        )
    rows = [
        [
            name,
            *(
                f"{format_number(row['rmse'], 3)} ({format_percent(1 - row['share'])})"
                for row in cells
            ),
        ]
        for name, cells in result.estimators.items()
    ]
    table = format_table(
        ["RMSE (refused)", *map(format_percent, result.headline)], rows
    )
    head = ["labels", "report", "caution", "refuse", "RMSE of report"]
    blocks = [
        "\n".join([f"{result.title}.", *wrap_lines([result.answer])]),
        f"Reported estimate in samples of {format_count(result.size)} prompts, by share of labelled answers\n"
        + format_table(head, by_share).rstrip("\n"),
        f"Estimators over all policies, by share of labelled answers\n{table}",
    ]
    return "\n\n".join(blocks).rstrip("\n")


# The page


def build_document(
    result: GridResult, truth: Mapping[str, Truth], manifest: Mapping[str, Any]
) -> Document:
    """Return the page of a grid."""
    lede = [Paragraph(f"Do cheap scores recover the truth? {result.answer}", "facts")]
    if manifest.get("is_simulated"):
        lede.append(Paragraph(SIMULATED_NOTE, "warn"))
    return Document(
        kicker=format_kicker("oracle, grid", manifest),
        headline=result.title,
        lede=lede,
        sections=[
            Section(
                "result",
                "Result",
                [
                    _build_labels_table(result),
                    FigureSlot("grid_rmse"),
                    FigureSlot("grid_coverage"),
                ],
            ),
            Section("policies", "By policy", [_build_policies_table(result, truth)]),
            Section(
                "estimators",
                "Estimators",
                [
                    _build_estimators_table(result),
                    FigureSlot("grid_interval_score"),
                    FigureSlot("grid_refused"),
                    FigureSlot("grid_pairwise_accuracy"),
                ],
            ),
            Section("figures", "Further figures", [OtherFigures()]),
            build_details_section(
                list_run_bill(manifest),
                made=list_made_blocks(manifest),
                terms=_GLOSSARY,
            ),
        ],
        footer=_FOOTER,
    )


def _build_labels_table(result: GridResult) -> Table:
    return Table(
        label="The reported estimate by labels",
        columns=[
            "Labels",
            "Reported",
            "Caution",
            "Refused",
            "RMSE reported",
            "Coverage",
            "RMSE given",
            "Pairs in order",
            "Best found",
            "Judge alone",
        ],
        rows=[_make_labels_row(result, share) for share in result.headline],
        note=_LABELS_NOTE.format(size=format_count(result.size)),
    )


def _make_labels_row(result: GridResult, label_share: float) -> list[str]:
    rows = result.headline[label_share]
    given_row, reported_row = rows[GIVEN], rows.get(REPORT, {})
    return [
        format_percent(label_share),
        *map(format_percent, result.shares[label_share]),
        format_number(reported_row.get("rmse"), 3),
        format_percent(reported_row.get("coverage")),
        format_number(given_row["rmse"], 3),
        format_percent(given_row["pairwise_accuracy"]),
        format_percent(given_row["top_1"]),
        format_number(given_row["rmse_judge"], 3),
    ]


def _build_policies_table(result: GridResult, truth: Mapping[str, Truth]) -> Table:
    return Table(
        label="The reported estimate by policy",
        columns=[
            "Policy",
            "Truth",
            "Labels",
            "Status",
            "Share",
            "Bias",
            "RMSE",
            "Coverage",
            "Interval score",
        ],
        rows=[
            _make_policy_row(row, truth[policy] if i == 0 else None)
            for policy, rows in result.policies.items()
            for i, row in enumerate(row for row in rows if row["status"] != GIVEN)
        ],
        words=["Status"],
        note="Rows of refused estimates show the values that the estimator would have given.",
    )


def _make_policy_row(row: Row, truth: Truth | None) -> list[str]:
    """Return a row of a policy; only its first row names the policy and the truth."""
    return [
        row["policy"] if truth else "",
        format_number(truth.mean, 3) if truth else "",
        format_percent(row["label_share"]),
        row["status"],
        format_percent(row["share"]),
        format_number(row["bias"], 3),
        format_number(row["rmse"], 3),
        format_percent(row["coverage"]),
        format_number(row["interval_score"], 3),
    ]


def _build_estimators_table(result: GridResult) -> Table:
    return Table(
        label="RMSE by estimator and labels",
        columns=["Estimator", *map(format_percent, result.headline)],
        rows=[
            [name, *map(_make_error_cell, rows)]
            for name, rows in result.estimators.items()
        ],
        note=_ESTIMATORS_NOTE,
    )


def _make_error_cell(row: Row) -> Cell:
    refused = Styled(f"{format_percent(1 - row['share'])} refused", "small")
    return Cell([format_number(row["rmse"], 3), refused], "num")
