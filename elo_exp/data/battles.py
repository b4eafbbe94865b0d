"""Battles: the atom of every rating. Judgments become battles, and battles files are read and checked."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import logging
import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TextIO

from elo_exp import files
from elo_exp.data.pairing import outcome
from elo_exp.records import WINNERS, Battle, Judgment, UserError

logger = logging.getLogger(__name__)

REQUIRED = ("model_a", "model_b", "winner")
OPTIONAL = ("source", "question_id", "judge_model", "dimension", "verdict_ab", "verdict_ba")
KINDS = (".jsonl", ".csv", ".parquet")
_MAX_FIELD = 2**31 - 1  # characters of a CSV field: other columns may hold whole conversations
_NAMED = 5  # of many judges, how many a warning names
_WINNER = {"a": "model_a", "b": "model_b", "tie": "tie"}


def from_judgments(judgments: Sequence[Judgment]) -> list[Battle]:
    """One battle for each valid judgment. A mirrored verdict is no second observation and leaves `verdict_ba` empty."""
    return [_battle(judgment) for judgment in judgments if not judgment.invalid]


def _battle(judgment: Judgment) -> Battle:
    ab, ba = (_WINNER[outcome(verdict) or "tie"] for verdict in judgment.raw[:2])
    one_order = any(verdict.mirrored for verdict in judgment.raw[:2])
    sides = {None: "tie", judgment.entrant_a: "model_a", judgment.entrant_b: "model_b"}
    return Battle(
        model_a=judgment.entrant_a,
        model_b=judgment.entrant_b,
        winner=sides[judgment.winner],
        source="llm-judge",
        question_id=judgment.prompt_id,
        judge_model=judgment.raw[0].judge_model,
        dimension=judgment.dimension,
        verdict_ab=ab,
        verdict_ba=None if one_order else ba,
        equal_answers=judgment.equal_answers,
    )


class _AmbiguousError(UserError):
    """A row that may be read in two ways: whichever it is, others of its file may be read wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BattlesFile:
    """What was read of a battles file."""

    battles: list[Battle]
    n_dropped: int  # malformed rows
    n_filtered: int  # rows that a filter left out


def read(
    path: Path,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    on_error: str = "stop",
) -> BattlesFile:
    """The battles of a .jsonl, .csv or .parquet file, each also .gz, in file order.

    columns   our field name -> the file's column. A winner may be one of WINNERS, the name of the winner's column, or
              its own, which a verdict of one order may not: there A and B are a judge's words for positions
    filters   our field name -> the value to keep
    on_error  stop: UserError naming file, line, what was found and what was expected; drop: drop and count
    Raises UserError also where a winner's word is the name of one model and stands for another result.
    """
    battles = []
    dropped: list[str] = []
    filtered = 0
    pooled: set[str] = set()
    kept = {name: value for name, value in filters.items() if value is not None}
    for place, row in _rows(path):
        if columns.get("dimension") is None and row.get("dimension"):
            pooled.add(str(row["dimension"]))
        try:
            battle = _parse(place, row, columns)
        except _AmbiguousError:
            raise
        except UserError as error:
            if on_error == "stop":
                hint = (
                    ""
                    if _lacks_a_column(path, columns)
                    else " battles_on_error=drop leaves such rows out."
                )
                raise UserError(f"{error}{hint}") from None
            dropped.append(str(error))
            continue
        if all(getattr(battle, name) == value for name, value in kept.items()):
            battles.append(battle)
        else:
            filtered += 1
    if dropped:
        logger.warning(
            "%s: dropped %d malformed rows; the first: %s", path, len(dropped), dropped[0]
        )
    if len(pooled) > 1:
        logger.info(
            "%d dimensions are pooled (%s); battles_columns.dimension=dimension rates each",
            len(pooled),
            sorted(pooled),
        )
    if not battles:
        wanted = " and ".join(f"{name}={value}" for name, value in kept.items())
        counts = f"{filtered} filtered out" + (
            f", {len(dropped)} dropped: {dropped[0]}" if dropped else ""
        )
        raise UserError(
            f"{path}: no battle is left{f' with {wanted}' if wanted else ''} ({counts})."
        )
    _warn_of_questions(path, battles, _names(row))
    _warn_of_judges(path, battles, columns.get("judge_model"))
    return BattlesFile(battles=battles, n_dropped=len(dropped), n_filtered=filtered)


def _warn_of_questions(path: Path, battles: Sequence[Battle], found: str) -> None:
    """Where battles do not name what they are about; taken for prompts of their own, they make errors smaller."""
    lacking = sum(battle.question_id is None for battle in battles)
    if lacking == len(battles):
        logger.warning(
            "%s: no battle names its question (found %s), so each counts as a prompt of its own. If a column does, say "
            "battles_columns.question_id=COLUMN.",
            *(path, found),
        )
    elif lacking:
        logger.warning(
            "%s: %d of %d battles name no question, and each of them counts as a prompt of its own.",
            *(path, lacking, len(battles)),
        )


def _warn_of_judges(path: Path, battles: Sequence[Battle], column: str | None) -> None:
    """Where the battles of one dimension are those of several judges."""
    heard = {(battle.dimension, battle.judge_model) for battle in battles if battle.judge_model}
    if len(heard) > len({dimension for dimension, _ in heard}):
        judges = sorted({str(judge) for _, judge in heard})
        logger.warning(
            "%s: the verdicts of %d judges are pooled (%s). battles_columns.dimension=%s rates each apart, "
            "battles_filter.judge_model=NAME one alone.",
            *(
                path,
                len(judges),
                ", ".join(judges[:_NAMED]) + (", ..." if len(judges) > _NAMED else ""),
                column,
            ),
        )


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kind = check_ending(path)
    if kind == ".jsonl":
        yield from files.read_jsonl(path)
    elif kind == ".csv":
        with files.open_text(path) as text:
            yield from _csv_rows(path, text)
    else:
        yield from _parquet_rows(path)


