"""Battles rated by every method, and what is made of the ratings: files, metrics, figures, the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis import (
    agreement,
    comparisons,
    judge_bias,
    transitivity,
    win_rates,
)
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.data.battles import Battles
from elo_exp.experiments import Parts
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Battle, Plot
from elo_exp.report import artifacts, html

_SEED = 20260425  # of the draws behind rank sets; the Monte-Carlo error of a chance is below .004


def rate(parts: Parts, battles: Mapping[str, Battles], *, models: Sequence[str]) -> Standings:
    """Every rating of these battles, by dimension; `models` in the order of the tables."""
    return Standings(
        models=tuple(models),
        battles=battles,
        k=float(parts.elo.k),
        elo=parts.elo.sweep(battles),
        elo_limit=parts.elo.limit(battles),
        **_without_elo(parts, battles),
    )


def _without_elo(parts: Parts, battles: Mapping[str, Battles]) -> dict[str, Any]:
    """What depends neither on K nor on the order of matches."""
    companions = {name: _with_ranks(method.rate(battles)) for name, method in parts.ratings.items()}
    rows = {dimension: some.rows() for dimension, some in battles.items()}
    return {
        "companions": companions,
        "differences": {
            name: comparisons.differences(boards) for name, boards in companions.items()
        },
        "precision": {name: comparisons.precision(boards) for name, boards in companions.items()},
        "diagnoses": {dimension: _diagnose(some, dimension) for dimension, some in rows.items()},
        "agreement": agreement.between_dimensions(rows),
        "win_rates": [
            rate
            for dimension, some in rows.items()
            for rate in win_rates.count(some, dimension=dimension)
        ],
    }


def _diagnose(battles: Sequence[Battle], dimension: str) -> dict[str, Any]:
    """What can be told of the judge from battles alone; both orders count, whatever the ratings use."""
    circles = transitivity.cycles(battles, dimension=dimension)
    return {
        "position": judge_bias.position_effect(battles, dimension=dimension).to_dict(),
        "transitivity": transitivity.transitivity_test(
            battles, dimension=dimension, use="both"
        ).to_dict(),
        "pair_residuals": [
            r.to_dict()
            for r in transitivity.pair_residuals(battles, dimension=dimension, use="both")
        ],
        "cycles": {**circles.to_dict(), "share": circles.share},
    }


def _with_ranks(boards: Mapping[str, Leaderboard]) -> dict[str, Leaderboard]:
    """With rank sets and chances, each leaderboard by draws of its own, so that no dimension depends on another."""
    return {
        name: dataclasses.replace(
            comparisons.with_ranks(board, np.random.default_rng(_SEED)),
            rank_chances=comparisons.rank_probabilities(board, np.random.default_rng(_SEED)),
        )
        for name, board in boards.items()
    }


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
