"""Files of battles: the rows of any format become battles, checked and counted."""

import itertools
import json
import logging
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.data import formats, tables
from elo_exp.data.battles import Battles, Codes
from elo_exp.data.formats import (
    INVALID,
    WORDS,
    BattlesFormat,
    Format,
    MalformedError,
    Rows,
)
from elo_exp.data.formats.battles import FLAT
from elo_exp.data.style import FEATURES
from elo_exp.data.tables import Row
from elo_exp.records import Battle, UserError

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
_ALSO = (
    "dimension",
    "equal_answers",
    "style_a",
    "style_b",
    MalformedError,
)  # read, too
_BLOCK = 100  # rows at a time, which stay in the processor's cache
_MAX_MODELS = 3000  # beyond it, the column is not one of models
_MAX_NAMED = 5  # names in a warning
_MANY = 20  # rows, of which a model with a single one may be a slip


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
    wanted = {name: value for name, value in filters.items() if value is not None}
    file = _File(path, chosen, columns, wanted)
    rows, row, questions, question = file.distinct()
    parsed = [file.parse(values) for values in rows]
    fates = ["used" if isinstance(one, Battle) else one[0] for one in parsed]
    fate = np.array(fates, dtype=object)[row]
    counts = Counter[str](fate.tolist())
    first = ""
    if counts["dropped"]:
        index = int(np.argmax(fate == "dropped"))
        first = f"{file.place(index)}: {parsed[row[index]][1]}"
        if on_error == "stop":
            is_one_of_all = fates.count("dropped") < len(fates)
            hint = " battles_on_error=drop leaves such rows out."
            raise UserError(first + (hint if is_one_of_all else ""))
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
    number = np.cumsum(np.array(fates) == "used") - 1  # of a distinct row among battles
    distinct = Battles.from_rows([one for one in parsed if isinstance(one, Battle)])
    battles = distinct.select(number[row[kept]]).compact()
    battles = battles.with_questions(questions, question[kept])
    if chosen.judged:
        models = np.sort([battles.model_a, battles.model_b], axis=0)
        key = [*models, battles.question, battles.dimension, battles.judge]
        _, once = np.unique(key, axis=1, return_index=True)
        twice = np.setdiff1d(np.flatnonzero(battles.judge >= 0), once)
        if len(twice):
            raise UserError(
                f"{file.place(kept[twice[0]])}: stands twice: judge, models and question are those "
                "of a row before. Remove one of them."
            )
    if counts["invalid"] > len(battles):
        raise UserError(
            f"{path}: read as {chosen.name}, {counts['invalid']} rows have no verdict and "
            f"{len(battles)} have one. Expected most to have one; is the format the right one?"
        )
    file.warn(battles, rows)
    in_one_order = int(((battles.verdict_ab < 0) != (battles.verdict_ba < 0)).sum())
    told = {
        "used": len(battles),
        "tied": int(battles.is_tie().sum()),
        "invalid": counts["invalid"],
        **{word: counts[word] for word in ("filtered out", "dropped") if counts[word]},
        **({"in one order": in_one_order} if in_one_order else {}),
    }
    return BattlesFile(battles=battles, facts=formats.facts(path, chosen, told))


