"""Files of answers, told apart by their keys: one module a format.

A module of this folder has FORMATS, a tuple of Format. The format with the most required keys that
a file has is the file's; plain rows, which require none by name, come last. What an answer is of
each is said in its module, with the source.
"""

import contextlib
import functools
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elo_exp.data import column_roles, field_names, table_files, thoughts
from elo_exp.data.recorded_work import Messages
from elo_exp.data.table_files import NamedTable, Row, Source
from elo_exp.errors import FileError, UserError, format_value

_MAX_KEYS_IN_MESSAGE = 20
_MAX_KEY_CHARS = 80
# The format of a table with a column of texts for each entrant
WIDE_TABLE = "a wide table of answers"
# Of an id or a model's name
_MAX_NAME_CHARS = 200
# Errors that a malformed row raises
ROW_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


class MalformedError(Exception):
    """Says what is wrong with a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer as a file has it.

    place      "file:line"
    text       None: the request failed, and there is no answer. An empty text is an answer
    prompt     the text that was answered; None where the file names it by `id` alone
    asked      what was answered, where it is more than a text; `prompt` is then its transcript
    messages   what followed, where it is more than a text; `text` is then the final answer
    later      the answers to later turns, of a file that does not hold these; None: failed
    draw_idx   which answer to the prompt it is
    entrant    the file's own name of who answered
    question   what the prompt was made of, where `id` is that of its content: programs that put a
               question into each model's own template ask one question under several texts
    reference  the right answer, where the file has one
    source     a group of prompts
    is_cut     it ended at its limit of tokens
    is_failed  there is no text, and the file says that the request failed: an error, a void sample
    notes      what was left aside, to be counted and said: "first turn"
    recorded   what else its Response has: of an answer of a run of ours, or of a trajectory
    columns    short cells of its row, by their names in small letters; of a log those that its metadata has. One of
               them may name the cluster of the prompt
    """

    location: str
    text: str | None
    prompt: str | None = None
    question_messages: Messages = ()
    messages: Messages = ()
    later_turns: Sequence[str | None] = ()
    draw_idx: int = 0
    id: str | None = None
    question: str | None = None
    entrant: str | None = None
    reference: str | None = None
    source: str | None = None
    is_cut: bool = False
    is_failed: bool = False
    notes: Sequence[str] = ()
    recorded: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file that is recognised by its keys.

    required   keys of every row; of an object, or a zip file, as in data.formats
    shapes     of table_files.shape
    answer     the fields of an Answer from a row. Raises MalformedError, or as Python does for what
               is not there
    answers    replaces `answer` for a file that is not read row by row: yields each Answer of a path,
               or of a named table if the format is a table. Raises the same errors
    lacks      of a format whose keys have several names: what is lacking, in words, or ""
    find_fault_of_rows  of a format that is told by its rows: what they lack, in words, or ""
    in_folder  the file does not name who answered: its folder does
    """

    name: str
    required: Sequence[str] = ()
    shapes: Sequence[str] = table_files.TABLE_SHAPES
    answer: Callable[[Row], Mapping[str, Any]] | None = None
    answers: Callable[[Any], Iterator[Answer]] | None = None
    find_lack: Callable[[set[str]], str] | None = None
    find_fault_of_rows: Callable[[Source], str] | None = None
    in_folder: bool = False

    def find_fault(self, path: Source, shape: str, keys: set[str]) -> str:
        """Return what a file lacks to be of this format, in words; "" where it is of it."""
        missing_keys = [key for key in self.required if key not in keys]
        if missing_keys:
            return f"lacks {', '.join(missing_keys)}"
        is_object = shape == "lines" and "object" in self.shapes  # of one line, perhaps
        if shape not in self.shapes and not is_object:
            return f"is not {' or '.join(self.shapes)}"
        fault = self.find_lack(keys) if self.find_lack else ""
        if not fault and self.find_fault_of_rows:
            return self.find_fault_of_rows(path)
        return fault


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return every format, those with most required keys first."""
    modules = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    ]
    all_formats = [file_format for module in modules for file_format in module.FORMATS]
    return tuple(
        sorted(all_formats, key=lambda file_format: -len(file_format.required))
    )


