"""Files of battles: the rows of any format become battles, checked and counted."""

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elo_exp.arrays import Index, Mask, to_mask
from elo_exp.data import battle_texts, formats, table_files
from elo_exp.data.bank import hash_text
from elo_exp.data.battle_cells import (
    cell_to_text,
    count_battles,
    quote_names,
    to_model_name,
)
from elo_exp.data.battle_clusters import UNNAMED_CLUSTER
from elo_exp.data.battle_columns import (
    MALFORMED_COLUMN,
    REQUIRED,
    BattleColumns,
    check_same_columns,
    find_columns,
)
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battle_row_parser import (
    DROPPED,
    FILTERED,
    INVALID,
    REFUSED,
    ROW_STATUSES,
    USED,
    BattleRowParser,
    Outcome,
    UnknownWordError,
    list_winner_words,
    status_of,
)
from elo_exp.data.battle_table import BattleTable, tabulate_battles
from elo_exp.data.battle_units import add_units
from elo_exp.data.battles import Battles
from elo_exp.data.field_names import describe_alike
from elo_exp.data.formats import Format, MalformedError, Rows
from elo_exp.data.formats.battle_rows import FLAT, SHARES
from elo_exp.data.missing_battles import find_missing_battles
from elo_exp.data.table_files import CodedBattles, Frame, Row, Source
from elo_exp.data.winner_words import describe_words
from elo_exp.data.writing_style import count_style
from elo_exp.errors import EvidenceError, FileError, UserError
from elo_exp.files import report_read_errors
from elo_exp.records import Battle, MissingBattle

logger = logging.getLogger(__name__)

# Of rows (n,), places in ROW_STATUSES
Statuses = NDArray[np.int8]

# Bytes of a file, were it text, from which on importing DuckDB takes less time than rows
MIN_DUCKDB_BYTES = 1_000_000
# A column with more values holds something other than models or dimensions
_MAX_MODELS = 3000
_MAX_DIMENSIONS = 100
_MAX_NAMES_IN_WARNING = 5
# In a file of so many battles, a name that occurs once may be a typo
_MIN_BATTLES_FOR_RARE_NAMES = 20
# A larger file is read by columns, without the style of its answers
_MAX_BYTES_WITH_STYLE = 200_000_000
_N_ROWS_LOOKED_AT = 20
_STYLE_FIELDS = ("style_a", "style_b")


