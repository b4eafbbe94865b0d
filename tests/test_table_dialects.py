"""Tables as Excel, LibreOffice and European locales save them are read like any other."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from elo_exp.data import csv_dialects, table_files
from elo_exp.errors import FileError
from tests.commands import attempt
from tests.csv_files import write_xlsx

HEAD = ["question", "answer"]
ROWS = [["Où est Paris ?", "En France, bien sûr; au nord"], ["2 + 2?", 'He said "4"']]
EXPECTED = [dict(zip(HEAD, row, strict=True)) for row in ROWS]


def csv_text(delimiter: str, *, always_quoted: bool = False) -> str:
    def quote(cell: str) -> str:
        if always_quoted or any(mark in cell for mark in (delimiter, '"', "\n")):
            return '"' + cell.replace('"', '""') + '"'
        return cell

    return "".join(delimiter.join(map(quote, row)) + "\r\n" for row in [HEAD, *ROWS])


def read(path: Path) -> list[dict[str, object]]:
    return [dict(row) for _, row in table_files.read_rows(path)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", csv_dialects.DELIMITERS)
@pytest.mark.parametrize("always_quoted", [True, False])
def test_a_csv_file_is_read_in_each_dialect(
    delimiter: str, encoding: str, always_quoted: bool, tmp_path: Path
):
    path = tmp_path / "answers.csv"
    text = csv_text(delimiter, always_quoted=always_quoted)
    path.write_bytes(text.encode(encoding))
    assert table_files.detect_shape(path) == "csv"
    assert table_files.read_keys(path) == {*HEAD}
    assert read(path) == EXPECTED


def test_utf_16_of_the_other_order_is_read(tmp_path: Path):
    path = tmp_path / "answers.csv"
    path.write_bytes(codecs.BOM_UTF16_BE + csv_text(",").encode("utf-16-be"))
    assert read(path) == EXPECTED


def test_lines_of_json_in_utf_16_are_read(tmp_path: Path):
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in EXPECTED), "utf-16")
    assert table_files.detect_shape(path) == "lines"
    assert read(path) == EXPECTED


def test_a_guessed_encoding_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "answers.csv"
    path.write_bytes(csv_text(",").encode("cp1252"))
    for _ in range(3):
        read(path)
    assert caplog.text.count("was read as Windows-1252. Check its accents") == 1


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "answers.csv"
    path.write_bytes(b"question,answer\na,\x81\x8d\n")
    with pytest.raises(FileError, match="is not UTF-8 text"):
        read(path)


@pytest.mark.parametrize(
    "text",
    [
        "question,answer\na;b,c\nd;e,f\n",  # both split all rows: a comma is meant
        'question,answer\n"a\nb;c",d\n',
        "question\na;b\nc\n",
    ],
)
def test_commas_stay_commas(text: str, tmp_path: Path):
    path = tmp_path / "answers.csv"
    path.write_text(text, encoding="utf-8")
    assert csv_dialects.detect_delimiter(path) == ","


def test_a_field_that_is_missing_names_the_delimiter(tmp_path: Path):
    path = tmp_path / "answers.csv"
    rows = "".join(f"{n};yes\n" for n in range(60))
    path.write_text(f"question;answer\n{rows}61\n", encoding="utf-8")
    with pytest.raises(
        FileError, match=r":62 does not have the 2 fields.* a semicolon"
    ):
        read(path)


# Spreadsheets


def test_the_first_sheet_with_rows_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rows = [[], [*HEAD, "score", None], [*ROWS[0], 3.0, None], [*ROWS[1], 0.5, None]]
    path = write_xlsx(
        tmp_path / "answers.xlsx", {"empty": [], "answers": rows, "notes": [["x"]]}
    )
    assert table_files.detect_shape(path) == "spreadsheet"
    assert read(path) == [EXPECTED[0] | {"score": 3}, EXPECTED[1] | {"score": 0.5}]
    assert "only the sheet answers was read; the file has 2 sheets" in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        ([["a", "a"], ["1", "2"]], "row 1 has the column a twice"),
        ([["a", None], ["1", "2"]], "row 2 has a value in a column without a name"),
    ],
)
def test_a_sheet_that_is_no_table_is_refused(
    rows: list[list[str | float | None]], message: str, tmp_path: Path
):
    path = write_xlsx(tmp_path / "answers.xlsx", {"sheet": rows})
    with pytest.raises(FileError, match=message):
        read(path)


def test_a_damaged_spreadsheet_is_refused_in_one_line(tmp_path: Path):
    path = tmp_path / "answers.xls"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 2000)
    with pytest.raises(FileError, match="cannot be read as a spreadsheet"):
        read(path)


def test_two_spreadsheets_are_compared(tmp_path: Path):
    for name in ("old", "new"):
        rows = [[f"Is {n} even?", f"{name} says {n}"] for n in range(3)]
        write_xlsx(tmp_path / f"{name}.xlsx", {"answers": [HEAD, *rows]})
    ran = attempt("old.xlsx", "new.xlsx", "judge=lexical", "plan=true", folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "prompts: 3 of 3 answered by both entrants" in ran.err
