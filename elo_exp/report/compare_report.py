"""Finished runs side by side, as files, as metrics and as tables on the console."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elo_exp.analysis.agreement import Agreement
from elo_exp.analysis.comparisons import ALPHA
from elo_exp.files import write_csv, write_json
from elo_exp.records import Plot
from elo_exp.report.findings import METHODS
from elo_exp.report.formats import (
    NONE,
    between,
    names,
    number,
    p_value,
    percent,
    percent_reached,
)
from elo_exp.report.page import render
from elo_exp.store.usage import added_up, paid

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]

_MAX_ROWS = 60  # of a dimension on the console; all are in compare.csv
LEGEND = (
    "95 %: of a rating in its own run. moved: the shift of the last rating before it, Bradley-Terry where "
    "there is one, from that in run 1, against the mean of the entrants rated in both. Its 95 % are of this "
    "shift alone, a prompt of both runs being one observation; whether the intervals of two ratings overlap "
    "is no test. Shifts of Elo have no interval."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What a run shares with the first, on one dimension."""

    run: str
    dimension: str
    n_prompts_before: int  # of the first run
    n_prompts: int
    n_shared_prompts: int
    same_verdicts: bool
    agreement: Agreement  # of the two runs' winners, on the same pair and prompt
    no_interval: str | None  # why the shifts have no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Rows for each run, the first being what the others are compared with."""

    runs: Sequence[Row]
    ratings: Sequence[Row]  # run, dimension, method, a Rating, its shift
    judge: Sequence[Row]  # run, dimension
    overlaps: Sequence[Overlap]
    answers: Sequence[
        Row
    ]  # run, entrant: of the shared prompts, those with the same answer as in the first run
    settings: Mapping[str, Mapping[str, Any]]  # those that differ, by run
    inputs: Sequence[Row]
    versions: Mapping[str, Mapping[str, Any]]  # those that differ, by run

    @property
    def number(self) -> dict[str, int]:
        """Of each run, from 1."""
        return {row["run"]: n for n, row in enumerate(self.runs, start=1)}

    @property
    def dimensions(self) -> list[str]:
        return list(dict.fromkeys(row["dimension"] for row in self.ratings))

    @property
    def method(self) -> str:
        """That which is shown beside Elo, or Elo itself where there is no other."""
        there = dict.fromkeys(row["method"] for row in self.ratings)
        return next(
            (
                name
                for name in ("bradley_terry", *there)
                if name in there and name != "elo"
            ),
            "elo",
        )

    @property
    def has_elo_beside(self) -> bool:
        return self.method != "elo" and any(
            row["method"] == "elo" for row in self.ratings
        )


def moved(found: Comparison) -> list[Row]:
    """The rating rows of the method that is shown which have a shift."""
    return [
        row
        for row in found.ratings
        if row["method"] == found.method and row["shift"] is not None
    ]


def write(run_dir: Path, found: Comparison) -> list[Path]:
    return [
        write_json(run_dir / "compare.json", asdict(found)),
        write_csv(run_dir / "compare.csv", found.ratings),
    ]


def metrics(found: Comparison) -> dict[str, float]:
    """n_runs, and shift/<number of the run>/<dimension>/<model>."""
    shifts = {
        f"shift/{found.number[r['run']]}/{r['dimension']}/{r['model']}": r["shift"]
        for r in moved(found)
    }
    return {"n_runs": len(found.runs), **shifts}


# What both the console and the page show


def bill(row: Row) -> float:
    """Return what a run cost in dollars, by all attempts."""
    return paid(added_up([row["usage"], row["paid_before"]]))


def about(row: Row) -> str:
    usage = row["usage"] or {}
    judge = [f"judge {row['judge_model']}"] if row["judge_model"] else []
    sizes = {
        "prompts": row["selected_prompt_count"],
        "battles": row["n_battles"],
        "new verdicts": usage.get("judge_calls"),
        "cached": usage.get("verdicts_stored"),
    }
    parts = [f"{n:,} {thing}" for thing, n in sizes.items() if n]
    return ", ".join([str(row["experiment"]), *judge, *parts, f"${bill(row):,.2f}"])


