"""Scores of single answers as files, and as the metrics and tables of trackers."""

from pathlib import Path
from typing import Any

from elo_exp.files import write_json
from elo_exp.records import Rows
from elo_exp.report import artifacts
from elo_exp.report.scores_section import SingleScores
from elo_exp.trackers import Value


def write_scores(run_dir: Path, scores: SingleScores) -> Path:
    """Write scores.json: criteria, and next to ratings of pairs the mean scores, the orders and the cost of each."""
    content: dict[str, Any] = {"criteria": _list_criteria(scores)}
    if scores.view:
        content["ratings"] = artifacts.ratings_json(scores.view.standings)
        content["orders"] = [agreement.to_dict() for agreement in scores.orders]
    if scores.plan:
        content["cost"] = [
            {
                "dimension": row.dimension,
                "scored": row.is_scored,
                "judge_calls": row.queries,
                "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens,
                "dollars": row.dollars if scores.plan.is_paid else None,
            }
            for row in scores.plan.rows
        ]
    return write_json(run_dir / "scores.json", content)


def _list_criteria(scores: SingleScores) -> list[dict[str, Any]]:
    """Return a row for each criterion and entrant."""
    return [
        {
            "dimension": name,
            "criterion": criterion,
            "entrant": row.model,
            "mean": row.rating,
            "ci_low": row.ci_low,
            "ci_high": row.ci_high,
            "n_items": row.n_battles,
        }
        for name, boards in scores.criteria.items()
        for criterion, board in boards.items()
        for row in board.ratings
    ]


def list_metrics(scores: SingleScores) -> dict[str, Value]:
    """Return the metrics of mean scores. They do not replace the headline of the pairs."""
    if scores.view is None:
        return {}
    metrics = artifacts.list_final_metrics(
        scores.view.standings, scores.view.dimensions
    )
    shared = ("headline/", "order_mean/", "result_mean/", "judge/", "judge_mean/")
    return {n: value for n, value in metrics.items() if not n.startswith(shared)}


def list_tables(scores: SingleScores) -> dict[str, Rows]:
    """Return the table of criteria; none without criteria."""
    rows = _list_criteria(scores)
    return {"criteria": rows} if rows else {}
