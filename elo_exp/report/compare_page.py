"""A comparison of finished runs: its metrics, and what page and console show."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elo_exp.analysis.conclusions import sweep_conclusion
from elo_exp.analysis.conclusions.compare_conclusion import CompareConclusion, conclude
from elo_exp.analysis.conclusions.sweep_conclusion import SweepConclusion
from elo_exp.console import format_table
from elo_exp.figures.style import grouped
from elo_exp.formatting import (
    NO_VALUE,
    format_count,
    format_interval,
    format_number,
    format_p,
    format_percent,
    format_percent_floor,
    format_time,
    rating_or_bound,
    replace_no_break_spaces,
)
from elo_exp.report.sentences import compare_sentences as words
from elo_exp.report.sentences import sweep_sentences as sweep_words
from elo_exp.report.sentences.sweep_sentences import list_scope_lines

Row = Mapping[str, Any]
Comparison = Mapping[str, Any]  # as compare.json has it
Table = tuple[list[str], list[list[str]]]  # head and rows

_MAX_CONSOLE_ROWS = 60
_USAGE_FIELDS = ("judge_calls", "verdicts_stored", "output_tokens")


def metrics(comparison: Comparison, page: "ComparePage") -> dict[str, float | str]:
    """Return shift/<number of the run>/<dimension>/<model>, difference/<number>/<policy>, and
    conclusion/<dimension>/state and sentence."""
    numbers = _number_runs(comparison)
    changes = {
        f"shift/{numbers[row['run']]}/{row['dimension']}/{row['model']}": row["shift"]
        for row in comparison["ratings"]
        if row["method"] == comparison["method"]
    }
    changes |= {
        f"difference/{numbers[row['run']]}/{row['policy']}": row["difference"]
        for row in comparison["estimates"]
    }
    conclusion_metrics = {
        f"conclusion/{dimension}/{name}": row[name]
        for dimension, row in page.conclusion_rows().items()
        for name in ("state", "sentence")
    }
    return {
        name: change for name, change in changes.items() if change is not None
    } | conclusion_metrics


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the runs say of one dimension.

    sentence  what changed
    first     who is first in how many runs
    of_runs   what each run concludes
    overlaps  what each run shares with the first
    """

    dimension: str
    chip: str
    is_settled: bool
    has_moved: bool
    sentence: str
    first: str
    of_runs: Sequence[str]
    overlaps: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ComparePage:
    """What page and console show of a comparison.

    whose        taste the ratings are
    conclusions  by dimension; of oracle runs one, of their estimates
    sentences    what they say
    ratings      by dimension
    of_runs      by dimension, what each run concludes
    overlaps     by dimension, what each run shares with the first
    differences  of settings and inputs: its path, and its value in each run
    """

    headline: str
    facts: str
    whose: Sequence[str]
    conclusions: Mapping[str, CompareConclusion]
    sentences: Mapping[str, str]
    runs: Sequence[Sequence[str]]
    run_lines: Sequence[str]
    cards: Sequence[Card]
    ratings: Mapping[str, Table]
    of_runs: Mapping[str, Sequence[str]]
    overlaps: Mapping[str, Sequence[str]]
    estimates: Table | None
    paired: str
    judge: Sequence[Sequence[str]]
    answers: Sequence[str]
    differences: Sequence[tuple[str, Sequence[str]]]

    def conclusion_rows(self) -> dict[str, dict[str, Any]]:
        """Return the conclusions as compare.json has them."""
        return {
            name: {**conclusion.to_dict(), "sentence": self.sentences[name]}
            for name, conclusion in self.conclusions.items()
        }

    @property
    def columns(self) -> list[str]:
        return [f"Run {n}" for n, _ in enumerate(self.runs, start=1)]


def compare_page(comparison: Comparison) -> ComparePage:
    """Lay out a comparison."""
    numbers = _number_runs(comparison)
    ratings = grouped(comparison["ratings"], "dimension")
    overlaps = {
        dimension: _describe_overlaps(dimension, comparison["overlaps"], numbers)
        for dimension in ratings
    }
    run_conclusions = {
        dimension: _list_run_conclusions(dimension, comparison) for dimension in ratings
    }
    conclusions = _conclude_dimensions(comparison)
    sentences = {
        name: words.sentence(conclusion, numbers)
        for name, conclusion in conclusions.items()
    }
    return ComparePage(
        headline=words.headline(list(conclusions.values())),
        facts=words.facts(comparison),
        whose=list_scope_lines(
            {
                str(numbers[run]): conclusions
                for run, conclusions in comparison["conclusions_of_runs"].items()
            },
            "run",
        ),
        conclusions=conclusions,
        sentences=sentences,
        runs=[_make_run_cells(row, numbers[row["run"]]) for row in comparison["runs"]],
        run_lines=[
            words.run_line(row, numbers[row["run"]]) for row in comparison["runs"]
        ],
        cards=[
            _build_card(
                conclusion,
                sentences[dimension],
                run_conclusions=run_conclusions[dimension],
                overlaps=overlaps[dimension],
            )
            for dimension, conclusion in conclusions.items()
            if overlaps.get(dimension)
        ],
        ratings={
            dimension: _build_rating_table(comparison, numbers, rows)
            for dimension, rows in ratings.items()
        },
        of_runs=run_conclusions,
        overlaps=overlaps,
        estimates=_build_estimate_table(comparison, numbers)
        if comparison["estimates"]
        else None,
        paired=words.PAIRS_NOTE,
        judge=[
            _make_judge_cells(row, numbers[row["run"]])
            for row in comparison["judge"]
            if row["tie_rate"] is not None
        ],
        answers=[
            words.answers(
                numbers[run],
                [row["entrant"] for row in rows if row["n_same"] < row["n_shared"]],
            )
            for run, rows in grouped(
                sorted(comparison["answers"], key=lambda row: str(row["run"])), "run"
            ).items()
        ],
        differences=[
            (
                path,
                [
                    NO_VALUE if value is None else str(value)
                    for value in by_run.values()
                ],
            )
            for path, by_run in comparison["differences"].items()
        ],
    )


