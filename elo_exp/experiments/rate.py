"""Ratings of any battles file, with no judge: what a tournament concludes, from battles made anywhere."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from elo_exp import battles
from elo_exp.experiments import Parts
from elo_exp.experiments.standings import StandingsResult, rate
from elo_exp.manifest import input_hashes
from elo_exp.records import Battle, UserError
from elo_exp.settings import Settings

logger = logging.getLogger(__name__)

NEEDS: frozenset[str] = frozenset()
OVERALL = "overall"  # the dimension of battles that name none


def check(settings: Settings, parts: Parts) -> None:
    if settings.battles is None:
        raise UserError("battles: names no file. Set it with battles=FILE (.jsonl, .csv or .parquet, also .gz).")
    if not Path(settings.battles).is_file():
        raise UserError(f"battles: found no file {settings.battles}. Check the path.")
    battles.check_ending(Path(settings.battles))


def errand(settings: Settings, parts: Parts) -> str | None:
    if settings.plan:
        raise UserError("plan: experiment=rate asks no judge and pays for nothing. Leave plan=true out.")
    return None


def run(settings: Settings, parts: Parts) -> StandingsResult:
    path = Path(str(settings.battles))
    read = battles.read(
        path,
        columns=dataclasses.asdict(settings.battles_columns),
        filters=dataclasses.asdict(settings.battles_filter),
        on_error=settings.battles_on_error,
    )
    logger.info("read %d battles, %d filtered out, %d dropped", len(read.battles), read.n_filtered, read.n_dropped)
    by_dimension: dict[str, list[Battle]] = {}
    for battle in read.battles:
        by_dimension.setdefault(battle.dimension or OVERALL, []).append(battle)
    facts = {
        "input_hashes": input_hashes({"battles": path}),
        "n_battles": len(read.battles),
        "n_filtered": read.n_filtered,
        "n_dropped": read.n_dropped,
    }
    return StandingsResult(rate(parts, by_dimension, models=battles.models(read.battles)), facts)