def recognise(path: Source) -> Format:
    """Return the format of a file of answers. A table whose columns the command names has plain rows.

    Raises FileError for a file of no format, with its columns and the setting that names one.
    """
    shape, keys = table_files.detect_shape(path), table_files.read_keys(path)
    is_named = isinstance(path, NamedTable)
    for file_format in formats():
        if is_named and file_format.required:
            continue
        if not file_format.find_fault(path, shape, keys):
            return file_format
    if isinstance(path, Path):
        table_files.refuse_empty(path)
    raise _build_no_format_error(path, shape, keys)


def _build_no_format_error(path: Source, shape: str, keys: set[str]) -> FileError:
    """Return the error for a file of no format: which columns lack, and which program's format it nearly has."""
    programs = _describe_nearest(path, shape, keys)
    if shape not in table_files.TABLE_SHAPES or not keys:
        names = sorted(str(key)[:_MAX_KEY_CHARS] for key in keys)
        return FileError.bad_file(
            path,
            "holds no answers that can be read",
            "docs/formats.md lists what can be read.",
            f"  The file ({shape}) has {', '.join(names[:_MAX_KEYS_IN_MESSAGE]) or 'no keys'}.",
            *programs,
        )
    lacking = []
    plain_names = {column_roles.simplify_name(key) for key in keys}
    if plain_names.isdisjoint((*field_names.PROMPT, *field_names.ID)):
        lacking = ["prompt"]
    if plain_names.isdisjoint(field_names.ANSWER):
        lacking.append("answer")
    return column_roles.build_no_roles_error(path, lacking, *programs)


def _describe_nearest(path: Source, shape: str, keys: set[str]) -> list[str]:
    """Return a line on the program whose own keys the file resembles most. Empty if it has no such key."""
    nearest: tuple[float, str] = (0.0, "")
    for file_format in formats():
        own_keys = [*filter(column_roles.is_own_key, file_format.required)]
        if keys.isdisjoint(own_keys):
            continue
        n_present = sum(key in keys for key in file_format.required)
        fault = file_format.find_fault(path, shape, keys)
        line = f"  It is not {file_format.name}: it {fault}."
        nearest = max(nearest, (n_present / len(file_format.required), line))
    return [nearest[1]] if nearest[0] else []


def read_answers(path: Source) -> tuple[Format, list[Answer]]:
    """Return a file's format and its answers, in the order of the file.

    Raises FileError for a file of no format, and for the first row that is not as its format says.
    """
    file_format = recognise(path)
    answers: list[Answer] = []
    try:
        answers.extend(
            (file_format.answers or functools.partial(_read_rows, file_format))(path)
        )
    except UserError:
        raise
    except MalformedError as error:
        raise FileError(f"{path}: {error}") from None
    except Exception as error:  # of a zip file, or an object, of another make
        raise FileError.bad_file(
            path,
            f"cannot be read as {file_format.name}: {table_files.describe_row_error(error)}",
        ) from error
    if not answers:
        raise FileError.bad_file(
            path, "holds no answers", "It must have at least one row."
        )
    for answer in answers:
        _check_answer(answer)
    return file_format, _split_off_thoughts(answers)


def _read_rows(file_format: Format, path: Source) -> Iterator[Answer]:
    assert file_format.answer is not None
    for location, row in table_files.read_rows(path):
        missing_keys = [key for key in file_format.required if key not in row]
        if missing_keys:
            raise FileError.bad_file(
                location,
                f"lacks {', '.join(missing_keys)}, which other rows have",
                f"Each row must be a row of {file_format.name}.",
            )
        with convert_row_errors(location, file_format.name):
            fields = file_format.answer(row)
        doc = row.get("doc")
        inner = doc if isinstance(doc, Mapping) else {}
        yield Answer(location=location, columns=short_cells({**inner, **row}), **fields)


def short_cells(row: Mapping[Any, Any]) -> dict[str, str]:
    """Return the cells of a row that may be names, as texts, by their columns in small letters."""
    return {
        str(name).strip().casefold(): cell_text
        for name, value in row.items()
        if isinstance(value, str | int | float)
        and (cell_text := table_files.to_text(value))
        and len(cell_text) <= _MAX_NAME_CHARS
    }


