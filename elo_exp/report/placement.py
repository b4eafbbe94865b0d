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
_OF_HUMANS = ("agreement", "kappa", "temperature", *_OF_FIT[:4])
_METRICS = (
    *("rating", "std_error", "ci_low", "ci_high", "rank", "rank_low", "rank_high"),
    *("status", "reason"),
)


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
    samples = (placement.by_judge or placement.board).samples
    return {
        "arena": placement.arena,
        "model": placement.placed[0],
        "models": list(placement.placed),
        "judge_model": placement.judge_model,
        "n_judged_battles": len(placement.judged),
        "n_human_battles": len(placement.human),
        "n_bootstraps": 0 if samples is None else len(samples),
        "seed": rating_settings.get("seed"),
        "rating_settings": dict(rating_settings),
        "ratings": [
            {
                **row,
                "source": placement.source(row["model"]),
                **placement.reliability.get(row["model"], {}),
            }
            for row in _rows(placement.board)
        ],
        "by_judge": _rows(placement.by_judge),
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


def metrics(
    placement: Placement, ratings: Mapping[str, Any], quality: JudgeQuality
) -> dict[str, float | str]:
    """Return <model>/rating, /rank ..., judge/<dimension>/<rate>, human/agreement ...

    ratings  of `elo_ratings`
    """
    calibration = ratings["calibration"] or {}
    found = {f"human/{name}": calibration.get(name) for name in _OF_HUMANS}
    found["human/mae"] = placement.mae
    others = {"by_judge": placement.by_judge, "soft": placement.soft}
    for row in ratings["ratings"]:
        model, truth = row["model"], placement.truth
        if model not in placement.placed:
            continue
        own = {name: row.get(name) for name in _METRICS}
        own |= {"n_judged": placement.n_judged(model)}
        for name, board in others.items():
            if board and model in board.models:
                own[name] = board.row(model).rating
        if truth and model in truth.models and row["rating"] is not None:
            own["error"] = row["rating"] - (truth.row(model).rating or math.nan)
        found |= {f"{model}/{name}": value for name, value in own.items()}
    for name in quality.RATES:
        found[f"judge/{quality.dimension}/{name}"] = getattr(quality, name)
    return {name: value for name, value in found.items() if value is not None}
