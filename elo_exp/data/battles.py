"""Battles, the atom of every rating, as columns: interned names and the codes that refer to them.

Judgments become battles here, and battles files are read and checked.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import itertools
import json
import logging
import math
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp import files
from elo_exp.arrays import Array, Index, Mask
from elo_exp.data.pairing import outcome
from elo_exp.records import WINNERS, Battle, Judgment, UserError

logger = logging.getLogger(__name__)

Codes = NDArray[np.int32]
Winners = NDArray[np.int8]

SCORES = np.array([1.0, 0.0, 0.5, 0.5])  # of model_a, by the code of the winner
REQUIRED = ("model_a", "model_b", "winner")
OPTIONAL = (
    "source",
    "question_id",
    "judge_model",
    "dimension",
    "verdict_ab",
    "verdict_ba",
)
KINDS = (".jsonl", ".csv", ".parquet")
_BLOCK = 1000  # rows held as Python objects: with more, garbage collection takes as long as parsing
_MAX_FIELD = (
    2**31 - 1
)  # characters of a CSV field: other columns may hold whole conversations
_MAX_MODELS = 3000  # beyond it, the column does not hold models
_MAX_NAMED = 5  # names in a warning
_WINNER = {"a": "model_a", "b": "model_b", "tie": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Battles:
    """n battles. A code is the place of a name in the tuple beside it; -1 stands for none."""

    models: tuple[str, ...]  # sorted
    model_a: Codes  # (n,)
    model_b: Codes  # (n,), nowhere equal to model_a
    winner: Winners  # (n,) into WINNERS
    verdict_ab: Winners  # (n,) with model_a shown first; -1: that order was not judged
    verdict_ba: Winners  # (n,) named by model, too
    equal_answers: Mask  # (n,): one query was made for both orders
    questions: tuple[str, ...]
    question: (
        Codes  # (n,); from len(questions) on: names none, and is a prompt of its own
    )
    dimensions: tuple[str, ...]
    dimension: Codes  # (n,)
    judges: tuple[str, ...]
    judge: Codes  # (n,)
    sources: tuple[str, ...]
    source: Codes  # (n,)

    def __len__(self) -> int:
        return len(self.winner)

    @classmethod
    def from_rows(cls, rows: Sequence[Battle]) -> Battles:
        """Raises UserError for an unknown winner and for a model that battles itself."""

        def column(name: str) -> list[Any]:
            return [getattr(row, name) for row in rows]

        def winners(name: str) -> Winners:
            code: dict[str | None, int] = {word: i for i, word in enumerate(WINNERS)}
            code |= {} if name == "winner" else {None: -1}
            try:
                return np.array([code[word] for word in column(name)], dtype=np.int8)
            except KeyError as error:
                expected = ", ".join(WINNERS)
                raise UserError(
                    f"{name}: found {error.args[0]!r}. Expected one of {expected}."
                ) from None

        models, model = _interned(column("model_a") + column("model_b"))
        model_a, model_b = model[: len(rows)], model[len(rows) :]
        if (itself := model_a == model_b).any():
            name = models[model_a[int(np.argmax(itself))]]
            raise UserError(f"{name!r} battles itself. Expected two different models.")
        questions, question = _interned(column("question_id"))
        dimensions, dimension = _interned(column("dimension"))
        judges, judge = _interned(column("judge_model"))
        sources, source = _interned(column("source"))
        return cls(
            models=models,
            model_a=model_a,
            model_b=model_b,
            winner=winners("winner"),
            verdict_ab=winners("verdict_ab"),
            verdict_ba=winners("verdict_ba"),
            equal_answers=np.array(column("equal_answers"), dtype=np.bool_),
            questions=questions,
            question=_each_its_own(question, len(questions)),
            dimensions=dimensions,
            dimension=dimension,
            judges=judges,
            judge=judge,
            sources=sources,
            source=source,
        ).compact()

    def select(self, rows: NDArray[Any]) -> Battles:
        """Return the battles at a mask (n,) or at indices; names and codes stay as they are."""
        columns = {
            field.name: column[rows]
            for field in dataclasses.fields(self)
            if isinstance(column := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **columns)

    def compact(self) -> Battles:
        """Return the battles with only the models that take part, sorted."""
        present = sorted(
            {*self.model_a.tolist(), *self.model_b.tolist()},
            key=self.models.__getitem__,
        )
        code = np.full(len(self.models), -1, dtype=np.int32)
        code[present] = np.arange(len(present))
        return dataclasses.replace(
            self,
            models=tuple(self.models[i] for i in present),
            model_a=code[self.model_a],
            model_b=code[self.model_b],
        )

    def by_dimension(
        self, names: Iterable[str] = (), *, unnamed: str = "overall"
    ) -> dict[str, Battles]:
        """Split the battles by dimension: these names first, then by first appearance.

        A name without battles has an empty value; battles without a dimension are `unnamed`.
        All share their codes of questions, so that prompts can be resampled jointly.
        """
        labels = (*self.dimensions, unnamed)
        codes, first = np.unique(self.dimension, return_index=True)
        found = {labels[code]: code for code in codes[np.argsort(first)].tolist()}
        return {
            name: self.select(self.dimension == found.get(name, -2)).compact()
            for name in dict.fromkeys((*names, *found))
        }

    def scores(self) -> Array:
        """Score (n,) of model_a: 1, 1/2 or 0."""
        return SCORES[self.winner]

    def is_tie(self) -> Mask:
        return np.asarray(self.winner >= 2)

    def both_orders(self) -> Mask:
        """Whether both orders (n,) were judged, one independently of the other."""
        return (self.verdict_ab >= 0) & (self.verdict_ba >= 0) & ~self.equal_answers

    def is_inconsistent(self) -> Mask:
        """Whether both orders (n,) were judged and disagree."""
        return np.asarray(self.both_orders() & (self.verdict_ab != self.verdict_ba))

    def n_battles(self) -> Index:
        """Count the battles (m,) of each model."""
        m = len(self.models)
        return np.bincount(self.model_a, minlength=m) + np.bincount(
            self.model_b, minlength=m
        )

    def names_prompts(self) -> bool:
        """Whether any battle names its question."""
        return bool((self.question < len(self.questions)).any())

    def n_prompts(self) -> int:
        """Count the prompts; a battle that names none has one of its own."""
        return int(np.count_nonzero(np.bincount(self.question)))

    def judge_names(self) -> set[str]:
        return {
            self.judges[code]
            for code in np.flatnonzero(np.bincount(self.judge + 1)[1:])
        }

    def _columns(self) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
        """Names and codes by the field of a row, in the order of battles.jsonl."""
        named = np.where(self.question < len(self.questions), self.question, -1)
        return {
            "model_a": (self.models, self.model_a),
            "model_b": (self.models, self.model_b),
            "winner": (WINNERS, self.winner),
            "source": (self.sources, self.source),
            "question_id": (self.questions, named),
            "judge_model": (self.judges, self.judge),
            "dimension": (self.dimensions, self.dimension),
            "verdict_ab": (WINNERS, self.verdict_ab),
            "verdict_ba": (WINNERS, self.verdict_ba),
        }

    def rows(self) -> list[Battle]:
        """Return the battles as records, for a page, a message or a test."""
        columns = self._columns()
        values = [
            [(*names, None)[code] for code in codes.tolist()]
            for names, codes in columns.values()
        ]
        return [
            Battle(**dict(zip(columns, row, strict=True)), equal_answers=equal)
            for *row, equal in zip(*values, self.equal_answers.tolist(), strict=True)
        ]

    def jsonl(self) -> Iterator[str]:
        """Yield the text of battles.jsonl in blocks; each name is encoded once."""
        columns = {
            **self._columns(),
            "equal_answers": ((False, True), self.equal_answers.view("i1")),
        }
        pieces = []
        for name, (names, codes) in columns.items():
            encoded = [
                json.dumps(value, ensure_ascii=False) for value in (*names, None)
            ]
            texts = np.array([f'"{name}": {text}' for text in encoded], dtype=object)
            pieces.append((texts, codes))
        for start in range(0, len(self), 10 * _BLOCK):
            block = [
                texts[codes[start : start + 10 * _BLOCK]].tolist()
                for texts, codes in pieces
            ]
            yield "".join(
                "{" + ", ".join(row) + "}\n" for row in zip(*block, strict=True)
            )


def _interned(values: Sequence[Any]) -> tuple[tuple[str, ...], Codes]:
    """Names by first appearance, and the code (n,) of each value; None is -1."""
    number: dict[str, int] = {}
    codes = [
        -1 if value is None else number.setdefault(value, len(number))
        for value in values
    ]
    return tuple(number), np.array(codes, dtype=np.int32)


def _each_its_own(question: Codes, n_questions: int) -> Codes:
    return np.where(
        question < 0, n_questions + np.arange(len(question), dtype=np.int32), question
    )


def from_judgments(judgments: Iterable[Judgment]) -> list[Battle]:
    """Make one battle of each valid judgment.

    A mirrored verdict is no second observation and leaves `verdict_ba` empty.
    """
    return [_battle(judgment) for judgment in judgments if not judgment.invalid]


def _battle(judgment: Judgment) -> Battle:
    ab, ba = (_WINNER[outcome(verdict) or "tie"] for verdict in judgment.raw[:2])
    one_order = any(verdict.mirrored for verdict in judgment.raw[:2])
    winners = {
        None: "tie",
        judgment.entrant_a: "model_a",
        judgment.entrant_b: "model_b",
    }
    return Battle(
        model_a=judgment.entrant_a,
        model_b=judgment.entrant_b,
        winner=winners[judgment.winner],
        source="llm-judge",
        question_id=judgment.prompt_id,
        judge_model=judgment.raw[0].judge_model,
        dimension=judgment.dimension,
        verdict_ab=ab,
        verdict_ba=None if one_order else ba,
        equal_answers=judgment.equal_answers,
    )


# Reading

_ABSENT = object()  # the value of a row that lacks the column


class _Nested(str):
    """The text of a list or an object: no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BattlesFile:
    """What was read of a battles file."""

    battles: Battles
    n_dropped: int  # malformed rows
    n_filtered: int  # rows that a filter left out


