"""What is printed fits the terminal: its width, and the characters that it has."""

from __future__ import annotations

import io
import sys

import pytest

from elo_exp.console import MAX_COLUMNS, print_lines, wrap_lines


def test_a_long_line_goes_on_below_its_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = [
        "  known order   18 of 18 pairs of reference entrants recovered",
        "a is ahead of b by 12 points [3, 21], p = .012.",
        "short",
    ]
    assert wrap_lines(lines) == [
        "  known order   18 of 18 pairs of",
        "                reference entrants",
        "                recovered",
        "a is ahead of b by 12 points [3, 21],",
        "p = .012.",
        "short",
    ]


def test_a_wide_terminal_has_lines_of_at_most_110_columns(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "200")
    assert max(map(len, wrap_lines(["word " * 60]))) <= MAX_COLUMNS == 110


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8", "─●─ 1411 ± 3"),
        ("ascii", "-o- 1411 +/- 3"),
        ("latin-1", "-o- 1411 +/- 3"),
    ],
)
def test_a_terminal_without_our_marks_gets_others(
    encoding: str, printed: str, monkeypatch: pytest.MonkeyPatch
):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", file)
    print_lines("─●─ 1411 ± 3")
    file.flush()
    assert file.buffer.getvalue().decode(encoding).rstrip() == printed  # type: ignore[attr-defined]
