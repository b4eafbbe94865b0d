"""Where models stand among human battles: they answer prompts of an arena, and a judge compares them with the anchors.

python -m elo_exp experiment=arena arena=lmarena_140k 'entrant=[mine]' judge=opus
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from elo_exp.arena.judge_calibration import calibrate
from elo_exp.arena.placement import Placement
from elo_exp.arena.settings import ArenaSettings
from elo_exp.data import battles
from elo_exp.data.battles import Battles
from elo_exp.data.rubrics import Rubric
from elo_exp.experiments import Context, Report
from elo_exp.experiments.arena_play import PlacementRun, load_arena, rate
from elo_exp.experiments.judged import Judged, parse_shard
from elo_exp.experiments.standings import quality_row
from elo_exp.judges import Judge
from elo_exp.pipeline import bill
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot, UserError
from elo_exp.report import artifacts
from elo_exp.report.verdicts import verdict_rows
from elo_exp.store.store import Store


@dataclass(kw_only=True)
class Arena(Judged):
    judge: Judge
    rubric: dict[str, Rubric]
    elo: EloMethod
    rating: dict[str, RatingMethod]
    interval: str  # of Bradley-Terry, where rating.bradley_terry.interval does not say otherwise
    arena: ArenaSettings

    @property
    def input_files(self) -> Mapping[str, Path]:
        return arenas.input_paths(self.arena)

    def dry_run(self, context: Context) -> str | None:
        """With plan=true, what judging would cost; of adaptive opponents, what as many random ones would."""
        self.check()
        if not self.plan:
            return None
        return bill.plan_table(
            PlacementRun(self, context.store, load_arena(self)).plan()
        )

    def run(self, context: Context) -> Report:
        if self.shard is not None:
            return Report(
                headline=0.0, text=self._answer_share(self.shard, context.store)
            )
        play = self.play(context.store)
        return report(self, place(self, play), play, context.run_dir)

    def _answer_share(self, shard: str, store: Store) -> str:
        play = PlacementRun(self, store, load_arena(self))
        prompts = pipeline.sharded(play.prompts(play.random()), parse_shard(shard))
        pipeline.generate(
            prompts, self.entrant, store, allow_missing=self.allow_missing
        )
        usage = store.usage
        done = (
            f", {usage.responses_stored} were there" if usage.responses_stored else ""
        )
        return (
            f"shard {shard}: {usage.responses_generated} responses made{done}; run without shard= "
            "to judge"
        )

    def play(self, store: Store) -> PlacementRun:
        """Draw battles, have them answered and judged."""
        play = PlacementRun(self, store, load_arena(self))
        if self.arena.opponents == "random":
            drawn = play.random()
            play.check_before_answers(drawn)
            entered = dict.fromkeys(self.entrant, drawn)
            play.answer(entered)
            play.judge(play.compare(entered), play.human_pairs(drawn))
        else:
            play.adaptive_rounds()
        return play

    def check(self) -> None:
        arena_rows.check(self.arena)
        if not self.entrant:
            raise UserError(
                "entrant: none is chosen. Choose the models to place: 'entrant=[mine]'."
            )
        rubrics = list(self.rubric.values())
        if len(rubrics) != 1 or rubrics[0].needs_reference:
            names = ", ".join(rubric.dimension for rubric in rubrics)
            raise UserError(
                f"rubric: found {names or 'none'}. A placement asks one thing, as the humans were "
                "asked, and of prompts without a reference answer: 'rubric=[preference]'."
            )
        limit, n_placed = self.judging.limit_pairs, len(self.entrant)
        if limit is not None and limit < n_placed:
            raise UserError(
                f"judging.limit_pairs: found {limit} for {n_placed} models to place. Expected "
                f"{n_placed} or more, a battle of each, or null for all."
            )
        if len(self.rating) != 1:
            raise UserError(
                f"rating: found {len(self.rating)}. A placement is rated by one: "
                "'rating=[bradley_terry]'."
            )
        if self.shard is not None and self.arena.opponents == "adaptive":
            raise UserError(
                "shard: adaptive opponents are chosen as verdicts come in. Leave shard out."
            )


def place(experiment: Arena, play: PlacementRun) -> Placement:
    placed, human = tuple(experiment.entrant), play.field.human
    every = battles.from_judgments(play.judgments)
    judged = [battle for battle in every if battle.model_a in placed]
    for name in placed:
        if not any(battle.model_a == name for battle in judged):
            raise UserError(f"{name}: {_why_unplaced(name, play)}")
    again = [battle for battle in every if battle.model_a not in placed]
    board = rate(experiment, play.dimension, [*judged, *human])
    return Placement(
        arena=experiment.arena.name,
        dimension=play.dimension,
        judge_model=experiment.judge.model,
        placed=placed,
        judged=judged,
        human=human,
        board=comparisons.with_ranks(
            board, np.random.default_rng(experiment.arena.seed)
        ),
        opponents=placement.opponents(judged, board, use=experiment.judging.use),
        calibration=calibrate(
            human, again, judged, board, judge_model=experiment.judge.model
        )
        if again
        else None,
        human_board=_by_humans(experiment, play),
    )


def _why_unplaced(name: str, play: PlacementRun) -> str:
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


def _by_humans(experiment: Arena, play: PlacementRun) -> Leaderboard | None:
    """The ratings without a judge, where a placed model has human battles that were held out."""
    held_out = [
        name for name in experiment.entrant if name in experiment.arena.hold_out
    ]
    if not held_out:
        return None
    arena = play.field.arena
    rated = placement.among(
        [*arena.battles, *arena.held_out], [*play.field.anchors, *held_out]
    )
    return rate(experiment, play.dimension, rated)


def report(
    experiment: Arena, found: Placement, play: PlacementRun, run_dir: Path
) -> Report:
    """Write the artifacts of a placement, and report it."""
    quality = judge_quality.judge_quality(play.judgments, dimension=play.dimension)
    standings = _standings(experiment, found)
    ((name, method),) = experiment.rating.items()
    settings: dict[str, Any] = (
        dataclasses.asdict(method) if dataclasses.is_dataclass(method) else {}
    )
    judging = artifacts.write_judging(
        run_dir,
        responses=play.responses,
        comparisons={play.dimension: play.comparisons},
        judgments={play.dimension: play.judgments},
    )
    written = arena_report.write(
        run_dir,
        found,
        standings,
        rating_settings={"method": name, **settings},
        inline_human=experiment.arena.inline_human,
        battles_format=experiment.arena.battles_format,
    )
    verdicts = list(verdict_rows(play.comparisons, play.judgments))
    return Report(
        headline=found.board.row(found.placed[0]).rating or 0.0,
        text=arena_report.console_table(found, quality),
        facts=_facts(experiment, found, play, quality),
        artifacts=[*judging, *written],
        metrics=arena_report.metrics(found, quality),
        tables={"judge_quality": [quality_row(quality)], "verdicts": verdicts},
        figures=lambda: _figures(found),
        page=lambda title, manifest, figures: arena_report.page(
            found, standings, quality, figures, title=title, manifest=manifest
        ),
    )


def _figures(found: Placement) -> Sequence[Plot]:
    from elo_exp.figures import arena

    return arena.plots(found)


def _facts(
    experiment: Arena, found: Placement, play: PlacementRun, quality: JudgeQuality
) -> dict[str, Any]:
    arena = play.field.arena
    drawn = [draw for some in play.drawn.values() for draw in some]
    (rubric,) = experiment.rubric.values()
    return {
        "judge_model": found.judge_model,
        "entrants": list(found.placed),
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
        "judge_quality": [quality_row(quality)],
    }


def _standings(experiment: Arena, found: Placement) -> Standings:
    """The placement as other experiments have their ratings, for the files and tables that all share."""
    (name,) = experiment.rating
    return Standings(
        models=found.placed,
        battles={found.dimension: Battles.from_rows(found.judged)},
        k=float(experiment.elo.k),
        elo={found.dimension: {}},
        elo_limit={found.dimension: {}},
        companions={name: {found.dimension: found.board}},
        win_rates=[],
        judges_agreement=[found.calibration.agreement] if found.calibration else [],
    )
