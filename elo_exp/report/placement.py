"""A placement as files and as metrics; console and page are the templates arena.txt and arena.html."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.arena.placement import Placement
from elo_exp.data.battles import Battles
from elo_exp.files import safe_name, write_csv, write_whole
from elo_exp.ratings.leaderboard import Leaderboard

_OF_FIT = ("s", "s_std_error", "taste", "position", "design_effects", "n_anchors")
_METRICS = ("rating", "std_error", "ci_low", "ci_high", "rank", "rank_low", "rank_high")


def write_battles(run_dir: Path, battles: Battles, kind: str) -> Path:
    if kind == "jsonl":
        return write_whole(run_dir / "battles.jsonl", battles.jsonl())
    from pyarrow import Table, parquet

    data = io.BytesIO()
    rows = [battle.to_dict() for battle in battles.rows()]
    parquet.write_table(Table.from_pylist(rows), data)
    return write_whole(run_dir / "battles.parquet", data.getvalue())


def write_bootstraps(run_dir: Path, boards: Mapping[str, Leaderboard]) -> list[Path]:
    """Write a row for each resample and a column for each rated model.

    One dimension goes to bootstrap_ratings.csv, several to a file each.
    """
    written = []
    for dimension, board in boards.items():
        if board.samples is None:
            continue
        rated = np.isfinite(board.rating)
        names = np.array(board.models)[rated].tolist()
        samples = board.samples[:, rated].tolist()
        rows = [dict(zip(names, sample, strict=True)) for sample in samples]
        suffix = f"_{safe_name(dimension)}" if len(boards) > 1 else ""
        written.append(write_csv(run_dir / f"bootstrap_ratings{suffix}.csv", rows))
    return written


def elo_ratings(
    placement: Placement, rating_settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the leaderboard, best first, with what it takes to rate the battles again."""
    agreement, soft = placement.agreement, placement.soft
    by_judge = placement.by_judge if placement.reliability else None
    samples = (placement.by_judge or placement.board).samples
    return {
        "arena": placement.arena,
        "model": placement.placed[0],
        "models": list(placement.placed),
        "judge_model": placement.judge_model,
        "dimension": placement.dimension,
        "n_bootstraps": 0 if samples is None else len(samples),
        "seed": rating_settings.get("seed"),
        "rating_settings": dict(rating_settings),
        "n_judged_battles": len(placement.judged),
        "n_human_battles": len(placement.human),
        "ratings": [
            {
                **row,
                "source": placement.source(row["model"]),
                **placement.reliability.get(row["model"], {}),
            }
            for row in _rows(placement.board)
        ],
        "by_judge": _rows(by_judge),
        "soft": soft and {**soft.parameters, "ratings": _rows(soft)},
        "by_humans": _rows(placement.human_board),
        "mae": placement.mae,
        "calibration": agreement
        and {
            **agreement.to_dict(),
            "temperature": placement.temperature,
            **{name: getattr(placement.fit, name) for name in _OF_FIT},
        },
    }


def _rows(board: Leaderboard | None) -> list[dict[str, Any]]:
    return [row.to_dict() for row in board.ratings] if board else []


def metrics(placement: Placement, quality: JudgeQuality) -> dict[str, float | str]:
    """Return <model>/rating, /rank ..., judge/<dimension>/<rate>, human/agreement ..."""
    found: dict[str, float | str | None] = {"human/mae": placement.mae}
    others = {"by_judge": placement.by_judge, "soft": placement.soft}
    for model in placement.placed:
        rating, truth = placement.board.row(model), placement.truth
        own = {name: getattr(rating, name) for name in _METRICS}
        own |= {"n_judged": placement.n_judged(model)}
        own |= placement.reliability.get(model, {})
        for name, board in others.items():
            if board and model in board.models:
                own[name] = board.row(model).rating
        if truth and model in truth.models and rating.rating is not None:
            own["error"] = rating.rating - (truth.row(model).rating or math.nan)
        found |= {f"{model}/{name}": value for name, value in own.items()}
    for name in quality.RATES:
        found[f"judge/{quality.dimension}/{name}"] = getattr(quality, name)
    if placement.agreement is not None:
        found["human/agreement"] = placement.agreement.agreement
        found["human/kappa"] = placement.agreement.kappa
        found["human/temperature"] = placement.temperature
        for name in _OF_FIT[:4]:
            found[f"human/{name}"] = getattr(placement.fit, name)
    return {name: value for name, value in found.items() if value is not None}
