"""Battles rated by every method, and what is made of the ratings: files, metrics, figures, the table."""

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from elo_exp.analysis import elo_order_effects, tracked_results
from elo_exp.analysis.conclusions import Scope
from elo_exp.analysis.conclusions.judges_conclusion import sum_up_judges
from elo_exp.analysis.conclusions.tournament_conclusion import add_conclusions
from elo_exp.analysis.judge_quality import RATES, JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.experiments import Context, Report, link_to_judge_page
from elo_exp.files import write_json
from elo_exp.ratings import RatingMethod, needs_style
from elo_exp.records import Plot
from elo_exp.report import (
    artifacts,
    judges_page,
    page,
    scores_console,
    scores_files,
    tournament_console,
    tournament_page,
)
from elo_exp.report.scores_section import SingleScores
from elo_exp.report.standings_view import build_view
from elo_exp.report.viewer import Comparisons, Judgments


def list_metric_names(ratings: Collection[str]) -> dict[str, Collection[str]]:
    """Return the kinds of numbers that a run logs which ends in ratings, as `experiments.NamesNumbers` does.

    ratings  names of the methods beside Elo
    """
    methods = dict.fromkeys(
        name
        for method in ("elo", *ratings)
        for name in (
            method,
            *(f"{method}_{number}" for number in artifacts.RATING_FIELDS),
        )
    )
    return {
        "headline": ("gap", "gap_se"),
        "order": elo_order_effects.NUMBERS,
        "order_mean": elo_order_effects.NUMBERS,
        "result": tracked_results.NUMBERS,
        "result_mean": tracked_results.AVERAGED_NUMBERS,
        "judge": RATES,
        "judge_mean": RATES,
        "known_order": ("recovered", "pairs"),
        "usage": (),
        **dict.fromkeys(methods, ()),
    }


def report_standings(
    standings: Standings,
    context: Context,
    *,
    scope: Scope,
    facts: Mapping[str, Any],
    n_seen: int = 0,
    quality: Sequence[JudgeQuality] = (),
    written: Sequence[Path] = (),
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
    follow_up: str | None = None,
    scored: SingleScores | None = None,
) -> Report:
    """Write what every experiment leaves that ends in ratings, and report it.

    scope                   whose verdicts the battles are
    n_seen                  verdicts that had been looked at under another design
    comparisons, judgments  by dimension, where page and tracker are to show them
    scored                  what page and console show of answers that were scored one by one
    """
    standings = add_conclusions(standings, scope, quality=quality, n_seen=n_seen)
    texts = (comparisons, judgments) if context.with_texts else ()
    view = build_view(standings, *texts)
    dimensions = view.dimensions
    gap, std_error = artifacts.measure_lead(dimensions)
    tables = artifacts.tables(standings, dimensions)
    if comparisons and judgments:
        tables["verdicts"] = artifacts.verdict_rows(comparisons, judgments)

    def figures() -> list[Plot]:
        from elo_exp.figures import ratings

        return ratings.plots(standings)

    metrics = artifacts.list_final_metrics(standings, dimensions, quality)
    artifact_paths = [
        *written,
        *artifacts.write_standings(context.run_dir, standings),
    ]
    text = tournament_console.format_console(view)
    if scored:
        text = "\n\n".join(filter(None, [text, scores_console.format_scores(scored)]))
        artifact_paths.append(scores_files.write_scores(context.run_dir, scored))
        metrics = {**scores_files.list_metrics(scored), **metrics}
        tables |= scores_files.list_tables(scored)
    return Report(
        headline=gap,
        headline_is="headline/gap",
        text=text,
        follow_up=follow_up,
        facts={
            **facts,
            **count_matches_played(standings),
            "headline_std_error": std_error,
        },
        artifacts=artifact_paths,
        metrics=metrics,
        tables=tables,
        traces=artifacts.list_running_means(standings),
        figures=figures,
        page=page.make_page_renderer(
            partial(tournament_page.build_document, view, scores=scored)
        ),
    )


def supports_joint_board(ratings: Mapping[str, RatingMethod]) -> bool:
    """Return whether the leaderboard of each of several judges is one whose mean can be told: plain Bradley-Terry."""
    method = ratings.get("bradley_terry")
    is_plain = getattr(method, "baseline_model", None) is None
    return method is not None and is_plain and not needs_style(ratings)


def report_judges(
    by_judge: Mapping[str, Standings],
    reports: Mapping[str, Report],
    context: Context,
    *,
    orders: str,
    initial_rating: float,
    facts: Mapping[str, Any],
    populations: Collection[str] = (),
    jointly: bool = True,
) -> Report:
    """Report what several judges made of the same entrants: what all say, and each by itself.

    by_judge        standings of each, with conclusions, of the same dimensions
    reports         and its report, whose files are in its folder
    orders          what is a game, as in `games`
    initial_rating  rating points of the mean of the entrants
    populations     names of those whose verdicts are votes of many
    jointly         whether their leaderboards are of plain Bradley-Terry, as a joint one is
    """
    judge_opinions = sum_up_judges(
        by_judge,
        orders=orders,
        initial_rating=initial_rating,
        populations=populations,
        jointly=jointly,
    )
    pages = {name: link_to_judge_page(name) for name in by_judge}

    def figures() -> list[Plot]:
        from elo_exp.figures import judges_figures

        return judges_figures.plots(judge_opinions)

    gaps = [opinion.conclusion.effect for opinion in judge_opinions]
    known_gaps = [gap.value for gap in gaps if gap and gap.value is not None]
    runs = shlex.quote(f"runs=[{context.run_dir}/judges/*]")
    return Report(
        headline=fmean(known_gaps) if known_gaps else math.nan,
        text=judges_page.format_console(judge_opinions, by_judge),
        follow_up=f"See where the judges differ:\nelo-exp experiment=compare {runs}",
        facts={**facts, "judge_model": ", ".join(by_judge)},
        artifacts=[
            write_json(
                context.run_dir / "judges.json",
                {
                    opinion.dimension: judges_page.as_json(opinion)
                    for opinion in judge_opinions
                },
            )
        ],
        metrics=judges_page.metrics(judge_opinions)
        | {"judge/caution": any(r.metrics["judge/caution"] for r in reports.values())},
        tables=judges_page.tables(judge_opinions, by_judge),
        figures=figures,
        page=page.make_page_renderer(
            partial(judges_page.build_document, judge_opinions, by_judge, pages)
        ),
        of_judges=reports,
    )


def count_matches_played(standings: Standings) -> dict[str, Any]:
    """Return how many matches of an order Elo has played, by dimension and K; empty where it was all of them."""
    matches = {
        dimension: {
            str(k): int(n)
            for k, board in by_k.items()
            if (n := board.parameters.get("matches_played")) is not None
        }
        for dimension, by_k in standings.elo_by_k.items()
    }
    cut_matches = {dimension: by_k for dimension, by_k in matches.items() if by_k}
    return {"elo": {"matches_played": cut_matches}} if cut_matches else {}
