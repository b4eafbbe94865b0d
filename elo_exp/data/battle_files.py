"""Files of battles: the rows of any format become battles, checked and counted."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.arrays import Index, Mask
from elo_exp.data import formats, tables
from elo_exp.data.battles import Battles, Codes
from elo_exp.data.formats import INVALID, BattlesFormat, MalformedError
from elo_exp.data.formats.battles import FLAT
from elo_exp.data.style import FEATURES
from elo_exp.data.tables import ABSENT, Row
from elo_exp.records import WINNERS, Battle, UserError

logger = logging.getLogger(__name__)

REQUIRED = ("model_a", "model_b", "winner")
UNREAD = ("dimension", "score")  # unless the format or the user names their columns
NAMES = (
    *REQUIRED,
    "source",
    "question_id",
    "judge_model",
    "verdict_ab",
    "verdict_ba",
    *UNREAD,
)
_MAX_MODELS = 3000  # beyond it, the column is not one of models
_MAX_NAMED = 5  # names in a warning

Places = Callable[
    [int], tuple[str, Row]
]  # the place of a row by its number, and the row


class _NoColumnError(MalformedError):
    """The row lacks a column, as all of its file may."""


class _AmbiguousError(MalformedError):
    """The winner may be read in two ways. Other rows may be, too, so that none may be dropped."""


class _InvalidError(MalformedError):
    """The judge gave no verdict."""


class _Nested(str):
    """The text of a list or an object: no name."""

    __repr__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class BattlesFile:
    """What was read of a file of battles."""

    path: Path
    format: str
    battles: Battles
    n_rows: int
    n_invalid: int  # rows whose judge gave no verdict
    n_filtered: int  # rows that a filter left out
    n_dropped: int  # malformed rows
    remarks: Sequence[str]  # what was remarkable or assumed

    def facts(self) -> dict[str, Any]:
        """Return all of it but the battles, for the manifest."""
        return {
            "file": str(self.path),
            "format": self.format,
            "n_rows": self.n_rows,
            "n_used": len(self.battles),
            "n_tied": int(self.battles.is_tie().sum()),
            "n_invalid": self.n_invalid,
            "n_filtered": self.n_filtered,
            "n_dropped": self.n_dropped,
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        n = self.facts()
        counts = f"{n['n_used']} of {self.n_rows} rows used, {n['n_tied']} tied"
        counts += f", {self.n_invalid} invalid"
        counts += f", {self.n_filtered} filtered out" if self.n_filtered else ""
        counts += f", {self.n_dropped} dropped" if self.n_dropped else ""
        return f"{self.path}: read as {'; '.join([f'{self.format}: {counts}', *self.remarks])}"


def recognise(
    path: Path, *, columns: Mapping[str, str | None], name: str | None = None
) -> formats.Format:
    """Return a file's format; where columns of models or winner are named by hand, a plain table."""
    if name is None and any(columns.get(field) != field for field in REQUIRED):
        return FLAT
    return formats.recognise(path, name)