def recognise(
    path: Source, columns: Mapping[str, str | None], name: str | None = None
) -> Format:
    """Return a file's format; if the command names columns of models or winner, a plain table.

    If it names the column of shares of a table without winners, the shares decide who wins.
    """
    names_shares = columns.get("score") and columns.get("winner") in (None, "winner")
    if name is None and names_shares and "winner" not in table_files.read_keys(path):
        return SHARES
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
    Raises FileError naming file, line, what was found and what was expected; whatever `on_error`
    is, also for a file that is no table, and for a winner's word that is the name of one model and
    stands for another result. Raises EvidenceError if no battle is left.
    """
    active_filters = {
        name: value for name, value in filters.items() if value is not None
    }
    file_format = chosen or recognise(path, columns)
    files = [
        _open_file(shard, file_format, columns, active_filters, values or {})
        for shard in shards or [path]
    ]
    check_same_columns([file.columns for file in files])
    contents = [file.read_content(on_error) for file in files]
    battles = concatenate_battles(*(content.battles for content in contents))
    if battles.count is not None:
        is_alone = any(file.columns.has("question_id") for file in files)
        battles = dataclasses.replace(battles, is_alone=is_alone)
    counts, n = Counter[str](), battles.n_total()
    for content in contents:
        counts.update(content.counts)
    if counts["dropped"]:
        message = "%s: dropped %d malformed rows; the first: %s"
        first_malformed = next(
            content.first_malformed for content in contents if content.first_malformed
        )
        logger.warning(message, path, counts["dropped"], first_malformed)
    if not n:
        names = " and ".join(
            f"{name}={value}" for name, value in active_filters.items()
        )
        row_counts = ", ".join(f"{n} {word}" for word, n in counts.items())
        raise EvidenceError(
            f"{path} has no battle that can be rated{names and f' with {names}'} ({row_counts or 'it has no rows'})."
        )
    if counts["invalid"] > n:
        raise FileError.bad_file(
            path,
            f"has {counts['invalid']} rows without a verdict and {n} with one, read as {file_format.name}",
            "Is it the right format? Set it with battles_format=NAME.",
        )
    pooled_names = set[str | None]().union(*(content.pooled for content in contents))
    _warn(path, files[0].columns.fields, battles, pooled_names)
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
    missing = [battle for content in contents for battle in content.missing]
    if n_blank := sum(len(battle.lacking) for battle in missing):
        notes["blank answers"] = f"{n_blank:,}"
    return battles, formats.log_facts(path, file_format, rows, notes=notes), missing


@dataclass(frozen=True, kw_only=True)
class _FileContent:
    """What has been read of one file.

    counts           rows that are no battles, by the reason
    first_malformed  the first malformed row, with its error
    pooled           dimensions that are not rated apart
    missing          comparisons whose result is unknown
    """

    battles: Battles
    counts: Mapping[str, int]
    first_malformed: str
    pooled: set[str | None]
    missing: list[MissingBattle]


@dataclass(frozen=True, kw_only=True)
class BattleText:
    """The texts of one row.

    battle     None: the row has no verdict that counts
    models     model_a and model_b; None for a cell that names no model
    prompt_id  None if the row names no question
    question   empty if the row holds none
    answers    of model_a and model_b
    category   of the question; None if the row does not say
    reason     why the judge gave its verdict; empty if the row does not say
    """

    battle: Battle | None
    models: tuple[str | None, str | None]
    prompt_id: str | None
    question: str
    answers: tuple[str, str]
    category: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class _BattleFile:
    """A file of battles, which is read in whole."""

    path: Source
    format: Format
    columns: BattleColumns
    parser: BattleRowParser

    def iterate_rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the completed rows with their locations. Raises FileError for a row that cannot be read."""
        needs_all = self.format.fields is not None or self.has_texts
        needed_columns = None if needs_all else set(self.columns.by_field.values())
        for location, row in self._complete_rows(needed_columns):
            yield location, self._add_style(row) if self.has_texts else row

    def _complete_rows(
        self, needed_columns: set[str] | None
    ) -> Iterator[tuple[str, Row]]:
        file_format = self.format
        rows: Rows = table_files.read_rows(self.path, needed_columns)
        for location, row in file_format.join(rows) if file_format.join else rows:
            try:
                yield location, file_format.complete(row) if file_format.fields else row
            except MalformedError as error:
                yield location, {MALFORMED_COLUMN: str(error)}

    @cached_property
    def has_texts(self) -> bool:
        """Whether the file holds the answers that were compared, and is not too large to look at them."""
        if (
            not isinstance(self.path, Frame)
            and table_files.estimate_text_bytes(self.path) > _MAX_BYTES_WITH_STYLE
        ):
            return False
        return self._holds_answers

    @cached_property
    def _holds_answers(self) -> bool:
        """Whether one of the first rows holds answers."""
        rows = itertools.islice(self._complete_rows(None), _N_ROWS_LOOKED_AT)
        try:
            return any(self.format.find_answers(row) is not None for _, row in rows)
        except UserError:
            # Reading the file says so, unless nobody reads what is at fault
            return False

    def _add_style(self, row: Row) -> Row:
        """Add the style of both answers, unless the row has it or an answer is blank."""
        answers = self.format.find_answers(row) or ("", "")
        style = {
            name: list(count_style(text))
            for name, text in zip(_STYLE_FIELDS, answers, strict=True)
            if text.strip() and row.get(name) is None
        }
        return {**row, **style}

    def iterate_texts(self) -> Iterator[BattleText]:
        """Yield the rows that hold answers, with their battles."""
        if not self._holds_answers:
            return
        for _, row in self.iterate_rows():
            answers = self.format.find_answers(row)
            if answers is None:
                continue
            cells = {
                name: row.get(column) for name, column in self.columns.by_field.items()
            }
            outcome = self.parser.classify(cells)
            question = battle_texts.find_question(row)
            hashed = None if question is None else hash_text(question)
            yield BattleText(
                battle=outcome if isinstance(outcome, Battle) else None,
                models=(
                    to_model_name(cells["model_a"]),
                    to_model_name(cells["model_b"]),
                ),
                prompt_id=cell_to_text(cells.get("question_id")) or hashed,
                question=question or "",
                answers=answers,
                category=battle_texts.find_category(row),
                reason=battle_texts.find_reason(row),
            )

    def read_coded(self) -> tuple[CodedBattles, UserError | None]:
        """Return all rows; or those before the first unreadable one, and its error."""
        is_plain = not (self.format.fields or self.format.join or self.has_texts)
        columns = self.columns.by_field
        if isinstance(self.path, Frame):
            source = self.path if is_plain else self.iterate_rows()
            return table_files.encode_rows(source, columns)
        if (
            is_plain
            and isinstance(self.path, Path)
            and table_files.estimate_text_bytes(self.path) >= MIN_DUCKDB_BYTES
        ):
            coded = table_files.read_by_columns(self.path, columns)
            if coded is not None:
                return coded, None
        return table_files.encode_rows(self.iterate_rows(), columns)

    def read_content(self, on_error: str) -> _FileContent:
        """Return the battles in file order. Raises FileError for the first row that stops the reading."""
        if self.format.list_notes is not None:
            for note in self.format.list_notes(table_files.read_rows(self.path)):
                logger.warning("%s: %s", self.path, note)
        coded, unreadable = self.read_coded()
        filters = self.parser.active_filters
        table = tabulate_battles(
            coded,
            self.parser.words,
            keep_models=not filters.keys().isdisjoint(REQUIRED),
        )
        outcomes = [self.parser.classify(row) for row in table.rows]
        status = self._find_statuses(table, outcomes)
        is_missing = self._find_unknown_results(table, status)
        if "question_id" in filters:
            is_other_question = to_mask(
                question != filters["question_id"] for question in table.questions
            )[table.question]
            status[(status <= INVALID) & is_other_question] = FILTERED
            is_missing &= ~is_other_question
        missing = find_missing_battles(
            table,
            is_missing,
            status == USED,
            has_counts=self.columns.has("count"),
        )
        used = np.flatnonzero(status == USED)
        kinds, kind = table_files.renumber_by_appearance(outcomes, table.row[used])
        battles = dataclasses.replace(
            Battles.from_rows(kinds).select(kind),
            models=table.models,
            model_a=table.model_a[used],
            model_b=table.model_b[used],
        ).compact()
        battles = battles.set_questions(table.questions, table.question[used])
        battles = add_units(battles, table, used)
        is_stop = (status == REFUSED) | (status == DROPPED) & (on_error == "stop")
        if self.format.is_judged:
            is_stop[used[_find_repeated(battles)]] = True
        if is_stop.any():
            raise self.explain_refusal(*self.locate(int(is_stop.argmax())))
        if unreadable is not None:
            raise unreadable
        self._check_counts(kinds)
        return _FileContent(
            battles=battles,
            counts=_count_statuses(table, status),
            first_malformed=self._describe_first_malformed(status),
            pooled={cell_to_text(kind.get("pooled")) for kind in coded.kinds},
            missing=missing,
        )

    def _find_statuses(
        self, table: BattleTable, outcomes: Sequence[Outcome]
    ) -> Statuses:
        """Return the status (n,) of each row, but for the filter of questions."""
        status = np.array([status_of(outcome) for outcome in outcomes], dtype=np.int8)[
            table.row
        ]
        is_faulty = ~_has_two_models(table)
        if self.format.fields:  # without a verdict a row is none, whoever it is about
            no_models = {"model_a": None, "model_b": None}
            outcomes_without_models = [
                self.parser.classify({**row, **no_models}) for row in table.rows
            ]
            is_faulty &= ~to_mask(
                isinstance(outcome, str) for outcome in outcomes_without_models
            )[table.row]
        status[is_faulty] = DROPPED
        return status

    def _find_unknown_results(self, table: BattleTable, status: Statuses) -> Mask:
        """Return which rows (n,) are of two models, wanted and without a result."""
        is_unknown = (status == INVALID) | (status == DROPPED)
        is_wanted = to_mask(map(self.parser.is_wanted, table.rows))[table.row]
        return np.asarray(is_unknown & _has_two_models(table) & is_wanted)

    def _check_counts(self, kinds: Sequence[Battle]) -> None:
        """Raise FileError if some battles have a count, and others do not."""
        if len({battle.count is None for battle in kinds}) > 1:
            raise FileError.bad_file(
                self.path,
                f"has a number in {self.columns.fields['count']} in some rows, and none in others",
                "Fill in all of them, or none.",
            )

    def _describe_first_malformed(self, status: Statuses) -> str:
        """Return the first malformed row's location and error; "" if there is none."""
        if not (status == DROPPED).any():
            return ""
        location, row = self.locate(int((status == DROPPED).argmax()))
        return f"{location}: {self.parser.classify(row)}"

    def locate(self, n: int) -> tuple[str, Row]:
        """Return the location of a row, and its cells by our fields."""
        location, row = next(itertools.islice(self.iterate_rows(), n, None))
        return location, {
            name: row.get(column) for name, column in self.columns.by_field.items()
        }

    def explain_refusal(self, location: str, row: Row) -> UserError:
        """Return the error for a row that stops the reading."""
        outcome = self.parser.classify(row)
        if isinstance(outcome, UserError):
            return outcome
        if not isinstance(outcome, MalformedError):
            return FileError(
                f"{location} repeats an earlier row: judge, models and question are the same. Remove one of the two."
            )
        hints = ["To leave out such rows: battles_on_error=drop"]
        if isinstance(outcome, UnknownWordError) and not self.format.fields:
            hints += describe_words(self.parser, outcome.field)
        return FileError(f"{location}: {outcome}", *(f"  {hint}" for hint in hints))