def read(
    path: Path,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    on_error: str = "stop",
) -> BattlesFile:
    """Read the battles of a .jsonl, .csv or .parquet file, each also .gz, in file order.

    columns   our field name -> the file's column. A winner may be one of WINNERS, the name of the
              winner's column, or its own, which a verdict of one order may not: there A and B are a
              judge's words for positions
    filters   our field name -> the value to keep
    on_error  stop: raise for the first malformed row; drop: leave malformed rows out and count them
    Raises UserError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result.
    """
    fields = {
        name: column for name in (*REQUIRED, *OPTIONAL) if (column := columns.get(name))
    }
    raw = _read_columns(path, fields)
    battles, checks = _decoded(raw, fields)
    malformed, first = _malformed(path, checks, fields, on_error)
    kept = ~malformed
    wanted = {name: value for name, value in filters.items() if value is not None}
    for name, value in wanted.items():
        kept &= raw[name].lookup({value: 0}) == 0
    n_dropped, n_filtered = int(malformed.sum()), int((~malformed & ~kept).sum())
    if not kept.any():
        named = (
            " with " + " and ".join(f"{k}={v}" for k, v in wanted.items())
            if wanted
            else ""
        )
        counts = f"{n_filtered} filtered out" + (
            f", {n_dropped} dropped: {first}" if first else ""
        )
        raise UserError(f"{path}: no battle is left{named} ({counts}).")
    if first:
        logger.warning(
            "%s: dropped %d malformed rows; the first: %s", path, n_dropped, first
        )
    battles = battles.select(kept).compact()
    pooled = raw["pooled"].names()
    if "dimension" not in fields and len(pooled) > 1:
        logger.info(
            "%d dimensions are pooled (%s); battles_columns.dimension=dimension rates each",
            len(pooled),
            sorted(pooled),
        )
    _check_models(path, battles, fields)
    _warn_of_questions(path, battles)
    _warn_of_judges(path, battles, fields.get("judge_model"))
    return BattlesFile(battles=battles, n_dropped=n_dropped, n_filtered=n_filtered)


