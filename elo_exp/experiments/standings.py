"""Battles rated by every method, and what is made of the ratings: files, metrics, figures, the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.experiments import Report, Rows
from elo_exp.records import Plot
from elo_exp.report import artifacts, tournament_console, tournament_page
from elo_exp.report.viewer import Comparisons, Judgments


def report(
    standings: Standings,
    run_dir: Path,
    *,
    facts: Mapping[str, Any],
    quality: Sequence[JudgeQuality] = (),
    tables: Mapping[str, Rows] | None = None,
    written: Sequence[Path] = (),
    comparisons: Comparisons | None = None,
    judgments: Judgments | None = None,
    follow_up: str | None = None,
) -> Report:
    """Write what every experiment leaves that ends in ratings, and report it.

    comparisons, judgments  by dimension, where the page is to show them
    """
    gap, std_error = artifacts.headline(standings)
    return Report(
        headline=gap,
        text=tournament_console.text(standings, quality),
        follow_up=follow_up,
        facts={**facts, "headline_std_error": std_error},
        artifacts=[*written, *artifacts.write_standings(run_dir, standings)],
        metrics=artifacts.metrics(standings, quality),
        tables={**(tables or {}), "strata": artifacts.strata_rows(standings)},
        series=_traces(standings),
        figures=lambda: _figures(standings),
        page=lambda title, manifest, figures: tournament_page.page(
            standings,
            figures,
            title=title,
            manifest=manifest,
            quality=quality,
            comparisons=comparisons,
            judgments=judgments,
        ),
    )


def _figures(standings: Standings) -> list[Plot]:
    from elo_exp.figures import elo, ratings

    return [*ratings.plots(standings), *elo.plots(standings)]


def _traces(standings: Standings) -> list[dict[str, float]]:
    """Permutation traces, a row for each number of permutations."""
    by_step: dict[int, dict[str, float]] = {}
    for row in trace_rows(standings):
        step = by_step.setdefault(row["n_perms"], {"n_perms": row["n_perms"]})
        step[f"trace/{row['dimension']}/{row['model']}"] = row["running_mean"]
    return [by_step[n] for n in sorted(by_step)]


def quality_row(quality: JudgeQuality) -> dict[str, Any]:
    rates = {name: getattr(quality, name) for name in quality.RATES}
    return {**dataclasses.asdict(quality), **rates}
