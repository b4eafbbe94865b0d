"""Golden files of a comparison's page and console: runs that moved, that share verdicts, of the oracle."""

from __future__ import annotations

from typing import Any

from elo_exp.report import compare_page, page
from tests import golden

RUNS = ("pilot", "whole", "other")
NONE_OF_A_SHIFT = dict.fromkeys(
    ("shift", "shift_std_error", "shift_ci_low", "shift_ci_high", "shift_p_value", "shift_p_holm")
)  # fmt: skip


def run_row(name: str, **changes: Any) -> dict[str, Any]:
    usage = {"judge_calls": 1200, "verdicts_stored": 40, "output_tokens": 98_000}
    return {
        "run": name, "folder": f"outputs/{name}", "experiment": "tournament", "judge_model": "opus",
        "finished_at": "2026-11-21T14:50:42Z", "usage": usage, "paid_before": None, "n_prompts": 143,
        "dollars": 1234.5,
    } | changes  # fmt: skip


def rating(run: str, model: str, points: float | None, **changes: Any) -> Any:
    return {
        "run": run, "dimension": "tone", "method": "bradley_terry", "model": model, "rating": points,
        "ci_low": points and points - 20, "ci_high": points and points + 20, "rank": 1, "rank_low": 1,
        "rank_high": 1, "flag": None if points else "winless",
    } | NONE_OF_A_SHIFT | changes  # fmt: skip


def shift(by: float, p_holm: float | None = None) -> dict[str, Any]:
    known = {} if p_holm is None else {"shift_ci_low": by - 9, "shift_ci_high": by + 9}
    return {"shift": by, "shift_p_holm": p_holm, **known}


def overlap(run: str, verdicts: str, dimension: str = "tone", **changes: Any) -> Any:
    return {
        "run": run, "dimension": dimension, "verdicts": verdicts, "n_prompts_before": 60, "n_prompts": 1430,
        "n_shared_prompts": 60, "no_interval": None,
        "agreement": {"agreement": 0.81, "kappa": 0.62, "n_comparisons": 360},
    } | changes  # fmt: skip


def found(**changes: Any) -> dict[str, Any]:
    return {
        "method": "bradley_terry", "label": "Bradley-Terry", "interval": "prompt-clustered",
        "runs": [run_row(name) for name in RUNS], "ratings": [], "estimates": [], "judge": [],
        "overlaps": [], "answers": [], "differences": {},
        "unit": "points", "conclusions_of_runs": {},
    } | changes  # fmt: skip


def same(name: str, comparison: dict[str, Any]) -> None:
    result = compare_page.conclude_comparison(comparison)
    manifest = {"experiment": "compare", "started_at": "2026-11-21T14:50:42Z"}
    document = compare_page.build_document(result, manifest)
    golden.same(f"{name}.html", page.render_document("compared", document))
    golden.same(f"{name}.txt", compare_page.format_console(result))


def test_runs_that_moved():
    """Three entrants and three runs; one entrant has no rating in a run, another none by Elo."""
    ranks = {"rank_low": 1, "rank_high": 2}
    ratings = [
        rating("pilot", "ann", 1500.0),
        rating("pilot", "bob", 1390.0, rank=2, rank_low=2, rank_high=3),
        rating("pilot", "cat", None, rank=None, rank_low=None, rank_high=None),
        rating("whole", "ann", 1452.5, **ranks, **shift(-32.5, 0.0004)),
        rating("whole", "bob", 1470.0, **ranks, **shift(32.5, 0.04)),
        rating("whole", "cat", 1310.0, rank=3, rank_low=None, rank_high=None),
        rating("other", "ann", 1500.0, **shift(0.0)),
        *(rating(run, "ann", 1450.0, method="elo") for run in RUNS),
        rating("pilot", "bob", 1350.0, method="elo"),
        rating("pilot", "ann", 1490.0, dimension="facts"),
        rating("whole", "ann", 1500.0, dimension="facts", **shift(4.0, 0.31)),
        rating("whole", "bob", 1400.0, dimension="facts", rank=2, **shift(-4.0, 0.31)),
    ]
    no_interval = (
        "battles.jsonl of other does not give its Bradley-Terry ratings by prompt"
    )
    overlaps = [
        overlap("whole", "other"),
        overlap("other", "nested", no_interval=no_interval),
        overlap("whole", "same", "facts"),
    ]
    rates = {
        "flip_rate": 0.04,
        "first_shown_rate": 0.5,
        "tie_rate": 0.2,
        "invalid_rate": 0.0,
    }
    judge = [
        {"run": "pilot", "dimension": "tone", **rates, "n_one_order": 0, "elo_convergence": 0.949},
        {"run": "whole", "dimension": "tone", **rates, "flip_rate": None, "n_one_order": 9, "elo_convergence": None},
        {"run": "other", "dimension": "tone", **dict.fromkeys(rates), "n_one_order": None, "elo_convergence": 1.0},
    ]  # fmt: skip
    answers = [
        {"run": "whole", "entrant": "ann", "n_shared": 60, "n_same": 60},
        {"run": "whole", "entrant": "bob", "n_shared": 60, "n_same": 59},
        {"run": "other", "entrant": "ann", "n_shared": 60, "n_same": 60},
    ]
    differences = {
        "elo.k": {"pilot": 8, "whole": 16, "other": None},
        "judge.model": {"pilot": "<b>", "whole": "opus", "other": "opus"},
    }
    runs = [
        run_row("pilot", n_prompts=60),
        run_row("whole", judge_model=None, usage={}, dollars=0.0),
        run_row("other", experiment="rate", n_prompts=0, finished_at="2026-11-22"),
    ]
    same(
        "compare",
        found(
            runs=runs,
            ratings=ratings,
            overlaps=overlaps,
            judge=judge,
            answers=answers,
            differences=differences,
        ),
    )


