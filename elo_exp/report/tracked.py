"""What trackers show of standings: charts, tables, and the results by which runs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elo_exp.analysis.judge_quality import JudgeQuality
from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.records import Comparison, Judgment
from elo_exp.report.artifacts import boards, strata_rows
from elo_exp.report.tournament_page import Dimension
from elo_exp.trackers import Histogram, Lines, Rows, Value

_METRICS = ("std_error", "ci_low", "ci_high", "p_best", "ordering_error")  # of a rating
_MAX_TEXT = 400  # characters of a text in a table


def results(
    standings: Standings,
    dimensions: Sequence[Dimension],
    quality: Sequence[JudgeQuality] = (),
) -> dict[str, Value]:
    """Return final values and charts, under names that every run shares."""
    leaders = [d.finding.leader for d in dimensions if d.finding.leader]
    gap, std_error = headline(dimensions)
    orders = [
        d.diagnosis["known_order"] for d in dimensions if "known_order" in d.diagnosis
    ]
    found: dict[str, Value | None] = {
        "headline/leader": ", ".join(dict.fromkeys(leaders)) or None,
        "headline/gap": gap,
        "headline/gap_se": std_error,
        "judge/caution": any(
            c.state == "caution" for d in dimensions for c in d.checks
        ),
    }
    if orders:
        found["known_order/recovered"] = sum(order["n_recovered"] for order in orders)
        found["known_order/pairs"] = sum(order["n_pairs"] for order in orders)
    for dimension in dimensions:
        found |= _numbers(standings, dimension.name) | _charts(standings, dimension)
    for q in quality:
        found |= {f"judge/{q.dimension}/{name}": getattr(q, name) for name in q.RATES}
    return {name: value for name, value in found.items() if value is not None}


def headline(dimensions: Sequence[Dimension]) -> tuple[float, float | None]:
    """Return the gap between first and second by the primary ratings, the mean over dimensions, and
    its standard error in rating points, an upper bound: dimensions share their prompts."""
    gaps, errors = [], []
    for dimension in dimensions:
        ratings = dimension.board.ratings if dimension.board else ()
        rated = [row for row in ratings if row.rating is not None]
        if len(rated) < 2:
            continue
        first, second = rated[:2]
        gaps.append((first.rating or 0.0) - (second.rating or 0.0))
        best = {first.model, second.model}
        pairs = [d for d in dimension.pairs if {d.higher, d.lower} == best]
        errors += [d.std_error for d in pairs if d.std_error is not None]
    is_known = gaps and len(errors) == len(gaps)
    return (
        sum(gaps) / len(gaps) if gaps else 0.0,
        sum(errors) / len(errors) if is_known else None,
    )


def tables(standings: Standings, dimensions: Sequence[Dimension]) -> dict[str, Rows]:
    return {
        "leaderboard": [row for d in dimensions for row in _leaderboard(d)],
        "win_rates": [rate.to_dict() for rate in standings.win_rates],
        "judge": [row for d in dimensions for row in _checks(d)],
        "strata": strata_rows(standings),
        "looks": [row for d in dimensions for row in d.diagnosis.get("looks", ())],
    }


def _numbers(standings: Standings, dimension: str) -> dict[str, Value | None]:
    """Such as METHOD/DIMENSION/MODEL."""
    found: dict[str, Value | None] = {}
    by_method = boards(standings, dimension)
    for method, board in by_method.items():
        for rating in board.ratings:
            place = f"{dimension}/{rating.model}"
            found[f"{method}/{place}"] = rating.rating
            for name in _METRICS:
                found[f"{method}_{name}/{place}"] = getattr(rating, name)
    position = standings.diagnoses.get(dimension, {}).get("position", {})
    found[f"judge/{dimension}/p_first"] = position.get("p_first")
    elo = by_method.get("elo")
    found[f"n_matches/{dimension}"] = elo.n_matches if elo else 0
    return found


def _charts(standings: Standings, dimension: Dimension) -> dict[str, Value | None]:
    name, board, found = dimension.name, dimension.board, dict[str, Value | None]()
    rated = [r for r in board.ratings if r.rating is not None] if board else []
    if board and rated:
        # A flat line for each entrant, from the low to the high end; the best on top
        intervals = {}
        for height, row in enumerate(reversed(rated), start=1):
            ends = [x for x in (row.ci_low, row.rating, row.ci_high) if x is not None]
            intervals[row.model] = [(x, float(height)) for x in ends]
        title = f"{name}: {board.label}, 95 % intervals"
        found[f"ratings/{name}"] = Lines(title=title, x_label="rating", lines=intervals)
    by_k: dict[str, list[tuple[float, float]]] = {}
    for k, elo in dimension.elo.items():
        for row in elo.ratings:
            by_k.setdefault(row.model, []).append((k, row.rating or 0.0))
    if by_k:
        title = f"{name}: Elo by K"
        found[f"k_sensitivity/{name}"] = Lines(title=title, x_label="K", lines=by_k)
    primary = standings.primary(name)
    if primary and primary.samples is not None:
        for model, samples in zip(primary.models, primary.samples.T, strict=True):
            found[f"permutations/{name}/{model}"] = Histogram(samples.tolist())
    return found


def traces(standings: Standings) -> dict[int, dict[str, float]]:
    """Return the running means of Elo by the number of permutations."""
    found: dict[int, dict[str, float]] = {}
    for row in trace_rows(standings):
        name = f"trace/{row['dimension']}/{row['model']}"
        found.setdefault(row["n_perms"], {})[name] = row["running_mean"]
    return dict(sorted(found.items()))


def _leaderboard(dimension: Dimension) -> Rows:
    ratings = dimension.board.ratings if dimension.board else ()
    return [
        {
            "dimension": dimension.name,
            "rank": row.rank,
            "entrant": row.model,
            "rating": row.rating,
            "ci_low": row.ci_low,
            "ci_high": row.ci_high,
            "win_rate": dimension.win_rate.get(row.model),
        }
        for row in ratings
    ]


def _checks(dimension: Dimension) -> Rows:
    columns = ("name", "state", "value", "low", "high", "n", "of")
    return [
        {"dimension": dimension.name} | {c: getattr(check, c) for c in columns}
        for check in dimension.checks
    ]


# Verdicts


def verdict_rows(
    comparisons: Mapping[str, Sequence[Comparison]],
    judgments: Mapping[str, Sequence[Judgment]],
) -> list[dict[str, Any]]:
    """Return a row for each judged comparison, with its texts, cut where they are long.

    winner  an entrant, tie, inconsistent (the two orders disagree) or invalid
    """
    rows = []
    for dimension, some in judgments.items():
        asked = {_pair(comparison): comparison for comparison in comparisons[dimension]}
        for judgment in some:
            comparison = asked[_pair(judgment)]
            orders = {verdict.position_swap: verdict for verdict in judgment.orders}
            ab, ba = orders.get(False), orders.get(True)
            rows.append(
                {
                    "prompt_id": judgment.prompt_id,
                    "stratum": comparison.source,
                    "dimension": dimension,
                    "entrant_a": judgment.entrant_a,
                    "entrant_b": judgment.entrant_b,
                    "winner": _winner(judgment),
                    "verdict_ab": ab and ab.verdict,
                    "verdict_ba": ba and ba.verdict,
                    "question": _cut(comparison.prompt_text),
                    "answer_a": _cut(comparison.response_a),
                    "answer_b": _cut(comparison.response_b),
                    "reason_ab": ab and _cut(ab.reasoning),
                    "reason_ba": ba and _cut(ba.reasoning),
                }
            )
    return rows


def _pair(some: Comparison | Judgment) -> tuple[str, str, str]:
    return some.prompt_id, some.entrant_a, some.entrant_b


def _winner(judgment: Judgment) -> str:
    if judgment.invalid:
        return "invalid"
    return "inconsistent" if judgment.inconsistent else judgment.winner or "tie"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
