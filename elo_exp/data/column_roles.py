"""Columns by their roles: which column of a file holds the prompt, the answer or the score, as the setting `columns` says.

A file whose columns the command names is read as a table under our names (`NamedTable`), so that no reader needs to know
of the setting. Files of battles alone have a mapping of their own, because their columns are read without their rows.
"""

import difflib
import itertools
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elo_exp.data import field_names, table_files
from elo_exp.data.table_files import Melted, NamedTable, Source
from elo_exp.errors import FileError, SettingError
from elo_exp.formatting import join_names

# The value of the setting: the column of a role; several columns, of which each is an entrant; None: not named
Columns = Mapping[str, str | Sequence[str] | None]
NO_COLUMNS: Columns = MappingProxyType({})
# Usual names of the columns of each role, the likeliest first. A refusal suggests columns by them
NAMES_BY_ROLE: Mapping[str, Sequence[str]] = {
    "item": (
        *("item", "item_id", "sample_id", "question_id", "prompt_id", "task_id"),
        *("instance_id", "example_id", "doc_id", "qid", "uid", "id"),
    ),
    "prompt": (*field_names.PROMPT, "user_input", "query", "user_message"),
    "entrant": (
        *("entrant", "entrant_id", "model", "model_id", "model_name", "system"),
        *("agent", "generator", "variant", "configuration", "checkpoint", "policy"),
    ),
    "answer": (*field_names.ANSWER, "reply", "prediction"),
    "reference": (*field_names.REFERENCE, "ground_truth", "expected"),
    "score": (
        *("score", "value", "reward", "accuracy", "acc", "correct", "is_correct"),
        *("passed", "success", "resolved", "grade", "points"),
    ),
    "draw": ("draw", "draw_idx", "epoch", "sample_idx", "trial", "attempt", "repeat"),
    "cluster": (field_names.CLUSTER_FIELD,),
    "judge": ("judge_model", "judge", "annotator"),
    "verdict": ("winner", "verdict", "preference", "preferred", "vote", "choice"),
    "share": ("share", "score", "preference", "p_a", "probability"),
    "judge_score": (
        "judge_score",
        "judge",
        "judge_verdict",
        "judge_label",
        "verdict",
        "score",
    ),
    "human_label": (
        "oracle_label",
        "human_label",
        "human",
        "human_score",
        "label",
        "gold_label",
    ),
    "model_a": ("model_a", "model_1", "left", "left_model", "system_a", "entrant_a"),
    "model_b": ("model_b", "model_2", "right", "right_model", "system_b", "entrant_b"),
    "answer_a": ("response_a", "answer_a", "response_A", "output_1"),
    "answer_b": ("response_b", "answer_b", "response_B", "output_2"),
}
# Our name of each role, by what a file holds
ANSWER_COLUMNS = {
    "item": "prompt_id",
    "prompt": "prompt",
    "entrant": "entrant_id",
    "answer": "response",
    "reference": "reference",
    "draw": "draw",
}
PROMPT_COLUMNS = {"item": "prompt_id", "prompt": "prompt", "reference": "reference"}
SCORE_COLUMNS = {
    "item": "item",
    "entrant": "entrant",
    "score": "score",
    "draw": "draw",
}
BATTLE_COLUMNS = {
    "item": "question_id",
    "judge": "judge_model",
    "verdict": "winner",
    "share": "score",
    "cluster": "cluster",
    "model_a": "model_a",
    "model_b": "model_b",
}
# The columns of the texts in rows of battles
TEXT_COLUMNS = {"prompt": "prompt", "answer_a": "response_a", "answer_b": "response_b"}
# A file with a column of one of them holds battles
ROLES_OF_BATTLES = frozenset({"model_a", "model_b", "verdict", "share"})
# Roles of which a list of columns names one entrant each
_ROLES_OF_WIDE_TABLES = ("answer", "score")
# Names that no program has for itself
_GENERAL_NAMES = frozenset(
    {
        *(name for names in NAMES_BY_ROLE.values() for name in names),
        *field_names.SOURCE,
        *("messages", "turn", "error", "finish_reason"),
        *("dimension", "rubric", "metric", "criterion", "scorer", "task"),
    }
)
# Texts that are nobody's answers
_NAMES_OF_OTHER_TEXTS = (
    *("subject", "topic", "tags", "context", "contexts", "language", "date"),
    *("timestamp", "note", "notes", "comment", "comments", "url", "expected_behavior"),
)
_NOUN_BY_ROLE = {
    **{"model_a": "model A", "model_b": "model B"},
    **{"answer_a": "answer A", "answer_b": "answer B"},
    **{"judge_score": "the judge's score", "human_label": "the human label"},
    "item": "the id of the item",
}
# Columns that are read before a prompt of another name
_OTHER_NAMES_OF_PROMPTS = ("turns", "messages")
_MIN_SIMILARITY = 0.75
_N_ROWS_LOOKED_AT = 1000
_MAX_COLUMNS_IN_MESSAGE = 20
_MAX_NAME_CHARS = 80


