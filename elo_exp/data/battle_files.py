"""Files of battles: the rows of any format become battles, checked and counted."""

import dataclasses
import itertools
import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from elo_exp.arrays import Index, Mask
from elo_exp.data import formats, table_files
from elo_exp.data.bank import hash_text
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER, set_cluster_codes
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.data.field_names import describe_alike
from elo_exp.data.formats import WINNER_WORDS, Format, MalformedError, Rows
from elo_exp.data.formats.battle_rows import FLAT
from elo_exp.data.table_files import (
    BLANK_FIELDS,
    Cell,
    CodedBattles,
    Codes,
    Frame,
    Nested,
    Row,
    Source,
)
from elo_exp.data.writing_style import FEATURES
from elo_exp.errors import EvidenceError, FileError, UserError
from elo_exp.files import report_read_errors
from elo_exp.records import Battle, MissingBattle

logger = logging.getLogger(__name__)

REQUIRED = ("model_a", "model_b", "winner")
ID_COLUMNS = ("model_a", "model_b", "question_id")
WINNER_COLUMNS = ("winner", "verdict_ab", "verdict_ba")
FIELDS = (
    *REQUIRED,
    "source",
    "question_id",
    "judge_model",
    "verdict_ab",
    "verdict_ba",
    "dimension",
    "score",  # unless the format or the user names its column, it is not read
    "count",  # of a format that makes its fields neither
    "cluster",
)
# columns that hold the text of a question; of a conversation, its first message
QUESTION_TEXT_COLUMNS = (
    "prompt",
    "question",
    "instruction",
    "conversation_a",
    "conversation",
)
_OPTIONAL_COLUMNS = ("equal_answers", "style_a", "style_b", "draw_a", "draw_b")
# Not a column of the file: why a row is malformed
_MALFORMED_COLUMN = "\0malformed"
_ROW_STATUSES = ("used", "filtered out", "invalid", "dropped", "refused")
_USED, _FILTERED, _INVALID, _DROPPED, _REFUSED = range(len(_ROW_STATUSES))
# No model is named by one of the private characters from here on
_FIRST_PRIVATE_CHARACTER = 0xE000
# Bytes of a file, were it text, from which on importing DuckDB takes less time than rows
MIN_DUCKDB_BYTES = 1_000_000
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_NAME_CHARS = 200
_METADATA_FIELDS = ("dimension", "judge_model", "source")
# A column with more values holds something other than models or dimensions
_MAX_MODELS = 3000
_MAX_DIMENSIONS = 100
_MAX_NAMES_IN_WARNING = 5
# In a file of so many battles, a name that occurs once may be a typo
_MIN_BATTLES_FOR_RARE_NAMES = 20
_MAX_LISTED_WORDS = 8
_MAX_WORD_CHARS = 40
_MAX_ROWS_SEARCHED_FOR_WORDS = 100_000
_UNQUOTED_WORD = re.compile(
    r"[A-Za-z_][\w-]*( [A-Za-z_][\w-]*)*|0|-?[1-9]\d*", re.ASCII
)
_POSITIVE_INTEGER = re.compile(r"0*([1-9]\d*)(\.0*)?", re.ASCII)
_MAX_BATTLES_PER_ROW = 2**31 - 1
_EXPECTED_COUNT = "Expected a whole number of battles, 1 or more; where it is none, battles_columns.count=null."
# A command reads these as values rather than text
_COMMAND_CONSTANTS = ("true", "false", "null", "nan", "inf")
_TIE_WORDS = {"tie", "tied", "draw", "drawn"}


def recognise(
    path: Source, columns: Mapping[str, str | None], name: str | None = None
) -> Format:
    """Return a file's format; where columns of models or winner are named by hand, a plain table."""
    if name is None and any(columns.get(field) != field for field in REQUIRED):
        return FLAT
    return formats.recognise(path, name)


@report_read_errors
def read(
    path: Source,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    values: Mapping[str, str | None] | None = None,
    on_error: str = "stop",
    chosen: Format | None = None,
    shards: Sequence[Source] = (),
) -> tuple[Battles, dict[str, Any]]:
    """Read the battles of a file, and say in a line what was read: `read_with_missing` without what is missing."""
    battles, facts, _ = read_with_missing(
        path,
        columns=columns,
        filters=filters,
        values=values,
        on_error=on_error,
        chosen=chosen,
        shards=shards,
    )
    return battles, facts


