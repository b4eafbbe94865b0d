"""Judged answers from any table or log, and people's labels from a table of their own, as rows of the oracle's fields."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elo_exp import files
from elo_exp.data import column_roles, formats, table_files
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.data.formats import VALUE_BY_WORD
from elo_exp.data.scores import read_scores
from elo_exp.errors import FileError, UserError, format_value

logger = logging.getLogger(__name__)

# Our name of each role
COLUMNS = {
    "item": "prompt_id",
    "prompt": "prompt",
    "entrant": "policy",
    "answer": "response",
    "draw": "draw_idx",
    "cluster": "cluster",
    "judge_score": "judge_score",
    "human_label": "oracle_label",
}
_LABEL_COLUMNS = {
    role: COLUMNS[role] for role in ("item", "entrant", "draw", "human_label")
}
_SCORE_FIELDS = ("judge_score", "oracle_label")
_NUMBER_FIELDS = (
    *_SCORE_FIELDS,
    *("judge_score_variance", "label_chance", "response_chars"),
)
_TEXT_FIELDS = ("prompt_id", "prompt", "policy", "response", "cluster")
_MAX_NAMED_IDS = 3
_FIRST_DRAW = "0"

LocatedRows = Iterable[tuple[str, dict[str, Any]]]


def read_judged_answers(path: Path, columns: Columns = NO_COLUMNS) -> LocatedRows:
    """Return rows of scored answers with the oracle's fields.

    Lines of JSON with a `judge_score` stay as they are. The columns of other tables are found by the names that the
    command gives, or by usual names. A log or a table of scores has the scores that its program gave.

    Raises FileError for a file of another kind, with its columns.
    """
    is_jsonl = table_files.detect_shape(path) == "lines"
    keys = table_files.read_keys(path)
    table_files.refuse_empty(path)
    present = column_roles.select_present([path], columns).get(path, NO_COLUMNS)
    if is_jsonl and not present and ("judge_score" in keys or not keys):
        return files.read_jsonl(path)
    if table_files.detect_shape(path) in table_files.TABLE_SHAPES:
        named = column_roles.name_usual_columns(path, present, COLUMNS)
        if "judge_score" in named:
            return _read_table(path, named)
    if "judge_score" not in present and (rows := _read_scores(path)):
        return rows
    raise column_roles.build_no_roles_error(path, ["judge_score"])


def _read_table(path: Path, columns: Columns) -> LocatedRows:
    """Yield the rows of a table, with numbers for texts of numbers, and 1 and 0 for words such as pass and fail."""
    for location, row in table_files.read_rows(
        column_roles.name_columns(path, columns, COLUMNS)
    ):
        fields = {str(name): _to_value(str(name), value) for name, value in row.items()}
        yield location, fields


def _to_value(name: str, value: Any) -> Any:
    """Return a cell as JSON has it; what is no number stays as it is, to be refused with its place."""
    if name in _TEXT_FIELDS or value in (None, ""):
        return table_files.to_text(value)
    if name in _SCORE_FIELDS and isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return value
    word = value.strip().casefold()
    if name in _SCORE_FIELDS and word in VALUE_BY_WORD:
        return VALUE_BY_WORD[word]
    number = float(word) if column_roles.is_number(word) else value
    return int(word) if name == "draw_idx" and word.isdecimal() else number


def _read_scores(path: Path) -> LocatedRows:
    """Return the scores of a log or of a table of scores as rows; none for a file without."""
    try:
        file_format = formats.recognise(path)
    except UserError:
        return []
    if file_format.scores is None:
        return []
    scores, _ = read_scores({path: file_format}, metric=None, cluster=None)
    dimensions = sorted({score.dimension for score in scores})
    if len(dimensions) > 1:
        raise FileError.bad_file(
            path,
            f"has {len(dimensions)} kinds of scores ({', '.join(dimensions[:3])}), and the oracle calibrates one",
            "Write the scores of one kind as a table.",
        )
    rows, draws = [], dict[tuple[str, str], list[str]]()
    for number, score in enumerate(scores, start=1):
        draws.setdefault((score.entrant, score.item), []).append(score.draw)
        row = {
            "prompt_id": score.item,
            "policy": score.entrant,
            "draw_idx": len(draws[score.entrant, score.item]) - 1,
            "judge_score": score.value,
        }
        rows += [(f"{path}: score {number}", row)] * (score.value is not None)
    return rows


# Labels by people


@dataclass(frozen=True, kw_only=True)
class _Labels:
    """Labels by what names their answers: the id of the prompt, the entrant and the draw, as far as the file has them."""

    key_fields: tuple[str, ...]
    values: Mapping[tuple[str, ...], Any]

    def make_key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what names the answer of a row."""
        return tuple(str(row.get(name) or _FIRST_DRAW) for name in self.key_fields)


