"""Ratings of any battles file, with no judge: what a tournament concludes, from battles made anywhere."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from elo_exp.analysis import repeated_files, standings
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.verdict_sources import VerdictSource
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import battle_columns, column_roles
from elo_exp.data.battles import Battles
from elo_exp.data.formats import WINNER_WORDS
from elo_exp.errors import FileError, SettingError, UserError, format_value
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.experiments.battle_comparisons import build_comparisons
from elo_exp.experiments.battle_source import BattleSource, format_files
from elo_exp.experiments.file_rating import FileRating
from elo_exp.experiments.rated import (
    list_metric_names,
    report_judges,
    report_standings,
    supports_joint_board,
)
from elo_exp.formatting import join_names as joined
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.report import artifacts, judges_page
from elo_exp.report.sentences import opening_line
from elo_exp.runs.reading import read_settings
from elo_exp.types import Count, Families, Orders


def _parse_pairs(value: Any) -> Any:
    """Return a mapping; also made of pairs, in which a command can write any word, or of nothing."""
    if value is None or isinstance(value, dict):
        return value or {}
    is_pairs = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    )
    if not is_pairs:
        raise SettingError.bad_value(
            "battles_values",
            value,
            "say what each word in the file means",
            "  'battles_values={left:model_a,right:model_b}'",
        )
    words = [str(word) for word, _ in value]
    if len(set(words)) < len(words):
        repeated_word = next(word for word in words if words.count(word) > 1)
        raise SettingError(
            f"battles_values must have each word once; got {format_value(repeated_word)} twice."
        )
    return dict(zip(words, (meaning for _, meaning in value), strict=True))


@dataclass(kw_only=True)
class RateJudgingSettings:
    orders: Orders
    families: Families  # of models, by a part of their names


@dataclass(kw_only=True)
class PassSettings:
    at: list[Count]
    hat: list[Count]


@dataclass(kw_only=True)
class Rate(Experiment):
    """Ratings of files of battles or scores."""

    elo: EloMethod
    rating: dict[str, RatingMethod]
    judging: RateJudgingSettings
    sweep_pair: list[str] | None  # whose difference a sweep draws; None: the two best
    judges: Literal["pooled"] | None  # None: those of several are rated apart
    ratings_from: str | None
    battles: str | list[str]
    battles_format: str | None
    battles_metric: str | None
    battles_scale: (
        list[float] | None
    )  # the least and the greatest score; None: as the scores say
    allow_missing: bool
    pass_: PassSettings
    battles_on_error: Literal["stop", "drop"]
    columns: dict[str, str | list[str]]  # by role
    battles_columns: dict[str, str | None]  # None: not to be read
    battles_values: Annotated[dict[str, str | None], BeforeValidator(_parse_pairs)]
    battles_filter: dict[str, str | None]
    # whose human battles an arena run left out of its file
    arena: ArenaSettings | None = None

    def __post_init__(self) -> None:
        self.battles_columns = battle_columns.name_fields(
            self.columns, self.battles_columns
        )
        if (scale := self.battles_scale) is not None and not (
            len(scale) == 2 and scale[0] < scale[1]
        ):
            raise SettingError.bad_value(
                "battles_scale",
                scale,
                "be the lowest and the highest score, such as [0,1]",
            )
        for word, meaning in self.battles_values.items():
            if meaning not in (None, *WINNER_WORDS):
                raise SettingError.bad_value(
                    f"battles_values.{word}",
                    meaning,
                    f"be one of {', '.join(WINNER_WORDS)}, or null for no verdict",
                )

    @staticmethod
    def prepare(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """With ratings_from, the rating settings of that run in place of the composed ones.

        Raises SettingError for a role of columns without effect.
        """
        columns = column_roles.parse_columns_setting(config["columns"])
        roles = (
            *column_roles.BATTLE_COLUMNS,
            *column_roles.TEXT_COLUMNS,
            *column_roles.SCORE_COLUMNS,
        )
        column_roles.refuse_unused_roles(columns, roles, "rate")
        config = {**config, "columns": columns}
        folder = config.get("ratings_from")
        if folder is None:
            return config
        return config | _read_rating_settings(folder, config, overrides)

    @functools.cached_property
    def source(self) -> BattleSource:
        """The battles or scores."""
        return BattleSource(
            paths=self.battles,
            format_name=self.battles_format,
            metric=self.battles_metric,
            roles=self.columns,
            columns=self.battles_columns,
            values=self.battles_values,
            filters=self.battles_filter,
            on_error=self.battles_on_error,
            judges=self.judges,
            arena=self.arena,
            with_style=needs_style(self.rating),
        )

    @functools.cached_property
    def file_rating(self) -> FileRating:
        """How battles are rated."""
        return FileRating(
            source=self.source,
            elo=self.elo,
            rating=self.rating,
            families=self.judging.families,
        )

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {
            **list_metric_names(self.rating),
            "judges": judges_page.JUDGE_METRIC_NAMES,
        }

    @property
    def input_files(self) -> Mapping[str, Path]:
        arena = arenas.list_input_paths(self.arena) if self.arena else {}
        return {
            f"battles {n}" if n > 1 else "battles": path
            for n, path in enumerate(self.source.files, start=1)
        } | arena

    @property
    def opening(self) -> str:
        if self.source.is_scored:
            rows, _ = self.source.scores
            items = {(row.dimension, row.item) for row in rows}
            return opening_line.scores(
                len(items), len({dimension for dimension, _ in items})
            )
        all_battles, _ = self.source.all_battles
        n_dimensions = len(np.unique(all_battles.dimension))
        return opening_line.battles(
            all_battles.n_total(), n_dimensions, by=[*self.source.separate_parties]
        )

    @functools.cached_property
    def _standings_of_scores(self) -> Standings:
        rows, _ = self.source.scores
        at, hat = self.pass_.at, self.pass_.hat
        return standings.rate_scores(
            rows,
            allow_missing=self.allow_missing,
            at=at,
            hat=hat,
            scale=self.battles_scale or self.source.scale,
        )

    def check_files(self) -> None:
        """Read them: a malformed row stops a run before it has a folder. Raises FileError."""
        if not self.source.is_scored and (self.pass_.at or self.pass_.hat):
            name = "pass.at" if self.pass_.at else "pass.hat"
            raise FileError(
                f"{name} needs item scores, which tell how often an answer succeeds; {self.source.label} holds "
                f"battles. Leave it out."
            )
        _ = (
            self._standings_of_scores
            if self.source.is_scored
            else self.source.separate_parties
        )

    def dry_run(self, context: Context) -> None:
        """Rate the battles, as a method may refuse them; a job of a sweep does so when it runs."""
        if (
            context.in_sweep
            and not self.source.is_scored
            and self.source.separate_parties
        ):
            raise SettingError(
                f"A sweep rates one judge, and the file has verdicts of {joined([*self.source.separate_parties])}. "
                f"Choose one:",
                "  battles_filter.judge_model=NAME",
                "  judges=pooled   rates all verdicts together",
            )
        if not (context.in_sweep or self.source.is_scored):
            _ = self.file_rating.standings_by_party

    def run(self, context: Context) -> Report:
        if self.source.is_scored:
            rows, facts = self.source.scores
            scope = Scope(kind="scores", source=format_files(list(self.source.files)))
            hashes = {
                name: repeated_files.hashes_of_scores(
                    row for row in rows if row.dimension == name
                )
                for name in self._standings_of_scores.dimensions
            }
            return report_standings(
                self.file_rating.add_looks(
                    self._standings_of_scores, scope, hashes, context.store
                ),
                context,
                scope=scope,
                facts={"battles_files": facts},
            )
        all_battles, facts = self.source.all_battles
        file_facts = {"n_battles": all_battles.n_total(), "battles_files": facts}
        if self.source.separate_parties:
            return self._report_apart(context, file_facts)
        rated_standings = self.file_rating.add_looks_of_battles(
            self.file_rating.standings_by_party[""], all_battles, context.store
        )
        return self._report(context, rated_standings, all_battles, file_facts)

    def _report(
        self,
        context: Context,
        rated_standings: Standings,
        battles: Battles,
        facts: Mapping[str, Any],
    ) -> Report:
        boards = rated_standings.boards.get("bradley_terry", {})
        comparisons, judgments = build_comparisons(self.source.texts, battles)
        return report_standings(
            rated_standings,
            context,
            scope=self.source.find_scope(battles),
            facts=facts,
            written=artifacts.write_bootstraps(context.run_dir, boards),
            comparisons=comparisons,
            judgments=judgments,
        )

    def _report_apart(self, context: Context, facts: Mapping[str, Any]) -> Report:
        """Report what each judge's verdicts say by themselves, and what all of them do."""
        by_judge, reports = dict[str, Standings](), dict[str, Report]()
        for name, party in self.source.separate_parties.items():
            rated_standings = self.file_rating.add_looks_of_battles(
                self.file_rating.standings_by_party[name], party.battles, context.store
            )
            by_judge[name] = add_conclusions(
                rated_standings, self.source.find_scope(party.battles)
            )
            judge_context = context.of_judge(name)
            judge_facts = {"n_battles": party.battles.n_total(), "judge_model": name}
            reports[name] = replace(
                self._report(
                    judge_context, rated_standings, party.battles, judge_facts
                ),
                settings=self._make_settings(party),
            )
        return report_judges(
            by_judge,
            reports,
            context,
            orders=self.judging.orders,
            initial_rating=self.elo.initial_rating,
            facts={**facts, "judges": {name: name for name in by_judge}},
            populations=[
                n
                for n, party in self.source.separate_parties.items()
                if party.is_population
            ],
            jointly=supports_joint_board(self.rating),
        )

    def _make_settings(self, party: VerdictSource) -> dict[str, Any]:
        """Make the overrides that rate this party's verdicts alone, if a filter can express them."""
        if len(party.names) != 1:
            return {}
        return {
            "battles_filter": {**self.battles_filter, "judge_model": party.names[0]}
        }


