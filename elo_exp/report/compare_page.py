"""report.html of runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.records import Plot
from elo_exp.report.compare_report import (
    JUDGE_HEAD,
    LEGEND,
    Comparison,
    Row,
    answer_lines,
    bill,
    differing,
    input_lines,
    judge_cells,
    moved,
    rating_cells,
    rating_head,
    shares,
    signed,
)
from elo_exp.report.formats import names
from elo_exp.report.html import figure, when
from elo_exp.report.markup import (
    NONE,
    Markup,
    between,
    codes,
    document,
    p_value,
    table,
    tag,
)


def page(
    found: Comparison, plots: Sequence[Plot], *, title: str, manifest: Mapping[str, Any]
) -> str:
    """The whole report as one HTML file."""
    sections = {
        "What moved": _verdicts(found),
        "Runs": _runs(found),
        "Ratings": _ratings(found),
        "Figures": (figure(plot, numbers=f"figures/{plot.name}.csv") for plot in plots),
        "Judge": (
            table("Judge", ["!dimension", *JUDGE_HEAD[1:]], rows)
            for rows in [list(judge_cells(found))]
            if rows
        ),
        "In what they differ": _differences(found),
    }
    started = [when(manifest["started_at"])] if manifest.get("started_at") else []
    lede = ", ".join([f"{len(found.runs)} runs side by side", *started])
    return document(
        title,
        lede,
        sections,
        note="Every number is in compare.csv and compare.json beside this page.",
    )


def _verdicts(found: Comparison) -> Iterator[Markup]:
    for dimension in found.dimensions:
        known = [
            r
            for r in moved(found)
            if r["dimension"] == dimension and r["shift_p_holm"] is not None
        ]
        overlaps = [
            overlap for overlap in found.overlaps if overlap.dimension == dimension
        ]
        if not overlaps:
            continue
        leaders = _leaders(found, dimension)
        sure = [row for row in known if row["shift_p_holm"] <= ALPHA]
        said = [_led(leaders), *(_moved(found, row) for row in sure)]
        if known and not sure:
            said.append(
                "No shift holds at 5 % (Holm): the prompts do not tell that anyone moved."
            )
        said += [_sentence(shares(found, overlap)) for overlap in overlaps]
        is_settled = len(leaders) == 1 and not sure
        kind = "verdict" if is_settled else "verdict open"
        yield tag(
            "div", tag("h3", dimension), *(tag("p", line) for line in said), class_=kind
        )
    yield tag("p", LEGEND, class_="note")


def _leaders(found: Comparison, dimension: str) -> dict[tuple[str, ...], list[str]]:
    """The numbers of the runs in which these entrants have the highest rating."""
    by_run: dict[str, list[str]] = {}
    for row in found.ratings:
        if (row["method"], row["dimension"], row["rank"]) == (
            found.method,
            dimension,
            1,
        ):
            by_run.setdefault(row["run"], []).append(row["model"])
    leaders: dict[tuple[str, ...], list[str]] = {}
    for run, models in by_run.items():
        leaders.setdefault(tuple(sorted(models)), []).append(str(found.number[run]))
    return leaders


def _led(leaders: Mapping[tuple[str, ...], Sequence[str]]) -> str:
    if not leaders:
        return "Nobody is rated."
    if len(leaders) == 1:
        return f"Highest rating, in every run: {names(next(iter(leaders)))}."
    said = (
        f"{names(models)} in {'run' if len(of) == 1 else 'runs'} {names(of)}"
        for models, of in leaders.items()
    )
    return f"Highest rating: {'; '.join(said)}."


def _moved(found: Comparison, row: Row) -> str:
    interval = between(row["shift_ci_low"], row["shift_ci_high"])
    n = found.number[row["run"]]
    said = f"{row['model']} moved by {signed(row['shift'])} points in run {n}"
    return f"{said} ({interval}; p {p_value(row['shift_p_holm'])}, Holm)."


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _runs(found: Comparison) -> Iterator[Markup]:
    head = [
        "run",
        "!folder",
        "<what",
        "prompts",
        "paid",
        "asked",
        "from_the store",
        "output_tokens",
        "<finished",
    ]
    rows = []
    for row in found.runs:
        usage = row["usage"] or {}
        asked = [
            f"{usage.get(name, 0):,}"
            for name in ("judge_calls", "verdicts_stored", "output_tokens")
        ]
        judge = f", judge {row['judge_model']}" if row["judge_model"] else ""
        prompts = (
            NONE
            if row["selected_prompt_count"] is None
            else f"{row['selected_prompt_count']:,}"
        )
        dollars = f"${bill(row):,.2f}"
        what = f"{row['experiment']}{judge}"
        rows.append(
            [
                found.number[row["run"]],
                tag("bdi", row["run"]),
                what,
                prompts,
                dollars,
                *asked,
                when(row["finished_at"]),
            ]
        )
    yield table("Runs", head, rows)


def _ratings(found: Comparison) -> Iterator[Markup]:
    for dimension in found.dimensions:
        yield tag("h3", dimension)
        rows = [
            [tag("bdi", model), *cells]
            for model, *cells in rating_cells(found, dimension)
        ]
        yield table(
            f"Ratings of {dimension}", ["!entrant", *rating_head(found)[1:]], rows
        )


def _differences(found: Comparison) -> Iterator[Markup]:
    for line in (*input_lines(found), *answer_lines(found)):
        yield tag("p", _sentence(line))
    runs = [f"<run_{n}" for n in found.number.values()]
    for label, what in (("Settings", found.settings), ("Versions", found.versions)):
        if rows := differing(found, what):
            yield tag("h3", label)
            yield table(
                label,
                [f"!{label.lower().removesuffix('s')}", *runs],
                [[codes([path]), *cells] for path, *cells in rows],
            )
    if not found.settings:
        yield tag("p", "No setting differs.")
