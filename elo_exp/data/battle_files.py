"""Files of battles: the rows of any format become battles, checked and counted."""

import itertools
import json
import logging
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.data import formats, tables
from elo_exp.data.battles import Battles
from elo_exp.data.formats import WORDS, Format, MalformedError, Rows
from elo_exp.data.formats.battle_rows import FLAT
from elo_exp.data.tables import Row
from elo_exp.data.writing_style import FEATURES
from elo_exp.records import Battle, UserError

logger = logging.getLogger(__name__)

REQUIRED = ("model_a", "model_b", "winner")
OF_WINNERS = ("winner", "verdict_ab", "verdict_ba")  # columns that hold words
NAMES = (
    *REQUIRED,
    "source",
    "question_id",
    "judge_model",
    "verdict_ab",
    "verdict_ba",
    "dimension",
    "score",  # unless the format or the user names its column, it is not read
)
_ALSO = ("equal_answers", "style_a", "style_b")  # read, too
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_MODELS = 3000  # beyond it, the column is not one of models
_MAX_DIMENSIONS = 100  # beyond it, the column is not one of dimensions
_MAX_NAMED = 5  # names in a warning
_MANY = 20  # rows, of which a model with a single one may be a slip
_MAX_WORDS = 8  # of a column that holds others, as a message lists them
_MAX_WORD = 40  # characters of one of them
_MAX_SEARCHED = 100_000  # rows in which these words are looked for
_PLAIN = re.compile(r"[A-Za-z_][\w-]*( [A-Za-z_][\w-]*)*|0|-?[1-9]\d*", re.ASCII)
_CONSTANTS = ("true", "false", "null", "nan", "inf")  # no text in a command
_TIES = {"tie", "tied", "draw", "drawn"}


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
    values: Mapping[str, str | None] | None = None,
    on_error: str = "stop",
    chosen: Format | None = None,
) -> tuple[Battles, dict[str, Any]]:
    """Read the battles of a file, in file order, and say in a line what was read.

    columns   our field name -> the file's column. A winner may be one of WINNERS, the name of the
              winner's column, or its own, which a verdict of one order may not: there A and B are a
              judge's words for positions
    filters   our field name -> the value to keep
    values    word of the file -> one of WORDS that it stands for, None for no verdict; of formats
              whose words are not known
    on_error  stop: raise for the first malformed row; drop: leave malformed rows out and count them
    chosen    the format; None: recognise it
    Returns also the manifest's row of the file, which counts its rows by what became of them: used,
    tied among these, invalid (the judge gave no verdict), filtered out, dropped (malformed).
    Raises UserError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result.
    """
    wanted = {name: value for name, value in filters.items() if value is not None}
    form = chosen or recognise(path, columns)
    file = _File(path, form, columns, wanted, values or {})
    number, question, questions = file.numbers(on_error)
    counts = file.counts
    if counts["dropped"]:
        message = "%s: dropped %d malformed rows; the first: %s"
        logger.warning(message, path, counts["dropped"], file.first)
    if not number:
        names = " and ".join(f"{name}={value}" for name, value in wanted.items())
        others = ", ".join(f"{n} {word}" for word, n in counts.items())
        raise UserError(
            f"{path}: no battle is left{names and f' with {names}'} "
            f"({others or 'it has no rows'})."
        )
    if counts["invalid"] > len(number):
        raise UserError(
            f"{path}: read as {form.name}, {counts['invalid']} rows have no verdict and "
            f"{len(number)} have one. Expected most to have one; is the format the right one?"
        )
    battles = Battles.from_rows(file.distinct).select(np.array(number))
    battles = battles.with_questions(questions, np.array(question))
    file.warn(battles)
    in_one_order = int(((battles.verdict_ab < 0) != (battles.verdict_ba < 0)).sum())
    rows = {
        "used": len(battles),
        "tied": int(battles.is_tie().sum()),
        "invalid": 0,
        **counts,
        **({"in one order": in_one_order} if in_one_order else {}),
    }
    return battles, formats.facts(path, form, rows)