@report_read_errors
def read_with_missing(
    path: Source,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    values: Mapping[str, str | None] | None = None,
    on_error: str = "stop",
    chosen: Format | None = None,
    shards: Sequence[Source] = (),
) -> tuple[Battles, dict[str, Any], list[MissingBattle]]:
    """Read the battles of a file, in file order, and say in a line what was read.

    columns   our field name -> the file's column. A winner may be one of WINNERS, the name of the
              winner's column, or its own, which a verdict of one order may not: there A and B are a
              judge's words for positions
    filters   our field name -> the value to keep
    values    word of the file -> one of WORDS that it stands for, None for no verdict; of formats
              whose words are not known
    on_error  stop: raise for the first malformed row; drop: leave malformed rows out and count them
    chosen    the format; None: recognise it
    shards    the files of a folder, `path`, that are read as one file
    Returns also the manifest's row of the file, which counts its rows by what became of them: used,
    tied among these, invalid (the judge gave no verdict), filtered out, dropped (malformed); of rows
    with a count the battles.
    The last are the comparisons of two models whose result is unknown: the judge gave no verdict, or the row is
    malformed (a blank winner, an unknown word) and `on_error` leaves it out. Besides, those with a verdict on a blank
    answer, in a file that holds answers.
    Raises UserError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result.
    """
    active_filters = {
        name: value for name, value in filters.items() if value is not None
    }
    file_format = chosen or recognise(path, columns)
    files = [
        _BattleFile(shard, file_format, columns, active_filters, values or {})
        for shard in shards or [path]
    ]
    _check_columns(files)
    battles = concatenate_battles(*(file.read_battles(on_error) for file in files))
    if battles.count is not None:
        is_alone = any(file.has("question_id") for file in files)
        battles = dataclasses.replace(battles, is_alone=is_alone)
    counts, n = Counter[str](), battles.n_total()
    for file in files:
        counts.update(file.counts)
    if counts["dropped"]:
        message = "%s: dropped %d malformed rows; the first: %s"
        first_malformed = next(
            file.first_malformed for file in files if file.first_malformed
        )
        logger.warning(message, path, counts["dropped"], first_malformed)
    if not n:
        names = " and ".join(
            f"{name}={value}" for name, value in active_filters.items()
        )
        row_counts = ", ".join(f"{n} {word}" for word, n in counts.items())
        raise EvidenceError(
            f"{path}: no battle is left{names and f' with {names}'} "
            f"({row_counts or 'it has no rows'})."
        )
    if counts["invalid"] > n:
        raise FileError(
            f"{path}: read as {file_format.name}, {counts['invalid']} rows have no verdict and {n} have "
            "one. Expected most to have one; is the format the right one?"
        )
    _warn(path, files, battles)
    in_one_order = battles.count_at(
        (battles.verdict_ab < 0) != (battles.verdict_ba < 0)
    )
    rows = {
        "used": n,
        "tied": battles.count_at(battles.is_tie()),
        "invalid": 0,
        **counts,
        **({"in one order": in_one_order} if in_one_order else {}),
    }
    notes = {"files": f"{len(shards):,}"} if shards else {}
    if battles.count is not None:
        notes["counts"] = f"{n:,} battles in {len(battles):,} rows"
    missing = [battle for file in files for battle in file.missing]
    if n_blank := sum(len(battle.lacking) for battle in missing):
        notes["blank answers"] = f"{n_blank:,}"
    return battles, formats.log_facts(path, file_format, rows, notes=notes), missing


