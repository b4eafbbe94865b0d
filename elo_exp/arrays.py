"""Names for the arrays that travel through the package, and the records made of them."""

import math
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elo_exp.records import Record

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Row = TypeVar("Row", bound=Record)
_ROWS_PER_BLOCK = 16_384


def make_rows(**columns: Any) -> list[dict[str, Any]]:
    """Build one JSON object for each row of the columns; a string is the same in every row.

    NaN becomes None, which JSON has in its place.
    """
    return list(_iterate_rows(columns))


def make_records(kind: type[Row], **columns: Any) -> list[Row]:
    """Build one record for each row of the columns, as `rows`."""
    return [kind(**row) for row in _iterate_rows(columns)]


def _iterate_rows(columns: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows. Only a block of them is held as numbers of Python's at a time."""
    arrays = [
        column if isinstance(column, str) else np.asarray(column)
        for column in columns.values()
    ]
    n = min(len(column) for column in arrays if not isinstance(column, str))
    for start in range(0, n, _ROWS_PER_BLOCK):
        values = [
            repeat(column)
            if isinstance(column, str)
            else _to_list(column[start : start + _ROWS_PER_BLOCK])
            for column in arrays
        ]
        for row in zip(*values, strict=False):
            yield dict(zip(columns, row, strict=True))


def _to_list(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind == "f":
        is_missing, column = np.isnan(column), column.astype(object)
        column[is_missing] = None
    return list(column.tolist())


def make_row(**values: Any) -> dict[str, Any]:
    """Build one JSON object; NaN becomes None."""
    return {name: none_if_nan(value) for name, value in values.items()}


def none_if_nan(value: Any) -> Any:
    """Return a plain number, and None in place of NaN; anything else as it is."""
    number = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(number, float) and math.isnan(number) else number


def count_codes(codes: NDArray[Any], count: NDArray[Any] | None, n: int = 0) -> Index:
    """Add up how many each row stands for, by its code; None: one. At least n numbers."""
    return np.bincount(codes, count, n).astype(np.intp, copy=False)


def fill_nan(values: NDArray[Any], at: Index | Mask, n: int) -> Array:
    """Return n rows of NaN, but for the values at these places or at a mask (n,)."""
    array = np.full((n, *values.shape[1:]), np.nan)
    array[at] = values
    return array


def to_mask(values: Iterable[bool]) -> Mask:
    """Build a mask of truth values."""
    return np.fromiter(values, dtype=np.bool_)
