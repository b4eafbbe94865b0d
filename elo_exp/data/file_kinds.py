"""What a file can be read as: labelled pairs, battles, scores of items, answers or prompts."""

from pathlib import Path
from typing import Literal

from elo_exp.data import (
    answers,
    field_names,
    formats,
    labelled_pairs,
    table_files,
)
from elo_exp.errors import UserError
from elo_exp.files import FOREIGN_FILE_ERRORS

Kind = Literal["labelled pairs", "battles", "scores", "answers", "prompts"]

# No file ends a command before it is known what it is
_READ_ERRORS = (UserError, OSError, *FOREIGN_FILE_ERRORS)


def recognise_kinds(path: Path) -> tuple[Kind, ...]:
    """Return what a file can be read as, what it is meant for first; nothing for a file of no kind.

    A log with scores and answers is ("scores", "answers"), a table of questions and answers
    ("answers", "prompts"). Whatever the file holds, nothing is raised.
    """
    try:
        if not path.is_file():
            return ()
        shape, keys = table_files.detect_shape(path), table_files.read_keys(path)
        return tuple(kind for kind in _KINDS if _is_kind(kind, path, shape, keys))
    except _READ_ERRORS:
        return ()


_KINDS: tuple[Kind, ...] = (
    "labelled pairs",
    "battles",
    "scores",
    "answers",
    "prompts",
)


def _is_kind(kind: Kind, path: Path, shape: str, keys: set[str]) -> bool:
    if kind == "labelled pairs":
        is_table = shape in table_files.TABLE_SHAPES
        return is_table and labelled_pairs.has_labels(keys)
    if kind == "answers":
        return any(
            not answer_format.find_fault(shape, keys)
            for answer_format in answers.formats()
        )
    if kind == "prompts":
        names = {str(key).strip().casefold() for key in keys}
        prompt_keys = {*field_names.PROMPT, "turns", "messages", "conversation_a"}
        return shape in table_files.TABLE_SHAPES and bool(names & prompt_keys)
    return any(
        bool(file_format.scores) == (kind == "scores")
        and not file_format.list_faults(path, shape, keys)
        for file_format in formats.formats()
    )
