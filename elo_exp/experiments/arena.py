"""Placement of models among human battles: the models answer prompts of an arena, and a judge compares
their answers with the answers of the anchors.

python -m elo_exp experiment=arena    # simulated voters, a known truth
python -m elo_exp experiment=arena arena=lmarena_140k 'entrant=[mine]' judge=opus
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import agreement, standings
from elo_exp.analysis.checks import Check
from elo_exp.analysis.conclusions import Adjustment, Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.arena_conclusion import STATUS_BY_STATE, conclude
from elo_exp.analysis.conclusions.tournament_conclusion import failed_check_reasons
from elo_exp.analysis.dimension_fit import DimensionFit
from elo_exp.analysis.gate_checks import refuse_broken_checks
from elo_exp.analysis.judge_quality import RATES, JudgeQuality, judge_quality
from elo_exp.analysis.missing_answers import count_for_model
from elo_exp.analysis.standings import Standings, add_checks
from elo_exp.arena import joint_fit, sources
from elo_exp.arena.joint_fit import MIN_ANCHORS_TO_CALIBRATE
from elo_exp.arena.placement import (
    MissingResults,
    Placement,
    fit_temperature,
    rate_by_scores,
)
from elo_exp.arena.sources import ArenaSettings
from elo_exp.arena.style_distance import count_styles, measure_style_distance
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles
from elo_exp.data.field_names import CLUSTER_FIELD
from elo_exp.entrants.probe import GradedProbe
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.experiments import ONLY_JUDGE, Context, Report
from elo_exp.experiments.answer_files import log_lines, warn_of_look_alikes
from elo_exp.experiments.comparison_experiment import ComparisonExperiment
from elo_exp.experiments.judge_choice import require_judge
from elo_exp.experiments.placement_run import (
    PlacementRun,
    check_placement,
    collect_facts,
    list_missing_battles,
    plan_placed_answers,
)
from elo_exp.experiments.shards import answer_shard
from elo_exp.experiments.stored_audits import load_stored_audits, suggest_audit_command
from elo_exp.files import write_json, write_jsonl
from elo_exp.judges import ApiJudge, Judge
from elo_exp.pipeline import AnswerPlan, Plan
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import MissingBattle, Plot
from elo_exp.report import arena_page, artifacts, page
from elo_exp.report.sentences import arena_sentences as words
from elo_exp.report.sentences.check_sentences import describe_equal_answers_plan
from elo_exp.report.standings_view import build_view
from elo_exp.store.answer_store import Store

logger = logging.getLogger(__name__)

_FIT_FIELDS = (
    *("s", "s_std_error", "taste", "position", "design_effects", "n_anchors"),
    *("kin", "n_kin_anchors"),
)
_HUMAN_METRICS = ("agreement", "kappa", "temperature", *_FIT_FIELDS[:4])
_RATING_FIELDS = (
    "rating",
    "std_error",
    "ci_low",
    "ci_high",
    "rank",
    "rank_low",
    "rank_high",
)
_MODEL_FIELDS = (*_RATING_FIELDS, "status", "reason")
_OTHER_BOARDS = ("by_judge", "soft")
_CONCLUSION_FIELDS = (
    "state",
    "sentence",
    "rating",
    "ci_low",
    "ci_high",
)


@dataclass(kw_only=True)
class Arena(ComparisonExperiment):
    """A placement of models among human battles."""

    elo: EloMethod
    rating: dict[str, RatingMethod]
    interval: str  # of Bradley-Terry, unless rating.bradley_terry.interval sets another
    arena: ArenaSettings
    _placement: PlacementRun | None = field(default=None, init=False, repr=False)
    _is_assumed: bool = field(default=False, init=False, repr=False)

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        model_numbers = (*_RATING_FIELDS, "n_judged", *_OTHER_BOARDS, "error")
        names = {
            name.partition("/")[0] for name in self.entrant
        }  # a repository has two parts
        return {
            "arena_mean": ("error",),
            "human": (*_HUMAN_METRICS, "mae"),
            "judge": RATES,
            "usage": (),
            **dict.fromkeys(sorted(names), model_numbers),
        }

    @property
    def input_files(self) -> Mapping[str, Path]:
        return sources.list_input_paths(self.arena)

    def dry_run(self, context: Context) -> str | None:
        """Raise UserError for settings and files that the run would refuse."""
        refuse_broken_checks()
        warn_of_look_alikes(self.entrant, "entrants")
        log_lines(self.answer_files.describe_unjoined())
        self.check(context.overrides)
        self._warn_of_no_calibration()
        if not self.shard:
            require_judge(
                self.judge_run.judge,
                partial(self._plan_placements, store=context.store),
            )
        self._assume_battles(context)
        run = self.placement(context.store)
        if not self.shard:
            draws_by_model = run.random(run.n_battles)
            for name, draws in draws_by_model.items():
                if not draws:
                    raise _build_unplaced_error(name)
            check_placement(run, draws_by_model, context)
        return None

    def describe_plan(self, context: Context, plans: Sequence[Plan]) -> str:
        """Return what judging would cost; the plan of adaptive opponents assumes as many random opponents."""
        run, (plan,) = self.placement(context.store), plans
        draws = run.random(run.n_battles)
        n = len(run.to_recalibrate(draws))
        return "\n".join(
            [
                pipeline.plan_table(plan),
                *words.describe_calibration_plan(plan, n),
                *(
                    [words.plan_is_assumed(self.arena.title)]
                    if self._is_assumed
                    else []
                ),
                *self.judge_run.describe_kin_plan(run.kin),
                *describe_equal_answers_plan(run.known_equal(draws)),
            ]
        )

    def _assume_battles(self, context: Context) -> None:
        """Take assumed battles, if a plan is to do without a data set that is not here."""
        if not context.is_plan:
            return
        stand_in = sources.assume_battles(self.arena, n_models=MIN_ANCHORS_TO_CALIBRATE)
        if stand_in:
            context.needs.add(f"the data set of {self.arena.title}")
            self._placement = replace(self, arena=stand_in).placement(context.store)
            self._is_assumed = True

    def plans(self, store: Store) -> list[Plan]:
        """Return the planned judge calls and their cost."""
        run = self.placement(store)
        plan = run.plan(run.random(run.n_battles))
        is_upper_bound = any(p.is_upper_bound for p in self.answer_plans(store))
        return [replace(plan, is_upper_bound=is_upper_bound)]

    def answer_plans(self, store: Store) -> list[AnswerPlan]:
        """Return the answers that the models to place have still to make, and what they cost."""
        run = self.placement(store)
        return plan_placed_answers(run, run.random(run.n_battles))

    def _plan_placements(self, judges: Sequence[Judge], *, store: Store) -> list[Plan]:
        """Plan the calls of each judge and their cost."""
        runs = [
            replace(self, judges={ONLY_JUDGE: judge}).placement(store)
            for judge in judges
        ]
        return [run.plan(run.random(run.n_battles)) for run in runs]

    def run(self, context: Context) -> Report:
        run = self.placement(context.store)
        if self.shard is not None:
            ((prompts, _),) = run.tasks(run.random(run.n_battles))
            return answer_shard(
                prompts,
                self.entrant,
                context.store,
                self.shard,
                allow_missing=self.allow_missing,
                canary=self.judging.canary,
            )
        run.run()
        return report_placement(self, run, place_models(self, run), context)

    def check(self, overrides: Sequence[str] = ()) -> None:
        """Raise SettingError for settings that do not fit together."""
        self.refuse_drawing("arena.n_battles")
        self.refuse_draws(
            "arena",
            "People compared one answer per model, and the judge does the same.",
        )
        if self.prompts.cluster not in (None, CLUSTER_FIELD):
            raise SettingError.bad_value(
                "prompts.cluster",
                self.prompts.cluster,
                "be left out with experiment=arena, which counts each prompt separately",
            )
        arena_settings = self.arena
        is_given = any(word.startswith("entrant=") for word in overrides)
        is_default = list(self.entrant) == ["newcomer"] and not is_given
        if not self.entrant or (is_default and not arena_settings.simulated):
            raise SettingError.no_value(
                "entrant",
                needed_for="experiment=arena",
                value="the models to place",
                example="'entrant=[hf:ORG/MODEL]'",
            )
        sources.check_source(arena_settings)
        rubrics, judge = self.rubrics, self.judge_run.judge
        if len(rubrics) != 1 or rubrics[0].needs_reference:
            names = ", ".join(rubric.dimension for rubric in rubrics)
            raise SettingError(
                f"rubric must be one rubric without a reference answer, as people vote on one question; got "
                f"{names or 'none'}. "
                "For example:",
                "  'rubric=[preference]'",
            )
        scores = isinstance(judge, ApiJudge) or judge.model == "lexical"
        scores &= '"score_a"' in rubrics[0].schema
        soft = arena_settings.soft
        if soft != "calibrated" and (isinstance(soft, str) or (soft or 0.0) < 0.0):
            raise SettingError.bad_value(
                "arena.soft",
                soft,
                "be a temperature of 0 or more, calibrated or null",
            )
        if soft is not None and not scores:
            raise SettingError(
                f"arena.soft needs scores, which judge {judge.model} does not give with rubric {rubrics[0].dimension}. "
                "Use a judge behind an API or judge=lexical, with:",
                "  'rubric=[preference_scores]'",
            )
        if (
            arena_settings.placement == "calibrated"
            and arena_settings.n_calibration == 0
        ):
            raise SettingError(
                "arena.n_calibration must be 1 or more with arena.placement=calibrated, which judges human battles "
                "again; got 0. "
                "Choose one:",
                "  arena.n_calibration=300",
                "  arena.placement=raw",
            )
        if arena_settings.placement == "calibrated" and needs_style(self.rating):
            raise SettingError(
                "rating.bradley_terry.style has no effect on a calibrated placement. Leave it out, or set "
                "arena.placement=raw."
            )
        limit, n_placed = self.judging.limit_pairs, len(self.entrant)
        if limit is not None and limit < n_placed:
            raise SettingError.bad_value(
                "judging.limit_pairs",
                limit,
                f"be {n_placed} or more, one battle for each model to place, or null for all",
            )
        if len(self.rating) != 1:
            raise SettingError(
                f"rating must be one method with experiment=arena; got {len(self.rating)}. For example:",
                "  'rating=[bradley_terry]'",
            )
        if self.shard is not None and arena_settings.opponents == "adaptive":
            raise SettingError(
                f"shard={self.shard} cannot be combined with arena.opponents=adaptive, which chooses opponents by the "
                f"verdicts so far. "
                "Leave shard out."
            )

    def _warn_of_no_calibration(self) -> None:
        """Warn before anything is spent if judging.limit_pairs leaves no battle to calibrate the judge."""
        limit, n_wanted = (
            self.judging.limit_pairs,
            len(self.entrant) * self.arena.n_battles,
        )
        if self.arena.placement == "calibrated" and limit and limit <= n_wanted:
            text = words.warn_of_no_calibration(limit, n_wanted, list(self.entrant))
            logger.warning("warning: %s", text)

    def placement(self, store: Store) -> PlacementRun:
        """Return the sample of battles by the settings, read once; no model is called yet."""
        if self._placement is None:
            self._placement = self._read_battles(store)
        return self._placement

    def _read_battles(self, store: Store) -> PlacementRun:
        return PlacementRun(
            self.arena,
            store,
            entrants=self.entrant,
            judge=self.judge_run.judge,
            rubric=self.judge_run.rubrics[0],
            asking=self.judging_settings,
            limit_pairs=self.judging.limit_pairs,
            with_style=needs_style(self.rating),
            families=self.judging.families,
            excludes_kin=self.judging.self_judging == "exclude",
            allows_equal=self.judging.allow_equal,
        )

    def rate(self, battles: Battles) -> Leaderboard:
        """Rate battles by the chosen method, with rank sets."""
        boards = standings.leaderboards({"": battles}, self.rating)
        ((board,),) = (by_dimension.values() for by_dimension in boards.values())
        return board


def _build_unplaced_error(
    name: str, n_drawn: int = 0, n_answered: int = 0, n_judged: int = 0
) -> EvidenceError:
    """Return the error for a model without a valid verdict."""
    return EvidenceError(
        f"{name} cannot be placed, as none of its verdicts is valid.",
        f"  It drew {n_drawn} battles with texts, answered {n_answered} prompts and was judged on {n_judged}.",
        "  To draw more battles, raise arena.n_battles and judging.limit_pairs.",
        "  To list the cached verdicts, use experiment=store.",
    )


def place_models(experiment: Arena, run: PlacementRun) -> Placement:
    """Rate the judged battles together with the human battles, and compare judge and humans."""
    human, placed = run.human, tuple(run.drawn)
    arena_settings, judge_model = experiment.arena, experiment.judge_run.judge.model
    battles = run.battles()
    judged_battles = Battles.from_rows([b for b in battles if b.model_a in placed])
    recalibration = Battles.from_rows([b for b in battles if b.model_a not in placed])
    for name in sorted({*placed}.difference(judged_battles.models)):
        n_drawn, n_answered = (
            len(run.texts.select_usable(run.drawn[name])),
            len(run.responses[name]),
        )
        n_judged = sum(judgment.entrant_a == name for judgment in run.judgments)
        raise _build_unplaced_error(name, n_drawn, n_answered, n_judged)
    all_battles = concatenate_battles(judged_battles, human)
    board = experiment.rate(all_battles)
    flags = {model: board.row(model).flag for model in placed}
    placement = Placement(
        arena=run.arena.name,
        judge_model=judge_model,
        placed_models=placed,
        judged_battles=judged_battles,
        human_battles=human,
        board=board,
        kin=run.kin,
        human_board=experiment.rate(
            concatenate_battles(
                run.arena.battles, run.arena.held_out_battles
            ).select_between([*run.anchors, *placed])
        ),
    )
    (method,) = experiment.rating.values()
    level = float(experiment.elo.initial_rating)
    baseline = getattr(method, "baseline_model", None)
    if len(recalibration):
        votes = human.select(
            np.isin(human.questions, recalibration.questions)[human.question]
        )
        placement.agreement = agreement.kappa(
            votes,
            recalibration,
            names=("humans", judge_model),
            dimension=run.rubric.dimension,
        )
        placement.temperature = fit_temperature(votes, recalibration)
        placement.fit = joint_fit.fit_jointly(
            human,
            recalibration,
            judged_battles,
            placed,
            placement.kin.models,
            kin_sd=arena_settings.kin_sd,
        )
    if arena_settings.placement == "calibrated":
        fit, index_of = placement.fit, all_battles.models.index
        placement.refusal = fit.refusal if fit else Reason(name="not_calibrated")
        if fit is None or placement.refusal:
            # Placed models keep their rows, without a rating.
            board = experiment.rate(
                all_battles.select(np.arange(len(judged_battles), len(all_battles)))
            )
            refused_flags = {index_of(model): "refused" for model in placed}
            placement.board = replace(board, flags={**board.flags, **refused_flags})
        else:
            placement.judge_board = replace(board, label="Judge's scale")
            placement.board = joint_fit.make_leaderboard(
                fit,
                all_battles.n_battles(),
                level=level,
                baseline=baseline,
                unrated={index_of(m): flag for m, flag in flags.items() if flag},
            )
    if arena_settings.soft is not None and not placement.refusal:
        rated_models = [model for model in placed if not flags[model]]
        placement.soft_board = rate_by_scores(
            run.judgments,
            human,
            rated_models,
            soft=arena_settings.soft,
            initial_rating=level,
        )
    if arena_settings.simulated:
        probes = [e for e in experiment.entrant.values() if isinstance(e, GradedProbe)]
        placement.true_board = arena_settings.simulated.true_leaderboard(
            probes, level=level, baseline=baseline
        )
    if arena_settings.placement == "raw" and needs_style(experiment.rating):
        name, style_method = next(iter(experiment.rating.items()))
        untyped_method: Any = style_method
        placement.controlled_features = (*untyped_method.style,)
        uncontrolled_experiment = replace(
            experiment, rating={name: replace(untyped_method, style=())}
        )
        placement.uncontrolled_board = uncontrolled_experiment.rate(all_battles)
    styles = count_styles(run.comparisons)
    placement.style = {
        model: measure_style_distance(styles, model, run.anchors) for model in placed
    }
    if not placement.refusal:
        placement.missing = _rate_missing_results(
            experiment,
            placement,
            recalibration,
            list_missing_battles(run),
            level=level,
            baseline=baseline,
        )
    placement.reasons = {
        model: _list_reasons(
            placement, model, flag, is_kin_allowed=experiment.judge_run.allows_kin
        )
        for model, flag in flags.items()
    }
    return placement


def _rate_missing_results(
    experiment: Arena,
    placement: Placement,
    recalibration: Battles,
    missing: Mapping[str, Sequence[MissingBattle]],
    *,
    level: float,
    baseline: str | None,
) -> dict[str, MissingResults]:
    """Rate the placed models again as if they had lost their missing battles, and as if they had won them.

    recalibration  verdicts on human battles
    missing        by placed model
    """
    if not any(missing.values()):
        return {}
    boards = list[Leaderboard | None]()
    for wins in (False, True):
        judged_battles = placement.judged_battles
        for model, missing_battles in missing.items():
            judged_battles = count_for_model(
                judged_battles, missing_battles, model, wins=wins
            )
        all_battles = concatenate_battles(judged_battles, placement.human_battles)
        board: Leaderboard | None = experiment.rate(all_battles)
        if placement.judge_board and board:
            flags = {model: board.row(model).flag for model in placement.placed_models}
            fit = joint_fit.fit_jointly(
                placement.human_battles,
                recalibration,
                judged_battles,
                placement.placed_models,
                placement.kin.models,
                kin_sd=experiment.arena.kin_sd,
            )
            board = None
            if not fit.refusal:
                board = joint_fit.make_leaderboard(
                    fit,
                    all_battles.n_battles(),
                    level=level,
                    baseline=baseline,
                    unrated={
                        all_battles.models.index(m): flag
                        for m, flag in flags.items()
                        if flag
                    },
                )
        boards.append(board)
    results = {}
    for model, missing_battles in missing.items():
        if not missing_battles:
            continue
        low, high = (board.row(model) if board else None for board in boards)
        n_lacks = sum(model in battle.lacking for battle in missing_battles)
        n_answered = placement.count_judged(model) - sum(
            battle.is_judged for battle in missing_battles
        )
        results[model] = MissingResults(
            n_battles=n_answered + len(missing_battles),
            n_lacks=n_lacks,
            n_failed=sum(model in battle.failed for battle in missing_battles),
            n_unjudged=len(missing_battles) - n_lacks,
            low=low,
            high=high,
        )
    return results


def _list_reasons(
    placement: Placement, model: str, flag: str | None, *, is_kin_allowed: bool
) -> list[Reason]:
    """Return the reasons against the placement of a model, without the checks of the judge.

    flag  why the judge's verdicts give it no rating
    """
    if placement.refusal:
        return [placement.refusal]
    if flag:
        return [Reason(name="unrated", about={"flag": flag})]
    style_reasons = placement.style[model].list_reasons()
    if model in placement.missing:
        missing_reasons = placement.missing[model].list_reasons(
            placement.board.row(model)
        )
        style_reasons = [*missing_reasons, *style_reasons]
    if placement.judge_board and placement.fit:
        return [*placement.fit.list_cautions(model), *style_reasons]
    reasons, kin = [Reason(name="raw"), *style_reasons], placement.kin
    if kin.is_unequal and model in kin.models and not is_kin_allowed:
        about = {"family": kin.family}
        reasons.append(Reason(name="kin", about=about, judges=True))
    return reasons


def _conclude_placements(
    placement: Placement, checks: Sequence[Check], kind: str
) -> dict[str, Conclusion]:
    """Return the conclusion about each placed model.

    checks, kind  of the judge
    """
    judged_battles = placement.judged_battles
    conclusions = {}
    for model in placement.placed_models:
        model_battles = judged_battles.select(
            judged_battles.model_a == judged_battles.models.index(model)
        )
        scope = Scope(
            judge=placement.judge_model,
            kind=kind,
            n_prompts=model_battles.n_prompts(),
            source=placement.arena,
        )
        reasons = [*placement.reasons[model], *failed_check_reasons(checks, model)]
        conclusion = conclude(placement.board.row(model), reasons, scope)
        conclusions[model] = replace(
            conclusion, adjustment=_describe_adjustment(placement, model)
        )
    return conclusions


def _describe_adjustment(placement: Placement, model: str) -> Adjustment | None:
    """Return the features that a rating controls for, with the rating without this control."""
    if not placement.controlled_features or placement.uncontrolled_board is None:
        return None
    row = placement.uncontrolled_board.row(model)
    raw = Effect(value=row.rating, low=row.ci_low, high=row.ci_high)
    return Adjustment(features=placement.controlled_features, raw=raw)


def report_placement(
    experiment: Arena, run: PlacementRun, placement: Placement, context: Context
) -> Report:
    """Write the artifacts of a placement, and report it."""
    run_dir = context.run_dir
    arena_settings, dimension = experiment.arena, run.rubric.dimension
    comparisons, judgments = {dimension: run.comparisons}, {dimension: run.judgments}
    quality = judge_quality(run.judgments, dimension=dimension)
    ((name, method),) = experiment.rating.items()
    human_board = replace(
        placement.human_board, label=f"{placement.votes.title()} votes alone"
    )
    boards = {
        "calibrated" if placement.judge_board else name: placement.board,
        "by_judge": placement.judge_board,
        "soft": placement.soft_board,
        "truth": placement.true_board,
        "by_humans": human_board,
    }
    rated_standings = Standings(
        models=placement.placed_models,
        battles={dimension: placement.judged_battles},
        boards={key: {dimension: b} for key, b in boards.items() if b},
        judges_agreement=[placement.agreement] if placement.agreement else [],
        diagnoses=load_stored_audits(
            experiment.judge_run.judge, [run.rubric], context.store
        ),
    )
    if arena_settings.union:
        arena_by_question = {
            q: q.partition(":")[0] for q in placement.human_battles.questions
        }
        votes = {dimension: DimensionFit.of(placement.human_battles)}
        strata = standings.rate_strata(votes, arena_by_question, method.rate)
        rated_standings = standings.add_diagnoses(rated_standings, strata)
    rated_standings = add_checks(rated_standings, [quality])
    kind = experiment.judge_run.judge.make_scope().kind
    conclusions = _conclude_placements(
        placement, rated_standings.checks[dimension], kind
    )
    conclusion_rows = {
        model: words.conclusion_to_row(conclusion, placement)
        for model, conclusion in conclusions.items()
    }
    all_boards = artifacts.ratings_json(rated_standings) | {
        "conclusions": conclusion_rows
    }
    dimension_boards = all_boards["dimensions"][dimension]
    settings = {"method": name, **vars(method)}
    ratings = make_elo_ratings_file(
        placement, dimension_boards, settings, conclusion_rows
    )
    written_paths = [
        *artifacts.write_judging(
            run_dir,
            responses=run.responses,
            comparisons=comparisons,
            judgments=judgments,
        ),
        artifacts.write_battles(
            run_dir,
            [
                concatenate_battles(placement.judged_battles, placement.human_battles)
                if arena_settings.inline_human
                else placement.judged_battles
            ],
            arena_settings.battles_format,
        ),
        write_json(run_dir / "elo_ratings.json", ratings),
        write_json(run_dir / "ratings.json", all_boards),
        *artifacts.write_bootstraps(
            run_dir, {dimension: placement.judge_board or placement.board}
        ),
    ]
    if arena_settings.simulated:
        path = run_dir / "arena.jsonl"
        written_paths.append(write_jsonl(path, arena_settings.simulated.votes))
    facts = {**collect_facts(run), "judge_quality": [quality.to_dict()]}
    texts = (comparisons, judgments) if context.with_texts else ()
    view = build_view(rated_standings, *texts)
    headline = placement.board.row(placement.placed_models[0]).rating

    def figures() -> Sequence[Plot]:
        from elo_exp.figures import arena_figures

        return arena_figures.plots(placement)

    return Report(
        headline=math.nan if headline is None else headline,
        headline_is=f"{placement.placed_models[0]}/rating",
        text=arena_page.format_console(
            placement, conclusions, quality, rated_standings.diagnoses
        ),
        follow_up=suggest_audit_command(
            experiment.judge_run.judge, experiment.rubric, context
        ),
        facts=facts,
        artifacts=written_paths,
        metrics=make_metrics(placement, ratings, quality),
        tables={
            "judge": facts["judge_quality"],
            "verdicts": artifacts.verdict_rows(comparisons, judgments),
        },
        figures=figures,
        page=page.make_page_renderer(
            partial(arena_page.build_document, placement, conclusions, view)
        ),
    )


def make_elo_ratings_file(
    placement: Placement,
    boards: Mapping[str, Any],
    settings: Mapping[str, Any],
    conclusions: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the leaderboard, best first, with the settings to rate the battles again.

    boards       leaderboards as in ratings.json, the placement's first
    settings     of the rating method
    conclusions  by placed model, from `arena_sentences.conclusion_to_row`
    """
    rows_by_board = {name: board["ratings"] for name, board in boards.items()}
    samples = (placement.judge_board or placement.board).samples
    return {
        "arena": placement.arena,
        "model": placement.placed_models[0],
        "models": list(placement.placed_models),
        "judge_model": placement.judge_model,
        "n_judged_battles": len(placement.judged_battles),
        "n_human_battles": len(placement.human_battles),
        "n_bootstraps": 0 if samples is None else len(samples),
        "seed": settings.get("seed"),
        "rating_settings": settings,
        "ratings": [
            {
                **row,
                "source": placement.source(row["model"]),
                **_describe_status(conclusions.get(row["model"])),
            }
            for row in next(iter(rows_by_board.values()))
        ],
        "conclusions": conclusions,
        "by_judge": rows_by_board.get("by_judge", []),
        "soft": placement.soft_board
        and {**placement.soft_board.parameters, "ratings": rows_by_board["soft"]},
        "by_humans": rows_by_board["by_humans"],
        "mae": placement.anchor_mae,
        "calibration": placement.agreement
        and {
            **placement.agreement,
            "temperature": placement.temperature,
            **{name: getattr(placement.fit, name) for name in _FIT_FIELDS},
        },
    }