class _BattleFile:
    """A file of battles, and what has been read of it.

    columns   our field -> the file's column
    kinds     battles without their models and questions: of many rows, few differ otherwise
    counts    rows that are no battles, by the reason
    first_malformed  the first malformed row, with its error
    pooled    dimensions that are not rated apart
    missing   comparisons whose result is unknown
    """

    def __init__(
        self,
        path: Source,
        file_format: Format,
        columns: Mapping[str, str | None],
        active_filters: Mapping[str, str],
        values: Mapping[str, str | None],
    ) -> None:
        """Find the column of each field. Raises UserError for one that is not there."""
        self.path, self.format, self.active_filters = path, file_format, active_filters
        self.kinds, self.counts, self.first_malformed = (
            list[Battle](),
            Counter[str](),
            "",
        )
        self.pooled, self.fields = set[str | None](), dict[str, str]()
        self.missing: list[MissingBattle] = []
        self.present = present = table_files.read_keys(path)
        for name in FIELDS:
            requested, default = columns.get(name), None if name == "score" else name
            if name == requested == "count" and file_format.fields:
                continue
            column = (
                file_format.columns.get(name, requested)
                if requested == default
                else requested
            )
            if column is None and name not in REQUIRED:
                continue
            self.fields[name] = column = str(column)
            is_required = name in REQUIRED and not file_format.fields
            if (is_required or requested == column != name) and column not in present:
                raise FileError(
                    f"{path}: has no column {column!r} (found {_quote_names(present)}). Name it with "
                    f"battles_columns.{name}=COLUMN."
                )
        sides = {self.fields["model_a"]: "model_a", self.fields["model_b"]: "model_b"}
        self.words: dict[str, str | None] = {**WINNER_WORDS, **sides}
        if not file_format.fields:
            self.words |= {
                word: meaning and WINNER_WORDS[meaning]
                for word, meaning in values.items()
            }

        self.columns = {name: name for name in _OPTIONAL_COLUMNS} | self.fields
        texts = [
            name
            for name in QUESTION_TEXT_COLUMNS
            if name in present and name not in self.fields.values()
        ]
        if texts:
            self.columns["question_text"] = texts[0]
        if self.fields.get("dimension") != "dimension":
            self.columns["pooled"] = "dimension"
        if file_format.fields:
            self.columns["malformed"] = _MALFORMED_COLUMN
        if present.issuperset(file_format.answer_columns):
            self.columns |= zip(BLANK_FIELDS, file_format.answer_columns, strict=True)

    def has(self, field: str) -> bool:
        """Whether there is a column of this field."""
        return self.fields.get(field) in self.present

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the completed rows with their locations. Raises UserError for a row that cannot be read."""
        file_format = self.format
        needed_columns = None if file_format.fields else set(self.columns.values())
        rows: Rows = table_files.read_rows(self.path, needed_columns)
        for location, row in file_format.join(rows) if file_format.join else rows:
            try:
                yield location, file_format.complete(row) if file_format.fields else row
            except MalformedError as error:
                yield location, {_MALFORMED_COLUMN: str(error)}

    def read_coded(self) -> tuple[CodedBattles, UserError | None]:
        """Return all rows; or those before the first unreadable one, and its error."""
        is_plain = not (self.format.fields or self.format.join)
        if isinstance(self.path, Frame):
            source = self.path if is_plain else self.rows()
            return table_files.encode_rows(source, self.columns)
        if is_plain and table_files.estimate_text_bytes(self.path) >= MIN_DUCKDB_BYTES:
            coded = table_files.read_by_columns(self.path, self.columns)
            if coded is not None:
                return coded, None
        return table_files.encode_rows(self.rows(), self.columns)

    def read_battles(self, on_error: str) -> Battles:
        """Return the battles in file order. Raises UserError for the first row that stops the reading."""
        coded, unreadable = self.read_coded()
        self.pooled = {_to_text(kind.get("pooled")) for kind in coded.kinds}
        rows, kind_of = self.expand_kinds(coded)
        outcomes = [self.classify(row) for row in rows]
        names, number = _intern_names(map(_to_model_name, coded.models))
        no_questions = [None], np.zeros(len(coded), dtype=np.int32)
        question_cells, question = coded.prompts.get("question_id", no_questions)
        questions = [_to_text(name) for name in question_cells]
        a, b = number[coded.a], number[coded.b]
        status = np.array([_status_of(outcome) for outcome in outcomes], dtype=np.int8)[
            kind_of
        ]
        is_faulty = (a < 0) | (b < 0) | (a == b)
        if self.format.fields:  # without a verdict a row is none, whoever it is about
            no_models = {"model_a": None, "model_b": None}
            outcomes_without_models = [
                self.classify({**row, **no_models}) for row in rows
            ]
            is_faulty &= ~_to_mask(
                isinstance(outcome, str) for outcome in outcomes_without_models
            )[kind_of]
        status[is_faulty] = _DROPPED
        is_missing = (status == _INVALID) | (status == _DROPPED)
        is_missing &= (a >= 0) & (b >= 0) & (a != b)
        is_missing &= _to_mask(map(self.is_wanted, rows))[kind_of]
        if "question_id" in self.active_filters:
            is_other_question = _to_mask(
                q != self.active_filters["question_id"] for q in questions
            )
            status[(status <= _INVALID) & is_other_question[question]] = _FILTERED
            is_missing &= ~is_other_question[question]
        self.missing = self.find_missing(
            coded, rows, kind_of, names, questions, is_missing, status == _USED
        )
        used = np.flatnonzero(status == _USED)
        self.kinds, kind = table_files.renumber_by_appearance(outcomes, kind_of[used])
        battles = dataclasses.replace(
            Battles.from_rows(self.kinds).select(kind),
            models=tuple(names),
            model_a=a[used],
            model_b=b[used],
        ).compact()
        battles = battles.set_questions(questions, question[used])
        battles = self.add_units(battles, coded, used)
        is_stop = (status == _REFUSED) | (status == _DROPPED) & (on_error == "stop")
        if self.format.is_judged:
            is_stop[used[_find_repeated(battles)]] = True
        if is_stop.any():
            raise self.explain_refusal(*self.locate(int(is_stop.argmax())))
        if unreadable is not None:
            raise unreadable
        if len({battle.count is None for battle in self.kinds}) > 1:
            raise FileError(
                f"{self.path}: some rows have {self.fields['count']!r}, and others do not. Expected a "
                "number in all of them, or in none."
            )
        n_battles = np.array([_count_battles(row) for row in rows], dtype=np.intp)[
            kind_of
        ]
        n_battles[status == _DROPPED] = 1
        _, first_rows = np.unique(status, return_index=True)
        for n in np.sort(first_rows[status[first_rows] != _USED]).tolist():
            self.counts[_ROW_STATUSES[status[n]]] = int(
                n_battles[status == status[n]].sum()
            )
        if self.counts["dropped"]:
            location, row = self.locate(int((status == _DROPPED).argmax()))
            self.first_malformed = f"{location}: {self.classify(row)}"
        return battles

    def find_missing(
        self,
        coded: CodedBattles,
        rows: Sequence[Row],
        kind_of: Codes,
        names: Sequence[str],
        questions: Sequence[str | None],
        is_missing: Mask,
        is_used: Mask,
    ) -> list[MissingBattle]:
        """Return the comparisons without a result, and those with a verdict on a blank answer.

        rows, kind_of  as `expand_kinds` returns them
        names          of models
        questions      of the file
        is_missing     rows of two models whose result is unknown
        is_used        rows with a verdict
        """
        no_cells = [None], np.zeros(len(coded), dtype=np.int32)
        _, question = coded.prompts.get("question_id", no_cells)
        clusters, cluster = coded.prompts.get("cluster", no_cells)
        _, number = _intern_names(map(_to_model_name, coded.models))
        is_blank_of = np.array(
            [[bool(row.get(name)) for name in BLANK_FIELDS] for row in rows], dtype=bool
        ).reshape(-1, 2)
        is_blank = is_blank_of[kind_of]
        is_blank &= not is_blank.all()  # such a file keeps no answers
        is_judged = is_used & is_blank.any(axis=1)
        missing = []
        for n in np.flatnonzero(is_missing | is_judged).tolist():
            row = rows[kind_of[n]]
            sides = names[number[coded.a[n]]], names[number[coded.b[n]]]
            lacking = tuple(itertools.compress(sides, is_blank[n].tolist()))
            # An empty answer that was judged is on record
            on_record = lacking if is_judged[n] and len(lacking) == 1 else ()
            battle = MissingBattle(
                model_a=sides[0],
                model_b=sides[1],
                question_id=questions[question[n]] or _hash_question(coded, n),
                dimension=_to_text(row.get("dimension")),
                judge_model=_to_text(row.get("judge_model")),
                lacking=lacking,
                failed=on_record,
                is_judged=bool(is_judged[n]),
                count=_count_battles(row) if self.has("count") else None,
                draw_a=_parse_draw("draw_a", row) if is_judged[n] else 0,
                draw_b=_parse_draw("draw_b", row) if is_judged[n] else 0,
                cluster=_to_text(clusters[cluster[n]]),
            )
            missing.append(battle)
        return missing

    def add_units(self, battles: Battles, coded: CodedBattles, used: Index) -> Battles:
        """Add what prompts have in common: a named cluster, or the text of the question.

        A battle that names no question is on that of its text. If neither names one, all such battles of a file that
        names some are one cluster, as they may all be on one prompt.
        """
        texts = coded.prompts.get("question_text")
        if texts is not None:
            text_hashes, number = _intern_names(
                None if (text := _to_text(cell)) is None else hash_text(text)
                for cell in texts[0]
            )
            text_code = number[texts[1][used]]
            lacks = battles.question >= len(battles.questions)
            if (lacks & (text_code >= 0)).any():
                n = len(battles.questions)
                names = [*battles.questions, *text_hashes, None]
                question = np.where(
                    lacks,
                    np.where(text_code >= 0, n + text_code, n + len(text_hashes)),
                    battles.question,
                )
                battles = battles.set_questions(names, question)
            else:
                battles = _cluster_equal_texts(battles, text_code, text_hashes)
        if (cluster_cells := coded.prompts.get("cluster")) is not None:
            clusters, number = _intern_names(map(_to_text, cluster_cells[0]))
            code = number[cluster_cells[1][used]]
            if (code >= 0).any():
                battles = set_cluster_codes(battles, clusters, code)
        n_lacking = battles.n_unnamed()
        if 0 < n_lacking < battles.n_total() and battles.count is None:
            is_unnamed = battles.units() >= battles.n_named_units
            code = np.where(is_unnamed, 0, -1).astype(np.int32)
            battles = set_cluster_codes(battles, [UNNAMED_CLUSTER], code)
        return battles

    def expand_kinds(self, coded: CodedBattles) -> tuple[list[Row], Codes]:
        """Return the distinct rows up to the names of their models, and the code (n,) of each row.

        A row whose winner may be a word or a name keeps its own names.
        """
        names = [_to_text(name) for name in coded.models]
        winners = [_to_text(kind.get("winner")) for kind in coded.kinds]
        used_words = {*self.words, *winners}
        free_names = (
            name
            for name in map(chr, itertools.count(_FIRST_PRIVATE_CHARACTER))
            if name not in used_words
        )
        placeholder_models = next(free_names), next(free_names)
        kinds_with_sides = zip(coded.kinds, coded.winner_sides, strict=True)
        rows = [
            _fill_in_models(kind, winner_side, *placeholder_models)
            for kind, winner_side in kinds_with_sides
        ]
        is_word = _to_mask(name in self.words for name in names)
        model_names = {*names} - {None}
        is_name = _to_mask(winner in model_names for winner in winners)
        if not self.active_filters.keys().isdisjoint(REQUIRED):
            is_name[:] = True
        unclear = is_name[coded.kind_codes]
        for side, code in (("model_a", coded.a), ("model_b", coded.b)):
            is_own = _to_mask(winner_side == side for winner_side in coded.winner_sides)
            unclear |= is_own[coded.kind_codes] & is_word[code]
        unclear_rows = np.flatnonzero(unclear)
        codes = np.stack((coded.kind_codes, coded.a, coded.b))[:, unclear_rows]
        distinct, number = np.unique(codes, axis=1, return_inverse=True)
        kind = coded.kind_codes.copy()
        kind[unclear_rows] = len(rows) + number
        for k, i, j in distinct.T.tolist():
            names_of = coded.models[i], coded.models[j]
            rows.append(
                _fill_in_models(coded.kinds[k], coded.winner_sides[k], *names_of)
            )
        return rows, kind

    def locate(self, n: int) -> tuple[str, Row]:
        """Return the location of a row, and its cells by our fields."""
        location, row = next(itertools.islice(self.rows(), n, None))
        return location, {
            name: row.get(column) for name, column in self.columns.items()
        }

    def explain_refusal(self, location: str, row: Row) -> UserError:
        """Return the error for a row that stops the reading."""
        outcome = self.classify(row)
        if isinstance(outcome, UserError):
            return outcome
        if not isinstance(outcome, MalformedError):
            return FileError(
                f"{location}: stands twice: judge, models and question are those of a row before. "
                "Remove one of them."
            )
        hint = "battles_on_error=drop leaves such rows out."
        if isinstance(outcome, _UnknownWordError) and not self.format.fields:
            hint = f"{hint} {self.describe_words(outcome.field)}".rstrip()
        return FileError(f"{location}: {outcome} {hint}")

    def classify(self, row: Row) -> Battle | str | MalformedError | UserError:
        """Return the battle of a row, or why it is none."""
        try:
            battle = self.parse_battle(row)
        except (MalformedError, UserError) as error:
            return error
        if not self.is_wanted(row):
            return _ROW_STATUSES[_FILTERED]
        return battle or _ROW_STATUSES[_INVALID]

    def is_wanted(self, row: Row) -> bool:
        """Whether the filters keep a row, but for the filter of questions."""
        return all(
            _to_text(row.get(name)) == value
            for name, value in self.active_filters.items()
            if name != "question_id"
        )

    def parse_battle(self, row: Row) -> Battle | None:
        """Return a battle without its question; None if the judge gave no verdict."""
        _check_cells(row)
        text = {name: _to_text(row.get(name)) for name in FIELDS}
        n, words = text["count"], self.words
        if n is None and self.has("count"):
            raise MalformedError(f"{self.fields['count']} is empty. {_EXPECTED_COUNT}")
        count = None if n is None else _parse_count(self.fields["count"], n)
        expected = f"Expected one of {', '.join(words)}"
        for name in ("verdict_ab", "verdict_ba"):
            if text[name] and text[name] not in words:
                error = f"{name} is {_quote_word(text[name])}. {expected}."
                raise _UnknownWordError(error, name)
        verdicts = (text[name] for name in ("verdict_ab", "verdict_ba"))
        ab, ba = (words[verdict] if verdict else None for verdict in verdicts)
        reconciled = (ab if ab == ba else "tie") if ab and ba else None
        share = text["score"]
        if self.format.fields and text["winner"] is None:
            if share is None and reconciled is None:
                return None
            text["winner"] = formats.winner_of(float(share)) if share else reconciled
        self.check_names(text)
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
            raise FileError(  # other rows may be read in the other way, so that none can be dropped
                f"{self.path}: winner is {result!r}, which is the name of one model and the word "
                "for another result. Rename the model."
            )
        verdict_words = filter(None, (text[name] for name in WINNER_COLUMNS))
        if any(words.get(word, "") is None for word in verdict_words):
            return None
        if winner is None:
            names = f"{_quote_word(model_a)} or {_quote_word(model_b)}"
            error = f"winner is {_quote_word(result)}. {expected}, {names}."
            raise _UnknownWordError(error, "winner")
        score = None if share is None else _parse_score(share, winner, reconciled)
        winner_word = winner.split()[0]
        if reconciled and score is None and winner_word != reconciled.split()[0]:
            raise MalformedError(
                f"winner is {result!r}, verdict_ab is {text['verdict_ab']!r} and verdict_ba is "
                f"{text['verdict_ba']!r}. Expected the verdict of both orders, or a tie where "
                "they disagree."
            )
        return Battle(
            model_a=model_a,
            model_b=model_b,
            winner=winner,
            source=text["source"] or _infer_source(text["judge_model"]),
            judge_model=text["judge_model"],
            dimension=text["dimension"],
            verdict_ab=ab,
            verdict_ba=ba,
            score=score,
            equal_answers=str(_to_text(row.get("equal_answers"))).lower() == "true",
            style_a=_parse_style(_to_text(row.get("style_a"))),
            style_b=_parse_style(_to_text(row.get("style_b"))),
            count=count,
            draw_a=_parse_draw("draw_a", row),
            draw_b=_parse_draw("draw_b", row),
        )

    def check_names(self, text: Mapping[str, str | None]) -> None:
        """Raise MalformedError for a field that has no name where it has to have one."""
        for name in REQUIRED:
            value, noun = text[name], name.split("_")[0]
            if value is None or not _is_name(value):
                fault = "is empty" if value is None else f"has {_quote_word(value)}"
                raise MalformedError(
                    f"column {self.fields[name]!r} {fault}. Expected a {noun}: text without "
                    f"control characters, at most {_MAX_NAME_CHARS} long."
                )
        for name in _METADATA_FIELDS:
            if (value := text[name]) and len(value) > _MAX_NAME_CHARS:
                raise MalformedError(
                    f"column {self.fields[name]!r} has {_quote_word(value)}. Expected a name: at most "
                    f"{_MAX_NAME_CHARS} characters."
                )

    def describe_words(self, field: str) -> str:
        """Name the words of a column, with the setting that says what those mean that are not known."""
        column, counts = self.fields[field], Counter[str]()
        sides = [self.fields["model_a"], self.fields["model_b"]]
        unknown = dict[str, None]()
        with suppress(UserError):  # the file may be damaged further down
            rows = table_files.read_rows(self.path, {column, *sides})
            for _, row in itertools.islice(rows, _MAX_ROWS_SEARCHED_FOR_WORDS):
                word = table_files.to_text(row.get(column))
                names = sides if field == "winner" else ()
                if word and word not in (
                    table_files.to_text(row.get(name)) for name in names
                ):
                    unknown |= {word: None} if word not in self.words else {}
                counts.update([word] if word else [])
        words = [word for word, _ in counts.most_common(_MAX_LISTED_WORDS)]
        more = (
            f" and {len(counts) - len(words)} more" if len(counts) > len(words) else ""
        )
        column_words = (
            f"The column {column!r} has {', '.join(map(_quote_word, words))}{more}"
        )
        setting = _suggest_setting(list(unknown), *sides)
        placeholder_hint = ", in place of ?" if "?" in setting else ""
        return (
            f"{column_words}. To say what they mean{placeholder_hint}: {setting}"
            if setting
            else f"{column_words}."
        )


def _warn(path: Source, files: Sequence[_BattleFile], battles: Battles) -> None:
    """Warn of what looks wrong. Raises UserError for a column that is not one of models."""
    models, fields = battles.models, files[0].fields
    if len(models) > _MAX_MODELS:
        raise FileError(
            f"{path}: found {len(models):,} models. Expected at most {_MAX_MODELS:,}: are "
            f"{fields['model_a']!r} and {fields['model_b']!r} the right columns?"
        )
    if len(battles.dimensions) > _MAX_DIMENSIONS:
        raise FileError(
            f"{path}: found {len(battles.dimensions):,} dimensions in "
            f"{fields['dimension']!r}. Expected at most {_MAX_DIMENSIONS}. Name another column "
            "with battles_columns.dimension=COLUMN, or pool them with "
            "battles_columns.dimension=null."
        )
    warnings = describe_alike(models)
    rare = np.flatnonzero(battles.n_battles() == 1)[:_MAX_NAMES_IN_WARNING]
    if len(rare) and battles.n_total() >= _MIN_BATTLES_FOR_RARE_NAMES:
        slips = _quote_names(models[i] for i in rare)
        warnings.append(f"in one row alone: {slips}. Check the name.")
    setting = "If a column names it, set battles_columns.question_id=COLUMN."
    if (n_unnamed := battles.n_unnamed()) and not battles.is_alone:
        warnings.append(
            f"{n_unnamed} of {battles.n_total()} battles name no question, so that nobody knows how many prompts there are. "
            f"{setting}"
        )
    if UNNAMED_CLUSTER in battles.clusters:
        is_unnamed = battles.units() == battles.clusters.index(UNNAMED_CLUSTER)
        warnings.append(
            f"{battles.count_at(is_unnamed)} of {battles.n_total()} battles name no question, and count together as one "
            f"prompt. {setting}"
        )
    pooled_names = sorted({name for file in files for name in file.pooled if name})
    if len(pooled_names) > 1:
        warnings.append(
            f"{len(pooled_names)} dimensions are pooled ({_quote_names(pooled_names)})."
        )
    for warning in warnings:
        logger.warning("%s: %s", path, warning)


def _check_columns(files: Sequence[_BattleFile]) -> None:
    """Raise UserError for shards with different columns; a line of JSON may lack those that are empty."""
    first, *others = files
    for file in others:
        for name, column in first.fields.items():
            if first.has(name) == file.has(name):
                continue
            with_column, without_column = (
                (first, file) if first.has(name) else (file, first)
            )
            shapes = map(table_files.detect_shape, (first.path, file.path))
            if name == "count" or "lines" not in shapes:
                raise FileError(
                    f"{without_column.path}: has no column {column!r}, which {with_column.path} has. Expected the same "
                    "columns in all files of a folder; those of a list, 'battles=[a.csv,b.csv]', may "
                    "have others."
                )


class _UnknownWordError(MalformedError):
    """Says also in which of our fields the word stands."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def _suggest_setting(words: Sequence[str], column_a: str, column_b: str) -> str:
    """Return battles_values for words, quoted for a shell; a word that names a side's column means this side.

    The meaning of any other word is left to the user, as ?. Returns "" for more words than a column of
    winners has, and for a word that no command can hold.
    """
    a, b = (_split_name(column) for column in (column_a, column_b))
    if (
        not 0 < len(words) <= _MAX_LISTED_WORDS
        or max(map(len, words)) > _MAX_WORD_CHARS
    ):
        return ""
    if any(
        _CONTROL_CHARACTER.search(word) or set(word) & set("\"'\\$") for word in words
    ):
        return ""
    meanings = dict[str, str]()
    for word in words:
        word_parts = _split_name(word)
        sides = {
            "model_a": word_parts & (a - b),
            "model_b": word_parts & (b - a),
            "tie": word_parts & _TIE_WORDS,
        }
        matches = [side for side, common_words in sides.items() if common_words]
        meanings[word] = matches[0] if len(matches) == 1 else "?"
    if not {"model_a", "model_b"} <= set(meanings.values()):
        meanings = {
            word: meaning if meaning == "tie" else "?"
            for word, meaning in meanings.items()
        }
    if all(
        _UNQUOTED_WORD.fullmatch(w) and w.lower() not in _COMMAND_CONSTANTS
        for w in words
    ):
        pairs = ",".join(f"{word}:{meaning}" for word, meaning in meanings.items())
        return shlex.quote(f"battles_values={{{pairs}}}")
    pairs = ",".join(f'["{word}",{meaning}]' for word, meaning in meanings.items())
    return shlex.quote(f"battles_values=[{pairs}]")


