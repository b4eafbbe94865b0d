"""The stages of a placement: sampling battles, generating answers and judging them."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis.families import JudgeFamily, find_judge_family
from elo_exp.analysis.families import list_family_hints as names_of
from elo_exp.arena import placement, sources
from elo_exp.arena.joint_fit import MIN_ANCHORS_TO_CALIBRATE
from elo_exp.arena.placement import DrawnBattle
from elo_exp.arena.sources import ArenaSettings
from elo_exp.data import identical_answers
from elo_exp.data.battle_concatenation import concatenate_battles
from elo_exp.data.battles import Battles, battles_from_judgments
from elo_exp.data.identical_answers import EqualAnswers
from elo_exp.data.pairing import Responses, is_empty
from elo_exp.data.rubrics import Rubric
from elo_exp.entrants import Entrant
from elo_exp.errors import EvidenceError, SettingError
from elo_exp.experiments import Context
from elo_exp.experiments.answer_files import warn_of_look_alikes
from elo_exp.experiments.battle_texts import BattleTexts
from elo_exp.experiments.entrant_answers import EntrantAnswers, preflight
from elo_exp.experiments.stored_audits import load_stored_audits
from elo_exp.judges import ApiJudge, Judge
from elo_exp.pipeline import JudgingSettings, Plan
from elo_exp.records import (
    Battle,
    Comparison,
    Judgment,
    MissingBattle,
    Prompt,
    Response,
    Slot,
    make_fingerprint,
)
from elo_exp.report.sentences.check_sentences import equal_answers as say_equal_answers
from elo_exp.report.sentences.check_sentences import refuse_equal_answers
from elo_exp.store.answer_store import Store

logger = logging.getLogger(__name__)

_DEFAULT_ASKING, _NO_FAMILIES = JudgingSettings(), dict[str, str]()
DrawsByModel = Mapping[
    str, Sequence[DrawnBattle]
]  # by placed model, the battles that it enters


class PlacementRun:
    """A run that samples battles, has them answered and judged, and keeps the results.

    kin         anchors and placed models of the judge's family
    human       battles between anchors
    candidates  battles that may be entered, in the order of sampling
    n_battles   battles of each placed model
    drawn       by placed model, its sampled battles so far, also those that cannot be judged
    """

    def __init__(
        self,
        settings: ArenaSettings,
        store: Store,
        *,
        entrants: Mapping[str, Entrant],
        judge: Judge,
        rubric: Rubric,
        asking: JudgingSettings = _DEFAULT_ASKING,
        limit_pairs: int | None = None,
        with_style: bool = False,
        families: Mapping[str, str] = _NO_FAMILIES,
        excludes_kin: bool = False,
        allows_equal: bool = False,
    ) -> None:
        """Read the human battles, find the anchors and shuffle the battles that may be entered.

        entrants      the models to place, by name
        limit_pairs   maximum number of judged pairs over all models; None: no limit
        with_style    whether the rating needs the style of answers
        families      model families by parts of model names
        excludes_kin  whether pairs with exactly one model of the judge's family are left out
        allows_equal  whether a paid judge compares models that gave the same answers
        """
        names = list(entrants)
        self.settings, self.store, self.entrants = settings, store, entrants
        self.judge, self.rubric, self.asking = judge, rubric, asking
        self.with_style, self.excludes_kin = with_style, excludes_kin
        self.allows_equal = allows_equal
        self.arena = sources.read_arena(
            settings,
            with_languages=settings.max_per_language is not None,
            with_style=self.with_style,
        )
        warn_of_look_alikes([*names, *self.arena.battles.models], "models")
        _refuse_known_names(names, self.arena)
        n_least = MIN_ANCHORS_TO_CALIBRATE if settings.placement == "calibrated" else 2
        self.anchors = placement.find_anchors(
            self.arena, settings.min_battles, n_least=n_least
        )
        self.human = self.arena.battles.select_between(self.anchors)
        names_by_model = {name: [name] for name in self.anchors}
        names_by_model |= {
            name: names_of(entrant) for name, entrant in entrants.items()
        }
        self.kin = find_judge_family(families, judge.model, names_by_model)
        self.is_random = settings.opponents == "random"
        self.candidates = placement.draw_battles(
            self.arena,
            self.anchors,
            seed=settings.seed,
            sides=1 if self.is_random else 2,
            max_per_language=settings.max_per_language,
        )
        if excludes_kin and self.kin.is_unequal:
            self.candidates = _select_one_side(
                self.candidates, self.anchors, self.kin, names, n_least
            )
        n_wanted = len(names) * settings.n_battles
        limit = limit_pairs or n_wanted + settings.n_calibration
        self.n_battles = min(settings.n_battles, limit // len(names))
        self.n_calibration = min(settings.n_calibration, max(0, limit - n_wanted))
        self.drawn = {name: list[DrawnBattle]() for name in names}
        self.responses = {name: dict[Slot, Response]() for name in names}
        self.comparisons, self.judgments = list[Comparison](), list[Judgment]()
        self.texts = BattleTexts(settings, self.arena.name)

    def run(self) -> None:
        """Sample battles, have them answered and judged.

        With random opponents there is one round for all placed models. Adaptive opponents take several rounds: after
        the first, opponents are near the rating so far.
        """
        store, stored_only = self.store, self.asking.stored_only
        judge = None if stored_only else self.judge
        n_rounds = 1 if self.is_random else self.settings.rounds
        load_stored_audits(self.judge, [self.rubric], store)  # before anything is paid
        starts = [self.n_battles * i // n_rounds for i in range(n_rounds + 1)]
        for start, end in pairwise(starts):
            draws_by_model = {
                name: self._draw_next(name, end - start) for name in self.drawn
            }
            entered = {
                name: self.texts.select_usable(draws)
                for name, draws in draws_by_model.items()
            }
            tasks = self.tasks(entered)
            for task in tasks:
                preflight(*task, judge, store, stored_only=stored_only)
            # No answers are paid for if the budget does not cover their verdicts, and no verdicts of
            # an early round if it does not cover the last one
            if isinstance(judge, ApiJudge) and (
                any(pipeline.needs_paid_answers(*task, store) for task in tasks)
                if self.is_random
                else self.plan(entered).new
            ):
                remaining_draws = self.random(self.n_battles - start)
                plan, least_plan = (
                    self.plan(remaining_draws),
                    self.plan(remaining_draws, at_least=True),
                )
                pipeline.check_before_answers(plan, least_plan, store)
            for task in tasks:
                new_responses = pipeline.generate(
                    *task,
                    store,
                    allow_missing=self.asking.allow_missing,
                    canary=self.asking.canary,
                )
                for name, responses in new_responses.items():
                    self.responses[name] |= responses
            for name, draws in draws_by_model.items():
                self.drawn[name] += draws
            comparisons = self._compare(entered, self.responses)
            self._log_equal_answers(comparisons, is_paid=isinstance(judge, ApiJudge))
            asking = replace(self.asking, is_part=True)
            judgments = pipeline.judge_pairs(
                comparisons, [self.rubric], self.judge, store, asking
            )
            self.comparisons += comparisons[self.rubric.dimension]
            self.judgments += judgments[self.rubric.dimension]

    def _log_equal_answers(
        self, comparisons: Mapping[str, Sequence[Comparison]], *, is_paid: bool
    ) -> None:
        """Log models with the same answers. Raises EvidenceError before a judge is paid to compare models that always
        gave the same answers."""
        pairs = identical_answers.count_equal_in_responses(self.responses)
        for pair in pairs if is_paid and not self.allows_equal else ():
            queries = comparisons, [self.rubric], self.judge, self.store, self.asking
            if pair.is_all and pipeline.count_new_queries(*queries):
                raise EvidenceError(*refuse_equal_answers(pair))
        for line in say_equal_answers(pairs):
            logger.warning("warning: %s", line)

    def known_equal(self, entered: DrawsByModel) -> list[EqualAnswers]:
        """Return the models that gave the same answers, among known answers."""
        responses: dict[str, Mapping[Slot, Response]] = {}
        for task in self.tasks(entered):
            responses |= pipeline.find_known_responses(*task, self.store)
        return identical_answers.count_equal_in_responses(responses)

    def random(self, n_battles: int) -> DrawsByModel:
        """Sample the next n_battles battles, which all placed models enter."""
        previous = [draw for draws in self.drawn.values() for draw in draws]
        draws = self.texts.select_usable(
            placement.take_first(self.candidates, n_battles, previous)
        )
        return dict.fromkeys(self.drawn, draws)

    def battles(self) -> list[Battle]:
        """Return the judged battles, with style if the rating needs it."""
        return battles_from_judgments(
            self.judgments, self.comparisons if self.with_style else ()
        )

    def _draw_next(self, name: str, n: int) -> list[DrawnBattle]:
        """Draw the next n battles of a model."""
        model_battles = [battle for battle in self.battles() if battle.model_a == name]
        if not model_battles:
            return placement.take_first(self.candidates, n, self.drawn[name])
        battles_so_far = concatenate_battles(
            Battles.from_rows(model_battles), self.human
        )
        return placement.draw_near_rating(
            self.candidates, n, self.drawn[name], battles_so_far, name
        )

    def tasks(
        self, entered: DrawsByModel
    ) -> ItemsView[tuple[Prompt, ...], dict[str, Entrant]]:
        """Group models by their prompts; a group answers together, so that equal weights are loaded once."""
        entrants_by_prompts = defaultdict[tuple[Prompt, ...], dict[str, Entrant]](dict)
        for name, draws in entered.items():
            prompts = {draw.question_id: self.texts.make_prompt(draw) for draw in draws}
            entrants_by_prompts[*prompts.values()][name] = self.entrants[name]
        return entrants_by_prompts.items()

    def plan(self, entered: DrawsByModel, *, at_least: bool = False) -> Plan:
        """Plan the judge calls and their cost without calling a model; see `pipeline.assume_responses`."""
        allow_missing = self.asking.allow_missing
        assumed_responses: dict[str, Mapping[Slot, Response]] = {}
        for task in self.tasks(entered):
            assumed_responses |= pipeline.assume_responses(
                *task, self.store, allow_missing=allow_missing, at_least=at_least
            )
        return pipeline.plan_judging(
            self._compare(entered, assumed_responses),
            [self.rubric],
            self.judge,
            self.store,
            self.asking,
        )

    def _compare(
        self, entered: DrawsByModel, responses: Responses
    ) -> dict[str, list[Comparison]]:
        """Pair each answer with the recorded answer; then add human battles that the judge repeats."""
        pairs = [
            (draw, name, draw.opponent, answer.response_text, texts[1 + draw.side])
            for name, draws in entered.items()
            for draw in draws
            if (answer := responses[name].get((draw.question_id, 0)))
            for texts in [self.texts.get(draw)]
        ]
        pairs += [
            (draw, *draw.models, *self.texts.get(draw)[1:])
            for draw in self.to_recalibrate(entered)
        ]
        comparisons = [
            self.rubric.compare(
                self.texts.make_prompt(draw),
                entrant_a=a,
                entrant_b=b,
                response_a=response_a,
                response_b=response_b,
            )
            for draw, a, b, response_a, response_b in pairs
        ]
        return {self.rubric.dimension: comparisons}

    def to_recalibrate(self, entered: DrawsByModel) -> list[DrawnBattle]:
        """Choose human battles that the judge repeats, each once, up to the wanted number."""
        known_matches = {
            (comparison.prompt_id, frozenset(comparison.entrants))
            for comparison in self.comparisons
            if comparison.entrant_a not in self.drawn
        }
        draws = []
        for draw in next(iter(entered.values())):
            match = draw.question_id, frozenset(draw.models)
            if (
                self.excludes_kin
                and len({m in self.kin.models for m in draw.models}) > 1
            ):
                continue
            if match not in known_matches and len(known_matches) < self.n_calibration:
                known_matches.add(match)
                draws.append(draw)
        return draws


def check_placement(run: PlacementRun, entered: DrawsByModel, context: Context) -> None:
    """Raise UserError for models that are missing, answers that files lack, and what would stop the first paid call."""
    store, stored_only = run.store, run.asking.stored_only
    judge = None if stored_only else run.judge
    with context.needs.collect():
        load_stored_audits(run.judge, [run.rubric], store)
    for prompts, answers in _list_answers(run, entered):
        answers.refuse_absent(prompts, store)
        preflight(
            prompts,
            answers.entrants,
            judge,
            store,
            stored_only=stored_only,
            needs=context.needs,
        )


def plan_placed_answers(
    run: PlacementRun, entered: DrawsByModel
) -> list[pipeline.AnswerPlan]:
    """Plan the answers that models have still to make, and what they cost."""
    return [
        plan
        for prompts, answers in _list_answers(run, entered)
        for plan in answers.make_plans(prompts, run.store)
    ]


def _list_answers(
    run: PlacementRun, entered: DrawsByModel
) -> Iterator[tuple[Sequence[Prompt], EntrantAnswers]]:
    """Yield prompts, and the models that answer them."""
    for prompts, entrants in run.tasks(entered):
        yield (
            prompts,
            EntrantAnswers(
                entrants=entrants,
                allow_missing=run.asking.allow_missing,
                canary=run.asking.canary,
            ),
        )


def _refuse_known_names(names: Sequence[str], arena: sources.Arena) -> None:
    """Raise SettingError for an entrant with the name of a model of the arena."""
    for name in names:
        if name in arena.battles.models:
            raise SettingError(
                f"Entrant {name} has the name of a model in {arena.name}. Rename the entrant, or leave out the model's "
                f"human battles:",
                f"  'arena.hold_out=[{name}]'",
            )


def _select_one_side(
    candidates: Sequence[DrawnBattle],
    anchors: Sequence[str],
    kin: JudgeFamily,
    names: Sequence[str],
    n_least: int,
) -> list[DrawnBattle]:
    """Return the battles with opponents on the same side as the placed models: in the judge's family or outside it.

    Raises SettingError if placed models are on both sides, and for fewer than n_least such anchors.
    """
    kin_names, family = {*kin.models}, kin.family
    placed_kin = [name for name in names if name in kin_names]
    is_kin = bool(placed_kin)
    if is_kin and len(placed_kin) < len(names):
        (outsider, *_) = (name for name in names if name not in kin_names)
        raise SettingError(
            f"{placed_kin[0]} is of the judge's family {family}, and {outsider} is not.",
            "  With judging.self_judging=exclude their opponents differ, so place them in separate runs.",
        )
    side = [name for name in anchors if (name in kin_names) == is_kin]
    if len(side) < n_least:
        negation = "" if is_kin else "not "
        raise SettingError(
            f"judging.self_judging=exclude leaves {len(side)} of {len(anchors)} anchors, those {negation}of the "
            f"judge's family {family}.",
            f"  A placement needs {n_least}. Use a judge of another family, or set:",
            "  judging.self_judging=warn",
        )
    return [draw for draw in candidates if draw.opponent in side]


def list_missing_battles(run: PlacementRun) -> dict[str, list[MissingBattle]]:
    """Return, by placed model, its battles without a usable answer or a valid verdict.

    A model that was asked and gave no answer has failed.
    """
    judged_pairs = {
        (judgment.prompt_id, frozenset((judgment.entrant_a, judgment.entrant_b)))
        for judgment in run.judgments
        if not judgment.invalid
    }
    missing_by_model: dict[str, list[MissingBattle]] = {name: [] for name in run.drawn}
    for name, draws in run.drawn.items():
        is_asked = not run.entrants[name].is_instant
        for draw in run.texts.select_usable(draws):
            answer = run.responses[name].get((draw.question_id, 0))
            lacks = answer is None or is_empty(answer)
            is_judged = (
                draw.question_id,
                frozenset((name, draw.opponent)),
            ) in judged_pairs
            if is_judged and not lacks:
                continue
            is_failed = is_asked if answer is None else bool(answer.finish_reason)
            missing_by_model[name].append(
                MissingBattle(
                    model_a=name,
                    model_b=draw.opponent,
                    question_id=draw.question_id,
                    dimension=run.rubric.dimension,
                    lacking=(name,) if lacks else (),
                    failed=(name,) if lacks and is_failed else (),
                    is_judged=is_judged,
                )
            )
    return missing_by_model


def collect_facts(run: PlacementRun) -> dict[str, Any]:
    """Return the facts about the arena and the sampled battles for the manifest."""
    arena = run.arena
    all_draws = [
        draw for draws in run.drawn.values() for draw in run.texts.select_usable(draws)
    ]
    votes = [
        [b.question_id, b.model_a, b.model_b, b.winner] for b in arena.battles.rows()
    ]
    draw_keys = [[d.question_id, d.opponent, "ab"[d.side]] for d in all_draws]
    return {
        "judge_model": run.judge.model,
        "entrants": list(run.drawn),
        "rubric_versions": {run.rubric.dimension: run.rubric.version},
        "selected_prompt_count": len({draw.question_id for draw in all_draws}),
        "arena": {
            "name": arena.name,
            "n_rows": arena.n_rows,
            "dropped": dict(arena.n_dropped_by_reason),
            "n_battles": len(arena.battles),
            "fingerprint": make_fingerprint(votes),
            "draw_fingerprint": make_fingerprint(draw_keys),
            "not_judged": dict(Counter(run.texts.unusable.values())),
        },
    }
