"""What is printed of a plan and its looks before anything is paid, and of the bill afterwards."""

import math
from collections.abc import Mapping

from elo_exp.analysis.power import assumed_sigma
from elo_exp.analysis.sequential_tests import (
    boundaries,
    expected_share,
    family_wise_alpha,
    plan_looks,
)
from elo_exp.api.costs import format_dollars
from elo_exp.console import format_table
from elo_exp.judges import role_suffix
from elo_exp.pipeline.planning import Plan, PlanRow
from elo_exp.store.usage import Usage

_GAPS_POINTS = (0, 60, 100, 200)
_COUNT_FIELDS = ("pairs", "queries", "stored", "new", "input_tokens", "output_tokens")
_DOLLAR_FIELDS = ("dollars", "dollars_plain")


def plan_table(plan: Plan) -> str:
    """Format a plan: a line for each dimension, their total, and notes."""
    return "\n".join([_format_heading(plan), _format_rows(plan), *_list_notes(plan)])


def _format_rows(plan: Plan) -> str:
    """Format a line for each dimension, and their total."""
    units = "responses" if plan.what == "scores" else "pairs"
    head = ["dimension", units, "queries", "stored", "new", "tokens in", "out"]
    head += ["$ expected", "$ plain"]
    lines = [_sum_cells(_row_name(row), row) for row in plan.rows]
    if plan.what == "verdicts":
        head.append("detects")
        for cells, row in zip(lines, plan.rows, strict=True):
            is_known = math.isfinite(row.detects) and not row.is_control
            cells.append(f"{row.detects:.0f}" if is_known else "-")
    if len(lines) > 1:
        lines.append(_sum_cells("total", *plan.rows))
    return format_table(head, lines)


def _row_name(row: PlanRow) -> str:
    return f"{row.dimension} (control)" if row.is_control else row.dimension


def plan_of_judges(plans: Mapping[str, Plan]) -> str:
    """Format the plans of several judges: a table each, without notes of the cap, and their sum, which the cap must hold.

    plans  by the judge's name
    """
    combined_plan = Plan.of_all([*plans.values()])
    head = ["judge", "pairs", "queries", "stored", "new", "tokens in", "out"]
    lines = [_sum_cells(name, *plan.rows) for name, plan in plans.items()]
    cap = "which cost nothing"
    if combined_plan.budget_usd is not None:
        cap = f"one cap {format_dollars(combined_plan.budget_usd)} ({combined_plan.budget_setting})"
    return "\n".join(
        [
            *(
                "\n".join([_format_heading(plan, name), _format_rows(plan)])
                for name, plan in plans.items()
            ),
            f"plan: {len(plans)} judges, asked one after the other, {cap}",
            format_table(
                [*head, "$ expected", "$ plain"],
                [*lines, _sum_cells("sum", *combined_plan.rows)],
            ),
            *_list_notes(combined_plan),
        ]
    )


def _sum_cells(name: str, *rows: PlanRow) -> list[str]:
    """Return a name and the sums over some rows."""
    counts = [
        f"{sum(getattr(row, field) for row in rows):,}" for field in _COUNT_FIELDS
    ]
    dollars = [
        f"{sum(getattr(row, field) for row in rows):,.2f}" for field in _DOLLAR_FIELDS
    ]
    return [name, *counts, *dollars]


def _format_heading(plan: Plan, name: str | None = None) -> str:
    judge_prefix = f"{name}, " if name else ""
    judge = f"plan: judge {judge_prefix}{plan.judge_model}{role_suffix(plan.roles)}"
    if plan.budget_usd is None:
        return f"{judge}, which costs nothing"
    cap = f"cap {format_dollars(plan.budget_usd)} ({plan.budget_setting})"
    if n_counted := max((row.counted for row in plan.rows), default=0):
        return f"{judge}, {cap}, tokens scaled from {n_counted} that the API counted"
    return f"{judge}, {cap}, tokens estimated from the length"


def _list_notes(plan: Plan) -> list[str]:
    notes = []
    if n := sum(row.shared for row in plan.rows):
        notes.append(f"{n:,} queries equal another, and share its reply.")
    if n := sum(row.under_way for row in plan.rows):
        notes.append(
            f"{n:,} queries are in submitted batches: their replies are collected, not paid again."
        )
    if n := sum(row.left_out for row in plan.rows):
        notes.append(
            f"{n:,} queries have no stored reply and are left out: judging.stored_only=true."
        )
    if plan.what == "verdicts":
        notes.append(
            "detects: 80% power to detect a gap of so many points, if verdicts vary as in "
            "simulations."
        )
    if plan.budget_usd is not None and plan.new:
        notes.append(
            "$ expected: by the chosen transport and prompt cache; $ plain: single messages, no "
            "cache."
        )
    if plan.budget_usd is not None and not plan.fits:
        notes.append(
            f"The cap is too low: ${plan.dollars:.4f} of ${plan.budget_usd - plan.spent_usd:.4f}. "
            "Such a run stops before its judge is paid."
        )
    return [f"  {note}" for note in notes]


def looks_table(plan: Plan, n_looks: int, *, drop: bool) -> str:
    """Format the looks of a plan, and what is expected of them by the gap between entrants."""
    n_tests = sum(math.comb(row.n_entrants, 2) for row in plan.rows)
    alpha = family_wise_alpha(drop=drop) / n_tests
    rows = []
    for row in plan.rows:
        looks = plan_looks(row.n_prompts, n_looks)
        times = tuple(look / row.n_prompts for look in looks)
        bounds = boundaries(alpha, times)
        sigma = assumed_sigma(row.n_entrants, both_orders=row.both_orders)
        rows.append([row.dimension, " ".join(map(str, looks))])
        for gap in _GAPS_POINTS:
            drift = gap * math.sqrt(row.n_prompts) / sigma
            share, power = expected_share(times, bounds, drift)
            rows[-1].append(f"{share:.0%} {power:4.0%}")
    head = ["dimension", "prompts at each look", *map("gap {}".format, _GAPS_POINTS)]
    return "\n".join(
        [
            "looks: above is the worst case, in which no pair is resolved; the cap must hold it",
            format_table(head, rows),
            "  gap: if all differ by so many points, the share of the bill, and the power.",
        ]
    )


def spend(usage: Usage) -> str:
    """Format what judges were paid, and the most that lost answers may have cost beside it."""
    if not usage.dollars and not usage.calls_lost:
        return "nothing spent"
    by_dimension = sorted(usage.dollars_by_dimension.items())
    parts = ", ".join(f"{name} ${dollars:.4f}" for name, dollars in by_dimension)
    n_written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    text = (
        f"spent ${usage.dollars:.4f}{f' ({parts})' if parts else ''}: {usage.input_tokens:,} "
        f"tokens in, {n_written:,} written to the prompt cache, {usage.cache_read_tokens:,} read "
        f"from it, {usage.output_tokens:,} out"
    )
    if not usage.calls_lost:
        return text
    lost_answers = (
        "1 answer was" if usage.calls_lost == 1 else f"{usage.calls_lost} answers were"
    )
    return (
        f"{text}; {lost_answers} lost on the way: judges and entrants cost at most "
        f"${usage.dollars_at_most:.4f}"
    )
