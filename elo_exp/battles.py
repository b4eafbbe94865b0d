"""Battles: the atom of every rating. Judgments become battles, and battles files are read and checked."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import logging
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TextIO

from elo_exp import files
from elo_exp.pairs import outcome
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BattlesFile:
    """What was read of a battles file."""

    battles: list[Battle]
    n_dropped: int  # malformed rows
    n_filtered: int  # rows that a filter left out


def read(
    path: Path, *, columns: Mapping[str, str | None], filters: Mapping[str, str | None], on_error: str = "stop"
) -> BattlesFile:
    """The battles of a .jsonl, .csv or .parquet file, each also .gz, in file order.

    columns   our field name -> the file's column. A winner may be one of WINNERS, or the name of the winner's column
    filters   our field name -> the value to keep
    on_error  stop: UserError naming file, line, what was found and what was expected; drop: drop and count
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
        except UserError as error:
            if on_error == "stop":
                raise UserError(f"{error} battles_on_error=drop leaves such rows out.") from None
            dropped.append(str(error))
            continue
        if all(getattr(battle, name) == value for name, value in kept.items()):
            battles.append(battle)
        else:
            filtered += 1
    if dropped:
        logger.warning("%s: dropped %d malformed rows; the first: %s", path, len(dropped), dropped[0])
    if len(pooled) > 1:
        logger.info(
            "%d dimensions are pooled (%s); battles_columns.dimension=dimension rates each", len(pooled), sorted(pooled)
        )
    if not battles:
        wanted = " and ".join(f"{name}={value}" for name, value in kept.items())
        counts = f"{filtered} filtered out" + (f", {len(dropped)} dropped: {dropped[0]}" if dropped else "")
        raise UserError(f"{path}: no battle is left{f' with {wanted}' if wanted else ''} ({counts}).")
    if all(battle.question_id is None for battle in battles):
        found = ", ".join(str(key) for key in row)
        logger.warning(
            "%s: no battle names its question (found %s), so each counts as a prompt of its own. If a column does, say "
            "battles_columns.question_id=COLUMN.",
            *(path, found),
        )
    _warn_of_judges(path, battles, columns.get("judge_model"))
    return BattlesFile(battles=battles, n_dropped=len(dropped), n_filtered=filtered)


def _warn_of_judges(path: Path, battles: Sequence[Battle], column: str | None) -> None:
    """Where the battles of one dimension are those of several judges."""
    heard = {(battle.dimension, battle.judge_model) for battle in battles if battle.judge_model}
    if len(heard) > len({dimension for dimension, _ in heard}):
        judges = sorted({str(judge) for _, judge in heard})
        logger.warning(
            "%s: the verdicts of %d judges are pooled (%s). battles_columns.dimension=%s rates each apart, "
            "battles_filter.judge_model=NAME one alone.",
            *(path, len(judges), ", ".join(judges[:_NAMED]) + (", ..." if len(judges) > _NAMED else ""), column),
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
        raise UserError(f"{path}: has the ending {path.suffix!r}. Expected .jsonl, .csv or .parquet, each also .gz.")
    return kind


def _csv_rows(path: Path, text: TextIO) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(_MAX_FIELD)
    reader = csv.DictReader(text)
    try:
        yield from ((f"{path}:{reader.line_num}", row) for row in reader)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: cannot be read as CSV ({error}).") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path}: reading parquet needs pyarrow. Install it with: pip install pyarrow") from None
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
            renamed = column is not None and column != name  # asked for by its name, so it must be there
            if name in REQUIRED or (renamed and column not in row):
                raise UserError(_absent(place, row, name, column))
            continue
        values[name] = str(value)
    by_column = {columns["model_a"]: "model_a", columns["model_b"]: "model_b"}
    for name in ("winner", "verdict_ab", "verdict_ba"):
        if name not in values:
            continue
        values[name] = by_column.get(values[name], values[name])
        if values[name] not in WINNERS:
            raise UserError(f"{place}: {name} is {values[name]!r}. Expected one of {', '.join(WINNERS)}.")
    if values["model_a"] == values["model_b"]:
        raise UserError(f"{place}: {values['model_a']!r} battles itself. Expected two different models.")
    return Battle(**values, equal_answers=str(row.get("equal_answers")).lower() == "true")


def _is_missing(value: Any) -> bool:
    """NaN is what some programs write for nothing."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _absent(place: str, row: Mapping[str, Any], name: str, column: str | None) -> str:
    if column in row:
        return f"{place}: column {column!r} is empty. Expected {'a winner' if name == 'winner' else 'a model'}."
    found = ", ".join(str(key) for key in row)
    return f"{place}: has no column {column!r} (found {found}). Name it with battles_columns.{name}=COLUMN."


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