def check_ending(path: Path) -> str:
    """The file's kind by its name. Raises UserError for one that cannot be read."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind not in KINDS:
        raise UserError(
            f"{path}: has the ending {path.suffix!r}. Expected .jsonl, .csv or .parquet, each also .gz."
        )
    return kind


def _csv_rows(path: Path, text: TextIO) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(_MAX_FIELD)
    reader = csv.DictReader(text)
    try:
        if twice := [name for name, n in Counter(reader.fieldnames or ()).items() if n > 1]:
            raise UserError(f"{path}: has the column {twice[0]!r} twice. Expected each name once.")
        yield from ((f"{path}:{reader.line_num}", row) for row in reader)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: cannot be read as CSV ({error}).") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow. Install it with: pip install pyarrow"
        ) from None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
            rows = parquet.read_table(io.BytesIO(raw.read())).to_pylist()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None
    yield from ((f"{path}: row {i}", row) for i, row in enumerate(rows, start=1))


def _parse(place: str, row: Mapping[str, Any], columns: Mapping[str, str | None]) -> Battle:
    values = {}
    for name in (*REQUIRED, *OPTIONAL):
        column = columns.get(name)
        value = row.get(column) if column else None
        if _is_missing(value):
            if name in REQUIRED or (_must_be_there(name, column) and column not in row):
                raise UserError(_absent(place, row, name, column))
            continue
        values[name] = sys.intern(str(value))  # few names in many rows
    words = {word: word for word in WINNERS} | {
        columns["model_a"]: "model_a",
        columns["model_b"]: "model_b",
    }
    for name in ("verdict_ab", "verdict_ba"):
        if name in values:
            if values[name] not in words:
                raise UserError(
                    f"{place}: {name} is {values[name]!r}. Expected one of {', '.join(map(str, words))}."
                )
            values[name] = words[values[name]]
    values["winner"] = _winner(place, values, words)
    _check_orders(place, values)
    if values["model_a"] == values["model_b"]:
        raise UserError(
            f"{place}: {values['model_a']!r} battles itself. Expected two different models."
        )
    return Battle(**values, equal_answers=str(row.get("equal_answers")).lower() == "true")


def _check_orders(place: str, values: Mapping[str, str]) -> None:
    """Raise UserError for a winner that the two orders do not name: Elo would play it, Bradley-Terry would not."""
    ab, ba = (values.get(name) for name in ("verdict_ab", "verdict_ba"))
    if ab is None or ba is None:
        return
    both = ab if ab == ba else "tie"
    if both != values["winner"] and not (
        both.startswith("tie") and values["winner"].startswith("tie")
    ):
        raise UserError(
            f"{place}: winner is {values['winner']!r}, verdict_ab is {ab!r} and verdict_ba is {ba!r}. Expected "
            f"{both!r}: what both orders say, or a tie where they do not agree."
        )


def _winner(place: str, values: Mapping[str, str], words: Mapping[str | None, str]) -> str:
    """One of WINNERS, by a word for it or by the winner's name."""
    found, a, b = values["winner"], values["model_a"], values["model_b"]
    said, named = words.get(found), "model_a" if found == a else "model_b" if found == b else None
    has_orders = (
        "verdict_ab" in values and "verdict_ba" in values
    )  # which are words, and say the same
    if said and named and said != named and not has_orders:
        raise _AmbiguousError(
            f"{place}: winner is {found!r}, which is the name of {named} and the word for {said}. Rename the model."
        )
    if not (winner := said or named):
        expected = f"{', '.join(map(str, words))}, {a!r} or {b!r}"
        raise UserError(f"{place}: winner is {found!r}. Expected one of {expected}.")
    return winner


def _lacks_a_column(path: Path, columns: Mapping[str, str | None]) -> bool:
    """Whether no row of the file has a column that every row must have."""
    lacking = {column for name, column in columns.items() if _must_be_there(name, column)}
    for _, row in _rows(path):
        lacking -= row.keys()
        if not lacking:
            return False
    return True


def _must_be_there(name: str, column: str | None) -> bool:
    """A column that is asked for by its name must be there, even if it may be empty."""
    return name in REQUIRED or (column is not None and column != name)


def _is_missing(value: Any) -> bool:
    """NaN is what some programs write for nothing."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _absent(place: str, row: Mapping[str, Any], name: str, column: str | None) -> str:
    if column in row:
        return f"{place}: column {column!r} is empty. Expected {'a winner' if name == 'winner' else 'a model'}."
    return f"{place}: has no column {column!r} (found {_names(row)}). Name it with battles_columns.{name}=COLUMN."


def _names(row: Mapping[str, Any]) -> str:
    """Of the columns, in quotes: a space may be what is wrong with one."""
    return ", ".join(map(repr, row))


def models(battles: Sequence[Battle]) -> tuple[str, ...]:
    """The models that take part, sorted."""
    return tuple(sorted(set(_sides(battles))))


def n_battles(battles: Sequence[Battle]) -> Counter[str]:
    return Counter(_sides(battles))


def n_prompts(battles: Sequence[Battle]) -> int:
    """How many there are; a battle that names none has one of its own."""
    named = Counter(battle.question_id for battle in battles)
    return len(named) if None not in named else len(named) - 1 + named[None]


def _sides(battles: Sequence[Battle]) -> Iterator[str]:
    return itertools.chain(map(attrgetter("model_a"), battles), map(attrgetter("model_b"), battles))
