"""Where models stand among human battles: they answer prompts of an arena, and a judge compares
their answers with those of the anchors.

python -m elo_exp experiment=arena    # simulated voters, a known truth
python -m elo_exp experiment=arena arena=lmarena_140k 'entrant=[mine]' judge=opus
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import agreement, standings
from elo_exp.analysis.checks import Check
from elo_exp.analysis.conclusions import Adjustment, Conclusion, Effect, Reason, Scope
from elo_exp.analysis.conclusions.arena import STATUS, conclude
from elo_exp.analysis.conclusions.tournament import of_checks
from elo_exp.analysis.fitted import Fitted
from elo_exp.analysis.judge_quality import RATES, judge_quality
from elo_exp.analysis.missing_answers import count_for_one
from elo_exp.analysis.standings import Standings, with_checks
from elo_exp.arena import joint_fit, sources
from elo_exp.arena.joint_fit import MIN_ANCHORS
from elo_exp.arena.placement import (
    MissingResults,
    Placement,
    soft_elo,
    temperature,
)
from elo_exp.arena.sources import ArenaSettings
from elo_exp.arena.style_distance import measure_style_distance, styles_of
from elo_exp.data import joining
from elo_exp.data.battles import Battles
from elo_exp.data.fields import CLUSTER
from elo_exp.entrants.probe import GradedProbe
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import (
    Pairwise,
    answer_share,
    audits,
    next_audit,
    refuse_unchosen,
)
from elo_exp.experiments.placement_run import PlacementRun
from elo_exp.files import write_json, write_jsonl
from elo_exp.judges import Judge, PaidJudge, scope_of
from elo_exp.pipeline import Plan
from elo_exp.ratings import EloMethod, RatingMethod, needs_style
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import MissingBattle, Plot, UserError
from elo_exp.report import arena_page, artifacts, page, tournament_page
from elo_exp.report.words import arena as words
from elo_exp.report.words.judge import plan_of_equal_answers
from elo_exp.store.store import Store

_OF_FIT = (
    *("s", "s_std_error", "taste", "position", "design_effects", "n_anchors"),
    *("kin", "n_kin_anchors"),
)
_OF_HUMANS = ("agreement", "kappa", "temperature", *_OF_FIT[:4])
_NUMBERS = ("rating", "std_error", "ci_low", "ci_high", "rank", "rank_low", "rank_high")
_METRICS = (*_NUMBERS, "status", "reason")
_OTHER_SCALES = ("by_judge", "soft")
_SAID = ("state", "sentence", "rating", "ci_low", "ci_high")  # of a conclusion


@dataclass(kw_only=True)
class Arena(Pairwise):
    elo: EloMethod
    rating: dict[str, RatingMethod]
    interval: str  # of Bradley-Terry, where rating.bradley_terry.interval does not say otherwise
    arena: ArenaSettings

    @property
    def numbers(self) -> Mapping[str, Collection[str]]:
        of_models = (*_NUMBERS, "n_judged", *_OTHER_SCALES, "error")
        names = {
            name.partition("/")[0] for name in self.entrant
        }  # a repository has two parts
        return {
            "arena_mean": ("error",),
            "human": (*_OF_HUMANS, "mae"),
            "judge": RATES,
            "usage": (),
            **dict.fromkeys(sorted(names), of_models),
        }

    @property
    def input_files(self) -> Mapping[str, Path]:
        return sources.input_paths(self.arena)

    def dry_run(self, context: Context) -> str | None:
        """Check the settings; with plan=true, return what judging would cost.

        The plan of adaptive opponents is that of as many random ones.
        """
        self._say_answers()
        self.check(context.overrides)
        if not self.shard:
            refuse_unchosen(self.judge, partial(self._plans, store=context.store))
        if not self.plan:
            return None
        stand_in = sources.assumed(self.arena, n_models=MIN_ANCHORS)
        one = replace(self, arena=stand_in) if stand_in else self
        run = one.placement(context.store)
        entered = run.random(run.n_battles)
        plan, n = run.plan(entered), len(run.to_recalibrate(entered))
        return "\n".join(
            [
                pipeline.plan_table(plan),
                *words.plan_of_calibration(plan, n),
                *([words.plan_is_assumed(self.arena.title)] if stand_in else []),
                *self._plan_of_kin(run.kin),
                *plan_of_equal_answers(run.known_equal(entered)),
            ]
        )

    def plans(self, store: Store) -> list[Plan]:
        """Return what the judge would be asked, and cost."""
        return self._plans([self.judge], store=store)

    def _plans(self, judges: Sequence[Judge], *, store: Store) -> list[Plan]:
        """What each judge would be asked, and cost."""
        runs = [replace(self, judge=judge).placement(store) for judge in judges]
        return [run.plan(run.random(run.n_battles)) for run in runs]

    def run(self, context: Context) -> Report:
        run = self.placement(context.store)
        if self.shard is not None:
            ((prompts, _),) = run.tasks(run.random(run.n_battles))
            return answer_share(self, prompts, context.store, self.shard)
        run.run()
        return report(self, run, place(self, run), context)

    def _lines_of_answers(self) -> list[str]:
        """Only what was read: the prompts are those of the arena."""
        return [one.line() for one in joining.entrants(self._files).values()]

    def check(self, overrides: Sequence[str] = ()) -> None:
        """Raise UserError for settings that do not fit together."""
        self.refuse_drawing("arena.n_battles")
        self.refuse_draws(
            "arena", "people compared one answer of a model, and so does the judge."
        )
        if self.prompts.cluster not in (None, CLUSTER):
            raise UserError(
                f"prompts.cluster: found {self.prompts.cluster!r}. The prompts are those of the arena, and each counts "
                "by itself. Leave it out."
            )
        chosen = self.arena
        is_given = any(word.startswith("entrant=") for word in overrides)
        is_default = list(self.entrant) == ["newcomer"] and not is_given
        if not self.entrant or (is_default and not chosen.simulated):
            raise UserError(
                "entrant: none is chosen. Choose the models to place: 'entrant=[mine]'."
            )
        sources.check(chosen)
        rubrics = self._rubrics
        if len(rubrics) != 1 or rubrics[0].needs_reference:
            names = ", ".join(rubric.dimension for rubric in rubrics)
            raise UserError(
                f"rubric: found {names or 'none'}. Expected one, as humans vote on one question, "
                "and without a reference answer: 'rubric=[preference]'."
            )
        scores = isinstance(self.judge, PaidJudge) or self.judge.model == "lexical"
        scores &= '"score_a"' in rubrics[0].schema
        soft = chosen.soft
        if soft != "calibrated" and (isinstance(soft, str) or (soft or 0.0) < 0.0):
            raise UserError(
                f"arena.soft: found {soft}. Expected a temperature of 0 or more, calibrated, or null."
            )
        if soft is not None and not scores:
            raise UserError(
                f"arena.soft: judge {self.judge.model} gives no scores by rubric "
                f"{rubrics[0].dimension}. Take 'rubric=[preference_scores]' and a judge behind an "
                "API, or judge=lexical."
            )
        if chosen.placement == "calibrated" and chosen.n_calibration == 0:
            raise UserError(
                "arena.n_calibration: found 0. A calibrated placement needs human battles that the "
                "judge judges again: arena.n_calibration=300; or take the judge's own scale with "
                "arena.placement=raw."
            )
        if chosen.placement == "calibrated" and needs_style(self.rating):
            raise UserError(
                "rating.bradley_terry.style: the calibrated fit has no style. Add "
                "arena.placement=raw, or leave it out."
            )
        limit, n_placed = self.judging.limit_pairs, len(self.entrant)
        if limit is not None and limit < n_placed:
            raise UserError(
                f"judging.limit_pairs: found {limit} for {n_placed} models to place. Expected "
                f"{n_placed} or more, a battle of each, or null for all."
            )
        if len(self.rating) != 1:
            raise UserError(
                f"rating: found {len(self.rating)}. Expected one method: 'rating=[bradley_terry]'."
            )
        if self.shard is not None and chosen.opponents == "adaptive":
            raise UserError(
                "shard: adaptive opponents are chosen as verdicts come in. Leave shard out."
            )

    def placement(self, store: Store) -> PlacementRun:
        """Return the draw as the settings say; nothing is asked yet."""
        return PlacementRun(
            self.arena,
            store,
            entrants=self.entrant,
            judge=self.judge,
            rubric=self._rubrics[0],
            asking=self.asking,
            limit_pairs=self.judging.limit_pairs,
            with_style=needs_style(self.rating),
            families=self.judging.families,
            excludes_kin=self.judging.self_judging == "exclude",
            allows_equal=self.judging.allow_equal,
        )

    def rate(self, battles: Battles) -> Leaderboard:
        """Rate battles by the one method that was chosen, with rank sets."""
        boards = standings.leaderboards({"": battles}, self.rating)
        ((board,),) = (by_dimension.values() for by_dimension in boards.values())
        return board


def place(experiment: Arena, run: PlacementRun) -> Placement:
    """Rate what was judged together with the human battles, and compare judge and humans."""
    human, placed = run.human, tuple(run.drawn)
    chosen, judge_model = experiment.arena, experiment.judge.model
    battles = run.battles()
    judged = Battles.from_rows([b for b in battles if b.model_a in placed])
    again = Battles.from_rows([b for b in battles if b.model_a not in placed])
    for name in sorted({*placed}.difference(judged.models)):
        n_drawn, n_answered = len(run.usable(run.drawn[name])), len(run.responses[name])
        n_judged = sum(judgment.entrant_a == name for judgment in run.judgments)
        raise UserError(
            f"{name}: found no valid verdict, so it cannot be placed: it has drawn {n_drawn} "
            f"battles with texts, answered {n_answered} prompts and been judged on {n_judged}. "
            "Draw more (arena.n_battles, judging.limit_pairs), supply what is missing, or look at "
            "the stored verdicts with experiment=store."
        )
    every = judged.concatenate(human)
    board = experiment.rate(every)
    flags = {model: board.row(model).flag for model in placed}
    found = Placement(
        arena=run.arena.name,
        judge_model=judge_model,
        placed=placed,
        judged=judged,
        human=human,
        board=board,
        kin=run.kin,
        human_board=experiment.rate(
            run.arena.battles.concatenate(run.arena.held_out).among(
                [*run.anchors, *placed]
            )
        ),
    )
    (method,) = experiment.rating.values()
    level = float(experiment.elo.initial_rating)
    baseline = getattr(method, "baseline_model", None)
    if len(again):
        voted = human.select(np.isin(human.questions, again.questions)[human.question])
        found.agreement = agreement.kappa(
            voted,
            again,
            names=("humans", judge_model),
            dimension=run.rubric.dimension,
        )
        found.temperature = temperature(voted, again)
        found.fit = joint_fit.fit(
            human, again, judged, placed, found.kin.models, kin_sd=chosen.kin_sd
        )
    if chosen.placement == "calibrated":
        fit, place_of = found.fit, every.models.index
        found.refusal = fit.refusal if fit else Reason(name="not_calibrated")
        if fit is None or found.refusal:
            # Placed models keep their rows, without a rating.
            board = experiment.rate(every.select(np.arange(len(judged), len(every))))
            refused = {place_of(model): "refused" for model in placed}
            found.board = replace(board, flags={**board.flags, **refused})
        else:
            found.by_judge = replace(board, label="Judge's scale")
            found.board = joint_fit.leaderboard(
                fit,
                every.n_battles(),
                level=level,
                baseline=baseline,
                unrated={place_of(m): flag for m, flag in flags.items() if flag},
            )
    if chosen.soft is not None and not found.refusal:
        rated = [model for model in placed if not flags[model]]
        found.soft = soft_elo(
            run.judgments, human, rated, soft=chosen.soft, initial_rating=level
        )
    if chosen.simulated:
        graded = [e for e in experiment.entrant.values() if isinstance(e, GradedProbe)]
        found.truth = chosen.simulated.truth(graded, level=level, baseline=baseline)
    if chosen.placement == "raw" and needs_style(experiment.rating):
        name, controlling = next(iter(experiment.rating.items()))
        plain: Any = controlling
        found.adjusted_for = (*plain.style,)
        without = replace(experiment, rating={name: replace(plain, style=())})
        found.uncontrolled = without.rate(every)
    styles = styles_of(run.comparisons)
    found.style = {
        model: measure_style_distance(styles, model, run.anchors) for model in placed
    }
    if not found.refusal:
        found.missing = _missing_results(
            experiment, found, again, run.missing(), level=level, baseline=baseline
        )
    found.reasons = {
        model: _reasons(found, model, flag, is_kin_allowed=experiment.allows_kin)
        for model, flag in flags.items()
    }
    return found


def _missing_results(
    experiment: Arena,
    found: Placement,
    again: Battles,
    missing: Mapping[str, Sequence[MissingBattle]],
    *,
    level: float,
    baseline: str | None,
) -> dict[str, MissingResults]:
    """Rate the placed models once more as if they had lost what is missing, and as if they had won it.

    again    verdicts on human battles
    missing  by placed model
    """
    if not any(missing.values()):
        return {}
    boards = list[Leaderboard | None]()
    for wins in (False, True):
        judged = found.judged
        for model, lacking in missing.items():
            judged = count_for_one(judged, lacking, model, wins=wins)
        every = judged.concatenate(found.human)
        board: Leaderboard | None = experiment.rate(every)
        if found.by_judge and board:
            flags = {model: board.row(model).flag for model in found.placed}
            fit = joint_fit.fit(
                found.human,
                again,
                judged,
                found.placed,
                found.kin.models,
                kin_sd=experiment.arena.kin_sd,
            )
            board = None
            if not fit.refusal:
                board = joint_fit.leaderboard(
                    fit,
                    every.n_battles(),
                    level=level,
                    baseline=baseline,
                    unrated={
                        every.models.index(m): flag for m, flag in flags.items() if flag
                    },
                )
        boards.append(board)
    results = {}
    for model, lacking in missing.items():
        if not lacking:
            continue
        low, high = (board.row(model) if board else None for board in boards)
        n_lacks = sum(model in one.lacking for one in lacking)
        n_answered = found.n_judged(model) - sum(one.is_judged for one in lacking)
        results[model] = MissingResults(
            n_battles=n_answered + len(lacking),
            n_lacks=n_lacks,
            n_failed=sum(model in one.failed for one in lacking),
            n_unjudged=len(lacking) - n_lacks,
            low=low,
            high=high,
        )
    return results


def _reasons(
    found: Placement, model: str, flag: str | None, *, is_kin_allowed: bool
) -> list[Reason]:
    """Return what stands against the placement of a model, besides the checks of the judge.

    flag  why the judge's verdicts give it no rating
    """
    if found.refusal:
        return [found.refusal]
    if flag:
        return [Reason(name="unrated", about={"flag": flag})]
    of_style = found.style[model].reasons()
    if model in found.missing:
        of_missing = found.missing[model].reasons(found.board.row(model))
        of_style = [*of_missing, *of_style]
    if found.by_judge and found.fit:
        return [*found.fit.cautions(model), *of_style]
    reasons, kin = [Reason(name="raw"), *of_style], found.kin
    if kin.is_unequal and model in kin.models and not is_kin_allowed:
        about = {"family": kin.family}
        reasons.append(Reason(name="kin", about=about, judges=True))
    return reasons


def _conclusions(
    found: Placement, checks: Sequence[Check], kind: str
) -> dict[str, Conclusion]:
    """Conclude what may be said of each placed model.

    checks, kind  of the judge
    """
    judged = found.judged
    concluded = {}
    for model in found.placed:
        own = judged.select(judged.model_a == judged.models.index(model))
        scope = Scope(
            judge=found.judge_model,
            kind=kind,
            n_prompts=own.n_prompts(),
            source=found.arena,
        )
        reasons = [*found.reasons[model], *of_checks(checks, model)]
        said = conclude(found.board.row(model), reasons, scope)
        concluded[model] = replace(said, adjustment=_adjustment(found, model))
    return concluded


def _adjustment(found: Placement, model: str) -> Adjustment | None:
    """Return what the rating of a placed model holds equal, with its rating without the control."""
    if not found.adjusted_for or found.uncontrolled is None:
        return None
    row = found.uncontrolled.row(model)
    raw = Effect(value=row.rating, low=row.ci_low, high=row.ci_high)
    return Adjustment(features=found.adjusted_for, raw=raw)


def report(
    experiment: Arena, run: PlacementRun, found: Placement, context: Context
) -> Report:
    """Write the artifacts of a placement, and report it."""
    run_dir = context.run_dir
    chosen, dimension = experiment.arena, run.rubric.dimension
    comparisons, judgments = {dimension: run.comparisons}, {dimension: run.judgments}
    quality = judge_quality(run.judgments, dimension=dimension)
    ((name, method),) = experiment.rating.items()
    by_humans = replace(found.human_board, label=f"{found.votes.title()} votes alone")
    boards = {
        "calibrated" if found.by_judge else name: found.board,
        "by_judge": found.by_judge,
        "soft": found.soft,
        "truth": found.truth,
        "by_humans": by_humans,
    }
    rated = Standings(
        models=found.placed,
        battles={dimension: found.judged},
        companions={key: {dimension: b} for key, b in boards.items() if b},
        judges_agreement=[found.agreement] if found.agreement else [],
        diagnoses=audits(experiment.judge, [run.rubric], context.store),
    )
    if chosen.union:
        by_arena = {q: q.partition(":")[0] for q in found.human.questions}
        votes = {dimension: Fitted.of(found.human)}
        strata = standings.of_strata(votes, by_arena, method.rate)
        rated = standings.with_diagnoses(rated, strata)
    rated = with_checks(rated, [quality])
    kind = scope_of(experiment.judge).kind
    concluded = _conclusions(found, rated.checks[dimension], kind)
    said = {model: words.as_row(one, found) for model, one in concluded.items()}
    every_board = artifacts.ratings_json(rated) | {"conclusions": said}
    of_dimension = every_board["dimensions"][dimension]
    settings = {"method": name, **vars(method)}
    ratings = elo_ratings(found, of_dimension, settings, said)
    written = [
        *artifacts.write_judging(
            run_dir,
            responses=run.responses,
            comparisons=comparisons,
            judgments=judgments,
        ),
        artifacts.write_battles(
            run_dir,
            [
                found.judged.concatenate(found.human)
                if chosen.inline_human
                else found.judged
            ],
            chosen.battles_format,
        ),
        write_json(run_dir / "elo_ratings.json", ratings),
        write_json(run_dir / "ratings.json", every_board),
        *artifacts.write_bootstraps(
            run_dir, {dimension: found.by_judge or found.board}
        ),
    ]
    if chosen.simulated:
        path = run_dir / "arena.jsonl"
        written.append(write_jsonl(path, chosen.simulated.votes))
    facts = {**run.facts(), "judge_quality": [quality]}
    texts = (comparisons, judgments) if context.with_texts else ()
    first = concluded[found.placed[0]]
    why = words.because(found.refusal, first) if found.refusal else None
    shown = tournament_page.sections(
        rated,
        *texts,
        max_rows=len(found.board.models),
        noun="arenas",
        refusal=why,
    )
    headline = found.board.row(found.placed[0]).rating

    def figures() -> Sequence[Plot]:
        from elo_exp.figures import arena

        return arena.plots(found)

    return Report(
        headline=math.nan if headline is None else headline,
        headline_is=f"{found.placed[0]}/rating",
        text=arena_page.text(found, concluded, quality, rated.diagnoses),
        follow_up=next_audit(experiment.judge, experiment.rubric, context),
        facts=facts,
        artifacts=written,
        metrics=metrics(found, ratings, quality),
        tables={
            "judge": facts["judge_quality"],
            "verdicts": artifacts.verdict_rows(comparisons, judgments),
        },
        figures=figures,
        page=page.maker(
            "arena",
            shown=arena_page.shown(found, concluded),
            made=arena_page.made,
            **shown,
        ),
    )


def elo_ratings(
    found: Placement,
    boards: Mapping[str, Any],
    settings: Mapping[str, Any],
    said: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the leaderboard, best first, with what it takes to rate the battles again.

    boards    leaderboards as in ratings.json, the placement's first
    settings  of the rating method
    said      the conclusion of each placed model, as words.arena.as_row has it
    """
    of_board = {name: board["ratings"] for name, board in boards.items()}
    samples = (found.by_judge or found.board).samples
    return {
        "arena": found.arena,
        "model": found.placed[0],
        "models": list(found.placed),
        "judge_model": found.judge_model,
        "n_judged_battles": len(found.judged),
        "n_human_battles": len(found.human),
        "n_bootstraps": 0 if samples is None else len(samples),
        "seed": settings.get("seed"),
        "rating_settings": settings,
        "ratings": [
            {
                **row,
                "source": found.source(row["model"]),
                **_status(said.get(row["model"])),
            }
            for row in next(iter(of_board.values()))
        ],
        "conclusions": said,
        "by_judge": of_board.get("by_judge", []),
        "soft": found.soft and {**found.soft.parameters, "ratings": of_board["soft"]},
        "by_humans": of_board["by_humans"],
        "mae": found.mae,
        "calibration": found.agreement
        and {
            **found.agreement,
            "temperature": found.temperature,
            **{name: getattr(found.fit, name) for name in _OF_FIT},
        },
    }