def _split_name(name: str) -> set[str]:
    """Return the words in a name without a and b, which mean positions and are also words of a language."""
    return set(re.findall(r"[^\W_]+", name.casefold())) - {"a", "b"}


def _check_cells(row: Row) -> None:
    """Raise MalformedError for a row that its format found malformed, and for a name that is none."""
    if row.get("malformed"):
        raise MalformedError(row["malformed"])
    for name in REQUIRED:
        if isinstance(row.get(name), list | dict | Nested):
            raise MalformedError(f"{name} is {row[name]!r:.80}. Expected a name.")


def _status_of(outcome: Battle | str | MalformedError | UserError) -> int:
    if isinstance(outcome, str):
        return _ROW_STATUSES.index(outcome)
    if isinstance(outcome, Battle):
        return _USED
    return _DROPPED if isinstance(outcome, MalformedError) else _REFUSED


def _fill_in_models(
    kind: Row, winner_side: str | None, model_a: Cell, model_b: Cell
) -> Row:
    """Return a kind with the names of its models."""
    models = {"model_a": model_a, "model_b": model_b}
    return {
        **kind,
        **models,
        **({"winner": models[winner_side]} if winner_side else {}),
    }


def _cluster_equal_texts(
    battles: Battles, text_code: Codes, texts: Sequence[str]
) -> Battles:
    """Make one cluster of questions with other names and the same text."""
    rows = np.flatnonzero(
        (text_code >= 0) & (battles.question < len(battles.questions))
    )
    pairs = np.unique(np.stack((text_code[rows], battles.question[rows])), axis=1)
    n_questions = np.bincount(pairs[0], minlength=len(texts))
    is_shared = np.append(n_questions > 1, False)[text_code]
    if not is_shared.any():
        return battles
    names = [f"text {text}" for text in texts]
    return set_cluster_codes(battles, names, np.where(is_shared, text_code, -1))