def add_labels(
    rows: LocatedRows, path: Path, columns: Columns = NO_COLUMNS
) -> LocatedRows:
    """Return rows with the labels of another file, which name their answers by the id of the prompt.

    The entrant and the number of the draw count, too, if the file of labels names them.

    Raises FileError for a file without labels, for a label that fits several answers, for labels that fit none, and for
    two labels of one answer.
    """
    located_rows, labels = list(rows), _read_labels(path, columns)
    answers = dict[tuple[str, ...], str]()
    for location, row in located_rows:
        if (key := labels.make_key(row)) not in labels.values:
            continue
        answer = f"{row.get('policy')}, draw {row.get('draw_idx') or 0}"
        if answers.setdefault(key, answer) != answer:
            raise FileError.bad_file(
                path,
                f"has one label for two answers to {key[0]} ({answers[key]}; {answer})",
                "Add a column of entrants or of draws.",
            )
        if row.get("oracle_label") not in (None, labels.values[key]):
            raise FileError.bad_file(
                location,
                f"has the label {format_value(row['oracle_label'])}, and {path} has another one",
                "Leave one of them out.",
            )
        row["oracle_label"] = labels.values[key]
    if not answers:
        scored_ids = [str(row.get("prompt_id")) for _, row in located_rows]
        label_ids = [key[0] for key in labels.values]
        raise FileError.bad_file(
            path,
            f"has no label of an answer that has a score: its ids are {', '.join(label_ids[:_MAX_NAMED_IDS])}, and "
            f"scores are of {', '.join(scored_ids[:_MAX_NAMED_IDS])}",
            "Name the column of the ids:",
            *column_roles.format_settings({"item": "COLUMN"}),
            column_roles.describe_columns(path),
        )
    if n_unused := len(labels.values) - len(answers):
        logger.warning(
            "warning: %s: %d of %d labels are of answers without a score.",
            path,
            n_unused,
            len(labels.values),
        )
    return located_rows


def _read_labels(path: Path, columns: Columns) -> _Labels:
    """Raises FileError for a file without labels, and for two labels of one answer."""
    present = column_roles.select_present([path], columns).get(path, NO_COLUMNS)
    named = column_roles.name_usual_columns(path, present, _LABEL_COLUMNS)
    if lacking := [role for role in ("item", "human_label") if role not in named]:
        raise column_roles.build_no_roles_error(path, lacking)
    labels = _Labels(
        key_fields=tuple(
            _LABEL_COLUMNS[role]
            for role in ("item", "entrant", "draw")
            if role in named
        ),
        values={},
    )
    values, locations = dict[tuple[str, ...], Any](), dict[tuple[str, ...], str]()
    source = column_roles.name_columns(path, named, _LABEL_COLUMNS)
    for location, row in table_files.read_rows(source):
        fields = {str(name): _to_value(str(name), value) for name, value in row.items()}
        label = fields.get("oracle_label")
        if label is None:
            continue
        if not isinstance(label, int | float):
            raise FileError.bad_file(
                location,
                f"has the label {format_value(label)}, which is no number",
                "Write a number, or a word such as pass or fail.",
            )
        key = labels.make_key(fields)
        if (first_location := locations.setdefault(key, location)) != location:
            raise FileError.bad_file(
                location,
                f"labels {key[0]} again, after {first_location}",
                "Keep one of them.",
            )
        values[key] = label
    return replace(labels, values=values)
