"""A placement as files, as metrics, on the console and as a page."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.arena.placement import Placement
from elo_exp.console import text_table
from elo_exp.data.battles import Battles
from elo_exp.files import safe_name, write_csv, write_whole
from elo_exp.ratings.leaderboard import Leaderboard
from elo_exp.records import Comparison, Judgment, Plot
from elo_exp.report import tournament_page, viewer
from elo_exp.report.formats import NONE, between, number
from elo_exp.report.page import colors, cost, render, scale, template

_TOP = 3  # of the leaderboard on the console
_AROUND = 4  # on either side of a placed model
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


# The console


def text(
    placement: Placement,
    quality: JudgeQuality,
    diagnoses: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the headline, the top of the leaderboard and the surroundings of placed models."""
    ratings, placed = placement.board.ratings, placement.placed
    head = ["rank", "model", placement.board.label, "95 % CI", "ranks", "battles"]
    gap, rows = ["...", *[""] * 5], list[list[str]]()
    for i, row in enumerate(ratings):
        around = ratings[max(i - _AROUND, 0) : i + _AROUND + 1]
        if i < _TOP or any(near.model in placed for near in around):
            cells = [
                str(row.rank or NONE),
                f"{'>' if row.model in placed else ' '} {row.model}",
                row.flag or NONE if row.rating is None else number(row.rating, 1),
                between(row.ci_low, row.ci_high),
                between(row.rank_low, row.rank_high),
                f"{row.n_battles:,}",
            ]
            rows.append(cells)
        elif rows[-1] != gap:
            rows.append(gap)
    filled = template("arena.txt.j2").render(
        placement=placement,
        quality=quality,
        diagnoses=diagnoses,
        table=text_table(head, rows, text=["model"]),
    )
    lines = filter(None, map(str.rstrip, filled.splitlines()))
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


# The page


def page(
    placement: Placement,
    standings: Standings,
    quality: JudgeQuality,
    plots: Sequence[Plot],
    *,
    title: str,
    manifest: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
    judgments: Sequence[Judgment] = (),
) -> str:
    """Return the whole report as one HTML file, with the comparisons and their judgments."""
    board, name = placement.board, placement.dimension
    ratings = tournament_page.points(standings)
    return render(
        "arena",
        plots,
        title=title,
        manifest=manifest,
        arena=manifest.get("arena", {}),
        placement=placement,
        standings=standings,
        dimensions=[tournament_page.dimension(standings, name, quality)],
        color=colors(placement.placed),
        scale=scale(board.ratings),
        texts=viewer.texts({name: comparisons}, {name: judgments}, ratings),
        label=board.label,
        interval=board.interval,
        limits={"rows": len(board.models)},
        **cost(manifest.get("usage"), manifest.get("paid_before")),
    )
