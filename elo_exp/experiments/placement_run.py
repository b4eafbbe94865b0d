"""A placement from the draw to the verdict: battles are drawn, answered and judged."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from elo_exp import pipeline
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.placement import Draw
from elo_exp.arena.rows import At
from elo_exp.arena.sources import Arena as HumanBattles
from elo_exp.arena.sources import Texts
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import Responses
from elo_exp.experiments.judged import preflight
from elo_exp.judges import PaidJudge
from elo_exp.pipeline import Plan
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Comparison, Judgment, Prompt, Response, UserError
from elo_exp.store.store import Store

if TYPE_CHECKING:
    from elo_exp.experiments.arena import Arena

logger = logging.getLogger(__name__)

_CHECKS = (
    2  # of what is left to pay: before anything is paid, and once answers have a length
)


@dataclass(frozen=True, kw_only=True)
class ArenaData:
    """The human side of a placement."""

    arena: HumanBattles
    anchors: list[str]
    human: Battles  # between anchors
    candidates: list[Draw]


def load_arena(experiment: Arena) -> ArenaData:
    """Read the human battles, find the anchors and shuffle the battles that may be entered."""
    chosen = experiment.arena
    arena = arenas.read(chosen)
    placement.check_new(experiment.entrant, arena)
    anchors = placement.anchors(arena, chosen.min_battles)
    sides = 1 if chosen.opponents == "random" else 2
    return ArenaData(
        arena=arena,
        anchors=anchors,
        human=arena.battles.among(anchors),
        candidates=placement.draws(arena, anchors, seed=chosen.seed, sides=sides),
    )


def rate(experiment: Arena, dimension: str, battles: Battles) -> Leaderboard:
    """Rate battles by the one method that was chosen."""
    (method,) = experiment.rating.values()
    return method.rate({dimension: battles})[dimension]


class PlacementRun:
    """The judged side: draws become prompts, answers, comparisons and judgments."""

    def __init__(self, experiment: Arena, store: Store, data: ArenaData) -> None:
        chosen, placed = experiment.arena, list(experiment.entrant)
        (self.rubric,) = experiment.rubric.values()
        self.dimension = self.rubric.dimension
        self.experiment, self.store, self.data = experiment, store, data
        wanted = len(placed) * chosen.n_battles
        limit = experiment.judging.limit_pairs or wanted + chosen.n_calibration
        self.n_battles = min(chosen.n_battles, limit // len(placed))  # of each model
        self.n_calibration = min(chosen.n_calibration, max(0, limit - wanted))
        self.drawn: dict[str, list[Draw]] = {name: [] for name in placed}
        self.unusable: dict[At, str] = {}  # why drawn battles cannot be judged
        self.responses: dict[str, dict[str, Response]] = {name: {} for name in placed}
        self.comparisons: list[Comparison] = []
        self.judgments: list[Judgment] = []
        self._texts: dict[At, Texts] = {}
        self._prompts: dict[str, Prompt] = {}
        self._calibrating: dict[tuple[str, ...], Comparison] = {}

    def run(self) -> None:
        """Draw battles, have them answered and judged.

        Random opponents are one round that all placed models enter. Adaptive ones take several:
        after the first, opponents stand near what the rounds before it say of each model.
        """
        chosen, checks = self.experiment.arena, _CHECKS
        is_random = chosen.opponents == "random"
        rounds = 1 if is_random else min(chosen.rounds, self.n_battles)
        starts = [self.n_battles * i // rounds for i in range(rounds + 1)]
        for start, end in pairwise(starts):
            drawn = {name: self._next(name, end - start) for name in self.drawn}
            again = next(iter(drawn.values()))
            if checks and self._may_pay(drawn, again, before_answers=is_random):
                self._ahead(self.n_battles - start).check()
                checks -= 1
            self._answer(drawn)
            self._judge(
                [*self._compare(drawn, self.responses), *self._calibrate(again)]
            )

    def random(self) -> list[Draw]:
        """The battles of the draw, which all placed models enter."""
        return self._usable(placement.first(self.data.candidates, self.n_battles))

    def prompts(self, draws: Sequence[Draw]) -> list[Prompt]:
        """Each question once. Raises UserError for one that is asked in two ways."""
        return list({draw.question_id: self._prompt(draw) for draw in draws}.values())

    def plan(self, *, at_least: bool = False) -> Plan:
        """What judging the battles of the draw would cost, without asking anybody.

        An answer that is yet to be made is taken to be as long as its model's others, see
        `pipeline.assume_responses`.
        """
        drawn = self.random()
        entered = dict.fromkeys(self.drawn, drawn)
        return self._plan(entered, drawn, at_least=at_least)

    def check(self) -> None:
        """Show the plan. Raises UserError for what would stop the run after it began to pay."""
        self._preflight(list(self.drawn), self.prompts(self.random()))
        pipeline.check_before_answers(self.plan(), self.plan(at_least=True), self.store)

    # The draw

    def _next(self, name: str, n: int) -> list[Draw]:
        """The next n battles of a model that have texts; record them as drawn."""
        candidates = [d for d in self.data.candidates if d.at not in self.unusable]
        own = [b for b in from_judgments(self.judgments) if b.model_a == name]
        if own:
            judged = Battles.from_rows(own).concatenate(self.data.human)
            board = rate(self.experiment, self.dimension, judged)
            found = placement.adaptive(candidates, n, self.drawn[name], board, name)
        else:
            found = placement.first(candidates, n, self.drawn[name])
        return self._usable(found)

    def _usable(self, draws: Sequence[Draw]) -> list[Draw]:
        """Those whose texts can be judged; their texts are read."""
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
            named = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
            logger.info(
                "of %d drawn battles some cannot be judged: %s", len(new), named
            )
        return [draw for draw in draws if draw.at in self._texts]

    def _prompt(self, draw: Draw) -> Prompt:
        text, question = self._texts[draw.at].prompt, draw.question_id
        source = self.experiment.arena.name
        new = Prompt(prompt_id=question, text=text, source=source, subject="")
        prompt = self._prompts.setdefault(question, new)
        if prompt.text != text:
            raise UserError(
                f"arena.columns.question_id: {question!r} stands for two different prompts. Name a "
                "column that tells them apart, or null."
            )
        return prompt

    def _ahead(self, n_battles: int) -> PlacementRun:
        """As many random battles as are left to be drawn, of which nothing is known yet."""
        taken = {draw.at for some in self.drawn.values() for draw in some}
        left = [draw for draw in self.data.candidates if draw.at not in taken]
        data = dataclasses.replace(self.data, candidates=left)
        ahead = PlacementRun(self.experiment, self.store, data)
        ahead.n_battles = n_battles
        ahead.n_calibration = self.n_calibration - len(self._calibrating)
        return ahead

    # What it costs

    def _may_pay(
        self,
        entered: Mapping[str, Sequence[Draw]],
        again: Sequence[Draw],
        *,
        before_answers: bool,
    ) -> bool:
        """Whether the judge is to be paid; `before_answers`: after an API was paid for answers."""
        experiment = self.experiment
        if experiment.judging.stored_only or not isinstance(
            experiment.judge, PaidJudge
        ):
            return False
        if before_answers:
            prompts = self.prompts(again)
            return pipeline.needs_paid_answers(prompts, experiment.entrant, self.store)
        return bool(self._plan(entered, again).new)

    def _plan(
        self,
        entered: Mapping[str, Sequence[Draw]],
        again: Sequence[Draw],
        *,
        at_least: bool = False,
    ) -> Plan:
        assumed: dict[str, Mapping[str, Response]] = {}
        for name, some in entered.items():
            assumed |= pipeline.assume_responses(
                self.prompts(some),
                {name: self.experiment.entrant[name]},
                self.store,
                allow_missing=self.experiment.allow_missing,
                at_least=at_least,
            )
        asked = [*self._compare(entered, assumed), *self._to_calibrate(again).values()]
        return pipeline.plan_pairs(
            {self.dimension: asked},
            [self.rubric],
            self.experiment.judge,
            self.store,
            repeats=self.experiment.judging.repeats,
            stored_only=self.experiment.judging.stored_only,
        )

    def _preflight(self, names: Sequence[str], prompts: Sequence[Prompt]) -> None:
        stored_only = self.experiment.judging.stored_only
        judge = None if stored_only else self.experiment.judge
        entrants = {name: self.experiment.entrant[name] for name in names}
        preflight(prompts, entrants, judge, self.store, stored_only=stored_only)

    # Answers and verdicts

    def _answer(self, entered: Mapping[str, Sequence[Draw]]) -> None:
        """Make the answers that the store has not.

        Models with the same prompts answer together, so that equal weights are loaded once.
        """
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, draws in entered.items():
            self.drawn[name] += draws
            groups.setdefault(tuple(d.question_id for d in draws), []).append(name)
        for names in groups.values():
            prompts = self.prompts(entered[names[0]])
            self._preflight(names, prompts)
            made = pipeline.generate(
                prompts,
                {name: self.experiment.entrant[name] for name in names},
                self.store,
                allow_missing=self.experiment.allow_missing,
            )
            for name in names:
                self.responses[name] |= made[name]

    def _compare(
        self, entered: Mapping[str, Sequence[Draw]], responses: Responses
    ) -> list[Comparison]:
        """Each answer of the placed models beside the one that is on record."""
        return [
            self.rubric.compare(
                self._prompt(draw),
                entrant_a=name,
                entrant_b=draw.opponent,
                response_a=responses[name][draw.question_id].response_text,
                response_b=self._recorded(draw),
            )
            for name, draws in entered.items()
            for draw in draws
            if draw.question_id in responses[name]
        ]

    def _recorded(self, draw: Draw) -> str:
        texts = self._texts[draw.at]
        return texts.response_a if draw.side == "a" else texts.response_b

    def _calibrate(self, draws: Sequence[Draw]) -> list[Comparison]:
        """Battles of these draws as the humans judged them, as long as some are wanted still."""
        found = self._to_calibrate(draws)
        self._calibrating |= found
        return list(found.values())

    def _to_calibrate(self, draws: Sequence[Draw]) -> dict[tuple[str, ...], Comparison]:
        found: dict[tuple[str, ...], Comparison] = {}
        for draw in draws:
            key = (draw.question_id, *sorted((draw.model_a, draw.model_b)))
            is_full = len(self._calibrating) + len(found) >= self.n_calibration
            if is_full or key in self._calibrating or key in found:
                continue
            texts = self._texts[draw.at]
            found[key] = self.rubric.compare(
                self._prompt(draw),
                entrant_a=draw.model_a,
                entrant_b=draw.model_b,
                response_a=texts.response_a,
                response_b=texts.response_b,
            )
        return found

    def _judge(self, comparisons: Sequence[Comparison]) -> None:
        judged = pipeline.judge_pairs(
            {self.dimension: comparisons},
            [self.rubric],
            self.experiment.judge,
            self.store,
            repeats=self.experiment.judging.repeats,
            stored_only=self.experiment.judging.stored_only,
            allow_missing=self.experiment.allow_missing,
        )
        self.comparisons += comparisons
        self.judgments += judged[self.dimension]