def _hash_question(coded: CodedBattles, n: int) -> str | None:
    """Return the id of a row's question from its text, as `add_units` does; None if it has no text."""
    cells, codes = coded.prompts.get("question_text", ([None], np.zeros(n + 1, int)))
    text = _to_text(cells[codes[n]])
    return None if text is None else hash_text(text)


def _to_mask(values: Iterable[bool]) -> Mask:
    return np.fromiter(values, dtype=np.bool_)


def _to_text(value: Any) -> str | None:
    """Return a value of a file, or a cell of it, as text; a list or an object as JSON."""
    if isinstance(value, str):
        return value or None
    value = table_files.to_cell(value)
    return value.text if isinstance(value, Nested) else table_files.to_text(value)


def _to_model_name(value: Cell) -> str | None:
    """Return the name of a model; None if the cell holds no name."""
    text = None if isinstance(value, Nested) else table_files.to_text(value)
    return text if text is not None and _is_name(text) else None


def _is_name(text: str) -> bool:
    return len(text) <= _MAX_NAME_CHARS and not _CONTROL_CHARACTER.search(text)


def _intern_names(names: Iterable[str | None]) -> tuple[list[str], Codes]:
    """Return the distinct names, and the code of each name; -1 for None."""
    distinct = table_files.CodeTable()
    codes = [-1 if name is None else distinct[name] for name in names]
    return list(distinct), np.array(codes, dtype=np.int32)


