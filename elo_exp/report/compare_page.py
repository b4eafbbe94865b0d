"""A comparison of finished runs: its metrics, and what page and console show."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.comparisons import ALPHA
from elo_exp.console import text_table
from elo_exp.figures.style import grouped
from elo_exp.report.formats import (
    NONE,
    between,
    count,
    number,
    p_value,
    percent,
    percent_reached,
    plain,
    when,
)
from elo_exp.report.words import compare as words

Row = Mapping[str, Any]
Found = Mapping[str, Any]  # as compare.json has it
Table = tuple[list[str], list[list[str]]]  # head and rows

_MAX_LINES = 60  # of a table on the console
_USAGE = ("judge_calls", "verdicts_stored", "output_tokens")


def metrics(found: Found) -> dict[str, float]:
    """Return shift/<number of the run>/<dimension>/<model>, difference/<number>/<policy>."""
    numbers = _numbers(found)
    values = {
        f"shift/{numbers[row['run']]}/{row['dimension']}/{row['model']}": row["shift"]
        for row in found["ratings"]
        if row["method"] == found["method"]
    }
    values |= {
        f"difference/{numbers[row['run']]}/{row['policy']}": row["difference"]
        for row in found["estimates"]
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the runs say of one dimension; `reasons` are the entrants that moved."""

    dimension: str
    chip: str
    is_settled: bool
    leaders: Sequence[str]
    reasons: Sequence[str]
    sentences: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ComparePage:
    """What page and console show of a comparison.

    ratings      by dimension
    overlaps     by dimension, what each run shares with the first
    differences  of settings and inputs: its path, and its value in each run
    """

    headline: str
    facts: str
    runs: Sequence[Sequence[str]]
    run_lines: Sequence[str]
    cards: Sequence[Card]
    ratings: Mapping[str, Table]
    overlaps: Mapping[str, Sequence[str]]
    estimates: Table | None
    paired: str
    judge: Sequence[Sequence[str]]
    answers: Sequence[str]
    differences: Sequence[tuple[str, Sequence[str]]]

    @property
    def columns(self) -> list[str]:
        return [f"Run {n}" for n, _ in enumerate(self.runs, start=1)]


def compare_page(found: Found) -> ComparePage:
    """Lay out a comparison."""
    numbers = _numbers(found)
    ratings = grouped(found["ratings"], "dimension")
    overlaps = {
        dimension: [
            words.overlap(row, numbers[row["run"]])
            for row in found["overlaps"]
            if row["dimension"] == dimension
        ]
        for dimension in ratings
    }
    return ComparePage(
        headline=_headline(found),
        facts=words.facts(found),
        runs=[_run_cells(row, numbers[row["run"]]) for row in found["runs"]],
        run_lines=[words.run_line(row, numbers[row["run"]]) for row in found["runs"]],
        cards=[
            _card(dimension, rows, lines, found)
            for dimension, rows in ratings.items()
            if (lines := overlaps[dimension])
        ],
        ratings={
            dimension: _rating_table(found, numbers, rows)
            for dimension, rows in ratings.items()
        },
        overlaps=overlaps,
        estimates=_estimate_table(found, numbers) if found["estimates"] else None,
        paired=words.PAIRED,
        judge=[
            _judge_cells(row, numbers[row["run"]])
            for row in found["judge"]
            if row["tie_rate"] is not None
        ],
        answers=[
            words.answers(
                numbers[run],
                [row["entrant"] for row in rows if row["n_same"] < row["n_shared"]],
            )
            for run, rows in grouped(
                sorted(found["answers"], key=lambda row: str(row["run"])), "run"
            ).items()
        ],
        differences=[
            (path, [NONE if value is None else str(value) for value in by_run.values()])
            for path, by_run in found["differences"].items()
        ],
    )


def console(page: ComparePage) -> str:
    """Format what is printed at the end of a comparison."""
    blocks = ["\n".join(page.run_lines), f"{page.headline}."]
    if page.estimates:
        table = text_table(*page.estimates, text=["Status", "Rests on", "Pairs"])
        blocks.append(f"{table}\n{_wrapped(page.paired)}")
    for dimension, (head, rows) in page.ratings.items():
        lines = [dimension, text_table(head, rows[:_MAX_LINES])]
        if len(rows) > _MAX_LINES:
            lines.append(f"  ... and {len(rows) - _MAX_LINES} more in compare.csv")
        lines += map(_wrapped, page.overlaps[dimension])
        blocks.append("\n".join(lines))
    if page.differences:
        title = "settings, versions and inputs that differ, run by run"
        lines = [f"  {path}: {' | '.join(values)}" for path, values in page.differences]
        blocks.append("\n".join([title, *lines]))
    return plain("\n\n".join(blocks))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)


def _leading(found: Found) -> list[Row]:
    """The ratings by the method that leads."""
    return [row for row in found["ratings"] if row["method"] == found["method"]]


def _tested(rows: Sequence[Row], p_holm: str) -> tuple[list[Row], list[Row]]:
    """Rows of which a change is tested, and those in which it is significant."""
    tested = [row for row in rows if row[p_holm] is not None]
    return tested, [row for row in tested if row[p_holm] <= ALPHA]