def read(
    path: Path,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    on_error: str = "stop",
    format_name: str | None = None,
) -> BattlesFile:
    """Read the battles of a file of any format, in file order.

    columns      our field name -> the file's column. A winner may be one of WINNERS, the name of
                 the winner's column, or its own, which a verdict of one order may not: there A and
                 B are a judge's words for positions
    filters      our field name -> the value to keep
    on_error     stop: raise for the first malformed row; drop: leave malformed rows out, counted
    format_name  None: recognise it
    Raises UserError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result.
    """
    chosen = recognise(path, columns=columns, name=format_name)
    if not isinstance(chosen, BattlesFormat):
        raise UserError(f"{path}: is {chosen.name}, which holds no battles.")
    fields = {name: column for name in NAMES if (column := columns.get(name))}
    for name, column in chosen.columns.items():
        if columns.get(name) == (None if name in UNREAD else name):
            fields[name] = column
    remarks: Counter[str] = Counter()
    rows, row, questions, question = _read_distinct(path, chosen, fields, remarks)
    parsed = [_parse(values, fields) for values in rows]
    wanted = {name: value for name, value in filters.items() if value is not None}
    is_wanted = _mask(
        all(tables.text(values.get(name)) == wanted[name] for name in wanted)
        for values in rows
    )
    is_battle = _mask(isinstance(p, Battle) for p in parsed)
    is_invalid = _mask(isinstance(p, _InvalidError) for p in parsed)
    kept = (is_battle & is_wanted)[row]
    n_invalid = int((is_invalid & is_wanted)[row].sum())
    n_dropped = int((~is_battle & ~is_invalid)[row].sum())
    n_filtered = len(kept) - n_dropped - n_invalid - int(kept.sum())
    places = functools.partial(_place, path, chosen, list(fields.values()))
    first = _first_malformed(places, parsed, row, on_error) if n_dropped else ""
    if not kept.any():
        names = " and ".join(f"{name}={value}" for name, value in wanted.items())
        invalid = f", {n_invalid} invalid" if n_invalid else ""
        dropped = f", {n_dropped} dropped: {first}" if first else ""
        raise UserError(
            f"{path}: no battle is left{names and f' with {names}'} "
            f"({n_filtered} filtered out{invalid}{dropped})."
        )
    if first:
        logger.warning(
            "%s: dropped %d malformed rows; the first: %s", path, n_dropped, first
        )
    distinct = Battles.from_rows([p for p in parsed if isinstance(p, Battle)])
    number = np.cumsum(is_battle) - 1  # among the distinct rows that are battles
    battles = distinct.select(number[row[kept]]).compact()
    battles = battles.with_questions(questions, question[kept])
    _check(path, battles, fields, rows, places)
    if chosen.unique:
        _refuse_repeated(battles, np.flatnonzero(kept), places)
    assumed = [f"assumed: {chosen.assumes}"] if chosen.assumes else []
    found = BattlesFile(
        path=path,
        format=chosen.name,
        battles=battles,
        n_rows=len(row),
        n_invalid=n_invalid,
        n_filtered=n_filtered,
        n_dropped=n_dropped,
        remarks=[*(f"{n} {remark}" for remark, n in remarks.items()), *assumed],
    )
    logger.info("%s", found)
    return found


def _mask(values: Iterable[bool]) -> Mask:
    return np.fromiter(values, np.bool_)


def _place(
    path: Path, chosen: BattlesFormat, columns: Sequence[str], number: int
) -> tuple[str, Row]:
    rows = formats.rows_of_battles(path, chosen, columns, Counter())
    return next(itertools.islice(rows, number, None))


def _read_distinct(
    path: Path,
    chosen: BattlesFormat,
    fields: Mapping[str, str],
    remarks: Counter[str],
) -> tuple[list[dict[Any, Any]], Codes, list[str | None], Codes]:
    """Read what battles are made of: of many battles, few differ but for the question.

    Returns the distinct rows by our field names, without the question and with ABSENT for a column
    that a row lacks; the number (n,) of each row among them; the distinct questions, None for one
    that is missing; and the number (n,) of each row's question.
    """
    always = ("equal_answers", "style_a", "style_b", MalformedError)
    columns: dict[Any, Any] = {"dimension": "dimension", **fields}
    columns |= {name: name for name in always}
    question_column = columns.pop("question_id", None)
    names = [*columns.values(), question_column]
    if chosen.row is None:
        blocks = tables.blocks(path, names)
    else:
        mapped = formats.rows_of_battles(path, chosen, names, remarks)
        every = (values for _, values in mapped)
        blocks = tables.in_columns(tables.in_blocks(every), names)
    row_number, question_number = (
        defaultdict[Any, int](itertools.count().__next__) for _ in range(2)
    )
    row, question = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for block in blocks:
        *values, questions = block
        row.append(_numbered(list(zip(*values, strict=True)), row_number))
        question.append(_numbered(questions, question_number))
    return (
        [dict(zip(columns, key, strict=True)) for key in row_number],
        np.concatenate(row),
        [tables.text(name) for name in question_number],
        np.concatenate(question),
    )


def _numbered(values: Sequence[Any], number: Mapping[Any, int]) -> Codes:
    try:
        return np.fromiter(map(number.__getitem__, values), np.int32, len(values))
    except TypeError:
        return np.array([number[_hashable(value)] for value in values], dtype=np.int32)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    return _Nested(value) if isinstance(value, list | dict) else value


# One row


