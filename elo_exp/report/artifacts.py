"""The results of a run as files, and as the metrics, charts and tables of trackers."""

import dataclasses
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from elo_exp.analysis.comparisons import Difference
from elo_exp.analysis.diagnosis import diagnosis_to_json
from elo_exp.analysis.elo_order_effects import measure_order_effects
from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.missing_answers import count_by_entrant
from elo_exp.analysis.standings import ELO, Standings, trace_rows
from elo_exp.analysis.tracked_results import (
    AVERAGED_NUMBERS,
    average_dimensions,
    sum_up_dimension,
)
from elo_exp.arrays import none_if_nan
from elo_exp.data import parquet
from elo_exp.data.battle_lines import encode_battles
from elo_exp.data.battles import Battles
from elo_exp.data.pairing import Responses
from elo_exp.files import escape_name, write_csv, write_json, write_jsonl, write_whole
from elo_exp.ratings.convergence import Convergence, Progress
from elo_exp.ratings.leaderboard import Z95, Leaderboard
from elo_exp.records import Judgment, Plot, Record, Rows
from elo_exp.report.dimension_view import DimensionView
from elo_exp.report.sentences import tournament_sentences as words
from elo_exp.report.viewer import Comparisons, Judgments, pair_judgments
from elo_exp.runs.reading import MISSING_FILE
from elo_exp.trackers import Histogram, Lines, Value

# Fields of a judgment that each of its raw verdicts repeats
_PAIR_FIELDS = ("prompt_id", "dimension", "entrant_a", "entrant_b", "draw_a", "draw_b")
# 60 models have 1,770 pairs, all of which are in ratings.json
_MAX_MODELS_WITH_ALL_PAIRS = 60
# Fields of a rating
RATING_FIELDS = (
    "std_error",
    "ci_low",
    "ci_high",
    "p_best",
    "ordering_error",
)
# Of a conclusion; the numbers of its lead are logged as those of the result
_TRACKED_CONCLUSION_FIELDS = ("state", "sentence")
_CHECK_FIELDS = ("name", "state", "value", "low", "high", "n", "of")
# battles.parquet is a fortieth as large as battles.jsonl
_MAX_JSONL_ROWS = 100_000
_MAX_TEXT_CHARACTERS = 400
# If there are more models, ratings.json has only the pair residuals above this
_MIN_RESIDUAL_Z = 3.0


# Files


def write_standings(run_dir: Path, standings: Standings) -> list[Path]:
    """Write the files of every experiment that rates battles."""
    ratings = write_json(run_dir / "ratings.json", ratings_json(standings))
    if standings.is_scored:
        return [ratings]
    permutations = io.BytesIO()
    np.savez_compressed(permutations, **_build_permutation_arrays(standings))
    written = [
        write_json(run_dir / "elo_results.json", elo_results(standings)),
        write_whole(run_dir / "elo_per_perm.npz", permutations.getvalue()),
        write_csv(
            run_dir / "pairwise_winrates.csv",
            (rate.to_dict() for rate in standings.win_rates),
        ),
        write_battles(run_dir, list(standings.battles.values())),
        ratings,
    ]
    if missing := missing_rows(standings):
        written.append(write_jsonl(run_dir / MISSING_FILE, missing))
    if strata := strata_rows(standings):
        written.append(write_csv(run_dir / "strata.csv", strata))
    if any(
        len(battles.models) > _MAX_MODELS_WITH_ALL_PAIRS
        for battles in standings.battles.values()
    ):
        all_differences = (
            {"method": method, **pair.to_dict()}
            for method, pairs in standings.differences.items()
            for pair in pairs
        )
        written.append(write_csv(run_dir / "differences.csv", all_differences))
    return written


def missing_rows(standings: Standings) -> list[dict[str, Any]]:
    """Return the planned comparisons without a result, each with its rubric."""
    return [
        comparison.to_dict() | {"dimension": dimension}
        for dimension, missing_comparisons in standings.missing.items()
        for comparison in missing_comparisons
    ]


