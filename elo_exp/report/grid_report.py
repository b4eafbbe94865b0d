"""A grid of estimators as an answer to its question, on the console and as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.win_rates import share_interval
from elo_exp.console import text_table
from elo_exp.oracle.data import Truth
from elo_exp.oracle.estimates import HEADLINE
from elo_exp.oracle.gates import CAUTION, REFUSE, REPORT
from elo_exp.oracle.grid_scores import ALL, GIVEN, JUDGE
from elo_exp.records import Plot
from elo_exp.report.formats import number, percent, percent_between
from elo_exp.report.page import render

Row = Mapping[str, Any]  # of grid.csv

_LEVEL = 0.95
_TOO_WIDE = 0.85  # an interval of the coverage that reaches below tells little
_EMPTY = dict.fromkeys(("rmse", "rmse_judge", "coverage"))


@dataclass(frozen=True, kw_only=True)
class Step:
    """The headline at one label share, over all policies, by status."""

    label_share: float
    given: Row
    reported: Row
    share: Mapping[str, float]  # of the headlines, by status


@dataclass(frozen=True, kw_only=True)
class GridSummary:
    """The rows of one sample size: the largest whose intervals are scored, else the largest."""

    rows: Sequence[Row]  # of grid.csv

    @property
    def size(self) -> int:
        scored = [row["size"] for row in self.rows if row["coverage"] is not None]
        return int(max(scored or [row["size"] for row in self.rows]))

    @property
    def calibration(self) -> str:
        """The first that uses labels, else the judge's scores as they are."""
        every = dict.fromkeys(row["calibration"] for row in self.rows)
        return next((name for name in every if name != JUDGE), JUDGE)

    @property
    def steps(self) -> list[Step]:
        found = []
        for label_share in dict.fromkeys(row["label_share"] for row in self.rows):
            at = {"label_share": label_share, "size": self.size, "policy": ALL}
            headline = {"calibration": self.calibration, "estimator": HEADLINE}
            by_status = {row["status"]: row for row in self.select(**at, **headline)}
            share = {
                status: by_status[status]["share"] if status in by_status else 0.0
                for status in (REPORT, CAUTION, REFUSE)
            }
            found.append(
                Step(
                    label_share=label_share,
                    given=by_status[GIVEN],
                    reported=by_status.get(REPORT, _EMPTY),
                    share=share,
                )
            )
        return found

    @property
    def by_estimator(self) -> dict[str, list[Row]]:
        """The rows of what is given, over all policies, by estimator and then label share."""
        found: dict[str, list[Row]] = {}
        chosen = {"size": self.size, "calibration": self.calibration, "policy": ALL}
        for row in self.select(**chosen, status=GIVEN):
            found.setdefault(estimator(row), []).append(row)
        return found

    @property
    def by_policy(self) -> dict[str, list[Row]]:
        """The headline's rows by policy, of every label share and status."""
        found: dict[str, list[Row]] = {}
        chosen = {"size": self.size, "calibration": self.calibration}
        for row in self.select(**chosen, estimator=HEADLINE):
            if row["policy"] != ALL and row["status"] != GIVEN:
                found.setdefault(row["policy"], []).append(row)
        return found

    def select(self, **values: Any) -> list[Row]:
        """Return the rows that have these values."""
        return [row for row in self.rows if values.items() <= row.items()]


def estimator(row: Row) -> str:
    """Return the name of an estimator with the kind of its weights."""
    return f"{row['estimator']} {row['weights']}".rstrip()


def headline(found: GridSummary) -> str:
    """Return whether calibrated scores recover the truth, as a title."""
    if not any(step.share[REPORT] for step in found.steps):
        return "Cheap scores do not tell: no headline may be reported"
    covered = coverage(found)
    if covered is None:
        return "Errors of reported headlines; their coverage is not known"
    if covered[2] < _LEVEL:
        return "Reported intervals miss the truth more often than they should"
    if covered[1] < _TOO_WIDE:
        return "Too few draws to tell how often reported intervals hold the truth"
    return "Calibrated scores recover the truth where they may be reported"