@dataclass(frozen=True, slots=True)
class _Column:
    values: tuple[Any, ...]  # distinct, as read
    codes: Codes  # (n,)

    def where(self, test: Callable[[Any], bool]) -> Mask:
        """Whether the value of each row (n,) passes a test."""
        return np.array([test(value) for value in self.values], dtype=np.bool_)[
            self.codes
        ]

    def lookup(self, number: Mapping[str, int]) -> Codes:
        """The number (n,) of each value's text: -1 where it is missing, -2 where it has none."""
        found = [-1 if _is_missing(v) else number.get(str(v), -2) for v in self.values]
        return np.array(found, dtype=np.int32)[self.codes]

    def names(self) -> dict[str, int]:
        """The texts in the order of appearance, numbered: 1 and "1" are one name."""
        texts = dict.fromkeys(str(v) for v in self.values if not _is_missing(v))
        return {text: i for i, text in enumerate(texts)}


def _read_columns(path: Path, fields: Mapping[str, str]) -> dict[str, _Column]:
    """By our field name; a field without a column is missing everywhere."""
    wanted = {"pooled": "dimension", **fields, "equal_answers": "equal_answers"}
    numbers: dict[str, Any] = {
        name: defaultdict(itertools.count().__next__) for name in wanted
    }
    numbers["model_b"] = numbers["model_a"]
    codes: dict[str, list[Codes]] = {
        name: [np.zeros(0, dtype=np.int32)] for name in wanted
    }
    for block in _blocks(path, list(wanted.values())):
        for name, values in zip(wanted, block, strict=True):
            codes[name].append(_numbered(values, numbers[name]))
    found = {
        name: _Column(tuple(numbers[name]), np.concatenate(codes[name]))
        for name in wanted
    }
    nothing = _Column((None,), np.zeros(len(found["winner"].codes), dtype=np.int32))
    return {**dict.fromkeys(OPTIONAL, nothing), **found}