def strata_rows(standings: Standings) -> list[dict[str, Any]]:
    """Return the ratings by source of the prompts."""
    return [
        {"dimension": dimension, **row}
        for dimension, diagnosis in standings.diagnoses.items()
        if "strata" in diagnosis
        for row in diagnosis["strata"].ratings
    ]


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


def write_responses(run_dir: Path, responses: Responses) -> list[Path]:
    """Write the responses, a file for each entrant."""
    return [
        write_jsonl(
            run_dir / f"responses/responses_{escape_name(name)}.jsonl",
            (response.to_dict() for response in by_prompt.values()),
        )
        for name, by_prompt in responses.items()
    ]


def write_judging(
    run_dir: Path,
    *,
    responses: Responses,
    comparisons: Comparisons,
    judgments: Judgments,
) -> list[Path]:
    """Write the responses, the comparisons with their texts, and the verdicts."""
    written = write_responses(run_dir, responses)
    all_comparisons = (
        comparison
        for dimension_comparisons in comparisons.values()
        for comparison in dimension_comparisons
    )
    path = run_dir / "matches/matches.jsonl"
    written.append(
        write_jsonl(path, (comparison.to_dict() for comparison in all_comparisons))
    )
    for dimension, dimension_judgments in judgments.items():
        path = run_dir / f"verdicts/{dimension}.jsonl"
        written.append(write_jsonl(path, map(_make_judgment_row, dimension_judgments)))
    return written


def write_battles(
    run_dir: Path, battles: Sequence[Battles], kind: str | None = None
) -> Path:
    """Write battles as rows of one file; `kind`: jsonl or parquet, None: by how many they are."""
    if (kind or _choose_battles_format(sum(map(len, battles)))) == "parquet":
        columns = parquet.concat_columns(
            [dimension_battles.columns() for dimension_battles in battles]
        )
        return parquet.write_parquet(run_dir / "battles.parquet", columns)
    return write_whole(
        run_dir / "battles.jsonl",
        (
            block
            for dimension_battles in battles
            for block in encode_battles(dimension_battles)
        ),
    )


def _choose_battles_format(n_rows: int) -> str:
    return "parquet" if n_rows > _MAX_JSONL_ROWS else "jsonl"


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
        suffix = f"_{escape_name(dimension)}" if len(boards) > 1 else ""
        written.append(write_csv(run_dir / f"bootstrap_ratings{suffix}.csv", rows))
    return written


def _make_judgment_row(judgment: Judgment) -> dict[str, Any]:
    row = judgment.to_dict()
    pair = {name: row[name] for name in _PAIR_FIELDS if name in row}
    for verdict in row["raw"]:
        if verdict["scores"] is None:
            del verdict["scores"]
    return {**row, "raw": [{"pair": pair, **verdict} for verdict in row["raw"]]}


def elo_results(standings: Standings) -> dict[str, Any]:
    """Return the permutation Elo in the original's layout.

    `sem` is the standard error of the mean over permutations, `ci95` the mean ± 1.96 of it: no
    uncertainty of the rating, as the added `ci95_is` says.
    """
    return {
        "default_k": standings.k,
        "primary": {
            dimension: _make_elo_entries(standings.board(dimension, ELO))
            for dimension in standings.dimensions
        },
        "k_sensitivity": {
            dimension: {
                str(float(k)): _make_elo_entries(board) for k, board in by_k.items()
            }
            for dimension, by_k in standings.elo_by_k.items()
        },
        "n_decisive_matches": {
            dimension: battles.count_at(~battles.is_tie())
            for dimension, battles in standings.battles.items()
        },
        "ci95_is": "ordering error of the permutation mean",
    }


def _make_elo_entries(board: Leaderboard | None) -> dict[str, Any]:
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