def read_texts(
    path: Source,
    *,
    columns: Mapping[str, str | None],
    filters: Mapping[str, str | None],
    values: Mapping[str, str | None] | None = None,
    chosen: Format,
) -> Iterator[BattleText]:
    """Yield the texts of the rows of a file that hold answers, with their battles."""
    active_filters = {
        name: value for name, value in filters.items() if value is not None
    }
    return _open_file(
        path, chosen, columns, active_filters, values or {}
    ).iterate_texts()


def _open_file(
    path: Source,
    file_format: Format,
    columns: Mapping[str, str | None],
    active_filters: Mapping[str, str],
    values: Mapping[str, str | None],
) -> _BattleFile:
    """Find the columns of a file. Raises FileError for a column that is not there."""
    file_columns = find_columns(path, file_format, columns)
    parser = BattleRowParser(
        file_format=file_format,
        columns=file_columns,
        words=list_winner_words(file_columns, file_format, values),
        active_filters=active_filters,
    )
    return _BattleFile(
        path=path, format=file_format, columns=file_columns, parser=parser
    )


def _has_two_models(table: BattleTable) -> Mask:
    """Return which rows (n,) name two different models."""
    a, b = table.model_a, table.model_b
    return np.asarray((a >= 0) & (b >= 0) & (a != b))


