"""The kinds of files: labelled pairs, battles, scores of items, answers and prompts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from elo_exp.data import (
    answers,
    column_roles,
    field_names,
    formats,
    labelled_pairs,
    table_files,
)
from elo_exp.data.column_roles import NO_COLUMNS, Columns
from elo_exp.errors import UserError
from elo_exp.files import FOREIGN_FILE_ERRORS

Kind = Literal["labelled pairs", "battles", "scores", "answers", "prompts"]

# No file ends a command before it is known what it is
_READ_ERRORS = (UserError, OSError, *FOREIGN_FILE_ERRORS)


def recognise_kinds(path: Path, columns: Columns = NO_COLUMNS) -> tuple[Kind, ...]:
    """Return the kinds that a file can be read as, the likeliest first. The list may be empty.

    columns  the column of each role that the command names, which the file need not have

    A log with scores and answers is ("scores", "answers"), a table of questions and answers
    ("answers", "prompts"). Whatever the file holds, nothing is raised.
    """
    try:
        if not path.is_file():
            return ()
        present = column_roles.select_present([path], columns)[path]
        if present.keys() & column_roles.ROLES_OF_BATTLES:
            return ("battles",)
        return tuple(kind for kind in _KINDS if _is_kind(kind, path, present))
    except _READ_ERRORS:
        return ()


def find_label_roles(path: Path, columns: Columns = NO_COLUMNS) -> set[str]:
    """Return which of judge_score and human_label a table has a column for; nothing for a file of another kind."""
    try:
        present = column_roles.select_present([path], columns)[path]
        names = {column_roles.simplify_name(key) for key in table_files.read_keys(path)}
        return {
            role
            for role, usual_names in _NAMES_OF_LABELS.items()
            if role in present or names & usual_names
        }
    except _READ_ERRORS:
        return set()


# Names that say nothing else
_NAMES_OF_LABELS = {
    "judge_score": {"judge_score", "judge", "judge_verdict", "judge_label"},
    "human_label": {"oracle_label", "human_label", "human", "human_score"},
}
_KINDS: tuple[Kind, ...] = (
    "labelled pairs",
    "battles",
    "scores",
    "answers",
    "prompts",
)
_NAMES_BY_KIND: Mapping[Kind, Mapping[str, str]] = {
    "labelled pairs": labelled_pairs.COLUMNS,
    "battles": column_roles.BATTLE_COLUMNS,
    "scores": column_roles.SCORE_COLUMNS,
    "answers": column_roles.ANSWER_COLUMNS,
    "prompts": column_roles.PROMPT_COLUMNS,
}


def _is_kind(kind: Kind, path: Path, columns: Columns) -> bool:
    source = column_roles.name_columns(path, columns, _NAMES_BY_KIND[kind])
    shape, keys = table_files.detect_shape(source), table_files.read_keys(source)
    if kind == "labelled pairs":
        is_table = shape in table_files.TABLE_SHAPES
        return is_table and labelled_pairs.has_labels(keys)
    if kind == "answers":
        try:
            answers.recognise(source)
        except UserError:
            return False
        return True
    if kind == "prompts":
        names = {column_roles.simplify_name(key) for key in keys}
        prompt_keys = {*field_names.PROMPT, "turns", "messages", "conversation_a"}
        return shape in table_files.TABLE_SHAPES and bool(names & prompt_keys)
    return any(
        bool(file_format.scores) == (kind == "scores")
        and not file_format.list_faults(source, shape, keys)
        for file_format in formats.formats()
    )
