"""Where the battles or scores of a rating come from: files of any format, by whose verdicts, and what else they hold."""

import functools
import logging
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elo_exp.analysis import verdict_sources
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.verdict_sources import VerdictSource
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import (
    battle_files,
    column_roles,
    field_names,
    formats,
    scores,
    table_files,
)
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battle_files import BattleText
from elo_exp.data.battle_judges import count_shares_and_labels
from elo_exp.data.battles import OVERALL_DIMENSION, Battles
from elo_exp.data.column_roles import SCORE_COLUMNS, TEXT_COLUMNS, Columns
from elo_exp.data.formats import Format
from elo_exp.data.scores import Score
from elo_exp.data.table_files import Source
from elo_exp.errors import FileError, SettingError, format_value
from elo_exp.files import escape_name
from elo_exp.formatting import join_names as joined
from elo_exp.judges import guess_judge_kind
from elo_exp.records import MissingBattle, Response
from elo_exp.report.sentences import judges_sentences as words
from elo_exp.runs.reading import manifest_if_any

logger = logging.getLogger(__name__)

_MAX_FOLDER_NAME_BYTES = 200
_ROLES_OF_SCORES = {"entrant", "score"}


@dataclass(frozen=True, kw_only=True)
class BattleSource:
    """Files of battles, or of scores of items, as a command describes them.

    paths       of files and folders
    roles       the column of each role that the command names
    columns     the file's column of each field of a battle; None: not to be read
    values      what the file's words mean
    judges      None: verdicts of several judges are rated apart
    arena       whose human battles are rated with those of the files; None: no arena
    with_style  whether the rating needs the style of answers
    """

    paths: str | Sequence[str]
    format_name: str | None
    metric: str | None
    roles: Columns
    columns: dict[str, str | None]
    values: dict[str, str | None]
    filters: dict[str, str | None]
    on_error: Literal["stop", "drop"]
    judges: Literal["pooled"] | None
    arena: ArenaSettings | None
    with_style: bool

    @functools.cached_property
    def files(self) -> dict[Path, Format]:
        """The files to read, with their formats; in a folder all files that have rows."""
        format_by_path, unread = dict[Path, Format](), list[str]()
        _refuse_absent_columns(self._given_paths, self.roles)
        for name in self._given_paths:
            for path in _list_data_files(name) or [name]:
                if path.is_dir():
                    raise _build_no_table_error(path)
                if not path.is_file():
                    raise FileError.not_found(path, "battles")
                file_format = _recognise(path, self)
                if file_format.remedy:
                    unread.append(
                        f"{path} holds {file_format.name}, which cannot be rated. {file_format.remedy}"
                    )
                else:
                    format_by_path[path] = file_format
        if unread and not format_by_path:
            raise FileError(unread[0])
        for line in unread:
            logger.warning("%s It is left out.", line)
        if (
            len({file_format.scores is None for file_format in format_by_path.values()})
            > 1
        ):
            kinds = ", ".join(
                f"{path} ({file_format.name})"
                for path, file_format in format_by_path.items()
            )
            raise SettingError(
                f"battles must be either battles or item scores, not both; got {kinds}."
            )
        return format_by_path

    @property
    def _given_paths(self) -> list[Path]:
        names = [self.paths] if isinstance(self.paths, str) else self.paths
        return [Path(name) for name in names]

    @property
    def shards_by_table(self) -> dict[Path, list[Path]]:
        """The files of each table that is read as one: tables of battles in a folder are shards."""
        shards_by_table, remaining = dict[Path, list[Path]](), dict(self.files)
        for name in self._given_paths:
            forms_by_path = {
                path: remaining.pop(path)
                for path in [*remaining]
                if path.is_relative_to(name)
            }
            is_plain, *other_kinds = {
                form.name: form.is_plain for form in forms_by_path.values()
            }.values() or [False]
            if is_plain and not other_kinds and len(forms_by_path) > 1:
                shards_by_table[name] = [*forms_by_path]
            else:
                shards_by_table |= {path: [] for path in forms_by_path}
        return shards_by_table

    @property
    def label(self) -> str:
        """The names of the tables."""
        return format_files([*self.shards_by_table])

    @property
    def is_scored(self) -> bool:
        """Whether the files hold scores of items."""
        return any(file_format.scores for file_format in self.files.values())

    @functools.cached_property
    def scores(self) -> tuple[list[Score], list[dict[str, Any]]]:
        """Scores of items, and the manifest's row of each file."""
        metric, cluster = self.metric, self.columns["cluster"]
        sources = {
            _name_score_columns(path, self.roles): file_format
            for path, file_format in self.files.items()
        }
        return scores.read_scores(sources, metric=metric, cluster=cluster)

    @property
    def scale(self) -> tuple[float, float] | None:
        """The least and the greatest score that the programs give; None if they differ, or a score lies outside."""
        return _find_scale(self.files.values(), self.scores[0])

    @functools.cached_property
    def battles_by_file(
        self,
    ) -> list[tuple[Battles, dict[str, Any], list[MissingBattle]]]:
        """For each file its battles, the manifest's row and the comparisons without a winner."""
        return [
            battle_files.read_with_missing(
                path if shards else _name_text_columns(path, self.roles),
                columns=self.columns,
                filters=self.filters,
                values=self.values,
                on_error=self.on_error,
                chosen=self.files[shards[0] if shards else path],
                shards=[_name_text_columns(shard, self.roles) for shard in shards],
            )
            for path, shards in self.shards_by_table.items()
        ]

    @functools.cached_property
    def all_battles(self) -> tuple[Battles, list[dict[str, Any]]]:
        """Battles of all files, with those of the arena, and the manifest's row of each file."""
        all_battles = concatenate_battles(
            *(battles for battles, _, _ in self.battles_by_file)
        )
        if self.arena is not None:
            arena = arenas.read_arena(self.arena, with_style=self.with_style)
            anchors = placement.find_anchors(arena, self.arena.min_battles)
            all_battles = concatenate_battles(
                all_battles, arena.battles.select_between(anchors)
            )
        return all_battles, [row for _, row, _ in self.battles_by_file]

    @functools.cached_property
    def separate_parties(self) -> dict[str, VerdictSource]:
        """The parties whose verdicts are rated separately, by name; empty if all are rated together."""
        all_battles, _ = self.all_battles
        path, column = next(iter(self.files)), self.columns["judge_model"]
        column = self.files[path].columns.get("judge_model") or column
        if repeats := verdict_sources.find_repeats(all_battles):
            message = words.warn_repeated_judging(repeats, column=column)
            logger.warning("%s: %s", self.label, message)
        parties = verdict_sources.split_by_source(
            all_battles, says_votes=self._says_votes(all_battles)
        )
        if self.judges is None and verdict_sources.must_rate_separately(parties):
            _refuse_names([*parties])
            for party in parties.values():
                _refuse_pooled(party.battles)
            return parties
        _refuse_pooled(all_battles)
        names = [name for party in parties.values() for name in party.names]
        if len(names) > 1 and verdict_sources.share_a_dimension(all_battles):
            is_asked = self.judges is not None
            message = words.warn_pooled_judges(names, column=column, is_asked=is_asked)
            logger.warning("%s: %s", self.label, message)
        return {}

    def _says_votes(self, battles: Battles) -> bool:
        """Whether votes are said to be: by the format, the column `source` or a judge called human."""
        judge_names = {
            battles.judges[i] for i in np.unique(battles.judge).tolist() if i >= 0
        }
        return "human" in judge_names or all(
            file_format.is_votes or self._has_source(path)
            for path, file_format in self.files.items()
        )

    def _has_source(self, path: Path) -> bool:
        return self.columns["source"] in table_files.read_keys(path)

    @functools.cached_property
    def is_one_order_design(self) -> bool:
        """Whether all files are of runs that asked each comparison in one order: no second order is missing then."""
        settings = [manifest_if_any(path.parent).get("config") for path in self.files]
        return all(
            ((config or {}).get("judging") or {}).get("orders") == "one"
            for config in settings
        )

    @functools.cached_property
    def texts(self) -> list[BattleText]:
        """The rows that hold answers beside their battles."""
        return [
            text
            for path, file_format in self.files.items()
            for text in battle_files.read_texts(
                _name_text_columns(path, self.roles),
                columns=self.columns,
                filters=self.filters,
                values=self.values,
                chosen=file_format,
            )
        ]

    @property
    def answers(self) -> dict[str, dict[str, Response]]:
        """The answers that the files hold beside their battles, by model and prompt.

        An answer to a prompt without a name is left out: a model's answer may stand in many battles, and would be taken
        for many equal answers.
        """
        answers = dict[str, dict[str, Response]]()
        for text in self.texts:
            for model, answer in zip(text.models, text.answers, strict=True):
                if model is not None and (prompt := text.prompt_id) is not None:
                    answers.setdefault(model, {})[prompt] = Response(
                        entrant_id=model, prompt_id=prompt, response_text=answer
                    )
        return answers

    def find_missing_battles(self, battles: Battles) -> dict[str, list[MissingBattle]]:
        """Find the comparisons without a winner, by dimension, from the judges of these battles or without a judge."""
        judges = {battles.judges[i] for i in np.unique(battles.judge) if i >= 0}
        missing_by_dimension: dict[str, list[MissingBattle]] = {
            name: [] for name in battles.split_by_dimension()
        }
        all_missing = [
            battle for _, _, missing in self.battles_by_file for battle in missing
        ]
        for battle in all_missing:
            dimension_missing = missing_by_dimension.get(
                battle.dimension or OVERALL_DIMENSION
            )
            if dimension_missing is not None and battle.judge_model in (None, *judges):
                dimension_missing.append(battle)
        return missing_by_dimension

    def find_scope(self, battles: Battles) -> Scope:
        """Find whose verdicts the battles are: people's votes, or verdicts of judges, which need not be named."""
        is_verdict = np.array([source != "human" for source in battles.sources])
        verdicts = battles.select(is_verdict[battles.source])
        names = [
            verdicts.judges[i] for i in np.unique(verdicts.judge).tolist() if i >= 0
        ]
        source = self.label
        if self._says_votes(battles) and not len(verdicts):
            return Scope(kind="people", source=source)
        kind = guess_judge_kind(names)
        return Scope(judge=joined(names) or None, kind=kind, source=source)


