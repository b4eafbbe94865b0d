"""Files of battles read by columns say what they say read by rows: the same battles, or the same words."""

from __future__ import annotations

import codecs
import gzip
import json
import logging
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elo_exp.data import battle_columns, battle_files, frames, table_files
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.formats.battle_rows import FORMATS
from elo_exp.errors import UserError
from tests.commands import attempt_program
from tests.data import write_table

COLUMNS = {name: name for name in battle_columns.FIELDS} | {"score": None}
HOW: dict[str, Any] = {"columns": COLUMNS, "filters": {}}
OK = {"model_a": "ann", "model_b": "bob", "winner": "model_a", "question_id": "q"}
HEAD = "model_a,model_b,winner\n"
FLAT, ELO_EXP, *_ = FORMATS
LARGE = battle_files.MIN_DUCKDB_BYTES
SAYS = {"left": "model_a", "void": None}


def lines(*rows: Any) -> str:
    """Rows as lines of JSON; a text is a line as it stands."""
    return "".join(
        f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows
    )


def ok(**others: Any) -> dict[str, Any]:
    return {**OK, **others}


def pair(a: str, b: str = '"bob"', winner: str = '"tie"', more: str = "") -> str:
    """A line of JSON of values that stand there as they are written."""
    return f'{{"model_a": {a}, "model_b": {b}, "winner": {winner}{more}}}'


