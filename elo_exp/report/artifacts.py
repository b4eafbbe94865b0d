"""What a run concluded, as files, as metrics and as the table on the console."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.power import Precision
from elo_exp.analysis.standings import Standings
from elo_exp.data.pairing import Responses
from elo_exp.files import write_csv, write_json, write_jsonl, write_whole
from elo_exp.ratings.leaderboard import (
    CONVERGED,
    ROUNDING,
    Z95,
    Leaderboard,
    Rating,
    running_means,
)
from elo_exp.records import Comparison, Judgment, Plot, Record
from elo_exp.report.findings import companion, how_far, unrated

# Of a comparison; its texts are in the responses
_MATCH_FIELDS = ("prompt_id", "dimension", "source", "entrant_a", "entrant_b")
_METRICS = ("std_error", "ci_low", "ci_high", "p_best", "ordering_error")  # of a rating
_SEM = "± SEM: ordering error (Monte Carlo), which more permutations shrink; it says nothing of how sure a rating is."
_ORDERS = (
    "Elo plays only what both orders agree on, which stretches the gaps of a noisy judge; Bradley-Terry counts both, "
    "a tie as half a win."
)
_RANKS = (
    "ranks: those that the prompts leave possible, for all entrants at once with 95 %."
)
_WIDTH, _NAME, _METHOD = (
    120,
    17,
    35,
)  # characters: of the table, of a name, of one more method
_MAX_JUDGES = 6  # pairs of judges, of a dimension on the console
_MAX_ROWS = 20  # of a dimension on the console; all are in ratings.json
_MAX_MODELS = 60  # all of whose pairs are in ratings.json, which are 1,770
_MIN_Z = 3.0  # of the pair residuals in ratings.json, where there are more models


def write_standings(run_dir: Path, standings: Standings) -> list[Path]:
    """Write the files that every experiment leaves that rates battles."""
    permutations = io.BytesIO()
    np.savez_compressed(permutations, **_per_permutation(standings))
    written = [
        write_json(run_dir / "elo_results.json", elo_results(standings)),
        write_whole(run_dir / "elo_per_perm.npz", permutations.getvalue()),
        write_csv(
            run_dir / "pairwise_winrates.csv",
            [rate.to_dict() for rate in standings.win_rates],
        ),
        write_whole(
            run_dir / "battles.jsonl",
            "".join(
                line for some in standings.battles.values() for line in some.jsonl()
            ),
        ),
        write_json(run_dir / "ratings.json", ratings_json(standings)),
    ]
    if any(len(some.models) > _MAX_MODELS for some in standings.battles.values()):
        every = [
            {"method": method, **pair.to_dict()}
            for method, pairs in standings.differences.items()
            for pair in pairs
        ]
        written.append(write_csv(run_dir / "differences.csv", every))
    return written


def write_plots(run_dir: Path, plots: Sequence[Plot]) -> list[Path]:
    """Write each figure as PNG, as SVG, and its numbers as CSV."""
    written = []
    for plot in plots:
        path = run_dir / "figures" / plot.name
        written += [
            write_whole(path.with_name(f"{plot.name}.png"), plot.png),
            write_whole(path.with_name(f"{plot.name}.svg"), plot.svg),
            write_csv(path.with_name(f"{plot.name}.csv"), plot.rows),
        ]
    return written


def write_judging(
    run_dir: Path,
    *,
    responses: Responses,
    comparisons: Mapping[str, Sequence[Comparison]],
    judgments: Mapping[str, Sequence[Judgment]],
) -> list[Path]:
    """Write the responses, the comparisons without their texts, and the verdicts."""
    written = []
    for name, by_prompt in responses.items():
        path = run_dir / f"responses/responses_{name}.jsonl"
        written.append(write_jsonl(path, (r.to_dict() for r in by_prompt.values())))
    matches = [
        {name: getattr(comparison, name) for name in _MATCH_FIELDS}
        for some in comparisons.values()
        for comparison in some
    ]
    written.append(write_jsonl(run_dir / "matches/matches.jsonl", matches))
    for dimension, of_dimension in judgments.items():
        path = run_dir / f"verdicts/{dimension}.jsonl"
        written.append(write_jsonl(path, (j.to_dict() for j in of_dimension)))
    return written


def elo_results(standings: Standings) -> dict[str, Any]:
    """Return the permutation Elo in the original's layout.

    `sem` is the standard error of the mean over permutations, `ci95` the mean ± 1.96 of it: the
    Monte Carlo error of the order, no uncertainty of the rating.
    """
    return {
        "default_k": standings.k,
        "primary": {
            dimension: _elo_entries(standings.primary(dimension))
            for dimension in standings.dimensions
        },
        "k_sensitivity": {
            dimension: {str(float(k)): _elo_entries(board) for k, board in by_k.items()}
            for dimension, by_k in standings.elo.items()
        },
        "n_decisive_matches": {
            dimension: int((~battles.is_tie()).sum())
            for dimension, battles in standings.battles.items()
        },
    }


def _elo_entries(board: Leaderboard | None) -> dict[str, Any]:
    entries = {}
    for model in board.models if board else ():
        assert board
        rating = board.row(model)
        mean, error = rating.rating, rating.ordering_error
        assert mean is not None and error is not None
        entries[model] = {
            "entrant_id": model,
            "mean": mean,
            "sem": error,
            "ci95_low": mean - Z95 * error,
            "ci95_high": mean + Z95 * error,
        }
    return entries


def _boards(standings: Standings, dimension: str) -> dict[str, Leaderboard]:
    """The leaderboards of a dimension by method, Elo first."""
    boards = {"elo": standings.primary(dimension)} | {
        method: by.get(dimension) for method, by in standings.companions.items()
    }
    return {method: board for method, board in boards.items() if board is not None}


def ratings_json(standings: Standings) -> dict[str, Any]:
    """Return every method's leaderboard by dimension; null where a method has no value.

    Of more than 60 models it has the differences between neighbours in rank and the large residuals
    of pairs.
    """
    return {
        "dimensions": {
            dimension: _dimension_json(standings, dimension)
            for dimension in standings.dimensions
        },
        "judge": {
            name: {**found, "pair_residuals": _residuals(standings, name)}
            for name, found in standings.diagnoses.items()
        },
        "agreement_between_dimensions": _dicts(standings.agreement),
        "agreement_between_judges": _dicts(standings.judges_agreement),
        "rank_correlation_between_judges": _dicts(standings.judges_ranks),
        "differences": {
            method: _dicts(_few(standings, method)) for method in standings.differences
        },
        "n_differences": {
            method: {name: _counts(pairs, name) for name in standings.dimensions}
            for method, pairs in standings.differences.items()
        },
        "precision": {
            method: _dicts(some) for method, some in standings.precision.items()
        },
    }


def _dicts(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [record.to_dict() for record in records]


def _dimension_json(standings: Standings, dimension: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        method: {
            "label": board.label,
            "interval": board.interval,
            "ratings": _dicts(board.ratings),
            "n_matches": board.n_matches,
            "parameters": dict(board.parameters),
        }
        for method, board in _boards(standings, dimension).items()
    }
    for k, board in standings.elo[dimension].items() if "elo" in found else ():
        share = board.parameters["convergence"]
        row = {"k": k, "convergence": share, "converged": share >= CONVERGED}
        found["elo"].setdefault("by_k", []).append(row)
    return found


def _counts(pairs: Sequence[Difference], dimension: str) -> dict[str, int]:
    significant = [bool(d.significant) for d in pairs if d.dimension == dimension]
    return {"pairs": len(significant), "significant": sum(significant)}


def _few(standings: Standings, method: str) -> list[Difference]:
    """The differences of few models, and of many those of neighbours in rank."""
    shown = {}
    for dimension, board in standings.companions[method].items():
        rated = [row.model for row in board.ratings if row.rating is not None]
        if len(rated) > _MAX_MODELS:
            shown[dimension] = set(itertools.pairwise(rated))
    return [
        pair
        for pair in standings.differences[method]
        if pair.dimension not in shown
        or (pair.higher, pair.lower) in shown[pair.dimension]
    ]


def _residuals(standings: Standings, dimension: str) -> list[dict[str, Any]]:
    """The pair residuals of few models, and of many those that are large."""
    rows: list[dict[str, Any]] = standings.diagnoses[dimension]["pair_residuals"]
    if len(standings.battles[dimension].models) <= _MAX_MODELS:
        return rows
    return [row for row in rows if abs(row["z"] or 0.0) > _MIN_Z]


def _per_permutation(standings: Standings) -> dict[str, Any]:
    """Final ratings of each permutation: NAME__data (n_perms, n_models), NAME__entrants."""
    arrays: dict[str, Any] = {}
    for dimension in standings.dimensions:
        board = standings.primary(dimension)
        if board is not None and board.samples is not None:
            arrays[f"{dimension}__data"] = board.samples
            arrays[f"{dimension}__entrants"] = np.array(board.models)
    return arrays


def metrics(
    standings: Standings, quality: Sequence[JudgeQuality] = ()
) -> dict[str, float]:
    """Return final values under names that every run shares.

    Such as METHOD/DIMENSION/MODEL and judge/DIMENSION/RATE.
    """
    found: dict[str, float | None] = {}
    for dimension in standings.dimensions:
        boards = _boards(standings, dimension)
        for method, board in boards.items():
            for rating in board.ratings:
                place = f"{dimension}/{rating.model}"
                found[f"{method}/{place}"] = rating.rating
                for name in _METRICS:
                    found[f"{method}_{name}/{place}"] = getattr(rating, name)
        position = standings.diagnoses.get(dimension, {}).get("position", {})
        found[f"judge/{dimension}/p_first"] = position.get("p_first")
        n_matches = boards["elo"].n_matches if "elo" in boards else 0
        found[f"n_matches/{dimension}"] = n_matches
    for q in quality:
        for name in q.RATES:
            found[f"judge/{q.dimension}/{name}"] = getattr(q, name)
    return {name: value for name, value in found.items() if value is not None}


def headline(standings: Standings) -> float:
    """The mean over dimensions of the gap between the best and the second-best Elo, in rating points."""
    gaps = []
    for dimension in standings.dimensions:
        board = standings.primary(dimension)
        if board is not None and len(board.ratings) > 1:
            first, second = (r.rating or 0.0 for r in board.ratings[:2])
            gaps.append(first - second)
    return sum(gaps) / len(gaps) if gaps else 0.0


def table(standings: Standings, quality: Sequence[JudgeQuality] = ()) -> str:
    """The leaderboard as text, a block for each dimension."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    text = io.StringIO()
    longest = max(map(len, standings.models), default=0)
    width = (
        _WIDTH
        + max(0, longest - _NAME)
        + _METHOD * max(0, len(standings.companions) - 1)
    )
    console = Console(file=text, width=width, markup=False)
    method = companion(standings) or "bradley_terry"
    sure = {p.dimension: p for p in standings.precision.get(method, ())}
    by_dimension = {q.dimension: q for q in quality}
    for dimension in standings.dimensions:
        console.print(
            _title(standings, dimension, by_dimension.get(dimension)), highlight=False
        )
        grid = Table(box=SIMPLE_HEAD)
        head, *rows = _table_rows(standings, method, dimension)
        for column in head:
            grid.add_column(
                column, justify="left" if column == "entrant" else "right", no_wrap=True
            )
        for row in rows[:_MAX_ROWS]:
            grid.add_row(*row)
        console.print(grid)
        if len(rows) > _MAX_ROWS:
            console.print(f"  ... and {len(rows) - _MAX_ROWS} more in ratings.json")
        for sentence in unrated(standings.companions.get(method, {}).get(dimension)):
            console.print(f"  {sentence}", highlight=False, width=_WIDTH)
        if (precision := sure.get(dimension)) and precision.detectable is not None:
            console.print(_findings(standings, method, precision), highlight=False)
        if others := _other_judges(standings, dimension)[:_MAX_JUDGES]:
            console.print("\n".join(others) + "\n", highlight=False)
    console.print(" ".join([_SEM, *[_ORDERS] * bool(quality), _RANKS]), width=_WIDTH)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _findings(standings: Standings, method: str, precision: Precision) -> str:
    """What a method says of the pairs of a dimension, and what it could have found."""
    pairs = [
        d for d in standings.differences[method] if d.dimension == precision.dimension
    ]
    n_sure = sum(bool(d.significant) for d in pairs)
    return (
        f"  {n_sure} of {len(pairs)} differences hold (Holm, over all dimensions); {precision.n_prompts} prompts find "
        f"one of {precision.detectable:.0f} points four times in five\n"
    )