def _find_scale(
    file_formats: Iterable[Format], rows: Sequence[Score]
) -> tuple[float, float] | None:
    """Return the scale of all formats; None if they differ, or a score lies outside."""
    scales = {file_format.scale for file_format in file_formats}
    scale = scales.pop() if len(scales) == 1 else None
    values = [row.value for row in rows if row.value is not None]
    is_inside = scale and scale[0] <= min(values) and max(values) <= scale[1]
    return scale if is_inside else None


def _refuse_absent_columns(paths: Sequence[Path], roles: Columns) -> None:
    """Raise FileError for a column of a role that no file has, those in folders among them."""
    files = [file for path in paths for file in _list_data_files(path) or [path]]
    column_roles.refuse_absent_columns(files, roles)


def _recognise(path: Path, source: BattleSource) -> Format:
    """Return the format of a file: a log or a table of scores, or battles with the columns that the command names."""
    table = _name_score_columns(path, source.roles)
    if table != path:
        try:
            return formats.recognise(table, source.format_name)
        except FileError:
            if source.roles.keys() & _ROLES_OF_SCORES:
                raise
    return battle_files.recognise(path, source.columns, source.format_name)


def _name_score_columns(path: Path, roles: Columns) -> Source:
    """Return a file as a table of scores under our names; the file itself if it holds battles or has usual names."""
    if roles.keys() & column_roles.ROLES_OF_BATTLES:
        return path
    present = column_roles.select_present([path], roles).get(path, {})
    return column_roles.name_columns(path, present, SCORE_COLUMNS)