def _count_statuses(table: BattleTable, status: Statuses) -> dict[str, int]:
    """Count the battles that are not used by their status, in the order in which these first appear."""
    n_battles = np.array([count_battles(row) for row in table.rows], dtype=np.intp)[
        table.row
    ]
    n_battles[status == DROPPED] = 1
    _, first_rows = np.unique(status, return_index=True)
    return {
        ROW_STATUSES[status[n]]: int(n_battles[status == status[n]].sum())
        for n in np.sort(first_rows[status[first_rows] != USED]).tolist()
    }


def _warn(
    path: Source,
    fields: Mapping[str, str],
    battles: Battles,
    pooled_names: Collection[str | None],
) -> None:
    """Warn of what looks wrong. Raises FileError for a column that is not one of models."""
    models = battles.models
    if len(models) > _MAX_MODELS:
        raise FileError.bad_file(
            path,
            f"has {len(models):,} models, more than the {_MAX_MODELS:,} that can be rated",
            f"Are {fields['model_a']} and {fields['model_b']} the right columns?",
        )
    if len(battles.dimensions) > _MAX_DIMENSIONS:
        raise FileError.bad_file(
            path,
            f"has {len(battles.dimensions):,} dimensions in the column {fields['dimension']}, more than {_MAX_DIMENSIONS}",
            "Name another column, or pool them:",
            "  battles_columns.rubric=COLUMN",
            "  battles_columns.rubric=null",
        )
    warnings = describe_alike(models)
    rare = np.flatnonzero(battles.n_battles() == 1)[:_MAX_NAMES_IN_WARNING]
    if len(rare) and battles.n_total() >= _MIN_BATTLES_FOR_RARE_NAMES:
        slips = quote_names(models[i] for i in rare)
        warnings.append(f"in one row alone: {slips}. Check the name.")
    setting = "If a column names it, set columns.item=COLUMN."
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
    dimensions = sorted(filter(None, pooled_names))
    if len(dimensions) > 1:
        warnings.append(
            f"{len(dimensions)} dimensions are pooled ({quote_names(dimensions)})."
        )
    for warning in warnings:
        logger.warning("%s: %s", path, warning)


def _find_repeated(battles: Battles) -> Index:
    """Return the battles whose judge, models and question are those of an earlier one."""
    judged_rows = np.flatnonzero(battles.judge >= 0)
    sides = np.sort(np.stack((battles.model_a, battles.model_b)), axis=0)
    keys = np.stack((*sides, battles.question, battles.dimension, battles.judge))
    _, first_index = np.unique(keys[:, judged_rows], axis=1, return_index=True)
    return np.delete(judged_rows, first_index)
