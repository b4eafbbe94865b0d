"""What a placement concluded, as files, as metrics, as the table on the console and as a page."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings
from elo_exp.arena.judge_calibration import Calibration
from elo_exp.arena.placement import Placement
from elo_exp.data.battles import Battles
from elo_exp.files import safe_name, write_csv, write_json, write_whole
from elo_exp.ratings.leaderboard import Leaderboard, Rating
from elo_exp.records import Battle, Comparison, Judgment, Plot
from elo_exp.report import artifacts, tournament_page, viewer
from elo_exp.report.formats import between, number
from elo_exp.report.page import colors, cost, render, scale

_TOP = 3  # of the leaderboard on the console, and so many around each placed model
_AROUND = 4


def write(
    run_dir: Path,
    placement: Placement,
    standings: Standings,
    *,
    rating_settings: Mapping[str, Any],
    inline_human: bool,
    battles_format: str,
) -> list[Path]:
    """The artifacts of a placement but for what the judge was shown and said."""
    shared = placement.battles if inline_human else placement.judged
    return [
        _write_battles(run_dir, shared, battles_format),
        write_json(
            run_dir / "elo_ratings.json", elo_ratings(placement, rating_settings)
        ),
        write_json(run_dir / "ratings.json", artifacts.ratings_json(standings)),
        *write_bootstraps(run_dir, {placement.dimension: placement.board}),
    ]


def _write_battles(run_dir: Path, battles: Battles, kind: str) -> Path:
    if kind == "jsonl":
        return write_whole(run_dir / "battles.jsonl", "".join(battles.jsonl()))
    import pyarrow
    from pyarrow import parquet

    types = dict.fromkeys(Battle.__dataclass_fields__, pyarrow.string())
    types["equal_answers"] = pyarrow.bool_()
    rows = [battle.to_dict() for battle in battles.rows()]
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(types.items()))
    data = io.BytesIO()
    parquet.write_table(table, data)
    return write_whole(run_dir / "battles.parquet", data.getvalue())


def write_bootstraps(run_dir: Path, boards: Mapping[str, Leaderboard]) -> list[Path]:
    """bootstrap_ratings.csv: a row for each resample, a column for each rated model; of several dimensions, a file for
    each. None without resamples."""
    written = []
    for dimension, board in boards.items():
        if board.samples is None:
            continue
        columns = [
            i
            for i, model in enumerate(board.models)
            if board.row(model).rating is not None
        ]
        names = [board.models[i] for i in columns]
        rows = [
            dict(zip(names, row, strict=True))
            for row in board.samples[:, columns].tolist()
        ]
        stem = (
            "bootstrap_ratings"
            if len(boards) == 1
            else f"bootstrap_ratings_{safe_name(dimension)}"
        )
        written.append(write_csv(run_dir / f"{stem}.csv", rows))
    return written


def elo_ratings(
    placement: Placement, rating_settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole leaderboard, best first, with what it takes to rate the battles again."""
    calibration = placement.calibration
    return {
        "arena": placement.arena,
        "model": placement.placed[0],
        "models": list(placement.placed),
        "judge_model": placement.judge_model,
        "dimension": placement.dimension,
        "n_bootstraps": 0
        if placement.board.samples is None
        else len(placement.board.samples),
        "seed": rating_settings.get("seed"),
        "rating_settings": dict(rating_settings),
        "n_judged_battles": len(placement.judged),
        "n_human_battles": len(placement.human),
        "ratings": [
            {**r.to_dict(), "source": placement.source(r.model)}
            for r in placement.board.ratings
        ],
        "by_humans": [
            placement.human_board.row(m).to_dict() for m in held_out(placement)
        ]
        if placement.human_board
        else [],
        "calibration": None
        if calibration is None
        else {**calibration.agreement.to_dict(), **_calibrated(calibration)},
    }


def _calibrated(calibration: Calibration) -> dict[str, Any]:
    names = ("temperature", "decisiveness", "decisiveness_std_error")
    return {name: getattr(calibration, name) for name in names} | {
        "on_human_scale": dict(calibration.on_human_scale)
    }


def held_out(placement: Placement) -> list[str]:
    """The placed models that humans have rated too."""
    board = placement.human_board
    return [
        model
        for model in placement.placed
        if board is not None and model in board.models
    ]


def metrics(placement: Placement, quality: JudgeQuality) -> dict[str, float]:
    """Final values: <model>/rating, /ci_low, /rank ..., judge/<dimension>/<rate>, human/agreement ..."""
    found: dict[str, float | None] = {}
    for model in placement.placed:
        rating = placement.board.row(model)
        for name in (
            "rating",
            "std_error",
            "ci_low",
            "ci_high",
            "rank",
            "rank_low",
            "rank_high",
        ):
            found[f"{model}/{name}"] = getattr(rating, name)
        found[f"{model}/n_judged"] = placement.n_judged(model)
    for name in quality.RATES:
        found[f"judge/{quality.dimension}/{name}"] = getattr(quality, name)
    if placement.calibration is not None:
        found["human/agreement"] = placement.calibration.agreement.agreement
        found["human/kappa"] = placement.calibration.agreement.kappa
        found["human/temperature"] = placement.calibration.temperature
        found["human/decisiveness"] = placement.calibration.decisiveness
        found |= {
            f"{model}/on_human_scale": r
            for model, r in placement.calibration.on_human_scale.items()
        }
    return {name: value for name, value in found.items() if value is not None}


# The console


