"""A placement from the draw to the verdicts: battles are drawn, answered and judged."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import ItemsView, Mapping, Sequence
from itertools import pairwise
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis.families import kin
from elo_exp.analysis.families import names as names_of
from elo_exp.arena import placement, sources
from elo_exp.arena.joint_fit import MIN_ANCHORS
from elo_exp.arena.placement import Draw
from elo_exp.arena.sources import ArenaSettings, At, Texts
from elo_exp.data import equal_answers
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.equal_answers import EqualAnswers
from elo_exp.data.pairing import Responses, is_empty
from elo_exp.data.rubrics import Rubric
from elo_exp.entrants import Entrant, ModelEntrant
from elo_exp.experiments.judged import audits, preflight, warn_of_look_alikes
from elo_exp.judges import Judge, PaidJudge
from elo_exp.pipeline import Asking, Plan
from elo_exp.records import (
    Battle,
    Comparison,
    Judgment,
    MissingBattle,
    Prompt,
    Response,
    Slot,
    UserError,
    fingerprint,
)
from elo_exp.report.words.judge import all_equal
from elo_exp.report.words.judge import equal_answers as say_equal_answers
from elo_exp.store.store import Store

logger = logging.getLogger(__name__)

_AS_IT_IS, _NONE = Asking(), dict[str, str]()
Entered = Mapping[str, Sequence[Draw]]  # by placed model, the battles that it enters


class PlacementRun:
    """Draws become prompts, answers, comparisons and judgments.

    kin         anchors and placed models of the judge's family
    human       battles between anchors
    candidates  battles that may be entered, in the order in which they are drawn
    n_battles   of each placed model
    drawn       by placed model its battles so far, also those that cannot be judged
    unusable    why battles cannot be judged
    """

    def __init__(
        self,
        chosen: ArenaSettings,
        store: Store,
        *,
        entrants: Mapping[str, Entrant],
        judge: Judge,
        rubric: Rubric,
        asking: Asking = _AS_IT_IS,
        limit_pairs: int | None = None,
        with_style: bool = False,
        families: Mapping[str, str] = _NONE,
        excludes_kin: bool = False,
        allows_equal: bool = False,
    ) -> None:
        """Read the human battles, find the anchors and shuffle the battles that may be entered.

        entrants      the models to place, by name
        limit_pairs   in all, shared among them; None: no limit
        with_style    whether the rating needs the style of answers
        families      of models by parts of their names
        excludes_kin  whether the judge is asked about no pair with exactly one of its family
        allows_equal  whether a judge is paid for models that gave the same answers
        """
        names = list(entrants)
        self.settings, self.store, self.entrants = chosen, store, entrants
        self.judge, self.rubric, self.asking = judge, rubric, asking
        self.with_style, self.excludes_kin = with_style, excludes_kin
        self.allows_equal = allows_equal
        self.arena = sources.read(
            chosen,
            with_languages=chosen.max_per_language is not None,
            with_style=self.with_style,
        )
        warn_of_look_alikes([*names, *self.arena.battles.models], "models")
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
        told = {name: [name] for name in self.anchors}
        told |= {name: names_of(entrant) for name, entrant in entrants.items()}
        self.kin = kin(families, judge.model, told)
        self.is_random = chosen.opponents == "random"
        self.candidates = placement.draws(
            self.arena,
            self.anchors,
            seed=chosen.seed,
            sides=1 if self.is_random else 2,
            max_per_language=chosen.max_per_language,
        )
        if excludes_kin and self.kin.is_unequal:
            self.candidates = self._of_one_side(names, n_least)
        n_wanted = len(names) * chosen.n_battles
        limit = limit_pairs or n_wanted + chosen.n_calibration
        self.n_battles = min(chosen.n_battles, limit // len(names))
        self.n_calibration = min(chosen.n_calibration, max(0, limit - n_wanted))
        self.drawn = {name: list[Draw]() for name in names}
        self.responses = {name: dict[Slot, Response]() for name in names}
        self.comparisons, self.judgments = list[Comparison](), list[Judgment]()
        self._texts, self.unusable = dict[At, Texts](), dict[At, str]()
        self._prompts = dict[str, Prompt]()

    def _of_one_side(self, names: Sequence[str], n_least: int) -> list[Draw]:
        """Return the draws against opponents that are of the judge's family where the placed models are, and not
        where these are not.

        Raises UserError where they differ, and for fewer than n_least such anchors.
        """
        own, family = {*self.kin.models}, self.kin.family
        of_family = [name for name in names if name in own]
        is_kin = bool(of_family)
        if is_kin and len(of_family) < len(names):
            (other, *_) = (name for name in names if name not in own)
            raise UserError(
                f"judging.self_judging: found exclude, and {of_family[0]} is of the judge's family, "
                f"{family}, but {other} is not. Place them in runs of their own: their opponents "
                "differ."
            )
        side = [name for name in self.anchors if (name in own) == is_kin]
        if len(side) < n_least:
            whose = "" if is_kin else "not "
            raise UserError(
                f"judging.self_judging: found exclude, and of {len(self.anchors)} anchors {len(side)} "
                f"{whose}of the judge's family, {family}. A placement needs {n_least} to meet. Choose "
                "a judge of another family, or warn."
            )
        return [draw for draw in self.candidates if draw.opponent in side]

    def run(self) -> None:
        """Draw battles, have them answered and judged.

        Random opponents are one round that all placed models enter. Adaptive ones take several:
        after the first, opponents stand near the rating so far.
        """
        store, stored_only = self.store, self.asking.stored_only
        judge = None if stored_only else self.judge
        n_rounds = 1 if self.is_random else self.settings.rounds
        audits(self.judge, [self.rubric], store)  # before anything is paid
        starts = [self.n_battles * i // n_rounds for i in range(n_rounds + 1)]
        for start, end in pairwise(starts):
            drawn = {name: self._next(name, end - start) for name in self.drawn}
            entered = {name: self.usable(draws) for name, draws in drawn.items()}
            tasks = self.tasks(entered)
            for task in tasks:
                preflight(*task, judge, store, stored_only=stored_only)
            # Answers are not paid for whose verdicts the budget does not reach, nor are verdicts
            # of a round that is not the last.
            if isinstance(judge, PaidJudge) and (
                any(pipeline.needs_paid_answers(*task, store) for task in tasks)
                if self.is_random
                else self.plan(entered).new
            ):
                left = self.random(self.n_battles - start)
                plan, least = self.plan(left), self.plan(left, at_least=True)
                pipeline.check_before_answers(plan, least, store)
            for task in tasks:
                made = pipeline.generate(
                    *task,
                    store,
                    allow_missing=self.asking.allow_missing,
                    canary=self.asking.canary,
                )
                for name, responses in made.items():
                    self.responses[name] |= responses
            for name, draws in drawn.items():
                self.drawn[name] += draws
            comparisons = self._compare(entered, self.responses)
            self._say_equal(comparisons, is_paid=isinstance(judge, PaidJudge))
            judged = pipeline.judge_pairs(
                comparisons, [self.rubric], self.judge, store, self.asking
            )
            self.comparisons += comparisons[self.rubric.dimension]
            self.judgments += judged[self.rubric.dimension]

    def _say_equal(
        self, comparisons: Mapping[str, Sequence[Comparison]], *, is_paid: bool
    ) -> None:
        """Say who gave the same answers. Raises UserError before a judge is paid for those that always did."""
        pairs = equal_answers.of_responses(self.responses)
        for pair in pairs if is_paid and not self.allows_equal else ():
            asked = comparisons, [self.rubric], self.judge, self.store, self.asking
            if pair.is_all and pipeline.n_new(*asked):
                raise UserError(all_equal(pair))
        for line in say_equal_answers(pairs):
            logger.warning("warning: %s", line)

    def known_equal(self, entered: Entered) -> list[EqualAnswers]:
        """Return the models that gave the same answers, as far as they are known."""
        known: dict[str, Mapping[Slot, Response]] = {}
        for task in self.tasks(entered):
            known |= pipeline.known_responses(*task, self.store)
        return equal_answers.of_responses(known)

    def random(self, n_battles: int) -> Entered:
        """Draw so many battles, which all placed models enter, of those not drawn yet."""
        taken = [draw for draws in self.drawn.values() for draw in draws]
        draws = self.usable(placement.first(self.candidates, n_battles, taken))
        return dict.fromkeys(self.drawn, draws)

    def usable(self, draws: Sequence[Draw]) -> list[Draw]:
        """Read the texts of battles, and leave out those that cannot be judged."""
        new = {draw.at for draw in draws} - self._texts.keys() - self.unusable.keys()
        texts, unusable = sources.texts(self.settings, new)
        self._texts |= texts
        self.unusable |= unusable
        if unusable:
            reasons = Counter(unusable.values()).most_common()
            counts = ", ".join(f"{n} {reason}" for reason, n in reasons)
            logger.info(
                "of %d drawn battles some cannot be judged: %s", len(new), counts
            )
        return [draw for draw in draws if draw.at in self._texts]

    def battles(self) -> list[Battle]:
        """Return the battles that were judged, with style where the rating needs it."""
        return from_judgments(
            self.judgments, self.comparisons if self.with_style else ()
        )

    def missing(self) -> dict[str, list[MissingBattle]]:
        """Return by placed model the battles that it entered without a usable answer or a valid verdict.

        A model that was asked has failed where it gave no answer.
        """
        judged = {
            (one.prompt_id, frozenset((one.entrant_a, one.entrant_b)))
            for one in self.judgments
            if not one.invalid
        }
        found: dict[str, list[MissingBattle]] = {name: [] for name in self.drawn}
        for name, draws in self.drawn.items():
            is_asked = isinstance(self.entrants[name], ModelEntrant)
            for draw in self.usable(draws):
                answer = self.responses[name].get((draw.question_id, 0))
                lacks = answer is None or is_empty(answer)
                is_judged = (
                    draw.question_id,
                    frozenset((name, draw.opponent)),
                ) in judged
                if is_judged and not lacks:
                    continue
                is_failed = is_asked if answer is None else bool(answer.finish_reason)
                found[name].append(
                    MissingBattle(
                        model_a=name,
                        model_b=draw.opponent,
                        question_id=draw.question_id,
                        dimension=self.rubric.dimension,
                        lacking=(name,) if lacks else (),
                        failed=(name,) if lacks and is_failed else (),
                        is_judged=is_judged,
                    )
                )
        return found

    def facts(self) -> dict[str, Any]:
        """Return what the manifest says of the arena and of the battles that were drawn."""
        arena = self.arena
        every = [draw for draws in self.drawn.values() for draw in self.usable(draws)]
        votes = [
            [b.question_id, b.model_a, b.model_b, b.winner]
            for b in arena.battles.rows()
        ]
        drawn = [[d.question_id, d.opponent, "ab"[d.side]] for d in every]
        return {
            "judge_model": self.judge.model,
            "entrants": list(self.drawn),
            "rubric_versions": {self.rubric.dimension: self.rubric.version},
            "selected_prompt_count": len({draw.question_id for draw in every}),
            "arena": {
                "name": arena.name,
                "n_rows": arena.n_rows,
                "dropped": dict(arena.dropped),
                "n_battles": len(arena.battles),
                "fingerprint": fingerprint(votes),
                "draw_fingerprint": fingerprint(drawn),
                "not_judged": dict(Counter(self.unusable.values())),
            },
        }

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
        if self._prompts.setdefault(draw.question_id, new) != new:
            raise UserError(
                f"arena.columns.question_id: {draw.question_id!r} names two different prompts. "
                "Choose a column that tells them apart, or null."
            )
        return new

    def tasks(
        self, entered: Entered
    ) -> ItemsView[tuple[Prompt, ...], dict[str, Entrant]]:
        """Group models on the same prompts, which answer together: equal weights are loaded once."""
        found = defaultdict[tuple[Prompt, ...], dict[str, Entrant]](dict)
        for name, draws in entered.items():
            prompts = {draw.question_id: self._prompt(draw) for draw in draws}
            found[*prompts.values()][name] = self.entrants[name]
        return found.items()

    def plan(self, entered: Entered, *, at_least: bool = False) -> Plan:
        """Plan what judging would cost; no model is asked: see `pipeline.assume_responses`."""
        allow_missing = self.asking.allow_missing
        assumed: dict[str, Mapping[Slot, Response]] = {}
        for task in self.tasks(entered):
            assumed |= pipeline.assume_responses(
                *task, self.store, allow_missing=allow_missing, at_least=at_least
            )
        return pipeline.plan_pairs(
            self._compare(entered, assumed),
            [self.rubric],
            self.judge,
            self.store,
            self.asking,
        )

    def _compare(
        self, entered: Entered, responses: Responses
    ) -> dict[str, list[Comparison]]:
        """Pair each answer with the recorded one; then human battles that are judged again."""
        pairs = [
            (draw, name, draw.opponent, answer.response_text, texts[1 + draw.side])
            for name, draws in entered.items()
            for draw in draws
            if (answer := responses[name].get((draw.question_id, 0)))
            for texts in [self._texts[draw.at]]
        ]
        pairs += [
            (draw, *draw.models, *self._texts[draw.at][1:])
            for draw in self.to_recalibrate(entered)
        ]
        compared = [
            self.rubric.compare(
                self._prompt(draw),
                entrant_a=a,
                entrant_b=b,
                response_a=response_a,
                response_b=response_b,
            )
            for draw, a, b, response_a, response_b in pairs
        ]
        return {self.rubric.dimension: compared}

    def to_recalibrate(self, entered: Entered) -> list[Draw]:
        """Choose human battles to be judged again, each once, until there are enough."""
        known = {
            (one.prompt_id, frozenset(one.entrants))
            for one in self.comparisons
            if one.entrant_a not in self.drawn
        }
        found = []
        for draw in next(iter(entered.values())):
            match = draw.question_id, frozenset(draw.models)
            if (
                self.excludes_kin
                and len({m in self.kin.models for m in draw.models}) > 1
            ):
                continue
            if match not in known and len(known) < self.n_calibration:
                known.add(match)
                found.append(draw)
        return found
