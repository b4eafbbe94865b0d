"""A comparison of finished runs: its metrics, its page and its console."""

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
    shorten,
)
from elo_exp.report.document import (
    Block,
    Card,
    Cards,
    Cell,
    Document,
    Fold,
    Heading,
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
from elo_exp.report.sentences import compare_sentences as words
from elo_exp.report.sentences import sweep_sentences as sweep_words
from elo_exp.report.sentences.sweep_sentences import list_scope_lines

Row = Mapping[str, Any]
Comparison = Mapping[str, Any]  # as compare.json has it
_MAX_CONSOLE_ROWS = 60
_USAGE_FIELDS = ("judge_calls", "verdicts_stored", "output_tokens")
_SHIFT_NOTE = (
    "A shift is the change of a rating from run 1, relative to the mean change of all entrants that both runs rate. Its "
    "interval counts a prompt of both runs as one observation. Use it to test a shift, and not the overlap of two rating "
    "intervals."
)
_FOOTER = "Every number is in compare.csv and compare.json, next to this page."


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """The result of a comparison.

    conclusions  by dimension; for oracle runs, one about their estimates
    sentences    sentence of each conclusion
    """

    comparison: Comparison
    conclusions: Mapping[str, CompareConclusion]
    sentences: Mapping[str, str]

    @property
    def headline(self) -> str:
        return words.headline(list(self.conclusions.values()))

    @property
    def scope_lines(self) -> Sequence[str]:
        """Whose verdicts the ratings rest on."""
        numbers = _number_runs(self.comparison)
        conclusions_by_run = self.comparison["conclusions_of_runs"].items()
        return list_scope_lines(
            {str(numbers[run]): conclusions for run, conclusions in conclusions_by_run},
            "run",
        )

    @property
    def ratings(self) -> dict[str, list[Row]]:
        """The rows of all runs by dimension."""
        return grouped(self.comparison["ratings"], "dimension")

    def list_conclusion_rows(self) -> dict[str, dict[str, Any]]:
        """Return the conclusions as compare.json has them."""
        return {
            name: {**conclusion.to_dict(), "sentence": self.sentences[name]}
            for name, conclusion in self.conclusions.items()
        }


def conclude_comparison(comparison: Comparison) -> CompareResult:
    """Conclude what differs between runs."""
    numbers, conclusions = _number_runs(comparison), _conclude_dimensions(comparison)
    return CompareResult(
        comparison=comparison,
        conclusions=conclusions,
        sentences={
            name: words.sentence(conclusion, numbers)
            for name, conclusion in conclusions.items()
        },
    )


def metrics(result: CompareResult) -> dict[str, float | str]:
    """Return shift/<number of the run>/<dimension>/<model>, difference/<number>/<policy>, and
    conclusion/<dimension>/state and sentence."""
    comparison = result.comparison
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
        for dimension, row in result.list_conclusion_rows().items()
        for name in ("state", "sentence")
    }
    return {
        name: change for name, change in changes.items() if change is not None
    } | conclusion_metrics


# The page


def build_document(result: CompareResult, manifest: Mapping[str, Any]) -> Document:
    """Return the page of a comparison."""
    comparison = result.comparison
    cards = [
        _build_card(conclusion, result)
        for dimension, conclusion in result.conclusions.items()
        if dimension in result.ratings and _describe_overlaps(dimension, comparison)
    ]
    result_blocks = [Cards(cards), Paragraph(_SHIFT_NOTE, "small")]
    return Document(
        kicker=format_kicker("compare", manifest),
        headline=result.headline,
        lede=[
            Paragraph(words.facts(comparison), "facts"),
            *(Paragraph(line, "whose") for line in result.scope_lines),
        ],
        sections=[
            Section("estimates", "Estimates", _list_estimate_blocks(result)),
            Section("result", "Result", result_blocks if result.ratings else []),
            Section("figures", "Shifts", [OtherFigures()]),
            Section(
                "ratings",
                "Ratings",
                [
                    block
                    for dimension in result.ratings
                    for block in (
                        Heading(dimension),
                        _build_ratings_table(dimension, result),
                    )
                ],
            ),
            Section(
                "differences",
                "Settings and inputs",
                [
                    *map(Paragraph, _describe_answers(comparison)),
                    _build_settings_table(comparison)
                    if comparison["differences"]
                    else Paragraph("No setting, version or input file differs."),
                ],
            ),
            Section("runs", "Runs", [_build_runs_table(comparison)]),
            build_details_section(
                list_run_bill(manifest),
                folds=[
                    Fold(
                        "judge",
                        "Judge checks",
                        "of each run and rubric",
                        [_build_judge_table(comparison)],
                    )
                ],
                made=list_made_blocks(manifest),
            ),
        ],
        footer=_FOOTER,
    )