class _File:
    """The rows of a file, and the columns of our fields."""

    def __init__(
        self,
        path: Path,
        chosen: BattlesFormat,
        columns: Mapping[str, str | None],
        wanted: Mapping[str, str],
    ) -> None:
        """Find the column of each field. Raises UserError for one that is not there."""
        self.path, self.format, self.wanted = path, chosen, wanted
        self.fields = {name: column for name in NAMES if (column := columns.get(name))}
        for name, column in chosen.columns.items():
            if columns.get(name) == (None if name in UNREAD else name):
                self.fields[name] = column
        present = tables.keys(path)
        for name, column in self.fields.items():
            is_required = name in REQUIRED and not chosen.row
            is_named = columns.get(name) == column != name
            if (is_required or is_named) and column not in present:
                raise UserError(
                    f"{path}: has no column {column!r} (found {_quoted(present)}). Name it with "
                    f"battles_columns.{name}=COLUMN."
                )

    def rows(self) -> Iterable[tuple[str, Row]]:
        """Iterate over rows with their places, and the fields that their format makes of them."""
        one = self.format
        names = [*one.required, *one.optional, *_ALSO, *self.fields.values()]
        rows: Rows = tables.rows(self.path, names)
        rows = one.join(rows) if one.join else rows
        return ((place, one.read(row)) for place, row in rows) if one.row else rows

    def place(self, index: int) -> str:
        return next(itertools.islice(self.rows(), index, None))[0]

    def distinct(
        self,
    ) -> tuple[list[dict[Any, Any]], Codes, list[str | None], Codes]:
        """Read what battles are made of: of many battles, few differ but for the question.

        Returns the distinct rows by our field names, without the question; the number (n,) of each
        row among them; the distinct questions, None for one that is missing; and the number (n,) of
        each row's question.
        """
        columns: dict[Any, Any] = {name: name for name in _ALSO} | self.fields
        asked = columns.pop("question_id", None)
        counters = [defaultdict[Any, int](itertools.count().__next__) for _ in "rq"]
        numbers = list[int](), list[int]()
        rest = iter(self.rows())
        while block := [row for _, row in itertools.islice(rest, _BLOCK)]:
            present = set[Any]().union(*block)
            values = (
                [row.get(name) for row in block]
                if name in present
                else len(block) * [None]
                for name in columns.values()
            )
            keys: list[list[Any]] = [list(zip(*values, strict=True))]
            keys.append([row.get(asked) for row in block])
            for some, number, key in zip(numbers, counters, keys, strict=True):
                try:
                    some += list(map(number.__getitem__, key))
                except TypeError:
                    # a list or an object, which as text in a tuple is no name
                    some += [number[_hashable(value)] for value in key]
        rows, questions = counters
        return (
            [dict(zip(columns, key, strict=True)) for key in rows],
            np.array(numbers[0], dtype=np.int32),
            [tables.text(name) for name in questions],
            np.array(numbers[1], dtype=np.int32),
        )

    def parse(self, row: Row) -> Battle | tuple[str, str]:
        """Return a battle without its question; or what becomes of the row, and why."""
        try:
            if row[MalformedError]:
                raise MalformedError(row[MalformedError])
            battle = None if row["winner"] is INVALID else self._battle(row)
        except MalformedError as error:
            return "dropped", str(error)
        if any(tables.text(row.get(name)) != self.wanted[name] for name in self.wanted):
            return "filtered out", ""
        return battle or ("invalid", "")

    def _battle(self, row: Row) -> Battle:
        fields = self.fields
        text = {name: tables.text(row.get(name)) for name in NAMES}
        for name in REQUIRED:
            if text[name] is None:
                noun = "winner" if name == "winner" else "model"
                raise MalformedError(
                    f"column {fields[name]!r} is empty. Expected a {noun}."
                )
            controls = any(unicodedata.category(c) == "Cc" for c in str(text[name]))
            if controls or isinstance(row[name], tuple):
                raise MalformedError(
                    f"{name} is {row[name]!r}. Expected a name: text without control characters."
                )
        model_a, model_b, result = (str(text[name]) for name in REQUIRED)
        if model_a == model_b:
            raise MalformedError(
                f"{model_a!r} battles itself. Expected two different models."
            )
        words = {**WORDS, fields["model_a"]: "model_a", fields["model_b"]: "model_b"}
        one_of = f"Expected one of {', '.join(words)}"
        verdicts = [text["verdict_ab"], text["verdict_ba"]]
        for name, verdict in zip(("verdict_ab", "verdict_ba"), verdicts, strict=True):
            if verdict is not None and verdict not in words:
                raise MalformedError(f"{name} is {verdict!r}. {one_of}.")
        ab, ba = (words.get(verdict or "") for verdict in verdicts)
        has_both_orders = ab is not None and ba is not None
        by_word = words.get(result)
        by_name = {model_a: "model_a", model_b: "model_b"}.get(result)
        winner = by_word or by_name
        if by_word and by_name and by_word != by_name and not has_both_orders:
            raise UserError(  # other rows may be read in the other way, so that none can be dropped
                f"{self.path}: winner is {result!r}, which is the name of one model and the word for "
                "another result. Rename the model."
            )
        if winner is None:
            raise MalformedError(
                f"winner is {result!r}. {one_of}, {model_a!r} or {model_b!r}."
            )
        score = _score(text["score"], winner)
        reconciled = "tie" if ab != ba or str(ab).startswith("tie") else ab
        is_reconciled = reconciled == ("tie" if winner.startswith("tie") else winner)
        if has_both_orders and score is None and not is_reconciled:
            raise MalformedError(
                f"winner is {result!r}, verdict_ab is {verdicts[0]!r} and verdict_ba is "
                f"{verdicts[1]!r}. Expected the verdict of both orders, or a tie where they disagree."
            )
        return Battle(
            model_a=model_a,
            model_b=model_b,
            winner=winner,
            source=text["source"] or "human",
            judge_model=text["judge_model"],
            dimension=text["dimension"] if "dimension" in fields else None,
            verdict_ab=ab,
            verdict_ba=ba,
            score=score,
            equal_answers=str(row["equal_answers"]).lower() == "true",
            style_a=_style(row["style_a"]),
            style_b=_style(row["style_b"]),
        )

    def warn(self, battles: Battles, rows: Sequence[Row]) -> None:
        """Warn of what looks wrong. Raises UserError for a column that is not one of models."""
        if len(battles.models) > _MAX_MODELS:
            raise UserError(
                f"{self.path}: found {len(battles.models):,} models. Expected at most {_MAX_MODELS:,}: are "
                f"{self.fields['model_a']!r} and {self.fields['model_b']!r} the right columns?"
            )
        alike = defaultdict(list)
        for name in battles.models:
            alike[unicodedata.normalize("NFKC", name).casefold().strip()].append(name)
        warnings = [
            f"the models {_quoted(names)} look alike and are rated apart."
            for names in alike.values()
            if len(names) > 1
        ]
        rare = np.flatnonzero(battles.n_battles() == 1)
        if len(rare) and len(battles) >= _MANY:
            slips = _quoted(battles.models[i] for i in rare[:_MAX_NAMED])
            warnings.append(f"in one row alone: {slips}. Check the name.")
        lacking = int((battles.question >= len(battles.questions)).sum())
        if lacking:
            some = f"{lacking} of {len(battles)} battles name no question"
            warnings.append(
                f"{some}, and each of them counts as a prompt of its own. If a column names it, set "
                "battles_columns.question_id=COLUMN."
            )
        dimensions = {tables.text(row["dimension"]) for row in rows} - {None}
        if len(dimensions) > 1 and "dimension" not in self.fields:
            warnings.append(
                f"{len(dimensions)} dimensions are pooled ({_quoted(sorted(map(str, dimensions)))}). "
                "battles_columns.dimension=dimension rates each apart."
            )
        n = max(len(battles.judges), 1)
        pairs = np.unique((battles.dimension * n + battles.judge)[battles.judge >= 0])
        if len(np.unique(pairs // n)) < len(pairs):  # two judges in one dimension
            judges = sorted({battles.judges[code] for code in pairs % n})
            warnings.append(
                f"the verdicts of {len(judges)} judges are pooled ({_quoted(judges[:_MAX_NAMED])}). "
                f"battles_columns.dimension={self.fields['judge_model']} rates each apart, "
                "battles_filter.judge_model=NAME one alone."
            )
        for warning in warnings:
            logger.warning("%s: %s", self.path, warning)


def _hashable(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    return (json.dumps(value),) if isinstance(value, list | dict) else value


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
    if (text := tables.text(value[0] if isinstance(value, tuple) else value)) is None:
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


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
