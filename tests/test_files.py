"""Files that are read with their line numbers and written whole; text that is printed."""

import csv
import gzip
import json
import os
import sys
import tracemalloc
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.console import escape_unprintable
from elo_exp.errors import UserError
from elo_exp.files import (
    escape_name,
    open_text,
    read_json,
    read_jsonl,
    read_text,
    read_texts,
    report_read_errors,
    write_csv,
    write_json,
    write_jsonl,
    write_whole,
)
from tests.commands import attempt
from tests.data import full_disk


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Writing


def test_whoever_is_reading_the_old_file_reads_it_to_its_end(tmp_path):
    path = write_whole(tmp_path / "new folder" / "x.txt", "old")
    with path.open() as reader:
        write_whole(path, "µ\n")
        assert reader.read() == "old"
    assert path.read_bytes() == b"\xc2\xb5\n"
    assert names(path.parent) == ["x.txt"]


@pytest.mark.system
def test_many_rows_are_written_as_csv_a_block_at_a_time(tmp_path):
    """1,000 models have half a million differences. Of rows with a carriage return each cell is in quotes."""
    long = "=x" + 1000 * "é"
    rows = ({"n": n, "text": "a\rb" if n == 7 else long} for n in range(20_000))
    tracemalloc.start()
    path = write_csv(tmp_path / "x.csv", rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 4 * peak
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.reader(file))
    assert len(read) == 20_001
    assert read[:2] == [["n", "text"], ["0", f"'{long}"]]
    assert read[8] == ["7", "a\rb"]


def interrupted() -> Iterator[dict[str, int]]:
    yield {"n": 1}
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: write_whole(path, "new" * 1000), OSError),  # a full disk
        (lambda path: write_jsonl(path, interrupted()), KeyboardInterrupt),
        (lambda path: write_jsonl(path, [{"rating": float("inf")}]), ValueError),
        (lambda path: write_json(path, {"rating": float("nan")}), ValueError),
    ],
    ids=["full disk", "interrupt", "infinite", "not a number"],
)
def test_what_cannot_be_written_leaves_the_old_file_and_no_other(
    tmp_path, write, error
):
    path = write_whole(tmp_path / "x.txt", "old")
    with full_disk(1000), pytest.raises(error):
        write(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


@pytest.mark.parametrize("mask", [0o077, 0o022])
def test_a_file_has_the_mode_that_the_umask_leaves(tmp_path, mask):
    before = os.umask(mask)
    try:
        path = write_whole(tmp_path / "x.txt", "mine")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(UserError, match="is a pipe or a device"):
            read_text(path)


@given(st.sets(st.text(), min_size=2))
def test_law_any_text_has_a_safe_name_of_its_own(texts):
    safe = {escape_name(text) for text in texts}
    assert len(safe) == len(texts)
    assert not any(set(name) & set('/\\:*?"<>|\0\n') for name in safe)


CELLS = (
    st.none() | st.integers() | st.text() | st.sampled_from(["-5", "+1.5e3", "=1+1"])
)


@given(st.lists(st.fixed_dictionaries({"model": CELLS, "rating": CELLS}), min_size=1))
def test_law_a_csv_is_read_back_and_has_no_formula(tmp_path_factory, rows):
    """A cell that a spreadsheet would compute, and that is no number, begins with an apostrophe."""
    path = write_csv(tmp_path_factory.mktemp("csv") / "x.csv", rows)
    with path.open(encoding="utf-8", newline="") as file:
        for written, row in zip(csv.DictReader(file, strict=True), rows, strict=True):
            for name, value in row.items():
                cell, given = written[name], "" if value is None else str(value)
                assert cell in (given, f"'{given}")
                if cell[:1] in tuple("=+-@\t\r"):
                    float(cell)
                elif cell != given:
                    assert given[0] in "=+-@\t\r"


@given(st.text())
def test_law_what_is_printed_has_no_control_characters(text):
    shown = escape_unprintable(text + "\x1b[31m\u202e")
    kept = {"\n", "\t"}
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in kept]
    assert shown.endswith("\\x1b[31m\\u202e")
    assert escape_unprintable(shown) == shown


SEEN = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"


def test_law_what_is_printed_has_no_character_that_reorders_others_or_is_not_seen():
    """Signs of numbers, hieroglyphs, shorthand and music are seen."""
    every = map(chr, range(sys.maxunicode + 1))
    unseen = [c for c in every if unicodedata.category(c) in ("Cf", "Zl", "Zp")]
    left = [c for c in unseen if c in escape_unprintable(f"a{c}b") and c not in SEEN]
    assert all(0x13430 <= ord(c) <= 0x1D17A for c in left)


def test_joiners_are_printed_where_they_join():
    joined = [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\U0001f469\u200d\U0001f52c",
    ]
    assert list(map(escape_unprintable, joined)) == joined
    assert escape_unprintable("gpt\u200d-4") == "gpt\\u200d-4"


