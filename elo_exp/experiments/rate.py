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

from elo_exp.analysis import families, repeated_files, standings, voters
from elo_exp.analysis.comparisons import first_of
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.tournament import with_conclusions
from elo_exp.analysis.judge_bias import length_control
from elo_exp.analysis.missing_answers import plans_both_orders
from elo_exp.analysis.repeated_files import Hashes, ShownFile
from elo_exp.analysis.responses import check_responses
from elo_exp.analysis.standings import Standings
from elo_exp.analysis.voters import Party
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import battle_files, fields, scores, tables
from elo_exp.data.battle_files import TEXTS
from elo_exp.data.battles import OVERALL, Battles
from elo_exp.data.formats import WORDS, Format
from elo_exp.data.scores import Score
from elo_exp.experiments import Context, Report
from elo_exp.experiments.rated import (
    kinds_of_numbers,
    rates_jointly,
    report,
    report_of_judges,
)
from elo_exp.files import safe_name
from elo_exp.judges import kind_of_recorded
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.records import MissingBattle, Response, UserError, fingerprint
from elo_exp.report import artifacts, judges_page
from elo_exp.report.formats import names as joined
from elo_exp.report.words import judges as words
from elo_exp.report.words import opening
from elo_exp.runs.reading import manifest_if_any, read_settings
from elo_exp.store.store import ShownResult, Store
from elo_exp.types import Count, Families, Orders

logger = logging.getLogger(__name__)

