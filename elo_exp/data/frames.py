"""Tables in memory: frames of pandas and polars, tables of pyarrow, columns by name, and rows."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.data import battle_columns, battle_files, parquet, table_files
from elo_exp.data.battles import Battles
from elo_exp.data.table_files import Frame
from elo_exp.errors import FileError, UserError
from elo_exp.files import write_jsonl

logger = logging.getLogger(__name__)

# Rows from which on a table is written as parquet; of fewer, importing DuckDB takes longer
MIN_PARQUET_ROWS = 20_000
_MAX_INTEGER = 2**63 - 1
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_JSON_TYPES = frozenset({str, int, bool, type(None)})


def read_battles(
    frame: Any,
    *,
    columns: Mapping[str, str | None] | None = None,
    filters: Mapping[str, str | None] | None = None,
) -> Battles:
    """Return the battles of a table in memory, which are those of its file.

    frame    of pandas, polars or pyarrow; columns by name; or rows
    columns  our field -> the table's column, where it has another name
    filters  our field -> the value to keep

    Raises FileError, which calls a row "frame: row 17", for one that is no battle.
    """
    usual = {name: name for name in battle_columns.FIELDS if name != "score"}
    column_of = {"score": None, **usual, **(columns or {})}
    table = to_frame(
        frame, "frame", ids=[column_of[name] for name in battle_columns.ID_COLUMNS]
    )
    rows_read, _ = battle_files.read(table, columns=column_of, filters=filters or {})
    return rows_read


def to_frame(
    table: Any, name: str, ids: Collection[str | None] = battle_columns.ID_COLUMNS
) -> Frame:
    """Return a table as columns of plain values, what other libraries call missing as None.

    ids  columns that name something, which pandas turns into floats where one of them is missing:
         that is warned of

    Raises FileError for what is no table, and for one without rows.
    """
    if hasattr(table, "to_dicts"):  # polars
        columns = table.to_dict(as_series=False)
    elif hasattr(table, "to_pydict"):  # pyarrow
        if len({*table.column_names}) < len(table.column_names):
            raise _build_duplicate_error(table.column_names, name)
        columns = table.to_pydict()
    elif hasattr(table, "iloc"):  # pandas
        names = [*map(str, table.columns)]
        if len({*names}) < len(names):
            raise _build_duplicate_error(names, name)
        columns = {column: table.iloc[:, n].tolist() for n, column in enumerate(names)}
        for column in filter(columns.__contains__, ids):
            _warn_of_gaps(columns[str(column)], name, str(column))
    elif isinstance(table, Mapping):
        columns = {key: _to_list(values) for key, values in table.items()}
    else:
        row_list = to_rows(table, name)
        keys = dict.fromkeys(key for row in row_list for key in row)
        columns = {key: [row.get(key) for row in row_list] for key in keys}
    sizes = {len(values) for values in columns.values()}
    if len(sizes) > 1:
        raise FileError(
            f"{name} has columns of different lengths: {' and '.join(map(str, sorted(sizes)))} rows. All must have the "
            "same number of rows."
        )
    if not any(sizes):
        raise FileError(f"{name} is a table without rows.")
    return Frame(
        name, {str(key): _to_plain_list(values) for key, values in columns.items()}
    )


def to_rows(table: Any, name: str) -> list[dict[str, Any]]:
    """Return rows with plain values. Raises FileError for what is none, and where there are none."""
    row_list = list(table) if isinstance(table, Iterable) else [table]
    for number, row in enumerate(row_list, start=1):
        if not isinstance(row, Mapping):
            raise FileError(
                f"{name} must be a table of pandas, polars or pyarrow, rows as dictionaries, or files; row {number} is "
                f"{row!r:.60}."
            )
    if not row_list:
        raise FileError(f"{name} is a table without rows.")
    return [to_plain(row) for row in row_list]


def write_table(table: Any, name: str, path: Path) -> Path:
    """Write a table beside `path`, as parquet where it is large and plain, else as JSON lines; return the file."""
    if isinstance(table, list | tuple) or not hasattr(table, "__len__"):
        file = path.with_name(f"{path.name}.jsonl")
        return write_jsonl(file, to_rows(table, name), keeps_secrets=True)
    frame = to_frame(table, name)
    target = path.with_name(f"{path.name}.parquet")
    if len(frame) >= MIN_PARQUET_ROWS:
        columns = {
            name: _encode_column(values) for name, values in frame.columns.items()
        }
        typed_columns = {
            name: column for name, column in columns.items() if column is not None
        }
        if len({name.casefold() for name in typed_columns if '"' not in name}) == len(
            columns
        ):
            return parquet.write_parquet(target, typed_columns)
    all_rows = (row for _, row in table_files.read_rows(frame))
    file = path.with_name(f"{path.name}.jsonl")
    return write_jsonl(file, all_rows, keeps_secrets=True)


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN and what other libraries call missing as None, arrays as lists."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy's
        return to_plain(value.tolist())
    return _to_plain_scalar(value)


def _to_plain_scalar(value: Any) -> Any:
    is_nan = isinstance(value, float) and math.isnan(value)
    if is_nan or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _to_plain_list(values: list[Any]) -> list[Any]:
    return (
        values
        if _JSON_TYPES.issuperset(map(type, values))
        else list(map(to_plain, values))
    )


def _encode_column(values: Sequence[Any]) -> parquet.Column | None:
    """Return distinct values and codes; None for a column that parquet would not return unchanged."""
    types = {*map(type, values)} - {type(None)}
    number = table_files.CodeTable()
    if len(types) > 1 or not types <= {str, int, float, bool}:
        return None
    codes = np.array([-1 if value is None else number[value] for value in values])
    if int in types and max(map(abs, number)) > _MAX_INTEGER:
        return None
    if str in types and any(map(_SURROGATE.search, number)):
        return None
    return list(number), codes


def _to_list(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _warn_of_gaps(values: list[Any], name: str, column: str) -> None:
    """Warn of ids that pandas made floats because of a gap: '1.0' is another name than '1'."""
    if {*map(type, values)} != {float}:
        return
    numbers = np.array(values)
    gaps = np.isnan(numbers)
    if gaps.any() and (numbers[~gaps] % 1 == 0).all():
        logger.warning(
            "%s: the column %r holds floats, because a value is missing: 1 is read as '1.0'. For "
            "whole numbers convert it: frame[%r].astype('Int64').",
            *(name, column, column),
        )


def _build_duplicate_error(names: list[str], name: str) -> UserError:
    duplicate = next(column for column in names if names.count(column) > 1)
    return FileError(
        f"{name} has the column {duplicate} twice. Each name must stand once."
    )
