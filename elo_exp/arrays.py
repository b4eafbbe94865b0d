"""Names for the arrays that travel through the package, and the records made of them."""

from __future__ import annotations

import math
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elo_exp.records import Record

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Row = TypeVar("Row", bound=Record)


def records(kind: type[Row], **columns: Any) -> list[Row]:
    """Build one record for each row of the columns; a string is the same in every row.

    NaN becomes None, which JSON has in its place.
    """
    values = [
        repeat(column) if isinstance(column, str) else _listed(np.asarray(column))
        for column in columns.values()
    ]
    rows = zip(*values, strict=False)
    return [kind(**dict(zip(columns, row, strict=True))) for row in rows]


def _listed(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind == "f":
        is_missing, column = np.isnan(column), column.astype(object)
        column[is_missing] = None
    return list(column.tolist())


def known(value: float) -> float | None:
    """Return None in place of NaN."""
    return None if math.isnan(value) else value