def simplify_name(name: object) -> str:
    """Return the name of a column by which it is found: in small letters, without spaces around it."""
    return str(name).strip().casefold().replace(" ", "_")


def list_named_roles(columns: Columns) -> list[str]:
    """Return the roles whose column the command names."""
    return [role for role, column in columns.items() if column not in (None, [])]


def refuse_unknown_role(role: str) -> None:
    """Raise SettingError for a role that no experiment has."""
    if role not in NAMES_BY_ROLE:
        near = difflib.get_close_matches(role, NAMES_BY_ROLE, n=1)
        hint = f"Did you mean columns.{near[0]}? " if near else ""
        raise SettingError(
            f"columns.{role} names no role of a column. {hint}The roles are "
            f"{join_names([*NAMES_BY_ROLE], len(NAMES_BY_ROLE))}."
        )


def refuse_unused_roles(
    columns: Columns, roles: Iterable[str], experiment: str
) -> None:
    """Raise SettingError for a role that an experiment does not use, or that cannot be several columns."""
    used_roles = list(dict.fromkeys(roles))
    for role in list_named_roles(columns):
        if role not in used_roles:
            raise SettingError(
                f"columns.{role} has no effect with experiment={experiment}. Its columns are "
                f"{join_names(used_roles, len(used_roles))}."
            )
        if not isinstance(columns[role], str) and role not in _ROLES_OF_WIDE_TABLES:
            raise SettingError.bad_value(
                f"columns.{role}", columns[role], "name one column"
            )


def parse_columns_setting(value: Any) -> dict[str, str | Sequence[str]]:
    """Return the column of each role that the setting `columns` names. Raises SettingError for another value."""
    columns = dict[str, str | Sequence[str]]()
    for role, column in (value or {}).items():
        names = column if isinstance(column, list | tuple) else [column]
        if any(isinstance(name, Mapping | list | tuple | bool) for name in names):
            raise SettingError.bad_value(
                f"columns.{role}", column, "be the name of a column"
            )
        if isinstance(column, list | tuple):
            columns |= {role: [str(name) for name in column]} if column else {}
        elif column is not None:
            columns[role] = str(column)
    return columns


def refuse_absent_columns(paths: Sequence[Path], columns: Columns) -> None:
    """Raise FileError for a column that no file has. A file without it may have the role under a usual name."""
    files = [path for path in paths if path.is_file()]
    present = select_present(files, columns)
    for role in list_named_roles(columns):
        if files and not any(role in named for named in present.values()):
            raise build_no_column_error(files[0], role, columns[role])


def select_present(
    paths: Sequence[Path], columns: Columns
) -> dict[Path, dict[str, str | Sequence[str]]]:
    """Return for each file the named columns that it has, as the file spells them.

    Raises FileError for a file that has some of the columns of a list, and others not.
    """
    return {path: _find_present(path, columns) for path in paths if path.is_file()}