def _other_judges(standings: Standings, dimension: str) -> list[str]:
    """How far each two judges agree, where the store has heard several."""
    rho = {
        (r.first, r.second): r.rho
        for r in standings.judges_ranks
        if r.dimension == dimension
    }
    lines = []
    for a in standings.judges_agreement:
        if a.dimension != dimension or a.agreement is None:
            continue
        parts = [
            f"  {a.first} and {a.second} say the same of {a.agreement:.0%} of {a.n_comparisons} pairs"
        ]
        parts += [f"kappa {a.kappa:.2f}"] if a.kappa is not None else []
        rank = rho.get((a.first, a.second))
        parts += (
            [f"rank correlation of the ratings {rank:.2f}"] if rank is not None else []
        )
        lines.append(", ".join(parts))
    return lines


def _title(standings: Standings, dimension: str, quality: JudgeQuality | None) -> str:
    battles = standings.battles[dimension]
    n_decisive = int((~battles.is_tie()).sum())
    board = standings.primary(dimension)
    share = f", {how_far(board.parameters['convergence'])}" if board else ""
    parts = [
        f"{dimension}: {len(battles)} battles, {n_decisive} decisive; Elo at K = {standings.k:g}{share}"
    ]
    if quality is not None and quality.n_judgments:
        flips = (
            f"{quality.n_flips} of {quality.n_two_order} flipped"
            if quality.n_two_order
            else "orders not compared"
        )
        kinds = {"refused": quality.n_refused, "cut off": quality.n_cut_off}
        named = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
        shares = {
            "first shown wins": quality.first_shown_rate,
            "ties": quality.tie_rate,
        }
        said = [
            f"{name} {100 * share:.0f} %"
            for name, share in shares.items()
            if share is not None
        ]
        invalid = f"{quality.n_invalid} invalid{f' ({named})' if named else ''}"
        equal = (
            [f"{quality.n_equal_answers} with equal answers"]
            if quality.n_equal_answers
            else []
        )
        parts.append(", ".join(["judge: " + flips, *said, invalid, *equal]))
    return "\n".join(parts)