MANY = "ann,bob,tie\n" * 5000
JSONL = {
    "a key that is read, twice": lines(OK, pair('"a"', more=', "winner": "model_b"')),
    "a broken line": lines(OK, "{broken"),
    "a cut line": lines(OK) + '{"model_a": "ann"',
    "no comma": lines(OK, '{"model_a": "a" "model_b": "b"}'),
    "single quotes": lines(OK, "{'model_a': 'a'}"),
    "two objects on a line": lines(OK, json.dumps(OK) * 2),
    "an object over two lines": lines(OK) + '{"model_a":\n"ann"}\n',
    "a list for a line": lines(OK, "[1, 2]"),
    "a number for a line": lines(OK, "7"),
    "null for a line": lines(OK, "null"),
    "a text for a line": lines(OK, '"ann"'),
    "words for a line": lines(OK, "hello"),
    "a comment": lines(OK, "// why", OK),
    "blank lines": lines(OK, "", "  ", OK, ""),
    "no line break at the end": lines(OK, OK).rstrip("\n"),
    "line breaks of Windows": lines(OK, OK).replace("\n", "\r\n"),
    "a carriage return for a line break": lines(OK) + json.dumps(OK) + "\r" + lines(OK),
    "a mark of UTF-8": codecs.BOM_UTF8.decode() + lines(OK, OK),
    "a mark later on": lines(OK, "\ufeff" + json.dumps(OK)),
    "a NUL": lines(OK, pair('"a\0b"')),
    "an escaped NUL": lines(OK, pair('"a\\u0000b"')),
    "half a surrogate": lines(OK, pair('"a\\ud800"')),
    "half a surrogate that is no model": lines(OK, pair('"a"', more=', "question_id": "\\ud800"')),
    "a bad escape": lines(OK, pair('"a\\x41"')),
    "a control character": lines(OK, pair('"a\tb"')),
    "an escaped control character": lines(OK, pair('"a\\tb"')),
    "escapes": lines(OK, pair('"\\u0061nn"'), '{"model\\u005fa": "eve", "model_b": "bob", "winner": "tie"}'),
    "an escaped own name": lines(OK, pair('"ann"', winner='"\\u0061nn"')),
    "numbers": lines(pair("7", "8", "7"), pair('"7"', "8", "8"), pair('"007"', "8"), pair("7.0", "8")),
    "a number and its text": lines(pair("7", '"8"', '"7"'), pair('"7"', "8", "7")),
    "a number against its text": lines(pair('"8"', "9"), pair("7", '"7"')),
    "numbers of other kinds": lines(*(pair(n) for n in ("1.0", "1", "1e22", "1E5", "-0", "1" * 30))),
    "a number of 5,000 digits": lines(OK, pair("7" * 5000)),
    "true and false": lines(pair("true", "false", "true"), pair('"True"', "false", '"False"')),
    "null": lines(ok(question_id=None), pair("null")),
    "NaN": lines(OK, pair('"ann"', more=', "question_id": NaN')),
    "NaN for a model": lines(OK, pair("NaN")),
    "infinity": lines(OK, pair("Infinity"), pair("-Infinity")),
    "a list for a model": lines(OK, pair('["ann"]')),
    "an object for a winner": lines(OK, pair('"ann"', winner='{"a": 1}')),
    "a list for a question": lines(ok(question_id=["a", 1]), ok(question_id=["a",  1]), ok(question_id={"a": None})),
    "a list with a key twice": lines(OK, pair('"ann"', more=', "question_id": {"a": 1, "a": 2}')),
    "a list for a judge": lines(ok(judge_model=["gpt", "x"]), ok(judge_model="gpt")),
    "deep": lines(OK, pair('"ann"', more=f', "question_id": {"[" * 3000}{"]" * 3000}')),
    "keys that differ in case": lines(ok(Winner="tie", WINNER="tie"), OK),
    "a key in another case": lines(OK, '{"Model_A": "x", "model_b": "bob", "winner": "tie"}'),
    "a key inside another": lines(ok(more={"winner": "tie"}), ok(text='"winner": "x"')),
    "an empty object": lines(OK, "{}"),
    "late": lines(ok(winner="what"), OK, "{broken"),
    "early": lines(OK, "{broken", ok(winner="what")),
    "a winner of nobody": lines(OK, ok(winner="eve")),
    "nobody's winner, twice": lines(ok(winner="eve"), ok(winner="eve"), *[OK] * 4),
    "a model against itself": lines(OK, ok(model_b="ann"), OK, OK),
    "an empty model": lines(ok(model_a=""), ok(model_b=None), OK, OK, OK),
    "own names": lines(ok(winner="ann"), ok(winner="bob"), ok(model_a="eve", winner="eve")),
    "a name that is a word": lines(ok(model_a="tie"), ok(model_a="tie", winner="model_b")),
    "a name and a word": lines(OK, ok(model_a="tie", winner="tie")),
    "sides' names exchanged": lines(ok(model_a="model_b", model_b="model_a", winner="model_a")),
    "sides' names exchanged, both orders": lines(
        ok(model_a="model_b", model_b="model_a", winner="model_a", verdict_ab="model_a", verdict_ba="model_a")),
    "orders": lines(ok(verdict_ab="model_a", verdict_ba="model_b", winner="tie"), ok(verdict_ab="model_b")),
    "orders that say something else": lines(ok(verdict_ab="model_b", verdict_ba="model_b"), OK, OK),
    "a word in an order": lines(OK, ok(verdict_ba="B"), OK),
    "words of the file": lines(ok(winner="left"), ok(winner="void"), OK),
    "scores": lines(ok(score=0.8), ok(score="0.7"), ok(score=0.8, winner="model_b"), ok(score="much"), OK, OK, OK),
    "equal answers": lines(*(ok(equal_answers=e) for e in (True, False, "true", 1, None))),
    "styles": lines(ok(style_a=[1, 2, 3, 4], style_b=None), ok(style_a="[1,2,3,4]"), ok(style_a=[1]), OK, OK),
    "dimensions": lines(*(ok(dimension=d) for d in ("d", "e", None, "", 1, "d"))),
    "judges and sources": lines(ok(judge_model="human"), ok(judge_model="opus"), ok(source="x"), ok(source=7)),
    "questions": lines(*(ok(question_id=q) for q in (1, "1", 1.0, True, "", None, "é", "\u2028", 1))),
    "a long line": lines(OK, ok(conversation="x" * 70_000)),
    "no rows": lines(""),
    "one column": lines({"winner": "tie"}),
    "a separator of lines in a text": lines(OK, ok(model_a="a\u2028b"), ok(model_a="a\x85b"), OK, OK, OK),
    "a long name": lines(OK, ok(model_a="n" * 5000)),
}  # fmt: skip
CSV = {
    "a short row": HEAD + "ann,bob,tie\nann,bob\n",
    "a long row": HEAD + "ann,bob,tie\nann,bob,tie,more\n",
    "a late long row": HEAD + MANY + "ann,bob,tie,x\n",
    "a late short row": HEAD + MANY + "ann,bob\n",
    "a column twice": "model_a,model_b,winner,model_a\nann,bob,tie,x\n",
    "columns that differ in case": "model_a,model_b,winner,Winner\nann,bob,tie,x\n",
    "a column without a name": "model_a,model_b,winner,\nann,bob,tie,x\n",
    "a quote left open": HEAD + 'ann,bob,tie\nann,"bob,tie\n',
    "a quote left open at the end": HEAD + 'ann,bob,tie\nann,bob,"tie',
    "a quote left open before many rows": HEAD + MANY + '"ann,bob,tie\n' + MANY,
    "text after a quote": HEAD + 'ann,"bob"x,tie\n',
    "text before a quote": HEAD + 'ann,b"ob",tie\nann, "bob",tie\n',
    "a quote inside": HEAD + 'ann,b"ob,tie\nann,bob,tie\n',
    "quotes": HEAD + '"ann","b""o""b","tie"\n"","bob",tie\n',
    "a backslash": HEAD + 'ann,"b\\",tie\nann,b\\,tie\n',
    "a quoted comma": HEAD + 'ann,"b,ob","b,ob"\n',
    "a quoted line break": 'model_a,model_b,winner,question_id\nann,bob,tie,"two\nlines"\nann,bob,what,q\n',
    "a quoted line break in the header": 'model_a,model_b,winner,"a\nb"\nann,bob,tie,x\nann,bob,what,x\n',
    "a quoted header": '"model_a","model_b","winner"\nann,bob,tie\n',
    "spaces in the header": "model_a, model_b,winner\nann,bob,tie\n",
    "line breaks of Windows": (HEAD + "ann,bob,tie\nann,bob,what\n").replace("\n", "\r\n"),
    "line breaks of an old Mac": (HEAD + "ann,bob,tie\nann,bob,what\n").replace("\n", "\r"),
    "line breaks of all kinds": "model_a,model_b,winner\r\nann,bob,tie\rann,bob,tie\nann,bob,what\r\n",
    "a return inside quotes": HEAD + 'ann,"b\rob",tie\n',
    "a return inside": "model_a,model_b,winner,q\nann,bob,tie,x\ry\n",
    "blank lines": HEAD + "\nann,bob,tie\n\n\nann,bob,what\n\n",
    "lines of spaces": HEAD + "ann,bob,tie\n  \nann,bob,tie\n",
    "a blank line first": "\n" + HEAD + "ann,bob,tie\n",
    "spaces": HEAD + " ann,bob ,tie\nann,bob, tie\n",
    "no line break at the end": HEAD + "ann,bob,tie",
    "a mark of UTF-8": "\ufeff" + HEAD + "ann,bob,tie\n",
    "a NUL": HEAD + "a\0nn,bob,tie\n",
    "a NUL in a question": "model_a,model_b,winner,question_id\nann,bob,tie,a\0b\nann,bob,tie,a\n",
    "a header alone": HEAD,
    "one field": "winner\ntie\n",
    "tabs": "model_a\tmodel_b\twinner\nann\tbob\ttie\n",
    "semicolons": "model_a;model_b;winner\nann;bob;tie\n",
    "numbers": HEAD + "007,7,7\n1.0,1,1.0\n7,7.0,tie\n1e3,NaN,null\n",
    "missing": "model_a,model_b,winner,question_id\nann,bob,tie,\nann,bob,tie,NULL\nann,bob,tie,nan\n",
    "an empty model": HEAD + "ann,bob,tie\n,bob,tie\n",
    "a comment": HEAD + "# why,bob,tie\nann,bob,tie\n",
    "a cell of 3 MB": "model_a,model_b,winner,t\nann,bob,tie,x\nann,bob,tie," + "x" * 3_000_000 + "\nann,bob,what,x\n",
    "a name that is a word": HEAD + "tie,bob,model_a\nann,model_b,model_b\n",
    "separators": HEAD + "a\u2028b,bob,tie\na\u2029b,bob,tie\nx,b\x0bob,tie\n",
    "accents": HEAD + "é,bob,é\n",
}  # fmt: skip
BYTES = {
    "latin-1.csv": (HEAD + "ann,bob,tie\né,bob,tie\n").encode("latin-1"),
    "latin-1.jsonl": lines(OK).encode() + b'{"model_a": "\xe9", "model_b": "b", "winner": "tie"}\n',
    "latin-1 late.csv": (HEAD + MANY + "é,bob,tie\n").encode("latin-1"),
    "utf-16.csv": (HEAD + "ann,bob,tie\n").encode("utf-16"),
    "utf-16.jsonl": lines(OK).encode("utf-16"),
    "cut.jsonl.gz": gzip.compress(lines(*[ok(question_id=n) for n in range(999)]).encode())[:-20],
    "cut.csv.zst": zstd.compress((HEAD + MANY).encode())[:-5],
    "checksum.jsonl.gz": gzip.compress(lines(OK).encode())[:-6] + b"ab" + b"\0" * 4,
    "more behind it.csv.gz": gzip.compress((HEAD + MANY).encode()) + b"more",
    "two members.csv.gz": gzip.compress(HEAD.encode()) + gzip.compress(b"ann,bob,tie\n"),
    "two frames.csv.zst": zstd.compress(HEAD.encode()) + zstd.compress(b"ann,bob,tie\n"),
    "no more.jsonl.zst": zstd.compress(lines(OK, ok(winner="eve")).encode()),
    "magic.parquet": b"PAR1",
    "array.json": json.dumps([OK, ok(winner="eve")]).encode(),
    "a'[1]*?.csv": (HEAD + "ann,bob,tie\n").encode(),
}  # fmt: skip
EVERY = {
    **{f"{name}.jsonl": text.encode() for name, text in JSONL.items()},
    **{f"{name}.csv": text.encode() for name, text in CSV.items()},
    **BYTES,
}
BY_ROWS = {  # a doubt, of DuckDB or of ours: the rows decide
    *("a key that is read, twice", "a broken line", "a cut line", "no comma", "single quotes"),
    *("two objects on a line", "an object over two lines", "a list for a line", "a number for a line"),
    *("a text for a line", "words for a line", "a comment.jsonl", "a carriage return for a line break"),
    *("a mark of UTF-8.jsonl", "a mark later on", "a NUL.jsonl", "half a surrogate"),
    *("half a surrogate that is no model", "a bad escape", "a control character", "deep"),
    *("a number of 5,000 digits", "a list with a key twice", "late", "early", "a short row", "a long row"),
    *("a late long row", "a late short row", "a column without a name", "columns that differ in case"),
    *("text before a quote", "text after a quote", "a quote left open", "a quote left open at the end"),
    *("a quote left open before many rows", "line breaks of all kinds", "a return inside"),
    *("lines of spaces", "a cell of 3 MB", "latin-1 late.csv", "cut.jsonl.gz", "more behind it.csv.gz"),
    *("a column twice", "a blank line first", "array.json", "tabs", "semicolons"),
    *("latin-1.csv", "utf-16.csv", "utf-16.jsonl"),
}  # fmt: skip
LENIENT = {  # read by columns; by rows refused
    "a key twice that is not read": lines(OK, pair('"a"', more=', "x": 1, "x": 2')),
    "a comma behind the last value": lines(OK, pair('"a"', more=",")),
    "a comma behind the last field": HEAD + "ann,bob,tie\nann,bob,tie,\n",
}


