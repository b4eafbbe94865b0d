"""Files that are read with their line numbers and written whole."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elo_exp.files import (
    open_text,
    read_jsonl,
    read_texts,
    safe_name,
    sha256,
    write_csv,
    write_json,
    write_jsonl,
    write_whole,
)
from elo_exp.records import UserError
from tests.data import full_disk


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Writing


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    path = write_whole(tmp_path / "a" / "b.txt", "µ\n")
    assert path.read_bytes() == b"\xc2\xb5\n"
    assert names(path.parent) == ["b.txt"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/b", "a%2Fb"),
        ("../up", "..%2Fup"),
        ("50 %", "50 %25"),
        ("line\n", "line%0A"),
        ("\xfc b", "\xfc b"),
    ],
)
def test_any_text_has_a_safe_name_of_its_own(text, name):
    assert safe_name(text) == name


def test_whoever_is_reading_the_old_file_reads_it_to_its_end(tmp_path):
    path = write_whole(tmp_path / "x.txt", "old")
    with path.open() as reader:
        write_whole(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    path = write_whole(tmp_path / "x.txt", "old")
    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        write_whole(path, "new" * 1000)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_name_that_cannot_be_taken_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "taken", "text")
    assert names(tmp_path) == ["taken"]


def test_rows_that_stop_half_way_leave_the_old_file(tmp_path):
    def rows() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise KeyboardInterrupt

    path = write_whole(tmp_path / "x.jsonl", "old")
    with pytest.raises(KeyboardInterrupt):
        write_jsonl(path, rows())
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.jsonl"]


@pytest.mark.parametrize(
    "write",
    [write_json, lambda path, value: write_jsonl(path, [value])],
    ids=["json", "jsonl"],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_a_number_is_refused_before_anything_is_written(tmp_path, write, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path / "x", {"rating": value})
    assert names(tmp_path) == []


def test_json_is_indented_and_keeps_its_letters(tmp_path):
    assert (
        write_json(tmp_path / "x.json", {"unit": "µg"}).read_text()
        == '{\n  "unit": "µg"\n}\n'
    )


def test_a_csv_has_the_keys_of_its_rows_and_an_empty_cell_for_none(tmp_path):
    path = write_csv(
        tmp_path / "x.csv",
        [{"model": "a,b", "rating": 1.5}, {"model": "c", "rating": None}],
    )
    assert path.read_text() == 'model,rating\n"a,b",1.5\nc,\n'


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
def test_what_was_written_as_jsonl_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "x.jsonl"
    assert [row for _, row in read_jsonl(write_jsonl(path, rows))] == rows


def test_half_an_emoji_is_refused_where_it_stands_and_a_whole_one_is_not(tmp_path):
    """An escape in JSON may be half a surrogate pair, which no model can be sent. What is on record is read with it."""
    lines = [r'{"text": "\ud83d\ude00 and \\ud83d"}', r'{"text": ["cut \uD83d"]}']
    path = write_whole(tmp_path / "x.jsonl", "\n".join(lines))
    rows = read_texts(path)
    assert next(rows) == (f"{path}:1", {"text": "\U0001f600 and \\ud83d"})
    with pytest.raises(UserError) as error:
        next(rows)
    assert (
        str(error.value)
        == rf"{path}:2: holds half a surrogate pair, a \ud... alone. Write the whole character."
    )
    assert [row for _, row in read_jsonl(path)][1] == {"text": ["cut \ud83d"]}


def test_each_row_comes_with_its_place_and_blank_lines_count(tmp_path):
    path = write_whole(tmp_path / "x.jsonl", '{"n": 1}\n\n   \n{"n": 2}\n')
    assert list(read_jsonl(path)) == [(f"{path}:1", {"n": 1}), (f"{path}:4", {"n": 2})]


def test_a_file_whose_name_says_so_is_written_and_read_compressed(tmp_path):
    rows = [{"n": 1}, {"unit": "µg"}, {"half an emoji": "\ud83d"}]
    plain, zipped = (
        write_jsonl(tmp_path / name, rows) for name in ("x.jsonl", "x.jsonl.gz")
    )
    assert gzip.decompress(zipped.read_bytes()) == plain.read_bytes()
    assert (
        [row for _, row in read_jsonl(zipped)]
        == [row for _, row in read_jsonl(plain)]
        == rows
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"n": 1', "not JSON"),
        ("[1, 2]", "found a list"),
        (
            '{"n": ' + "1" * 5000 + "}",
            "not JSON",
        ),  # Python reads no integer of so many digits
        ("[" * 100_000, "not JSON"),  # nor so deep a nesting
    ],
    ids=["cut off", "list", "endless number", "endless nesting"],
)
def test_a_line_that_is_no_json_object_is_named(tmp_path, line, words):
    path = write_whole(tmp_path / "x.jsonl", f'{{"n": 0}}\n\n{line}\n')
    with pytest.raises(UserError) as error:
        list(read_jsonl(path))
    assert str(error.value).startswith(f"{path}:3: {words}")
    assert "Expected one JSON object a line." in str(error.value)


def zipped(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


ROWS = "".join(json.dumps({"n": n}) + "\n" for n in range(9999))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "absent.jsonl",
            None,
            "cannot be read (No such file or directory). Check the path.",
        ),
        (
            "latin.jsonl",
            b'{"n": "\xb5"}\n',
            "not UTF-8 text (invalid start byte at byte 7).",
        ),
        ("plain.jsonl.gz", b'{"n": 1}\n', "cannot be read (Not a gzipped file"),
        ("cut.jsonl.gz", zipped(ROWS)[:-20], "cannot be read (Compressed file ended"),
    ],
    ids=["absent", "not utf-8", "not gzip", "truncated gzip"],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error, open_text(path) as file:
        file.read()
    assert str(error.value).startswith(f"{path}: {words}")


def test_a_line_that_unpacks_without_end_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("elo_exp.files._LONGEST_LINE", 1000)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": "' + b"0" * 1_000_000))
    with pytest.raises(
        UserError, match=r"bomb\.jsonl\.gz:2: a line of more than 1,000 characters"
    ):
        list(read_jsonl(path))


# Names and times


def test_the_hash_of_a_file_is_that_of_its_bytes(tmp_path):
    content = bytes(range(256)) * 8192  # two blocks
    assert (
        sha256(write_whole(tmp_path / "x", content))
        == hashlib.sha256(content).hexdigest()
    )