def _numbered(values: Sequence[Any], number: Mapping[Any, int]) -> Codes:
    if values.count(_ABSENT) == len(values):
        return np.full(len(values), number[_ABSENT], dtype=np.int32)
    try:
        return np.fromiter(map(number.__getitem__, values), np.int32, len(values))
    except TypeError:
        texts = [_Nested(v) if isinstance(v, list | dict) else v for v in values]
        return np.fromiter(map(number.__getitem__, texts), np.int32, len(texts))


def _decoded(
    raw: Mapping[str, _Column], fields: Mapping[str, str]
) -> tuple[Battles, list[_Check]]:
    """The battles of all rows, and the checks that some rows fail: these have codes below 0."""
    names = {name: raw[name].names() for name in ("model_a", *OPTIONAL[:4])}
    names["source"].setdefault("human", len(names["source"]))
    model_a, model_b = (
        raw[name].lookup(names["model_a"]) for name in ("model_a", "model_b")
    )
    words = {word: i for i, word in enumerate(WINNERS)}
    words |= {fields["model_a"]: 0, fields["model_b"]: 1}
    word, ab, ba = (
        raw[name].lookup(words) for name in ("winner", "verdict_ab", "verdict_ba")
    )
    winning_model = raw["winner"].lookup(names["model_a"])
    named = np.select([winning_model == model_a, winning_model == model_b], [0, 1], -1)
    winner = np.where(word >= 0, word, named)
    source = raw["source"].lookup(names["source"])
    question = raw["question_id"].lookup(names["question_id"])
    battles = Battles(
        models=tuple(names["model_a"]),
        model_a=model_a,
        model_b=model_b,
        winner=winner.astype(np.int8),
        verdict_ab=ab.astype(np.int8),
        verdict_ba=ba.astype(np.int8),
        equal_answers=raw["equal_answers"].where(
            lambda value: str(value).lower() == "true"
        ),
        questions=tuple(names["question_id"]),
        question=_each_its_own(question, len(names["question_id"])),
        dimensions=tuple(names["dimension"]),
        dimension=raw["dimension"].lookup(names["dimension"]),
        judges=tuple(names["judge_model"]),
        judge=raw["judge_model"].lookup(names["judge_model"]),
        sources=tuple(names["source"]),
        source=np.where(source < 0, names["source"]["human"], source),
    )
    both = (ab >= 0) & (ba >= 0)
    agreed = np.where(ab == ba, ab, WINNERS.index("tie"))
    one_of = f"Expected one of {', '.join(words)}"
    checks = [
        _Check(raw[name].where(lambda value: value is _ABSENT), name, _NO_COLUMN)
        for name, column in fields.items()
        if _must_be_there(name, column)
    ]
    checks += [_Check(raw[name].where(_is_missing), name, _EMPTY) for name in REQUIRED]
    checks += [
        _Check(raw[name].where(_is_no_name), name, _NO_NAME) for name in REQUIRED[:2]
    ]
    checks += [
        _Check(ab == -2, "verdict_ab", f"{{name}} is {{value!r}}. {one_of}."),
        _Check(ba == -2, "verdict_ba", f"{{name}} is {{value!r}}. {one_of}."),
        _Check(
            (word >= 0) & (named >= 0) & (word != named) & ~both, "winner", _AMBIGUOUS
        ),
        _Check(
            winner < 0,
            "winner",
            f"winner is {{value!r}}. {one_of}, {{model_a!r}} or {{model_b!r}}.",
        ),
        _Check(
            both & (agreed != winner) & ~((agreed >= 2) & (winner >= 2)),
            "winner",
            _DISAGREES,
        ),
        _Check(model_a == model_b, "model_a", _ITSELF),
    ]
    return battles, checks