def _describe_status(conclusion: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return the status of a placement and the reasons against it; {} for an anchor."""
    if conclusion is None:
        return {}
    reasons = [reason["words"] for reason in conclusion["reasons"]]
    return {
        "status": STATUS_BY_STATE[conclusion["state"]],
        "reason": "; ".join(reasons) or None,
    }


def make_metrics(
    placement: Placement, ratings: Mapping[str, Any], quality: JudgeQuality
) -> dict[str, float | str]:
    """Return <model>/rating, /rank ..., judge/<dimension>/<rate>, human/agreement ... and arena_mean/error,
    the root mean square over placed models of their distance from a known truth.

    ratings  of `make_elo_ratings_file`
    """
    calibration = ratings["calibration"] or {}
    values: dict[str, Any] = {
        f"human/{name}": calibration.get(name) for name in _HUMAN_METRICS
    }
    values["human/mae"] = placement.anchor_mae
    boards = (placement.judge_board, placement.soft_board)
    other_boards = dict(zip(_OTHER_BOARDS, boards, strict=True))
    for row in ratings["ratings"]:
        model, truth = row["model"], placement.true_board
        if model not in placement.placed_models:
            continue
        model_values = {name: row.get(name) for name in _MODEL_FIELDS}
        model_values |= {"n_judged": placement.count_judged(model)}
        for name, board in other_boards.items():
            if board and model in board.models:
                model_values[name] = board.row(model).rating
        if truth and model in truth.models and row["rating"] is not None:
            model_values["error"] = row["rating"] - (
                truth.row(model).rating or math.nan
            )
        values |= {f"{model}/{name}": value for name, value in model_values.items()}
        conclusion = ratings["conclusions"][model]
        values |= {
            f"conclusion/{model}/{name}": conclusion[name]
            for name in _CONCLUSION_FIELDS
        }
    errors = [values.get(f"{model}/error") for model in placement.placed_models]
    if known_errors := [error for error in errors if error is not None]:
        size = math.hypot(*known_errors) / math.sqrt(len(known_errors))
        values["arena_mean/error"] = size
    for name, rate in quality.rates().items():
        values[f"judge/{quality.dimension}/{name}"] = rate
    return {name: value for name, value in values.items() if value is not None}