def format_console(page: ComparePage) -> str:
    """Format what is printed at the end of a comparison."""
    headline = "\n".join([f"{page.headline}.", *page.whose])
    blocks = ["\n".join(page.run_lines), headline]
    if page.estimates:
        if page.conclusions["estimates"].changes:
            blocks[-1] += f"\n{_wrap_text(page.sentences['estimates'])}"
        table = format_table(*page.estimates, text=["Status", "Rests on", "Pairs"])
        table = table.removeprefix("\n")
        blocks.append(f"{table}\n{_wrap_text(page.paired)}")
    for dimension, (head, rows) in page.ratings.items():
        lines = [_wrap_text(f"{dimension}: {page.sentences[dimension]}")]
        if firsts := page.conclusions[dimension].firsts:
            lines.append(_wrap_text(sweep_words.sentence(firsts, noun="run")))
        lines.append(format_table(head, rows[:_MAX_CONSOLE_ROWS]))
        if len(rows) > _MAX_CONSOLE_ROWS:
            lines.append(
                f"  ... and {len(rows) - _MAX_CONSOLE_ROWS} more in compare.csv"
            )
        lines += map(_wrap_text, page.of_runs[dimension])
        lines += map(_wrap_text, page.overlaps[dimension])
        blocks.append("\n".join(lines))
    if page.differences:
        title = "settings, versions and inputs that differ, run by run"
        lines = [f"  {path}: {' | '.join(values)}" for path, values in page.differences]
        blocks.append("\n".join([title, *lines]))
    return replace_no_break_spaces("\n\n".join(blocks))


def _wrap_text(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)


def _conclude_dimensions(comparison: Comparison) -> dict[str, CompareConclusion]:
    if comparison["estimates"]:
        return {"estimates": conclude(comparison["estimates"])}
    primary_rows = [
        row for row in comparison["ratings"] if row["method"] == comparison["method"]
    ]
    return {
        dimension: conclude(
            rows,
            [
                r["verdicts"]
                for r in comparison["overlaps"]
                if r["dimension"] == dimension
            ],
            dimension=dimension,
            unit=comparison["unit"],
            firsts=_conclude_leaders(dimension, rows, comparison),
        )
        for dimension, rows in grouped(primary_rows, "dimension").items()
    }


def _conclude_leaders(
    dimension: str, rows: Sequence[Row], comparison: Comparison
) -> SweepConclusion:
    conclusions_by_run = comparison["conclusions_of_runs"]
    return sweep_conclusion.conclude(
        [
            sweep_conclusion.find_job_lead(
                run, run_rows, conclusions_by_run.get(run, {}).get(dimension)
            )
            for run, run_rows in grouped(rows, "run").items()
        ],
        dimension=dimension,
        unit=comparison["unit"],
    )


def _describe_overlaps(
    dimension: str, rows: Sequence[Row], numbers: Mapping[str, int]
) -> list[str]:
    """Return what runs share with the first run, in one sentence for runs that share the same."""
    rows_by_overlap: dict[str, list[Row]] = {}
    for row in rows:
        if row["dimension"] == dimension:
            rows_by_overlap.setdefault(words.overlap(row, [0]), []).append(row)
    return [
        words.overlap(overlap_rows[0], [numbers[row["run"]] for row in overlap_rows])
        for overlap_rows in rows_by_overlap.values()
    ]


def _list_run_conclusions(dimension: str, comparison: Comparison) -> list[str]:
    """Return the conclusion of each run about a dimension, or about the models that an arena places."""
    numbers, runs_by_sentence = _number_runs(comparison), dict[str, list[int]]()
    dimensions = {row["dimension"] for row in comparison["ratings"]}
    for run, conclusions in comparison["conclusions_of_runs"].items():
        are_about_models = not dimensions & conclusions.keys()
        for subject, row in conclusions.items():
            text = row["sentence"]
            if are_about_models:
                runs_by_sentence.setdefault(f"{subject}: {text}", []).append(
                    numbers[run]
                )
            elif subject == dimension:
                runs_by_sentence.setdefault(text, []).append(numbers[run])
    return [
        words.describe_run_conclusion(sentence, runs)
        for sentence, runs in runs_by_sentence.items()
    ]