def _find_repeated(battles: Battles) -> Index:
    """Return the battles whose judge, models and question are those of an earlier one."""
    judged_rows = np.flatnonzero(battles.judge >= 0)
    sides = np.sort(np.stack((battles.model_a, battles.model_b)), axis=0)
    keys = np.stack((*sides, battles.question, battles.dimension, battles.judge))
    _, first_index = np.unique(keys[:, judged_rows], axis=1, return_index=True)
    return np.delete(judged_rows, first_index)


def _infer_source(judge: str | None) -> str:
    """Return the source of a battle by its judge alone: a language model, or a human."""
    return "human" if judge in (None, "human") else "llm-judge"


def _parse_score(text: str, winner: str, reconciled: str | None) -> float:
    """Return the share of model_a. Two orders that disagree, or are ties, may still lean to one side."""
    with suppress(ValueError):
        score = float(text)
        is_tie = reconciled is not None and winner == "tie"
        if 0.0 <= score <= 1.0 and (is_tie or formats.winner_of(score) in winner):
            return score
    raise MalformedError(
        f"score is {_quote_word(text)} and winner is {winner!r}. Expected model_a's share, from 0 to 1, above "
        "0.5 where it wins."
    )


def _count_battles(row: Row) -> int:
    """Return how many battles a row stands for."""
    match = _POSITIVE_INTEGER.fullmatch(_to_text(row.get("count")) or "")
    return int(match[1]) if match else 1


