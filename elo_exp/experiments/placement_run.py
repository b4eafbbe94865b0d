"""A placement from the draw to the verdicts: battles are drawn, answered and judged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from elo_exp import pipeline
from elo_exp.api.costs import money
from elo_exp.arena import placement, sources
from elo_exp.arena.judge_calibration import MIN_ANCHORS
from elo_exp.arena.placement import Draw
from elo_exp.arena.sources import At, Texts
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.pairing import Responses
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

Entered = Mapping[str, Sequence[Draw]]  # by placed model, the battles that it enters


class PlacementRun:
    """Draws become prompts, answers, comparisons and judgments.

    human       battles between anchors
    candidates  battles that may be entered, in the order in which they are drawn
    n_battles   of each placed model
    drawn       by placed model its battles so far, also those that cannot be judged
    unusable    why battles cannot be judged
    """

    def __init__(self, experiment: Arena, store: Store) -> None:
        """Read the human battles, find the anchors and shuffle the battles that may be entered."""
        chosen, names = experiment.arena, list(experiment.entrant)
        self.experiment, self.store = experiment, store
        (self.rubric,) = experiment.rubric.values()
        self.with_style = needs_style(experiment.rating)
        self.arena = sources.read(
            chosen,
            with_languages=chosen.max_per_language is not None,
            with_style=self.with_style,
        )
        for name in names:
            if name in self.arena.battles.models:
                raise UserError(
                    f"entrant: {name!r} is a model of {self.arena.name} already. Give the entrant "
                    "another name, or hold the model's human battles out with "
                    f"'arena.hold_out=[{name}]'."
                )
        n_least = MIN_ANCHORS if chosen.placement == "calibrated" else 2
        self.anchors = placement.anchors(
            self.arena, chosen.min_battles, n_least=n_least
        )
        self.human = self.arena.battles.among(self.anchors)
        self.is_random = chosen.opponents == "random"
        self.candidates = placement.draws(
            self.arena,
            self.anchors,
            seed=chosen.seed,
            sides=1 if self.is_random else 2,
            max_per_language=chosen.max_per_language,
        )
        n_wanted = len(names) * chosen.n_battles
        limit = experiment.judging.limit_pairs or n_wanted + chosen.n_calibration
        self.n_battles = min(chosen.n_battles, limit // len(names))
        self.n_calibration = min(chosen.n_calibration, max(0, limit - n_wanted))
        self.drawn: dict[str, list[Draw]] = {name: [] for name in names}
        self.responses: dict[str, dict[str, Response]] = {name: {} for name in names}
        self.unusable: dict[At, str] = {}
        self.comparisons: list[Comparison] = []
        self.judgments: list[Judgment] = []
        self._texts: dict[At, Texts] = {}
        self._prompts: dict[str, Prompt] = {}

    def run(self) -> None:
        """Draw battles, have them answered and judged.

        Random opponents are one round that all placed models enter. Adaptive ones take several:
        after the first, opponents stand near the rating so far.
        """
        experiment, store = self.experiment, self.store
        n_rounds = min(experiment.arena.rounds, self.n_battles)
        n_rounds = 1 if self.is_random else n_rounds
        starts = [self.n_battles * i // n_rounds for i in range(n_rounds + 1)]
        for start, end in pairwise(starts):
            drawn = {name: self._next(name, end - start) for name in self.drawn}
            entered = {name: self.usable(draws) for name, draws in drawn.items()}
            # Models on the same prompts answer together, so that equal weights are loaded once.
            groups = [list(drawn)] if self.is_random else [[name] for name in drawn]
            tasks = [
                (
                    self.prompts(entered[names[0]]),
                    {name: experiment.entrant[name] for name in names},
                )
                for names in groups
            ]
            stored_only = experiment.judging.stored_only
            judge = None if stored_only else experiment.judge
            for prompts, entrants in tasks:
                preflight(prompts, entrants, judge, store, stored_only=stored_only)
            self._check_budget(entered, self.n_battles - start)
            for prompts, entrants in tasks:
                made = pipeline.generate(
                    prompts, entrants, store, allow_missing=experiment.allow_missing
                )
                for name, responses in made.items():
                    self.responses[name] |= responses
            for name, draws in drawn.items():
                self.drawn[name] += draws
            comparisons = self._compare(entered, self.responses)
            dimension = self.rubric.dimension
            judged = experiment.judge_pairs({dimension: comparisons}, store)
            self.comparisons += comparisons
            self.judgments += judged[dimension]

    def random(self, n_battles: int) -> list[Draw]:
        """Draw so many battles, which all placed models enter, of those not drawn yet."""
        taken = [draw for draws in self.drawn.values() for draw in draws]
        return self.usable(placement.first(self.candidates, n_battles, taken))

    def usable(self, draws: Sequence[Draw]) -> list[Draw]:
        """Read the texts of battles, and leave out those that cannot be judged."""
        known = self._texts.keys() | self.unusable.keys()
        new = [draw.at for draw in draws if draw.at not in known]
        reasons: Counter[str] = Counter()
        for at, texts in sources.texts(self.experiment.arena, new).items():
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

    def prompts(self, draws: Sequence[Draw]) -> list[Prompt]:
        """Return each question once. Raises UserError for one with two texts."""
        return list({draw.question_id: self._prompt(draw) for draw in draws}.values())

    def plan_text(self) -> str:
        """Format the plan of random battles, with the share of the calibration and what it buys.

        No model is asked: see `pipeline.assume_responses`.
        """
        draws = self.random(self.n_battles)
        plan = self._plan(dict.fromkeys(self.drawn, draws))
        text, n = pipeline.plan_table(plan), len(self._to_recalibrate(draws))
        if not n:
            return text
        n_pairs = plan.rows[0].pairs
        cost = f" (about {money(plan.dollars * n / n_pairs)})" if plan.dollars else ""
        return (
            f"{text}\n  {n:,} of the {n_pairs:,} pairs are human battles that calibrate the judge"
            f"{cost}. Much of the interval's\n  width is the judge's taste for single models, "
            "which more battles do not narrow; votes on the placed model do."
        )

    def battles(self) -> list[Battle]:
        """Return the battles that were judged, with style where the rating needs it."""
        return from_judgments(
            self.judgments, self.comparisons if self.with_style else ()
        )

    def _next(self, name: str, n: int) -> list[Draw]:
        """Draw the next n battles of a model."""
        own = [battle for battle in self.battles() if battle.model_a == name]
        if not own:
            return placement.first(self.candidates, n, self.drawn[name])
        known = Battles.from_rows(own).concatenate(self.human)
        return placement.adaptive(self.candidates, n, self.drawn[name], known, name)

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

    def _check_budget(self, entered: Entered, n_left: int) -> None:
        """Hold what is left to be judged against the budget, before an API is paid for answers, or
        for the verdicts of a round that is not the last."""
        experiment = self.experiment
        is_free = experiment.judging.stored_only
        if is_free or not isinstance(experiment.judge, PaidJudge):
            return
        if self.is_random:
            prompts = self.prompts(next(iter(entered.values())))
            will_pay = pipeline.needs_paid_answers(
                prompts, experiment.entrant, self.store
            )
        else:
            will_pay = bool(self._plan(entered).new)
        if will_pay:
            left = dict.fromkeys(self.drawn, self.random(n_left))
            plan, least = self._plan(left), self._plan(left, at_least=True)
            pipeline.check_before_answers(plan, least, self.store)

    def _plan(self, entered: Entered, *, at_least: bool = False) -> Plan:
        experiment = self.experiment
        assumed: dict[str, Mapping[str, Response]] = {}
        for name, draws in entered.items():
            assumed |= pipeline.assume_responses(
                self.prompts(draws),
                {name: experiment.entrant[name]},
                self.store,
                allow_missing=experiment.allow_missing,
                at_least=at_least,
            )
        comparisons = {self.rubric.dimension: self._compare(entered, assumed)}
        return experiment.plan_pairs(comparisons, self.store)

    def _compare(self, entered: Entered, responses: Responses) -> list[Comparison]:
        """Pair each answer with the recorded one; then human battles that are judged again."""
        pairs = [
            (draw, name, draw.opponent, answer.response_text, texts[1 + draw.side])
            for name, draws in entered.items()
            for draw in draws
            if (answer := responses[name].get(draw.question_id))
            for texts in [self._texts[draw.at]]
        ]
        again = self._to_recalibrate(next(iter(entered.values())))
        pairs += [(draw, *draw.models, *self._texts[draw.at][1:]) for draw in again]
        return [
            self.rubric.compare(
                self._prompt(draw),
                entrant_a=a,
                entrant_b=b,
                response_a=response_a,
                response_b=response_b,
            )
            for draw, a, b, response_a, response_b in pairs
        ]

    def _to_recalibrate(self, draws: Sequence[Draw]) -> list[Draw]:
        """Choose human battles to be judged again, each once, until there are enough."""
        known = {
            (one.prompt_id, frozenset(one.entrants))
            for one in self.comparisons
            if one.entrant_a not in self.drawn
        }
        found = []
        for draw in draws:
            match = draw.question_id, frozenset(draw.models)
            if match not in known and len(known) < self.n_calibration:
                known.add(match)
                found.append(draw)
        return found
