"""Battles rated by every method, and what is made of the ratings: files, metrics, figures, the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.analysis import standings
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.experiments import Parts
from elo_exp.records import Plot
from elo_exp.report import artifacts, html


def rate(parts: Parts, battles: Mapping[str, Battles], *, models: Sequence[str]) -> Standings:
    return standings.rate(battles, elo=parts.elo, ratings=parts.ratings, models=models)


class StandingsResult:
    """The result of every experiment that ends in ratings."""

    quality: Sequence[JudgeQuality] = ()

    def __init__(self, standings: Standings, facts: Mapping[str, Any]) -> None:
        self.standings = standings
        self._facts = facts

    @property
    def headline(self) -> float:
        return artifacts.headline(self.standings)

    def facts(self) -> Mapping[str, Any]:
        return self._facts

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
        return artifacts.write_standings(run_dir, self.standings, plots)

    def metrics(self) -> Mapping[str, float]:
        return artifacts.metrics(self.standings)

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {}

    def series(self) -> Sequence[Mapping[str, float]]:
        by_step: dict[int, dict[str, float]] = {}
        for row in artifacts.trace_rows(self.standings):
            step = by_step.setdefault(row["n_perms"], {"n_perms": row["n_perms"]})
            step[f"trace/{row['dimension']}/{row['model']}"] = row["running_mean"]
        return [by_step[n] for n in sorted(by_step)]

    def plots(self) -> Sequence[Plot]:
        from elo_exp.figures import elo, judge, ratings

        drawn = [module.plots(self.standings) for module in (ratings, elo, judge)]
        return [plot for plots in drawn for plot in plots]

    def page(self, title: str, manifest: Mapping[str, Any], plots: Sequence[Plot]) -> str:
        return html.page(
            self.standings, plots, title=title, manifest=manifest, quality=self.quality
        )

    def table(self) -> str:
        return artifacts.table(self.standings)