def _parse_count(column: str, text: str) -> int:
    match = _POSITIVE_INTEGER.fullmatch(text)
    if match is None:
        raise MalformedError(f"{column} is {_quote_word(text)}. {_EXPECTED_COUNT}")
    if (count := int(match[1])) > _MAX_BATTLES_PER_ROW:
        raise MalformedError(
            f"{column} is {_quote_word(text)}. Expected at most {_MAX_BATTLES_PER_ROW:,} battles in a row."
        )
    return count


def _parse_draw(column: str, row: Row) -> int:
    """Return which answer of a model was compared; the first if the row does not name it."""
    text = _to_text(row.get(column)) or "0"
    if not re.fullmatch(r"[0-9]{1,6}(\.0*)?", text):
        raise MalformedError(
            f"{column} is {_quote_word(text)}. Expected a number from 0."
        )
    return int(text.partition(".")[0])


def _parse_style(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    with suppress(TypeError, ValueError):
        counts = tuple(map(int, json.loads(text)))
        if len(counts) == len(FEATURES):
            return counts
    raise MalformedError(
        f"style is {_quote_word(text)}. Expected a list of counts: {', '.join(FEATURES)}."
    )


def _quote_word(word: str | None) -> str:
    """Quote a word of a file, and cut it if it is long."""
    text = str(word)
    return repr(text if len(text) <= _MAX_WORD_CHARS else f"{text[:_MAX_WORD_CHARS]}…")


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