def _headline(found: Found) -> str:
    if found["estimates"]:
        return words.of_estimates(*_tested(found["estimates"], "difference_p_holm"))
    leading = _leading(found)
    return words.of_ratings(
        *_tested(leading, "shift_p_holm"),
        shifts=[row for row in leading if row["shift"] is not None],
        relations=[row["verdicts"] for row in found["overlaps"]],
    )


def _card(
    dimension: str, rows: Sequence[Row], overlaps: Sequence[str], found: Found
) -> Card:
    numbers = _numbers(found)
    leading = [row for row in rows if row["method"] == found["method"]]
    tested, moved = _tested(leading, "shift_p_holm")
    runs_of: dict[tuple[str, ...], list[int]] = {}
    firsts = [row for row in leading if row["rank"] == 1]
    for run, same_rank in grouped(firsts, "run").items():
        models = tuple(sorted(row["model"] for row in same_rank))
        runs_of.setdefault(models, []).append(numbers[run])
    is_alone = len(runs_of) == 1
    is_settled = is_alone and not moved
    differing = "Leaders differ" if runs_of else "Not rated"
    sentences = list(overlaps)
    if tested and not moved:
        sentences.insert(0, "No shift is significant (Holm, α = .05).")
    return Card(
        dimension=dimension,
        chip="Same leader" if is_settled else "Moved" if moved else differing,
        is_settled=is_settled,
        leaders=[
            words.first(models, runs, is_alone=is_alone)
            for models, runs in runs_of.items()
        ]
        or ["No entrant is rated."],
        reasons=[words.moved(row, numbers[row["run"]]) for row in moved],
        sentences=sentences,
    )


def _run_cells(row: Row, run: int) -> list[str]:
    usage = row["usage"] or {}
    judge = f", judge {row['judge_model']}" if row["judge_model"] else ""
    return [
        str(run),
        row["run"],
        f"{row['experiment']}{judge}",
        count(row["n_prompts"] or None),
        f"${row['dollars']:,.2f}",
        *(count(usage.get(name) or 0) for name in _USAGE),
        when(row["finished_at"]),
    ]


def _judge_cells(row: Row, run: int) -> list[str]:
    is_measured = row["flip_rate"] is not None or not row["n_one_order"]
    return [
        row["dimension"],
        str(run),
        percent(row["flip_rate"]) if is_measured else "not measured: one order",
        percent(row["first_shown_rate"]),
        percent(row["tie_rate"]),
        percent(row["invalid_rate"]),
        percent_reached(row["elo_convergence"]),
    ]


def _numbers(found: Found) -> dict[str, int]:
    """Return the number of each run, from 1."""
    return {row["run"]: n for n, row in enumerate(found["runs"], start=1)}


def _rating_table(found: Found, numbers: Mapping[str, int], rows: list[Row]) -> Table:
    """Return entrant by entrant, best first, a row for each run."""
    head = ["Entrant", "Run", found["label"], "95 % CI", "Ranks"]
    head += ["Shift", "95 % CI", "p (Holm)"]
    digits = 3 if found["method"] == "mean_score" else 0
    by_method = grouped(rows, "method")
    leading = by_method.pop(found["method"], [])
    elo = {(r["model"], r["run"]): r["rating"] for r in by_method.get("elo", ())}
    cells = []
    for model, some in grouped(leading, "model").items():
        for row in some:
            low, high = row["rank_low"] or row["rank"], row["rank_high"]
            value = number(row["rating"], digits)
            own = [
                model if row is some[0] else "",
                str(numbers[row["run"]]),
                row["flag"] or NONE if row["rating"] is None else value,
                between(row["ci_low"], row["ci_high"], digits),
                str(low or NONE) if high in (None, low) else between(low, high),
                number(row["shift"], digits, sign=True),
                between(row["shift_ci_low"], row["shift_ci_high"], digits),
                p_value(row["shift_p_holm"]),
            ]
            if elo:
                own.append(number(elo.get((model, row["run"]))))
            cells.append(own)
    return [*head, "Elo"] if elo else head, cells


def _estimate_table(found: Found, numbers: Mapping[str, int]) -> Table:
    """Return policy by policy, a row for each run."""
    head = ["Policy", "Run", "Value", "95 % CI", "Status", "Rests on"]
    head += ["Difference", "95 % CI", "p (Holm)", "Pairs"]
    cells = [
        [
            row["policy"],
            str(numbers[row["run"]]),
            number(row["value"], 3),
            between(row["ci_low"], row["ci_high"], 3),
            row["status"],
            row["rests_on"] or NONE,
            number(row["difference"], 3, sign=True),
            between(row["difference_ci_low"], row["difference_ci_high"], 3),
            p_value(row["difference_p_holm"]),
            "unpaired"
            if row["n_shared_prompts"] == 0
            else count(row["n_shared_prompts"]),
        ]
        for row in sorted(found["estimates"], key=lambda row: row["policy"])
    ]
    return head, cells