def _list_estimate_blocks(result: CompareResult) -> list[Block]:
    if not result.comparison["estimates"]:
        return []
    sentence = Paragraph(f"{result.sentences['estimates']}.")
    return [
        *([sentence] if result.conclusions["estimates"].changes else []),
        _build_estimates_table(result.comparison),
        OtherFigures(),
    ]


# Conclusions


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


def _describe_overlaps(dimension: str, comparison: Comparison) -> list[str]:
    """Return the sentences on what runs share with run 1, one for all runs that share the same."""
    numbers, rows_by_overlap = _number_runs(comparison), dict[str, list[Row]]()
    for row in comparison["overlaps"]:
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


def _describe_answers(comparison: Comparison) -> list[str]:
    """Return which entrants gave other answers than in run 1, run by run."""
    numbers = _number_runs(comparison)
    rows_by_run = grouped(
        sorted(comparison["answers"], key=lambda row: str(row["run"])), "run"
    )
    return [
        words.answers(
            numbers[run],
            [row["entrant"] for row in rows if row["n_same"] < row["n_shared"]],
        )
        for run, rows in rows_by_run.items()
    ]


def _number_runs(comparison: Comparison) -> dict[str, int]:
    """Return the number of each run, from 1."""
    return {row["run"]: n for n, row in enumerate(comparison["runs"], start=1)}


# Cards and tables


def _build_card(conclusion: CompareConclusion, result: CompareResult) -> Card:
    leaders, dimension = conclusion.firsts, conclusion.scope.dimension or ""
    assert leaders is not None
    has_moved, sentence = bool(conclusion.changes), result.sentences[dimension]
    sentences = [
        Paragraph(f"{sentence}.", "reason")
        if has_moved
        else Paragraph(f"{sentence.capitalize()}."),
        Paragraph(f"{sweep_words.sentence(leaders, noun='run')}."),
    ]
    run_conclusions = _list_run_conclusions(dimension, result.comparison)
    overlaps = _describe_overlaps(dimension, result.comparison)
    is_settled = leaders.state == "leads" and not has_moved
    return Card(
        title=dimension,
        chip=words.chip(conclusion),
        tone="supported" if is_settled else "caution",
        blocks=[
            *sentences,
            *map(Paragraph, run_conclusions),
            *(Paragraph(overlap, "small") for overlap in overlaps),
        ],
    )


def _build_runs_table(comparison: Comparison) -> Table:
    numbers = _number_runs(comparison)
    return Table(
        label="Runs",
        columns=[
            "Run",
            "Folder",
            "Experiment",
            "Prompts",
            "Paid",
            "New verdicts",
            "Cached",
            "Output tokens",
            "Finished",
        ],
        rows=[_make_run_row(row, numbers[row["run"]]) for row in comparison["runs"]],
        words=["Folder", "Experiment"],
    )


def _make_run_row(row: Row, run: int) -> list[str]:
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


def _build_judge_table(comparison: Comparison) -> Table:
    numbers = _number_runs(comparison)
    return Table(
        label="Judge",
        columns=[
            "Rubric",
            "Run",
            "Order changes the verdict",
            "First answer wins, unadjusted",
            "Ties",
            "Invalid",
            "Elo, % of the final gap",
        ],
        rows=[
            _make_judge_row(row, numbers[row["run"]])
            for row in comparison["judge"]
            if row["tie_rate"] is not None
        ],
    )