class Reader:
    """Reads files by columns, however small they are, or by rows."""

    def __init__(self, patch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture):
        self.patch, self.log = patch, log
        self.n_by_rows = 0
        by_rows = table_files.encode_rows

        def counted(*given: Any) -> Any:
            self.n_by_rows += 1
            return by_rows(*given)

        patch.setattr(table_files, "encode_rows", counted)

    def __call__(self, path: Path, large: float, **how: Any) -> list[str]:
        """What is read and said of a file."""
        self.patch.setattr(battle_files, "MIN_DUCKDB_BYTES", large)
        self.log.clear()
        with self.log.at_level(logging.INFO):
            try:
                battles, facts = battle_files.read(path, **HOW | how)
            except UserError as error:
                assert "\n" not in error.line
                return [f"refused: {error}", *self.messages]
        return [*encode_battles(battles), str(facts), *self.messages]

    @property
    def messages(self) -> list[str]:
        """Without the guess of an encoding, which is said once."""
        return [text for text in self.log.messages if "Windows-1252" not in text]

    def both(self, path: Path, **how: Any) -> str:
        """The same, which has to be so in both ways: the battles, or why there are none."""
        self.n_by_rows = 0
        by_columns = self(path, 0, **how)
        self.is_by_columns = not self.n_by_rows
        assert by_columns == self(path, math.inf, **how)
        return by_columns[0]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Reader:
    return Reader(monkeypatch, caplog)