def console_table(placement: Placement, quality: JudgeQuality) -> str:
    """The top of the leaderboard and the surroundings of each placed model."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    console = Console(file=text, width=120, markup=False)
    console.print(_title(placement, quality), highlight=False)
    grid = Table(box=SIMPLE_HEAD)
    board = placement.board
    columns = (
        "rank",
        "model",
        board.label,
        f"95 %\n{board.interval}" if board.interval else "no interval",
        "ranks",
        "battles",
    )
    for column in columns:
        grid.add_column(
            column,
            justify="left" if column == "model" else "right",
            no_wrap=column != "model",
        )
    before = -1
    for i in _shown(placement):
        if i > before + 1:
            grid.add_row("...", *[""] * (len(columns) - 1))
        grid.add_row(*_row(placement, placement.board.ratings[i]))
        before = i
    if before + 1 < len(placement.board.ratings):
        grid.add_row("...", *[""] * (len(columns) - 1))
    console.print(grid)
    standing = [
        f"{model}: {line}"
        for model in placement.placed
        for line in _standing(placement, model)
    ]
    for line in (*standing, *_beside_humans(placement)):
        console.print(line, highlight=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _title(placement: Placement, quality: JudgeQuality) -> str:
    n_anchors = len(placement.board.models) - len(placement.placed)
    flips = (
        f"{quality.n_flips} of {quality.n_two_order} flipped"
        if quality.n_two_order
        else "orders not compared"
    )
    return (
        f"{placement.arena}: {len(placement.human):,} human battles of {n_anchors} anchors, {len(placement.judged):,} "
        f"judged by {placement.judge_model}\njudge: {flips}, {quality.n_invalid} invalid and left out"
    )


def _shown(placement: Placement) -> list[int]:
    """Rows of the leaderboard."""
    ratings = placement.board.ratings
    chosen = set(range(min(_TOP, len(ratings))))
    for i, rating in enumerate(ratings):
        if rating.model in placement.placed:
            chosen |= set(
                range(max(0, i - _AROUND), min(len(ratings), i + _AROUND + 1))
            )
    return sorted(chosen)


def _row(placement: Placement, rating: Rating) -> tuple[str, ...]:
    mark = "> " if rating.model in placement.placed else "  "
    return (
        str(rating.rank or "-"),
        mark + rating.model,
        rating.flag or "-" if rating.rating is None else f"{rating.rating:.1f}",
        "-"
        if rating.ci_low is None
        else f"{rating.ci_low:.0f} .. {rating.ci_high:.0f}",
        "-" if rating.rank_low is None else f"{rating.rank_low} .. {rating.rank_high}",
        str(rating.n_battles),
    )


# What is said


def _standing(placement: Placement, model: str) -> Iterator[str]:
    """Where a placed model stands, in sentences that do not name it."""
    rating, n = placement.board.row(model), placement.n_judged(model)
    if rating.rating is None:
        yield f"no rating ({rating.flag}) by {n} judged battles."
        return
    n_rated = sum(r.rating is not None for r in placement.board.ratings)
    ranks = (
        f"; ranks {rating.rank_low} to {rating.rank_high} are possible"
        if rating.rank_low is not None
        else ""
    )
    yield f"{_with_interval(rating)}, rank {rating.rank} of {n_rated}{ranks}, by {n} judged battles."
    if placement.human_board is None or model not in held_out(placement):
        return
    human = placement.human_board.row(model)
    if human.rating is not None:
        gap = rating.rating - human.rating
        apart = f"{abs(gap):.0f} points {'higher' if gap > 0 else 'lower'}"
        yield f"By humans alone {_with_interval(human)}, rank {human.rank}: the judge places it {apart}."


def _with_interval(rating: Rating) -> str:
    if rating.ci_low is None:
        return number(rating.rating)
    return f"{number(rating.rating)} (95 % CI {between(rating.ci_low, rating.ci_high)})"


def _beside_humans(placement: Placement) -> Iterator[str]:
    if placement.calibration is None:
        return
    agreement = placement.calibration.agreement
    if agreement.agreement is None:
        yield "Judge against humans: no battle that both have judged."
        return
    kappa = f", kappa {agreement.kappa:.2f}" if agreement.kappa is not None else ""
    t, s = placement.calibration.temperature, placement.calibration.decisiveness
    yield (
        f"Judge against humans, on {agreement.n_comparisons} of their battles: the same winner or a tie in "
        f"{agreement.agreement:.0%}{kappa}{f', temperature {t:.2f}' if t is not None else ''}."
    )
    if s is not None:
        error = number(placement.calibration.decisiveness_std_error, 2)
        verb = "stretches" if s > 1 else "shrinks"
        yield f"Relative to human votes the judge {verb} rating gaps by a factor of {s:.2f} ± {error}."
    for model, rating in placement.calibration.on_human_scale.items():
        yield f"{model} on the human scale: {rating:.0f}."


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
    agreement = placement.calibration.agreement if placement.calibration else None
    return render(
        "arena",
        plots,
        title=title,
        manifest=manifest,
        arena=manifest.get("arena", {}),
        placement=placement,
        standings=standings,
        standing={m: list(_standing(placement, m)) for m in placement.placed},
        beside_humans=list(_beside_humans(placement)),
        by_chance=agreement is not None and (agreement.ci_low or 0.0) <= 0.0,
        agreement=agreement,
        dimensions=[tournament_page.dimension(standings, placement.dimension, quality)],
        color=colors(placement.placed),
        scale=scale(board.ratings),
        texts=viewer.texts(
            {name: comparisons}, {name: judgments}, tournament_page.points(standings)
        ),
        label=board.label,
        interval=board.interval,
        limits={"rows": len(board.models)},
        **cost(manifest.get("usage"), manifest.get("paid_before")),
    )
