"""Ratings of any battles file, with no judge: what a tournament concludes, from battles made anywhere."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from elo_exp.arena import placement
from elo_exp.arena import report as arena_report
from elo_exp.arena import sources as arenas
from elo_exp.data import battles
from elo_exp.data.battles import Battles
from elo_exp.experiments import Parts
from elo_exp.experiments.standings import StandingsResult, rate
from elo_exp.records import Battle, Plot, UserError
from elo_exp.settings import Settings

logger = logging.getLogger(__name__)

NEEDS = frozenset({"rating"})
OVERALL = "overall"  # the dimension of battles that name none


class RateResult(StandingsResult):
    """Standings, with the resamples that their intervals come from."""

    def write(self, run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
        boards = self.standings.companions.get("bradley_terry", {})
        return [*super().write(run_dir, plots), *arena_report.write_bootstraps(run_dir, boards)]


def inputs(settings: Settings, parts: Parts) -> Mapping[str, Path]:
    battles_ = {} if settings.battles is None else {"battles": Path(settings.battles)}
    return {
        **battles_,
        **(arenas.input_paths(settings.arena) if _takes_human_battles(settings) else {}),
    }


def check(settings: Settings, parts: Parts) -> None:
    if settings.battles is None:
        raise UserError(
            "battles: names no file. Set it with battles=FILE (.jsonl, .csv or .parquet, also .gz)."
        )
    if not Path(settings.battles).is_file():
        raise UserError(f"battles: found no file {settings.battles}. Check the path.")
    battles.check_ending(Path(settings.battles))


def errand(settings: Settings, parts: Parts) -> str | None:
    if settings.plan:
        raise UserError(
            "plan: experiment=rate asks no judge and pays for nothing. Leave plan=true out."
        )
    return None


def run(settings: Settings, parts: Parts) -> RateResult:
    path = Path(str(settings.battles))
    read = battles.read(
        path,
        columns=dataclasses.asdict(settings.battles_columns),
        filters=dataclasses.asdict(settings.battles_filter),
        on_error=settings.battles_on_error,
    )
    logger.info(
        "read %d battles, %d filtered out, %d dropped",
        len(read.battles),
        read.n_filtered,
        read.n_dropped,
    )
    rated = read.battles
    if human := _human_battles(settings):
        rated = Battles.from_rows([*rated.rows(), *human])
    facts = {
        "n_battles": len(rated),
        "n_filtered": read.n_filtered,
        "n_dropped": read.n_dropped,
    }
    by_dimension = rated.by_dimension(unnamed=OVERALL)
    return RateResult(rate(parts, by_dimension, models=rated.models), facts)


def _human_battles(settings: Settings) -> list[Battle]:
    """Those that an arena run left out of its file, from its arena again."""
    if not _takes_human_battles(settings):
        return []
    arena = arenas.read(settings.arena)
    return placement.among(arena.battles, placement.anchors(arena, settings.arena.min_battles))


def _takes_human_battles(settings: Settings) -> bool:
    return settings.like is not None and not settings.arena.inline_human