def boards(standings: Standings, dimension: str) -> dict[str, Leaderboard]:
    """Return the leaderboards of a dimension by method, Elo first."""
    return {
        method: by_dimension[dimension]
        for method, by_dimension in standings.boards.items()
        if dimension in by_dimension
    }


def ratings_json(standings: Standings) -> dict[str, Any]:
    """Return every method's leaderboard by dimension; null where a method has no value.

    `result` and, of Elo, `order` are the numbers by which a sweep compares; what is not defined is absent.
    Of more than 60 models it has the differences between neighbours in rank and the large residuals
    of pairs.
    """
    return {
        "conclusions": {
            dimension: words.as_row(conclusion)
            for dimension, conclusion in standings.conclusions.items()
        },
        "dimensions": {
            dimension: _dimension_to_json(standings, dimension)
            for dimension in standings.dimensions
        },
        "result": {
            dimension: sum_up_dimension(standings, dimension)
            for dimension in standings.dimensions
        },
        "judge": {
            name: {
                **diagnosis_to_json(diagnosis),
                "pair_residuals": _select_residuals(standings, name),
            }
            for name, diagnosis in standings.diagnoses.items()
        },
        "responses": standings.responses,
        "missing": {
            dimension: count_by_entrant(missing_comparisons)
            for dimension, missing_comparisons in standings.missing.items()
            if missing_comparisons
        },
        "agreement_between_dimensions": standings.agreement,
        "agreement_between_judges": standings.judges_agreement,
        "rank_correlation_between_judges": standings.judges_ranks,
        "differences": {
            method: _list_dicts(_select_differences(standings, method))
            for method in standings.differences
        },
        "n_differences": {
            method: {
                name: {
                    "pairs": sum(pair.dimension == name for pair in pairs),
                    "significant": sum(
                        pair.dimension == name and bool(pair.significant)
                        for pair in pairs
                    ),
                }
                for name in standings.dimensions
            }
            for method, pairs in standings.differences.items()
        },
        "precision": {
            method: _list_dicts(precision_rows)
            for method, precision_rows in standings.precision.items()
        },
    }