def _status(said: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return whether a placement may be published, and what stands against it; nothing of anchors."""
    if said is None:
        return {}
    reasons = [reason["words"] for reason in said["reasons"]]
    return {"status": STATUS[said["state"]], "reason": "; ".join(reasons) or None}


def metrics(
    placement: Placement, ratings: Mapping[str, Any], quality: Mapping[str, Any]
) -> dict[str, float | str]:
    """Return <model>/rating, /rank ..., judge/<dimension>/<rate>, human/agreement ... and arena_mean/error,
    the root mean square over placed models of their distance from a known truth.

    ratings  of `elo_ratings`
    """
    calibration = ratings["calibration"] or {}
    found: dict[str, Any] = {
        f"human/{name}": calibration.get(name) for name in _OF_HUMANS
    }
    found["human/mae"] = placement.mae
    boards = (placement.by_judge, placement.soft)
    others = dict(zip(_OTHER_SCALES, boards, strict=True))
    for row in ratings["ratings"]:
        model, truth = row["model"], placement.truth
        if model not in placement.placed:
            continue
        own = {name: row.get(name) for name in _METRICS}
        own |= {"n_judged": placement.n_judged(model)}
        for name, board in others.items():
            if board and model in board.models:
                own[name] = board.row(model).rating
        if truth and model in truth.models and row["rating"] is not None:
            own["error"] = row["rating"] - (truth.row(model).rating or math.nan)
        found |= {f"{model}/{name}": value for name, value in own.items()}
        said = ratings["conclusions"][model]
        found |= {f"conclusion/{model}/{name}": said[name] for name in _SAID}
    errors = [found.get(f"{model}/error") for model in placement.placed]
    if known_errors := [error for error in errors if error is not None]:
        size = math.hypot(*known_errors) / math.sqrt(len(known_errors))
        found["arena_mean/error"] = size
    for name in RATES:
        found[f"judge/{quality['dimension']}/{name}"] = quality[name]
    return {name: value for name, value in found.items() if value is not None}
