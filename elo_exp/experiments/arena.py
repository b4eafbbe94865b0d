"""Where models stand among human battles: they answer prompts of an arena, and a judge compares them with the anchors.

python -m elo_exp experiment=arena arena=lmarena_140k 'entrant=[mine]' judge=opus
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp import pipeline
from elo_exp.analysis import comparisons, judge_quality
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.arena import placement
from elo_exp.arena import report as arena_report
from elo_exp.arena import rows as arena_rows
from elo_exp.arena import sources as arenas
from elo_exp.arena.human_scale import calibrate
from elo_exp.arena.placement import Placement
from elo_exp.data import battles
from elo_exp.data.battles import Battles
from elo_exp.experiments import Parts
from elo_exp.experiments.arena_play import Play, rate, survey
from elo_exp.pipeline import bill
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot, UserError
from elo_exp.report import artifacts
from elo_exp.report.verdicts import verdict_rows
from elo_exp.settings import Settings, parse_shard

NEEDS = frozenset({"entrant", "judge", "rubric", "rating"})


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    return {**arenas.input_paths(settings.arena), **parts.inputs()}


def check(settings: Settings, parts: Parts) -> None:
    arena_rows.check(settings.arena)
    if not parts.entrants:
        raise UserError("entrant: none is chosen. Choose the models to place: 'entrant=[mine]'.")
    if len(parts.rubrics) != 1 or parts.rubrics[0].needs_reference:
        names = ", ".join(rubric.dimension for rubric in parts.rubrics)
        raise UserError(
            f"rubric: found {names or 'none'}. A placement asks one thing, as the humans were asked, and of prompts "
            "without a reference answer: 'rubric=[preference]'."
        )
    limit, n_placed = settings.judging.limit_pairs, len(parts.entrants)
    if limit is not None and limit < n_placed:
        raise UserError(
            f"judging.limit_pairs: found {limit} for {n_placed} models to place. Expected {n_placed} or more, a battle "
            "of each, or null for all."
        )
    if len(parts.ratings) != 1:
        raise UserError(
            f"rating: found {len(parts.ratings)}. A placement is rated by one: 'rating=[bradley_terry]'."
        )
    if settings.shard is not None and settings.arena.opponents == "informative":
        raise UserError(
            "shard: informative opponents are chosen as verdicts come in. Leave shard out."
        )


def errand(settings: Settings, parts: Parts) -> str | None:
    """With plan=true: what judging would cost; of informative opponents, what as many random ones would; nobody is
    asked. With shard=i/n: a share of the answers."""
    if not settings.plan and settings.shard is None:
        return None
    play = Play(settings, parts, survey(settings, parts))
    if settings.plan:
        return bill.plan_table(play.plan())
    prompts = pipeline.sharded(play.prompts(play.random()), parse_shard(str(settings.shard)))
    pipeline.generate(prompts, parts.entrants, parts.store, allow_missing=settings.allow_missing)
    usage = parts.store.usage
    done = f", {usage.responses_stored} were there" if usage.responses_stored else ""
    return f"shard {settings.shard}: {usage.responses_generated} responses made{done}; run without shard= to judge"


def run(settings: Settings, parts: Parts) -> ArenaResult:
    play = Play(settings, parts, survey(settings, parts))
    if settings.arena.opponents == "random":
        drawn = play.random()
        play.check_before_answers(drawn)
        entered = dict.fromkeys(parts.entrants, drawn)
        play.answer(entered)
        play.judge(play.compare(entered), play.human_pairs(drawn))
    else:
        play.informative_rounds()
    return ArenaResult(_placement(settings, parts, play), settings, parts, play)


def _placement(settings: Settings, parts: Parts, play: Play) -> Placement:
    assert parts.judge is not None
    placed, human = tuple(parts.entrants), play.field.human
    every = battles.from_judgments(play.judgments)
    judged = [battle for battle in every if battle.model_a in placed]
    for name in placed:
        if not any(battle.model_a == name for battle in judged):
            raise UserError(f"{name}: {_why_unplaced(name, play)}")
    again = [battle for battle in every if battle.model_a not in placed]
    board = rate(parts, play.dimension, [*judged, *human])
    return Placement(
        arena=settings.arena.name,
        dimension=play.dimension,
        judge_model=parts.judge.model,
        placed=placed,
        judged=judged,
        human=human,
        board=comparisons.with_ranks(board, np.random.default_rng(settings.arena.seed)),
        opponents=placement.opponents(judged, board, use=settings.judging.use),
        calibration=calibrate(human, again, judged, board, judge_model=parts.judge.model)
        if again
        else None,
        human_board=_by_humans(settings, parts, play),
    )


def _why_unplaced(name: str, play: Play) -> str:
    n_judged = sum(judgment.entrant_a == name for judgment in play.judgments)
    if n_judged:
        return (
            f"none of its {n_judged} battles has a valid verdict, so it cannot be placed. The verdicts are in the "
            "store; look at them with experiment=store."
        )
    n_answered = sum(comparison.entrant_a == name for comparison in play.comparisons)
    return (
        f"none of its battles has a verdict, so it cannot be placed. {len(play.drawn[name])} drawn battles have texts "
        f"to judge, it has answered {n_answered} of their prompts. Draw more (arena.n_battles, judging.limit_pairs), "
        "or supply the answers and verdicts that are missing."
    )


def _by_humans(settings: Settings, parts: Parts, play: Play) -> Leaderboard | None:
    """The ratings without a judge, where a placed model has human battles that were held out."""
    held_out = [name for name in parts.entrants if name in settings.arena.hold_out]
    if not held_out:
        return None
    arena = play.field.arena
    rated = placement.among([*arena.battles, *arena.held_out], [*play.field.anchors, *held_out])
    return rate(parts, play.dimension, rated)


class ArenaResult:
    """A placement, with the answers and judgments behind it."""

    def __init__(self, found: Placement, settings: Settings, parts: Parts, play: Play) -> None:
        self.placement = found
        self.play = play
        self._settings, self._parts = settings, parts
        self.quality: JudgeQuality = judge_quality.judge_quality(
            play.judgments, dimension=play.dimension
        )

    @property
    def headline(self) -> float:
        """The rating of the first placed model; 0 where it has none."""
        return self.placement.board.row(self.placement.placed[0]).rating or 0.0

    def facts(self) -> Mapping[str, Any]:
        arena, play = self.play.field.arena, self.play
        drawn = [draw for some in play.drawn.values() for draw in some]
        (rubric,) = self._parts.rubrics
        return {
            "judge_model": self.placement.judge_model,
            "entrants": list(self.placement.placed),
            "rubric_versions": {rubric.dimension: rubric.version},
            "selected_prompt_count": len({draw.question_id for draw in drawn}),
            "arena": {
                "name": arena.name,
                "n_rows": arena.n_rows,
                "dropped": dict(arena.dropped),
                "n_battles": len(arena.battles),
                "fingerprint": arena.fingerprint,
                "n_anchors": len(play.field.anchors),
                "n_human_battles": len(play.field.human),
                "n_drawn": {name: len(some) for name, some in play.drawn.items()},
                "draw_fingerprint": placement.draw_fingerprint(drawn),
                "not_judged": dict(Counter(play.unusable.values())),
            },
            "judge_quality": [self._quality_row()],
        }

    def _quality_row(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self.quality),
            **{name: getattr(self.quality, name) for name in self.quality.RATES},
        }

    @cached_property
    def _standings(self) -> Standings:
        """The same as other experiments have it: what files and tables share with them is made from it."""
        found, (method,) = self.placement, self._parts.ratings
        return Standings(
            models=found.placed,
            battles={found.dimension: Battles.from_rows(found.judged)},
            k=float(self._parts.elo.k),
            elo={found.dimension: {}},
            elo_limit={found.dimension: {}},
            companions={method: {found.dimension: found.board}},
            win_rates=[],
            judges_agreement=[found.calibration.agreement] if found.calibration else [],
        )

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
        play, chosen = self.play, self._settings.arena
        ((name, method),) = self._parts.ratings.items()
        settings: dict[str, Any] = {}
        if dataclasses.is_dataclass(method):
            settings = dataclasses.asdict(method)
        judging = artifacts.write_judging(
            run_dir,
            responses=play.responses,
            comparisons={play.dimension: play.comparisons},
            judgments={play.dimension: play.judgments},
        )
        return judging + arena_report.write(
            run_dir,
            self.placement,
            self._standings,
            plots,
            rating_settings={"method": name, **settings},
            inline_human=chosen.inline_human,
            battles_format=chosen.battles_format,
        )

    def metrics(self) -> Mapping[str, float]:
        return arena_report.metrics(self.placement, self.quality)

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        verdicts = list(verdict_rows(self.play.comparisons, self.play.judgments))
        return {"judge_quality": [self._quality_row()], "verdicts": verdicts}

    def series(self) -> Sequence[Mapping[str, float]]:
        return []

    def plots(self) -> Sequence[Plot]:
        from elo_exp.figures import arena

        return arena.plots(self.placement)

    def table(self) -> str:
        return arena_report.console_table(self.placement, self.quality)

    def page(self, title: str, manifest: Mapping[str, Any], plots: Sequence[Plot]) -> str:
        return arena_report.page(
            self.placement, self._standings, self.quality, plots, title=title, manifest=manifest
        )