def _build_card(
    conclusion: CompareConclusion,
    sentence: str,
    *,
    run_conclusions: Sequence[str],
    overlaps: Sequence[str],
) -> Card:
    firsts = conclusion.firsts
    assert firsts is not None
    return Card(
        dimension=conclusion.scope.dimension or "",
        chip=words.chip(conclusion),
        is_settled=firsts.state == "leads" and not conclusion.changes,
        has_moved=bool(conclusion.changes),
        sentence=sentence if conclusion.changes else sentence.capitalize(),
        first=sweep_words.sentence(firsts, noun="run"),
        of_runs=run_conclusions,
        overlaps=overlaps,
    )


def _make_run_cells(row: Row, run: int) -> list[str]:
    usage, dollars = row["usage"], row["dollars"]  # None of what a tracker has kept
    judge = f", judge {row['judge_model']}" if row["judge_model"] else ""
    return [
        str(run),
        row["run"],
        f"{row['experiment']}{judge}",
        format_count(row["n_prompts"] or None),
        format_count(None) if dollars is None else f"${dollars:,.2f}",
        *(
            format_count(None if usage is None else usage.get(n) or 0)
            for n in _USAGE_FIELDS
        ),
        format_time(row["finished_at"]),
    ]


def _make_judge_cells(row: Row, run: int) -> list[str]:
    is_measured = row["flip_rate"] is not None or not row["n_one_order"]
    return [
        row["dimension"],
        str(run),
        format_percent(row["flip_rate"]) if is_measured else "not measured: one order",
        format_percent(row["first_shown_rate"]),
        format_percent(row["tie_rate"]),
        format_percent(row["invalid_rate"]),
        format_percent_floor(row["elo_convergence"]),
    ]


def _number_runs(comparison: Comparison) -> dict[str, int]:
    """Return the number of each run, from 1."""
    return {row["run"]: n for n, row in enumerate(comparison["runs"], start=1)}


def _build_rating_table(
    comparison: Comparison, numbers: Mapping[str, int], rows: list[Row]
) -> Table:
    """Return the ratings, best entrant first, with a row for each run."""
    head = ["Entrant", "Run", comparison["label"], "95 % CI", "Ranks"]
    head += ["Shift", "95 % CI", "p (Holm)"]
    digits = sweep_words.DECIMALS_BY_UNIT[comparison["unit"]]
    by_method = grouped(rows, "method")
    primary_rows = by_method.pop(comparison["method"], [])
    elo = {
        (row["model"], row["run"]): row["rating"]
        for row in by_method.get("elo", ())
        if row["flag"] != "no match"
    }
    table_rows = []
    for model, model_rows in grouped(primary_rows, "model").items():
        for row in model_rows:
            low, high = row["rank_low"] or row["rank"], row["rank_high"]
            cells = [
                model if row is model_rows[0] else "",
                str(numbers[row["run"]]),
                rating_or_bound(
                    row["rating"],
                    row["ci_low"],
                    row["ci_high"],
                    flag=row["flag"],
                    digits=digits,
                ),
                format_interval(row["ci_low"], row["ci_high"], digits),
                str(low or NO_VALUE)
                if high in (None, low)
                else format_interval(low, high),
                format_number(row["shift"], digits, sign=True),
                format_interval(row["shift_ci_low"], row["shift_ci_high"], digits),
                format_p(row["shift_p_holm"]),
            ]
            if elo:
                cells.append(format_number(elo.get((model, row["run"]))))
            table_rows.append(cells)
    return [*head, "Elo"] if elo else head, table_rows


def _build_estimate_table(comparison: Comparison, numbers: Mapping[str, int]) -> Table:
    """Return the estimates of each policy, with a row for each run."""
    head = ["Policy", "Run", "Value", "95 % CI", "Status", "Rests on"]
    head += ["Difference", "95 % CI", "p (Holm)", "Pairs"]
    table_rows = [
        [
            row["policy"],
            str(numbers[row["run"]]),
            format_number(row["value"], 3),
            format_interval(row["ci_low"], row["ci_high"], 3),
            row["status"],
            row["rests_on"] or NO_VALUE,
            format_number(row["difference"], 3, sign=True),
            format_interval(row["difference_ci_low"], row["difference_ci_high"], 3),
            format_p(row["difference_p_holm"]),
            "unpaired"
            if row["n_shared_prompts"] == 0
            else format_count(row["n_shared_prompts"]),
        ]
        for row in sorted(comparison["estimates"], key=lambda row: row["policy"])
    ]
    return head, table_rows
