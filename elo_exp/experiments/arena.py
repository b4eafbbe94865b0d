"""Where models stand among human battles: they answer prompts of an arena, and a judge compares
their answers with those of the anchors.

python -m elo_exp experiment=arena arena=lmarena_140k 'entrant=[mine]' judge=opus
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elo_exp import pipeline
from elo_exp.analysis import judge_quality, standings
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.arena import placement
from elo_exp.arena import rows as arena_rows
from elo_exp.arena import sources as arenas
from elo_exp.arena.judge_calibration import calibrate
from elo_exp.arena.placement import Placement
from elo_exp.arena.settings import ArenaSettings
from elo_exp.data.battles import Battles, from_judgments
from elo_exp.data.rubrics import Rubric
from elo_exp.experiments import Context, Report
from elo_exp.experiments.judged import Judged, answer_share
from elo_exp.experiments.placement_run import PlacementRun, load_arena
from elo_exp.experiments.standings import quality_row
from elo_exp.judges import Judge
from elo_exp.ratings import EloMethod, RatingMethod
from elo_exp.ratings.convergence import Convergence
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Plot, UserError
from elo_exp.report import artifacts
from elo_exp.report import placement as placement_report
from elo_exp.report.verdicts import verdict_rows


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
        """Check the settings; with plan=true, return what judging would cost.

        The plan of adaptive opponents is that of as many random ones.
        """
        self.check()
        if not self.plan:
            return None
        run = PlacementRun(self, context.store, load_arena(self))
        return pipeline.plan_table(run.plan())

    def run(self, context: Context) -> Report:
        run = PlacementRun(self, context.store, load_arena(self))
        if self.shard is not None:
            prompts = run.prompts(run.random())
            return answer_share(self, prompts, context.store, self.shard)
        run.run()
        return report(self, place(self, run), run, context.run_dir)

    def check(self) -> None:
        """Raise UserError for settings that do not fit together."""
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


def place(experiment: Arena, run: PlacementRun) -> Placement:
    """Rate what was judged together with the human battles, and compare judge and humans."""
    placed, human = tuple(experiment.entrant), run.data.human
    battles = from_judgments(run.judgments)
    judged = Battles.from_rows([b for b in battles if b.model_a in placed])
    again = Battles.from_rows([b for b in battles if b.model_a not in placed])
    for name in placed:
        if name not in judged.models:
            raise UserError(f"{name}: {_why_unplaced(name, run)}")
    board = _rate(experiment, run, judged.concatenate(human))
    named = {"dimension": run.dimension, "judge_model": experiment.judge.model}
    return Placement(
        arena=experiment.arena.name,
        **named,
        placed=placed,
        judged=judged,
        human=human,
        board=board,
        opponents=placement.opponents(judged, board, use=experiment.judging.use),
        calibration=calibrate(human, again, judged, board, **named)
        if len(again)
        else None,
        human_board=_by_humans(experiment, run),
    )


def _rate(experiment: Arena, run: PlacementRun, battles: Battles) -> Leaderboard:
    boards = standings.leaderboards({run.dimension: battles}, experiment.rating)
    ((board,),) = (by_dimension.values() for by_dimension in boards.values())
    return board


def _why_unplaced(name: str, run: PlacementRun) -> str:
    n_judged = sum(judgment.entrant_a == name for judgment in run.judgments)
    if n_judged:
        return (
            f"none of its {n_judged} battles has a valid verdict, so it cannot be placed. The "
            "verdicts are in the store; look at them with experiment=store."
        )
    n_answered = sum(comparison.entrant_a == name for comparison in run.comparisons)
    return (
        f"none of its battles has a verdict, so it cannot be placed. {len(run.drawn[name])} drawn "
        f"battles have texts to judge, it has answered {n_answered} of their prompts. Draw more "
        "(arena.n_battles, judging.limit_pairs), or supply the answers and verdicts that are "
        "missing."
    )


def _by_humans(experiment: Arena, run: PlacementRun) -> Leaderboard | None:
    """The ratings without a judge, where a placed model has human battles that were held out."""
    held_out = [m for m in experiment.entrant if m in experiment.arena.hold_out]
    if not held_out:
        return None
    arena = run.data.arena
    every = arena.battles.concatenate(arena.held_out)
    return _rate(experiment, run, every.among([*run.data.anchors, *held_out]))


def report(
    experiment: Arena, found: Placement, run: PlacementRun, run_dir: Path
) -> Report:
    """Write the artifacts of a placement, and report it."""
    quality = judge_quality.judge_quality(run.judgments, dimension=run.dimension)
    rated = _standings(experiment, found)
    ((name, method),) = experiment.rating.items()
    settings: dict[str, Any] = (
        dataclasses.asdict(method) if dataclasses.is_dataclass(method) else {}
    )
    judging = artifacts.write_judging(
        run_dir,
        responses=run.responses,
        comparisons={run.dimension: run.comparisons},
        judgments={run.dimension: run.judgments},
    )
    written = placement_report.write(
        run_dir,
        found,
        rated,
        rating_settings={"method": name, **settings},
        inline_human=experiment.arena.inline_human,
        battles_format=experiment.arena.battles_format,
    )
    verdicts = list(verdict_rows(run.comparisons, run.judgments))
    return Report(
        headline=found.board.row(found.placed[0]).rating or 0.0,
        text=placement_report.console_table(found, quality),
        facts=_facts(experiment, found, run, quality),
        artifacts=[*judging, *written],
        metrics=placement_report.metrics(found, quality),
        tables={"judge_quality": [quality_row(quality)], "verdicts": verdicts},
        figures=lambda: _figures(found),
        page=lambda title, manifest, figures: placement_report.page(
            found,
            rated,
            quality,
            figures,
            title=title,
            manifest=manifest,
            comparisons=run.comparisons,
            judgments=run.judgments,
        ),
    )


def _figures(found: Placement) -> Sequence[Plot]:
    from elo_exp.figures import arena

    return arena.plots(found)


def _facts(
    experiment: Arena, found: Placement, run: PlacementRun, quality: JudgeQuality
) -> dict[str, Any]:
    arena = run.data.arena
    drawn = [draw for some in run.drawn.values() for draw in some]
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
            "n_anchors": len(run.data.anchors),
            "n_human_battles": len(run.data.human),
            "n_drawn": {name: len(some) for name, some in run.drawn.items()},
            "draw_fingerprint": placement.draw_fingerprint(drawn),
            "not_judged": dict(Counter(run.unusable.values())),
        },
        "judge_quality": [quality_row(quality)],
    }


def _standings(experiment: Arena, found: Placement) -> Standings:
    """The placement as other experiments have their ratings, for what all of them write."""
    (name,) = experiment.rating
    return Standings(
        models=found.placed,
        battles={found.dimension: found.judged},
        k=float(experiment.elo.k),
        elo={found.dimension: {}},
        convergence={found.dimension: Convergence(limit={})},
        companions={name: {found.dimension: found.board}},
        win_rates=[],
        judges_agreement=[found.calibration.agreement] if found.calibration else [],
    )
