"""Ratings of any battles file, with no judge: what a tournament concludes, from battles made anywhere."""

import functools
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from elo_exp.analysis import families, repeated_files, standings, verdict_sources
from elo_exp.analysis.comparisons import find_leader
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_bias import length_control
from elo_exp.analysis.missing_answers import plans_both_orders
from elo_exp.analysis.odd_answers import check_responses
from elo_exp.analysis.repeated_files import EarlierFileResult, Hashes
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.verdict_sources import VerdictSource
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import battle_files, field_names, scores, table_files
from elo_exp.data.battle_files import QUESTION_TEXT_COLUMNS
from elo_exp.data.battles import OVERALL_DIMENSION, Battles
from elo_exp.data.formats import WINNER_WORDS, Format
from elo_exp.data.scores import Score
from elo_exp.errors import FileError, SettingError, UserError
from elo_exp.experiments import Context, Experiment, Report
from elo_exp.experiments.rated import (
    list_metric_names,
    report_judges,
    report_standings,
    supports_joint_board,
)
from elo_exp.files import escape_name
from elo_exp.formatting import join_names as joined
from elo_exp.judges import guess_judge_kind
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import MissingBattle, Response, make_fingerprint
from elo_exp.report import artifacts, judges_page
from elo_exp.report.sentences import judges_sentences as words
from elo_exp.report.sentences import opening_line
from elo_exp.runs.reading import manifest_if_any, read_settings
from elo_exp.store.answer_store import Store, StoredResult
from elo_exp.types import Count, Families, Orders

logger = logging.getLogger(__name__)

_MAX_FOLDER_NAME_BYTES = 200