@dataclass(frozen=True, slots=True)
class _Check:
    """The rows (n,) that fail it, the field that it is about, and what is wrong with such a row."""

    failed: Mask
    name: str
    sentence: (
        str  # formatted with name, column, value, found and the values of all fields
    )


_NO_COLUMN = "has no column {column!r} (found {found}). Name it with battles_columns.{name}=COLUMN."
_EMPTY = "column {column!r} is empty. Expected a {noun}."
_NO_NAME = "{name} is {value!r}. Expected a name: text without control characters."
_AMBIGUOUS = (
    "winner is {value!r}, which is the name of one model and the word for another result. "
    "Rename the model."
)
_DISAGREES = (
    "winner is {winner!r}, verdict_ab is {verdict_ab!r} and verdict_ba is {verdict_ba!r}. Expected "
    "what both orders say, or a tie where they disagree."
)
_ITSELF = "{model_a!r} battles itself. Expected two different models."


def _must_be_there(name: str, column: str) -> bool:
    """Whether a row must have the column: also an optional one that is chosen by its name."""
    return name in REQUIRED or column != name


def _is_missing(value: Any) -> bool:
    """NaN is what some programs write for nothing."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or value is _ABSENT or value == "" or is_nan


def _is_no_name(value: Any) -> bool:
    return isinstance(value, _Nested) or any(
        unicodedata.category(c) == "Cc" for c in str(value)
    )


def _malformed(
    path: Path, checks: Sequence[_Check], fields: Mapping[str, str], on_error: str
) -> tuple[Mask, str]:
    """The rows (n,) to drop, and what is wrong with the first. Raises UserError where none may be."""
    malformed: Mask = np.logical_or.reduce([check.failed for check in checks])
    if not malformed.any():
        return malformed, ""
    ambiguous = next(check.failed for check in checks if check.sentence is _AMBIGUOUS)
    may_drop = not ambiguous.any()
    index = int(np.argmax(malformed if may_drop or on_error == "stop" else ambiguous))
    check = next(check for check in checks if check.failed[index])
    place, row = next(itertools.islice(_rows(path), index, None))
    values = {name: row.get(fields.get(name, "")) for name in (*REQUIRED, *OPTIONAL)}
    sentence = check.sentence.format(
        **values,
        name=check.name,
        column=fields[check.name],
        value=values[check.name],
        noun="winner" if check.name == "winner" else "model",
        found=", ".join(map(repr, row)),
    )
    if on_error == "drop" and may_drop:
        return malformed, f"{place}: {sentence}"
    everywhere = check.sentence is _NO_COLUMN and check.failed.all()
    hint = (
        " battles_on_error=drop leaves such rows out."
        if may_drop and not everywhere
        else ""
    )
    raise UserError(f"{place}: {sentence}{hint}")


def _blocks(path: Path, wanted: Sequence[str]) -> Iterator[list[Sequence[Any]]]:
    """The values of the wanted columns, some rows at a time."""
    kind = check_ending(path)
    if kind == ".jsonl":
        lines, first = files.read_lines(path), 1
        while block := list(itertools.islice(lines, _BLOCK)):
            rows = _parsed(path, block, first, wanted)
            there = set().union(*rows)
            nothing = [_ABSENT] * len(rows)
            yield [
                [row.get(c, _ABSENT) for row in rows] if c in there else nothing
                for c in wanted
            ]
            first += len(block)
    elif kind == ".csv":
        fields = (row for _, row in _csv_rows(path))
        place = {column: i for i, column in enumerate(next(fields, []))}
        while block_of_fields := list(itertools.islice(fields, _BLOCK)):
            columns = list(zip(*block_of_fields, strict=True))
            nothing = [_ABSENT] * len(block_of_fields)
            yield [columns[place[c]] if c in place else nothing for c in wanted]
    else:
        for batch in _parquet_batches(path, wanted):
            nothing = [_ABSENT] * len(batch)
            there = batch.schema.names
            yield [
                batch.column(c).to_pylist() if c in there else nothing for c in wanted
            ]


def _parsed(
    path: Path, lines: Sequence[str], first: int, wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Parse a block of lines at once, in half the time of one by one.

    They are one array with a 0 between every two, so that no object can go over two lines. Where
    anything is wrong, or a key may stand twice in a row, they are parsed one by one.
    """
    text = ",0,".join(lines)
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        values = []
    rows = values[::2]
    if values[1::2] == [0] * (len(lines) - 1) and set(map(type, rows)) == {dict}:
        has_more_keys = text.count('":') > sum(
            map(len, rows)
        )  # in other objects, texts, or twice
        if not has_more_keys or all(
            text.count(f'"{c}":') <= len(lines) for c in wanted
        ):
            return rows
    return [
        files.json_object(f"{path}:{number}", line, object_pairs_hook=_without_doubles)
        for number, line in enumerate(lines, start=first)
        if line.strip()
    ]


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return row


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place, for messages."""
    kind = check_ending(path)
    if kind == ".jsonl":
        yield from files.read_jsonl(path)
    elif kind == ".csv":
        rows = _csv_rows(path)
        _, header = next(rows)
        for line, row in rows:
            yield f"{path}:{line}", dict(zip(header, row, strict=True))
    else:
        rows_of_batches = (
            row for batch in _parquet_batches(path) for row in batch.to_pylist()
        )
        for number, row in enumerate(rows_of_batches, start=1):
            yield f"{path}: row {number}", row


def check_ending(path: Path) -> str:
    """Return a file's kind by its name. Raises UserError for one that cannot be read."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if kind not in KINDS:
        raise UserError(
            f"{path}: has the ending {path.suffix!r}. "
            "Expected .jsonl, .csv or .parquet, each also .gz."
        )
    return kind


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of the header and of each row; blank lines are skipped."""
    csv.field_size_limit(_MAX_FIELD)
    with files.open_text(path) as text:
        reader = csv.reader(text, strict=True)
        header: list[str] = []
        try:
            for row in filter(None, reader):
                place = f"{path}:{reader.line_num}"
                if not header and len(set(row)) < len(row):
                    twice = next(name for name in row if row.count(name) > 1)
                    raise UserError(
                        f"{place}: has the column {twice!r} twice. Expected each name once."
                    )
                header = header or row
                if len(row) != len(header):
                    raise UserError(
                        f"{place}: has {len(row)} fields. Expected {len(header)}, as in the "
                        "header. A quote or a comma may be missing."
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise UserError(
                f"{path}:{reader.line_num}: cannot be read as CSV ({error}). A quote may be missing."
            ) from None


def _parquet_batches(path: Path, wanted: Sequence[str] | None = None) -> Iterator[Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow. Install it with: pip install pyarrow"
        ) from None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
            file = parquet.ParquetFile(io.BytesIO(raw.read()))
            there = file.schema_arrow.names
            columns = there if wanted is None else [c for c in there if c in wanted]
            yield from file.iter_batches(batch_size=_BLOCK, columns=columns)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({error}).") from None


# Warnings


def _check_models(path: Path, battles: Battles, fields: Mapping[str, str]) -> None:
    if len(battles.models) > _MAX_MODELS:
        raise UserError(
            f"{path}: found {len(battles.models):,} models. Expected at most {_MAX_MODELS:,}: are "
            f"{fields['model_a']!r} and {fields['model_b']!r} the right columns?"
        )
    alike = defaultdict(list)
    for name in battles.models:
        alike[unicodedata.normalize("NFKC", name).casefold().strip()].append(name)
    for names in alike.values():
        if len(names) > 1:
            logger.warning(
                "%s: the models %s look alike and are rated apart.",
                path,
                _some(map(repr, names)),
            )


def _warn_of_questions(path: Path, battles: Battles) -> None:
    """Battles that count as prompts of their own for want of a name make errors smaller."""
    lacking = int((battles.question >= len(battles.questions)).sum())
    if lacking == len(battles):
        _, row = next(_rows(path))
        logger.warning(
            "%s: no battle names its question (found %s), so each counts as a prompt of its own. "
            "If a column does, say battles_columns.question_id=COLUMN.",
            path,
            ", ".join(map(repr, row)),
        )
    elif lacking:
        logger.warning(
            "%s: %d of %d battles name no question, and each of them counts as a prompt of its own.",
            path,
            lacking,
            len(battles),
        )


def _warn_of_judges(path: Path, battles: Battles, column: str | None) -> None:
    """Warn of verdicts of several judges that are rated together."""
    judges = sorted(battles.judge_names())
    judged = battles.judge >= 0
    pairs = (
        battles.dimension[judged] * np.int64(len(battles.judges))
        + battles.judge[judged]
    )
    if len(judges) > 1 and len(set(pairs.tolist())) > len(
        set(battles.dimension[judged].tolist())
    ):
        logger.warning(
            "%s: the verdicts of %d judges are pooled (%s). battles_columns.dimension=%s rates each "
            "apart, battles_filter.judge_model=NAME one alone.",
            path,
            len(judges),
            _some(judges),
            column,
        )


def _some(names: Iterable[str]) -> str:
    first = list(itertools.islice(names, _MAX_NAMED + 1))
    return ", ".join(first[:_MAX_NAMED]) + (", ..." if len(first) > _MAX_NAMED else "")
