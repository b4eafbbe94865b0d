"""A comparison of finished runs as metrics, on the console and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.console import text_table
from elo_exp.records import Plot
from elo_exp.report.formats import NONE, between, count, names, number, p_value, percent
from elo_exp.report.page import render

Row = Mapping[str, Any]
PAIRED = (
    "Differences from run 1, of what the headlines rest on. Pairs: prompts of both runs, each one "
    "observation; unpaired where no prompt is shared or influences.json is missing."
)
Found = Mapping[str, Any]  # as compare.json has it

_MAX_ROWS = 60  # of a dimension on the console; all are in compare.csv


def numbers(found: Found) -> dict[str, int]:
    """Return the number of each run, from 1."""
    return {row["run"]: n for n, row in enumerate(found["runs"], start=1)}


def shifted(found: Found) -> list[Row]:
    """Return the ratings of the leading method that have a shift."""
    return [
        row
        for row in found["ratings"]
        if row["method"] == found["method"] and row["shift"] is not None
    ]


def metrics(found: Found) -> dict[str, float]:
    """Return n_runs, shift/<number of the run>/<dimension>/<model>, difference/<number>/<policy>."""
    number_of = numbers(found)
    values = {
        f"shift/{number_of[row['run']]}/{row['dimension']}/{row['model']}": row["shift"]
        for row in shifted(found)
    }
    differences = {
        f"difference/{number_of[row['run']]}/{row['policy']}": row["difference"]
        for row in found["estimates"]
        if row["difference"] is not None
    }
    return {"n_runs": len(found["runs"]), **values, **differences}


def headline(found: Found) -> str:
    """Return who moved, as the first sentence of page and console."""
    if found["estimates"]:
        return _policies_headline(found)
    tested = [row for row in shifted(found) if row["shift_p_holm"] is not None]
    moved = [row["model"] for row in tested if row["shift_p_holm"] <= ALPHA]
    verdicts = {overlap["verdicts"] for overlap in found["overlaps"]}
    if moved:
        return f"{names(list(dict.fromkeys(moved)))} moved significantly"
    if tested:
        return "No entrant moved significantly"
    if verdicts == {"same"}:
        is_refitted = any(abs(row["shift"]) > 0.01 for row in shifted(found))
        fit = (
            ", rated by another fit: no shift is tested"
            if is_refitted
            else ": no shift"
        )
        return f"Same verdicts{fit}"
    if verdicts <= {"same", "nested"}:
        return "Same verdicts, other prompts: no shift"
    return "Ratings side by side: no shift can be tested"


def _policies_headline(found: Found) -> str:
    tested = [row for row in found["estimates"] if row["difference_p_holm"] is not None]
    differing = [r["policy"] for r in tested if r["difference_p_holm"] <= ALPHA]
    if differing:
        return f"{names(list(dict.fromkeys(differing)))} differs significantly between runs"
    return (
        f"No difference between runs {'is significant' if tested else 'can be tested'}"
    )


def describe(row: Row) -> str:
    """Return what a run is and what it cost."""
    usage = row["usage"] or {}
    sizes = {
        "prompts": row["n_prompts"],
        "new verdicts": usage.get("judge_calls"),
        "cached": usage.get("verdicts_stored"),
    }
    judge = [f"judge {row['judge_model']}"] if row["judge_model"] else []
    counts = [f"{n:,} {thing}" for thing, n in sizes.items() if n]
    return ", ".join([row["experiment"], *judge, *counts, f"${row['dollars']:,.2f}"])


def rating_table(found: Found, dimension: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows: entrant by entrant, best first, a row for each run."""
    head = [
        "Entrant",
        "Run",
        found["label"],
        "95 % CI",
        "Ranks",
        "Shift",
        "95 % CI",
        "p (Holm)",
    ]
    by_place = {
        (row["method"], row["model"], row["run"]): row
        for row in found["ratings"]
        if row["dimension"] == dimension
    }
    has_elo = found["method"] != "elo" and any(
        method == "elo" for method, _, _ in by_place
    )
    models = dict.fromkeys(
        model for method, model, _ in by_place if method == found["method"]
    )
    digits = 3 if found["method"] == "mean_score" else 0
    rows = []
    for model in models:
        name = model
        for run, n in numbers(found).items():
            row = by_place.get((found["method"], model, run))
            if row is None:
                continue
            cells = [
                name,
                str(n),
                row["flag"] or NONE
                if row["rating"] is None
                else number(row["rating"], digits),
                between(row["ci_low"], row["ci_high"], digits),
                _ranks(row),
                number(row["shift"], digits, sign=True),
                between(row["shift_ci_low"], row["shift_ci_high"], digits),
                p_value(row["shift_p_holm"]),
            ]
            elo = by_place.get(("elo", model, run), {"rating": None})
            rows.append([*cells, number(elo["rating"])] if has_elo else cells)
            name = ""
    return [*head, "Elo"] if has_elo else head, rows


