"""What trackers show of standings: charts, tables, and the results by which runs are compared."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from elo_exp.analysis.judge_quality import RATES
from elo_exp.analysis.standings import Standings, trace_rows
from elo_exp.report.artifacts import boards, strata_rows
from elo_exp.report.tournament_page import Dimension
from elo_exp.report.viewer import Comparisons, Judgments, joined
from elo_exp.trackers import Histogram, Lines, Rows, Value

_METRICS = ("std_error", "ci_low", "ci_high", "p_best", "ordering_error")  # of a rating
_OF_A_CHECK = ("name", "state", "value", "low", "high", "n", "of")
_MAX_TEXT = 400  # characters of a text in a table


def results(
    standings: Standings,
    dimensions: Sequence[Dimension],
    quality: Rows = (),
) -> dict[str, Value]:
    """Return final values and charts, under names that every run shares."""
    leaders = [d.finding.leader for d in dimensions if d.finding.leader]
    gap, std_error = headline(dimensions)
    found: dict[str, Value | None] = {
        "headline/leader": ", ".join(dict.fromkeys(leaders)) or None,
        "headline/gap": gap,
        "headline/gap_se": std_error,
        "judge/caution": any(
            c.state == "caution" for d in dimensions for c in d.checks
        ),
    }
    orders = [d.diagnosis.get("known_order") for d in dimensions]
    if known := [order for order in orders if order]:
        found["known_order/recovered"] = sum(order["n_recovered"] for order in known)
        found["known_order/pairs"] = sum(order["n_pairs"] for order in known)
    for d in dimensions:
        by_method = boards(standings, d.name)
        for method, board in by_method.items():
            for row in board.ratings:
                found[f"{method}/{d.name}/{row.model}"] = row.rating
                for name in _METRICS:
                    place = f"{method}_{name}/{d.name}/{row.model}"
                    found[place] = getattr(row, name)
        elo = by_method.get("elo")
        found |= _charts(d)
        if elo and elo.samples is not None:
            for model, samples in zip(elo.models, elo.samples.T, strict=True):
                place = f"permutations/{d.name}/{model}"
                found[place] = Histogram(samples.tolist())
    for q in quality:
        found |= {f"judge/{q['dimension']}/{name}": q[name] for name in RATES}
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
    return fmean(gaps) if gaps else 0.0, fmean(errors) if is_known else None


def tables(standings: Standings, dimensions: Sequence[Dimension]) -> dict[str, Rows]:
    """Return the tables of any run; those without a row are not logged."""
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
            {"dimension": d.name} | {name: getattr(c, name) for name in _OF_A_CHECK}
            for d in dimensions
            for c in d.checks
        ],
        "strata": strata_rows(standings),
        "looks": [row for d in dimensions for row in d.diagnosis.get("looks", ())],
    }


def _charts(d: Dimension) -> dict[str, Lines]:
    """Return each entrant's interval as a flat line, the best on top, and Elo by K."""
    found = {}
    rated = [r for r in d.board.ratings if r.rating is not None] if d.board else []
    if d.board and rated:
        intervals = {
            row.model: [
                (x, float(height))
                for x in (row.ci_low, row.rating, row.ci_high)
                if x is not None
            ]
            for height, row in enumerate(reversed(rated), start=1)
        }
        title = f"{d.name}: {d.board.label}, 95 % intervals"
        chart = Lines(title=title, x_label="rating", lines=intervals)
        found[f"ratings/{d.name}"] = chart
    by_k: dict[str, list[tuple[float, float]]] = {}
    for k, elo in d.elo.items():
        for row in elo.ratings:
            by_k.setdefault(row.model, []).append((k, row.rating or 0.0))
    if by_k:
        chart = Lines(title=f"{d.name}: Elo by K", x_label="K", lines=by_k)
        found[f"k_sensitivity/{d.name}"] = chart
    return found


def traces(standings: Standings) -> dict[int, dict[str, float]]:
    """Return the running means of Elo by the number of permutations."""
    found: dict[int, dict[str, float]] = {}
    for row in trace_rows(standings):
        name = f"trace/{row['dimension']}/{row['model']}"
        found.setdefault(row["n_perms"], {})[name] = row["running_mean"]
    return dict(sorted(found.items()))


def verdict_rows(
    comparisons: Comparisons, judgments: Judgments
) -> list[dict[str, Any]]:
    """Return a row for each judged comparison, with its texts, cut where they are long.

    winner  an entrant, tie, inconsistent (the two orders disagree) or invalid
    """
    rows = []
    for comparison, judgment in joined(comparisons, judgments):
        winner = "inconsistent" if judgment.inconsistent else judgment.winner or "tie"
        orders = {verdict.position_swap: verdict for verdict in judgment.orders}
        ab, ba = orders.get(False), orders.get(True)
        rows.append(
            {
                "prompt_id": judgment.prompt_id,
                "stratum": comparison.source,
                "dimension": judgment.dimension,
                "entrant_a": judgment.entrant_a,
                "entrant_b": judgment.entrant_b,
                "winner": "invalid" if judgment.invalid else winner,
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


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
