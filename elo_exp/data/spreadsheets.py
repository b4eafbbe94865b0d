"""Spreadsheets of Excel and LibreOffice as tables: the first sheet that has rows."""

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from elo_exp import files
from elo_exp.errors import FileError

logger = logging.getLogger(__name__)

_ZIP_START, _OLD_EXCEL_START = b"PK\3\4", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# What a zip file holds if it is a spreadsheet of Excel or of LibreOffice
_WORKBOOK_NAMES = {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}


def is_spreadsheet(path: Path, head: bytes) -> bool:
    """Return whether a file is a spreadsheet; `head` is its beginning."""
    if head.startswith(_OLD_EXCEL_START):
        return True
    if not head.startswith(_ZIP_START):
        return False
    try:
        with ZipFile(path) as archive:
            return bool(_WORKBOOK_NAMES & {*archive.namelist()})
    except (BadZipFile, NotImplementedError, OSError, ValueError):
        return False


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the first sheet that has rows, with their places. Raises FileError.

    The first row that is not empty names the columns.
    """
    name, n_filled, cells = _read_first_sheet(path)
    if n_filled > 1:
        logger.warning(
            "warning: %s: only the sheet %s was read; the file has %d sheets with rows.",
            path,
            name,
            n_filled,
        )
    numbered = [
        (n, row)
        for n, row in enumerate(cells, start=1)
        if any(_is_filled(cell) for cell in row)
    ]
    if not numbered:
        raise FileError.bad_file(path, "has no rows")
    (header_number, header), *rows = numbered
    columns = [str(_read_cell(cell)).strip() for cell in header]
    location = f"{path}: sheet {name}, row"
    named_columns = [column for column in columns if column]
    for column in named_columns:
        if named_columns.count(column) > 1:
            raise FileError.bad_file(
                f"{location} {header_number}",
                f"has the column {column} twice",
                "Each name must stand once.",
            )
    for number, row in rows:
        extra_cells = [
            cell for column, cell in zip(columns, row, strict=False) if not column
        ]
        if any(map(_is_filled, extra_cells)):
            raise FileError.bad_file(
                f"{location} {number}",
                "has a value in a column without a name",
                f"Name the column in row {header_number}.",
            )
        yield (
            f"{location} {number}",
            {
                column: _read_cell(cell)
                for column, cell in zip(columns, row, strict=False)
                if column
            },
        )


def _read_first_sheet(path: Path) -> tuple[str, int, list[list[Any]]]:
    """Return the name and the cells of the first sheet that has rows, and how many sheets have some."""
    from python_calamine import CalamineError, PasswordError, load_workbook

    try:
        with ZipFile(path) as archive:
            files.check_unpacked(
                path, sum(member.file_size for member in archive.infolist())
            )
    except BadZipFile:
        pass  # one of old Excel is no archive
    try:
        workbook = load_workbook(path)
        sheets = [
            (name, workbook.get_sheet_by_name(name).to_python(skip_empty_area=False))
            for name in workbook.sheet_names
        ]
    except PasswordError:
        raise FileError.bad_file(
            path, "is protected by a password", "Save it without one."
        ) from None
    except CalamineError as error:
        raise FileError.bad_file(
            path, f"cannot be read as a spreadsheet ({error})", "Save it as CSV."
        ) from None
    filled_sheets = [
        (name, cells)
        for name, cells in sheets
        if any(_is_filled(cell) for row in cells for cell in row)
    ]
    name, cells = next(iter(filled_sheets), ("", []))
    return name, len(filled_sheets), cells


def _is_filled(cell: Any) -> bool:
    return cell not in (None, "")


def _read_cell(cell: Any) -> Any:
    """Return a whole number as such, and a date as ISO 8601; a spreadsheet has only numbers with a point."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, datetime.timedelta) else cell