def _parse(row: Row, fields: Mapping[str, str]) -> Battle | MalformedError:
    if (malformed := row[MalformedError]) is not ABSENT:
        return MalformedError(malformed)
    if row.get("winner") is INVALID:
        return _InvalidError()
    try:
        return _battle(row, fields)
    except MalformedError as error:
        return error


def _battle(row: Row, fields: Mapping[str, str]) -> Battle:
    """A row without its question. Raises MalformedError."""
    for name, column in fields.items():
        is_chosen_by_name = name in REQUIRED or column != name
        if row.get(name) is ABSENT and is_chosen_by_name:
            raise _NoColumnError(
                f"has no column {column!r}. Name it with battles_columns.{name}=COLUMN."
            )
    text = {name: tables.text(row.get(name)) for name in fields}
    for name in REQUIRED:
        value = row[name]
        if text[name] is None:
            noun = "winner" if name == "winner" else "model"
            raise MalformedError(
                f"column {fields[name]!r} is empty. Expected a {noun}."
            )
        controls = any(unicodedata.category(c) == "Cc" for c in str(value))
        if controls or isinstance(value, _Nested):
            raise MalformedError(
                f"{name} is {value!r}. Expected a name: text without control characters."
            )
    model_a, model_b, result = (str(text[name]) for name in REQUIRED)
    if model_a == model_b:
        raise MalformedError(
            f"{model_a!r} battles itself. Expected two different models."
        )
    words = {word: word for word in WINNERS}
    words |= {fields["model_a"]: "model_a", fields["model_b"]: "model_b"}
    one_of = f"Expected one of {', '.join(words)}"
    words["both_bad"] = "tie (bothbad)"  # LMArena's, of 2025
    for name in ("verdict_ab", "verdict_ba"):
        if text.get(name) is not None and text[name] not in words:
            raise MalformedError(f"{name} is {text[name]!r}. {one_of}.")
    ab, ba = (words.get(text.get(name) or "") for name in ("verdict_ab", "verdict_ba"))
    by_word = words.get(result)
    by_name = {model_a: "model_a", model_b: "model_b"}.get(result)
    has_both_orders = ab is not None and ba is not None
    if by_word and by_name and by_word != by_name and not has_both_orders:
        raise _AmbiguousError(
            f"winner is {result!r}, which is the name of one model and the word for another "
            "result. Rename the model."
        )
    winner = by_word or by_name
    if winner is None:
        raise MalformedError(
            f"winner is {result!r}. {one_of}, {model_a!r} or {model_b!r}."
        )
    score = _score(text.get("score"), winner)
    reconciled = str(ab if ab == ba else "tie")
    # One tie is like the other.
    if (
        score is None
        and has_both_orders
        and reconciled.split(maxsplit=1)[0] != winner.split()[0]
    ):
        raise MalformedError(
            f"winner is {result!r}, verdict_ab is {text['verdict_ab']!r} and verdict_ba is "
            f"{text['verdict_ba']!r}. Expected the verdict of both orders, or a tie where they disagree."
        )
    return Battle(
        model_a=model_a,
        model_b=model_b,
        winner=winner,
        source=text.get("source") or "human",
        judge_model=text.get("judge_model"),
        dimension=text.get("dimension"),
        verdict_ab=ab,
        verdict_ba=ba,
        score=score,
        equal_answers=str(row["equal_answers"]).lower() == "true",
        style_a=_style(row["style_a"]),
        style_b=_style(row["style_b"]),
    )


def _score(text: str | None, winner: str) -> float | None:
    """The share of model_a; None where it is what the winner says."""
    if text is None:
        return None
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0.0 <= score <= 1.0 or formats.winner_of(score) != winner[:7].rstrip(" ("):
        raise MalformedError(
            f"score is {text!r} and winner is {winner!r}. Expected model_a's share, from 0 to 1, "
            "above 0.5 where it wins."
        )
    return None if score in (0.0, 0.5, 1.0) else score


def _style(value: Any) -> tuple[int, ...] | None:
    if (text := tables.text(value)) is None:
        return None
    try:
        counts = tuple(map(int, json.loads(text)))
    except (TypeError, ValueError):
        counts = ()
    if len(counts) != len(FEATURES):
        raise MalformedError(
            f"style is {text!r}. Expected a list of counts: {', '.join(FEATURES)}."
        )
    return counts


