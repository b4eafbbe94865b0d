"""Files of battles: the rows of any format become battles, checked and counted."""

from __future__ import annotations

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

from elo_exp.arrays import Index
from elo_exp.data import formats, tables
from elo_exp.data.battles import Battles, Codes
from elo_exp.data.formats import INVALID, BattlesFormat, Format, MalformedError
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
_MANY = 20  # rows, of which a model with a single one may be a slip

RowAt = Callable[[int], tuple[str, Row]]  # place and row by number


class _NoColumnError(MalformedError):
    """The row lacks a column, as all of its file may."""


class _AmbiguousError(MalformedError):
    """The winner may be read in two ways. Other rows may be, too, so that none may be dropped."""


class _Nested(str):
    """The text of a list or an object: no name."""

    __repr__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class BattlesFile:
    """The battles of a file, and the manifest's row of it: file, format, counts, what is assumed.

    The counts are of rows by what became of them: used, tied among these, invalid (the judge gave
    no verdict), filtered out, dropped (malformed).
    """

    battles: Battles
    facts: Mapping[str, Any]


def recognise(
    path: Path, columns: Mapping[str, str | None], name: str | None = None
) -> Format:
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
    chosen: Format | None = None,
) -> BattlesFile:
    """Read the battles of a file, in file order, and say in a line what was read.

    columns   our field name -> the file's column. A winner may be one of WINNERS, the name of the
              winner's column, or its own, which a verdict of one order may not: there A and B are a
              judge's words for positions
    filters   our field name -> the value to keep
    on_error  stop: raise for the first malformed row; drop: leave malformed rows out and count them
    chosen    the format; None: recognise it
    Raises UserError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result.
    """
    chosen = chosen or recognise(path, columns)
    if not isinstance(chosen, BattlesFormat):
        raise UserError(f"{path}: is {chosen.name}, which holds no battles.")
    fields = {name: column for name in NAMES if (column := columns.get(name))}
    for name, column in chosen.columns.items():
        if columns.get(name) == (None if name in UNREAD else name):
            fields[name] = column
    counts: Counter[str] = Counter(used=0, tied=0, invalid=0)
    rows, row, questions, question = _read_distinct(path, chosen, fields)
    wanted = {name: value for name, value in filters.items() if value is not None}
    parsed = [_parse(values, fields, wanted) for values in rows]
    fates = [
        one
        if isinstance(one, str)
        else "used"
        if isinstance(one, Battle)
        else "dropped"
        for one in parsed
    ]
    fate = np.array(fates, dtype=object)[row]
    counts.update(fate.tolist())

    def row_at(number: int) -> tuple[str, Row]:
        again = formats.rows_of_battles(path, chosen, list(fields.values()))
        return next(itertools.islice(again, number, None))

    first = ""
    if counts["dropped"]:
        first = _first_malformed(row_at, parsed, row, on_error)
        message = "%s: dropped %d malformed rows; the first: %s"
        logger.warning(message, path, counts["dropped"], first)
    kept = np.flatnonzero(fate == "used")
    if not len(kept):
        names = " and ".join(f"{name}={value}" for name, value in wanted.items())
        others = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        raise UserError(
            f"{path}: no battle is left{names and f' with {names}'} "
            f"({others or 'it has no rows'}{first and f': {first}'})."
        )
    is_battle = [isinstance(battle, Battle) for battle in parsed]
    distinct = Battles.from_rows([b for b in parsed if isinstance(b, Battle)])
    number = np.cumsum(is_battle) - 1  # among the distinct rows that are battles
    battles = distinct.select(number[row[kept]]).compact()
    battles = battles.with_questions(questions, question[kept])
    _check(path, battles, fields, rows, row_at)
    if chosen.judged:
        _refuse_repeated(battles, kept, row_at)
    if counts["invalid"] > len(battles):
        raise UserError(
            f"{path}: read as {chosen.name}, {counts['invalid']} rows have no verdict and "
            f"{len(battles)} have one. Expected most to have one; is the format the right one?"
        )
    in_one_order = (battles.verdict_ab < 0) != (battles.verdict_ba < 0)
    counts["tied"] = int(battles.is_tie().sum())
    if in_one_order.any():
        counts["in one order"] = int(in_one_order.sum())
    counted = ", ".join(f"{n} {word}" for word, n in counts.items())
    assumed = f"; assumed: {chosen.assumes}" if chosen.assumes else ""
    logger.info("%s: read as %s: %s%s", path, chosen.name, counted, assumed)
    facts = {"file": str(path), "format": chosen.name, "rows": dict(counts)}
    return BattlesFile(battles=battles, facts={**facts, "assumed": chosen.assumes})