def _table_rows(
    standings: Standings, method: str, dimension: str
) -> list[tuple[str, ...]]:
    """The heads of the columns, then a row for each model: Elo, then every other method."""
    elo = standings.primary(dimension)
    others = {name: by.get(dimension) for name, by in standings.companions.items()}
    boards = [board for board in (others.pop(method, None), *others.values()) if board]
    head = [
        "rank",
        "entrant",
        "Elo",
        "± SEM",
        *([f"95 %\n{elo.interval}"] if elo and elo.interval else []),
    ]
    for board in boards:
        head += [board.label, *([f"95 %\n{board.interval}"] if board.interval else [])]
    lead = elo or next(iter(boards), None)
    rows = [
        _table_row(rating, elo, boards) for rating in (lead.ratings if lead else ())
    ]
    return [(*head, "ranks", "battles"), *rows]


def _interval(rating: Rating | None) -> str:
    return (
        "-"
        if rating is None or rating.ci_low is None
        else f"{rating.ci_low:.0f} .. {rating.ci_high:.0f}"
    )


def _rank_set(rating: Rating | None) -> str:
    if rating is None or rating.rank_low is None or rating.rank_high is None:
        return "-"
    return (
        str(rating.rank_low)
        if rating.rank_low == rating.rank_high
        else f"{rating.rank_low} .. {rating.rank_high}"
    )