@contextlib.contextmanager
def convert_row_errors(location: str, name: str) -> Iterator[None]:
    """Turn what reading a row raises into a FileError that names the row's place."""
    try:
        yield
    except MalformedError as error:
        raise FileError(f"{location}: {error}") from None
    except ROW_ERRORS as error:
        raise FileError.bad_file(
            location,
            f"is not a row of {name}: {table_files.describe_row_error(error)}",
        ) from None


def _split_off_thoughts(answers: Sequence[Answer]) -> list[Answer]:
    """Split off the thoughts that answers begin with, as entrants do: a judge compares answers.

    A closing tag alone ends a thought where most answers of the file have one: a template has opened
    it. In another file it is a word of the answer.
    """
    texts = [answer.text or "" for answer in answers]
    split = [thoughts.split_thought(text) for text in texts]
    has_opening_tag = [thoughts.OPEN_AT_START.match(text) is not None for text in texts]
    has_thought = [about["thought"] != "none" for _, about in split]
    n_alone = sum(has_thought) - sum(has_opening_tag)
    return [
        replace(
            answer,
            text=answer_text,
            is_cut=answer.is_cut or diagnostics["thought"] == "unclosed",
            notes=(*answer.notes, "thought split off"),
        )
        if is_thought and (is_opened or 2 * n_alone > len(answers))
        else answer
        for answer, (answer_text, diagnostics), is_thought, is_opened in zip(
            answers, split, has_thought, has_opening_tag, strict=True
        )
    ]


def _check_answer(answer: Answer) -> None:
    """Raise FileError for what could not be found again, or not be sent to a judge."""
    if answer.prompt is None and answer.id is None:
        raise FileError.bad_file(
            answer.location, "has neither a prompt nor an id", "Add one of them."
        )
    if answer.prompt is not None and not answer.prompt.strip():
        raise FileError.bad_file(
            answer.location, "has an empty prompt", "Write its text."
        )
    texts = (answer.text, answer.prompt, answer.question, answer.reference, answer.id)
    messages = [
        message.to_dict() for message in (*answer.question_messages, *answer.messages)
    ]
    try:
        json.dumps([*texts, answer.entrant, messages], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise FileError.bad_file(
            answer.location,
            "holds half of a character, such as \\ud83d",
            "Write the whole character.",
        ) from None


# What the formats share


def require_text(value: Any, label: str) -> str:
    """Return a text. Raises MalformedError for anything else."""
    if not isinstance(value, str):
        raise MalformedError(f"{label} must be text; got {format_value(value)}.")
    return value


def require_list(value: Any, label: str) -> list[Any]:
    """Return a list. Raises MalformedError for anything else, a text among it, and for an empty one."""
    if not isinstance(value, list) or not value:
        raise MalformedError(
            f"{label} must be a list that is not empty; got {format_value(value)}."
        )
    return value


def message_text(content: Any, label: str) -> str:
    """Return the text of a message: a text, or the texts of its parts, but for those of a thought.

    Raises MalformedError for parts of other kinds, such as pictures.
    """
    if not isinstance(content, list):
        return require_text(content, label)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "output_text", "input_text"):
            texts.append(require_text(part["text"], label))
        elif kind != "reasoning":
            raise MalformedError(
                f"{label} must hold only text; got {format_value(part)}."
            )
    return "".join(texts)


def parse_name(value: Any, label: str) -> str | None:
    """Return an id or a model's name as text, None where it is missing.

    Raises MalformedError for what is neither text nor number.
    """
    if isinstance(value, list | dict | bool):
        raise MalformedError(f"{label} must be a name; got {format_value(value)}.")
    name_text = (table_files.to_text(value) or "").strip()
    if len(name_text) > _MAX_NAME_CHARS or not name_text.isprintable():
        raise MalformedError(
            f"{label} must be a name of at most {_MAX_NAME_CHARS} characters, none of them a control character; got "
            f"{format_value(name_text)}."
        )
    return name_text or None


def parse_reference(value: Any) -> str | None:
    """Return a reference as text; None for none, or for several."""
    if isinstance(value, list) and len(value) == 1:
        return parse_reference(value[0])
    if isinstance(value, list | dict | bool):
        return None
    reference = table_files.to_text(value)
    return reference if reference and reference.strip() else None