def _read_distinct(
    path: Path,
    chosen: BattlesFormat,
    fields: Mapping[str, str],
) -> tuple[list[dict[Any, Any]], Codes, list[str | None], Codes]:
    """Read what battles are made of: of many battles, few differ but for the question.

    Returns the distinct rows by our field names, without the question and with ABSENT for a column
    that a row lacks; the number (n,) of each row among them; the distinct questions, None for one
    that is missing; and the number (n,) of each row's question.
    """
    always = ("equal_answers", "style_a", "style_b", MalformedError)
    columns: dict[Any, Any] = {"dimension": "dimension", **fields}
    columns |= dict(zip(always, always, strict=True))
    question_column = columns.pop("question_id", None)
    names = [*columns.values(), question_column]
    blocks = tables.blocks(path, names)
    if chosen.row:
        mapped = formats.rows_of_battles(path, chosen, names)
        blocks = tables.in_blocks(values for _, values in mapped)
    row_number, question_number = (
        defaultdict[Any, int](itertools.count().__next__) for _ in range(2)
    )
    row, question = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for block in blocks:
        present = set[Any]().union(*block)
        nothing = [ABSENT] * len(block)
        *values, questions = (
            [one.get(name, ABSENT) for one in block] if name in present else nothing
            for name in names
        )
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


def _parse(
    row: Row, fields: Mapping[str, str], wanted: Mapping[str, str]
) -> Battle | MalformedError | str:
    """The battle of a row; or what is wrong with it, or why it does not count."""
    if (malformed := row[MalformedError]) is not ABSENT:
        return MalformedError(malformed)
    try:
        battle = "invalid" if row.get("winner") is INVALID else _battle(row, fields)
    except MalformedError as error:
        return error
    is_wanted = all(tables.text(row.get(name)) == wanted[name] for name in wanted)
    return battle if is_wanted else "filtered out"


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
    if text is None:
        return None
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0.0 <= score <= 1.0 or formats.winner_of(score) not in winner:
        raise MalformedError(
            f"score is {text!r} and winner is {winner!r}. Expected model_a's share, from 0 to 1, "
            "above 0.5 where it wins."
        )
    return score


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
    row_at: RowAt,
    parsed: Sequence[Battle | MalformedError | str],
    row: Codes,
    on_error: str,
) -> str:
    """Describe the first malformed row. Raises UserError where it may not be dropped."""
    malformed = [i for i, p in enumerate(parsed) if isinstance(p, MalformedError)]
    ambiguous = [i for i in malformed if isinstance(parsed[i], _AmbiguousError)]
    index = int(np.argmax(np.isin(row, ambiguous or malformed)))
    error = parsed[row[index]]
    place, values = row_at(index)
    sentence = f"{place}: {error}"
    if isinstance(error, _NoColumnError):
        sentence += f" The row has {', '.join(map(repr, values))}."
    if ambiguous:
        raise UserError(sentence)
    if on_error == "stop":
        hint = " battles_on_error=drop leaves such rows out."
        raise UserError(sentence + (hint if len(malformed) < len(parsed) else ""))
    return sentence


def _refuse_repeated(battles: Battles, row: Index, row_at: RowAt) -> None:
    """Raise UserError for a second verdict of one judge on one comparison; row (n,) numbers rows."""
    models = np.sort([battles.model_a, battles.model_b], axis=0)
    key = np.vstack([models, battles.question, battles.dimension, battles.judge])
    _, first = np.unique(key, axis=1, return_index=True)
    repeated = np.setdiff1d(np.flatnonzero(battles.judge >= 0), first)
    if len(repeated):
        place, _ = row_at(int(row[repeated[0]]))
        raise UserError(
            f"{place}: stands twice: judge, models and question are those of a row before. Remove "
            "one of them."
        )


def _check(
    path: Path,
    battles: Battles,
    fields: Mapping[str, str],
    rows: Iterable[Row],
    row_at: RowAt,
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
    rare = np.flatnonzero(battles.n_battles() == 1)
    if len(rare) and len(battles) >= _MANY:
        slips = _some([repr(battles.models[i]) for i in rare])
        logger.warning("%s: in one row alone: %s. Check the name.", path, slips)
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
        _, row = row_at(0)
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