def two(run: str, ann: float, bob: float, by: float | None = None) -> list[Any]:
    moved = NONE_OF_A_SHIFT if by is None else shift(by)
    back = NONE_OF_A_SHIFT if by is None else shift(-by)
    return [
        rating(run, "ann", ann, **moved),
        rating(run, "bob", bob, rank=2, **back),
    ]


def test_runs_with_the_same_verdicts():
    """And the conclusions of the runs, in their words."""
    ratings = [*two("pilot", 1500.0, 1390.0), *two("whole", 1500.0, 1390.0, 0.0)]
    said: dict[str, Any] = {"state": "leads", "ci_low": 80.0}
    said["whose"] = "Points are opus's taste on these 60 prompts."
    said["sentence"] = "ann leads bob by 110 points [80, 140], p < .001"
    of_runs = {"pilot": {"tone": said}, "whole": {"tone": said}}
    shared = [overlap("whole", "same")]
    same(
        "compare_same",
        found(ratings=ratings, overlaps=shared, conclusions_of_runs=of_runs),
    )


def test_runs_on_other_prompts():
    ratings = [*two("pilot", 1500.0, 1390.0), *two("whole", 1510.0, 1380.0, 10.0)]
    ratings += [rating("other", f"m{n:02}", 1500.0 - n) for n in range(60)]
    shared = [overlap("whole", "nested"), overlap("other", "same")]
    same("compare_nested", found(ratings=ratings, overlaps=shared, interval=None))


def test_runs_without_a_test():
    """Ratings are scores of items."""
    alone = {"agreement": None, "kappa": None, "n_comparisons": 0}
    ratings = [*two("pilot", 0.51, 0.42), *two("whole", 0.5, 0.43, -0.01)]
    scores = [{**row, "method": "mean_score"} for row in ratings]
    parts = {"method": "mean_score", "unit": "score", "label": "Mean score"}
    shared = [overlap("whole", "other", agreement=alone)]
    same("compare_scores", found(ratings=scores, overlaps=shared, **parts))


def test_runs_of_the_oracle():
    fields = (
        "difference",
        "difference_ci_low",
        "difference_ci_high",
        "difference_p_holm",
    )
    nothing = dict.fromkeys((*fields, "n_shared_prompts"))
    first = {
        "run": "pilot",
        "policy": "x",
        "value": 0.51,
        "ci_low": 0.49,
        "ci_high": 0.53,
    }
    first |= {"status": "report", "rests_on": "own labels", **nothing}
    tested = {
        "difference": -0.08,
        "difference_ci_low": -0.1,
        "difference_ci_high": -0.06,
    }
    tested |= {"difference_p_holm": 0.0001, "n_shared_prompts": 1300}
    estimates = [
        first,
        {**first, "run": "whole", "value": 0.43, **tested},
        {**first, "run": "whole", "policy": "a", "status": "refused", "rests_on": None}
        | dict.fromkeys(("value", "ci_low", "ci_high")),
        {**first, "run": "other", **tested, "difference_p_holm": 0.2, "n_shared_prompts": 0},
    ]  # fmt: skip
    same("compare_oracle", found(estimates=estimates, label="", interval=None))
    same("compare_oracle_untested", found(estimates=[first], interval=None))
