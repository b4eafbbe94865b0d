"""Ratings of any battles file, with no judge: what a tournament concludes, from battles made anywhere."""

import functools
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from elo_exp.analysis import families, standings
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.standings import Standings
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import battle_files, scores, tables
from elo_exp.data.battles import Battles
from elo_exp.data.formats import WORDS, Format
from elo_exp.data.scores import Score
from elo_exp.experiments import Context, Report
from elo_exp.experiments.rated import kinds_of_numbers, report
from elo_exp.judges import kind_of_recorded
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import UserError
from elo_exp.report import artifacts
from elo_exp.report.formats import names as joined
from elo_exp.report.words import opening
from elo_exp.runs.reading import read_settings
from elo_exp.types import Count, Families, Orders

logger = logging.getLogger(__name__)


def _pairs(given: Any) -> Any:
    """A mapping also of pairs, in which a command can write any word, and of nothing."""
    if given is None or isinstance(given, dict):
        return given or {}
    is_pairs = isinstance(given, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in given
    )
    if not is_pairs:
        raise UserError(
            f"battles_values: found {given!r}. Expected what the file's words mean: "
            "'battles_values={left:model_a,right:model_b}'."
        )
    words = [str(word) for word, _ in given]
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise UserError(
            f"battles_values: found {twice!r} twice. Expected each word once."
        )
    return dict(zip(words, (meant for _, meant in given), strict=True))


@dataclass(kw_only=True)
class RatedVerdicts:
    orders: Orders
    families: Families  # of models, by a part of their names


@dataclass(kw_only=True)
class Passes:
    at: list[Count]
    hat: list[Count]