@pytest.mark.parametrize("name", EVERY)
def test_a_dirty_file_is_read_or_refused_by_columns_as_by_rows(tmp_path, read, name):
    """With a malformed row, which stops, and without it."""
    path = tmp_path / name
    path.write_bytes(EVERY[name])
    said = read.both(path)
    is_doubtful = not BY_ROWS.isdisjoint((name, name.rpartition(".")[0]))
    is_no_table = not read.n_by_rows and said.startswith("refused")
    assert read.is_by_columns != is_doubtful or is_no_table
    if "battles_on_error=drop" in said:
        read.both(path, on_error="drop")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("scores", {"chosen": ELO_EXP, "on_error": "drop"}),
        ("words of the file", {"values": SAYS}),
        ("a name that is a word", {"values": {"tie": "model_b"}, "on_error": "drop"}),
        ("own names", {"values": {"ann": "model_b"}}),
        ("own names", {"filters": {"winner": "ann"}}),
        ("own names", {"filters": {"model_a": "ann"}}),
        ("questions", {"filters": {"question_id": "1"}}),
        ("judges and sources", {"filters": {"judge_model": "opus"}}),
        ("dimensions", {"columns": COLUMNS | {"dimension": None}}),
        ("dimensions", {"columns": COLUMNS | {"dimension": "winner"}}),
        ("dimensions", {"columns": COLUMNS | {"question_id": None}}),
        ("keys that differ in case", {"columns": COLUMNS | {"source": "WINNER"}}),
    ],
)
def test_columns_words_and_filters_are_those_of_the_rows(tmp_path, read, name, how):
    path = tmp_path / "b.jsonl"
    path.write_text(JSONL[name])
    read.both(path, **how)