def _find_present(path: Path, columns: Columns) -> dict[str, str | Sequence[str]]:
    if not (roles := list_named_roles(columns)):
        return {}
    spelling = {simplify_name(key): str(key) for key in table_files.read_keys(path)}
    present = dict[str, str | Sequence[str]]()
    for role in roles:
        column = columns[role]
        names = [column] if isinstance(column, str) else list(column or ())
        keys = [spelling.get(simplify_name(name)) for name in names]
        file_columns = [key for key in keys if key is not None]
        if len(file_columns) == len(names):
            present[role] = file_columns[0] if isinstance(column, str) else file_columns
        elif file_columns:
            missing = next(n for n, k in zip(names, keys, strict=True) if k is None)
            raise build_no_column_error(path, role, missing)
    return present


def name_columns(path: Path, columns: Columns, our_names: Mapping[str, str]) -> Source:
    """Return a file as a table under our names; the file as it is if no role of ours is named.

    columns  the file has all of them (`select_present`)

    Raises FileError for a file that is no table.
    """
    roles = [role for role in list_named_roles(columns) if role in our_names]
    if not roles:
        return path
    if (shape := table_files.detect_shape(path)) not in table_files.TABLE_SHAPES:
        raise FileError.bad_file(
            path,
            f"is not a table but {shape}, so that columns.{roles[0]} has no effect on it",
            "Leave the setting out.",
        )
    names, melted = list[tuple[str, str]](), None
    for role in roles:
        column = columns[role]
        if isinstance(column, str):
            names.append((our_names[role], column))
        else:
            melted = Melted(
                header=our_names["entrant"],
                cell=our_names[role],
                columns=tuple(column or ()),
            )
    named = {column for _, column in names}
    other_columns = {
        columns[role]
        for role in list_named_roles(columns)
        if role not in roles and isinstance(columns[role], str)
    }
    hidden_names = {
        simplify_name(name)
        for role in [*roles, *(["entrant"] if melted else [])]
        for name in (*NAMES_BY_ROLE[role], our_names[role])
    }
    if "prompt" in roles:
        hidden_names |= {*_OTHER_NAMES_OF_PROMPTS}
    hidden = {
        str(key)
        for key in table_files.read_keys(path)
        if simplify_name(key) in hidden_names
    }
    return NamedTable(
        path=path,
        names=tuple(names),
        hidden=frozenset((hidden | named) - other_columns),
        melted=melted,
    )


