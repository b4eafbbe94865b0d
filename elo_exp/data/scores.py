"""Scores of items, such as of a benchmark's questions, from other programs' files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from elo_exp.data import answers, formats, table_files
from elo_exp.data.field_names import CLUSTER_FIELD
from elo_exp.data.formats import Format
from elo_exp.errors import FileError, SettingError, UserError, format_value
from elo_exp.requirements import describe_requirement


@dataclass(kw_only=True, config=ConfigDict(coerce_numbers_to_str=True))
class Score:
    """One score. Several draws of an item, such as epochs, are averaged."""

    dimension: str  # the task and the scorer or metric
    entrant: str
    item: str
    value: float | None  # None: missing
    draw: str = ""
    columns: Any = None  # of the item, one of which may name its cluster
    cluster: str = ""  # items of one are dependent; of "" they are not


def read_scores(
    files: Mapping[Any, Format], *, metric: str | None, cluster: str | None
) -> tuple[list[Score], list[dict[str, Any]]]:
    """Read files of scores, and return the facts of each for the manifest.

    An entrant that has another file with the same dimension gets the file's name, too.
    cluster  the column that names an item's cluster; None: each is its own, and so is one without a value in the
             usual column
    Raises FileError for a file that is not as its format is written.
    """
    scores: list[Score] = []
    facts, entrants = [], set[tuple[str, str]]()
    for path, file_format in files.items():
        assert file_format.scores is not None
        try:
            file_scores = list(file_format.scores(path, metric))
            for row in file_scores if cluster else ():
                if (cluster_name := _find_cluster(row, str(cluster), path)) is not None:
                    row.cluster = cluster_name
                    row.item += f" in {row.cluster}"
        except UserError:
            raise
        except ValidationError as error:
            finding = error.errors()[0]
            name = ".".join(map(str, finding["loc"]))
            raise FileError.bad_file(
                path,
                f"cannot be read as {file_format.name}: {name} must {describe_requirement(None, finding['msg'])}; got "
                f"{format_value(finding['input'])}",
            ) from error
        except Exception as error:
            reason = " ".join(str(error).splitlines()[-3:-1])
            reason = reason or table_files.describe_row_error(error)
            raise FileError.bad_file(
                path, f"cannot be read as {file_format.name} ({reason})"
            ) from error
        pairs = {(row.dimension, row.entrant) for row in file_scores}
        for row in file_scores if pairs & entrants else ():
            row.entrant += f" ({path.name})"
        entrants |= pairs
        values = np.array([row.value for row in file_scores], dtype=np.float64)
        n_used = int(np.isfinite(values).sum())
        if not n_used:
            raise FileError(_explain_no_score(path, file_format, metric))
        rows = {"scores used": n_used, "missing": len(file_scores) - n_used}
        hint = (
            "judge=sonnet would judge its answers"
            if _has_texts(path, file_format)
            else ""
        )
        facts.append(formats.log_facts(path, file_format, rows, hint))
        scores += file_scores
    return scores, facts


def _find_cluster(row: Score, column: str, path: Path) -> str | None:
    """Return the cluster of an item; None if it has none and the column has its usual name, else raise SettingError."""
    value = (row.columns or {}).get(column)
    if value is not None or column == CLUSTER_FIELD:
        return None if value is None else str(value)
    column_names = ", ".join(row.columns or {}) or "none"
    raise SettingError.bad_value(
        "columns.cluster",
        column,
        f"be a column of item {row.item} in {path}, or be left out",
        f"  Its columns: {column_names}",
    )


def _has_texts(path: Path, file_format: Format) -> bool:
    """Whether the answers that were scored are texts, which a judge can compare, and no options."""
    if not file_format.has_answers:
        return False
    try:
        form = answers.recognise(path)
        if form.answer is not None:
            form.answer(next(table_files.read_rows(path))[1])
    except (UserError, answers.MalformedError, *answers.ROW_ERRORS):
        return False
    return True


def _explain_no_score(path: Path, file_format: Format, metric: str | None) -> str:
    """Return the message for a file without a score, and what to do."""
    if metric is not None:
        hint = "Name another with battles_metric, or leave it out."
        return f"{path} has no item with the score {metric}, read as {file_format.name}. {hint}"
    hint = "Give a file with scores"
    if _has_texts(path, file_format):
        hint = "To have its answers judged, add judge=sonnet"
    return f"{path} has no item with a score, read as {file_format.name}. {hint}."
