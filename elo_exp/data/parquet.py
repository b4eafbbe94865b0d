"""Parquet, written by DuckDB from names and the codes that refer to them."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.data.table_files import open_database
from elo_exp.errors import FileError
from elo_exp.files import write_whole

# Names, of one type, and n codes; -1, an empty name and None are null
Column = tuple[Sequence[Any], NDArray[Any]]

_SQL_TYPES = {bool: "boolean", int: "bigint", float: "double", tuple: "integer[]"}


def write_parquet(path: Path, columns: Mapping[str, Column]) -> Path:
    """Write n rows in their order, whole or not at all; columns without a name are text.

    Each name is a text to DuckDB, and the empty one null, so that no type is guessed from the first rows.
    Raises FileError where there is no space.
    """
    import duckdb

    n = max(len(codes) for _, codes in columns.values())
    arrays: dict[str, NDArray[Any]] = {"row": np.zeros(n, dtype=np.int8)}
    select_list, constants = list[str](), list[str]()
    for i, (name, (names, codes)) in enumerate(columns.items()):
        texts = np.array([*map(_to_cell_text, names), ""], dtype=object)
        if codes.min() == codes.max():
            constants.append(texts[codes[0]])
            text = "?"
        else:
            arrays[f"c{i}"], text = texts[codes], f"c{i}"
        kind = _SQL_TYPES.get(type(next(iter(names), "")), "varchar")
        select_list.append(f"nullif({text}, '')::{kind} as \"{name}\"")
    with (
        closing(open_database()) as connection,
        tempfile.TemporaryDirectory() as folder,
    ):
        connection.execute("set threads = 1")  # each holds a part of the rows
        connection.register("rows", arrays)
        file = Path(folder, "rows.parquet")
        quoted_path = str(file).replace("'", "''")
        query = f"select {', '.join(select_list)} from rows"
        target = f"'{quoted_path}' (format parquet, compression zstd)"
        try:
            connection.execute(f"copy ({query}) to {target}", constants)
        except duckdb.IOException as error:
            reason = str(error).partition("\n")[0]
            raise FileError.bad_file(path, f"cannot be written ({reason})") from None
        return write_whole(path, file.read_bytes())


def _to_cell_text(value: Any) -> str:
    """As DuckDB reads it; a lone surrogate is written as its escape, as in any file."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return str([*value])
    return str(value).encode(errors="backslashreplace").decode()


def concat_columns(tables: Sequence[Mapping[str, Column]]) -> dict[str, Column]:
    """Put columns of several tables below each other; what a table lacks is null there."""
    if len(tables) == 1:
        return dict(tables[0])
    all_columns = dict[str, Column]()
    for name in dict.fromkeys(name for table in tables for name in table):
        names, codes = list[Any](), list[NDArray[Any]]()
        for table in tables:
            n = len(next(iter(table.values()))[1])
            table_names, table_codes = table.get(name, ((), np.full(n, -1)))
            codes.append(
                np.where(table_codes < 0, -1, table_codes.astype(np.int64) + len(names))
            )
            names += table_names
        all_columns[name] = names, np.concatenate(codes)
    return all_columns