def name_usual_columns(
    path: Path, columns: Columns, our_names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the column of each role: the one that the command names, else one with a usual name that is free."""
    named: dict[str, Any] = {
        role: column for role, column in columns.items() if role in our_names
    }
    keys = {simplify_name(key): str(key) for key in table_files.read_keys(path)}
    for role, our_name in our_names.items():
        usual_names = [our_name, *NAMES_BY_ROLE[role]]
        free_names = (
            keys[name]
            for name in map(simplify_name, usual_names)
            if name in keys and keys[name] not in named.values()
        )
        if role not in named and (column := next(free_names, None)) is not None:
            named[role] = column
    return named


# Refusals


def build_no_column_error(
    path: Source, role: str, column: str | Sequence[str] | None
) -> FileError:
    """Return the error for a column that the command names and the file does not have."""
    names = [column] if isinstance(column, str) else list(column or ())
    keys = [str(key) for key in table_files.read_keys(path)]
    absent = next((name for name in names if name not in keys), "")
    near = difflib.get_close_matches(absent, keys, n=1, cutoff=0.6)
    value = near[0] if near else "COLUMN"
    if not isinstance(column, str):
        value = "[COLUMN,COLUMN]"
    hint = f"Did you mean {near[0]}?" if near else "Name one of its columns:"
    return FileError.bad_file(
        path,
        f"has no column {absent}",
        hint,
        *format_settings({role: value}),
        describe_columns(path),
    )


def build_no_roles_error(path: Source, roles: Sequence[str], *below: str) -> FileError:
    """Return the error for a file that lacks columns: of each role the nearest column, and the setting to paste."""
    nouns = [_NOUN_BY_ROLE.get(role, f"the {role}") for role in roles]
    columns: dict[str, str | Sequence[str] | None] = {
        role: find_likely_column(path, role) for role in roles
    }
    likely = [str(column) for column in columns.values() if column is not None]
    hint = "Name its column:" if len(roles) == 1 else "Name their columns:"
    if likely:
        hint = f"Did you mean {join_names(likely)}?"
    if likely and len(roles) == 1:
        hint = f"Did you mean the column {likely[0]} as {nouns[0]}?"
    if "answer" in columns and columns["answer"] is None:
        if len(texts := [*find_text_columns(path)]) > 1:
            hint = "If each column of texts is an entrant, write:"
            columns["answer"] = texts
        elif texts:
            columns["answer"] = texts[0]
    return FileError.bad_file(
        path,
        f"has no column for {join_names(nouns)}",
        hint,
        *format_settings(
            {role: column or "COLUMN" for role, column in columns.items()}
        ),
        describe_columns(path),
        *below,
    )


def find_text_columns(path: Source) -> dict[str, list[str]]:
    """Return the columns of texts whose names say nothing about what they hold, with their texts."""
    cells_by_column = dict[str, list[Any]]()
    for _, row in itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT):
        for name, value in row.items():
            cells = cells_by_column.setdefault(str(name), [])
            if table_files.to_text(value) is not None:
                cells.append(value)
    return {
        name: cells
        for name, cells in cells_by_column.items()
        if cells
        and is_own_key(name)
        and simplify_name(name) not in _NAMES_OF_OTHER_TEXTS
        and all(isinstance(cell, str) and not is_number(cell) for cell in cells)
    }


def is_own_key(key: str) -> bool:
    """Whether a key tells which program wrote a file, as a name in general use does not."""
    return simplify_name(key) not in _GENERAL_NAMES


def find_likely_column(path: Source, role: str) -> str | None:
    """Return the column that a role is probably in: one of another usual name, or of nearly one."""
    keys = {simplify_name(key): str(key) for key in table_files.read_keys(path)}
    usual_names = [simplify_name(name) for name in NAMES_BY_ROLE[role]]
    for name in usual_names:
        if name in keys:
            return keys[name]
    names_of_other_roles = {
        simplify_name(name)
        for other_role, names in NAMES_BY_ROLE.items()
        for name in names
        if other_role != role
    }
    similarities = [
        (difflib.SequenceMatcher(None, key, name).ratio(), column)
        for key, column in keys.items()
        for name in usual_names
        if key not in names_of_other_roles
    ]
    similarity, column = max(similarities, default=(0.0, ""))
    return column if similarity >= _MIN_SIMILARITY else None


def format_settings(columns: Columns) -> list[str]:
    """Return the words that name columns, on a line to paste."""
    words = []
    for role, column in columns.items():
        value = column if isinstance(column, str) else f"[{','.join(column or ())}]"
        words.append(shlex.quote(f"columns.{role}={value}"))
    return [f"  {' '.join(words)}"]


def describe_columns(path: Source) -> str:
    """Return a line with the columns of a file and what each holds: question (30 texts), score (12 numbers)."""
    path = path.path if isinstance(path, NamedTable) else path
    counts = dict[str, Counter[str]]()
    for _, row in itertools.islice(table_files.read_rows(path), _N_ROWS_LOOKED_AT):
        for name, value in row.items():
            counts.setdefault(str(name), Counter())[_describe_cell(value)] += 1
    columns = [
        f"{name[:_MAX_NAME_CHARS]} ({', '.join(_format_count(n, kind) for kind, n in kinds.most_common())})"
        for name, kinds in counts.items()
    ]
    if not columns:
        return "  It has no columns."
    more = f" and {len(columns) - _MAX_COLUMNS_IN_MESSAGE} more"
    more = more if len(columns) > _MAX_COLUMNS_IN_MESSAGE else ""
    return f"  Its columns: {', '.join(columns[:_MAX_COLUMNS_IN_MESSAGE])}{more}."


def _format_count(n: int, kind: str) -> str:
    return f"{n:,} {kind.removesuffix('s') if n == 1 else kind}"


def _describe_cell(value: Any) -> str:
    if table_files.to_text(value) is None:
        return "empty"
    if isinstance(value, list | tuple):
        return "lists"
    if isinstance(value, Mapping):
        return "objects"
    return "numbers" if is_number(value) else "texts"


def is_number(value: Any) -> bool:
    """Whether a cell is a number, or the text of one."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