def _name_text_columns(path: Path, roles: Columns) -> Source:
    """Return a file of battles with its texts under our names; the file itself if the command names no text."""
    texts = {role: column for role, column in roles.items() if role in TEXT_COLUMNS}
    present = column_roles.select_present([path], texts).get(path, {})
    return column_roles.name_columns(path, {**roles, **present}, TEXT_COLUMNS)


def _refuse_names(judges: Sequence[str]) -> None:
    """Raise FileError for names of judges that look alike, and for one that no folder can have."""
    for group in field_names.group_alike(judges):
        raise FileError(
            f"The judges {joined(list(map(format_value, group)))} look like one judge, which would count twice. Choose one:",
            "  Give the judge one name in the file.",
            "  judges=pooled rates all verdicts together.",
        )
    for name in judges:
        folder = escape_name(name)
        if (
            folder.strip(". ") == ""
            or len(folder.encode(errors="replace")) > _MAX_FOLDER_NAME_BYTES
        ):
            raise FileError(
                f"The judge {format_value(name)} cannot name a folder: a name must have fewer than "
                f"{_MAX_FOLDER_NAME_BYTES} bytes "
                "and not only dots. To rate one judge:",
                "  battles_filter.judge_model=NAME",
            )


def _refuse_pooled(all_battles: Battles) -> None:
    """Raise FileError where some verdicts on a dimension are shares, and others labels."""
    for dimension, battles in all_battles.split_by_dimension().items():
        n_shares, n_labels = count_shares_and_labels(battles)
        if n_shares and n_labels:
            raise FileError(
                f"On {dimension}, {n_shares:,} verdicts are probabilities and {n_labels:,} are labels, which have "
                f"different scales. "
                "To read labels only:",
                "  battles_columns.score=null",
            )


def _build_no_table_error(folder: Path) -> FileError:
    """Build the error for a folder without files to rate."""
    if battles_path := _find_run_battles(folder):
        return FileError(
            f"{folder} is a run folder. To rate its battles again, write:",
            f"  battles={shlex.quote(str(battles_path))}",
        )
    return FileError(
        f"{folder} has no table with rows. Files whose names begin with . or _ are ignored."
    )


def _find_run_battles(folder: Path) -> Path | None:
    """Return the battles file of a run folder, or None."""
    if not (folder / "manifest.json").is_file():
        return None
    candidates = (folder / f"battles.{kind}" for kind in ("parquet", "jsonl"))
    return next(filter(Path.is_file, candidates), None)


def _list_data_files(folder: Path) -> list[Path]:
    """List the files in a folder that have rows, without hidden files and markers of engines such as _SUCCESS."""
    paths = (
        []
        if _find_run_battles(folder)
        else sorted(filter(Path.is_file, folder.rglob("*")))
    )
    visible = [
        path
        for path in paths
        if not any(
            folder_part.startswith((".", "_"))
            for folder_part in path.relative_to(folder).parts
        )
    ]
    return [path for path in visible if table_files.read_keys(path)] or visible


def format_files(files: Sequence[Path]) -> str:
    """Name files in a sentence."""
    return joined([str(path) for path in files])