def _first_malformed(
    places: Places, parsed: Sequence[Battle | MalformedError], row: Codes, on_error: str
) -> str:
    """Describe the first malformed row. Raises UserError where it may not be dropped."""
    malformed = [
        i for i, p in enumerate(parsed) if not isinstance(p, Battle | _InvalidError)
    ]
    ambiguous = [i for i in malformed if isinstance(parsed[i], _AmbiguousError)]
    index = int(np.argmax(np.isin(row, ambiguous or malformed)))
    error = parsed[row[index]]
    place, values = places(index)
    sentence = f"{place}: {error}"
    if isinstance(error, _NoColumnError):
        sentence += f" The row has {', '.join(map(repr, values))}."
    if ambiguous:
        raise UserError(sentence)
    if on_error == "stop":
        hint = " battles_on_error=drop leaves such rows out."
        raise UserError(sentence + (hint if len(malformed) < len(parsed) else ""))
    return sentence


def _refuse_repeated(battles: Battles, row: Index, places: Places) -> None:
    """Raise UserError for a second verdict of one judge on one comparison; row (n,) numbers rows."""
    low = np.minimum(battles.model_a, battles.model_b).astype(np.int64)
    pair = low * len(battles.models) + battles.model_a + battles.model_b - low
    by_question = pair * (battles.question.max() + 1) + battles.question
    by_dimension = by_question * (len(battles.dimensions) + 1) + battles.dimension + 1
    key = by_dimension * len(battles.judges) + battles.judge
    is_judged = np.flatnonzero(battles.judge >= 0)
    _, first = np.unique(key[is_judged], return_index=True)
    repeated = np.delete(is_judged, first)
    if len(repeated):
        place, _ = places(int(row[repeated[0]]))
        raise UserError(
            f"{place}: stands twice: judge, models and question are those of a row before. Remove "
            "one; or battles_format=battles counts both, if the file has its columns."
        )


def _check(
    path: Path,
    battles: Battles,
    fields: Mapping[str, str],
    rows: Iterable[Row],
    places: Places,
) -> None:
    """Warn of what looks wrong. Raises UserError for a column that is not one of models."""
    if len(battles.models) > _MAX_MODELS:
        raise UserError(
            f"{path}: found {len(battles.models):,} models. Expected at most {_MAX_MODELS:,}: are "
            f"{fields['model_a']!r} and {fields['model_b']!r} the right columns?"
        )
    alike = defaultdict(list)
    for name in battles.models:
        alike[unicodedata.normalize("NFKC", name).casefold().strip()].append(repr(name))
    for names in alike.values():
        if len(names) > 1:
            logger.warning(
                "%s: the models %s look alike and are rated apart.", path, _some(names)
            )
    if "dimension" not in fields:
        found = {tables.text(row["dimension"]) for row in rows} - {None}
        if len(found) > 1:
            logger.info(
                "%d dimensions are pooled (%s); battles_columns.dimension=dimension rates each",
                len(found),
                ", ".join(sorted(map(str, found))),
            )
    lacking = int((battles.question >= len(battles.questions)).sum())
    if lacking == len(battles):
        _, row = places(0)
        logger.warning(
            "%s: no battle names its question (found %s), so each counts as a prompt of its own. "
            "If a column does, set battles_columns.question_id=COLUMN.",
            path,
            ", ".join(map(repr, row)),
        )
    elif lacking:
        logger.warning(
            "%s: %d of %d battles name no question, and each of them counts as a prompt of its "
            "own.",
            path,
            lacking,
            len(battles),
        )
    parts = battles.by_dimension().values() if len(battles.judges) > 1 else ()
    if any(len(np.unique(some.judge[some.judge >= 0])) > 1 for some in parts):
        present = np.unique(battles.judge[battles.judge >= 0])
        judges = sorted(battles.judges[code] for code in present)
        logger.warning(
            "%s: the verdicts of %d judges are pooled (%s). battles_columns.dimension=%s rates "
            "each apart, battles_filter.judge_model=NAME one alone.",
            path,
            len(judges),
            _some(judges),
            fields["judge_model"],
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