def estimate_table(found: Found) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the headlines: policy by policy, a row for each run."""
    head = ["Policy", "Run", "Value", "95 % CI", "Status", "Rests on"]
    head += ["Difference", "95 % CI", "p (Holm)", "Pairs"]
    rows = []
    for row in sorted(found["estimates"], key=lambda row: row["policy"]):
        ends = row["difference_ci_low"], row["difference_ci_high"]
        n_pairs = row["n_shared_prompts"]
        rows.append(
            [
                row["policy"],
                str(numbers(found)[row["run"]]),
                number(row["value"], 3),
                between(row["ci_low"], row["ci_high"], 3),
                row["status"],
                row["rests_on"] or NONE,
                number(row["difference"], 3, sign=True),
                between(*ends, 3),
                p_value(row["difference_p_holm"]),
                "unpaired" if n_pairs == 0 else count(n_pairs),
            ]
        )
    return head, rows


def _ranks(row: Row) -> str:
    low, high = row["rank_low"], row["rank_high"]
    if low is None:
        return str(row["rank"] or NONE)
    return str(low) if low == high else f"{low} to {high}"


def overlap_line(found: Found, overlap: Row) -> str:
    """Return what a run shares with the first."""
    run = f"Run {numbers(found)[overlap['run']]}"
    shared = overlap["agreement"]
    if overlap["verdicts"] == "same":
        return f"{run} has the same verdicts as run 1: only their fit can differ."
    line = (
        f"{run} shares {overlap['n_shared_prompts']:,} of its {overlap['n_prompts']:,} prompts "
        f"with the {overlap['n_prompts_before']:,} of run 1"
    )
    if shared["agreement"] is not None:
        line += (
            f"; the winner is the same in {percent(shared['agreement'])} of "
            f"{shared['n_comparisons']:,} shared comparisons (kappa {number(shared['kappa'], 2)})"
        )
    reason = overlap["no_interval"]
    return f"{line}. No shift is tested: {reason}." if reason else f"{line}."


def text(found: Found) -> str:
    """Return the console's lines: runs, shifts by dimension, and settings that differ."""
    lines = []
    for row in found["runs"]:
        lines.append(f"run {numbers(found)[row['run']]}  {row['run']}: {describe(row)}")
    lines += ["", f"{headline(found)}."]
    if found["estimates"]:
        head, rows = estimate_table(found)
        text = ("Status", "Rests on", "Pairs")
        lines += ["", text_table(head, rows, text=text), PAIRED]
    for dimension in _dimensions(found):
        head, rows = rating_table(found, dimension)
        lines += ["", dimension, text_table(head, rows[:_MAX_ROWS])]
        if len(rows) > _MAX_ROWS:
            lines.append(f"  ... and {len(rows) - _MAX_ROWS} more in compare.csv")
        for overlap in found["overlaps"]:
            if overlap["dimension"] == dimension:
                lines += textwrap.wrap(
                    overlap_line(found, overlap), 100, break_on_hyphens=False
                )
    if found["differences"]:
        lines += ["", "settings, versions and inputs that differ, run by run"]
    for path, by_run in found["differences"].items():
        lines.append(
            f"  {path}: {' | '.join(NONE if v is None else str(v) for v in by_run.values())}"
        )
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _dimensions(found: Found) -> list[str]:
    return list(dict.fromkeys(row["dimension"] for row in found["ratings"]))


def page(
    found: Found, plots: Sequence[Plot], *, title: str, manifest: Mapping[str, Any]
) -> str:
    """Return the whole report as one HTML file."""
    shifts = [row for row in shifted(found) if row["shift_p_holm"] is not None]
    return render(
        "compare",
        plots,
        title=title,
        manifest=manifest,
        found=found,
        headline=headline(found),
        estimates=estimate_table(found),
        paired=PAIRED,
        numbers=numbers(found),
        dimensions=_dimensions(found),
        tested=shifts,
        moved=[row for row in shifts if row["shift_p_holm"] <= ALPHA],
        leaders={name: _leaders(found, name) for name in _dimensions(found)},
        overlaps=[(o["dimension"], overlap_line(found, o)) for o in found["overlaps"]],
        ratings={name: rating_table(found, name) for name in _dimensions(found)},
    )


def _leaders(found: Found, dimension: str) -> dict[tuple[str, ...], list[int]]:
    """Return the numbers of the runs in which these entrants have the highest rating."""
    leaders: dict[tuple[str, ...], list[int]] = {}
    for run, n in numbers(found).items():
        first = [
            row["model"]
            for row in found["ratings"]
            if (row["run"], row["method"], row["dimension"], row["rank"])
            == (run, found["method"], dimension, 1)
        ]
        if first:
            leaders.setdefault(tuple(sorted(first)), []).append(n)
    return leaders