@dataclass(kw_only=True)
class Rate:
    elo: EloMethod
    rating: dict[str, RatingMethod]
    judging: RatedVerdicts
    sweep_pair: list[str] | None  # whose difference a sweep draws; None: the two best
    ratings_from: str | None
    battles: str | list[str]
    battles_format: str | None
    battles_metric: str | None
    allow_missing: bool
    pass_: Passes
    battles_on_error: Literal["stop", "drop"]
    battles_columns: dict[str, str | None]  # None: not to be read
    battles_values: Annotated[dict[str, str | None], BeforeValidator(_pairs)]
    battles_filter: dict[str, str | None]
    # whose human battles an arena run left out of its file
    arena: ArenaSettings | None = None

    def __post_init__(self) -> None:
        for word, meant in self.battles_values.items():
            if meant not in (None, *WORDS):
                raise UserError(
                    f"battles_values.{word}: found {meant!r}. Expected one of {', '.join(WORDS)}, "
                    "or null for no verdict."
                )

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """With ratings_from, the rating settings of that run in place of the composed ones."""
        folder = config.get("ratings_from")
        if folder is None:
            return config
        for word in overrides:
            if re.match(r"\W*(elo\b|rating\.|arena\b)", word):
                raise UserError(
                    f"ratings_from: the settings of {folder} are taken, and {word} besides. Leave "
                    "one of them out."
                )
        try:
            found = read_settings(Path(folder))
        except UserError as error:
            raise UserError(f"ratings_from: {error}") from None
        ratings, chosen = found.get("rating") or {}, config["rating"]
        if set(ratings) != set(chosen):
            raise UserError(
                f"ratings_from: {folder} was rated by {', '.join(ratings) or 'no method'}. Choose "
                f"the run of a tournament, and the same: 'rating=[{','.join(ratings)}]'."
            )
        taken = {
            "elo": config["elo"] | (found.get("elo") or {}),
            "rating": {name: chosen[name] | ratings[name] for name in ratings},
        }
        is_given = any("battles_columns.dimension=" in word for word in overrides)
        if "arena" in found and not is_given:  # people and judge are one fit
            taken["battles_columns"] = config["battles_columns"] | {"dimension": None}
        arena = found.get("arena") or {}
        arena.pop("split", None)  # that arenas of the hub once had
        is_inline = arena.get("inline_human", True)
        return config | taken | ({} if is_inline else {"arena": arena})

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return kinds_of_numbers(self.rating)

    @property
    def input_files(self) -> Mapping[str, Path]:
        arena = arenas.input_paths(self.arena) if self.arena else {}
        return {
            f"battles {n}" if n > 1 else "battles": path
            for n, path in enumerate(self._files, start=1)
        } | arena

    @functools.cached_property
    def _files(self) -> dict[Path, Format]:
        """The files to read, with their formats; of a folder all that have rows."""
        found, unread = dict[Path, Format](), list[str]()
        for name in self._given:
            for path in _inside(name) or [name]:
                if path.is_dir():
                    raise UserError(f"battles: {_no_table(path)}")
                if not path.is_file():
                    raise UserError(f"battles: found no file {path}. Check the path.")
                columns, chosen = self.battles_columns, self.battles_format
                one = battle_files.recognise(path, columns, chosen)
                if one.instead:
                    unread.append(f"{path}: is {one.name}. {one.instead}")
                else:
                    found[path] = one
        if unread and not found:
            raise UserError(unread[0])
        for line in unread:
            logger.warning("%s It is left out.", line)
        if len({one.scores is None for one in found.values()}) > 1:
            kinds = ", ".join(f"{path} ({one.name})" for path, one in found.items())
            raise UserError(
                f"battles: found battles and scores: {kinds}. Give one kind."
            )
        return found

    @property
    def _given(self) -> list[Path]:
        named = [self.battles] if isinstance(self.battles, str) else self.battles
        return [Path(name) for name in named]

    @property
    def _tables(self) -> dict[Path, list[Path]]:
        """What is read as one file, with the files of it: tables of battles in a folder are shards."""
        found, left = dict[Path, list[Path]](), dict(self._files)
        for name in self._given:
            inside = {
                path: left.pop(path) for path in [*left] if path.is_relative_to(name)
            }
            one, *others = {
                form.name: form.is_plain for form in inside.values()
            }.values() or [False]
            if one and not others and len(inside) > 1:
                found[name] = [*inside]
            else:
                found |= {path: [] for path in inside}
        return found

    @property
    def _is_scored(self) -> bool:
        return any(one.scores for one in self._files.values())

    @functools.cached_property
    def _scored(self) -> tuple[list[Score], list[dict[str, Any]]]:
        """Scores of items, and the manifest's row of each file."""
        metric, cluster = self.battles_metric, self.battles_columns["cluster"]
        return scores.read(self._files, metric=metric, cluster=cluster)

    @functools.cached_property
    def _rated(self) -> tuple[Battles, list[dict[str, Any]]]:
        """Battles of all files, with those of the arena, and the manifest's row of each file."""
        read = [
            battle_files.read(
                path,
                columns=self.battles_columns,
                filters=self.battles_filter,
                values=self.battles_values,
                on_error=self.battles_on_error,
                chosen=self._files[shards[0] if shards else path],
                shards=shards,
            )
            for path, shards in self._tables.items()
        ]
        first, *others = (battles for battles, _ in read)
        rated = first.concatenate(*others)
        if self.arena is not None:
            arena = arenas.read(self.arena, with_style=needs_style(self.rating))
            anchors = placement.anchors(arena, self.arena.min_battles)
            rated = rated.concatenate(arena.battles.among(anchors))
        _refuse_pooled(rated)
        return rated, [row for _, row in read]

    @property
    def opening(self) -> str:
        if self._is_scored:
            rows, _ = self._scored
            items = {(row.dimension, row.item) for row in rows}
            return opening.scores(
                len(items), len({dimension for dimension, _ in items})
            )
        rated, _ = self._rated
        return opening.battles(rated.total(), len(np.unique(rated.dimension)))

    @functools.cached_property
    def _compared(self) -> Standings:
        rows, _ = self._scored
        at, hat = self.pass_.at, self.pass_.hat
        return standings.of_scores(
            rows, allow_missing=self.allow_missing, at=at, hat=hat
        )

    def check_files(self) -> None:
        """Read them: a malformed row stops a run before it has a folder. Raises UserError."""
        if not self._is_scored and (self.pass_.at or self.pass_.hat):
            name = "pass.at" if self.pass_.at else "pass.hat"
            raise UserError(
                f"{name}: found battles in {_named([*self._tables])}. Expected scores of items: a win is a "
                "pair’s, and no draw of an entrant’s succeeds by itself."
            )
        _ = self._compared if self._is_scored else self._rated

    def dry_run(self, context: Context) -> None:
        """What can be wrong has been checked with the files."""

    def run(self, context: Context) -> Report:
        if self._is_scored:
            _, facts = self._scored
            return report(
                self._compared,
                context,
                scope=Scope(kind="scores", source=_named(list(self._files))),
                facts={"battles_files": facts},
            )
        rated, facts = self._rated
        by_dimension = rated.by_dimension()
        found = standings.rate(
            by_dimension, elo=self.elo, ratings=self.rating, models=rated.models
        )
        boards = found.companions.get("bradley_terry", {})
        scope = self._scope(rated)
        return report(
            standings.with_diagnoses(found, self._diagnosis_of_kin(scope, rated)),
            context,
            scope=scope,
            facts={"n_battles": rated.total(), "battles_files": facts},
            written=artifacts.write_bootstraps(context.run_dir, boards),
        )

    def _scope(self, battles: Battles) -> Scope:
        """Whose verdicts the battles are: people's votes, or those of judges, which need not be named.

        Only what is said to be votes is: by the format, the column `source` or a judge called human.
        """
        is_verdict = np.array([source != "human" for source in battles.sources])
        judged = battles.select(is_verdict[battles.source])
        names = [judged.judges[i] for i in np.unique(judged.judge).tolist() if i >= 0]
        source, column = _named([*self._tables]), self.battles_columns["source"]
        is_said = "human" in battles.judges or all(
            chosen.votes or column in tables.keys(path)
            for path, chosen in self._files.items()
        )
        if is_said and not len(judged):
            return Scope(kind="people", source=source)
        kind = kind_of_recorded(names)
        return Scope(judge=joined(names) or None, kind=kind, source=source)

    def _diagnosis_of_kin(
        self, scope: Scope, battles: Battles
    ) -> dict[str, dict[str, Any]]:
        """Return the diagnosis `kin` of each dimension, where one judge is of a family with some models."""
        if scope.judge is None:
            return {}
        models = {model: [model] for model in battles.models}
        found = families.kin(self.judging.families, scope.judge, models)
        if not found.models:
            return {}
        diagnosis = {"kin": found.to_dict() | {"is_allowed": False}}
        return dict.fromkeys(battles.by_dimension(), diagnosis)