def _make_judge_row(row: Row, run: int) -> list[str]:
    is_measured = row["flip_rate"] is not None or not row["n_one_order"]
    return [
        row["dimension"],
        str(run),
        format_percent(row["flip_rate"]) if is_measured else "not measured (one order)",
        format_percent(row["first_shown_rate"]),
        format_percent(row["tie_rate"]),
        format_percent(row["invalid_rate"]),
        format_percent_floor(row["elo_convergence"]),
    ]


def _build_settings_table(comparison: Comparison) -> Table:
    """Return the settings and inputs that differ, with their value in each run."""
    runs = [f"Run {number}" for number in _number_runs(comparison).values()]
    return Table(
        label="Differences",
        columns=["Setting, version or input", *runs],
        rows=[
            [
                Cell([Styled(path, "code")]),
                *(NO_VALUE if v is None else str(v) for v in values.values()),
            ]
            for path, values in comparison["differences"].items()
        ],
        words=runs,
    )


def _build_ratings_table(dimension: str, result: CompareResult) -> Table:
    """Return the ratings, best entrant first, with a row for each run."""
    comparison, rows = result.comparison, result.ratings[dimension]
    numbers = _number_runs(comparison)
    head = ["Entrant", "Run", comparison["label"], "95% CI", "Ranks"]
    head += ["Shift", "95% CI", "p (Holm)"]
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
    return Table(
        label=f"Ratings on {dimension}",
        columns=[*head, "Elo"] if elo else head,
        rows=table_rows,
    )


def _build_estimates_table(comparison: Comparison) -> Table:
    """Return the estimates of each policy, with a row for each run."""
    numbers = _number_runs(comparison)
    head = ["Policy", "Run", "Value", "95% CI", "Status", "Rests on"]
    head += ["Difference", "95% CI", "p (Holm)", "Pairs"]
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
    return Table(
        label="Estimates by run",
        columns=head,
        rows=table_rows,
        words=["Status", "Rests on", "Pairs"],
        note=words.PAIRS_NOTE,
    )


# The console


def format_console(result: CompareResult) -> str:
    """Format what is printed at the end of a comparison."""
    comparison = result.comparison
    numbers = _number_runs(comparison)
    run_lines = [words.run_line(row, numbers[row["run"]]) for row in comparison["runs"]]
    blocks = [
        "\n".join(run_lines),
        "\n".join([f"{result.headline}.", *result.scope_lines]),
    ]
    if comparison["estimates"]:
        if result.conclusions["estimates"].changes:
            sentence = f"{result.sentences['estimates']}."
            blocks[-1] += f"\n{_wrap_text(sentence)}"
        table = _format_table(_build_estimates_table(comparison)).removeprefix("\n")
        blocks.append(f"{table}\n{_wrap_text(words.PAIRS_NOTE)}")
    for dimension in result.ratings:
        lines = [_wrap_text(f"{dimension}: {result.sentences[dimension]}.")]
        if leaders := result.conclusions[dimension].firsts:
            sentence = sweep_words.sentence(leaders, noun="run")
            lines.append(_wrap_text(f"{sentence}."))
        lines.append(_format_table(_build_ratings_table(dimension, result)))
        lines += map(_wrap_text, _list_run_conclusions(dimension, comparison))
        lines += map(_wrap_text, _describe_overlaps(dimension, comparison))
        blocks.append("\n".join(lines))
    if comparison["differences"]:
        title = "settings, versions and inputs that differ between runs"
        rows = _build_settings_table(comparison).plain_rows
        lines = [
            f"  {path}: {' | '.join(map(_format_in_line, values))}"
            for path, *values in rows
        ]
        blocks.append("\n".join([title, *lines]))
    return "\n\n".join(blocks)


def _format_in_line(value: str) -> str:
    """Return a value on one line, of a long text such as a system prompt the beginning."""
    return shorten(" ".join(value.split()))


def _format_table(table: Table) -> str:
    rows = table.plain_rows
    text = format_table(table.columns, rows[:_MAX_CONSOLE_ROWS], text=table.words)
    n_more = len(rows) - _MAX_CONSOLE_ROWS
    return f"{text}\n  ... and {n_more} more in compare.csv" if n_more > 0 else text


def _wrap_text(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)
