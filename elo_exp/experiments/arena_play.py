"""The two sides of a placement: the human battles that there are, and the judged ones, from the draw to the verdict."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elo_exp import pipeline
from elo_exp.api.planning import Plan
from elo_exp.arena import placement
from elo_exp.arena import sources as arenas
from elo_exp.arena.judge_calibration import question_and_pair
from elo_exp.arena.placement import Draw
from elo_exp.arena.rows import At
from elo_exp.arena.sources import Arena as HumanBattles
from elo_exp.arena.sources import Texts
from elo_exp.data import battles
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.entrants import HostedEntrant
from elo_exp.judges import PaidJudge
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Comparison, Judgment, Prompt, Response, UserError
from elo_exp.store.store import Store

if TYPE_CHECKING:
    from elo_exp.experiments.arena import Arena

logger = logging.getLogger(__name__)


def rate(arena: Arena, dimension: str, battles: Sequence[Battle]) -> Leaderboard:
    """The leaderboard by the one rating that was chosen."""
    (method,) = arena.rating.values()
    return method.rate({dimension: Battles.from_rows(battles)})[dimension]


@dataclass(frozen=True, kw_only=True)
class ArenaData:
    """The human side of it."""

    arena: HumanBattles
    anchors: list[str]
    human: list[Battle]  # between anchors
    candidates: list[Draw]


def load_arena(experiment: Arena) -> ArenaData:
    chosen = experiment.arena
    arena = arenas.read(chosen)
    placement.check_new(experiment.entrant, arena)
    anchors = placement.anchors(arena, chosen.min_battles)
    sides = 1 if chosen.opponents == "random" else 2
    return ArenaData(
        arena=arena,
        anchors=anchors,
        human=placement.among(arena.battles, anchors),
        candidates=placement.draws(arena, anchors, seed=chosen.seed, sides=sides),
    )


class PlacementRun:
    """The judged side: draws become prompts, answers, comparisons and judgments."""

    def __init__(self, experiment: Arena, store: Store, found: ArenaData) -> None:
        (rubric,) = experiment.rubric.values()
        chosen, n_placed = experiment.arena, len(experiment.entrant)
        wanted = n_placed * chosen.n_battles
        limit = experiment.judging.limit_pairs or wanted + chosen.n_calibration
        self.n_battles = min(
            chosen.n_battles, limit // n_placed
        )  # of each placed model
        self.n_calibration = min(chosen.n_calibration, max(0, limit - wanted))
        self.experiment, self.store, self.rubric = experiment, store, rubric
        self.dimension = rubric.dimension
        self.responses: dict[str, dict[str, Response]] = {
            name: {} for name in experiment.entrant
        }
        self.comparisons: list[Comparison] = []
        self.judgments: list[Judgment] = []
        self.drawn: dict[str, list[Draw]] = {name: [] for name in experiment.entrant}
        self.unusable: dict[
            At, str
        ] = {}  # why drawn battles have no texts that can be judged
        self.field = found
        self._texts: dict[At, Texts] = {}
        self._prompts: dict[str, Prompt] = {}
        self._again: dict[tuple[str | None, str, str], Comparison] = {}

    def random(self) -> list[Draw]:
        """The battles of the draw, which all placed models enter."""
        return self._usable(placement.first(self.field.candidates, self.n_battles))

    def adaptive_rounds(self) -> None:
        """A first round at random, then opponents near what the rounds before it say of each placed model."""
        rounds = min(self.experiment.arena.rounds, self.n_battles)
        checks = (
            2 if self._judge_is_paid else 0
        )  # before anything is paid, and when the length of answers is known
        for i in range(rounds):
            n = self.n_battles * (i + 1) // rounds - self.n_battles * i // rounds
            drawn = {
                name: self._usable(self._next(name, n))
                for name in self.experiment.entrant
            }
            again = next(iter(drawn.values()))
            if checks and self._plan(drawn, again).to_pay:
                self._ahead(self.n_battles - self.n_battles * i // rounds).check()
                checks -= 1
            self.answer(drawn)
            self.judge(self.compare(drawn), self.human_pairs(again))

    def _ahead(self, n_battles: int) -> PlacementRun:
        """As many random battles as are left to be drawn, and nothing of them known yet."""
        taken = {draw.at for some in self.drawn.values() for draw in some}
        left = [draw for draw in self.field.candidates if draw.at not in taken]
        play = PlacementRun(
            self.experiment,
            self.store,
            dataclasses.replace(self.field, candidates=left),
        )
        play.n_battles, play.n_calibration = (
            n_battles,
            self.n_calibration - len(self._again),
        )
        return play

    def _next(self, name: str, n: int) -> list[Draw]:
        candidates = [
            draw for draw in self.field.candidates if draw.at not in self.unusable
        ]
        judged = [
            b for b in battles.from_judgments(self.judgments) if b.model_a == name
        ]
        board = (
            rate(self.experiment, self.dimension, [*judged, *self.field.human])
            if judged
            else None
        )
        ratings = (
            {r.model: r.rating for r in board.ratings if r.rating is not None}
            if board
            else {}
        )
        if board is None or not ratings:
            taken = {draw.at for draw in self.drawn[name]}
            return placement.first(
                [draw for draw in candidates if draw.at not in taken], n
            )
        estimate = placement.estimate(board, name)
        known = [draw for draw in candidates if draw.opponent in ratings]
        return placement.adaptive(known, self.drawn[name], ratings, estimate, n)

    def _usable(self, draws: Sequence[Draw]) -> list[Draw]:
        """Those whose texts can be judged; their texts are read."""
        new = [
            draw.at
            for draw in draws
            if draw.at not in self._texts and draw.at not in self.unusable
        ]
        found = arenas.texts(self.experiment.arena, new)
        self._texts |= {
            at: texts for at, texts in found.items() if isinstance(texts, Texts)
        }
        unusable = {
            at: reason for at, reason in found.items() if isinstance(reason, str)
        }
        if unusable:
            named = ", ".join(
                f"{n} {reason}"
                for reason, n in Counter(unusable.values()).most_common()
            )
            logger.info(
                "of %d drawn battles some cannot be judged: %s", len(found), named
            )
        self.unusable |= unusable
        return [draw for draw in draws if draw.at in self._texts]

    def prompts(self, draws: Sequence[Draw]) -> list[Prompt]:
        """Each question once. Raises UserError for one that is asked in two ways."""
        asked = {}
        for draw in draws:
            text = self._texts[draw.at].prompt
            prompt = Prompt(
                prompt_id=draw.question_id,
                text=text,
                source=self.experiment.arena.name,
                subject="",
            )
            if self._prompts.setdefault(draw.question_id, prompt).text != text:
                raise UserError(
                    f"arena.columns.question_id: {draw.question_id!r} stands for two different prompts. Name a column "
                    "that tells them apart, or null."
                )
            asked[draw.question_id] = prompt
        return list(asked.values())

    def compare(self, draws: Mapping[str, Sequence[Draw]]) -> list[Comparison]:
        """Each answer of the placed models against the one that is on record."""
        for name, some in draws.items():
            self.drawn[name] += some
        return self._compared(draws, self.responses)

    def _compared(
        self, draws: Mapping[str, Sequence[Draw]], responses: Responses
    ) -> list[Comparison]:
        return [
            self.rubric.compare(
                self._prompts[draw.question_id],
                entrant_a=name,
                entrant_b=draw.opponent,
                response_a=responses[name][draw.question_id].response_text,
                response_b=self._recorded(draw),
            )
            for name, some in draws.items()
            for draw in some
            if draw.question_id in responses[name]
        ]

    def plan(self, *, at_least: bool = False) -> Plan:
        """What judging the battles of the draw would cost. Nobody is asked: an answer that is yet to be made is taken
        to be as long as its model's others, see `pipeline.assumed`."""
        drawn = self.random()
        return self._plan(
            dict.fromkeys(self.experiment.entrant, drawn), drawn, at_least=at_least
        )

    def _plan(
        self,
        entered: Mapping[str, Sequence[Draw]],
        again: Sequence[Draw],
        *,
        at_least: bool = False,
    ) -> Plan:
        judging = self.experiment.judging
        made: dict[str, Mapping[str, Response]] = {}
        for name, some in entered.items():
            entrant = {name: self.experiment.entrant[name]}
            made |= pipeline.assumed(
                self.prompts(some),
                entrant,
                self.store,
                allow_missing=self.experiment.allow_missing,
                at_least=at_least,
            )
        return pipeline.plan_pairs(
            {
                self.dimension: [
                    *self._compared(entered, made),
                    *self._wanted(again).values(),
                ]
            },
            [self.rubric],
            self.experiment.judge,
            self.store,
            repeats=judging.repeats,
            stored_only=judging.stored_only,
        )

    def check_before_answers(self, drawn: Sequence[Draw]) -> None:
        """Raise UserError for what would stop a run on these battles once an API has been paid for its answers."""
        if self._judge_is_paid and pipeline.api_is_to_answer(
            self.prompts(drawn), self.experiment.entrant, self.store
        ):
            self.check()

    def check(self) -> None:
        """Show the plan. Raises UserError for what would stop the run after it has begun to pay."""
        self._check_access(self.prompts(self.random()))
        pipeline.check_before_answers(self.plan(), self.plan(at_least=True), self.store)

    @property
    def _judge_is_paid(self) -> bool:
        return (
            isinstance(self.experiment.judge, PaidJudge)
            and not self.experiment.judging.stored_only
        )

    def answer(self, draws: Mapping[str, Sequence[Draw]]) -> None:
        """The placed models' answers, made where the store has none. Models with the same prompts answer together, so
        that equal weights are loaded once."""
        prompts = {name: self.prompts(some) for name, some in draws.items()}
        entrants, store = self.experiment.entrant, self.store
        for some in prompts.values():
            self._check_access(some)
        first, *others = prompts.values()
        groups = (
            [list(prompts)]
            if all(some == first for some in others)
            else [[name] for name in prompts]
        )
        for names in groups:
            answering = {name: entrants[name] for name in names}
            made = pipeline.generate(
                prompts[names[0]],
                answering,
                store,
                allow_missing=self.experiment.allow_missing,
            )
            for name in names:
                self.responses[name] |= made[name]

    def _check_access(self, prompts: Sequence[Prompt]) -> None:
        """Raise UserError for what would stop the first paid call, before models work for hours."""
        entrants, store = self.experiment.entrant, self.store
        for name, entrant in entrants.items():
            if isinstance(entrant, HostedEntrant) and not pipeline.all_generated(
                prompts, {name: entrant}, store
            ):
                entrant.preflight()
        asks = not self.experiment.judging.stored_only
        if (
            asks
            and isinstance(self.experiment.judge, PaidJudge)
            and not pipeline.all_generated(prompts, entrants, store)
        ):
            self.experiment.judge.preflight()

    def _recorded(self, draw: Draw) -> str:
        texts = self._texts[draw.at]
        return texts.response_a if draw.side == "a" else texts.response_b

    def human_pairs(self, draws: Sequence[Draw]) -> list[Comparison]:
        """Battles as the humans judged them, of these draws, as long as some are wanted still."""
        wanted = self._wanted(draws)
        self._again |= wanted
        return list(wanted.values())

    def _wanted(
        self, draws: Sequence[Draw]
    ) -> dict[tuple[str | None, str, str], Comparison]:
        """What human_pairs would find, by question and pair."""
        by_at = dict(zip(self.field.arena.at, self.field.arena.battles, strict=True))
        found: dict[tuple[str | None, str, str], Comparison] = {}
        for draw in draws:
            battle, texts = by_at[draw.at], self._texts[draw.at]
            key = question_and_pair(battle)
            if (
                key not in self._again
                and key not in found
                and len(self._again) + len(found) < self.n_calibration
            ):
                found[key] = self.rubric.compare(
                    self._prompts[draw.question_id],
                    entrant_a=battle.model_a,
                    entrant_b=battle.model_b,
                    response_a=texts.response_a,
                    response_b=texts.response_b,
                )
        return found

    def judge(self, entered: Sequence[Comparison], again: Sequence[Comparison]) -> None:
        judging = self.experiment.judging
        asked = [*entered, *again]
        judged = pipeline.judge_pairs(
            {self.dimension: asked},
            [self.rubric],
            self.experiment.judge,
            self.store,
            repeats=judging.repeats,
            stored_only=judging.stored_only,
            allow_missing=self.experiment.allow_missing,
        )
        self.comparisons += asked
        self.judgments += judged[self.dimension]