@pytest.mark.parametrize("name", LENIENT)
def test_what_nobody_reads_may_be_at_fault(tmp_path, read, name):
    """Of a large file: each value that is read stands where the rows would find it."""
    path = tmp_path / ("b.csv" if LENIENT[name].startswith(HEAD) else "b.jsonl")
    path.write_text(LENIENT[name])
    assert read(path, 0)[0].count("\n") == 2
    assert read(path, math.inf)[0].startswith(f"refused: {path}:")


NAMES = st.sampled_from(["ann", "bob", "a,\"b\"", "é\nx", "tie", "7", 7, 7.0, True, "", None, " x "])  # fmt: skip
ROWS = st.fixed_dictionaries(
    {
        "model_a": NAMES,
        "model_b": NAMES,
        "winner": NAMES | st.sampled_from(["model_a", "model_b", "tie"]),
    },
    optional={
        "question_id": NAMES | st.floats() | st.integers(),
        "judge_model": st.sampled_from(["opus", None]),
        "verdict_ab": st.sampled_from(["model_a", "tie", None]),
        "verdict_ba": st.sampled_from(["model_a", "model_b", None]),
        "score": st.sampled_from([0.7, 0.5, 1, None]),
        "equal_answers": st.booleans(),
    },
)
ENDINGS = ["jsonl", "csv", "parquet", "jsonl.gz", "csv.gz", "jsonl.zst", "csv.zst"]