def rating_head(found: Comparison) -> list[str]:
    beside = ["Elo", "95 %"] if found.has_elo_beside else []
    name = METHODS.get(found.method, found.method)
    return [
        "entrant",
        "run",
        *beside,
        name,
        "95 %",
        "ranks",
        "moved",
        "95 %",
        "p, Holm",
    ]


def rating_cells(found: Comparison, dimension: str) -> Iterator[list[str]]:
    """Entrant by entrant, best first, a line for each run."""
    rows = {
        (r["run"], r["method"], r["model"]): r
        for r in found.ratings
        if r["dimension"] == dimension
    }
    models = dict.fromkeys(model for _, method, model in rows if method == found.method)
    for model in models:
        for run, n in found.number.items():
            elo = rows.get((run, "elo", model))
            fitted = rows.get((run, found.method, model))
            if fitted is None:
                continue
            yield [
                model,
                str(n),
                *(_points(elo) if found.has_elo_beside else ()),
                *_points(fitted),
                _ranks(fitted),
                number(fitted["shift"], sign=True),
                between(fitted["shift_ci_low"], fitted["shift_ci_high"]),
                p_value(fitted["shift_p_holm"]),
            ]


def _points(row: Row | None) -> list[str]:
    """A rating, or why there is none, and its interval."""
    if row is None:
        return [NONE, NONE]
    points = number(row["rating"]) if row["rating"] is not None else row["flag"] or NONE
    return [points, between(row["ci_low"], row["ci_high"])]


def _ranks(row: Row) -> str:
    low, high = row["rank_low"], row["rank_high"]
    if low is None:
        return str(row["rank"] or NONE)
    return str(low) if low == high else f"{low} to {high}"


def overlap_line(found: Comparison, overlap: Overlap) -> str:
    """Say what a run has in common with the first."""
    n, a = found.number[overlap.run], overlap.agreement
    if overlap.same_verdicts:
        return f"run {n}: the same verdicts as in run 1, so its Bradley-Terry ratings are the same"
    parts = [
        f"run {n}: {overlap.n_shared_prompts:,} of its {overlap.n_prompts:,} prompts are among "
        f"the {overlap.n_prompts_before:,} of run 1"
    ]
    if a.agreement is not None:
        kappa = f", kappa {a.kappa:.2f}" if a.kappa is not None else ""
        parts.append(
            f"on {a.n_comparisons:,} shared pairs the same winner in {percent(a.agreement)}{kappa}"
        )
    if overlap.no_interval:
        parts.append(f"no interval of the shifts: {overlap.no_interval}")
    return "; ".join(parts)


JUDGE_HEAD = {
    "flipped": "flip_rate",
    "first shown wins": "first_shown_rate",
    "ties": "tie_rate",
    "invalid": "invalid_rate",
    "Elo converged": "elo_convergence",
}


def judge_cells(found: Comparison) -> Iterator[list[str]]:
    """By dimension and run; none of a run whose judge is not known."""
    for row in sorted(
        found.judge, key=lambda row: found.dimensions.index(row["dimension"])
    ):
        *rates, share = (row[name] for name in JUDGE_HEAD.values())
        if any(rate is not None for rate in [*rates, share]):
            n = str(found.number[row["run"]])
            cells = [*(percent(rate) for rate in rates), percent_reached(share)]
            yield [row["dimension"], n, *cells]


def differing(
    found: Comparison, what: Mapping[str, Mapping[str, Any]]
) -> list[list[str]]:
    return [
        [path, *(NONE if by[run] is None else str(by[run]) for run in found.number)]
        for path, by in what.items()
    ]