def _list_dicts(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [record.to_dict() for record in records]


def _dimension_to_json(standings: Standings, dimension: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        method: {
            "label": board.label,
            "interval": board.interval,
            "unit": board.unit,
            "ratings": _list_dicts(board.ratings),
            "n_matches": board.n_matches,
            "parameters": dict(board.parameters),
        }
        for method, board in boards(standings, dimension).items()
    }
    if (method := standings.primary_method or "elo") in entry:
        entry[method]["groups"] = [
            _list_dicts([row for row in board.ratings if row.rating is not None])
            for board in standings.unlinked_groups.get(dimension, ())
        ]
    if "elo" in entry:
        convergence = standings.convergence[dimension]
        entry["elo"]["by_k"] = [
            {"k": k, **_progress_to_row(convergence.by_k.get(k))}
            for k in standings.elo_by_k[dimension]
        ]
        entry["elo"]["parameters"] |= {
            **_progress_to_row(convergence.by_k.get(standings.k)),
            "sufficient_k": convergence.sufficient_k,
        }
        entry["elo"]["limit"] = [
            {"model": model, "rating": rating}
            for model, rating in convergence.limit.items()
        ]
        entry["elo"]["order"] = measure_order_effects(standings, dimension)
    if variance := standings.variance.get(dimension):
        entry["variance"] = variance.to_dict()
    return entry


def _progress_to_row(progress: Progress | None) -> dict[str, Any]:
    """Return the share of the final gap that Elo covers at one K; nulls if it has no limit."""
    row = {field.name: None for field in dataclasses.fields(Progress)}
    row |= progress.to_dict() if progress else {}
    return {**row, "converged": progress.is_converged if progress else None}


def _select_differences(standings: Standings, method: str) -> list[Difference]:
    """Return all differences of few models; of many, those between neighbours in rank."""
    neighbours_by_dimension = {}
    for dimension, board in standings.boards[method].items():
        ranked = [row.model for row in board.ratings if row.rank is not None]
        if len(ranked) > _MAX_MODELS_WITH_ALL_PAIRS:
            neighbours_by_dimension[dimension] = set(itertools.pairwise(ranked))
    return [
        pair
        for pair in standings.differences[method]
        if pair.dimension not in neighbours_by_dimension
        or (pair.higher, pair.lower) in neighbours_by_dimension[pair.dimension]
    ]


def _select_residuals(standings: Standings, dimension: str) -> list[Mapping[str, Any]]:
    """Return all pair residuals of few models; of many, the large ones."""
    rows = [*standings.diagnoses[dimension].get("pair_residuals", ())]
    if len(standings.battles[dimension].models) <= _MAX_MODELS_WITH_ALL_PAIRS:
        return rows
    return [row for row in rows if abs(row["z"] or 0.0) > _MIN_RESIDUAL_Z]


def _build_permutation_arrays(standings: Standings) -> dict[str, Any]:
    """Return the final ratings of each permutation: NAME__data (n_perms, n_models), NAME__entrants."""
    arrays: dict[str, Any] = {}
    for dimension in standings.dimensions:
        board = standings.board(dimension, ELO)
        if board is not None and board.samples is not None:
            arrays[f"{dimension}__data"] = board.samples
            arrays[f"{dimension}__entrants"] = np.array(board.models)
    return arrays


# For trackers


def list_final_metrics(
    standings: Standings,
    dimensions: Sequence[DimensionView],
    quality: Sequence[JudgeQuality] = (),
) -> dict[str, Value]:
    """Return final values and charts, under names that every run shares."""
    conclusions = standings.conclusions
    leaders = [
        conclusion.subject for conclusion in conclusions.values() if conclusion.subject
    ]
    gap, std_error = measure_lead(dimensions)
    metrics: dict[str, Value | None] = {
        "headline/first": ", ".join(dict.fromkeys(leaders)) or None,
        "headline/gap": none_if_nan(gap),
        "headline/gap_se": std_error,
        "judge/caution": any(
            check.is_failed_by_judge for d in dimensions for check in d.checks
        ),
    }
    known_orders = [d.diagnosis.get("known_order") for d in dimensions]
    if checked_orders := [known_order for known_order in known_orders if known_order]:
        metrics["known_order/recovered"] = sum(
            known_order.n_recovered for known_order in checked_orders
        )
        metrics["known_order/pairs"] = sum(
            known_order.n_pairs for known_order in checked_orders
        )
    for d in dimensions:
        by_method = boards(standings, d.name)
        for method, board in by_method.items():
            for row in board.ratings:
                metrics[f"{method}/{d.name}/{row.model}"] = row.rating
                for name in RATING_FIELDS:
                    metric_name = f"{method}_{name}/{d.name}/{row.model}"
                    metrics[metric_name] = getattr(row, name)
        elo = by_method.get("elo")
        metrics |= _draw_charts(d, standings.convergence.get(d.name))
        if elo and elo.samples is not None:
            for model, samples in zip(elo.models, elo.samples.T, strict=True):
                metric_name = f"permutations/{d.name}/{model}"
                metrics[metric_name] = Histogram(samples.tolist())
    for q in quality:
        metrics |= {
            f"judge/{q.dimension}/{name}": rate for name, rate in q.rates().items()
        }
    metrics |= _draw_running_means(standings)
    metrics |= list_sweep_numbers(standings, quality)
    for dimension, conclusion in conclusions.items():
        conclusion_row = words.as_row(conclusion)
        metrics |= {
            f"conclusion/{dimension}/{name}": conclusion_row[name]
            for name in _TRACKED_CONCLUSION_FIELDS
        }
    return {name: value for name, value in metrics.items() if value is not None}


def list_sweep_numbers(
    standings: Standings, quality: Sequence[JudgeQuality] = ()
) -> dict[str, float]:
    """Return the numbers by which jobs of a sweep compare, and their means over the dimensions that have them.

    order/<dimension>/<number>, order_mean/<number>, result/<dimension>/<number>, result_mean/<number> and
    judge_mean/<rate>; the numbers are those of `analysis.order` and `analysis.outcome`.
    """
    orders = {
        name: measure_order_effects(standings, name) for name in standings.dimensions
    }
    outcomes = {
        name: sum_up_dimension(standings, name) for name in standings.dimensions
    }
    metrics = dict[str, float]()
    for prefix, by_dimension in (("order", orders), ("result", outcomes)):
        for dimension, numbers in by_dimension.items():
            metrics |= {
                f"{prefix}/{dimension}/{name}": numbers[name] for name in numbers
            }
    return metrics | average_sweep_numbers(orders, outcomes, quality)


def average_sweep_numbers(
    orders: Mapping[str, Mapping[str, float]],
    outcomes: Mapping[str, Mapping[str, float]],
    quality: Sequence[JudgeQuality] = (),
) -> dict[str, float]:
    """Return the means of those numbers; `orders` and `outcomes` by dimension."""
    rates = {
        q.dimension: {
            name: rate for name, rate in q.rates().items() if rate is not None
        }
        for q in quality
    }
    result_means = average_dimensions(outcomes)
    metrics = {
        f"order_mean/{name}": mean for name, mean in average_dimensions(orders).items()
    }
    metrics |= {
        f"result_mean/{name}": result_means[name]
        for name in AVERAGED_NUMBERS
        if name in result_means
    }
    return metrics | {
        f"judge_mean/{name}": mean for name, mean in average_dimensions(rates).items()
    }


def measure_lead(dimensions: Sequence[DimensionView]) -> tuple[float, float | None]:
    """Return the gap between first and second by the primary ratings, the mean over dimensions, NaN
    where none has two ratings or words were counted as a baseline, and its standard error in rating points,
    an upper bound: dimensions share their prompts."""
    gaps, errors = [], []
    for dimension in dimensions:
        if dimension.conclusion and dimension.conclusion.scope.is_baseline:
            continue
        ratings = dimension.board.ratings if dimension.board else ()
        ranked = [row for row in ratings if row.rank is not None]
        if len(ranked) < 2 or None in (ranked[0].rating, ranked[1].rating):
            continue
        leader, runner_up = ranked[:2]
        gaps.append((leader.rating or 0.0) - (runner_up.rating or 0.0))
        top_two = {leader.model, runner_up.model}
        pairs = [d for d in dimension.pairs if {d.higher, d.lower} == top_two]
        errors += [d.std_error for d in pairs if d.std_error is not None]
    is_known = gaps and len(errors) == len(gaps)
    return fmean(gaps) if gaps else math.nan, fmean(errors) if is_known else None


def tables(
    standings: Standings, dimensions: Sequence[DimensionView]
) -> dict[str, Rows]:
    """Return the tables of any run; tables without a row are not logged."""
    return {
        "leaderboard": [
            {
                "dimension": d.name,
                "rank": row.rank,
                "entrant": row.model,
                "rating": row.rating,
                "ci_low": row.ci_low,
                "ci_high": row.ci_high,
                "win_rate": d.win_rate.get(row.model),
            }
            for d in dimensions
            for row in (d.board.ratings if d.board else ())
        ],
        "win_rates": [rate.to_dict() for rate in standings.win_rates],
        "judge": [
            {"dimension": d.name} | {name: getattr(c, name) for name in _CHECK_FIELDS}
            for d in dimensions
            for c in d.checks
        ],
        "strata": strata_rows(standings),
        "looks": [look.to_dict() for d in dimensions for look in d.looks],
    }


def _draw_charts(d: DimensionView, convergence: Convergence | None) -> dict[str, Lines]:
    """Return each entrant's interval as a flat line, the best on top, and Elo by K with its limit.

    convergence  of Elo; None without Elo
    """
    charts = {}
    rated = [r for r in d.board.ratings if r.rank is not None] if d.board else []
    if d.board and rated:
        intervals = {
            row.model: [
                (x, float(height))
                for x in (row.ci_low, row.rating, row.ci_high)
                if x is not None
            ]
            for height, row in enumerate(reversed(rated), start=1)
        }
        title = f"{d.name}: {d.board.label}, 95% intervals"
        chart = Lines(title=title, x_label="rating", lines=intervals)
        charts[f"ratings/{d.name}"] = chart
    by_k: dict[str, list[tuple[float, float]]] = {}
    for k, elo in d.elo.items():
        for row in elo.ratings:
            by_k.setdefault(row.model, []).append((k, row.rating or 0.0))
    if len(d.elo) > 1 and convergence is not None:
        ends = min(d.elo), max(d.elo)
        by_k |= {
            f"{model}, limit": [(k, limit) for k in ends]
            for model, limit in convergence.limit.items()
        }
    if by_k:
        chart = Lines(title=f"{d.name}: Elo by K", x_label="K", lines=by_k)
        charts[f"k_sensitivity/{d.name}"] = chart
    return charts


def _draw_running_means(standings: Standings) -> dict[str, Lines]:
    """Return the running mean over match orders, a chart of all entrants for each rubric."""
    lines_by_dimension: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in trace_rows(standings):
        lines = lines_by_dimension.setdefault(row["dimension"], {})
        line = lines.setdefault(row["model"], [])
        line.append((row["n_perms"], row["running_mean"]))
    return {
        f"convergence/{dimension}": Lines(
            title=f"{dimension}: running mean of Elo",
            x_label="permutations",
            lines=lines,
        )
        for dimension, lines in lines_by_dimension.items()
    }


def list_running_means(standings: Standings) -> dict[int, dict[str, float]]:
    """Return the running means of Elo by the number of match orders."""
    means_by_n_perms: dict[int, dict[str, float]] = {}
    for row in trace_rows(standings):
        name = f"trace/{row['dimension']}/{row['model']}"
        means_by_n_perms.setdefault(row["n_perms"], {})[name] = row["running_mean"]
    return dict(sorted(means_by_n_perms.items()))


def verdict_rows(
    comparisons: Comparisons, judgments: Judgments
) -> list[dict[str, Any]]:
    """Return a row for each judged comparison, with its texts, cut where they are long; of several draws with theirs.

    winner  an entrant, tie, inconsistent (the two orders disagree) or invalid
    """
    rows: list[dict[str, Any]] = []
    pairs = pair_judgments(comparisons, judgments)
    has_draws = any(max(c.draw_a, c.draw_b) for c, _ in pairs)
    for comparison, judgment in pairs:
        draw = max(comparison.draw_a, comparison.draw_b) + 1
        winner = "inconsistent" if judgment.inconsistent else judgment.winner or "tie"
        orders = {verdict.position_swap: verdict for verdict in judgment.orders}
        ab, ba = orders.get(False), orders.get(True)
        rows.append(
            {
                "prompt_id": judgment.prompt_id,
                "stratum": comparison.source,
                "dimension": judgment.dimension,
                **({"draw": draw} if has_draws else {}),
                "entrant_a": judgment.entrant_a,
                "entrant_b": judgment.entrant_b,
                "winner": "invalid" if judgment.invalid else winner,
                "verdict_ab": ab and ab.verdict,
                "verdict_ba": ba and ba.verdict,
                "question": _truncate(comparison.prompt_text),
                "answer_a": _truncate(comparison.response_a),
                "answer_b": _truncate(comparison.response_b),
                "reason_ab": ab and _truncate(ab.reasoning),
                "reason_ba": ba and _truncate(ba.reasoning),
            }
        )
    return rows


def _truncate(text: str) -> str:
    return (
        text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[:_MAX_TEXT_CHARACTERS]}…"
    )
