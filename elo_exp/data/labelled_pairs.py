"""Pairs of answers whose better one is known: a file of our own columns, LLMBar's or JudgeBench's.

A file may hold a judge's verdicts beside the labels: github.com/princeton-nlp/LLMBar, LLMEvaluator/evaluate.py, the last
of `results` of a row of result.json. Its winners are those of the outputs, whichever was shown first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp.data import column_roles, table_files
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.data.field_names import fold_spaces
from elo_exp.data.table_files import Row
from elo_exp.errors import FileError, format_value
from elo_exp.files import check_choice, report_read_errors
from elo_exp.records import Record, make_fingerprint

# Columns of LLMBar and JudgeBench -> our names
_FOREIGN_COLUMNS = {
    **{"input": "prompt", "output_1": "response_a", "output_2": "response_b"},
    **{"question": "prompt", "response_A": "response_a", "response_B": "response_b"},
    "source": "subset",
}
# Our name of each role
COLUMNS = {
    "prompt": "prompt",
    "answer_a": "response_a",
    "answer_b": "response_b",
    "human_label": "label",
    "reference": "reference",
    "cluster": "cluster",
}
_REQUIRED_ROLES = ("prompt", "answer_a", "answer_b", "human_label")
_LABELS = {"1": "a", "2": "b", "A>B": "a", "B>A": "b", "A=B": "tie"}
_RESPONSE_COLUMNS = (
    *(("output_1", "output_2"), ("response_a", "response_b")),
    ("response_A", "response_B"),
)
# Of the verdicts with the first response shown first, and with the second
_VERDICT_COLUMNS = (
    *(("verdict_ab", "verdict_ba"), ("winner_ab", "winner_ba")),
    ("winner_swap_false", "winner_swap_true"),
)
_RESULTS_COLUMN = "results"
_RESULT_KEYS = ("swap = False", "swap = True")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldPair(Record):
    """Two answers and which is better.

    pair_id  of the texts; equal in files that hold the same pair
    label    a, b or tie
    cluster  what its prompt has in common with others; None: its text alone
    """

    pair_id: str
    prompt: str
    response_a: str
    response_b: str
    label: str
    subset: str | None = None
    author_a: str | None = None
    author_b: str | None = None
    reference: str | None = None
    cluster: str | None = None

    @property
    def unit(self) -> str:
        """The unit of observation: pairs of one cluster or, without one, of one prompt."""
        if self.cluster is not None:
            return f"cluster {self.cluster}"
        return f"prompt {fold_spaces(self.prompt)}"


def has_labels(keys: Collection[str]) -> bool:
    """Whether a table with these columns holds labelled pairs, and does not name who wrote the answers."""
    has_responses = any({*names} <= {*keys} for names in _RESPONSE_COLUMNS)
    return has_responses and "label" in keys and "model_a" not in keys


def has_verdicts(keys: Collection[str]) -> bool:
    """Whether rows with these columns hold the verdicts of a judge on both orders."""
    has_columns = any({*names} <= {*keys} for names in _VERDICT_COLUMNS)
    return _RESULTS_COLUMN in keys or has_columns


@report_read_errors
def read_pairs(path: Path, columns: Columns = NO_COLUMNS) -> list[GoldPair]:
    """Read the pairs of a table; equal ones count once. Raises FileError for a row that is none.

    columns  the column of each role that the command names
    """
    column_roles.refuse_absent_columns([path], columns)
    present = column_roles.select_present([path], columns).get(path, NO_COLUMNS)
    source = column_roles.name_columns(path, present, COLUMNS)
    keys = {_FOREIGN_COLUMNS.get(name, name) for name in table_files.read_keys(source)}
    if keys and (lacking := [r for r in _REQUIRED_ROLES if COLUMNS[r] not in keys]):
        raise column_roles.build_no_roles_error(source, lacking)
    rows = table_files.read_rows(source)
    pairs = {
        pair.pair_id: pair
        for pair in (parse_pair(*location_row) for location_row in rows)
    }
    if not pairs:
        raise FileError(f"{path} holds no pairs.")
    return list(pairs.values())


def parse_pair(location: str, row: Row) -> GoldPair:
    """Return the pair of a row. Raises FileError for a row that is none."""
    names = sorted(row, key=_FOREIGN_COLUMNS.__contains__, reverse=True)  # ours hold
    cells = {
        _FOREIGN_COLUMNS.get(name, name): table_files.to_text(row[name])
        for name in names
        if name != _RESULTS_COLUMN
    }
    texts = [cells.get(name) for name in ("prompt", "response_a", "response_b")]
    if None in texts:
        raise FileError.bad_file(
            location,
            "has no prompt, or not two responses",
            "It needs prompt, response_a, response_b and label (a, b or tie), or columns of LLMBar or JudgeBench.",
        )
    label = str(cells.get("label"))
    label = check_choice(
        f"{location}: label", _LABELS.get(label, label), ("a", "b", "tie")
    )
    key = make_fingerprint(texts)[:16]
    return GoldPair.from_dict({**cells, "label": label, "pair_id": key})


def parse_verdicts(location: str, row: Row) -> list[str | None]:
    """Return the judge's verdicts on both orders: a, b or tie, and None for no verdict. Raises FileError."""
    return [_parse_verdict(location, cell) for cell in _find_verdicts(row)]


def _find_verdicts(row: Row) -> list[Any]:
    results = row.get(_RESULTS_COLUMN)
    last = results[-1] if isinstance(results, list) and results else None
    if isinstance(last, Mapping):
        orders = [last.get(key) for key in _RESULT_KEYS]
        return [
            order.get("winner") if isinstance(order, Mapping) else None
            for order in orders
        ]
    names = next(
        (names for names in _VERDICT_COLUMNS if {*names} <= {*row}), _VERDICT_COLUMNS[0]
    )
    return [row.get(name) for name in names]


def _parse_verdict(location: str, cell: Any) -> str | None:
    text = table_files.to_text(cell)
    if text is None:
        return None
    verdict = _LABELS.get(text, text.casefold())
    if verdict not in ("a", "b", "tie"):
        raise FileError.bad_file(
            location,
            f"has the verdict {format_value(text)}",
            "It must be a, b, tie, 1 or 2, and name the response whichever was shown first.",
        )
    return verdict