def _table_row(
    lead: Rating, elo: Leaderboard | None, boards: Sequence[Leaderboard]
) -> tuple[str, ...]:
    cells = [str(lead.rank or "-"), lead.model, "-", "-"]
    if elo:
        own = elo.row(lead.model)
        error = own.ordering_error or 0.0
        cells[2:] = [f"{own.rating:.1f}", f"{error:.2f}" if error > ROUNDING else "-"]
        cells += [_interval(own)] if elo.interval else []
    found = [board.row(lead.model) for board in boards]
    for board, rating in zip(boards, found, strict=True):
        cells.append(rating.flag or f"{rating.rating:.1f}")
        cells += [_interval(rating)] if board.interval else []
    primary = found[0] if found else None
    return (*cells, _rank_set(primary), str((primary or lead).n_battles))


def trace_rows(standings: Standings) -> list[dict[str, Any]]:
    """Return the running means of Elo with their Monte Carlo errors, by permutations."""
    rows: list[dict[str, Any]] = []
    for dimension in standings.dimensions:
        board = standings.primary(dimension)
        if board is None or board.samples is None:
            continue
        counts, means, errors = running_means(board.samples)
        rows += [
            {
                "dimension": dimension,
                "n_perms": int(n),
                "model": model,
                "running_mean": float(means[i, m]),
                "ordering_error": float(errors[i, m]),
            }
            for i, n in enumerate(counts)
            for m, model in enumerate(board.models)
        ]
    return rows