class _File:
    """A file of battles, and what has been read of it.

    distinct  battles without their questions: of many rows, few differ but for these
    counts    rows that are no battles, by the reason; first is the first malformed one
    pooled    dimensions that are not rated apart
    """

    def __init__(
        self,
        path: Path,
        chosen: Format,
        columns: Mapping[str, str | None],
        wanted: Mapping[str, str],
        values: Mapping[str, str | None],
    ) -> None:
        """Find the column of each field. Raises UserError for one that is not there."""
        self.path, self.format, self.wanted = path, chosen, wanted
        self.distinct, self.counts, self.first = list[Battle](), Counter[str](), ""
        self.pooled, self.fields = set[str | None](), dict[str, str]()
        present = tables.keys(path)
        for name in NAMES:
            given, usual = columns.get(name), None if name == "score" else name
            column = chosen.columns.get(name, given) if given == usual else given
            if column is None and name not in REQUIRED:
                continue
            self.fields[name] = column = str(column)
            is_required = name in REQUIRED and not chosen.fields
            if (is_required or given == column != name) and column not in present:
                raise UserError(
                    f"{path}: has no column {column!r} (found {_quoted(present)}). Name it with "
                    f"battles_columns.{name}=COLUMN."
                )
        sides = {self.fields["model_a"]: "model_a", self.fields["model_b"]: "model_b"}
        self.words: dict[str, str | None] = {**WORDS, **sides}
        if not chosen.fields:
            self.words |= {
                word: meant and WORDS[meant] for word, meant in values.items()
            }

    def numbers(self, on_error: str) -> tuple[list[int], list[int], list[str | None]]:
        """Return for each battle its number in `distinct` and that of its question, and these.

        Few distinct rows are kept, so that each is checked once.
        """
        chosen = self.format
        columns = {name: name for name in _ALSO} | self.fields
        if self.fields.get("dimension") != "dimension":
            columns["pooled"] = "dimension"
        asked = columns.pop("question_id", None)
        names = list(columns.values())
        known = dict[tuple[Any, ...], int | str]()
        questions = defaultdict[Any, int](itertools.count().__next__)
        number, question, once = list[int](), list[int](), set[Any]()
        needed = None if chosen.fields else {*names, asked}
        rows = tables.rows(self.path, needed)
        for place, given in _blockwise(chosen.join(rows) if chosen.join else rows):
            try:
                row = chosen.complete(given) if chosen.fields else given
                values, asks = tuple(map(row.get, names)), row.get(asked)
                try:
                    found, q = known.get(values), questions[asks]
                except TypeError:  # a list or an object
                    values = tuple(map(_hashable, columns, values))
                    found, q = known.get(values), questions[_hashable("", asks)]
                if found is None:
                    found = self.outcome(dict(zip(columns, values, strict=True)))
                    known[values] = found
            except MalformedError as error:
                self.first = self.first or f"{place}: {error}"
                if on_error == "stop":
                    hint = "battles_on_error=drop leaves such rows out."
                    if isinstance(error, _UnknownWordError) and not chosen.fields:
                        hint = f"{hint} {self.words_of(error.field)}".rstrip()
                    raise UserError(f"{self.first} {hint}") from None
                found = "dropped"
            if isinstance(found, str):
                self.counts[found] += 1
                continue
            number.append(found)
            question.append(q)
            if chosen.judged and asks is not None:
                b = self.distinct[found]
                key = (frozenset(b.models), q, b.dimension, b.judge_model)
                if b.judge_model and key in once:
                    raise UserError(
                        f"{place}: stands twice: judge, models and question are those of a row "
                        "before. Remove one of them."
                    )
                once.add(key)
        return number, question, [tables.text(name) for name in questions]

    def outcome(self, row: dict[str, Any]) -> int | str:
        """The number of a battle, or why a row is none. Raises MalformedError."""
        if "pooled" in row:
            self.pooled.add(tables.text(row.pop("pooled")))
        battle = self.battle(row)
        if any(tables.text(row.get(name)) != self.wanted[name] for name in self.wanted):
            return "filtered out"
        if battle is None:
            return "invalid"
        self.distinct.append(battle)
        return len(self.distinct) - 1

    def battle(self, row: Row) -> Battle | None:
        """A battle without its question; None where the judge gave no verdict."""
        text = {name: tables.text(row.get(name)) for name in NAMES}
        words = self.words
        one_of = f"Expected one of {', '.join(words)}"
        for name in ("verdict_ab", "verdict_ba"):
            if text[name] and text[name] not in words:
                error = f"{name} is {_shown(text[name])}. {one_of}."
                raise _UnknownWordError(error, name)
        verdicts = (text[name] for name in ("verdict_ab", "verdict_ba"))
        ab, ba = (words[verdict] if verdict else None for verdict in verdicts)
        reconciled = (ab if ab == ba else "tie") if ab and ba else None
        share = text["score"]
        if self.format.fields and text["winner"] is None:
            if share is None and reconciled is None:
                return None
            text["winner"] = formats.winner_of(float(share)) if share else reconciled
        for name in REQUIRED:
            value, noun = text[name], name.split("_")[0]
            if value is None or _CONTROL.search(value):
                found = "is empty" if value is None else f"has {value!r}"
                raise MalformedError(
                    f"column {self.fields[name]!r} {found}. Expected a {noun}: text without "
                    "control characters."
                )
        model_a, model_b, result = (str(text[name]) for name in REQUIRED)
        if model_a == model_b:
            raise MalformedError(
                f"{model_a!r} battles itself. Expected two different models."
            )
        by_word = words.get(result)
        by_name = {model_a: "model_a", model_b: "model_b"}.get(result)
        winner = by_word or by_name
        is_word = result in words
        if is_word and by_name and by_word != by_name and not reconciled:
            raise UserError(  # other rows may be read in the other way, so that none can be dropped
                f"{self.path}: winner is {result!r}, which is the name of one model and the word "
                "for another result. Rename the model."
            )
        said = filter(None, (text[name] for name in OF_WINNERS))
        if any(words.get(word, "") is None for word in said):
            return None
        if winner is None:
            names = f"{_shown(model_a)} or {_shown(model_b)}"
            error = f"winner is {_shown(result)}. {one_of}, {names}."
            raise _UnknownWordError(error, "winner")
        score = None if share is None else _score(share, winner)
        plain = winner.split()[0]
        if reconciled and score is None and plain != reconciled.split()[0]:
            raise MalformedError(
                f"winner is {result!r}, verdict_ab is {text['verdict_ab']!r} and verdict_ba is "
                f"{text['verdict_ba']!r}. Expected the verdict of both orders, or a tie where "
                "they disagree."
            )
        return Battle(
            model_a=model_a,
            model_b=model_b,
            winner=winner,
            source=text["source"] or _source(text["judge_model"]),
            judge_model=text["judge_model"],
            dimension=text["dimension"],
            verdict_ab=ab,
            verdict_ba=ba,
            score=score,
            equal_answers=str(row["equal_answers"]).lower() == "true",
            style_a=_style(tables.text(row["style_a"])),
            style_b=_style(tables.text(row["style_b"])),
        )

    def words_of(self, field: str) -> str:
        """Name the words of a column, with the setting that says what those mean that are not known."""
        column, counts = self.fields[field], Counter[str]()
        sides = [self.fields["model_a"], self.fields["model_b"]]
        unknown = dict[str, None]()
        with suppress(UserError):  # the file may be damaged further down
            rows = tables.rows(self.path, {column, *sides})
            for _, row in itertools.islice(rows, _MAX_SEARCHED):
                word = tables.text(row.get(column))
                names = sides if field == "winner" else ()
                if word and word not in (tables.text(row.get(name)) for name in names):
                    unknown |= {word: None} if word not in self.words else {}
                counts.update([word] if word else [])
        words = [word for word, _ in counts.most_common(_MAX_WORDS)]
        more = (
            f" and {len(counts) - len(words)} more" if len(counts) > len(words) else ""
        )
        said = f"The column {column!r} has {', '.join(map(_shown, words))}{more}"
        setting = _setting(list(unknown), *sides)
        place = ", in place of ?" if "?" in setting else ""
        return (
            f"{said}. To say what they mean{place}: {setting}"
            if setting
            else f"{said}."
        )

    def warn(self, battles: Battles) -> None:
        """Warn of what looks wrong. Raises UserError for a column that is not one of models."""
        models, fields = battles.models, self.fields
        if len(models) > _MAX_MODELS:
            raise UserError(
                f"{self.path}: found {len(models):,} models. Expected at most {_MAX_MODELS:,}: are "
                f"{fields['model_a']!r} and {fields['model_b']!r} the right columns?"
            )
        if len(battles.dimensions) > _MAX_DIMENSIONS:
            raise UserError(
                f"{self.path}: found {len(battles.dimensions):,} dimensions in "
                f"{fields['dimension']!r}. Expected at most {_MAX_DIMENSIONS}. Name another column "
                "with battles_columns.dimension=COLUMN, or pool them with "
                "battles_columns.dimension=null."
            )
        alike = defaultdict(list)
        for name in models:
            alike[unicodedata.normalize("NFKC", name).casefold().strip()].append(name)
        warnings = [
            f"the models {_quoted(names)} look alike and are rated apart."
            for names in alike.values()
            if len(names) > 1
        ]
        rare = np.flatnonzero(battles.n_battles() == 1)[:_MAX_NAMED]
        if len(rare) and len(battles) >= _MANY:
            slips = _quoted(models[i] for i in rare)
            warnings.append(f"in one row alone: {slips}. Check the name.")
        lacking = int((battles.question >= len(battles.questions)).sum())
        if lacking:
            warnings.append(
                f"{lacking} of {len(battles)} battles name no question, and each of them counts as "
                "a prompt of its own. If a column names it, set battles_columns.question_id=COLUMN."
            )
        pooled = sorted(filter(None, self.pooled))
        if len(pooled) > 1:
            warnings.append(f"{len(pooled)} dimensions are pooled ({_quoted(pooled)}).")
        judged = {(b.dimension, b.judge_model) for b in self.distinct if b.judge_model}
        if len({dimension for dimension, _ in judged}) < len(judged):
            judges = sorted({judge for _, judge in judged})
            warnings.append(
                f"the verdicts of {len(judges)} judges are pooled "
                f"({_quoted(judges[:_MAX_NAMED])}). "
                f"battles_columns.dimension={fields['judge_model']} rates each apart, "
                "battles_filter.judge_model=NAME one alone."
            )
        for warning in warnings:
            logger.warning("%s: %s", self.path, warning)


