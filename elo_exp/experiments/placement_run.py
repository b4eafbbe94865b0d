"""A placement from the draw to the verdicts: battles are drawn, answered and judged."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from elo_exp import pipeline
from elo_exp.api.costs import money
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.judge_calibration import MIN_ANCHORS
from elo_exp.arena.placement import Draw
from elo_exp.arena.rows import At
from elo_exp.arena.sources import Arena as HumanBattles
from elo_exp.arena.sources import Texts
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import Responses
from elo_exp.data.rubrics import Rubric
from elo_exp.experiments.judged import preflight
from elo_exp.judges import PaidJudge
from elo_exp.pipeline import Plan
from elo_exp.ratings import needs_style
from elo_exp.records import (
    Battle,
    Comparison,
    Judgment,
    Prompt,
    Response,
    UserError,
)
from elo_exp.store.store import Store

if TYPE_CHECKING:
    from elo_exp.experiments.arena import Arena

logger = logging.getLogger(__name__)

_CHECKS = 2  # of the budget: before anything is paid, and once answers have a length

Entered = Mapping[str, Sequence[Draw]]  # by placed model, the battles that it enters
MatchKey = tuple[str, str, str]  # question and two models


@dataclass(kw_only=True)
class PlacementRun:
    """Draws become prompts, answers, comparisons and judgments.

    human         battles between anchors
    candidates    battles that may be entered, in the order in which they are drawn
    n_battles     of each placed model
    recalibrated  human battles that the judge judges again
    """

    experiment: Arena
    store: Store
    arena: HumanBattles
    anchors: list[str]
    human: Battles
    candidates: list[Draw]
    n_battles: int
    n_calibration: int
    drawn: dict[str, list[Draw]]
    responses: dict[str, dict[str, Response]]
    unusable: dict[At, str] = field(default_factory=dict)  # why they cannot be judged
    recalibrated: dict[MatchKey, Comparison] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    _texts: dict[At, Texts] = field(default_factory=dict)
    _prompts: dict[str, Prompt] = field(default_factory=dict)

    @property
    def rubric(self) -> Rubric:
        (rubric,) = self.experiment.rubric.values()
        return rubric

    def run(self) -> None:
        """Draw battles, have them answered and judged.

        Random opponents are one round that all placed models enter. Adaptive ones take several:
        after the first, opponents stand near the rating so far.
        """
        chosen, n_checks = self.experiment.arena, 0
        is_random = chosen.opponents == "random"
        n_rounds = 1 if is_random else min(chosen.rounds, self.n_battles)
        starts = [self.n_battles * i // n_rounds for i in range(n_rounds + 1)]
        for start, end in pairwise(starts):
            entered = {name: self._next(name, end - start) for name in self.drawn}
            if n_checks < _CHECKS and self._will_pay(entered, is_random):
                self._rest(self.n_battles - start).check()
                n_checks += 1
            # Models on the same prompts answer together, so that equal weights are loaded once.
            groups = [list(entered)] if is_random else [[name] for name in entered]
            for names in groups:
                self._answer(names, entered[names[0]])
            for name, draws in entered.items():
                self.drawn[name] += draws
            self._judge(entered)

    def random(self) -> list[Draw]:
        """Draw the battles that all placed models enter."""
        return self._usable(placement.first(self.candidates, self.n_battles))

    def prompts(self, draws: Sequence[Draw]) -> list[Prompt]:
        """Return each question once. Raises UserError for one with two texts."""
        return list({draw.question_id: self._prompt(draw) for draw in draws}.values())

    def plan(self, *, at_least: bool = False) -> Plan:
        """Return what judging random battles would cost, without asking a model.

        Missing answers are assumed to be as long as their model's others, see
        `pipeline.assume_responses`.
        """
        return self._plan(dict.fromkeys(self.drawn, self.random()), at_least=at_least)

    def plan_text(self) -> str:
        """Format the plan, with the share of the calibration and what it buys."""
        plan = self.plan()
        n, n_pairs = len(self._to_recalibrate(self.random())), plan.rows[0].pairs
        text = pipeline.plan_table(plan)
        if not n:
            return text
        cost = f" (about {money(plan.dollars * n / n_pairs)})" if plan.dollars else ""
        return (
            f"{text}\n  {n:,} of the {n_pairs:,} pairs are human battles that calibrate the judge"
            f"{cost}. Much of the interval's\n  width is the judge's taste for single models, "
            "which more battles do not narrow; votes on the placed model do."
        )

    def check(self) -> None:
        """Raise UserError for what would stop the run after it began to pay."""
        self._preflight(list(self.drawn), self.prompts(self.random()))
        pipeline.check_before_answers(self.plan(), self.plan(at_least=True), self.store)

    def battles(self) -> list[Battle]:
        """Return the battles that were judged, with style where the rating needs it."""
        with_style = needs_style(self.experiment.rating)
        return from_judgments(self.judgments, self.comparisons if with_style else ())

    # The draw

    def _next(self, name: str, n: int) -> list[Draw]:
        """Draw the next n battles of a model."""
        candidates = [draw for draw in self.candidates if draw.at not in self.unusable]
        own = [battle for battle in self.battles() if battle.model_a == name]
        if not own:
            return self._usable(placement.first(candidates, n, self.drawn[name]))
        board = self.experiment.rate(Battles.from_rows(own).concatenate(self.human))
        return self._usable(
            placement.adaptive(candidates, n, self.drawn[name], board, name)
        )

    def _usable(self, draws: Sequence[Draw]) -> list[Draw]:
        """Read the texts of battles, and leave out those that cannot be judged."""
        known = self._texts.keys() | self.unusable.keys()
        new = [draw.at for draw in draws if draw.at not in known]
        reasons: Counter[str] = Counter()
        for at, texts in arenas.texts(self.experiment.arena, new).items():
            if isinstance(texts, Texts):
                self._texts[at] = texts
            else:
                self.unusable[at] = texts
                reasons[texts] += 1
        if reasons:
            counts = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
            logger.info(
                "of %d drawn battles some cannot be judged: %s", len(new), counts
            )
        return [draw for draw in draws if draw.at in self._texts]

    def _prompt(self, draw: Draw) -> Prompt:
        text, source = self._texts[draw.at].prompt, self.arena.name
        new = Prompt(prompt_id=draw.question_id, text=text, source=source, subject="")
        prompt = self._prompts.setdefault(draw.question_id, new)
        if prompt.text != text:
            raise UserError(
                f"arena.columns.question_id: {draw.question_id!r} names two different prompts. "
                "Choose a column that tells them apart, or null."
            )
        return prompt

    def _rest(self, n_battles: int) -> PlacementRun:
        """Return a run of as many random battles as are left to be drawn."""
        taken = {draw.at for draws in self.drawn.values() for draw in draws}
        return dataclasses.replace(
            self,
            candidates=[draw for draw in self.candidates if draw.at not in taken],
            n_battles=n_battles,
            n_calibration=self.n_calibration - len(self.recalibrated),
            unusable={},
            recalibrated={},
            _texts={},
        )

    # What it costs

    def _will_pay(self, entered: Entered, is_random: bool) -> bool:
        """Whether the judge is paid; of random battles, after an API was paid for answers."""
        experiment = self.experiment
        if experiment.judging.stored_only or not isinstance(
            experiment.judge, PaidJudge
        ):
            return False
        if not is_random:
            return bool(self._plan(entered).new)
        prompts = self.prompts(next(iter(entered.values())))
        return pipeline.needs_paid_answers(prompts, experiment.entrant, self.store)

    def _plan(self, entered: Entered, *, at_least: bool = False) -> Plan:
        assumed: dict[str, Mapping[str, Response]] = {}
        for name, draws in entered.items():
            assumed |= pipeline.assume_responses(
                self.prompts(draws),
                {name: self.experiment.entrant[name]},
                self.store,
                allow_missing=self.experiment.allow_missing,
                at_least=at_least,
            )
        judging = self.experiment.judging
        return pipeline.plan_pairs(
            {self.rubric.dimension: self._compare(entered, assumed)},
            [self.rubric],
            self.experiment.judge,
            self.store,
            both_orders=judging.both_orders,
            repeats=judging.repeats,
            stored_only=judging.stored_only,
        )

    def _preflight(self, names: Sequence[str], prompts: Sequence[Prompt]) -> None:
        stored_only = self.experiment.judging.stored_only
        judge = None if stored_only else self.experiment.judge
        entrants = {name: self.experiment.entrant[name] for name in names}
        preflight(prompts, entrants, judge, self.store, stored_only=stored_only)

    # Answers and verdicts

    def _answer(self, names: Sequence[str], draws: Sequence[Draw]) -> None:
        prompts = self.prompts(draws)
        self._preflight(names, prompts)
        made = pipeline.generate(
            prompts,
            {name: self.experiment.entrant[name] for name in names},
            self.store,
            allow_missing=self.experiment.allow_missing,
        )
        for name in names:
            self.responses[name] |= made[name]

    def _compare(self, entered: Entered, responses: Responses) -> list[Comparison]:
        """Pair each answer with the recorded one; then human battles that are judged again."""
        found = []
        for name, draws in entered.items():
            for draw in draws:
                if draw.question_id in responses[name]:
                    texts = self._texts[draw.at]
                    comparison = self.rubric.compare(
                        self._prompt(draw),
                        entrant_a=name,
                        entrant_b=draw.opponent,
                        response_a=responses[name][draw.question_id].response_text,
                        response_b=texts.response_a
                        if draw.side == "a"
                        else texts.response_b,
                    )
                    found.append(comparison)
        return [*found, *self._to_recalibrate(next(iter(entered.values()))).values()]

    def _to_recalibrate(self, draws: Sequence[Draw]) -> dict[MatchKey, Comparison]:
        found: dict[MatchKey, Comparison] = {}
        for draw in draws:
            first, second = sorted((draw.model_a, draw.model_b))
            key = (draw.question_id, first, second)
            is_full = len(self.recalibrated) + len(found) >= self.n_calibration
            if not is_full and key not in self.recalibrated and key not in found:
                texts = self._texts[draw.at]
                found[key] = self.rubric.compare(
                    self._prompt(draw),
                    entrant_a=draw.model_a,
                    entrant_b=draw.model_b,
                    response_a=texts.response_a,
                    response_b=texts.response_b,
                )
        return found

    def _judge(self, entered: Entered) -> None:
        comparisons = self._compare(entered, self.responses)
        self.recalibrated |= self._to_recalibrate(next(iter(entered.values())))
        judging = self.experiment.judging
        judged = pipeline.judge_pairs(
            {self.rubric.dimension: comparisons},
            [self.rubric],
            self.experiment.judge,
            self.store,
            both_orders=judging.both_orders,
            repeats=judging.repeats,
            stored_only=judging.stored_only,
            allow_missing=self.experiment.allow_missing,
        )
        self.comparisons += comparisons
        self.judgments += judged[self.rubric.dimension]


def start(experiment: Arena, store: Store) -> PlacementRun:
    """Read the human battles, find the anchors and shuffle the battles that may be entered."""
    chosen, n_placed = experiment.arena, len(experiment.entrant)
    cap = chosen.max_per_language
    arena = arenas.read(
        chosen,
        with_languages=cap is not None,
        with_style=needs_style(experiment.rating),
    )
    placement.check_new(experiment.entrant, arena)
    n_least = MIN_ANCHORS if chosen.placement == "calibrated" else 2
    anchors = placement.anchors(arena, chosen.min_battles, n_least=n_least)
    sides = 1 if chosen.opponents == "random" else 2
    n_wanted = n_placed * chosen.n_battles
    limit = experiment.judging.limit_pairs or n_wanted + chosen.n_calibration
    return PlacementRun(
        experiment=experiment,
        store=store,
        arena=arena,
        anchors=anchors,
        human=arena.battles.among(anchors),
        candidates=placement.draws(
            arena, anchors, seed=chosen.seed, sides=sides, max_per_language=cap
        ),
        n_battles=min(chosen.n_battles, limit // n_placed),
        n_calibration=min(chosen.n_calibration, max(0, limit - n_wanted)),
        drawn={name: [] for name in experiment.entrant},
        responses={name: {} for name in experiment.entrant},
    )