def _refuse_pooled(rated: Battles) -> None:
    """Raise UserError where some verdicts on a dimension are shares, and others labels."""
    for dimension, battles in rated.by_dimension().items():
        n_shares, n_labels = battles.n_shares()
        if n_shares and n_labels:
            raise UserError(
                f"battles: {n_shares:,} verdicts on {dimension} are shares (score, judge.verdict=probabilities) and "
                f"{n_labels:,} labels, and their scales differ. Rate one kind: battles_columns.score=null reads labels "
                "alone."
            )


def _no_table(folder: Path) -> str:
    """What is said of a folder without files to rate."""
    if of_run := _of_run(folder):
        return f"{folder} is a run folder. Write battles={of_run}."
    return (
        f"found no file in {folder}. Expected tables with rows; names that begin with . or _ are left "
        "aside."
    )


def _of_run(folder: Path) -> Path | None:
    """The battles of a run folder."""
    if not (folder / "manifest.json").is_file():
        return None
    written = (folder / f"battles.{kind}" for kind in ("parquet", "jsonl"))
    return next(filter(Path.is_file, written), None)


def _inside(folder: Path) -> list[Path]:
    """The files in a folder that have rows, but for hidden ones, and those that engines leave aside: _SUCCESS."""
    paths = [] if _of_run(folder) else sorted(filter(Path.is_file, folder.rglob("*")))
    shown = [
        path
        for path in paths
        if not any(
            part.startswith((".", "_")) for part in path.relative_to(folder).parts
        )
    ]
    return [path for path in shown if tables.keys(path)] or shown


def _named(files: Sequence[Path]) -> str:
    return joined([str(path) for path in files])