def test_of_a_very_long_line_both_ends_are_said(tmp_path):
    """The end says what to do."""
    said = attempt("experiment=rate", f"battles={5000 * 'x'}", folder=tmp_path).err
    assert len(said) < 2100
    assert said.startswith("elo_exp: xxx")
    assert "characters) … xxx" in said
    assert said.endswith("File name too long. Check the path.\n")


def test_a_command_prints_no_control_characters_of_a_name(tmp_path):
    ran = attempt("experiment=rate", "battles=a\x1b[31m.jsonl", folder=tmp_path)
    assert ran.err.startswith("elo_exp: battles=a\\x1b[31m.jsonl cannot be read: ")


# Reading


@given(
    rows=st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.text(max_size=5) | st.integers() | st.none(),
            max_size=3,
        )
    )
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_law_what_was_written_as_jsonl_is_read_back(tmp_path_factory, name, rows):
    path = write_jsonl(tmp_path_factory.mktemp("rows") / name, rows)
    assert [row for _, row in read_jsonl(path)] == rows


def test_half_an_emoji_is_refused_where_it_stands_and_a_whole_one_is_not(
    tmp_path,
):
    """JSON can hold a lone surrogate, which no model can be sent; a record is read with it."""
    lines = [r'{"text": "\ud83d\ude00 and \\ud83d"}', r'{"text": ["cut \uD83d"]}']
    path = write_whole(tmp_path / "x.jsonl", "\n".join(lines))
    rows = read_texts(path)
    assert next(rows) == (f"{path}:1", {"text": "\U0001f600 and \\ud83d"})
    with pytest.raises(UserError, match=r"x\.jsonl:2 holds half of a character"):
        next(rows)
    assert [row for _, row in read_jsonl(path)][1] == {"text": ["cut \ud83d"]}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            '{"n": 1',
            "valid JSON: a comma or a closing bracket is missing at character 8",
        ),
        ("[1, 2]", r"a JSON object but \[1, 2\]"),
        ('{"n": ' + "1" * 5000 + "}", "valid JSON: a number has too many digits"),
        ("[" * 100_000, "valid JSON: it is nested too deeply"),
    ],
    ids=["cut off", "list", "endless number", "endless nesting"],
)
def test_a_line_that_is_no_json_object_is_named(tmp_path, line, fault):
    path = write_whole(tmp_path / "x.jsonl", f'{{"n": 0}}\n\n{line}\n')
    rows = read_jsonl(path)
    assert next(rows) == (f"{path}:1", {"n": 0})
    message = (
        rf"x\.jsonl:3 is not {fault}\. Each line must hold one complete JSON object\.$"
    )
    with pytest.raises(UserError, match=message):
        next(rows)


def test_a_mistake_in_a_json_file_of_several_lines_is_placed(tmp_path):
    path = write_whole(tmp_path / "x.json", '{"a": 1,\n "b" 2}\n')
    with pytest.raises(UserError) as error:
        read_json(path)
    fault = "is not valid JSON: a colon is missing at line 2, character 6."
    assert str(error.value) == f"{path} {fault}"


ROWS = "".join(json.dumps({"n": n}) + "\n" for n in range(9999))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.jsonl", None, "File not found: {path}."),
        ("latin.jsonl", b"\xb5\n", "{path} is not UTF-8 text (byte 0 cannot be read)."),
        (
            "cut.jsonl.gz",
            gzip.compress(ROWS.encode())[:-20],
            "{path} cannot be read (Compressed file ended",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error, open_text(path) as file:
        file.read()
    assert str(error.value).startswith(words.format(path=path))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "KeyError: 'a'"),
        ({"a": None}, "TypeError: unsupported operand"),
        ({"a": 10**400}, "OverflowError: int too large"),
        ({"a": 0}, "ZeroDivisionError: float division by zero"),
    ],
)
def test_what_a_reader_has_not_looked_for_is_one_line_that_keeps_its_cause(
    tmp_path, value, words
):
    @report_read_errors
    def read(path):
        return 1.0 / read_json(path)["a"]

    path = write_json(tmp_path / "x.json", value)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path} cannot be read ({words}")
    assert type(error.value.__cause__).__name__ in words


def test_a_readers_own_words_and_what_no_file_can_raise_are_left_as_they_are(tmp_path):
    @report_read_errors
    def read(path, raised):
        raise raised

    for raised in (UserError("x.json: is no bank."), AssertionError("ours")):
        with pytest.raises(type(raised), match=str(raised)):
            read(tmp_path, raised)


def test_a_verbose_command_shows_where_a_file_was_refused(tmp_path):
    write_whole(tmp_path / "x.jsonl", "{")
    given = ("experiment=rate", "battles=x.jsonl", "tracker=local")
    line = attempt(*given, folder=tmp_path).err
    said = attempt(*given, "hydra.verbose=true", folder=tmp_path).err
    assert line.count("\n") == 1
    assert said.startswith("Traceback")
    assert said.endswith(line)


def test_a_line_that_unpacks_without_end_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("elo_exp.files._MAX_LINE_CHARACTERS", 1000)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": "' + b"0" * 1_000_000))
    with pytest.raises(UserError, match=r"gz:2 has more than 1,000 characters"):
        list(read_jsonl(path))