_MAX_BYTES = 200  # of the name of a judge's folder


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
    judges: Literal["pooled"] | None  # None: those of several are rated apart
    ratings_from: str | None
    battles: str | list[str]
    battles_format: str | None
    battles_metric: str | None
    battles_scale: (
        list[float] | None
    )  # the least and the greatest score; None: as the scores say
    allow_missing: bool
    pass_: Passes
    battles_on_error: Literal["stop", "drop"]
    battles_columns: dict[str, str | None]  # None: not to be read
    battles_values: Annotated[dict[str, str | None], BeforeValidator(_pairs)]
    battles_filter: dict[str, str | None]
    # whose human battles an arena run left out of its file
    arena: ArenaSettings | None = None

    def __post_init__(self) -> None:
        if (scale := self.battles_scale) is not None and not (
            len(scale) == 2 and scale[0] < scale[1]
        ):
            raise UserError(
                f"battles_scale: found {scale}. Expected the least and the greatest score: battles_scale=[0,1]."
            )
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
        taken: dict[str, Any] = {
            "elo": config["elo"] | (found.get("elo") or {}),
            "rating": {name: chosen[name] | ratings[name] for name in ratings},
        }
        is_given = any("battles_columns.dimension=" in word for word in overrides)
        if "arena" in found:  # people and judge are one fit
            taken["judges"] = "pooled"
        if "arena" in found and not is_given:
            taken["battles_columns"] = config["battles_columns"] | {"dimension": None}
        arena = found.get("arena") or {}
        arena.pop("split", None)  # that arenas of the hub once had
        is_inline = arena.get("inline_human", True)
        return config | taken | ({} if is_inline else {"arena": arena})

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        return {**kinds_of_numbers(self.rating), "judges": judges_page.NUMBERS}

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
    def _read(self) -> list[tuple[Battles, dict[str, Any], list[MissingBattle]]]:
        """Of each file the battles, the manifest's row and the comparisons without a winner."""
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
            for path, shards in self._tables.items()
        ]

    @functools.cached_property
    def _rated(self) -> tuple[Battles, list[dict[str, Any]]]:
        """Battles of all files, with those of the arena, and the manifest's row of each file."""
        first, *others = (battles for battles, _, _ in self._read)
        rated = first.concatenate(*others)
        if self.arena is not None:
            arena = arenas.read(self.arena, with_style=needs_style(self.rating))
            anchors = placement.anchors(arena, self.arena.min_battles)
            rated = rated.concatenate(arena.battles.among(anchors))
        return rated, [row for _, row, _ in self._read]

    @functools.cached_property
    def _apart(self) -> dict[str, Party]:
        """Whose verdicts are rated apart, by name; empty where all are rated together."""
        rated, _ = self._rated
        path, column = next(iter(self._files)), self.battles_columns["judge_model"]
        column = self._files[path].columns.get("judge_model") or column
        if repeats := voters.repeats(rated):
            said = words.repeats(repeats, column=column)
            logger.warning("%s: %s", _named([*self._tables]), said)
        found = voters.parties(rated, says_votes=self._says_votes(rated))
        if self.judges is None and voters.are_apart(found):
            _refuse_names([*found])
            for party in found.values():
                _refuse_pooled(party.battles)
            return found
        _refuse_pooled(rated)
        names = [name for party in found.values() for name in party.names]
        if len(names) > 1 and voters.have_met(rated):
            is_asked = self.judges is not None
            said = words.pooled(names, column=column, is_asked=is_asked)
            logger.warning("%s: %s", _named([*self._tables]), said)
        return {}

    def _says_votes(self, battles: Battles) -> bool:
        """Whether votes are said to be: by the format, the column `source` or a judge called human."""
        judged = {
            battles.judges[i] for i in np.unique(battles.judge).tolist() if i >= 0
        }
        return "human" in judged or all(
            chosen.votes or self._has_source(path)
            for path, chosen in self._files.items()
        )

    def _has_source(self, path: Path) -> bool:
        return self.battles_columns["source"] in tables.keys(path)

    @property
    def opening(self) -> str:
        if self._is_scored:
            rows, _ = self._scored
            items = {(row.dimension, row.item) for row in rows}
            return opening.scores(
                len(items), len({dimension for dimension, _ in items})
            )
        rated, _ = self._rated
        n_dimensions = len(np.unique(rated.dimension))
        return opening.battles(rated.total(), n_dimensions, by=[*self._apart])

    @functools.cached_property
    def _compared(self) -> Standings:
        rows, _ = self._scored
        at, hat = self.pass_.at, self.pass_.hat
        return standings.of_scores(
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
            raise UserError(
                f"{name}: found battles in {_named([*self._tables])}. Expected scores of items: a win is a "
                "pair’s, and no draw of an entrant’s succeeds by itself."
            )
        _ = self._compared if self._is_scored else self._apart

    def dry_run(self, context: Context) -> None:
        """What else can be wrong has been checked with the files."""
        if context.in_sweep and not self._is_scored and self._apart:
            raise UserError(
                f"judges: found verdicts of {joined([*self._apart])} in a sweep, whose jobs rate those of one. Name it, "
                "battles_filter.judge_model=NAME, or judges=pooled rates all as if by one."
            )

    def run(self, context: Context) -> Report:
        if self._is_scored:
            rows, facts = self._scored
            scope = Scope(kind="scores", source=_named(list(self._files)))
            hashes = {
                name: repeated_files.hashes_of_scores(
                    row for row in rows if row.dimension == name
                )
                for name in self._compared.dimensions
            }
            return report(
                self._with_looks(self._compared, scope, hashes, context.store),
                context,
                scope=scope,
                facts={"battles_files": facts},
            )
        rated, facts = self._rated
        of_files = {"n_battles": rated.total(), "battles_files": facts}
        if self._apart:
            return self._report_apart(context, of_files)
        found = self._with_looks_of(rated, context.store)
        return self._report(context, found, rated, of_files)

    def _with_looks_of(self, battles: Battles, store: Store) -> Standings:
        """Rate battles, and count the results of these that were shown before battles were added."""
        found = self._standings(battles)
        hashes = {
            name: repeated_files.hashes_of_battles(some)
            for name, some in found.battles.items()
            if found.n_prompts(name) is not None
        }
        return self._with_looks(found, self._scope(battles), hashes, store)

    def _with_looks(
        self,
        found: Standings,
        scope: Scope,
        hashes: Mapping[str, Mapping[str, Hashes]],
        store: Store,
    ) -> Standings:
        """Store that results are shown, by dimension, and add those that were shown before rows were added."""
        if scope.kind == "words":  # which never claims more than shared words
            return found
        earlier = dict[str, dict[str, Any]]()
        for dimension, of_model in hashes.items():
            subject = f"rated {fingerprint([scope.kind, scope.judge, dimension, self.battles_filter])}"
            evidence = repeated_files.as_evidence(of_model)
            name = fingerprint([evidence])
            shown = [
                ShownFile(rows=one.evidence, leader=one.claim)
                for one in store.shown_before(subject, name)
            ]
            if rows := repeated_files.earlier_files(shown, of_model):
                earlier[dimension] = {"earlier_looks": rows}
            board, leader = found.board(dimension), None
            first = first_of(board, found.pairs(dimension)) if board else None
            if first and not (first.rivals or first.level or first.not_met):
                leader = first.model
            store.show(subject, ShownResult(name=name, evidence=evidence, claim=leader))
        diagnoses = dict(found.diagnoses)
        for dimension, one in earlier.items():  # of which scores have none
            diagnoses[dimension] = {**diagnoses.get(dimension, {}), **one}
        return replace(found, diagnoses=diagnoses)

    def _standings(self, battles: Battles) -> Standings:
        """Rate battles, in all dimensions of the files."""
        rated, _ = self._rated
        found = standings.rate(
            battles.by_dimension(rated.by_dimension()),
            elo=self.elo,
            ratings=self.rating,
            models=rated.models,
        )
        missing = self._missing(battles)
        if (name := standings.primary_method(self.rating)) is not None:
            method: Any = self.rating[name]
            if self._is_one_order_design and plans_both_orders(method):
                method = replace(method, orders="one")
            found = standings.with_missing(found, missing, method)
        kin = self._diagnosis_of_kin(self._scope(battles), battles)
        length = {
            name: {
                "length": length_control(
                    some, dimension=name, initial_rating=self.elo.initial_rating
                )
            }
            for name, some in found.battles.items()
            if some.styles
        }
        odd = [
            check_responses(model, responses)
            for model, responses in sorted(self._answers.items())
            if model in rated.models
        ]
        return standings.with_diagnoses(found, kin, length, responses=odd)

    @functools.cached_property
    def _is_one_order_design(self) -> bool:
        """Whether all files are of runs that asked each comparison in one order: no second order is missing then."""
        settings = [manifest_if_any(path.parent).get("config") for path in self._files]
        return all(
            ((one or {}).get("judging") or {}).get("orders") == "one"
            for one in settings
        )

    @functools.cached_property
    def _answers(self) -> dict[str, dict[str, Response]]:
        """The answers that the files hold beside their battles, by model and prompt.

        An answer to a prompt without a name is left out: a model's answer may stand in many battles, and would be taken
        for many equal answers.
        """
        found = dict[str, dict[str, Response]]()
        for path, chosen in self._files.items():
            if not chosen.holds_answers(tables.keys(path)):
                continue
            for _, row in tables.rows(path):
                names = (chosen.columns.get("question_id", "question_id"), *TEXTS)
                whole = chosen.complete(row) if chosen.fields else row
                named = (whole.get(name) for name in ("question_id", *names))
                prompt = next((str(name) for name in named if name), None)
                if prompt is None:
                    continue
                for model, text in chosen.answers_in(row).items():
                    found.setdefault(model, {})[prompt] = Response(
                        entrant_id=model, prompt_id=prompt, response_text=text
                    )
        return found

    def _missing(self, battles: Battles) -> dict[str, list[MissingBattle]]:
        """Comparisons without a winner by dimension, of the judges of these battles and of none."""
        judges = {battles.judges[i] for i in np.unique(battles.judge) if i >= 0}
        found: dict[str, list[MissingBattle]] = {
            name: [] for name in battles.by_dimension()
        }
        every = [one for _, _, missing in self._read for one in missing]
        for one in every:
            own = found.get(one.dimension or OVERALL)
            if own is not None and one.judge_model in (None, *judges):
                own.append(one)
        return found

    def _report(
        self,
        context: Context,
        found: Standings,
        battles: Battles,
        facts: Mapping[str, Any],
    ) -> Report:
        boards = found.companions.get("bradley_terry", {})
        return report(
            found,
            context,
            scope=self._scope(battles),
            facts=facts,
            written=artifacts.write_bootstraps(context.run_dir, boards),
        )

    def _report_apart(self, context: Context, facts: Mapping[str, Any]) -> Report:
        """Report what each judge's verdicts say by themselves, and what all of them do."""
        by_judge, reports = dict[str, Standings](), dict[str, Report]()
        for name, party in self._apart.items():
            found = self._with_looks_of(party.battles, context.store)
            by_judge[name] = with_conclusions(found, self._scope(party.battles))
            own = context.of_judge(name)
            of_own = {"n_battles": party.battles.total(), "judge_model": name}
            reports[name] = replace(
                self._report(own, found, party.battles, of_own),
                settings=self._settings_of(party),
            )
        return report_of_judges(
            by_judge,
            reports,
            context,
            orders=self.judging.orders,
            initial_rating=self.elo.initial_rating,
            facts={**facts, "judges": {name: name for name in by_judge}},
            populations=[n for n, one in self._apart.items() if one.is_population],
            jointly=rates_jointly(self.rating),
        )

    def _settings_of(self, party: Party) -> dict[str, Any]:
        """The settings by which these verdicts are rated alone, where a filter can say so."""
        if len(party.names) != 1:
            return {}
        return {
            "battles_filter": {**self.battles_filter, "judge_model": party.names[0]}
        }

    def _scope(self, battles: Battles) -> Scope:
        """Whose verdicts the battles are: people's votes, or those of judges, which need not be named."""
        is_verdict = np.array([source != "human" for source in battles.sources])
        judged = battles.select(is_verdict[battles.source])
        names = [judged.judges[i] for i in np.unique(judged.judge).tolist() if i >= 0]
        source = _named([*self._tables])
        if self._says_votes(battles) and not len(judged):
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


def _refuse_names(judges: Sequence[str]) -> None:
    """Raise UserError for names of judges that look alike, and for one that no folder can have."""
    for group in fields.alike(judges):
        raise UserError(
            f"battles: the judges {', '.join(map(repr, group))} look alike, and the taste of one under two names would "
            "count twice. Give it one name in the file; judges=pooled rates all verdicts as if by one judge."
        )
    for name in judges:
        folder = safe_name(name)
        if (
            folder.strip(". ") == ""
            or len(folder.encode(errors="replace")) > _MAX_BYTES
        ):
            raise UserError(
                f"battles: the judge {name!r:.80} has a name that its folder cannot have. Expected one of fewer "
                f"than {_MAX_BYTES} bytes, and not of dots alone; battles_filter.judge_model=NAME rates one judge."
            )


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