class _UnknownWordError(MalformedError):
    """Says also in which of our fields the word stands."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def _setting(words: Sequence[str], column_a: str, column_b: str) -> str:
    """Return battles_values for words, as a shell takes it; a word that names a side's column means this side.

    What a word means that does not is left to the user, as ?. Empty for more words than a column of
    winners has, and for a word that no command can hold.
    """
    a, b = (_parts(column) for column in (column_a, column_b))
    if not 0 < len(words) <= _MAX_WORDS or max(map(len, words)) > _MAX_WORD:
        return ""
    if any(_CONTROL.search(word) or set(word) & set("\"'\\$") for word in words):
        return ""
    meanings = dict[str, str]()
    for word in words:
        own = _parts(word)
        sides = {"model_a": own & (a - b), "model_b": own & (b - a), "tie": own & _TIES}
        meant = [side for side, shared in sides.items() if shared]
        meanings[word] = meant[0] if len(meant) == 1 else "?"
    if not {"model_a", "model_b"} <= set(meanings.values()):
        meanings = {
            word: meant if meant == "tie" else "?" for word, meant in meanings.items()
        }
    if all(_PLAIN.fullmatch(w) and w.lower() not in _CONSTANTS for w in words):
        pairs = ",".join(f"{word}:{meant}" for word, meant in meanings.items())
        return shlex.quote(f"battles_values={{{pairs}}}")
    pairs = ",".join(f'["{word}",{meant}]' for word, meant in meanings.items())
    return shlex.quote(f"battles_values=[{pairs}]")


def _parts(name: str) -> set[str]:
    """Words in a name but for a and b, which mean positions, and which a language has, too."""
    return set(re.findall(r"[^\W_]+", name.casefold())) - {"a", "b"}


def _blockwise(rows: Rows) -> Rows:
    """Yield rows as they are, twenty at a time, which stay in the processor's cache."""
    rest = iter(rows)
    while block := list(itertools.islice(rest, 20)):
        yield from block


def _hashable(name: str, value: Any) -> Any:
    if not isinstance(value, list | dict):
        return value
    if name in REQUIRED:
        raise MalformedError(f"{name} is {value!r}. Expected a name.")
    return json.dumps(value)


def _source(judge: str | None) -> str:
    """What a battle is by its judge alone: a verdict of a language model, or a vote."""
    return "human" if judge in (None, "human") else "llm-judge"


def _score(text: str, winner: str) -> float:
    with suppress(ValueError):
        score = float(text)
        if 0.0 <= score <= 1.0 and formats.winner_of(score) in winner:
            return score
    raise MalformedError(
        f"score is {text!r} and winner is {winner!r}. Expected model_a's share, from 0 to 1, above "
        "0.5 where it wins."
    )


def _style(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    with suppress(TypeError, ValueError):
        counts = tuple(map(int, json.loads(text)))
        if len(counts) == len(FEATURES):
            return counts
    raise MalformedError(
        f"style is {text!r}. Expected a list of counts: {', '.join(FEATURES)}."
    )


def _shown(word: str | None) -> str:
    """A word of a file in quotes, cut where it is long."""
    text = str(word)
    return repr(text if len(text) <= _MAX_WORD else f"{text[:_MAX_WORD]}…")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
