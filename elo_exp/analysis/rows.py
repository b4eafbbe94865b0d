"""From columns to records, which are the rows of ratings.json."""

from __future__ import annotations

import math
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from elo_exp.records import Record

Row = TypeVar("Row", bound=Record)


def records(kind: type[Row], **columns: Any) -> list[Row]:
    """Build one record for each row of the columns; a string is the same in every row."""
    values = zip(*(_values(column) for column in columns.values()), strict=False)
    return [kind(**dict(zip(columns, row, strict=True))) for row in values]


def _values(column: Any) -> Any:
    return (
        repeat(column)
        if isinstance(column, str)
        else map(known, np.asarray(column).tolist())
    )


def known(value: Any) -> Any:
    """None in place of NaN, which JSON has not."""
    return None if isinstance(value, float) and math.isnan(value) else value