def coverage(found: GridSummary) -> tuple[float, float, float] | None:
    """Return that of reported headlines at all label shares, with its interval over draws."""
    known = [r for r in (s.reported for s in found.steps) if r["coverage"] is not None]
    if not known:
        return None
    n = sum(row["n"] for row in known)
    share = sum(row["n"] * row["coverage"] for row in known) / n
    return share, *share_interval(share, sum(row["n_draws"] for row in known))


def answer(found: GridSummary) -> str:
    """Answer whether cheap scores recover the truth, in one sentence."""
    labels = _range([step.label_share for step in found.steps], percent)
    shares = _range([step.share[REPORT] for step in found.steps], percent)
    sentence = (
        f"In samples of {found.size:,} prompts with {labels} of the logged answers labelled, "
        f"{shares} of the headlines may be reported"
    )
    reported = [s.reported for s in found.steps if s.reported["rmse"] is not None]
    if reported:
        sentence += (
            f": they are off by {_errors(reported, 'rmse')} (root mean square error)"
        )
        if reported[0]["rmse_judge"] is not None:
            judge = _errors(reported, "rmse_judge")
            sentence += f", where the judge's mean scores alone are off by {judge}"
    if covered := coverage(found):
        share, low, high = covered
        sentence += (
            f", and {percent(share)} of their 95 % intervals hold the truth "
            f"({percent_between(low, high)} by the number of draws)"
        )
    return f"{sentence}."


def _errors(rows: Sequence[Row], column: str) -> str:
    return _range([row[column] for row in rows], lambda value: number(value, 3))


def _range(values: Sequence[float], wording: Callable[[float], str]) -> str:
    low, high = wording(min(values)), wording(max(values))
    return low if low == high else f"{low} to {high}"


def metrics(found: GridSummary) -> dict[str, float]:
    """Return grid/<number>/<estimator> at the largest label share, and the headline's status."""
    values: dict[str, float | None] = {}
    for name, rows in found.by_estimator.items():
        for what in ("rmse", "coverage", "interval_score", "pairwise_accuracy"):
            values[f"grid/{what}/{name}"] = rows[-1][what]
        values[f"grid/refused/{name}"] = 1.0 - rows[-1]["share"]
    return {name: value for name, value in values.items() if value is not None}


def text(found: GridSummary) -> str:
    """Return the console's lines."""
    head = ["labels", "reported", "caution", "refused", "RMSE", "covered", "given"]
    head += ["in order", "judge alone"]
    rows = [
        [
            percent(step.label_share),
            *(percent(step.share[status]) for status in (REPORT, CAUTION, REFUSE)),
            number(step.reported["rmse"], 3),
            percent(step.reported["coverage"]),
            number(step.given["rmse"], 3),
            percent(step.given["pairwise_accuracy"]),
            number(step.given["rmse_judge"], 3),
        ]
        for step in found.steps
    ]
    shares = [percent(step.label_share) for step in found.steps]
    cells = [
        [name, *(f"{number(r['rmse'], 3)} ({percent(1 - r['share'])})" for r in some)]
        for name, some in found.by_estimator.items()
    ]
    return "\n".join(
        [
            f"{headline(found)}.",
            answer(found),
            "",
            f"The headline in samples of {found.size:,} prompts, by labels: status, error and "
            "coverage of what is reported, error of all that is given",
            text_table(head, rows),
            "",
            "RMSE of what is given, and in brackets how much is refused, by labels",
            text_table(["estimator", *shares], cells),
        ]
    ).replace("\N{NO-BREAK SPACE}", " ")


def page(
    found: GridSummary,
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    truth: Mapping[str, Truth],
) -> str:
    """Return the whole report as one HTML file."""
    return render(
        "grid",
        plots,
        title=title,
        manifest=manifest,
        found=found,
        headline=headline(found),
        answer=answer(found),
        truth=truth,
    )