def _read_rating_settings(
    folder: str, config: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """Read the settings by which a run was rated. Raises SettingError for words of the command that set the same."""
    for word in overrides:
        if re.match(r"\W*(elo\b|rating\.|arena\b)", word):
            raise SettingError(
                f"ratings_from={folder} sets the rating methods, so it cannot be combined with {word}. Leave one of them out."
            )
    try:
        run_settings = read_settings(Path(folder))
    except UserError as error:
        raise error.reword(f"ratings_from: {error}") from None
    ratings, composed = run_settings.get("rating") or {}, config["rating"]
    if set(ratings) != set(composed):
        raise SettingError(
            f"ratings_from needs a run with the same rating methods; {folder} was rated by {', '.join(ratings) or 'none'}. "
            "Choose a tournament, and set:",
            f"  'rating=[{','.join(ratings)}]'",
        )
    settings: dict[str, Any] = {
        "elo": config["elo"] | (run_settings.get("elo") or {}),
        "rating": {name: composed[name] | ratings[name] for name in ratings},
    }
    is_given = any("battles_columns.dimension=" in word for word in overrides)
    if "arena" in run_settings:  # people and judge are one fit
        settings["judges"] = "pooled"
    if "arena" in run_settings and not is_given:
        settings["battles_columns"] = config["battles_columns"] | {"dimension": None}
    arena = run_settings.get("arena") or {}
    arena.pop("split", None)  # that arenas of the hub once had
    is_inline = arena.get("inline_human", True)
    return settings | ({} if is_inline else {"arena": arena})