def _parse_pairs(value: Any) -> Any:
    """Return a mapping; also made of pairs, in which a command can write any word, or of nothing."""
    if value is None or isinstance(value, dict):
        return value or {}
    is_pairs = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in value
    )
    if not is_pairs:
        raise SettingError(
            f"battles_values: found {value!r}. Expected what the file's words mean: "
            "'battles_values={left:model_a,right:model_b}'."
        )
    words = [str(word) for word, _ in value]
    if len(set(words)) < len(words):
        repeated_word = next(word for word in words if words.count(word) > 1)
        raise SettingError(
            f"battles_values: found {repeated_word!r} twice. Expected each word once."
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
    battles_columns: dict[str, str | None]  # None: not to be read
    battles_values: Annotated[dict[str, str | None], BeforeValidator(_parse_pairs)]
    battles_filter: dict[str, str | None]
    # whose human battles an arena run left out of its file
    arena: ArenaSettings | None = None

    def __post_init__(self) -> None:
        if (scale := self.battles_scale) is not None and not (
            len(scale) == 2 and scale[0] < scale[1]
        ):
            raise SettingError(
                f"battles_scale: found {scale}. Expected the least and the greatest score: battles_scale=[0,1]."
            )
        for word, meaning in self.battles_values.items():
            if meaning not in (None, *WINNER_WORDS):
                raise SettingError(
                    f"battles_values.{word}: found {meaning!r}. Expected one of {', '.join(WINNER_WORDS)}, "
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
                raise SettingError(
                    f"ratings_from: the settings of {folder} are taken, and {word} besides. Leave "
                    "one of them out."
                )
        try:
            run_settings = read_settings(Path(folder))
        except UserError as error:
            raise error.reword(f"ratings_from: {error}") from None
        ratings, composed = run_settings.get("rating") or {}, config["rating"]
        if set(ratings) != set(composed):
            raise SettingError(
                f"ratings_from: {folder} was rated by {', '.join(ratings) or 'no method'}. Choose "
                f"the run of a tournament, and the same: 'rating=[{','.join(ratings)}]'."
            )
        settings: dict[str, Any] = {
            "elo": config["elo"] | (run_settings.get("elo") or {}),
            "rating": {name: composed[name] | ratings[name] for name in ratings},
        }
        is_given = any("battles_columns.dimension=" in word for word in overrides)
        if "arena" in run_settings:  # people and judge are one fit
            settings["judges"] = "pooled"
        if "arena" in run_settings and not is_given:
            settings["battles_columns"] = config["battles_columns"] | {
                "dimension": None
            }
        arena = run_settings.get("arena") or {}
        arena.pop("split", None)  # that arenas of the hub once had
        is_inline = arena.get("inline_human", True)
        return config | settings | ({} if is_inline else {"arena": arena})

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
            for n, path in enumerate(self._files, start=1)
        } | arena

    @functools.cached_property
    def _files(self) -> dict[Path, Format]:
        """The files to read, with their formats; in a folder all files that have rows."""
        formats, unread = dict[Path, Format](), list[str]()
        for name in self._given_paths:
            for path in _list_data_files(name) or [name]:
                if path.is_dir():
                    raise FileError(f"battles: {_describe_missing_table(path)}")
                if not path.is_file():
                    raise FileError(f"battles: found no file {path}. Check the path.")
                columns, format_name = self.battles_columns, self.battles_format
                file_format = battle_files.recognise(path, columns, format_name)
                if file_format.remedy:
                    unread.append(
                        f"{path}: is {file_format.name}. {file_format.remedy}"
                    )
                else:
                    formats[path] = file_format
        if unread and not formats:
            raise FileError(unread[0])
        for line in unread:
            logger.warning("%s It is left out.", line)
        if len({file_format.scores is None for file_format in formats.values()}) > 1:
            kinds = ", ".join(
                f"{path} ({file_format.name})" for path, file_format in formats.items()
            )
            raise SettingError(
                f"battles: found battles and scores: {kinds}. Give one kind."
            )
        return formats

    @property
    def _given_paths(self) -> list[Path]:
        names = [self.battles] if isinstance(self.battles, str) else self.battles
        return [Path(name) for name in names]

    @property
    def _shards_by_table(self) -> dict[Path, list[Path]]:
        """The files of each table that is read as one: tables of battles in a folder are shards."""
        shards_by_table, remaining = dict[Path, list[Path]](), dict(self._files)
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
    def _is_scored(self) -> bool:
        return any(file_format.scores for file_format in self._files.values())

    @functools.cached_property
    def _scores(self) -> tuple[list[Score], list[dict[str, Any]]]:
        """Scores of items, and the manifest's row of each file."""
        metric, cluster = self.battles_metric, self.battles_columns["cluster"]
        return scores.read_scores(self._files, metric=metric, cluster=cluster)

    @functools.cached_property
    def _battles_by_file(
        self,
    ) -> list[tuple[Battles, dict[str, Any], list[MissingBattle]]]:
        """For each file its battles, the manifest's row and the comparisons without a winner."""
        return [
            battle_files.read_with_missing(
                path,
                columns=self.battles_columns,
                filters=self.battles_filter,
                values=self.battles_values,
                on_error=self.battles_on_error,
                chosen=self._files[shards[0] if shards else path],
                shards=shards,
            )
            for path, shards in self._shards_by_table.items()
        ]

    @functools.cached_property
    def _all_battles(self) -> tuple[Battles, list[dict[str, Any]]]:
        """Battles of all files, with those of the arena, and the manifest's row of each file."""
        first_battles, *other_battles = (
            battles for battles, _, _ in self._battles_by_file
        )
        all_battles = first_battles.concatenate(*other_battles)
        if self.arena is not None:
            arena = arenas.read_arena(self.arena, with_style=needs_style(self.rating))
            anchors = placement.find_anchors(arena, self.arena.min_battles)
            all_battles = all_battles.concatenate(arena.battles.select_between(anchors))
        return all_battles, [row for _, row, _ in self._battles_by_file]

    @functools.cached_property
    def _separate_parties(self) -> dict[str, VerdictSource]:
        """The parties whose verdicts are rated separately, by name; empty if all are rated together."""
        all_battles, _ = self._all_battles
        path, column = next(iter(self._files)), self.battles_columns["judge_model"]
        column = self._files[path].columns.get("judge_model") or column
        if repeats := verdict_sources.find_repeats(all_battles):
            message = words.warn_repeated_judging(repeats, column=column)
            logger.warning("%s: %s", _format_files([*self._shards_by_table]), message)
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
            logger.warning("%s: %s", _format_files([*self._shards_by_table]), message)
        return {}

    def _says_votes(self, battles: Battles) -> bool:
        """Whether votes are said to be: by the format, the column `source` or a judge called human."""
        judge_names = {
            battles.judges[i] for i in np.unique(battles.judge).tolist() if i >= 0
        }
        return "human" in judge_names or all(
            file_format.is_votes or self._has_source(path)
            for path, file_format in self._files.items()
        )

    def _has_source(self, path: Path) -> bool:
        return self.battles_columns["source"] in table_files.read_keys(path)

    @property
    def opening(self) -> str:
        if self._is_scored:
            rows, _ = self._scores
            items = {(row.dimension, row.item) for row in rows}
            return opening_line.scores(
                len(items), len({dimension for dimension, _ in items})
            )
        all_battles, _ = self._all_battles
        n_dimensions = len(np.unique(all_battles.dimension))
        return opening_line.battles(
            all_battles.n_total(), n_dimensions, by=[*self._separate_parties]
        )

    @functools.cached_property
    def _standings_of_scores(self) -> Standings:
        rows, _ = self._scores
        at, hat = self.pass_.at, self.pass_.hat
        return standings.rate_scores(
            rows,
            allow_missing=self.allow_missing,
            at=at,
            hat=hat,
            scale=self.battles_scale,
        )

    def check_files(self) -> None:
        """Read them: a malformed row stops a run before it has a folder. Raises UserError."""
        if not self._is_scored and (self.pass_.at or self.pass_.hat):
            name = "pass.at" if self.pass_.at else "pass.hat"
            raise FileError(
                f"{name}: found battles in {_format_files([*self._shards_by_table])}. Expected scores of items: a win is a "
                "pair’s, and no draw of an entrant’s succeeds by itself."
            )
        _ = self._standings_of_scores if self._is_scored else self._separate_parties

    def dry_run(self, context: Context) -> None:
        """What else can be wrong has been checked with the files."""
        if context.in_sweep and not self._is_scored and self._separate_parties:
            raise SettingError(
                f"judges: found verdicts of {joined([*self._separate_parties])} in a sweep, whose jobs rate those of one. "
                "Name it, battles_filter.judge_model=NAME, or judges=pooled rates all as if by one."
            )

    def run(self, context: Context) -> Report:
        if self._is_scored:
            rows, facts = self._scores
            scope = Scope(kind="scores", source=_format_files(list(self._files)))
            hashes = {
                name: repeated_files.hashes_of_scores(
                    row for row in rows if row.dimension == name
                )
                for name in self._standings_of_scores.dimensions
            }
            return report_standings(
                self._add_looks(
                    self._standings_of_scores, scope, hashes, context.store
                ),
                context,
                scope=scope,
                facts={"battles_files": facts},
            )
        all_battles, facts = self._all_battles
        file_facts = {"n_battles": all_battles.n_total(), "battles_files": facts}
        if self._separate_parties:
            return self._report_apart(context, file_facts)
        rated_standings = self._rate_with_looks(all_battles, context.store)
        return self._report(context, rated_standings, all_battles, file_facts)

    def _rate_with_looks(self, battles: Battles, store: Store) -> Standings:
        """Rate battles, and count their results that were shown before battles were added."""
        rated_standings = self._rate_battles(battles)
        hashes = {
            name: repeated_files.hashes_of_battles(dimension_battles)
            for name, dimension_battles in rated_standings.battles.items()
            if rated_standings.n_prompts(name) is not None
        }
        return self._add_looks(
            rated_standings, self._find_scope(battles), hashes, store
        )

    def _add_looks(
        self,
        rated_standings: Standings,
        scope: Scope,
        hashes: Mapping[str, Mapping[str, Hashes]],
        store: Store,
    ) -> Standings:
        """Store that results are shown, by dimension, and add the results that were shown before rows were added."""
        if scope.kind == "words":  # which never claims more than shared words
            return rated_standings
        earlier = dict[str, dict[str, Any]]()
        for dimension, hashes_by_model in hashes.items():
            subject = f"rated {make_fingerprint([scope.kind, scope.judge, dimension, self.battles_filter])}"
            evidence = repeated_files.to_evidence(hashes_by_model)
            name = make_fingerprint([evidence])
            shown_files = [
                EarlierFileResult(rows=shown_result.evidence, leader=shown_result.claim)
                for shown_result in store.list_earlier_results(subject, name)
            ]
            if rows := repeated_files.find_earlier_results(
                shown_files, hashes_by_model
            ):
                earlier[dimension] = {"earlier_looks": rows}
            board, leader = rated_standings.board(dimension), None
            lead = (
                find_leader(board, rated_standings.pairs(dimension)) if board else None
            )
            if lead and not (lead.rivals or lead.level or lead.not_met):
                leader = lead.model
            store.record_result(
                subject, StoredResult(name=name, evidence=evidence, claim=leader)
            )
        diagnoses = dict(rated_standings.diagnoses)
        for dimension, looks in earlier.items():  # of which scores have none
            diagnoses[dimension] = {**diagnoses.get(dimension, {}), **looks}
        return replace(rated_standings, diagnoses=diagnoses)

    def _rate_battles(self, battles: Battles) -> Standings:
        """Rate battles in all dimensions of the files."""
        all_battles, _ = self._all_battles
        rated_standings = standings.rate(
            battles.split_by_dimension(all_battles.split_by_dimension()),
            elo=self.elo,
            ratings=self.rating,
            models=all_battles.models,
        )
        missing = self._find_missing_battles(battles)
        if (name := standings.primary_method(self.rating)) is not None:
            method: Any = self.rating[name]
            if self._is_one_order_design and plans_both_orders(method):
                method = replace(method, orders="one")
            rated_standings = standings.add_missing(rated_standings, missing, method)
        kin = self._diagnose_kin(self._find_scope(battles), battles)
        length = {
            name: {
                "length": length_control(
                    dimension_battles,
                    dimension=name,
                    initial_rating=self.elo.initial_rating,
                )
            }
            for name, dimension_battles in rated_standings.battles.items()
            if dimension_battles.styles
        }
        response_checks = [
            check_responses(model, responses)
            for model, responses in sorted(self._answers.items())
            if model in all_battles.models
        ]
        return standings.add_diagnoses(
            rated_standings, kin, length, responses=response_checks
        )

    @functools.cached_property
    def _is_one_order_design(self) -> bool:
        """Whether all files are of runs that asked each comparison in one order: no second order is missing then."""
        settings = [manifest_if_any(path.parent).get("config") for path in self._files]
        return all(
            ((config or {}).get("judging") or {}).get("orders") == "one"
            for config in settings
        )

    @functools.cached_property
    def _answers(self) -> dict[str, dict[str, Response]]:
        """The answers that the files hold beside their battles, by model and prompt.

        An answer to a prompt without a name is left out: a model's answer may stand in many battles, and would be taken
        for many equal answers.
        """
        answers = dict[str, dict[str, Response]]()
        for path, file_format in self._files.items():
            if not file_format.holds_answers(table_files.read_keys(path)):
                continue
            for _, row in table_files.read_rows(path):
                names = (
                    file_format.columns.get("question_id", "question_id"),
                    *QUESTION_TEXT_COLUMNS,
                )
                full_row = file_format.complete(row) if file_format.fields else row
                ids = (full_row.get(name) for name in ("question_id", *names))
                prompt = next((str(name) for name in ids if name), None)
                if prompt is None:
                    continue
                for model, text in file_format.answers_in(row).items():
                    answers.setdefault(model, {})[prompt] = Response(
                        entrant_id=model, prompt_id=prompt, response_text=text
                    )
        return answers

    def _find_missing_battles(self, battles: Battles) -> dict[str, list[MissingBattle]]:
        """Find the comparisons without a winner, by dimension, from the judges of these battles or without a judge."""
        judges = {battles.judges[i] for i in np.unique(battles.judge) if i >= 0}
        missing_by_dimension: dict[str, list[MissingBattle]] = {
            name: [] for name in battles.split_by_dimension()
        }
        all_missing = [
            battle for _, _, missing in self._battles_by_file for battle in missing
        ]
        for battle in all_missing:
            dimension_missing = missing_by_dimension.get(
                battle.dimension or OVERALL_DIMENSION
            )
            if dimension_missing is not None and battle.judge_model in (None, *judges):
                dimension_missing.append(battle)
        return missing_by_dimension

    def _report(
        self,
        context: Context,
        rated_standings: Standings,
        battles: Battles,
        facts: Mapping[str, Any],
    ) -> Report:
        boards = rated_standings.boards.get("bradley_terry", {})
        return report_standings(
            rated_standings,
            context,
            scope=self._find_scope(battles),
            facts=facts,
            written=artifacts.write_bootstraps(context.run_dir, boards),
        )

    def _report_apart(self, context: Context, facts: Mapping[str, Any]) -> Report:
        """Report what each judge's verdicts say by themselves, and what all of them do."""
        by_judge, reports = dict[str, Standings](), dict[str, Report]()
        for name, party in self._separate_parties.items():
            rated_standings = self._rate_with_looks(party.battles, context.store)
            by_judge[name] = add_conclusions(
                rated_standings, self._find_scope(party.battles)
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
                n for n, party in self._separate_parties.items() if party.is_population
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

    def _find_scope(self, battles: Battles) -> Scope:
        """Find whose verdicts the battles are: people's votes, or verdicts of judges, which need not be named."""
        is_verdict = np.array([source != "human" for source in battles.sources])
        verdicts = battles.select(is_verdict[battles.source])
        names = [
            verdicts.judges[i] for i in np.unique(verdicts.judge).tolist() if i >= 0
        ]
        source = _format_files([*self._shards_by_table])
        if self._says_votes(battles) and not len(verdicts):
            return Scope(kind="people", source=source)
        kind = guess_judge_kind(names)
        return Scope(judge=joined(names) or None, kind=kind, source=source)

    def _diagnose_kin(
        self, scope: Scope, battles: Battles
    ) -> dict[str, dict[str, Any]]:
        """Return the diagnosis `kin` of each dimension, if one judge is of a family with some models."""
        if scope.judge is None:
            return {}
        models = {model: [model] for model in battles.models}
        kin = families.find_judge_family(self.judging.families, scope.judge, models)
        if not kin.models:
            return {}
        diagnosis = {"kin": kin.to_dict() | {"is_allowed": False}}
        return dict.fromkeys(battles.split_by_dimension(), diagnosis)


def _refuse_names(judges: Sequence[str]) -> None:
    """Raise UserError for names of judges that look alike, and for one that no folder can have."""
    for group in field_names.group_alike(judges):
        raise FileError(
            f"battles: the judges {', '.join(map(repr, group))} look alike, and the taste of one under two names would "
            "count twice. Give it one name in the file; judges=pooled rates all verdicts as if by one judge."
        )
    for name in judges:
        folder = escape_name(name)
        if (
            folder.strip(". ") == ""
            or len(folder.encode(errors="replace")) > _MAX_FOLDER_NAME_BYTES
        ):
            raise FileError(
                f"battles: the judge {name!r:.80} has a name that its folder cannot have. Expected one of fewer "
                f"than {_MAX_FOLDER_NAME_BYTES} bytes, and not of dots alone; "
                "battles_filter.judge_model=NAME rates one judge."
            )


def _refuse_pooled(all_battles: Battles) -> None:
    """Raise UserError where some verdicts on a dimension are shares, and others labels."""
    for dimension, battles in all_battles.split_by_dimension().items():
        n_shares, n_labels = battles.n_shares()
        if n_shares and n_labels:
            raise FileError(
                f"battles: {n_shares:,} verdicts on {dimension} are shares (score, judge.verdict=probabilities) and "
                f"{n_labels:,} labels, and their scales differ. Rate one kind: battles_columns.score=null reads labels "
                "alone."
            )


def _describe_missing_table(folder: Path) -> str:
    """Write the error message for a folder without files to rate."""
    if battles_path := _find_run_battles(folder):
        return f"{folder} is a run folder. Write battles={battles_path}."
    return (
        f"found no file in {folder}. Expected tables with rows; names that begin with . or _ are left "
        "aside."
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


def _format_files(files: Sequence[Path]) -> str:
    return joined([str(path) for path in files])