def input_lines(found: Comparison) -> Iterator[str]:
    """Say which input files and which answers are the same in all runs."""
    for same, how in (
        (True, "the same in all runs that name them"),
        (False, "not the same"),
    ):
        if some := [row["input"] for row in found.inputs if row["same"] is same]:
            yield f"inputs {how}: {', '.join(some)}"
    for run, n in found.number.items():
        some = [row for row in found.answers if row["run"] == run]
        changed = [row["entrant"] for row in some if row["n_same"] < row["n_shared"]]
        if changed:
            yield f"run {n}: other answers than in run 1, to shared prompts, by {names(changed)}"
        elif some:
            yield f"run {n}: the same answers as in run 1 to every shared prompt"


# The console


def table(found: Comparison) -> str:
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=120, markup=False, highlight=False)
    for row in found.runs:
        title = f"run {found.number[row['run']]}: {row['run']}"
        console.print(f"{title}\n       {about(row)}", soft_wrap=True)
    for dimension in found.dimensions:
        console.print(f"\n{dimension}")
        rows = list(rating_cells(found, dimension))
        _grid(console, rating_head(found), rows[:_MAX_ROWS], n_left=1)
        if len(rows) > _MAX_ROWS:
            console.print(
                f"  ... and {len(rows) - _MAX_ROWS} more lines in compare.csv"
            )
        for overlap in found.overlaps:
            if overlap.dimension == dimension:
                console.print(f"  {overlap_line(found, overlap)}")
    if judged := list(judge_cells(found)):
        console.print()
        _grid(console, ["dimension", "run", *JUDGE_HEAD], judged, n_left=1)
    if rows := differing(found, found.settings):
        console.print("\nsettings that differ")
        head = ["setting", *(f"run {n}" for n in found.number.values())]
        _grid(console, head, rows, n_left=len(head))
    for line in input_lines(found):
        console.print(line)
    console.print(LEGEND)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _grid(
    console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int
) -> None:
    """n_left  columns of words, which may be broken in two, as a number may not"""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD)
    for i, column in enumerate(head):
        is_text = i < n_left
        justify: Any = "left" if is_text else "right"
        grid.add_column(column, justify=justify, no_wrap=not is_text, overflow="fold")
    before = ""
    for row in rows:
        grid.add_row("" if row[0] == before else row[0], *row[1:])
        before = row[0]
    console.print(grid)


# The page


def page(
    found: Comparison, plots: Sequence[Plot], *, title: str, manifest: Mapping[str, Any]
) -> str:
    """Return the whole report as one HTML file."""
    tested = [row for row in moved(found) if row["shift_p_holm"] is not None]
    return render(
        "compare",
        plots,
        title=title,
        manifest=manifest,
        found=found,
        bills={row["run"]: bill(row) for row in found.runs},
        tested=tested,
        sure=[row for row in tested if row["shift_p_holm"] <= ALPHA],
        leaders={name: _leaders(found, name) for name in found.dimensions},
        overlaps=[(o.dimension, overlap_line(found, o)) for o in found.overlaps],
        rating_head=rating_head(found),
        ratings={name: list(rating_cells(found, name)) for name in found.dimensions},
        judge_head=["dimension", "run", *JUDGE_HEAD],
        judge=list(judge_cells(found)),
        input_lines=list(input_lines(found)),
        differing={
            "Settings": differing(found, found.settings),
            "Versions": differing(found, found.versions),
        },
        legend=LEGEND,
    )


def _leaders(found: Comparison, dimension: str) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the runs in which these entrants have the highest rating."""
    by_run: dict[str, list[str]] = {}
    for row in found.ratings:
        if (row["method"], row["dimension"]) == (found.method, dimension):
            by_run.setdefault(row["run"], []).extend(
                [row["model"]] * (row["rank"] == 1)
            )
    leaders: dict[tuple[str, ...], list[int]] = {}
    for run, models in by_run.items():
        if models:
            leaders.setdefault(tuple(sorted(models)), []).append(found.number[run])
    return leaders
