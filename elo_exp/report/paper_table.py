"""The leaderboards of a finished run for a paper or an issue: one table as LaTeX and as Markdown, and the conclusion.

Its numbers are those of the page: both read them from the same rows and format them by the same functions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from elo_exp.formatting import format_count, format_number, join_names
from elo_exp.ratings.leaderboard import Rating
from elo_exp.report.document import Table
from elo_exp.report.sentences import standings_sentences
from elo_exp.runs.reading import FinishedRun

_RUBRIC_HEADING, _ENTRANT_HEADING = "Rubric", "Entrant"
_SCORE_DIGITS = 3
# Each character that LaTeX would not print as it is, and those of our numbers
_LATEX_BY_CHARACTER = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "`": "\\textasciigrave{}",
    "−": "$-$",
    "±": "$\\pm$",
    "×": "$\\times$",
    "–": "--",
    "…": "\\ldots{}",
    "’": "'",
    "\0": "{}",
}
# Two hyphens would become a dash, so an empty group separates them
_FIRST_HYPHEN = re.compile("-(?=-)")
_LATEX_TABLE = str.maketrans(_LATEX_BY_CHARACTER)


def build_leaderboard_table(run: FinishedRun) -> Table:
    """Return the leaderboards of all rubrics by the primary method, with the interval in the cell of the rating."""
    is_scored = _is_scored(run)
    headings = (
        *("Rank", _ENTRANT_HEADING),
        "Mean score" if is_scored else "Rating (points)",
        *(["Items"] if is_scored else ["Prompts", "Comparisons"]),
    )
    has_rubrics = len(run.boards) > 1
    return Table(
        label="Leaderboard",
        columns=[*([_RUBRIC_HEADING] if has_rubrics else []), *headings],
        rows=[
            [*([dimension] if has_rubrics else []), *cells]
            for dimension in run.boards
            for cells in _iterate_rows(run, dimension, is_scored=is_scored)
        ],
        words=(_RUBRIC_HEADING, _ENTRANT_HEADING),
    )


def _is_scored(run: FinishedRun) -> bool:
    return any(
        run.stored_board(run.primary_method(d), d).get("unit") == "score"
        for d in run.boards
    )


def _iterate_rows(
    run: FinishedRun, dimension: str, *, is_scored: bool
) -> Iterator[list[str]]:
    for row in run.board(run.primary_method(dimension), dimension).values():
        counts = [row.n_battles] if is_scored else [row.n_prompts, row.n_battles]
        yield [
            standings_sentences.ranks(row),
            row.model,
            _format_rating(row, _SCORE_DIGITS if is_scored else 0),
            *map(format_count, counts),
        ]


def _format_rating(row: Rating, digits: int) -> str:
    """Return a rating with its interval: "1433 [1399, 1467]"."""
    rating = standings_sentences.rating(row, digits)
    if None in (row.rating, row.ci_low, row.ci_high):
        return rating
    low, high = (format_number(end, digits) for end in (row.ci_low, row.ci_high))
    return f"{rating} [{low}, {high}]"


def list_conclusions(run: FinishedRun) -> list[str]:
    """Return the sentence of each rubric, and what the points reflect."""
    has_rubrics = len(run.conclusions) > 1
    sentences = [
        f"{dimension}: {conclusion['sentence']}."
        if has_rubrics
        else f"{_begin_sentence(conclusion)}."
        for dimension, conclusion in run.conclusions.items()
    ]
    scopes = dict.fromkeys(c["whose"] for c in run.conclusions.values())
    return [*sentences, *filter(None, scopes)]


def _begin_sentence(conclusion: Mapping[str, Any]) -> str:
    """Return a sentence with a capital, unless it begins with the name of an entrant."""
    sentence = str(conclusion["sentence"])
    leader = conclusion.get("first")
    if leader and sentence.startswith(leader):
        return sentence
    return sentence[:1].upper() + sentence[1:]


def format_caption(run: FinishedRun) -> str:
    """Say which ratings the table has, by which judge and on how many prompts, and what they support."""
    boards = [run.stored_board(run.primary_method(d), d) for d in run.boards]
    labels = dict.fromkeys(str(board.get("label", "")) for board in boards)
    kinds = dict.fromkeys(board.get("interval") for board in boards)
    values = "Mean scores" if _is_scored(run) else f"{join_names([*labels])} ratings"
    intervals = join_names([kind for kind in kinds if kind])
    ends = f" with 95% intervals ({intervals})" if intervals else ""
    judge = run.manifest.get("judge_model")
    by_judge = f", judged by {judge}" if judge else ""
    prompts = _count_prompts(run)
    about = f"{values}{ends}{by_judge}{' on ' * bool(prompts)}{prompts}."
    return " ".join([about, *list_conclusions(run)])


def _count_prompts(run: FinishedRun) -> str:
    """Return the number of prompts, by rubric if the rubrics differ."""
    counts = {
        dimension: conclusion.get("n_prompts")
        for dimension, conclusion in run.conclusions.items()
    }
    noun = "items" if _is_scored(run) else "prompts"
    texts = {
        dimension: f"an unknown number of {noun}" if n is None else f"{n:,} {noun}"
        for dimension, n in counts.items()
    }
    if len({*texts.values()}) < 2:
        return "".join({*texts.values()})
    return join_names([f"{text} ({name})" for name, text in texts.items()], len(texts))


def format_latex(table: Table, caption: str) -> str:
    """Return a table in the style of booktabs, which prints every name as it is."""
    is_grouped = table.columns[0] == _RUBRIC_HEADING
    rows = [[escape_latex(cell) for cell in row] for row in table.plain_rows]
    alignment = "".join("l" if name in table.words else "r" for name in table.columns)
    blocks = [rows]
    if is_grouped:
        blocks = [
            [first_row, *(["", *row[1:]] for row in further_rows)]
            for _, (first_row, *further_rows) in groupby(rows, key=lambda row: row[0])
        ]
    body = "\n    \\addlinespace\n".join(
        "\n".join(map(_format_latex_row, block)) for block in blocks
    )
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}",
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{escape_latex(caption)}}}",
            "  \\label{tab:leaderboard}",
            f"  \\begin{{tabular}}{{{alignment}}}",
            "    \\toprule",
            _format_latex_row([*map(escape_latex, table.columns)]),
            "    \\midrule",
            body,
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def _format_latex_row(cells: Sequence[str]) -> str:
    # LaTeX takes a bracket or a star at the beginning of a row for an option of the row before
    guard = "{}" if cells[0].startswith(("[", "*")) else ""
    return f"    {guard}{' & '.join(cells)} \\\\"


def escape_latex(text: str) -> str:
    """Return a text as LaTeX prints it; characters that nobody sees are left out."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return _FIRST_HYPHEN.sub("-\0", line).translate(_LATEX_TABLE)