@pytest.mark.system
@given(rows=st.lists(ROWS, min_size=1, max_size=12), ending=st.sampled_from(ENDINGS))
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_law_rows_of_any_content_are_read_by_columns_as_by_rows(
    tmp_path, read, rows, ending
):
    path = tmp_path / f"b.{ending}"
    names = dict.fromkeys(name for row in rows for name in row)
    if not ending.startswith("jsonl"):
        rows = [{name: row.get(name) for name in names} for row in rows]
    if ending == "parquet":  # a column has one type
        rows = [{n: None if v is None else str(v) for n, v in r.items()} for r in rows]
    write_table(path, rows)
    for form in (FLAT, ELO_EXP):
        read.both(path, chosen=form, on_error="drop")


def test_numbers_lists_and_times_of_parquet_are_those_of_its_rows(tmp_path, read):
    """Also columns that are read by nobody, and models whose columns differ in type."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {**OK, "model_a": n, "model_b": n + 1, "winner": n, "score": n / 10, "at": at}
        | {"style_a": [n, 0, 0, 0], "question_id": {"n": float(n)}, "equal_answers": n > 1}
        for n in range(6, 9)
    ]  # fmt: skip
    path = write_table(tmp_path / "b.parquet", rows)
    assert "refused" not in read.both(path, chosen=ELO_EXP)
    assert read.is_by_columns
    write_table(path, [{**row, "model_b": f"m{row['model_b']}"} for row in rows])
    assert "refused" not in read.both(path)
    assert {row["at"] for _, row in table_files.read_rows(path)} == {
        "2026-01-01 00:00:00+00"
    }


def test_a_file_is_none_but_the_one_that_is_named(tmp_path, read):
    """Neither a pattern's others nor SQL's end of a text; a neighbour is not read."""
    path = tmp_path / "it's [1]*?.csv"
    path.write_text(HEAD + "ann,bob,tie\n")
    (tmp_path / "it's 1xx.csv").write_text(HEAD + "eve,bob,tie\n")
    assert '"ann"' in read.both(path)
    assert read.is_by_columns


def test_a_file_that_takes_too_much_memory_is_refused_in_a_line(
    tmp_path, read, monkeypatch
):
    monkeypatch.setattr(table_files, "DUCKDB_MEMORY_MB", 10)
    path = write_table(tmp_path / "b.jsonl", [OK] * 9)
    (said,) = read(path, 0)
    assert said == (
        f"refused: {path} needs more than 10 MB of memory to be read. Count its battles first "
        "(docs/counts.md)."
    )


def test_a_small_file_is_read_by_rows(tmp_path, read):
    """They take less time than importing DuckDB."""
    for n, is_small in ((200, True), (20_000, False)):
        path = write_table(tmp_path / "b.jsonl", [OK] * n)
        read(path, LARGE)
        assert (read.n_by_rows == 1) == is_small
        read.n_by_rows = 0


# Tables in memory

DEMO = [
    ok(question_id=f"q{n % 7}", winner=("model_a", "bob", "tie")[n % 3], judge_model="opus")
    for n in range(30)
]  # fmt: skip


def tables_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    frame = pd.DataFrame(rows)
    return {
        "pandas": frame,
        "pandas, of objects": frame.astype(object),
        "polars": pl.DataFrame(rows),
        "pyarrow": pa.Table.from_pylist(rows),
        "lists": frame.to_dict("list"),
        "arrays": {name: np.array(frame[name], dtype=object) for name in frame},
        "rows": rows,
    }


def test_a_table_in_memory_is_read_as_its_file(tmp_path):
    file, _ = battle_files.read(write_table(tmp_path / "b.jsonl", DEMO), **HOW)
    assert len(file) == 30
    for name, table in tables_of(DEMO).items():
        assert "".join(encode_battles(frames.read_battles(table))) == "".join(
            encode_battles(file)
        ), name
    renamed = pd.DataFrame(DEMO).rename(columns={"winner": "won"})
    chosen = frames.read_battles(
        renamed, columns={"winner": "won"}, filters={"judge_model": "opus"}
    )
    assert chosen.rows() == file.rows()


def test_a_row_of_a_table_in_memory_is_named_by_its_number():
    for name, table in tables_of([*DEMO, ok(winner="eve")]).items():
        with pytest.raises(
            UserError, match='^frame: row 31: winner must be .*; got "eve"\\.'
        ):
            frames.read_battles(table)
        assert name


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"model_a": ["a"], "model_b": []}, "frame has columns of different lengths: 0 and 1 rows."),
        (pd.DataFrame(DEMO[:0], columns=list(OK)), "frame is a table without rows."),
        (pd.DataFrame([[1, 2]], columns=["winner", "winner"]), "frame has the column winner twice."),
        ([7], "frame must be a table of pandas, polars or pyarrow, rows as dictionaries, or files; row 1 is 7."),
        (pd.DataFrame({"a": [1]}), "frame has no columns of battles or scores."),
    ],
)  # fmt: skip
def test_what_is_no_table_of_battles_is_refused(table, said):
    with pytest.raises(UserError) as error:
        frames.read_battles(table)
    assert str(error.value).startswith(said)


def test_missing_values_of_every_library_are_missing(caplog):
    """Ids that pandas made floats of, one being missing, are pointed out."""
    frame = pd.DataFrame(DEMO[:4])
    frame["question_id"] = pd.array([1, None, 3, 3], dtype="Int64")
    frame["judge_model"] = [np.nan, None, pd.NA, pd.NaT]
    read = frames.read_battles(frame).rows()
    assert [battle.question_id for battle in read] == ["1", None, "3", "3"]
    assert {battle.judge_model for battle in read} == {None}
    assert not any("holds floats" in line for line in caplog.messages)
    frame["question_id"] = [1, None, 3, 3]
    assert frames.read_battles(frame).rows()[0].question_id == "1.0"
    (line,) = (line for line in caplog.messages if "holds floats" in line)
    assert "the column 'question_id' holds floats" in line
    assert line.endswith("frame['question_id'].astype('Int64').")


def test_a_large_table_is_written_as_parquet_and_says_the_same(tmp_path, monkeypatch):
    """Unless a column holds lists, or values of several types, which stay JSON."""
    monkeypatch.setattr(frames, "MIN_PARQUET_ROWS", 20)
    rows = [{**row, "n": n, "share": n / 7, "is": n > 3} for n, row in enumerate(DEMO)]
    for n, table in enumerate(tables_of(rows).values()):
        path = frames.write_table(table, "given", tmp_path / f"{n}")
        is_rows = isinstance(table, list)
        assert path.suffix == (".jsonl" if is_rows else ".parquet")
        assert [dict(row) for _, row in table_files.read_rows(path)] == rows
    for odd in ([1, "1"], ["x", "\ud800"], [[1], [2]], [10**30, 1]):
        table = {"n": odd * 15}
        assert frames.write_table(table, "given", tmp_path / "odd").suffix == ".jsonl"


@pytest.mark.system
def test_tables_in_memory_need_no_pyarrow(tmp_path):
    """Those of pandas and polars, in a process that cannot import it."""
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas, polars\n"
        "from elo_exp.data import frames\n"
        "frames.MIN_PARQUET_ROWS = 2\n"
        "rows = {'model_a': ['a', 'b'], 'model_b': ['b', 'a'], 'winner': ['a', 'tie']}\n"
        "for n, table in enumerate((pandas.DataFrame(rows), polars.DataFrame(rows), rows)):\n"
        "    print(len(frames.read_battles(table)), frames.write_table(table, 't', frames.Path(str(n))))\n"
    )
    ran = attempt_program(sys.executable, "-c", code, folder=tmp_path)
    assert ran.out.splitlines() == [f"2 {n}.parquet" for n in range(3)], ran.err
